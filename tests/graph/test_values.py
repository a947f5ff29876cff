"""Networks in which values decide shapes: inputs such as a shape, what is counted on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import stages
from tilewright_tvm.runtime.vm import VirtualMachine

RNG = np.random.default_rng(0)
A = RNG.random((4, 6)).astype("float32")
IMAGE = RNG.random((1, 3, 4, 4)).astype("float32")
PLACES = np.array([0, 2, 1], "int32")


def v(name, *shape, dtype="float32"):
    return relay.var(name, shape=shape, dtype=dtype)


def numbers(*values, dtype="int64"):
    return np.array(values if len(values) != 1 else values[0], dtype)


def arrays(value):
    return list(map(arrays, value)) if isinstance(value, list) else value.numpy()


B = A * A
X, SHAPE, N = v("x", 4, 6), v("s", 2, dtype="int64"), v("n", dtype="int32")
E, ONE = relay.exp(X), relay.const(1)
K = v("k", 1, dtype="int32")
PAIRS = v("p", 2, 2, dtype="int64")
BEGIN, END, STEPS = (v(name, 2, dtype="int64") for name in ("begin", "end", "steps"))
SCALAR, PICTURE, WHICH = v("b"), v("image", 1, 3, 4, 4), v("i", 3, dtype="int32")
NEAREST = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}

# the inputs, the value, and calls: of which arguments the result is what
CASES = {
    "tile": ([X, SHAPE], relay.tile(X, SHAPE) * 2.0, [
        ((A, numbers(1, 2)), np.tile(A, (1, 2)) * 2), ((A, numbers(3, 1)), np.tile(A, (3, 1)) * 2),
    ]),
    "reshape": ([X, SHAPE], relay.reshape(relay.exp(X), SHAPE), [
        ((A, numbers(8, 3)), np.exp(A).reshape(8, 3)),
        ((A, numbers(-1, 2)), np.exp(A).reshape(-1, 2)),
    ]),
    "broadcast_to": ([SCALAR, SHAPE], relay.broadcast_to(SCALAR, SHAPE), [
        ((np.float32(2), numbers(8, 3)), np.full((8, 3), 2, "float32")),
    ]),
    "full": ([SCALAR, SHAPE], relay.full(SCALAR, SHAPE), [
        ((np.float32(2), numbers(0, 3)), np.full((0, 3), 2, "float32")),
    ]),
    "zeros": ([SHAPE], relay.zeros(SHAPE, "int8"), [((numbers(2, 3),), np.zeros((2, 3), "int8"))]),
    "topk": ([X, K], relay.topk(X, K, ret_type="values"), [
        ((A, np.array([3], "int32")), -np.sort(-A, 1)[:, :3]),
    ]),
    "strided_slice": ([X, BEGIN, END, STEPS], relay.strided_slice(X, BEGIN, END, STEPS), [
        ((A, numbers(1, 0), numbers(4, 5), numbers(1, 2)), A[1:4, 0:5:2]),
        ((A, numbers(0, 5), numbers(2, -7), numbers(1, -1)), A[:2, ::-1]),
    ]),
    "arange": ([N], relay.arange(N, dtype="int32"), [
        ((np.int32(5),), np.arange(5, dtype="int32")), ((np.int32(0),), np.zeros(0, "int32")),
    ]),
    "one_hot": ([WHICH, N], relay.one_hot(WHICH, relay.const(1.0), relay.const(0.0), N), [
        ((PLACES, np.int32(4)), np.eye(4, dtype="float32")[PLACES]),
    ]),
    "pad": ([X, PAIRS], relay.nn.pad(X, PAIRS, 0.0), [
        ((A, numbers([[1, 0], [0, 2]])), np.pad(A, [[1, 0], [0, 2]])),
    ]),
    "resize2d": ([PICTURE, SHAPE], relay.image.resize2d(PICTURE, SHAPE, **NEAREST), [
        ((IMAGE, numbers(8, 8)), IMAGE.repeat(2, 2).repeat(2, 3)),
    ]),
    "of a value computed of the shape": ([X, SHAPE], relay.reshape(X, relay.reverse(SHAPE, 0)), [
        ((A, numbers(8, 3)), A.reshape(3, 8)),
    ]),
    "several at once": ([X, SHAPE, N], relay.Tuple([relay.tile(X, SHAPE), relay.arange(N)]), [
        ((A, numbers(1, 1), np.int32(2)), [A, np.float32([0, 1])]),
    ]),
    "one behind the other": ([X, SHAPE, N], relay.tile(relay.reshape(X, SHAPE), N), [
        ((A, numbers(3, 8), np.int32(2)), np.tile(A.reshape(3, 8), 2)),
    ]),
    "argwhere": ([X], relay.argwhere(relay.greater(relay.exp(X), relay.const(1.5))), [
        ((A,), np.argwhere(np.exp(A) > 1.5).astype("int32")), ((A * 0,), np.zeros((0, 2), "int32")),
    ]),
    "what comes before and behind": (
        [X], relay.gather_nd(E, relay.transpose(relay.argwhere(relay.const(1.5) < E))) + 1.0, [
        ((A,), np.exp(A)[np.exp(A) > 1.5] + 1), ((B,), np.exp(B)[np.exp(B) > 1.5] + 1),
    ]),
    "If": ([X, N], relay.If(relay.greater(N, relay.const(2)), relay.reshape(X, (24,)), X * 2.0), [
        ((A, np.int32(3)), A.reshape(24)), ((A, np.int32(1)), A * 2),
    ]),
    "a branch that cannot be": ([X, SHAPE, N], relay.If(ONE < N, relay.reshape(X, SHAPE), X), [
        ((A, numbers(7, 7), np.int32(1)), A), ((A, numbers(6, 4), np.int32(2)), A.reshape(6, 4)),
    ]),
}  # fmt: skip


@pytest.mark.sampled(17)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("name", CASES)
def test_a_value_decides_a_shape(name, kind):
    inputs, value, calls = CASES[name]
    mod = relay.IRModule.from_expr(relay.Function(inputs, value))
    run = relay.create_executor(kind, mod=mod).evaluate()
    for args, want in [*calls, calls[0]]:
        found, want = arrays(run(*args)), want if isinstance(want, list) else [want]
        for a, b in zip(found if isinstance(found, list) else [found], want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
            assert a.shape == b.shape and a.dtype == b.dtype


@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique(kind, is_sorted):
    data = np.array([3, 1, 3, 2, 1, 9, 3], "int32")
    u = v("u", 7, dtype="int32")
    f = relay.Function([u], relay.unique(u, is_sorted, return_counts=True))
    values, first, which, count, often = arrays(relay.create_executor(kind).evaluate(f)(data))
    order = np.unique(data) if is_sorted else np.array([3, 1, 2, 9])
    np.testing.assert_array_equal(values, order)
    np.testing.assert_array_equal(data[first], order)
    np.testing.assert_array_equal(values[which], data)
    np.testing.assert_array_equal(often, [(data == x).sum() for x in order])
    assert count.tolist() == [4]


@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("places", [[[0, 1], [0, 3], [2, 0], [3, 1]], np.zeros((0, 2), "int64")])
def test_rows_of_a_sparse_tensor_are_filled(kind, places):
    places = np.array(places, "int64")
    values = np.arange(1, 1 + len(places), dtype="float32")
    shapes = {"p": places.shape, "v": (len(places),), "s": (2,), "d": (1,)}
    inputs = [v(n, *s, dtype="int64" if n in "ps" else "float32") for n, s in shapes.items()]
    f = relay.Function(inputs, relay.sparse_fill_empty_rows(*inputs))
    run = relay.create_executor(kind).evaluate(f)
    found, filled, empty = arrays(run(places, values, numbers(5, 6), np.float32([9])))
    want = [k not in places[:, 0] for k in range(5)]
    assert empty.tolist() == want and sorted(found[:, 0]) == found[:, 0].tolist()
    dense = np.zeros((5, 6), "float32")
    dense[tuple(found.T)] = filled
    before = np.zeros((5, 6), "float32")
    before[tuple(places.T)] = values
    before[np.array(want), 0] = 9
    np.testing.assert_array_equal(dense, before)


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_a_sparse_tensor_under_another_shape(kind):
    places = numbers([[0, 1], [2, 3], [4, 5]])
    inputs = [v("p", 3, 2, dtype="int64"), v("a", 2, dtype="int64"), v("b", 3, dtype="int64")]
    run = relay.create_executor(kind).evaluate(
        relay.Function(inputs, relay.sparse_reshape(*inputs))
    )
    found, shape = arrays(run(places, numbers(5, 6), numbers(2, -1, 5)))
    assert shape.tolist() == [2, 3, 5]
    before, after = np.arange(30).reshape(5, 6), np.arange(30).reshape(2, 3, 5)
    np.testing.assert_array_equal(after[tuple(found.T)], before[tuple(places.T)])
    with pytest.raises(ModelError, match="30 elements"):
        run(places, numbers(5, 6), numbers(2, -1, 4))


def growing():
    """A loop that adds a row a trip, as often as an input says."""

    def cond(i, rows):
        return relay.min(relay.less(i, relay.const(4)))

    def body(i, rows):
        row = relay.reshape(i, (1, 1))
        return i + relay.const(1), relay.concatenate([rows, row], 0)

    i, start = v("i", dtype="int32"), v("start", dtype="int32")
    rows = relay.var("rows", shape=(relay.Any(), 1), dtype="int32")
    loop = relay.loops.while_loop(cond, [i, rows], body)
    made = loop(start, relay.reshape(relay.const(0), (1, 1)))
    return relay.Function([start], relay.TupleGetItem(made, 1))


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_a_loop_whose_trips_and_shapes_values_decide(kind):
    run = relay.create_executor(kind).evaluate(growing())
    for start in (0, 2, 7):
        want = [0, *range(start, 4)]
        np.testing.assert_array_equal(run(np.int32(start)).numpy()[:, 0], want)


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_open_extents_beside_values(kind):
    x, n = relay.var("x", shape=(relay.Any(), 3)), v("n", dtype="int32")
    f = relay.Function([x, n], relay.argwhere(relay.tile(relay.nn.relu(x), n)))
    run = relay.create_executor(kind).evaluate(f)
    for rows, times in ((1, 2), (2, 1), (1, 2)):
        data = RNG.standard_normal((rows, 3)).astype("float32")
        want = np.argwhere(np.tile(np.maximum(data, 0), times))
        np.testing.assert_array_equal(run(data, np.int32(times)).numpy(), want)


def test_many_nodes_that_wait_are_looked_at_once():
    """Each reads the two before it."""
    before, value = (relay.argwhere(x) for x in (X, E))
    for _ in range(60):
        before, value = value, relay.where(value, before, value)
    f = relay.Function([X], value)
    assert relay.create_executor("debug").evaluate(f)(A).shape == (24, 2)


ANY = relay.Any
# shapes of two inputs as declared, and of arrays for them; extents without a name may differ
OPEN = [
    ((ANY(),), (3, 2), (1,), (3, 2)), ((ANY(),), (3, 2), (2,), (3, 2)),
    ((ANY(), 2), (3, ANY()), (1, 2), (3, 1)), ((ANY(), ANY()), (ANY(), ANY()), (1, 4), (3, 1)),
    ((ANY(), 4), (1, 4), (0, 4), (1, 4)), ((ANY(), ANY()), (ANY(),), (5, 4), (4,)),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("case", OPEN, ids=str)
def test_open_extents_broadcast_as_those_of_the_call(case, kind):
    x, y = (v(name, *shape) for name, shape in zip("xy", case[:2], strict=True))
    a, b = (RNG.random(shape).astype("float32") for shape in case[2:])
    run = relay.create_executor(kind).evaluate(relay.Function([x, y], relay.exp(x + y) * 2.0))
    np.testing.assert_allclose(run(a, b).numpy(), np.exp(a + b) * 2, rtol=1e-5)
    with pytest.raises(ModelError):
        run(np.zeros((7, 3), "float32"), np.zeros((4, 2), "float32"))


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_values_computed_of_open_extents(kind):
    """How many, and a slice of a shape; an extent of the shape is written out."""
    x = relay.var("x", shape=(ANY(), ANY(), 2))
    count = relay.take(relay.shape_of(x), relay.const(1))
    flat = relay.reshape(x, (x.shape[0] * 2, x.shape[1]))
    parts = relay.split(flat, 2, axis=0)
    value = relay.Tuple([relay.arange(count, dtype="int32"), parts[1]])
    run = relay.create_executor(kind).evaluate(relay.Function([x], value))
    for shape in ((3, 4, 2), (1, 5, 2), (1013, 1, 2)):
        data = RNG.random(shape).astype("float32")
        numbers_, second = arrays(run(data))
        np.testing.assert_array_equal(numbers_, np.arange(shape[1]))
        np.testing.assert_array_equal(second, data.reshape(2 * shape[0], shape[1])[shape[0] :])


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_whole_numbers_may_be_floats(kind):
    times, k = v("times", 3), v("k", 1)
    made = relay.Tuple([relay.tile(X, times), relay.topk(X, k, 1, "values")])
    run = relay.create_executor(kind).evaluate(relay.Function([X, times, k], made))
    tiled, most = arrays(run(A, np.float32([2, 1, 3]), np.float32([2])))
    np.testing.assert_array_equal(tiled, np.tile(A, (2, 1, 3)))
    np.testing.assert_array_equal(most, -np.sort(-A, 1)[:, :2])
    with pytest.raises(ModelError, match="reps"):
        run(A, np.float32([2, 1, 2.5]), np.float32([2]))


def test_what_was_computed_is_not_computed_again():
    """exp is read in front of the place where the data are looked at, and behind it."""
    x, data = v("x", 50, 50), RNG.random((50, 50)).astype("float32")
    e = relay.exp(x)
    places = relay.transpose(relay.argwhere(relay.const(1.5) < e))
    mod = relay.Function([x], relay.gather_nd(e, places))
    seen = []

    def compute(function, values):
        seen.extend(n.op.name for n in relay.analysis.post_order(function.body) if hasattr(n, "op"))
        named = {p.name_hint: a for p, a in zip(function.params, values, strict=True)}
        return relay.evaluate(function, named)

    (found,), _ = stages.Stages(mod).run({x: data}, compute)
    np.testing.assert_allclose(found, np.exp(data)[np.exp(data) > 1.5], rtol=1e-6)
    assert seen.count("exp") == 1, seen


def test_parts_are_built_once():
    exe = relay.vm.compile(relay.Function([X, SHAPE], relay.tile(relay.exp(X), SHAPE)), "llvm")
    machine = VirtualMachine(exe, tilewright.cpu())
    for reps in ((1, 2), (2, 1), (1, 2)):
        found = machine.invoke("main", A, numbers(*reps)).numpy()
        np.testing.assert_allclose(found, np.tile(np.exp(A), reps), rtol=1e-5)
    assert len(exe._parts) == 2
    assert machine.benchmark(tilewright.cpu(), A, numbers(1, 2), number=1, repeat=2).mean > 0


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(stages, "MOST_KEPT", 3)
    monkeypatch.setattr("tilewright_tvm.relay.executable.MOST_PARTS", 3)
    exe = relay.vm.compile(
        relay.Function([N], relay.arange(N, dtype="int32") + relay.const(1)), "llvm"
    )
    machine = VirtualMachine(exe, tilewright.cpu())
    for n in (1, 2, 3, 4, 5, 1):
        np.testing.assert_array_equal(machine.run(np.int32(n)).numpy(), np.arange(n) + 1)
    assert len(exe._parts) <= 3
    assert all(len(s._kept) <= 3 for s in exe._stages.values())


@st.composite
def networks(draw):
    """A chain of operators of which values decide shapes, with inputs for it."""
    data = np.arange(12, dtype="float32") - 5
    x = v("x", 12)
    inputs, values, value = [x], [data], x
    for k in range(draw(st.integers(1, 4))):
        n = v(f"n{k}", dtype="int32")
        match draw(st.sampled_from(("tile", "slice", "where", "double", "full"))):
            case "tile":
                value = relay.tile(value, n)
                inputs, values = [*inputs, n], [*values, np.int32(draw(st.integers(0, 3)))]
            case "slice":
                ends = v(f"n{k}", 1, dtype="int64")
                value = relay.strided_slice(value, [0], ends)
                inputs = [*inputs, ends]
                values = [*values, np.array([draw(st.integers(0, 20))], "int64")]
            case "where":
                kept = relay.argwhere(relay.greater(value, relay.const(0.0)))
                value = relay.gather_nd(value, relay.transpose(kept))
            case "double":
                value = value + value
            case "full":
                value = relay.concatenate([value, relay.full(relay.const(1.5), n)], 0)
                inputs, values = [*inputs, n], [*values, np.int32(draw(st.integers(1, 3)))]
    return relay.Function(inputs, value), values


@pytest.mark.slow
@examples(40)
@given(networks())
def test_stages_give_what_one_operator_after_the_other_gives(made):
    function, values = made
    named = {p.name_hint: a for p, a in zip(function.params, values, strict=True)}

    def compute(part, inputs):
        there = {p.name_hint: a for p, a in zip(part.params, inputs, strict=True)}
        return relay.evaluate(part, there)

    found, _ = stages.Stages(function).run(dict(zip(function.params, values, strict=True)), compute)
    np.testing.assert_array_equal(found[0], relay.evaluate(function, named))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: relay.build(relay.Function([X, SHAPE], relay.tile(X, SHAPE)), "llvm"),
         ("relay.tile", "those of s", 'create_executor("vm"')),
        (lambda: relay.build(relay.Function([X], relay.argwhere(X)), "llvm"),
         ("relay.argwhere", "how many results", 'create_executor("vm"')),
        (lambda: relay.create_executor("graph").evaluate(relay.Function([X], relay.argwhere(X))),
         ("relay.argwhere", 'create_executor("vm"')),
        (lambda: relay.create_executor("vm").evaluate(CASE)(A, numbers(5, 5)),
         ("reshape", "24 elements", "(5, 5)")),
        (lambda: relay.create_executor("vm").evaluate(CASE)(A[:2], numbers(5, 5)),
         ("input x", "[2, 6]", "[4, 6]")),
        (lambda: relay.create_executor("vm").evaluate(growing())(np.int32(-20_000)),
         ("while_loop", "not ended", "5 steps")),
        (lambda: relay.take(X, X, X), ("axis", "not an integer")),
    ],
)  # fmt: skip
def test_refusals(call, parts, monkeypatch):
    monkeypatch.setattr(stages, "MOST_STAGES", 5)
    with pytest.raises(ModelError) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


CASE = relay.Function([X, SHAPE], relay.reshape(X, SHAPE))


def test_constants_that_params_give_need_no_values():
    s = v("s", 2, dtype="int64")
    mod = relay.IRModule.from_expr(relay.Function([X, s], relay.tile(X, s)))
    library = relay.build(mod, "llvm", params={"s": numbers(1, 2)})
    machine = VirtualMachine(library, tilewright.cpu())
    np.testing.assert_array_equal(machine.invoke("main", A).numpy(), np.tile(A, (1, 2)))


def test_a_loop_has_what_its_body_reads_besides_as_inputs():
    x, i, s = (relay.var(n, shape=(), dtype="int32") for n in "xis")
    ten = relay.const(10)
    loop = relay.loops.while_loop(
        lambda i, s: i < ten, [i, s], lambda i, s: (i + relay.const(1), s + x)
    )
    made = loop(relay.const(0), relay.const(0))
    assert relay.analysis.free_vars(made) == [x]
    net = relay.Function([x], relay.TupleGetItem(made, 1))
    for kind in ("vm", "debug"):
        assert relay.create_executor(kind).evaluate(net)(np.int32(3)).numpy() == 30
    bound = relay.bind(net, {x: relay.const(4)})
    assert relay.create_executor("vm").evaluate(bound)().numpy() == 40
