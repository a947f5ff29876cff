"""Tables are as wide as without a terminal, and commands are spelled as where they are installed,
whatever runs the tests."""

import pytest

from tilewright.graph.expr import Function, IRModule, TensorType, Var
from tilewright.graph.op import call
from tilewright.models import networks


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The command is where a shell finds it."""
    monkeypatch.setattr("tilewright.cli.tune.program", lambda: "tilewright")


@pytest.fixture
def small_network(monkeypatch):
    """What is loaded, whatever its name, of networks for tests."""
    x = Var("x", TensorType((8,)))
    mod = IRModule.from_expr(Function([x], call("nn.relu", x)))
    monkeypatch.setattr(networks, "load_sizes", lambda *_: ([mod], {}))
