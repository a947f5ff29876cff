"""Operators of topi that few networks have, against loops over numpy arrays; gradients are adjoint
to what they are gradients of; what they refuse."""

import numpy as np
import pytest

from tests.tvm.topi.test_on_tensors import floats, ran, rng, whole
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright_tvm import topi
from tilewright_tvm.topi import nn, testing

CLOSE = {"rtol": 1e-4, "atol": 1e-5}
BOXES = np.array([[0.2, 0.3, 0.7, 0.9], [0, 0.1, 0.8, 1], [-0.5, 0, 1.2, 1]], "float32")
NUMBERS = np.array([1, 0, 1], "int32")


def tensor(*shape, dtype="float32"):
    return te.placeholder(shape, dtype, name="x")


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("method", ["bilinear", "nearest_neighbor"])
@pytest.mark.parametrize("size", [(7, 5), (1, 4)])
def test_crop_and_resize(layout, method, size):
    x = floats(2, 3, 9, 8) if layout == "NCHW" else floats(2, 9, 8, 3)
    how = size, layout, method, 0.25
    (result,) = ran(lambda *t: topi.image.crop_and_resize(*t, *how), [x, BOXES, NUMBERS])
    expected = testing.crop_and_resize_python(x, BOXES, NUMBERS, *how)
    np.testing.assert_allclose(result, expected, **CLOSE)
    assert (result == 0.25).any() == (size[0] > 1)  # the third box leaves its image


def test_affine_grid_and_the_image_there():
    moves, x = floats(2, 2, 3), floats(2, 3, 5, 6)
    (grid,) = ran(lambda t: topi.image.affine_grid(t, (4, 1)), [moves])
    y, x1 = np.linspace(-1, 1, 4), -1.0
    for row in range(2):
        a, b, c = moves[1, row]
        np.testing.assert_allclose(grid[1, row, :, 0], a * x1 + b * y + c, **CLOSE)
    still = np.broadcast_to(np.eye(2, 3, dtype="float32"), (2, 2, 3)).copy()
    (same,) = ran(
        lambda t, m: topi.image.grid_sample(t, topi.image.affine_grid(m, (5, 6))), [x, still]
    )
    np.testing.assert_allclose(same, x, **CLOSE)


@pytest.mark.parametrize("how", [(1, 0, 1), (2, 1, 1), ((1, 2), (1, 0, 2, 1), 2)])
def test_dilation2d(how):
    x, f = floats(2, 3, 9, 8), floats(3, 3, 2)
    expected = testing.dilation2d_nchw_python(x, f, *how)
    (result,) = ran(lambda *t: topi.image.dilation2d_nchw(*t, *how), [x, f])
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(f.transpose(1, 2, 0))
    (result,) = ran(lambda *t: topi.image.dilation2d_nhwc(*t, *how), last)
    np.testing.assert_allclose(result, expected.transpose(0, 2, 3, 1), rtol=1e-6)


@pytest.mark.parametrize(
    "how", [(1, 4, 1, 1, 4, True), (3, 1, 2, 1, 2, True), (3, 3, 2, 2, 4, False)]
)
def test_correlation(how):
    a, b = floats(2, 3, 7, 6), floats(2, 3, 7, 6)
    (result,) = ran(lambda *t: nn.correlation_nchw(*t, *how), [a, b])
    np.testing.assert_allclose(result, testing.correlation_nchw_python(a, b, *how), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [(1, 1), (2, 1), (2, 2), (1, 4)])
