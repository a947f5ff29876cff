"""Operators that are made of others, against numpy, and the spellings of TVM that they take."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu, te
from tilewright.base.errors import ModelError
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.topi import testing


def value(*shape: int, dtype: str = "float32") -> np.ndarray:
    return (np.random.default_rng(len(shape)).standard_normal(shape) * 3).astype(dtype)


def of(function, *arrays: np.ndarray):
    """What an operator makes of arrays."""
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    given = {v.name_hint: a for v, a in zip(inputs, arrays, strict=True)}
    return relay.evaluate(function(*inputs), given)


@pytest.mark.parametrize(
    ("shape", "codes", "want"),
    [
        ((2, 3, 4), (2, -2), (2, 3, 4)), ((2, 3, 4), (-2, 1, 1), (2, 3, 4, 1, 1)),
        ((2, 3, 4), (-3, 4), (6, 4)), ((2, 3, 4, 5), (-3, -3), (6, 20)),
        ((2, 3, 4), (0, -3), (2, 12)), ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (2, -4, -1, 3, -2), (2, 1, 3, 4)), ((2, 3, 4), (-1, 0), (8, 3)),
        ((2, 3, 4), (0, 12), (2, 12)), ((6, 0), (0, 0), (6, 0)),
    ],
)  # fmt: skip
def test_codes_of_reshape(shape, codes, want):
    assert relay.reshape(relay.var("x", shape=shape), codes).shape == want


@pytest.mark.parametrize(
    ("codes", "part"),
    [
        ((-5,), "-5"), ((2, 3, 4, 0), "no input extent"), ((-4, 2), "-4"),
        ((-4, 3, 2, -2), "not split into 3 and 2"), ((2, 3, -3), "no input extent"),
        ((-1, -1), "more than one"), ((5, -1), "multiple"),
    ],
)  # fmt: skip
def test_codes_that_do_not_fit(codes, part):
    with pytest.raises(ModelError, match=part):
        relay.reshape(relay.var("x", shape=(2, 3, 4)), codes)


def test_shapes_of_other_values():
    x, y = relay.var("x", shape=(1, 2, 3, 4)), relay.var("y", shape=(1, 6, 5))
    assert relay.reshape_like(x, y, 1, 3, 1, 2).shape == (1, 6, 4)
    z = relay.var("z", shape=(2, 3, 4, 1, 6))
    assert relay.reshape_like(x, z, rhs_end=3).shape == (2, 3, 4)
    assert relay.reshape_like(x, z, rhs_begin=2).shape == (4, 1, 6)
    with pytest.raises(ModelError, match="not as many elements"):
        relay.reshape_like(x, y)
    assert relay.reverse_reshape(relay.var("w", shape=(2, 3, 4)), (0, -1)).shape == (3, 8)
    assert relay.shape_of(x).data.tolist() == [1, 2, 3, 4]
    assert relay.ndarray_size(x, "int64").data == 24
    assert relay.cast_like(x, relay.var("i", shape=(1,), dtype="int8")).dtype == "int8"


def test_broadcasting_and_its_opposite():
    a = value(3, 4, 5)
    found = of(lambda x, y: relay.collapse_sum_like(x, y), a, value(4, 1))
    np.testing.assert_allclose(found, a.sum((0, 2))[:, None], rtol=1e-5)
    found = of(lambda x, y: relay.broadcast_to_like(x, y), a, value(2, 3, 4, 5))
    np.testing.assert_array_equal(found, np.broadcast_to(a, (2, 3, 4, 5)))
    with pytest.raises(ModelError, match="cannot be stretched"):
        relay.collapse_sum_to(relay.var("x", shape=(3, 4)), (2,))


def test_values_where_numbers_are_usual():
    five = np.float32(5)
    np.testing.assert_array_equal(of(lambda x: relay.full(x, (2, 3)), five), np.full((2, 3), 5))
    found = of(lambda x, y: relay.full_like(x, y), value(2, 3), five)
    np.testing.assert_array_equal(found, np.full((2, 3), 5))
    assert relay.full(relay.var("x", "float32"), (2,), "int8").dtype == "int8"
    one, ten = relay.const(1.0), relay.const(10.0)
    assert relay.arange(one, ten, relay.const(3.0)).data.tolist() == [1, 4, 7]
    a = value(2, 3)
    found = of(lambda x: nn.pad(x, ((1, 0), (0, 0)), one), a)
    np.testing.assert_array_equal(found, np.pad(a, ((1, 0), (0, 0)), constant_values=1))
    found = of(lambda c, x: relay.where(c, x, 0.0), np.float32([1, 0, -2]), np.float32([7, 8, 9]))
    np.testing.assert_array_equal(found, [7, 0, 9])


@pytest.mark.parametrize(
    ("begin", "end", "strides", "want"),
    [
        ([None, None, 1], [None, None, 2], None, np.s_[:, :, 1:2]),
        ([1, 1, 0], [4, 4], None, np.s_[1:4, 1:4]), ([1, 1], [4, 4, 3], None, np.s_[1:, 1:, :3]),
        ([1, -1, 0], [4, -5, 3], [2, -1, 1], np.s_[1:4:2, -1:-5:-1, 0:3]),
    ],
)  # fmt: skip
def test_slices_with_missing_ends(begin, end, strides, want):
    a = value(3, 4, 3)
    np.testing.assert_array_equal(of(lambda x: relay.strided_slice(x, begin, end, strides), a),
                                  a[want])  # fmt: skip
    if strides is None and None not in begin:
        b, e = (relay.const(v, "int32") for v in (begin, end))
        found = of(lambda x, v: relay.strided_set(x, v, b, e), a, np.zeros_like(a[want]))
        changed = a.copy()
        changed[want] = 0
        np.testing.assert_array_equal(found, changed)


def test_masks_of_sequences():
    a, lengths = value(4, 3), np.int32([0, 2, 4])
    want = np.where(np.arange(4)[:, None] < lengths, a, -1)
    found = of(lambda x, n: relay.sequence_mask(x, n, relay.const(-1.0)), a, lengths)
    np.testing.assert_array_equal(found, want)
    found = of(lambda x, n: relay.sequence_mask(x, n, -1.0, axis=1), a.T.copy(), lengths)
    np.testing.assert_array_equal(found, want.T)
    with pytest.raises(ModelError, match="no length for each sequence"):
        of(lambda x, n: relay.sequence_mask(x, n, axis=1), a, lengths)


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_diagonals(k):
    a = value(2, 3, 4)
    row, column = np.nonzero(np.arange(4)[None] - np.arange(3)[:, None] == k)
    diagonal = value(2, len(row))
    want = a.copy()
    want[:, row, column] = diagonal
    found = of(lambda x, d: relay.matrix_set_diag(x, d, k), a, diagonal)
    np.testing.assert_array_equal(found, want)
    with pytest.raises(ModelError, match=r"Give a diagonal of shape \(2, 2, 3\)"):
        of(lambda x, d: relay.matrix_set_diag(x, d, (0, 1)), a, diagonal)


@pytest.mark.parametrize("align", ["RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT"])
def test_several_diagonals(align):
    a, lines, want = value(2, 3, 4), value(2, 5, 3), value(2, 3, 4)
    above, below = align.split("_")
    for row, at in enumerate((2, 1, 0, -1, -2)):
        places = [(i, i + at) for i in range(3) if 0 <= i + at < 4]
        free = 3 - len(places)
        first = free if (above if at > 0 else below) == "RIGHT" else 0
        for n, (i, j) in enumerate(places):
            want[:, i, j] = lines[:, row, first + n]
    found = of(lambda x, d: relay.matrix_set_diag(x, d, (-2, 2), align), a, lines)
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(testing.matrix_set_diag(a, lines, (-2, 2), align), want)
    with pytest.raises(ModelError, match="no diagonals"):
        of(lambda x, d: relay.matrix_set_diag(x, d, (1, 0)), a, lines)
    with pytest.raises(ModelError, match="align='LEFT'"):
        of(lambda x, d: relay.matrix_set_diag(x, d, (-2, 2), "LEFT"), a, lines)


def test_sparse_values_and_places():
    indices, values = np.int32([[0, 1], [2, 3]]), np.float32([5, 6])
    want = np.full((3, 4), -1, "float32")
    want[0, 1], want[2, 3] = 5, 6
    found = of(lambda i, v: relay.sparse_to_dense(i, (3, 4), v, relay.const(-1.0)), indices, values)
    np.testing.assert_array_equal(found, want)
    flat = np.int32([0, 5, 11])
    found = of(lambda i: relay.unravel_index(i, relay.const([3, 4], "int32")), flat)
    np.testing.assert_array_equal(found, np.unravel_index(flat, (3, 4)))
    a, rows, columns = value(5, 6), np.int32([[0], [4]]), np.int32([1, 5, 2])
    found = of(lambda *x: relay.adv_index(list(x)), a, rows, columns)
    np.testing.assert_array_equal(found, a[rows, columns])
    order = np.int32([2, 0, 3, 1])
    np.testing.assert_array_equal(of(relay.invert_permutation, order), np.argsort(order))
    for wrong in (lambda i: relay.sparse_to_dense(i, (3,), relay.const(1.0)),
                  lambda i: relay.unravel_index(i, ()),
                  lambda i: relay.adv_index([i])):  # fmt: skip
        with pytest.raises(ModelError):
            of(wrong, indices)


@pytest.mark.parametrize("right", [False, True])
def test_places_in_sorted_sequences(right):
    side = "right" if right else "left"
    sequence, values = np.float32([1, 2, 2, 5]), np.float32([[0, 2], [5, 9]])
    found = of(lambda s, v: relay.searchsorted(s, v, right), sequence, values)
    np.testing.assert_array_equal(found, np.searchsorted(sequence, values, side))
    rows = np.sort(value(2, 5))
    found = of(lambda s, v: relay.searchsorted(s, v, right, "int64"), rows, values)
    want = [np.searchsorted(r, v, side) for r, v in zip(rows, values, strict=True)]
    np.testing.assert_array_equal(found, want)
    assert found.dtype == np.int64


def test_fixed_point_products():
    a = np.int32([23, -23, 7, 2**31 - 1, -(2**31)])
    for multiplier, shift in ((1 << 30, -3), (1518500250, 1), (1 << 30, 0)):
        found = of(lambda x, m=multiplier, s=shift: relay.fixed_point_multiply(x, m, s), a)
        exact = np.floor(a.astype("float64") * multiplier * 2.0 ** (shift - 31) + 0.5)
        held = np.abs(exact) < 2**31  # what leaves int32 wraps
        np.testing.assert_array_equal(found[held], exact[held])
    with pytest.raises(ModelError, match="multiplier of 32 bits"):
        of(lambda x: relay.fixed_point_multiply(x, 1 << 40, 0), a)


def test_blocks_of_space_and_batch():
    a = value(2, 4, 6, 3)
    blocks = of(lambda x: nn.space_to_batch_nd(x, [2, 3], [[1, 1], [0, 0]], -1.0), a)
    padded = np.pad(a, ((0, 0), (1, 1), (0, 0), (0, 0)), constant_values=-1)
    cut = padded.reshape(2, 3, 2, 2, 3, 3).transpose(2, 4, 0, 1, 3, 5)
    np.testing.assert_array_equal(blocks, cut.reshape(12, 3, 2, 3))
    back = of(lambda x: nn.batch_to_space_nd(x, [2, 3], [[1, 1], [0, 0]]), blocks)
    np.testing.assert_array_equal(back, a)
    for wrong in (lambda x: nn.space_to_batch_nd(x, [3, 3], [[0, 0], [0, 0]]),
                  lambda x: nn.space_to_batch_nd(x, [2], [0]),
                  lambda x: nn.batch_to_space_nd(x, [3, 3], [[0, 0], [0, 0]]),
                  lambda x: nn.batch_to_space_nd(x, [2, 1], [[9, 9], [0, 0]])):  # fmt: skip
        with pytest.raises(ModelError):
            of(wrong, a)


def test_gaps_and_queues():
    a = value(2, 3)
    want = np.full((3, 7), 9, "float32")
    want[::2, ::3] = a
    np.testing.assert_array_equal(of(lambda x: nn.dilate(x, (2, 3), 9.0), a), want)
    buffer = value(2, 5)
    found = of(lambda x, b: nn.fifo_buffer(x, b, axis=1), a, buffer)
    np.testing.assert_array_equal(found, np.concatenate([buffer[:, 3:], a], 1))
    with pytest.raises(ModelError, match="one number of at least 1"):
        of(lambda x: nn.dilate(x, (2,)), a)
    with pytest.raises(ModelError, match="longer than the buffer"):
        of(lambda x, b: nn.fifo_buffer(b, x, axis=1), a, buffer)


def test_losses_of_probabilities():
    p, t = np.abs(value(4, 3)) + 0.1, np.abs(value(4, 3))
    want = -(t * np.log(p)).sum() / 4
    np.testing.assert_allclose(of(nn.cross_entropy, p, t), want, rtol=1e-5)
    np.testing.assert_allclose(of(nn.cross_entropy_with_logits, np.log(p), t), want, rtol=1e-5)
    with pytest.raises(ModelError, match="same classes"):
        of(nn.cross_entropy, p, t[:2])


def test_layouts():
    a = value(2, 8, 3, 4)
    blocked = of(lambda x: relay.layout_transform(x, "NCHW", "NCHW4c"), a)
    np.testing.assert_array_equal(blocked, a.reshape(2, 2, 4, 3, 4).transpose(0, 1, 3, 4, 2))
    back = of(lambda x: relay.layout_transform(x, "NCHW4c", "NHWC"), blocked)
    np.testing.assert_array_equal(back, a.transpose(0, 2, 3, 1))
    for source, wanted in (("NCHW", "NCHW3c"), ("NCW", "NWC"), ("NCHW", "NCWD"), ("NC8W", "x")):
        with pytest.raises(ModelError, match="layout"):
            of(lambda x, s=source, w=wanted: relay.layout_transform(x, s, w), a)


@pytest.mark.parametrize(
    "operator",
    [
        lambda x, w, **o: nn.conv2d(x, w, **o), lambda x, w, **o: nn.max_pool2d(x, (2, 2), **o),
        lambda x, w, **o: nn.avg_pool2d(x, (2, 2), **o),
        lambda x, w, **o: nn.global_avg_pool2d(x, **o),
        lambda x, w, **o: nn.adaptive_max_pool2d(x, (2, 2), **o),
    ],
)  # fmt: skip
def test_results_in_another_layout(operator):
    arrays = value(1, 4, 6, 6), value(8, 4, 3, 3)
    want = of(operator, *arrays)
    found = of(lambda x, w: operator(x, w, out_layout="NHWC"), *arrays)
    np.testing.assert_array_equal(found, want.transpose(0, 2, 3, 1))


def test_types_of_products():
    x, w = value(2, 4, 8), value(3, 8)
    np.testing.assert_allclose(of(nn.dense, x, w), x @ w.T, rtol=1e-5, atol=1e-5)
    untyped = relay.var("w")
    made = nn.dense(relay.var("x", shape=(2, 4, 8)), untyped, units=3)
    assert (made.shape, untyped.shape) == ((2, 4, 3), (3, 8))
    narrow, bytes_ = value(4, 8, dtype="int8"), value(3, 8, dtype="int8")
    found = of(lambda x, w: nn.dense(x, w, out_dtype="int32"), narrow, bytes_)
    np.testing.assert_array_equal(found, narrow.astype("int32") @ bytes_.T.astype("int32"))
    image, kernel = (
        np.abs(value(1, 3, 4, 4, dtype="int8")).astype("uint8"),
        bytes_[:, :, None, None],
    )
    kernel = np.ascontiguousarray(kernel[:, :3])
    found = of(lambda x, w: nn.conv2d(x, w, out_dtype="int32"), image, kernel)
    want = np.einsum("nchw,oc->nohw", image.astype("int32"), kernel[:, :, 0, 0].astype("int32"))
    np.testing.assert_array_equal(found, want)
    slope = relay.var("slope")
    nn.prelu(relay.var("x", shape=(1, 3, 2, 2)), slope)
    assert slope.shape == (3,)


def test_four_open_extents():
    n, c, h, w = map(te.var, "nchw")
    x = relay.var("x", relay.TensorType((n, c, h, w)))
    assert nn.relu(x).checked_type == relay.TensorType((n, c, h, w))


@pytest.mark.slow
def test_exponentials_less_one_keep_their_digits_near_zero():
    x = np.array([[-1e-9, -3e-7, -1e-4, -0.02, -1.0, -30.0, 0.0, 2.0]], "float32")
    wide = x.astype("float64")
    below = np.where(wide > 0, wide, np.expm1(np.minimum(wide, 0)))
    for function, expected in (
        (nn.elu, below),
        (lambda v: nn.elu(v, 0.7), np.where(wide > 0, wide, 0.7 * below)),
        (lambda v: nn.selu(v, 2.0, 3.0), 3 * np.where(wide > 0, wide, 2 * below)),
        (
            lambda v: nn.celu(v, 2.0),
            np.where(wide > 0, wide, 2 * np.expm1(np.minimum(wide, 0) / 2)),
        ),
    ):
        whole = relay.Function([v := relay.var("x", shape=x.shape)], function(v))
        library = relay.build(whole, "llvm")
        module = GraphModule(library["default"](cpu()))
        module.run(x=x)
        np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-6)


def test_windows_and_transforms():
    x = value(2, 3, 12, 11)
    made = of(lambda v: relay.sliding_window(v, -2, (3, 4), (2, 3)), x)
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 4), axis=(2, 3))[:, :, ::2, ::3]
    np.testing.assert_array_equal(made, wanted)
    re, im = value(3, 7), value(3, 7) * 2
    for inverse, function in ((False, np.fft.fft), (True, np.fft.ifft)):
        parts = of(lambda a, b, i=inverse: relay.dft(a, b, i), re, im)
        wanted = function(re + 1j * im)
        np.testing.assert_allclose(parts[0], wanted.real, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(parts[1], wanted.imag, rtol=1e-5, atol=1e-5)
    signal, window = value(2, 20), np.hamming(8).astype("float32")
    frames = np.lib.stride_tricks.sliding_window_view(signal, 8, 1)[:, ::3] * window
    made = of(lambda a, w: relay.stft(a, 8, 3, 8, w, True), signal, window)
    wanted = np.fft.rfft(frames).transpose(0, 2, 1) / np.sqrt(8)
    np.testing.assert_allclose(made, np.stack([wanted.real, wanted.imag], -1), atol=1e-5)
    assert relay.stft(relay.var("x", shape=(2, 20)), 8, 3, 8, onesided=False).shape == (2, 8, 5, 2)


def test_sums_of_segments():
    x, ids = value(6, 2, 3), np.array([0, 4, 1, 1, 4, 0], "int32")
    wanted = np.zeros((6, 2, 3))
    np.add.at(wanted, ids, x)
    np.testing.assert_allclose(of(lambda a, i: relay.segment_sum(a, i, 6), x, ids), wanted, 1e-6)
    made = of(lambda a: relay.segment_sum(a, relay.const(ids)), x)
    np.testing.assert_allclose(made, wanted[:5], 1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, i: relay.segment_sum(x, x, 3), "no slice for a segment"),
        (lambda x, i: relay.segment_sum(x, i, 0), "0 segments"),
        (lambda x, i: relay.sliding_window(x, 0, (2,), (1,)), "one extent and one stride"),
        (lambda x, i: relay.sliding_window(x, 0, (5, 1), (1, 1)), "windows of 5"),
        (lambda x, i: relay.dft(x, i), "differ in shape"),
        (lambda x, i: relay.stft(x, 6, 1, 6), "no such frames"),
        (lambda x, i: relay.stft(x, 4, 1, 3), "another length"),
    ],
)  # fmt: skip
def test_windows_that_are_none(call, message):
    with pytest.raises(ModelError, match=message):
        call(relay.var("x", shape=(4, 5)), relay.var("i", shape=(4,), dtype="int32"))
