"""Operators of boxes against loops over numpy arrays, and what they refuse."""

import numpy as np
import pytest

from tests.topi.test_on_tensors import floats, ran, rng
from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.topi import testing


@pytest.mark.parametrize(("shape", "stride"), [((2, 8, 4, 6), 2), ((1, 18, 3, 6), 3)])
def test_reorg(shape, stride):
    x = floats(*shape)
    (result,) = ran(lambda t: topi.vision.reorg(t, stride), [x])
    np.testing.assert_array_equal(result, testing.reorg_python(x, stride))
    assert sorted(result.ravel()) == sorted(x.ravel())  # every element once


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
    with pytest.raises(AttributeError, match="depends on the data"):
        topi.vision.non_max_suppression  # noqa: B018
