"""Squeeze and excite: small products join the multiplication that reads what they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import IRModule
from tilewright.graph.passes import join_gates
from tilewright.network import extract
from tilewright.network.build import build
from tilewright.network.extract import fused_groups, groupings
from tilewright.network.memory import steps
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

GPU = Target("cuda -arch=sm_90")
SHAPE = (1, 5, 5, 16)


def weight(*shape: int) -> relay.Constant:
    rng = np.random.default_rng(shape)
    return relay.const(rng.integers(-1, 2, shape).astype("float32") * np.float32(0.25))


def image() -> relay.Var:
    return relay.var("x", shape=SHAPE)


def hidden(row: Any, size: int = 16) -> Any:
    return nn.relu(nn.dense(row, weight(8, size)) + weight(1, 8))


def factors(row: Any) -> Any:
    return relay.sigmoid(nn.dense(row, weight(16, 8)) + weight(1, 16))


def means(x: Any) -> Any:
    return relay.reshape(relay.mean(x, axis=[1, 2]), (1, 16))


def two_products() -> Any:
    x = image()
    return x * relay.reshape(factors(hidden(means(x))), (1, 1, 1, 16))


def one_product() -> Any:
    """The hidden row is a result, too."""
    x = image()
    row = hidden(means(x))
    return relay.Tuple([row, nn.relu(x * relay.reshape(factors(row), (1, 1, 1, 16)))])


def read_twice() -> Any:
    x = image()
    factor = relay.reshape(factors(hidden(means(x))), (1, 1, 1, 16))
    return relay.Tuple([x * factor, nn.softmax(relay.reshape(factor, (1, 16)))])


def wide() -> Any:
    """The first product is too much to be computed by every block."""
    x = relay.var("x", shape=(1, 2, 2, 320))
    row = nn.relu(nn.dense(relay.reshape(relay.mean(x, axis=[1, 2]), (1, 320)), weight(64, 320)))
    return x * relay.reshape(relay.sigmoid(nn.dense(row, weight(320, 64))), (1, 1, 1, 320))


def of_lines() -> Any:
    """Factors of another axis."""
    x = image()
    row = nn.dense(hidden(means(x)), weight(5, 8))
    return x * relay.reshape(row, (1, 1, 5, 1))


NETWORKS: dict[str, tuple[Callable[[], Any], int]] = {  # with how many kernels fewer
    "two products": (two_products, 2),
    "one product": (one_product, 1),
    "a wide first product": (wide, 1),
    "read twice": (read_twice, 0),
    "of lines": (of_lines, 0),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_products_join_and_the_network_computes_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, which usually has no such kernels."""
    make, fewer = NETWORKS[name]
    mod = IRModule.from_expr(make())
    (usual, *_), (joined, *_) = groupings(mod), groupings(mod, target=GPU)
    before, after = (len(steps(m["main"].body)) for m in (usual, joined))
    assert before - after == fewer
    shape = mod["main"].params[0].shape
    x = np.random.default_rng(0).integers(-2, 3, shape).astype("float32")
    monkeypatch.setattr(extract, "ways_to_group", lambda m, last, target: [join_gates(last(m))])
    library = build(mod, "llvm", schedules=[], use_knowledge=False)
    assert before - sum(k.count for k in library.report.kernels) == fewer
    net = GraphModule(library["default"](device("llvm")))
    net.run(x=x)
    wanted = evaluate(mod["main"], {"x": x})
    for k, array in enumerate(wanted if isinstance(wanted, tuple) else (wanted,)):
        np.testing.assert_allclose(net.get_output(k).numpy(), array, rtol=1e-4, atol=1e-5)


def test_a_gate_has_the_name_of_its_product() -> None:
    (way, *_) = groupings(IRModule.from_expr(two_products()), target=GPU)
    assert [g.name for g in fused_groups(way["main"])][-1] == "dense+add+sigmoid+reshape+multiply"
