"""Operators that take from data what they could be told: diagonals, segments, no boxes."""

import numpy as np
import pytest

from tilewright import IRModule
from tilewright.base.errors import ModelError
from tilewright_tvm import relay

MATRIX = np.arange(1, 13, dtype="int32").reshape(3, 4)


def run(kind, inputs, result, *arrays):
    mod = IRModule.from_expr(relay.Function(inputs, result))
    return relay.create_executor(kind, mod, target="llvm").evaluate()(*arrays)


@pytest.mark.slow
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("above", [-(2**60), -1, 0, 2, 9])
def test_the_diagonal_of_a_triangle_may_be_an_input(above, upper):
    x, k = relay.var("x", shape=(3, 4), dtype="int32"), relay.var("k", shape=(), dtype="int64")
    wanted = (np.triu if upper else np.tril)(MATRIX, max(above, -9))
    by_input = run("graph", [x, k], relay.trilu(x, k, upper), MATRIX, np.array(above, "int64"))
    np.testing.assert_array_equal(by_input.numpy(), wanted)
    for number in (above, relay.const(above, "int64")):
        found = run("graph", [x], relay.trilu(x, number, upper), MATRIX)
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_are_finite(dtype):
    x = relay.var("x", shape=(3, 4), dtype=dtype)
    for function, wanted in ((relay.isnan, False), (relay.isinf, False), (relay.isfinite, True)):
        found = run("graph", [x], function(x), MATRIX.astype(dtype)).numpy()
        assert found.dtype == bool and (found == wanted).all()


def test_how_many_segments_there_are():
    data = np.arange(8, dtype="float32").reshape(4, 2)
    x, ids = relay.var("x", shape=(4, 2)), relay.var("ids", shape=(3,), dtype="int32")
    made = relay.segment_sum(x, ids)
    assert made.checked_type.shape[1] == 2
    numbers = np.array([0, 2, 0], "int32")  # the last slice is in no segment
    wanted = [[4, 6], [0, 0], [2, 3]]
    np.testing.assert_array_equal(run("vm", [x, ids], made, data, numbers).numpy(), wanted)
    known = relay.segment_sum(x, relay.const(numbers))
    np.testing.assert_array_equal(run("graph", [x], known, data).numpy(), wanted)
    with pytest.raises(ModelError, match="how many segments there are depends on the data"):
        relay.build(IRModule.from_expr(relay.Function([x, ids], made)), "llvm")
    with pytest.raises(ModelError, match="no slice for a segment"):
        relay.segment_sum(x, relay.var("more", shape=(5,), dtype="int32"))


def test_scatter_add_adds():
    x, updates = relay.var("x", shape=(3, 4)), relay.var("updates", shape=(2, 4))
    at = relay.const(np.array([[0, 1, 2, 0], [0, 1, 0, 2]], "int64"))
    zeros, ones = np.zeros((3, 4), "f"), np.ones((2, 4), "f")
    found = run("graph", [x, updates], relay.scatter_add(x, at, updates), zeros, ones).numpy()
    np.testing.assert_array_equal(found, [[2, 0, 1, 1], [0, 2, 0, 0], [0, 0, 1, 1]])


def test_sparse_indices_of_nothing_and_out_of_range():
    at = relay.var("at", shape=(relay.Any(), 2), dtype="int64")
    before, after = (relay.var(n, shape=(k,), dtype="int64") for n, k in (("b", 2), ("a", 1)))
    made = relay.sparse_reshape(at, before, after)

    def places(indices, extents):
        numbers = np.array(indices, "int64").reshape(-1, 2)
        found = run("vm", [at, before, after], made, numbers, np.array(extents), np.array([-1]))
        return [f.numpy().tolist() for f in found]

    assert places([[0, 1], [1, 1]], [2, 3]) == [[[1], [4]], [6]]
    assert places([], [2, 3]) == [[], [6]]
    assert places([[0, 3]], [2, 3])[0] == [[3]]  # counted on into the next row, as in TVM
    for wrong in ([1, 3], [-1, 0]):
        with pytest.raises(ModelError, match="an index is out of range"):
            places([wrong], [2, 3])


def test_no_boxes():
    boxes = relay.var("boxes", shape=(2, 0, 6))
    nothing = np.zeros((2, 0, 6), "f")
    counts, kept, places = run("vm", [boxes], relay.vision.get_valid_counts(boxes, 0.5), nothing)
    assert counts.numpy().tolist() == [0, 0]
    assert kept.shape == (2, 0, 6) and places.shape == (2, 0)
    at, none = relay.const(np.zeros((2, 0), "int32")), relay.const(np.zeros(2, "int32"))
    chosen = relay.vision.non_max_suppression(boxes, none, at)
    found, how_many = run("vm", [boxes], chosen, nothing)
    assert found.shape == (2, 0) and how_many.numpy().tolist() == [[0], [0]]
    moved = relay.vision.non_max_suppression(boxes, none, at, return_indices=False)
    assert run("vm", [boxes], moved, nothing).shape == (2, 0, 6)
