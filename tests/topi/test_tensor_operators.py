"""Elementwise, broadcast, reductions and moves against numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.te import ComputeDAG
from tilewright_tvm.topi import testing

small = examples(30)

ELEMENTWISE = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf),
    "abs": np.abs,
    "negative": np.negative,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sin": np.sin,
    "cos": np.cos,
    "identity": lambda x: x,
}
POSITIVE = {"sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "log": np.log}
BROADCAST = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
REDUCE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean}


def shapes(least=1, most=4):
    return st.lists(st.integers(1, 4), min_size=least, max_size=most).map(tuple)


# -- elementwise and broadcast ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ELEMENTWISE, *POSITIVE])
def test_elementwise(new_bench, name):
    bench = new_bench()
    x = bench.input(3, 5, low=0.1 if name in POSITIVE else -2.0)
    result = getattr(topi, name)(x)
    bench.check(result, {**ELEMENTWISE, **POSITIVE}[name](bench[x]))
    assert (result.op.name, result.op.tag) == (f"T_{name}", "elemwise")


def test_rounding_leaves_integers_alone(new_bench):
    bench = new_bench()
    x = bench.input(4, dtype="int32")
    assert topi.floor(x).dtype == "int32"
    bench.check(topi.floor(x), bench[x])


def test_cast_and_clip(new_bench):
    bench = new_bench()
    x = bench.input(3, 5)
    bench.check(topi.clip(x, -1, 0.5), np.clip(bench[x], -1, 0.5))
    bench.check(topi.cast(x, "int32"), bench[x].astype("int32"))
    assert topi.cast(x, "float32") is x
    with pytest.raises(ExpressionError, match="'int4' is not supported"):
        topi.cast(x, "int4")
    with pytest.raises(ExpressionError, match="lower limit is above the upper one"):
        topi.clip(x, 1, 0)
    with pytest.raises(ExpressionError, match="exp"):
        topi.exp(1.0)


@st.composite
def broadcastable(draw):
    shape = draw(shapes())
    thin = [tuple(draw(st.sampled_from([1, n])) for n in shape) for _ in range(2)]
    cut = draw(st.integers(0, len(shape) - 1))
    return draw(st.permutations([thin[0], thin[1][cut:]]))


@small
@given(broadcastable(), st.sampled_from(list(BROADCAST)))
def test_broadcast(new_bench, pair, name):
    bench = new_bench()
    a, b = bench.input(*pair[0]), bench.input(*pair[1], low=0.5)
    result = getattr(topi, name)(a, b)
    bench.check(result, BROADCAST[name](bench[a], bench[b]))
    assert (result.op.name, result.op.tag) == (f"T_{name}", "broadcast")


def test_power_and_integer_division(new_bench):
    bench = new_bench()
    a, b = bench.input(3, 1, low=0.5), bench.input(4)
    bench.check(topi.power(a, b), bench[a] ** bench[b])
    i = bench.input(5, dtype="int32")
    bench.check(topi.floor_divide(i, 3), bench[i] // 3)
    bench.check(topi.mod(i, 3), bench[i] % 3)
    bench.check(topi.divide(i, 3), np.trunc(bench[i] / 3).astype("int32"))
    with pytest.raises(ExpressionError, match="true division of integers"):
        _ = i / i


def test_logic(new_bench):
    bench = new_bench()
    a, b = bench.input(3, 4, dtype="bool"), bench.input(4, dtype="bool")
    bench.check(topi.logical_and(a, b), bench[a] & bench[b])
    bench.check(topi.logical_or(a, b), bench[a] | bench[b])
    bench.check(topi.logical_not(a), ~bench[a])


def test_scalars(new_bench):
    bench = new_bench()
    x = bench.input(3, low=0.5)
    bench.check(topi.add(x, 1), bench[x] + 1)
    bench.check(topi.divide(1, x), 1 / bench[x])
    assert topi.add(2, 3).value == 5
    assert topi.add(x, 1).dtype == "float32"


def test_operators_on_tensors(new_bench):
    bench = new_bench()
    a, b = bench.input(3, 4, low=0.5), bench.input(4, low=0.5)
    x, y = bench[a], bench[b]
    for ours, theirs in (
        (a + b, x + y), (a - 1, x - 1), (2 - a, 2 - x), (a * b, x * y), (1 / a, 1 / x),
        (a / b, x / y), (-a, -x), (a**2, x**2), (2**a, 2**x),
    ):  # fmt: skip
        bench.check(ours, theirs)
    assert a.astype("int32").dtype == "int32"


def test_zero_dimensional_tensors_are_scalars_inside_a_computation(new_bench):
    bench = new_bench()
    x, alpha = bench.input(3), bench.input()
    both = te.compute((3,), lambda i: alpha * x[i] + x[i] * alpha)
    bench.check(both, 2 * bench[x] * bench[alpha])
    shifted = te.compute((3,), lambda i: alpha + i.astype("float32"))
    bench.check(shifted, bench[alpha] + np.arange(3))


def test_broadcast_to_and_where(new_bench):
    bench = new_bench()
    test, x, y = bench.input(3, 1, dtype="bool"), bench.input(4), bench.input(2, 3, 4)
    bench.check(topi.where(test, x, y), np.where(bench[test], bench[x], bench[y]))
    bench.check(topi.where(x, 1.0, x), np.where(bench[x] != 0, 1.0, bench[x]))
    bench.check(topi.broadcast_to(x, (2, 3, 4)), np.broadcast_to(bench[x], (2, 3, 4)))
    with pytest.raises(ExpressionError, match="can only be stretched where it has extent 1"):
        topi.broadcast_to(y, (3, 4))
    with pytest.raises(ExpressionError, match="condition is a bool, not a tensor"):
        topi.where(True, x, y)


def test_full(new_bench):
    bench = new_bench()
    bench.check(topi.full((2, 3), "float32", 1.5), np.full((2, 3), 1.5))
    bench.check(topi.full_like(bench.input(2, dtype="int32"), 7), np.full(2, 7))
    with pytest.raises(ExpressionError, match="'int4' is not supported"):
        topi.full((2,), "int4", 1)
    with pytest.raises(ExpressionError, match="not whole"):
        topi.full((2,), "int32", 1.5)


def test_broadcast_refuses():
    a, b = te.placeholder((3, 4)), te.placeholder((2, 4))
    with pytest.raises(ExpressionError, match=r"extents \[3, 2\] at axis -2") as caught:
        topi.add(a, b)
    assert caught.value.place == "add(lhs=[3, 4], rhs=[2, 4])"
    with pytest.raises(ExpressionError, match=r"extents \[3, n\] at axis -2"):
        topi.add(a, te.placeholder((te.var("n"), 4)))


# -- reductions ------------------------------------------------------------------------------------


@small
@given(shapes(), st.data(), st.sampled_from(list(REDUCE)), st.booleans())
def test_reductions(new_bench, shape, data, name, keepdims):
    axes = st.lists(
        st.integers(-len(shape), len(shape) - 1), min_size=1, unique_by=lambda k: k % len(shape)
    )
    axis = data.draw(
        st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1), axes.map(tuple))
    )
    bench = new_bench()
    x = bench.input(*shape)
    result = getattr(topi, name)(x, axis, keepdims)
    bench.check(result, REDUCE[name](bench[x], axis=axis, keepdims=keepdims))


def test_reductions_refuse():
    x = te.placeholder((3, 4))
    with pytest.raises(ExpressionError, match="axis 2 is out of range"):
        topi.sum(x, 2)
    with pytest.raises(ExpressionError, match="named twice"):
        topi.max(x, (0, -2))
    with pytest.raises(ExpressionError, match="no axis is named"):
        topi.min(x, ())
    with pytest.raises(ExpressionError, match="mean of int32"):
        topi.mean(te.placeholder((3,), "int32"))
    with pytest.raises(ExpressionError, match="zero-dimensional"):
        topi.sum(te.placeholder(()))


# -- moves -----------------------------------------------------------------------------------------


@small
@given(shapes(), st.data())
def test_transpose(new_bench, shape, data):
    bench = new_bench()
    x = bench.input(*shape)
    axes = data.draw(st.permutations(range(len(shape))))
    bench.check(topi.transpose(x, axes), bench[x].transpose(axes))
    bench.check(topi.transpose(x), bench[x].transpose())


@st.composite
def reshapes(draw):
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def grouped():
        shape, current = [], 1
        for f in factors:
            current *= f
            if draw(st.booleans()):
                shape.append(current)
                current = 1
        return (*shape, current)

    return grouped(), grouped()


@examples(40)
@given(reshapes(), st.booleans())
def test_reshape(new_bench, pair, infer):
    bench = new_bench()
    x = bench.input(*pair[0])
    wanted = (-1, *pair[1][1:]) if infer else pair[1]
    bench.check(topi.reshape(x, wanted), bench[x].reshape(pair[1]))


def test_reshape_divides_only_what_changes():
    x = te.placeholder((2, 12, 5, 7), name="x")
    assert str(topi.reshape(x, (2, 3, 4, 35)).op.body) == (
        "x[ax0, ((ax1*4) + ax2), (ax3 // 7), (ax3 % 7)]"
    )


def test_flatten(new_bench):
    bench = new_bench()
    x = bench.input(2, 3, 4, 5)
    bench.check(topi.nn.batch_flatten(x), bench[x].reshape(2, 60))
    bench.check(topi.flatten(bench.input(3)), list(bench.values.values())[-1].reshape(3, 1))
    assert topi.nn.flatten(x).op.name == "tensor"


def test_squeeze_and_expand_dims(new_bench):
    bench = new_bench()
    x = bench.input(1, 3, 1, 2)
    bench.check(topi.squeeze(x), bench[x].squeeze())
    bench.check(topi.squeeze(x, (0,)), bench[x].squeeze(0))
    bench.check(topi.squeeze(x, -2), bench[x].squeeze(2))
    bench.check(topi.expand_dims(x, 1), bench[x][:, None])
    bench.check(topi.expand_dims(x, -1, 2), bench[x][..., None, None])
    with pytest.raises(ExpressionError, match="axis 1 has extent 3, not 1"):
        topi.squeeze(x, 1)
    with pytest.raises(ExpressionError, match="axis 9 is out of range"):
        topi.expand_dims(x, 9)
    with pytest.raises(ExpressionError, match="that many axes cannot be new"):
        topi.expand_dims(x, 0, -1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate_stack_split(new_bench, axis):
    bench = new_bench()
    shape = [3, 4, 2]
    parts = [bench.input(*shape[: axis % 3], n, *shape[axis % 3 + 1 :]) for n in (2, 1, 3)]
    bench.check(topi.concatenate(parts, axis), np.concatenate([bench[p] for p in parts], axis))
    bench.check(topi.concatenate(parts[:1], axis), bench[parts[0]])
    equal = [bench.input(*shape) for _ in range(2)]
    bench.check(topi.stack(equal, axis), np.stack([bench[p] for p in equal], axis))
    x = bench.input(6, 6, 6)
    for cuts in (3, [1, 4]):
        for ours, theirs in zip(
            topi.split(x, cuts, axis), np.split(bench[x], cuts, axis), strict=True
        ):
            bench.check(ours, theirs)


@small
@given(st.data())
def test_strided_slice(new_bench, data):
    bench = new_bench()
    x = bench.input(5, 6, 4)
    bound = st.one_of(st.none(), st.integers(-7, 7))
    steps = st.sampled_from([1, 2, 3, -1, -2])
    axes = data.draw(st.sampled_from([None, [0, 1], [2, 0], [-1, 1]]))
    begin, end = data.draw(st.tuples(bound, bound)), data.draw(st.tuples(bound, bound))
    strides = data.draw(st.one_of(st.none(), st.tuples(steps, steps)))
    expected = testing.strided_slice_python(bench[x], begin, end, strides, axes=axes)
    bench.check(topi.strided_slice(x, begin, end, strides, axes), expected)


LAYOUTS = ["NCHW", "NHWC", "NCHW2c", "NCHW3c", "NCHW6c", "NHWC2c", "NCHW1c"]


@pytest.mark.parametrize("src", LAYOUTS)
@pytest.mark.parametrize("dst", LAYOUTS)
def test_layout_transform(new_bench, src, dst):
    bench = new_bench()
    plain = np.zeros((2, 6, 3, 4))
    x = bench.input(*testing.layout_transform_python(plain, "NCHW", src).shape)
    expected = testing.layout_transform_python(bench[x], src, dst)
    bench.check(topi.layout_transform(x, src, dst), expected)


def test_layout_transform_of_kernels(new_bench):
    bench = new_bench()
    x = bench.input(8, 6, 3, 2)
    packed = topi.layout_transform(x, "OIHW", "OIHW3i4o")
    assert packed.shape == (2, 2, 3, 2, 3, 4)
    a = bench[x].reshape(2, 4, 2, 3, 3, 2).transpose(0, 2, 4, 5, 3, 1)
    bench.check(packed, a)
    bench.check(topi.layout_transform(packed, "OIHW3i4o", "HWIO"), bench[x].transpose(2, 3, 1, 0))


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ("NCHW", "NCHW4c", "C=6 is not a multiple of its block 4"),
        ("NCHW", "NCH", "name different axes"),
        ("NCHW3c", "NCHW", "shape .* has 4 dimensions, layout NCHW3c 5"),
        ("NCHW", "NCHWc", "inner axis c needs a size"),
        ("NCHW", "NCHW4x", "inner axis x has no outer axis X"),
        ("NCHW", "4NCHW", "only an inner axis has a size"),
        ("NCHH", "NCHW", "an axis appears twice"),
        ("NC-HW", "NCHW", "not a string of axis letters"),
    ],
)
def test_layout_transform_refuses(src, dst, message):
    with pytest.raises(ExpressionError, match=message):
        topi.layout_transform(te.placeholder((2, 6, 3, 4)), src, dst)


def test_layout_block_must_fit_the_tensor():
    with pytest.raises(ExpressionError, match="axis c of layout NCHW4c has extent 3, not 4"):
        topi.layout_transform(te.placeholder((2, 6, 3, 4, 3)), "NCHW4c", "NCHW")


X = te.placeholder((2, 6), name="x")
REFUSED = {
    "transpose": (lambda: topi.transpose(X, (0, 0)), "not a permutation"),
    "transpose axis": (lambda: topi.transpose(X, (0, 2)), "axis 2 is out of range"),
    "reshape": (lambda: topi.reshape(X, (5, 2)), "12 elements do not fill 10 places"),
    "reshape rest": (lambda: topi.reshape(X, (5, -1)), "12 elements are not a multiple of 5"),
    "reshape twice": (lambda: topi.reshape(X, (-1, -1)), "one of them may be -1"),
    "reshape zero": (lambda: topi.reshape(X, (0, 12)), "12 elements do not fill 0 places"),
    "reshape rest of nothing": (lambda: topi.reshape(X, (0, -1)), "where none is 0"),
    "reshape word": (lambda: topi.reshape(X, ("a", 12)), "newshape is a tuple of str and int, not"),
    "flatten": (lambda: topi.flatten(te.placeholder(())), "no batch axis"),
    "concatenate": (
        lambda: topi.concatenate([X, te.placeholder((3, 5))], 1), "shapes differ outside axis 1",
    ),
    "concatenate none": (lambda: topi.concatenate([]), "nothing to concatenate"),
    "split": (lambda: topi.split(X, 4, 1), "6 does not divide into 4 sections"),
    "split cuts": (lambda: topi.split(X, [3, 3], 1), "cuts must rise"),
    "slice": (lambda: topi.strided_slice(X, [0], [1, 2], axes=[0]), "differ in length"),
    "slice stride": (lambda: topi.strided_slice(X, [0], [1], [0]), "a stride of 0"),
    "array": (lambda: topi.transpose(np.zeros((2, 3))), "a is a ndarray, not a tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_moves_refuse(name):
    call, message = REFUSED[name]
    with pytest.raises(ExpressionError, match=message):
        call()


def test_a_chain_of_operators_round_trips_through_json():
    """What a record stores of a DAG rebuilds the same text and hash."""
    data, kernel = te.placeholder((1, 4, 6, 6), name="d"), te.placeholder((4, 4, 3, 3), name="k")
    conv = topi.nn.conv2d_nchw(data, kernel, 1, 1)
    pooled = topi.nn.pool2d(topi.nn.relu(conv), 3, 2, 1, 1, "max")
    out = topi.nn.softmax(topi.nn.flatten(topi.nn.adaptive_pool(pooled, 2, "avg")))
    dag = ComputeDAG(out)
    again = ComputeDAG.from_json(dag.to_json())
    assert str(again) == str(dag)
    assert again.hash == dag.hash
    anchors = [op.attrs["workload"] for op in again.compute_ops if "workload" in op.attrs]
    assert [w[0] for w in anchors] == ["conv2d_nchw", "pool2d", "adaptive_pool", "softmax"]


def test_names_are_exported():
    for room in (topi, topi.nn, testing):
        assert all(hasattr(room, name) for name in room.__all__)
