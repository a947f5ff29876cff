"""Tensors without elements: typed, evaluated, imported, built; no kernel is made for them."""

import numpy as np
import pytest

import tilewright
from graph.cases import function, tensor
from models.test_onnx import INT64, check, model, node
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn


def none(*shape, name="x"):
    return tensor(name, *shape)


# name -> (the graph, its kernels once built)
GRAPHS = {
    "elementwise": (lambda: relay.exp(none(0, 3)) + relay.const(1.0), 0),
    "broadcast": (lambda: none(0, 3) + tensor("y", 1, 3), 0),
    "sum": (lambda: relay.sum(none(0, 3), axis=0), 0),
    "prod": (lambda: relay.prod(none(2, 0), axis=1), 0),
    "max": (lambda: relay.max(none(2, 0), axis=1), 0),
    "min": (lambda: relay.min(none(2, 0)), 0),
    "global-max": (lambda: nn.global_max_pool2d(none(2, 3, 1, 0)), 0),
    "adaptive-max": (lambda: nn.adaptive_max_pool2d(none(2, 3, 1, 0), (1, 2)), 0),
    "sum-empty": (lambda: relay.sum(none(0, 3), axis=1), 0),
    "dense": (lambda: nn.dense(none(2, 0), tensor("w", 3, 0)), 0),
    "dense-empty": (lambda: nn.dense(none(0, 4), tensor("w", 3, 4)), 0),
    "concatenate": (lambda: relay.concatenate([none(0, 3), tensor("y", 2, 3)], 0), 0),
    "concatenate-empty": (lambda: relay.concatenate([none(0, 3), none(0, 3, name="y")], 0), 0),
    "pad": (lambda: nn.pad(none(0, 2), ((1, 1), (0, 0)), 1.5), 0),
    "moved": (lambda: relay.transpose(relay.reshape(none(0, 3, 2), (0, 6)), (1, 0)), 0),
    "beside": (lambda: relay.Tuple([relay.exp(none(0, 3)), relay.exp(tensor("y", 2))]), 1),
    "input": (lambda: none(3, 0), 0),
    "tile": (lambda: relay.tile(none(0, 3), (2, 1)), 0),
    "tile-to-nothing": (lambda: relay.tile(tensor("y", 2, 3), (0, 2)), 0),
    "repeat-to-nothing": (lambda: relay.repeat(tensor("y", 2, 3), 0, 1), 0),
    "take": (lambda: relay.take(none(0, 3), at(2), 1), 0),
    "take-nowhere": (lambda: relay.take(none(0, 3), at(0, 2), 0), 0),
    "gather": (lambda: relay.gather(none(3, 0), 0, at(2, 0)), 0),
    "gather_nd": (lambda: relay.gather_nd(none(3, 0), at(1, 2)), 0),
    "scatter_nd": (lambda: relay.scatter_nd(none(3, 0), at(1, 2), none(2, 0, name="u")), 0),
    "scatter_elements": (lambda: relay.scatter_elements(none(0, 3), at(0, 3), none(0, 3, name="u")),
                         0),
}  # fmt: skip


def at(*shape):
    return tensor("at1", *shape, dtype="int32")


@pytest.mark.parametrize("kind", GRAPHS)
def test_what_is_built_is_what_is_evaluated(kind):
    make, kernels = GRAPHS[kind]
    net = function(make())
    given = {p.name_hint: np.full(p.shape, 0.5).astype(p.dtype) for p in net.params}
    wanted = relay.evaluate(net, given)
    library = relay.build(relay.IRModule.from_expr(net), "llvm")
    assert len(library.report.kernels) == kernels
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    for name, value in given.items():
        module.set_input(name, value)
    module.run()
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for k, value in enumerate(wanted):
        np.testing.assert_array_equal(module.get_output(k).numpy(), value)


def test_what_nothing_gives():
    x = np.zeros((2, 0), "float32")
    assert relay.evaluate(relay.max(none(2, 0), axis=1), {"x": x}).tolist() == [-np.inf] * 2
    assert relay.evaluate(relay.sum(none(2, 0), axis=1), {"x": x}).tolist() == [0, 0]
    assert relay.evaluate(relay.prod(none(2, 0), axis=1), {"x": x}).tolist() == [1, 1]


def test_import():
    nodes = [node("ReduceSum", ["x", "a"], "s", keepdims=0), node("Exp", ["s"])]
    check(model(nodes, {"x": [2, 0]}, {"a": np.array([1])}), {"x": np.zeros((2, 0), "float32")})
    keep = [node("Reshape", ["x", "s"], allowzero=1)]
    mod, _ = relay.frontend.from_onnx(model(keep, {"x": [0, 3]}, {"s": np.array([3, 0])}))
    assert mod["main"].ret_type.shape == (3, 0)
    whole = [node("Cast", ["x"], to=INT64)]
    mod, _ = relay.frontend.from_onnx(model(whole, {"x": [0]}))
    assert relay.evaluate(mod, {"x": np.zeros(0, "float32")}).shape == (0,)
    nothing = [node("Compress", ["x", "c"], axis=0)]
    check(
        model(nothing, {"x": [3, 2]}, {"c": np.zeros(3, bool)}), {"x": np.ones((3, 2), "float32")}
    )
