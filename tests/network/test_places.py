"""What inputs may hold that say where caches are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, Function, Tuple
from tilewright.graph.functions import indexing, tensor
from tilewright.graph.leaves import const, var
from tilewright.network.build import State, build
from tilewright.network.places import bounds_of_places
from tilewright.runtime.network.compiled import Compiled

LENGTH, SIZE = 6, 4
Made = Callable[[Expr], Expr]


def counted(n: int, begin: int = 0) -> Expr:
    return const(np.arange(begin, begin + n, dtype="int64"))


def from_behind(at: Expr) -> Expr:
    zero, length = const(0, "int64"), const(LENGTH, "int64")
    return tensor.where(tensor.less(at, zero), tensor.add(at, length), at)


INDICES: dict[str, Made] = {
    "as it is": lambda at: at,
    "several from it on": lambda at: at + counted(3),
    "several before it": lambda at: counted(3, -2) + at,
    "from behind": from_behind,
    "several, from behind": lambda at: from_behind(at + counted(2)),
    "further, then from behind": lambda at: from_behind(at + const(2, "int64")),
    "of another type": lambda at: tensor.cast(
        tensor.cast(at, "int32") + const(1, "int32"), "int64"
    ),
    "spread": lambda at: tensor.broadcast_to(tensor.reshape(at, (1,)), (2,)) + counted(2),
}


@pytest.mark.parametrize("case", INDICES)
def test_numbers_within_have_a_place_and_others_have_none(case: str) -> None:
    at, cache = var("at", shape=(1,), dtype="int64"), var("cache", shape=(LENGTH, SIZE))
    index = INDICES[case](at)
    new = tensor.broadcast_to(const(1.0), (*index.shape, SIZE))
    made = indexing.scatter_nd(cache, tensor.expand_dims(index, 0), new)
    ((name, (least, most)),) = bounds_of_places(Function([at, cache], made), ["cache"]).items()
    assert name == "at"
    for value in range(-3 * LENGTH, 3 * LENGTH):
        found = evaluate(Function([at], index), {"at": np.array([value])})
        has_place = ((found >= 0) & (found < LENGTH)).all()
        if case == "spread":  # each element meets one of the numbers: the loosest of both counts
            assert not has_place or least <= value <= most
        else:
            assert has_place == (least <= value <= most)


def test_an_element_that_meets_one_number_is_within_what_that_allows() -> None:
    at, cache = var("at", shape=(3,), dtype="int64"), var("cache", shape=(LENGTH, SIZE))
    new = var("new", shape=(3, SIZE))
    made = indexing.scatter_nd(cache, tensor.expand_dims(at + counted(3), 0), new)
    assert bounds_of_places(Function([at, cache, new], made), ["cache"]) == {"at": (-2, 5)}


def bounds(index: Made, data: Made = lambda cache: cache, *more: str) -> dict[str, Any]:
    at = var("at", shape=(2,), dtype="int64")
    cache, weight = var("cache", shape=(LENGTH, SIZE)), var("weight", shape=(LENGTH, SIZE))
    at_rows = index(at)
    made = indexing.scatter_nd(data(cache), at_rows, const(np.zeros((2, SIZE), "float32")))
    return bounds_of_places(Function([at, cache, weight], made), ["cache", *more])


def rows(at: Expr) -> Expr:
    return tensor.expand_dims(at, 0)


def test_only_what_is_written_to_and_known_has_bounds() -> None:
    assert bounds(rows) == {"at": (0, LENGTH - 1)}
    assert bounds(rows, lambda cache: tensor.reshape(cache, (LENGTH, SIZE))) == {"at": (0, 5)}
    assert bounds(rows, lambda cache: cache + const(1.0)) == {}
    part = lambda at: rows(indexing.strided_slice(tensor.concatenate([at, at], 0), [1], [3]))  # noqa: E731
    assert bounds(part) == {}
    assert bounds(lambda at: rows(at * const(2, "int64"))) == {}
    assert bounds(lambda at: rows(tensor.cast(tensor.cast(at, "float32"), "int64"))) == {}
    assert bounds(lambda at: rows(at + const(2 * LENGTH, "int64"))) == {"at": (-12, -7)}


def test_of_several_axes_each_has_its_own() -> None:
    row, column = (var(n, shape=(2,), dtype="int64") for n in ("row", "column"))
    cache, new = var("cache", shape=(LENGTH, SIZE)), var("new", shape=(2,))
    at = tensor.concatenate([rows(row), rows(column)], 0)
    made = indexing.scatter_nd(cache, at, new)
    found = bounds_of_places(Function([row, column, cache, new], made), ["cache"])
    assert found == {"row": (0, LENGTH - 1), "column": (0, SIZE - 1)}
    whole = var("whole", shape=(2, 2), dtype="int64")
    made = indexing.scatter_nd(cache, whole, new)
    assert bounds_of_places(Function([whole, cache, new], made), ["cache"]) == {}


def test_two_writes_leave_what_both_allow() -> None:
    at = var("at", shape=(1, SIZE), dtype="int64")
    long, short = var("long", shape=(9, SIZE)), var("short", shape=(LENGTH, SIZE))
    new = var("new", shape=(1, SIZE))
    both = tensor.concatenate(
        [indexing.scatter_elements(c, at, new, axis=0) for c in (long, short)], 0
    )
    found = bounds_of_places(Function([at, long, short, new], both), ["long", "short"])
    assert found == {"at": (0, LENGTH - 1)}


def test_a_network_that_counts_its_positions_ends_with_its_cache() -> None:
    at, cache = var("at", shape=(1, 1), dtype="int64"), var("cache", shape=(2, SIZE))
    x = var("x", shape=(1, SIZE))
    made = indexing.scatter_nd(cache, at, x)
    further = at + const(np.array([[1]], "int64"))
    function = Function([x, cache, at], Tuple([made, further, x * const(2.0)]))
    found = bounds_of_places(function, ["cache", "at"])
    library = build(
        function, "llvm", states={"cache": State(0), "at": State(1)}, bounds=found, verify=False
    )
    net = Compiled(library)
    for k in range(2):
        net(np.full((1, SIZE), k + 1.0, "float32"))
    saved = net.state()
    with pytest.raises(DeviceError, match=r"state 'at' is 2, not from 0 to 1.*nothing was written"):
        net(np.full((1, SIZE), 3.0, "float32"))
    for name, value in net.state().items():
        np.testing.assert_array_equal(value, saved[name])
    net.reset()
    net.set_state(saved)  # a full one may be kept
    net.reset()
    net(np.full((1, SIZE), 4.0, "float32"))
    assert net.state()["cache"][:, 0].tolist() == [4, 0]
