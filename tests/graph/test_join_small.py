"""Kernels of few elements that follow from inputs: one where there were several."""

from __future__ import annotations

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule
from tilewright.graph.passes import fuse, join_small
from tilewright.network.memory import steps
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

SIZE = 8


def position(name: str = "i") -> Expr:
    return tensor(name, 1, 1)


def angles(i: Expr) -> Expr:
    speed = relay.const(np.linspace(1, 2, SIZE, dtype="float32").reshape(1, SIZE))
    turned = relay.multiply(relay.add(i, relay.const(np.float32(1))), speed)
    return relay.concatenate([turned, turned], axis=1)


def turned() -> Expr:
    """Rows times cosines and sines of angles, which a product reads."""
    i = position()
    cos, sin = relay.cos(angles(i)), relay.sin(angles(i))
    x = nn.dense(tensor("x", 4, 2 * SIZE), tensor("w", 2 * SIZE, 2 * SIZE))
    return relay.Tuple([nn.dense(x * cos, tensor("v", 3, 2 * SIZE)), nn.softmax(x * sin)])


def of_layers() -> Expr:
    one = relay.const(np.float32(1))
    moved = [relay.add(position(f"i{k}"), one) for k in range(5)]
    return relay.Tuple([*moved, relay.exp(tensor("x", 2, 3))])


def of_many() -> Expr:
    x = tensor("x", 64, 64)
    y = relay.exp(x)
    return relay.Tuple([relay.cos(y), relay.sin(y)])


def of_a_product() -> Expr:
    y = nn.dense(tensor("x", 1, 4), tensor("w", 4, 4))
    return relay.Tuple([relay.cos(y), relay.sin(y)])


NETWORKS = {  # and how many kernels there are after
    "angles of a position": (turned, 4),
    "positions of layers": (of_layers, 2),
    "many elements": (of_many, 3),
    "what a product has made": (of_a_product, 2),
}


@pytest.mark.parametrize(("make", "kernels"), NETWORKS.values(), ids=NETWORKS)
def test_what_few_elements_lead_to_is_one_kernel(make, kernels: int) -> None:
    mod = fuse(IRModule({"main": function(make())}))
    made = join_small(mod)
    assert len(steps(made["main"].body)) == kernels
    rng = np.random.default_rng(0)
    given = {p.name_hint: rng.random(p.shape, "float32") for p in mod["main"].params}
    for mine, its in zip(evaluate(made, given), evaluate(mod, given), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