def test_deformable_conv2d(groups):
    x, o = floats(2, 4, 6, 7), 2 * floats(2, groups[0] * 18, 3, 4)
    w, how = floats(4, 4 // groups[1], 3, 3), (2, 1, 1, *groups)
    (result,) = ran(lambda *t: nn.deformable_conv2d_nchw(*t, *how), [x, o, w])
    expected = testing.deformable_conv2d_nchw_python(x, o, w, *how)
    np.testing.assert_allclose(result, expected, **CLOSE)


@pytest.mark.parametrize("n", [1, 7, 12])
def test_dft(n):
    re, im = floats(3, n), floats(3, n)
    for inverse in (False, True):
        expected = (np.fft.ifft if inverse else np.fft.fft)(re + 1j * im)
        real, imaginary = ran(lambda *t, v=inverse: topi.dft(*t, v), [re, im])
        np.testing.assert_allclose(real, expected.real, **CLOSE)
        np.testing.assert_allclose(imaginary, expected.imag, **CLOSE)


@pytest.mark.parametrize(
    ("a", "b", "axes"),
    [
        ((3,), (3,), 0), ((2, 3), (3, 5), 1), ((2, 2, 3), (2, 3, 5), 2), ((3, 2), (2, 3), (1, 0)),
        ((4, 3, 2, 2), (2, 4, 3, 5), ((1, 2, 0), (2, 0, 1))), ((2, 3), (2, 3), ((0, 1), (0, -1))),
    ],
)  # fmt: skip
def test_tensordot(a, b, axes):
    x, y = floats(*a), floats(*b)
    (result,) = ran(lambda *t: topi.tensordot(*t, axes), [x, y])
    np.testing.assert_allclose(result, np.tensordot(x, y, axes), **CLOSE)


OPTIONS = [
    {}, {"Bi": True, "Bh": True, "h_init": True, "c_init": True, "reverse": True},
    {"Bi": True, "c_init": True, "proj": True, "peephole": True, "weight_layout": "OIGF"},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("given", OPTIONS)
def test_lstm(given):
    steps, batch, width, hidden, out = 4, 2, 3, 5, 2 if "proj" in given else 5
    arrays = {
        "Xs": floats(steps, batch, width), "Wi": floats(20, width), "Wh": floats(20, out),
        "Bi": floats(20), "Bh": floats(20), "h_init": floats(batch, out),
        "c_init": floats(batch, hidden), "proj": floats(out, hidden),
        **{p: floats(batch, hidden) for p in ("p_i", "p_f", "p_o")},
    }  # fmt: skip
    wanted = ["Xs", "Wi", "Wh", *(n for n in given if n in arrays)]
    wanted += ["p_i", "p_f", "p_o"] if "peephole" in given else []
    how = {n: given[n] for n in ("reverse", "weight_layout") if n in given}
    made = ran(
        lambda *t: nn.lstm(**dict(zip(wanted, t, strict=True)), **how), [arrays[n] for n in wanted]
    )
    expected = testing.lstm_python(**{n: arrays[n] for n in wanted}, **how)
    for value, right in zip(made, expected, strict=True):
        np.testing.assert_allclose(value, right, **CLOSE)


POOLS = [
    (2, 2, 0, "avg", False, True), (3, 2, 1, "avg", False, False), (3, 3, (2, 1, 0, 5), "avg",
    False, True), (3, 2, 1, "max", False, True), (2, 2, (0, 3, 2, 1), "max", True, True),
    (1, 2, 1, "avg", False, False),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("how", POOLS)
def test_pool_grad(how):
    kernel, stride, padding, pool_type, ceil_mode, count = how
    x = floats(2, 3, 9, 8)
    (pooled,) = ran(
        lambda t: nn.pool2d(t, kernel, stride, 1, padding, pool_type, ceil_mode, "NCHW", count),
        [x],
    )
    g = floats(*pooled.shape)
    (result,) = ran(lambda *t: nn.pool_grad(*t, *how), [g, x])
    np.testing.assert_allclose(result, testing.pool_grad_nchw(x, g, *how), **CLOSE)
    last = [np.ascontiguousarray(t.transpose(0, 2, 3, 1)) for t in (g, x)]
    (moved,) = ran(lambda *t: nn.pool_grad(*t, *how, "NHWC"), last)
    np.testing.assert_array_equal(moved, result.transpose(0, 2, 3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("how", [(1, 0, 3, 1), (1, 2, 5, 2), (2, 1, 3, 2), (2, (1, 0), 2, 1)])
def test_gradients_of_depthwise_convolutions_are_adjoint(how):
    stride, padding, k, copies = how
    x, w = floats(2, 8, 7, 3), floats(k, k, 3, copies)
    (y,) = ran(lambda *t: nn.depthwise_conv2d_nhwc(*t, stride, padding), [x, w])
    g = floats(*y.shape)
    (to_x,) = ran(
        lambda *t: nn.depthwise_conv2d_backward_input_nhwc(*t, y.shape, x.shape, stride, padding),
        [w, g],
    )
    (to_w,) = ran(
        lambda *t: nn.depthwise_conv2d_backward_weight_nhwc(*t, y.shape, w.shape, stride, padding),
        [x, g],
    )
    whole_sum = np.sum(y.astype("float64") * g)
    for gradient, operand in ((to_x, x), (to_w, w)):
        np.testing.assert_allclose(np.sum(gradient.astype("float64") * operand), whole_sum, 1e-4)


def test_groups_of_transposed_convolutions():
    x, w = floats(1, 4, 6), floats(4, 3, 3)
    (result,) = ran(
        lambda *t: nn.group_conv1d_transpose_ncw(*t, 2, 1, None, 1, 2), [x, w]
    )  # fmt: skip
    np.testing.assert_allclose(
        result, testing.conv1d_transpose_ncw_python(x, w, 2, 1, 1, 2), **CLOSE
    )


def test_pooling_of_one_and_three_axes_to_a_size():
    x, y = floats(2, 3, 7), floats(1, 5, 4, 6, 2)
    (result,) = ran(lambda t: nn.adaptive_pool1d(t, 3, "avg"), [x])
    np.testing.assert_allclose(result, testing.adaptive_pool(x, (3,), "avg", "NCW"), **CLOSE)
    (result,) = ran(lambda t: nn.adaptive_pool3d(t, (2, 4, 3), "max", "NDHWC"), [y])
    expected = testing.adaptive_pool(y, (2, 4, 3), "max", "NDHWC")
    np.testing.assert_array_equal(result, expected)


def test_windows_wholly_in_the_padding():
    x = floats(1, 2, 8)
    for pool_type, count in (("max", True), ("avg", True), ("avg", False)):
        how = 3, 3, 1, (2, 5), pool_type
        (result,) = ran(lambda t, h=how, c=count: nn.pool1d(t, *h, False, "NCW", c), [x])
        assert result[0, 0, -1] == (-np.inf if pool_type == "max" else 0)


def test_names_that_are_not_there_say_what_to_use():
    with pytest.raises(AttributeError, match="Bits are not packed"):
        nn.bitpack  # noqa: B018
    with pytest.raises(AttributeError, match="as scipy does"):
        nn.sparse_transpose  # noqa: B018


def test_places_halfway_between_corners_are_rounded_up():
    x = floats(1, 1, 1, 10)
    how = [0.0] * 4, (1, 15), "NCHW", "nearest_neighbor", "align_corners"
    (result,) = ran(lambda t: topi.image.resize2d(t, *how), [x])
    assert result[0, 0, 0, 7] == x[0, 0, 0, 5]  # it lies at 4.5


def test_references():
    assert testing.searchsorted_ref(np.array([1, 2, 3]), np.array([2]), True) == 2
    x, t, w = floats(4, 3), whole(4, most=3), rng.uniform(0.5, 1, 3).astype("float32")
    (result,) = ran(lambda *a: nn.nll_loss(*a, "mean", 1), [x, t, w])
    np.testing.assert_allclose(result, testing.nll_loss(x, t, w, "mean", 1), **CLOSE)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topi.image.affine_grid(tensor(1, 3, 3), (2, 2)), "two rows"),
        (lambda: topi.image.crop_and_resize(
            tensor(1, 3, 4, 4), tensor(2, 3), tensor(2, dtype="int32"), 2), "another shape"),
        (lambda: topi.image.crop_and_resize(
            tensor(1, 3, 4, 4), tensor(2, 4), tensor(2, dtype="int32"), 2, "CHWN"), "layout"),
        (lambda: topi.image.dilation2d_nchw(tensor(1, 3, 4, 4), tensor(2, 3, 3), 1, 0, 1),
         "other channels"),
        (lambda: nn.correlation_nchw(tensor(1, 2, 4, 4), tensor(1, 2, 4, 4), 2, 1, 1, 1, 0, True),
         "odd extent"),
        (lambda: nn.correlation_nchw(tensor(1, 2, 4, 4), tensor(1, 2, 4, 4), 1, 4, 1, 1, 0, True),
         "no patch fits"),
        (lambda: nn.deformable_conv2d_nchw(
            tensor(1, 2, 4, 4), tensor(1, 9, 2, 2), tensor(3, 2, 3, 3), 1, 0, 1, 1, 1),
         "the offsets are no"),
        (lambda: topi.dft(tensor(2, 4), tensor(2, 3)), "parts differ"),
        (lambda: topi.tensordot(tensor(2, 3), tensor(2, 3), 1), "extents"),
        (lambda: topi.tensordot(tensor(2, 3), tensor(2, 3), 3), "not 3 axes"),
        (lambda: topi.tensordot(tensor(2, 2), tensor(2, 2), ((0, 0), (0, 1))), "named twice"),
        (lambda: nn.lstm(tensor(65, 1, 2), tensor(8, 2), tensor(8, 2)), "written out"),
        (lambda: nn.lstm(tensor(2, 1, 2), tensor(8, 2), tensor(8, 3)), "Wh is no"),
        (lambda: nn.lstm(tensor(2, 1, 2), tensor(8, 2), tensor(8, 2), weight_layout="IFG"),
         "order of gates"),
        (lambda: nn.pool_grad(tensor(1, 2, 3, 3), tensor(1, 2, 8, 8), 2, 2, 0, "avg"),
         "the result of pooling has shape"),
        (lambda: nn.depthwise_conv2d_backward_input_nhwc(
            tensor(3, 3, 2, 1), tensor(1, 4, 4, 3), [1, 4, 4, 3], [1, 6, 6, 2], 1, 0),
         r"has shape \[1, 4, 4, 2\]"),
    ],
)  # fmt: skip
def test_refusals(call, message):
    with pytest.raises(ExpressionError, match=message):
        call()


@pytest.mark.parametrize(
    ("begin", "end", "strides"),
    [
        ([0, 3, 0], [4, 1, 4], [1, -1, 2]), ([1, -1, 0], [4, -5, 3], [2, -1, 1]),
        ([1, 1], [4, 4, 3], None), ([0, 0, -2], [9, 2, 9], [2]),
    ],
)  # fmt: skip
def test_elements_that_are_set_where_data_say(begin, end, strides):
    x = floats(3, 4, 3)
    steps = [*(strides or []), 1, 1, 1][:3]
    wanted = x.copy()
    cut = tuple(slice(*t) for t in zip(begin, end, steps, strict=False))
    v = floats(*x[cut].shape)
    wanted[cut] = v
    vectors = [np.array(n, "int32") for n in (begin, end, strides) if n is not None]
    (result,) = ran(lambda *t: topi.strided_set(*t), [x, v, *vectors])
    np.testing.assert_array_equal(result, wanted)
    (result,) = ran(lambda *t: topi.strided_set(*t, begin, end, strides), [x, v])
    np.testing.assert_array_equal(result, wanted)


def test_sums_of_all_elements_and_slices_by_their_size():
    x = floats(3, 4)
    (result,) = ran(lambda t: topi.cumsum(t), [x])
    np.testing.assert_allclose(result, np.cumsum(x), **CLOSE)
    for cut in (([1], [3, 4], [2]), ([0, 1], [3], [1])):
        (result,) = ran(lambda t, cut=cut: topi.strided_slice(t, *cut), [x])
        np.testing.assert_array_equal(result, testing.strided_slice_python(x, *map(np.array, cut)))
    (result,) = ran(lambda t: topi.strided_slice(t, [1, 1], [-1, 2], slice_mode="size"), [x])
    np.testing.assert_array_equal(result, x[1:, 1:3])
    with pytest.raises(ExpressionError, match="slice_mode"):
        topi.strided_slice(tensor(3, 4), [1], [2], slice_mode="length")
    with pytest.raises(ExpressionError, match="no vectors of ints"):
        topi.strided_set(tensor(3), tensor(1), tensor(1), [1])
