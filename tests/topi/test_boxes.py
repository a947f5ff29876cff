"""Operators of boxes against loops over numpy arrays, and what they refuse."""

import numpy as np
import pytest

from tests.tvm.topi.test_on_tensors import floats, ran, rng
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright_tvm import topi
from tilewright_tvm.topi import testing


@pytest.mark.parametrize(("shape", "stride"), [((2, 8, 4, 6), 2), ((1, 18, 3, 6), 3)])
def test_reorg(shape, stride):
    x = floats(*shape)
    (result,) = ran(lambda t: topi.vision.reorg(t, stride), [x])
    np.testing.assert_array_equal(result, testing.reorg_python(x, stride))
    assert sorted(result.ravel()) == sorted(x.ravel())  # every element once


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scale"), [(7, 1.0), ((3, 2), 0.5)])
def test_roi_pool(size, scale):
    x = floats(2, 3, 9, 11)
    rois = rng.uniform(-3, 14, (8, 5)).astype("float32")
    rois[:, 0] = rng.integers(0, 2, 8)
    (result,) = ran(lambda d, r: topi.vision.rcnn.roi_pool_nchw(d, r, size, scale), [x, rois])
    np.testing.assert_array_equal(result, testing.roi_pool_nchw_python(x, rois, size, scale))


@pytest.mark.parametrize("clip", [False, True])
def test_multibox_prior(clip):
    how = (0.5, 0.25), (1, 2, 0.5), (-1, 0.1), (0.5, 0.4), clip
    (result,) = ran(lambda t: topi.vision.ssd.multibox_prior(t, *how), [floats(1, 3, 5, 4)])
    expected = testing.multibox_prior_python((1, 3, 5, 4), *how)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


BOXES = np.array([[
    [0, 0.8, 1, 20, 25, 45], [1, 0.7, 30, 60, 50, 80], [0, 0.4, 4, 21, 19, 40],
    [2, 0.9, 35, 61, 52, 79], [1, 0.5, 100, 60, 70, 110], [1, 0.6, 31, 60, 50, 80],
]], "float32")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("force", "best"), [(False, [3, 0, 1, 4]), (True, [3, 0, 4])]
)  # fmt: skip
def test_suppression(force, best):
    """Box 5 meets box 1 of its class, box 1 meets box 3 of another one, box 2 counts no more."""
    counts, origins = np.array([5], "int32"), np.arange(10, 16, dtype="int32")[None]
    data = BOXES[:, [0, 1, 5, 3, 4, 2]]
    kept, number = ran(
        lambda *t: topi.vision.non_max_suppression(*t, -1, 0.5, force, id_index=0),
        [data, counts, origins],
    )
    of_data = {0: 0, 1: 1, 3: 3, 4: 4}
    expected = [10 + of_data[k] for k in best]
    assert number.tolist() == [[len(best)]]
    assert kept[0].tolist() == expected + [-1] * (6 - len(best))


def test_valid_boxes():
    x = floats(2, 40, 5)
    count, rows, places = ran(lambda t: topi.vision.get_valid_counts(t, 0.2, 1, 3), [x])
    for b in range(2):
        good = np.flatnonzero((x[b, :, 3] > 0.2) & (x[b, :, 1] >= 0))
        left = 40 - len(good)
        assert count[b] == len(good)
        assert places[b].tolist() == [*good, *[-1] * left]
        np.testing.assert_array_equal(rows[b], [*x[b, good], *[[-1.0] * 5] * left])


def test_refusals():
    x = te.placeholder((1, 3, 5, 4), name="x")
    for call, message in (
        (lambda: topi.vision.reorg(x, 2), "blocks of 2 do not divide"),
        (lambda: topi.vision.multibox_prior(x, (0,)), "not positive"),
        (lambda: topi.vision.multibox_prior(x, steps=(1,)), "not two"),
        (lambda: topi.vision.roi_pool_nchw(x, te.placeholder((2, 4)), 2, 1.0), "rows of 4"),
    ):
        with pytest.raises(ExpressionError, match=message):
            call()
    with pytest.raises(AttributeError, match="non_max_suppression"):
        topi.vision.nms  # noqa: B018
