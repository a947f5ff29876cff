"""Tables are as wide as without a terminal, and commands are spelled as where they are installed,
whatever runs the tests."""

import pytest


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """The command is where a shell finds it."""
    monkeypatch.setattr("tilewright.cli.tune.program", lambda: "tilewright")
