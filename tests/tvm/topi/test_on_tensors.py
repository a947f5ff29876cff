"""Operators of topi that are a network's operators on tensors of te, built and run.

On the CPU, or on a device of the kind TILEWRIGHT_DEVICE_KIND.
"""

import os

import numpy as np
import pytest

from tilewright import build, device, te
from tilewright.base.errors import ExpressionError, TilewrightError
from tilewright_tvm import nd, relay, topi
from tilewright_tvm.relay import on_tensors
from tilewright_tvm.topi import of_networks as later
from tilewright_tvm.topi import testing

rng = np.random.default_rng(0)
KIND = os.environ.get("TILEWRIGHT_DEVICE_KIND", "llvm")


def ran(function, arrays):
    """What the default schedule of `function` of tensors gives for `arrays`."""
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"p{k}") for k, a in enumerate(arrays)]
    made = function(*inputs)
    made = made if isinstance(made, list) else [made]
    kernel = build(testing.get_injective_schedule(KIND)(made), [*inputs, *made], KIND)
    dev = device(KIND)
    results = [nd.empty(t.shape, t.dtype, dev) for t in made]
    kernel(*(nd.array(a, dev) for a in arrays), *results)
    return [r.numpy() for r in results]


def floats(*shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def whole(*shape, most=4, dtype="int32"):
    return rng.integers(0, most, shape).astype(dtype)


X, INDICES, LENGTHS = floats(4, 5, 3), whole(2, 3), np.array([-1, 2, 9, 5], "int32")
DIAGONAL, VALUES = floats(4, 3), floats(3)
IMAGE = floats(2, 8, 4, 6)
CASES = {
    "flip": (lambda x: topi.flip(x, -2), [X], np.flip(X, 1)),
    "tile": (lambda x: topi.tile(x, (2, 1, 3)), [X], np.tile(X, (2, 1, 3))),
    "repeat": (lambda x: topi.repeat(x, 3, 1), [X], np.repeat(X, 3, 1)),
    "squeeze of no axis": (lambda x: topi.squeeze(x, ()), [X[:1, :, :1]], X[:1, :, :1]),
    "roll": (lambda x: topi.roll(x, 2, 1), [X], np.roll(X, 2, 1)),
    "shape": (lambda x: topi.shape(x, "int64"), [X], np.array([4, 5, 3])),
    "ndarray_size": (topi.ndarray_size, [X], np.array(60)),
    "arange": (lambda: topi.arange(20, 1, -1.5), [], np.arange(20, 1, -1.5, "float32")),
    "expand_like": (
        lambda a, b: topi.expand_like(a, b, [1, 3]), [floats(2, 3), floats(2, 4, 3, 5)], None
    ),
    "one_hot of no classes": (
        lambda i: topi.one_hot(i, te.const(2.0), te.const(-1.0), 0, 1, "float32"), [INDICES],
        np.zeros((2, 0, 3), "float32"),
    ),
    "one_hot": (
        lambda i: topi.one_hot(i, te.const(2.0), te.const(-1.0), 4, 1, "float32"), [INDICES],
        testing.one_hot(INDICES, 2, -1, 4, 1, "float32"),
    ),
    "sequence_mask": (
        lambda x, n: topi.sequence_mask(x, n, 7.0, 1), [X, LENGTHS],
        testing.sequence_mask(X, LENGTHS, 7.0, 1),
    ),
    "matrix_set_diag": (
        topi.matrix_set_diag, [X, DIAGONAL], testing.matrix_set_diag(X, DIAGONAL)
    ),
    "trilu": (lambda x: topi.trilu(x, -1, False), [X], np.tril(X, -1)),
    "unravel_index": (
        topi.unravel_index, [np.array([100, 13, 5]), np.array([5, 5, 5, 2])],
        np.array(np.unravel_index([100, 13, 5], (5, 5, 5, 2))),
    ),
    "sparse_to_dense": (
        lambda i, v, d: topi.sparse_to_dense(i, [5], v, d),
        [np.array([0, 1, 4], "int32"), VALUES, np.array(3.5, "float32")],
        np.array([VALUES[0], VALUES[1], 3.5, 3.5, VALUES[2]]),
    ),
    "reverse_sequence": (
        lambda x, n: topi.reverse_sequence(x, n, 1, 0), [X, LENGTHS],
        np.stack([X[0], X[1][[1, 0, 2, 3, 4]], X[2][::-1], X[3][::-1]]),
    ),
    "searchsorted": (
        topi.searchsorted, [np.sort(floats(7)), VALUES], None
    ),
    "adv_index": (
        lambda x, i: topi.adv_index(x, [i, i]), [X, whole(4, most=4)], None
    ),
    "einsum": (
        lambda x, y: topi.einsum("ijk,kl->ijl", x, y), [X, floats(3, 2)], None
    ),
    "depth_to_space": (
        lambda x: topi.nn.depth_to_space(x, 2, mode="CRD"), [IMAGE],
        testing.depth_to_space_python(IMAGE, 2, "CRD"),
    ),
    "space_to_depth": (
        lambda x: topi.nn.space_to_depth(x, 2), [IMAGE], testing.space_to_depth_python(IMAGE, 2)
    ),
    "space_to_batch_nd": (
        lambda x: topi.nn.space_to_batch_nd(x, [4, 2], [1, 0], [3, 2]), [IMAGE],
        testing.space_to_batch_nd_python(IMAGE, [4, 2], [1, 0], [3, 2]),
    ),
    "batch_to_space_nd": (
        lambda x: topi.nn.batch_to_space_nd(x, [2], [1], [2]), [IMAGE],
        testing.batch_to_space_nd_python(IMAGE, [2], [1], [2]),
    ),
    "prelu": (
        lambda x, s: topi.nn.prelu(x, s, 1), [IMAGE, floats(8)], None
    ),
    "full of a value": (
        lambda x: topi.full((2, 3), "float32", x[0, 1, 2]), [X], np.full((2, 3), X[0, 1, 2])
    ),
}  # fmt: skip
OTHERWISE = {
    "expand_like": lambda a, b: np.broadcast_to(a[:, None, :, None], b.shape),
    "searchsorted": np.searchsorted,
    "adv_index": lambda x, i: x[i, i],
    "einsum": lambda x, y: np.einsum("ijk,kl->ijl", x, y),
    "prelu": lambda x, s: np.where(x > 0, x, x * s[:, None, None]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    function, arrays, expected = CASES[name]
    expected = OTHERWISE[name](*arrays) if expected is None else expected
    (result,) = ran(function, arrays)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_meshgrid_gives_several_tensors():
    a, b = whole(3), whole(2)
    for result, expected in zip(
        ran(lambda x, y: topi.meshgrid([x, y], "xy"), [a, b]),
        np.meshgrid(a, b, indexing="xy"), strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("axis", [(1,), (1, 2)])
def test_norms_over_several_axes(axis):
    x = floats(3, 4, 5)
    gamma, beta = floats(*(x.shape[k] for k in axis)), floats(*(x.shape[k] for k in axis))
    wide = [n if k in axis else 1 for k, n in enumerate(x.shape)]
    centred = x - x.mean(axis, keepdims=True)
    spread = np.sqrt(x.var(axis, keepdims=True) + 1e-5)
    expected = centred / spread * gamma.reshape(wide) + beta.reshape(wide)
    (result,) = ran(lambda *t: topi.nn.layer_norm(*t, axis), [x, gamma, beta])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    rms = x / np.sqrt((x * x).mean(axis, keepdims=True) + 1e-5) * gamma.reshape(wide)
    (result,) = ran(lambda *t: topi.nn.rms_norm(*t, axis), [x, gamma])
    np.testing.assert_allclose(result, rms, rtol=1e-4, atol=1e-5)


def test_rms_norm_takes_a_bias_before_its_axis():
    x, weight, bias = floats(2, 3, 4), floats(3, 4), floats(3, 4)
    for args, values in (((weight,), [x, weight]), ((weight, bias), [x, weight, bias])):
        (result,) = ran(lambda *t: topi.nn.rms_norm(*t, (1, 2), 1e-3), values)
        expected = testing.rms_norm_python(x, *args, *[None] * (2 - len(args)), (1, 2), 1e-3)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_group_and_instance_norm():
    x, gamma, beta = floats(2, 6, 4, 5), floats(6), floats(6)
    for groups in (3, 6):
        cut = x.reshape(2, groups, -1)
        made = (cut - cut.mean(-1, keepdims=True)) / np.sqrt(cut.var(-1, keepdims=True) + 1e-5)
        expected = made.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None]
        (result,) = ran(lambda *t, g=groups: topi.nn.group_norm(*t, g, 1, [2, 3]), [x, gamma, beta])
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
        found = topi.testing.group_norm_python(x, gamma, beta, groups, 1, [2, 3])
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    (result,) = ran(lambda *t: topi.nn.instance_norm(*t, [2, 3]), [x, gamma, beta])
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    for scale, shift in ((gamma, beta), (floats(4, 5), floats(4, 5))):
        (result,) = ran(lambda *t: topi.nn.instance_norm(*t, [2, 3]), [x, scale, shift])
        want = topi.testing.instance_norm_python(x, scale, shift, [2, 3])
        np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)


def test_l2_normalize():
    x = floats(2, 3, 4)
    for axis in ([1], [1, 2]):
        (result,) = ran(lambda t, a=axis: topi.nn.l2_normalize(t, 0.5, a), [x])
        want = topi.testing.l2_normalize_python(x, 0.5, axis)
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
    assert not np.allclose(x, want)


def test_convolutions_of_three_axes_take_groups_before_the_element_type():
    x, w = floats(1, 4, 4, 4, 4), floats(3, 3, 3, 2, 6)
    (result,) = ran(lambda *t: topi.nn.conv3d_ndhwc(*t, 1, 1, 1, 2, "float32"), [x, w])
    want = topi.testing.conv3d_ndhwc_python(x, w, 1, (1,) * 6, 2)
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)
    image, kernel = x.transpose(0, 4, 1, 2, 3).copy(), w.transpose(4, 3, 0, 1, 2).copy()
    (result,) = ran(lambda *t: topi.nn.conv3d_ncdhw(*t, 1, 1, 1, 2, "float32"), [image, kernel])
    np.testing.assert_allclose(result, want.transpose(0, 4, 1, 2, 3), rtol=1e-4, atol=1e-4)


def test_resizing_under_its_names_in_topi():
    x = floats(1, 2, 4, 5)
    (result,) = ran(lambda t: topi.image.resize2d(t, [0.0] * 4, (8, 10), method="nearest_neighbor",
                    coordinate_transformation_mode="asymmetric"), [x])  # fmt: skip
    np.testing.assert_array_equal(result, x.repeat(2, 2).repeat(2, 3))


def test_places_of_the_nearest_element_are_rounded_down() -> None:
    x = floats(1, 2, 7, 6)
    for coordinates in ("asymmetric", "half_pixel"):
        (result,) = ran(lambda t, c=coordinates: topi.image.resize2d(
            t, [0.0] * 4, (11, 9), "NCHW", "nearest_neighbor", c), [x])  # fmt: skip
        scale = 11 / 7, 9 / 6
        expected = testing.resize2d_python(x, scale, "NCHW", "nearest_neighbor", coordinates)
        np.testing.assert_array_equal(result, expected)


def test_every_name_that_comes_later_is_there_and_public():
    for folder, names in later.NAMES.items():
        room = topi if folder == "topi" else getattr(topi, folder.removeprefix("topi."))
        for name in names:
            assert callable(getattr(room, name)) and name in room.__all__
            assert on_tensors.find(folder, name).__name__ == name
    assert topi.transform.one_hot is topi.one_hot  # where TVM has it


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: topi.flip(te.placeholder((te.var("n"),), name="a")), "an extent is a variable"),
        (lambda: topi.flip(3), "flip"),
        (lambda: topi.unravel_index(te.placeholder((3,), "int32"), te.placeholder((2,))), "vector"),
        (lambda: topi.nn.group_norm(*[te.placeholder((2, 4, 3))] * 3, 2, 1, [1]), "they are not"),
        (lambda: topi.nn.instance_norm(*[te.placeholder((4,))] * 3, [0]), "no axis of channels"),
        (lambda: topi.nn.instance_norm(*[te.placeholder((2, 4, 3))] * 3, [3]), "no axes of data"),
        (lambda: topi.nn.layer_norm(*[te.placeholder(())] * 3), "no axes of data of shape"),
        (lambda: topi.arange(0), "no elements"),
        (lambda: topi.arange(0, 3, 0), "no end"),
        (lambda: topi.expand_like(*[te.placeholder((3,))] * 2, [0]), "another shape"),
        (lambda: on_tensors._constant(rng.uniform(size=99), "topi.x"), "a table of 99 numbers"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(TilewrightError, match=message):
        call()


def test_bits_are_read_as_another_type():
    x = np.array([1.0, -0.0, np.nan, np.inf, 1e-42], "float32")
    if KIND != "llvm":
        pytest.skip("a function of the process makes them")
    (found,) = ran(lambda t: topi.reinterpret(t, "int32"), [x])
    assert np.array_equal(found, x.view("int32"))
    (back,) = ran(lambda t: topi.reinterpret(t, "float32"), [x.view("int32")])
    assert np.array_equal(back.view("int32"), x.view("int32"))
    with pytest.raises(ExpressionError, match="has 32 bits"):
        topi.reinterpret(te.placeholder((2,), "float32"), "int8")


def test_names_that_are_not_there_say_what_to_use():
    with pytest.raises(AttributeError, match="non_max_suppression"):
        topi.nms  # noqa: B018


def test_a_network_may_unravel_by_a_shape_among_its_data():
    i, shape = relay.var("i", shape=(3,), dtype="int32"), relay.var("s", shape=(2,), dtype="int32")
    found = relay.evaluate(
        relay.Function([i, shape], relay.unravel_index(i, shape)),
        {"i": np.array([0, 5, 7], "int32"), "s": np.array([2, 4], "int32")},
    )
    np.testing.assert_array_equal(found, np.unravel_index([0, 5, 7], (2, 4)))


def test_a_division_all_lanes_share_is_guarded_by_the_condition_of_each():
    a = te.placeholder((16,), "int32", name="a")
    by = te.placeholder((1,), "int32", name="by")
    c = te.compute((16,), lambda i: te.if_then_else(a[i] > 0, a[0] // by[0], a[i]), name="c")
    s = te.create_schedule(c.op)
    s[c].vectorize(c.op.axis[0])
    kernel = build(s, [a, by, c], "llvm")
    out = nd.empty((16,), "int32")
    x = np.arange(16, dtype="int32") - 8
    x[0] = 9
    kernel(nd.array(x), nd.array(np.array([2], "int32")), out)
    np.testing.assert_array_equal(out.numpy(), np.where(x > 0, 4, x))
    kernel(nd.array(-np.abs(x)), nd.array(np.array([0], "int32")), out)  # which would trap
    np.testing.assert_array_equal(out.numpy(), -np.abs(x))
