"""Products of signs and of numbers of a few bits, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tvm.topi.test_on_tensors import ran
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright_tvm import topi
from tilewright_tvm.topi import nn, testing

rng = np.random.default_rng(0)


@pytest.mark.slow
def test_signs_in_words():
    a, b = (rng.normal(size=(n, 96)).astype("float32") for n in (3, 5))
    a[0, 0] = 0  # is not negative
    words = [ran(nn.binarize_pack, [x])[0] for x in (a, b)]
    signs = [np.where(x >= 0, 1, -1) for x in (a, b)]
    high = np.packbits(signs[0] > 0, axis=1).reshape(3, 3, 4)
    np.testing.assert_array_equal(words[0], high.view(">u4")[..., 0].astype("uint32"))
    (found,) = ran(nn.binary_dense, words)
    np.testing.assert_array_equal(found, (signs[0] @ signs[1].T).astype("float32"))
    (across,) = ran(lambda x: nn.binarize_pack(x, 0), [np.ascontiguousarray(a.T)])
    np.testing.assert_array_equal(across, words[0].T)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("unipolar", [True, False])
@pytest.mark.parametrize("bits", [(1, 1), (2, 1), (3, 2)])
def test_products_of_a_few_bits(bits, unipolar):
    def weights(b):
        b = b.astype(int) & (1 << bits[1]) - 1
        return 2 * b - (1 << bits[1]) + 1 if unipolar else b

    def values(a):
        return a.astype(int) & (1 << bits[0]) - 1

    a, b = (rng.integers(0, 256, (n, 20)).astype("uint8") for n in (3, 4))
    (found,) = ran(lambda x, w: nn.bitserial_dense(x, w, *bits, unipolar=unipolar), [a, b])
    assert found.dtype == "int16"
    np.testing.assert_array_equal(found, values(a) @ weights(b).T)
    x, w = (rng.integers(0, 8, s).astype("uint32") for s in ((1, 3, 6, 5), (4, 3, 3, 3)))
    how = *bits, "uint32", "int32", unipolar
    wanted = testing.conv2d_nchw_python(values(x), weights(w), 2, 1)
    (found,) = ran(lambda x, w: nn.bitserial_conv2d_nchw(x, w, 2, 1, *how), [x, w])
    np.testing.assert_array_equal(found, wanted)
    last = x.transpose(0, 2, 3, 1).copy(), w.transpose(2, 3, 1, 0).copy()
    (found,) = ran(lambda x, w: nn.bitserial_conv2d_nhwc(x, w, 2, 1, *how), last)
    np.testing.assert_array_equal(found, wanted.transpose(0, 2, 3, 1))


def test_what_has_no_bits_is_refused():
    x = te.placeholder((2, 40), name="x")
    with pytest.raises(ExpressionError, match="40 elements do not fill words of 32"):
        nn.binarize_pack(x)
    with pytest.raises(ExpressionError, match="float32 has no bits"):
        nn.bitserial_dense(x, x, 1, 1)
    with pytest.raises(ExpressionError, match="data is float32. Give words"):
        topi.nn.binary_dense(x, x)
    whole = te.placeholder((2, 40), "int32", name="whole")
    with pytest.raises(ExpressionError, match="9 bits. Use 1 to 8"):
        nn.bitserial_dense(whole, whole, 9, 1)
