"""Slices and concatenations without kernels: where values are, and that networks stay right."""

import numpy as np
import pytest

import tilewright
from tilewright.graph.expr import post_order
from tilewright.graph.passes import fuse
from tilewright.network.memory import lifetimes, places, plan_memory, steps
from tilewright.runtime.drivers import ALIGNMENT
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn


def var(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def rows(x: relay.Expr, begin: int, end: int) -> relay.Expr:
    """Rows begin to end of a matrix."""
    return relay.strided_slice(x, [begin, 0], [end, x.shape[1]])


def kernels(body: relay.Expr) -> list[str]:
    main = fuse(relay.IRModule.from_expr(body))["main"]
    return [call.op.attrs["name"].removeprefix("fused_") for call in steps(main.body)]


def halves(x: relay.Expr) -> relay.Expr:
    return relay.concatenate([nn.softmax(rows(x, 8, 16)), nn.softmax(rows(x, 0, 8))], axis=0)


X = var("x", 16, 16)
S = nn.softmax(X)
WIDE = nn.softmax(var("y", 2, 32))


# what is built -> the kernels that it takes
CASES = {
    "a slice of an input": (nn.softmax(rows(X, 4, 9)), ["nn_softmax"]),
    "a slice of a value": (nn.softmax(rows(S, 4, 9)), ["nn_softmax"] * 2),
    "slices of one value": (
        nn.softmax(rows(S, 0, 8)) + rows(S, 8, 16), ["nn_softmax"] * 2 + ["add"],
    ),
    "a slice of a slice": (nn.softmax(rows(rows(X, 4, 9), 1, 3)), ["nn_softmax"]),
    "a slice behind a new shape": (
        nn.softmax(rows(relay.reshape(S, (8, 32)), 1, 3)), ["nn_softmax"] * 2,
    ),
    "two halves joined": (nn.softmax(halves(X)), ["nn_softmax"] * 3),
    "joined twice": (
        nn.softmax(relay.concatenate([halves(X), nn.softmax(rows(X, 3, 5))], axis=0)),
        ["nn_softmax"] * 4,
    ),
    "a part that is read elsewhere": (
        nn.softmax(relay.concatenate([S, nn.softmax(S)], axis=0)), ["nn_softmax"] * 3,
    ),
    "elementwise parts": (
        nn.softmax(relay.concatenate([relay.exp(X), relay.tanh(X)], axis=0)),
        ["exp", "tanh", "nn_softmax"],
    ),
    "a part under a new shape": (
        nn.softmax(relay.concatenate([relay.reshape(S, (8, 32)), WIDE], axis=0)),
        ["nn_softmax"] * 3,
    ),
    # and where it takes one
    "a column": (
        nn.softmax(relay.strided_slice(X, [0, 4], [16, 8])), ["strided_slice", "nn_softmax"],
    ),
    "backwards": (
        nn.softmax(relay.strided_slice(X, [9], [4], [-1], axes=[0])),
        ["strided_slice", "nn_softmax"],
    ),
    "a place that is not aligned": (
        nn.softmax(rows(var("x", 16, 5), 1, 3)), ["strided_slice", "nn_softmax"],
    ),
    "what is made for one slice": (
        nn.softmax(rows(relay.exp(X), 4, 9)), ["exp_strided_slice", "nn_softmax"],
    ),
    "a result that is a slice": (rows(S, 4, 9), ["nn_softmax", "strided_slice"]),
    "a result under a new shape": (
        relay.reshape(rows(S, 4, 9), (80,)), ["nn_softmax", "strided_slice"],
    ),
    "a result that is joined": (halves(X), ["nn_softmax"] * 2 + ["concatenate"]),
    "an input that is joined": (
        nn.softmax(relay.concatenate([X, S], axis=0)), ["nn_softmax", "concatenate", "nn_softmax"],
    ),
    "a value twice in one": (
        nn.softmax(relay.concatenate([S, S], axis=0)), ["nn_softmax", "concatenate", "nn_softmax"],
    ),
    "a value in two": (
        nn.softmax(relay.concatenate([S, nn.softmax(S)], axis=0))
        + relay.concatenate([S, nn.softmax(X + S)], axis=0),
        ["nn_softmax"] * 4 + ["concatenate", "add", "add"],
    ),
    "parts side by side": (
        nn.softmax(relay.concatenate([S, nn.softmax(S)], axis=1)),
        ["nn_softmax"] * 2 + ["concatenate", "nn_softmax"],
    ),
    "a slice that is joined": (
        nn.softmax(relay.concatenate([rows(S, 0, 8), nn.softmax(S)], axis=0)),
        ["nn_softmax"] * 2 + ["concatenate", "nn_softmax"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_needs_a_kernel(name):
    body, expected = CASES[name]
    assert sorted(kernels(body)) == sorted(expected)


@pytest.mark.parametrize("name", CASES)
def test_places_are_aligned_and_inside(name):
    main = fuse(relay.IRModule.from_expr(CASES[name][0]))["main"]
    found = places(main.body)
    for node in post_order(main.body):
        if node in found and not isinstance(node, relay.Tuple):
            place = found[node]
            assert place.offset % ALIGNMENT == 0
            assert place.offset + node.tensor_type.nbytes <= place.owner.tensor_type.nbytes
            assert found[place.owner].owner is place.owner
    alive = list(lifetimes(main).values())
    assert plan_memory(alive).peak_bytes <= sum(v.nbytes for v in alive)


def test_a_joined_value_lives_from_its_first_part_on():
    body = nn.softmax(relay.concatenate([nn.softmax(nn.softmax(S)), nn.softmax(X)], axis=0))
    main = fuse(relay.IRModule.from_expr(body))["main"]
    found = {(v.nbytes, v.first, v.last, v.kept) for v in lifetimes(main).values()}
    assert found == {(1024, 0, 1, False), (1024, 1, 2, False), (2048, 2, 4, False),
                     (2048, 4, 4, True)}  # fmt: skip


def everything() -> tuple[relay.IRModule, dict[str, np.ndarray]]:
    """All cases whose one input is [16, 16], as one network."""
    bodies = [b for b, _ in CASES.values() if relay.free_vars(b) == [X]]
    assert len(bodies) > 15
    main = relay.Function([X], relay.Tuple(bodies))
    rng = np.random.default_rng(0)
    return relay.IRModule.from_expr(main), {"x": rng.standard_normal((16, 16)).astype("float32")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_networks_of_parts_are_right(kind):
    device = tilewright.device(kind)
    if not device.exist:
        pytest.skip(str(device.why_not()))
    mod, inputs = everything()
    library = relay.build(mod, kind)
    assert any(o.offset for launch in library.plan.launches for o in launch.operands)
    module = graph_executor.GraphModule(library["default"](device))
    for _ in range(2):  # what a run leaves behind changes nothing
        module.run(**inputs)
        for k, expected in enumerate(relay.evaluate(mod, inputs)):
            np.testing.assert_allclose(module.get_output(k).numpy(), expected, rtol=1e-5, atol=1e-6)
