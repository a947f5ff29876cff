"""Different elements, and places of elements that are not zero, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tvm.topi.test_on_tensors import ran
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright_tvm import topi

rng = np.random.default_rng(0)


@pytest.mark.sampled(11)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32", "bool"])
@pytest.mark.parametrize("shape", [(1,), (40,), (5, 3), (2, 3, 1, 4)])
def test_argwhere(shape, dtype):
    data = rng.integers(0, 2, shape).astype(dtype)
    wanted = np.argwhere(data)
    rows = np.zeros((len(wanted) + 2, len(shape)), "int32")
    (found,) = ran(topi.argwhere, [rows, data])
    np.testing.assert_array_equal(found[:-2], wanted)
    assert (found[-2:] == -1).all()


def test_argwhere_of_many():
    data = (rng.random((30, 50)) < 0.02).astype("float32")
    wanted = np.argwhere(data)
    (found,) = ran(topi.argwhere, [np.zeros(wanted.shape, "int32"), data])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "float32"])
@pytest.mark.parametrize(("size", "most"), [(1, 4), (9, 3), (9, 99), (700, 50)])
def test_unique(size, most, dtype, is_sorted):
    data = rng.integers(0, most, size).astype(dtype)
    values, first, which, often = np.unique(data, True, True, True)
    if not is_sorted:
        turn = np.argsort(first)
        values, first, often = values[turn], first[turn], often[turn]
        which = np.argsort(turn)[which]
    found = ran(lambda x: topi.unique(x, is_sorted, True), [data])
    count = len(values)
    assert found[3].tolist() == [count]
    np.testing.assert_array_equal(found[2], which)
    for ours, wanted, none in ((found[0], values, 0), (found[1], first, -1), (found[4], often, 0)):
        np.testing.assert_array_equal(ours[:count], wanted)
        assert (ours[count:] == none).all()


def test_what_is_refused():
    x, rows = te.placeholder((3, 4), name="x"), te.placeholder((5, 3), name="rows")
    with pytest.raises(ExpressionError, match=r"have shape \[rows, 2\]. Give a tensor of that"):
        topi.argwhere(rows, x)
    with pytest.raises(ExpressionError, match="data has 2 dimensions, not the 1"):
        topi.unique(x)
    assert len(topi.unique(te.placeholder((4,), name="v"))) == 4
