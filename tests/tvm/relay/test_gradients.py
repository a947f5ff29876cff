"""Gradients of networks: every rule against differences in float64, and what is built of them."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from graph.cases import CASES, Case, function, random_inputs, tensor
from tests.tvm.relay.cases_gradients import MADE
from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import in_float64
from tilewright.graph.expr import Expr, Function, TensorType, post_order
from tilewright.graph.op import TABLE
from tilewright.graph.traversal import op_name
from tilewright_tvm import autotvm, relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.gradients.table import RULES
from tilewright_tvm.relay.transform import gradient

# Of floating-point operands and results, and without a gradient; each ends in a sentence.
WITHOUT = {
    "image.crop_and_resize", "image.dilation2d", "image.grid_sample", "nn.correlation",
    "nn.dense_narrow", "nn.unpack_narrow",
    "vision.multibox_prior", "vision.roi_align", "vision.roi_pool", "vision.suppress",
    "vision.valid_boxes", "vision.yolo_reorg",
}  # fmt: skip
EPSILON = 1e-6


def is_differentiable(case: Case) -> bool:
    made = function(case.build())
    floats = [p for p in made.params if p.dtype.is_float]
    narrow = any(p.dtype.bits < 32 for p in floats)
    kind = made.body.checked_type
    return bool(floats) and not narrow and isinstance(kind, TensorType) and kind.dtype.is_float


FLOATS = [c for c in CASES if is_differentiable(c)]
EVERY = [c for c in FLOATS if c.op not in WITHOUT and c.id != "scatter_elements-mul"] + [
    Case(*made) for made in MADE
]


def weighed(body: Expr) -> Function:
    """The sum of all elements, each with a weight of its own: the gradient of a plain sum would not
    tell elements apart."""
    weight = relay.var("weight", shape=body.shape, dtype=str(body.dtype))
    return function(relay.sum(body * weight))


def values_of(f: Function) -> list[np.ndarray]:
    given = random_inputs(f, zlib.crc32(str(f).encode()) % 1000)
    return [
        given[p.name_hint].astype("float64" if p.dtype.is_float else p.dtype.storage)
        for p in f.params
    ]


def check(f: Function, values: list[np.ndarray] | None = None) -> None:
    """Along one random direction for each parameter, which no error but one in a million meets."""
    values = values_of(f) if values is None else values
    made = gradient(f)
    result, grads = in_float64(made, values)
    np.testing.assert_allclose(result, in_float64(f, values))
    rng = np.random.default_rng(1)
    for k, (p, grad) in enumerate(zip(f.params, grads, strict=True)):
        assert grad.shape == p.shape
        if not p.dtype.is_float:
            assert not np.any(grad) and made.body[1][k].dtype == p.dtype
            continue
        way = rng.standard_normal(p.shape)
        ends = [
            in_float64(f, [*values[:k], values[k] + s * EPSILON * way, *values[k + 1 :]])
            for s in (1, -1)
        ]
        expected = (ends[0] - ends[1]) / (2 * EPSILON)
        np.testing.assert_allclose(np.sum(grad * way), expected, 1e-5, 1e-6, err_msg=p.name_hint)


@pytest.mark.sampled(113)
@pytest.mark.slow
@pytest.mark.parametrize("case", EVERY, ids=lambda c: c.id)
def test_gradients_are_what_differences_say(case: Case):
    check(weighed(case.build()))


def test_every_operator_with_floats_has_a_rule_or_says_that_it_has_none():
    floats = {c.op for c in FLOATS}
    assert set(RULES) <= set(TABLE)
    assert floats - set(RULES) == WITHOUT & floats and not WITHOUT & set(RULES)
    assert {c.op for c in EVERY} >= set(RULES)


@pytest.mark.parametrize("op", sorted(WITHOUT & {c.op for c in FLOATS}))
def test_what_has_no_gradient(op):
    case = next(c for c in FLOATS if c.op == op)
    with pytest.raises(ModelError, match=f"gradient of {op}: it has none.*register_gradient"):
        gradient(weighed(case.build()))


NORMED = [(), (0,), (1,), (2,), (0, 1, 2)]


@pytest.mark.parametrize("results", NORMED)
@pytest.mark.parametrize("how", [{}, {"axis": 3, "scale": False}, {"center": False}])
def test_batch_norm_has_the_gradients_of_all_its_results(results, how):
    x = tensor("x", 2, 3, 4, 3)
    vectors = [tensor(n, 3) for n in ("g", "b", "m", "pos_v")]
    made = nn.batch_norm(x, *vectors, epsilon=0.1, **how)
    total = relay.sum(made[0] * made[0]) if 0 in results else relay.sum(relay.sin(x))
    for k in set(results) - {0}:
        total = total + relay.sum(made[k] * relay.exp(made[k]))
    check(relay.Function([x, *vectors], total))


@pytest.mark.parametrize("op", ["prod", "cumprod"])
def test_products_with_zeros_among_their_elements(op):
    x = tensor("x", 3, 5)
    body = relay.prod(x, axis=1) if op == "prod" else relay.cumprod(x, axis=1)
    values = np.random.default_rng(0).standard_normal((3, 5))
    values[0, 2] = values[1, 0] = values[1, 3] = 0.0
    f = weighed(body)
    weight = np.random.default_rng(2).standard_normal(body.shape)
    check(f, [values, weight])


def test_extremes_and_corners():
    x, y = tensor("x", 4), tensor("y", 4)
    equal = [np.array([1.0, -2.0, 0.0, 3.0]), np.array([1.0, -1.0, 0.0, 2.0])]

    def grads(body, values=equal):
        return in_float64(gradient(relay.Function([x, y][: len(values)], body)), values)[1]

    shared = grads(relay.maximum(x, y))
    assert [g.tolist() for g in shared] == [[0.5, 0, 0.5, 1], [0.5, 1, 0.5, 0]]
    (best,) = grads(relay.max(x), [np.array([2.0, 1.0, 2.0, 2.0])])
    np.testing.assert_allclose(best, [1 / 3, 0, 1 / 3, 1 / 3])
    assert grads(relay.abs(x), equal[:1])[0].tolist() == [1, -1, 0, 1]
    by_base, by_exponent = grads(relay.power(x, y), [np.array([0.0, 0.0, 2.0, 1.0]), equal[0]])
    assert by_base.tolist() == [1, -np.inf, 0, 3] and by_exponent[0] == 0
    clipped = grads(relay.clip(x, -2.0, 1.0), equal[:1])
    assert clipped[0].tolist() == [1, 1, 1, 0]


def test_updates_that_do_not_stay_have_no_gradient():
    """Of two updates of one place the last counts, and one that goes nowhere does not."""
    x, u = tensor("x", 4), tensor("u", 4)
    at = relay.const(np.array([1, 1, 9, -1], "int64"))
    made = relay.scatter_elements(x, at, u, 0)
    values = [np.arange(4.0), np.arange(4.0) + 10]
    result, (by_x, by_u) = in_float64(gradient(relay.Function([x, u], made)), values)
    assert result.tolist() == [0, 11, 2, 13]
    assert by_x.tolist() == [1, 0, 1, 0] and by_u.tolist() == [0, 1, 0, 1]
    added = relay.scatter_elements(x, at, u, 0, "add")
    _, (by_x, by_u) = in_float64(gradient(relay.Function([x, u], added)), values)
    assert by_x.tolist() == [1] * 4 and by_u.tolist() == [1, 1, 0, 1]
    with pytest.raises(ModelError, match="reduction='mul' has none"):
        gradient(relay.Function([x, u], relay.scatter_elements(x, at, u, 0, "mul")))


def test_narrow_floats_keep_their_types():
    x, w = (tensor(n, 3, 4, dtype="float16") for n in "xw")
    body = relay.sum(nn.softmax(nn.dense(x, w, out_dtype="float32")))
    made = gradient(relay.Function([x, w], body))
    assert [t.dtype for t in made.body[1].checked_type.fields] == ["float16", "float16"]
    mixed = gradient(relay.Function([x], relay.sum(relay.cast(x, "float32") * 2.0)))
    value = np.ones((3, 4), "float16")
    (grad,) = relay.evaluate(mixed, {"x": value})[1]
    assert grad.dtype == "float16" and (grad == 2).all()


# -- graphs ----------------------------------------------------------------------------------------


def test_a_gradient_is_a_function_with_a_type_and_a_text():
    x, w = tensor("x", 2, 3), tensor("w", 4, 3)
    f = relay.Function([x, w], nn.relu(nn.dense(x, w)))
    made = gradient(f, mode="first_order")
    two, four = x.checked_type, w.checked_type
    assert made.checked_type == relay.FuncType(
        [two, four], relay.TupleType([f.ret_type, relay.TupleType([two, four])])
    )
    mod = relay.transform.InferType()(relay.IRModule.from_expr(made))
    again = relay.parse(mod.astext())
    relay.analysis.assert_structural_equal(again, mod)
    assert relay.testing.count_ops(made)["nn.dense"] == 3


def test_only_what_grows_with_a_parameter_is_gone_through():
    x = tensor("x", 3, dtype="float32")
    at = tensor("at", 3, dtype="int32")
    unused = tensor("unused", 2)
    steps = relay.cast(relay.floor(x), "int32") + at
    made = gradient(relay.Function([x, at, unused], relay.cast(steps, "float32")))
    assert not relay.testing.count_ops(made).keys() & {"where", "multiply", "sum"}
    values = {"x": [0.5, 1.5, 2.5], "at": [1, 2, 3], "unused": [1, 2]}
    result, grads = relay.evaluate(made, {k: np.array(v) for k, v in values.items()})
    assert result.tolist() == [1, 3, 5]
    assert [g.tolist() for g in grads] == [[0] * 3, [0] * 3, [0] * 2]
    assert [g.dtype for g in grads] == ["float32", "int32", "float32"]


def test_tuples_functions_and_modules():
    x = tensor("x", 3)
    double = relay.Function([x], x + x)
    y = tensor("y", 3)
    mod = relay.IRModule()
    name = relay.GlobalVar("four")
    mod[name] = relay.Function([y], double(double(y)))
    pair = relay.Tuple([mod[name](y), relay.sin(y)])
    taken = relay.TupleGetItem(pair, 0) * relay.TupleGetItem(pair, 1)
    value = np.array([0.1, 0.2, 0.3])
    for given in (gradient(name, mod), gradient("four", mod=mod)):
        _, (grad,) = in_float64(given, [value])
        assert grad.tolist() == [4, 4, 4]
    check(relay.Function([y], relay.sum(taken)), [value])
    # of a tuple the first value counts
    both = relay.Function([y], relay.Tuple([relay.Tuple([y * 3.0, y]), y * y]))
    (first, _), (grad,) = in_float64(gradient(both), [value])
    assert grad.tolist() == [3, 3, 3] and first[1] is not None
    changed = relay.transform.FirstOrderGradient()(mod)
    assert in_float64(changed["four"], [value])[1][0].tolist() == [4, 4, 4]


def test_parameters_that_are_tuples():
    kind = relay.TupleType([relay.TensorType((3,)), relay.TensorType((2,), "int32")])
    pair = relay.var("pair", relay.TupleType([kind, relay.TensorType((3,))]))
    inner, last = relay.TupleGetItem(pair, 0), relay.TupleGetItem(pair, 1)
    made = gradient(relay.Function([pair], relay.TupleGetItem(inner, 0) * last * last))
    assert made.ret_type.fields[1].fields == (pair.checked_type,)
    values = (np.array([1, 2, 3], "float32"), np.array([4, 5], "int32"))
    other = np.array([2, 3, 4], "float32")
    _, ((first, second),) = relay.create_executor("debug").evaluate(made)((values, other))
    assert [g.numpy().tolist() for g in first] == [[4, 9, 16], [0, 0]]
    assert second.numpy().tolist() == [4, 12, 24]


def test_partial_evaluation_leaves_operators_alone():
    x = tensor("x", 3)
    double = relay.Function([x], x * (relay.const(1.0) + relay.const(1.0)))
    y = tensor("y", 3)
    mod = relay.IRModule.from_expr(gradient(relay.Function([y], double(double(y)))))
    mod["calls"] = relay.Function([y], double(y))
    less = relay.transform.PartialEvaluate()(mod)
    assert relay.testing.count_ops(less["calls"]) == {"multiply": 1}
    _, (grad,) = in_float64(less["main"], [np.ones(3)])
    assert grad.tolist() == [4, 4, 4]


def test_zeros_and_ones_that_gradients_begin_with_disappear():
    x, y = tensor("x", 3, 4), tensor("y", 3, 4)
    body = (x * y + relay.zeros((3, 4))) * relay.const(np.ones((3, 4), "float32")) - 2.0
    mod = relay.IRModule.from_expr(gradient(relay.Function([x, y], body / relay.ones((3, 4)))))
    less = relay.transform.LazyGradientInit()(mod)
    assert less["main"].checked_type == mod["main"].checked_type
    counts = relay.testing.count_ops(less["main"])
    assert counts == {"multiply": 1, "subtract": 1}
    values = values_of(mod["main"])
    found, expected = (in_float64(m["main"], values) for m in (less, mod))
    for got, want in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        np.testing.assert_array_equal(got, want)
    kept = relay.Function([x], relay.ones((2, 3, 4)) * x)
    same = relay.transform.LazyGradientInit()(relay.IRModule.from_expr(kept))["main"]
    assert same.body is kept.body


def test_gradients_of_gradients():
    x = tensor("x", 2, 1, 6, 6)
    w = tensor("w", 3, 1, 3, 3)
    body = nn.max_pool2d(relay.tanh(nn.conv2d(x, w, padding=1)), 2, 2)
    first = gradient(relay.Function([x, w], relay.sum(body * body)))
    x2, w2 = tensor("x2", *x.shape), tensor("w2", *w.shape)
    inner = relay.TupleGetItem(first(x2, w2), 1)
    by_x, by_w = relay.TupleGetItem(inner, 0), relay.TupleGetItem(inner, 1)
    check(relay.Function([x2, w2], relay.sum(by_x * by_x) + relay.sum(relay.sin(by_w))))


def test_users_rules_go_before_ours():
    x = tensor("x", 3)
    f = relay.Function([x], relay.exp(x))

    @relay.op.register_gradient("exp")
    def ten_times(call, grad):
        return [grad * 10.0]

    try:
        _, (grad,) = in_float64(gradient(f), [np.zeros(3)])
        assert grad.tolist() == [10, 10, 10]
        relay.op.register_gradient("exp", lambda call, grad: [relay.sum(grad)], level=11)
        with pytest.raises(ModelError, match="that of data has type float32, not"):
            gradient(f)
        relay.op.register_gradient("exp", lambda call, grad: [], level=12)
        with pytest.raises(ModelError, match="there are 0 for 1 arguments"):
            gradient(f)
    finally:
        relay.op.get("exp").reset_attr("FPrimalGradient")


def test_users_rules_of_several_results_get_all_gradients():
    x = tensor("x", 1, 2)
    vectors = [tensor(n, 2) for n in "gbmv"]
    made = nn.batch_norm(x, *vectors)

    @relay.op.register_gradient("nn.batch_norm")
    def nothing_else(call, grad):
        assert isinstance(grad, relay.Tuple) and len(grad.fields) == 3
        return [grad[0] * 2.0, None, None, grad[1], None]

    try:
        f = relay.Function([x, *vectors], made[0])
        _, grads = in_float64(gradient(f), values_of(f))
        assert [g.tolist() for g in grads] == [[[2, 2]], *[[0, 0]] * 4]
    finally:
        relay.op.get("nn.batch_norm").reset_attr("FPrimalGradient")


# -- what waits ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("taken", [True, False])
def test_of_a_branch_only_the_one_that_is_taken(taken):
    """log(0) has an infinite slope, which would be NaN times nothing."""
    x, y = tensor("x", 2), tensor("y", 2)
    condition = relay.var("condition", shape=(), dtype="bool")
    inner = relay.If(condition, x * y, relay.log(y))
    body = relay.sum(relay.sin(relay.If(condition, inner, relay.log(x) + inner)) * x)
    made = gradient(relay.Function([condition, x, y], body))
    values = [np.array(taken), np.array([0.5, 0.0 if taken else 0.25]), np.array([1.0, 0.5])]
    _, grads = in_float64(made, values)
    _, x_, y_ = values
    if taken:
        expected = np.sin(x_ * y_) + x_ * y_ * np.cos(x_ * y_), x_ * x_ * np.cos(x_ * y_)
    else:
        total = np.log(x_) + np.log(y_)
        expected = np.sin(total) + np.cos(total), x_ * np.cos(total) / y_
    for found, want in zip(grads[1:], expected, strict=True):
        np.testing.assert_allclose(found, want, 1e-5)
    run = relay.create_executor("vm", target="llvm").evaluate(made)
    given = [v if v.dtype == bool else v.astype("float32") for v in values]
    for found, want in zip(run(*given)[1][1:], expected, strict=True):
        np.testing.assert_allclose(found.numpy(), want, 1e-5)


def test_shapes_that_values_decide():
    n = relay.var("n", shape=(1,), dtype="int32")
    made = gradient(relay.Function([n], relay.ones(n, "float32")))
    result, (none,) = relay.create_executor("debug").evaluate(made)(np.array([3], "int32"))
    assert result.numpy().tolist() == [1, 1, 1] and none.numpy().tolist() == [0]
    x = tensor("x", 3)
    with pytest.raises(ModelError, match="known when it runs only"):
        gradient(relay.Function([x, n], relay.sum(relay.tile(x, n))))


@pytest.mark.slow
def test_open_extents_have_the_numbers_that_they_turn_out_to_have():
    x = relay.var("x", shape=(relay.Any(), 3))
    w = tensor("w", 4, 3)
    body = relay.mean(nn.softmax(nn.dense(x, w)) * relay.exp(nn.dense(x, w)))
    made = gradient(relay.Function([x, w], body))
    run = relay.create_executor("vm", target="llvm").evaluate(made)
    for rows in (2, 5):
        own = tensor("x", rows, 3)
        fixed = relay.Function([own, w], relay.mean(
            nn.softmax(nn.dense(own, w)) * relay.exp(nn.dense(own, w))
        ))  # fmt: skip
        values = values_of(fixed)
        check(fixed, values)
        expected = in_float64(gradient(fixed), values)[1]
        grads = run(*(v.astype("float32") for v in values))[1]
        for found, want in zip(grads, expected, strict=True):
            np.testing.assert_allclose(found.numpy(), want, 1e-4, 1e-6)


@pytest.mark.slow
def test_open_extents_of_functions_that_call_others():
    """Bodies are put in the places of calls, and are made again for numbers all the same."""
    shape = (relay.Any(), 3)
    x, y, z = (relay.var(n, shape=shape) for n in "xyz")
    mean = relay.Function([x], relay.variance(relay.exp(x)))
    values = np.random.default_rng(0).standard_normal((4, 3))

    def second(shape):
        x, y = (relay.var(n, shape=shape) for n in "xy")
        first = gradient(relay.Function([x], relay.variance(relay.exp(x))))
        inner = relay.TupleGetItem(relay.TupleGetItem(first(y), 1), 0)
        return gradient(relay.Function([y], relay.sum(inner * inner)))

    plain = relay.Function([f := tensor("f", 4, 3)], relay.variance(relay.exp(f)))
    _, (want,) = in_float64(gradient(plain), [values])
    given = values.astype("float32")
    by_call = gradient(relay.Function([y], mean(y)))
    found = relay.create_executor("vm", target="llvm").evaluate(by_call)(given)
    np.testing.assert_allclose(found[1][0].numpy(), want, 1e-4, 1e-6)
    marked = gradient(mean).with_attr("Inline", 1)
    taken = relay.Function([z], relay.TupleGetItem(marked(z), 1)[0])
    alone = relay.transform.Inline()(relay.IRModule.from_expr(taken))
    found = relay.create_executor("vm", alone, target="llvm").evaluate()(given)
    np.testing.assert_allclose(found.numpy(), want, 1e-4, 1e-6)
    _, (want,) = in_float64(second((4, 3)), [values])
    found = relay.create_executor("vm", target="llvm").evaluate(second(shape))(given)
    np.testing.assert_allclose(found[1][0].numpy(), want, 1e-3, 1e-6)


# -- checkpoints -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_behind_a_checkpoint_is_computed_again():
    x, w = tensor("x", 4, 4), tensor("w", 4, 4)

    def network(kept):
        first = kept(relay.tanh(nn.dense(relay.tanh(nn.dense(x, w)), w)))
        return relay.Function([x, w], relay.sum(kept(relay.exp(nn.dense(first, w))) * first))

    plain, again = network(lambda v: v), network(relay.annotation.checkpoint)
    assert again.checked_type == plain.checked_type
    values = [v * 0.3 for v in values_of(plain)]
    made = gradient(again)
    wanted, found = in_float64(gradient(plain), values), in_float64(made, values)
    for want, got in zip((wanted[0], *wanted[1]), (found[0], *found[1]), strict=True):
        np.testing.assert_allclose(got, want)
    counts, before = (relay.testing.count_ops(f) for f in (made, gradient(plain)))
    assert counts["tanh"] == before["tanh"] + 2  # and of the last layer the result is enough
    assert counts["nn.dense"] == before["nn.dense"] + 3
    run = relay.create_executor("graph", target="llvm").evaluate(made)
    for got, want in zip(run(*(v.astype("float32") for v in values))[1], wanted[1], strict=True):
        np.testing.assert_allclose(got.numpy(), want, 1e-4, 1e-5)


def test_checkpoints_of_tuples_and_what_is_read_outside_as_well():
    x = tensor("x", 3)
    inside = relay.exp(x)
    pair = relay.annotation.checkpoint(relay.Tuple([inside * x, relay.sin(inside)]))
    f = relay.Function([x], relay.sum(pair[0] * pair[1] + inside))
    check(f)
    assert relay.testing.count_ops(gradient(f))["exp"] == 1


# -- what is built ---------------------------------------------------------------------------------

BUILT = (
    "nn.conv2d-strided", "nn.conv2d-grouped", "nn.conv2d_transpose-uneven", "nn.max_pool2d-blocks",
    "nn.avg_pool2d-uneven", "nn.softmax", "nn.standardize", "take", "scatter_elements", "max",
    "nn.mirror_pad", "strided_slice", "cumprod",
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_kernels_compute_what_the_evaluator_does(name):
    case = next(c for c in EVERY if c.id == name)
    f = weighed(case.build())
    made, values = gradient(f), values_of(f)
    given = [v.astype(p.dtype.storage) for p, v in zip(f.params, values, strict=True)]
    found = relay.create_executor("graph", target="llvm").evaluate(made)(*given)
    expected = in_float64(made, values)
    for got, want in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(got.numpy(), want, 1e-4, 1e-4)


@pytest.mark.slow
def test_training_builds_and_the_loss_falls():
    """Three steps down the gradient of a network with the usual layers, compiled once."""
    x, labels = tensor("x", 4, 1, 8, 8), tensor("labels", 4, 3)
    shapes = {"w": (4, 1, 3, 3), "b": (4,), "v": (3, 64)}
    weights = {n: tensor(n, *s) for n, s in shapes.items()}
    y = nn.relu(nn.bias_add(nn.conv2d(x, weights["w"], padding=1), weights["b"]))
    y = nn.dense(nn.batch_flatten(nn.max_pool2d(y, 2, 2)), weights["v"])
    loss = nn.cross_entropy_with_logits(nn.log_softmax(y), labels)
    made = gradient(relay.Function([x, labels, *weights.values()], loss))
    run = relay.create_executor("graph", target="llvm").evaluate(made)
    rng = np.random.default_rng(0)
    now = {n: (rng.standard_normal(s) * 0.3).astype("float32") for n, s in shapes.items()}
    image = rng.standard_normal((4, 1, 8, 8)).astype("float32")
    right = np.eye(3, dtype="float32")[[0, 1, 2, 1]]
    losses = []
    for _ in range(4):
        found, grads = run(image, right, *now.values())
        losses.append(found.numpy().item())
        for name, grad in zip(now, grads[2:], strict=True):
            now[name] = now[name] - 0.05 * grad.numpy()
    assert losses[0] > losses[1] > losses[2] > losses[3]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW4c"])
def test_gradients_follow_layouts(layout):
    x, w = tensor("x", 2, 4, 9, 9), tensor("w", 8, 4, 3, 3)
    y = nn.avg_pool2d(nn.max_pool2d(nn.relu(nn.conv2d(x, w, padding=1)), 3, 2), 2, 2)
    f = weighed(y)
    mod = relay.IRModule.from_expr(gradient(f))
    moved = relay.transform.ConvertLayout({"nn.conv2d": [layout, "default"]})(mod)
    found = [n for n in post_order(moved["main"].body) if is_max_grad(n)]
    assert found and all(n.attrs.layout == layout for n in found)
    values = values_of(f)
    expected, got = (in_float64(m["main"], values) for m in (mod, moved))
    for want, grad in zip(expected[1], got[1], strict=True):
        np.testing.assert_allclose(grad, want, 1e-9, 1e-9)


def is_max_grad(node: Expr) -> bool:
    return op_name(node) == "nn.max_pool2d_grad"


def test_kernels_of_gradients_are_tasks():
    x, w = tensor("x", 2, 4, 8, 8), tensor("w", 8, 4, 3, 3)
    mod = relay.IRModule.from_expr(gradient(weighed(nn.conv2d(x, w, padding=1))))
    names = [t.name for t in autotvm.task.extract_from_program(mod, {}, "llvm")]
    assert sum("conv2d" in name for name in names) == 3


# -- what is refused, and what users call ----------------------------------------------------------


def test_refusals():
    x = tensor("x", 3)
    f = relay.Function([x], x)
    with pytest.raises(ModelError, match="no such mode"):
        gradient(f, mode="third_order")
    with pytest.raises(ModelError, match="without a module"):
        gradient("main")
    uneven = nn.adaptive_max_pool2d(tensor("x", 1, 1, 5, 5), 2)
    with pytest.raises(ModelError, match="windows of several sizes"):
        gradient(function(uneven))


GRADS = [
    (lambda g, x: nn.max_pool2d_grad(g, x, 3, 2, 1), lambda x: nn.max_pool2d(x, 3, 2, padding=1)),
    (lambda g, x: nn.avg_pool2d_grad(g, x, 3, 2, 1), lambda x: nn.avg_pool2d(x, 3, 2, padding=1)),
    (
        lambda g, x: nn.avg_pool2d_grad(g, x, 3, 2, 1, ceil_mode=True, count_include_pad=True),
        lambda x: nn.avg_pool2d(x, 3, 2, padding=1, ceil_mode=True, count_include_pad=True),
    ),
]


@pytest.mark.parametrize("by_name, pool", GRADS)
def test_gradients_of_pooling_by_name(by_name, pool):
    x = tensor("x", 2, 3, 6, 7)
    g = tensor("g", *pool(x).shape)
    values = values_of(relay.Function([x, g], relay.sum(pool(x) * g)))
    expected = in_float64(gradient(relay.Function([x, g], relay.sum(pool(x) * g))), values)[1][0]
    np.testing.assert_allclose(
        in_float64(relay.Function([x, g], by_name(g, x)), values), expected, atol=1e-12
    )
    with pytest.raises(ModelError, match="_grad"):
        by_name(tensor("g", 1, 3, 3, 4), x)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gradients_of_weights_by_name(groups, layout):
    from tilewright_tvm.topi.testing import conv2d_backward_weight_python

    kernel = {"NCHW": "OIHW", "NHWC": "HWIO"}[layout]
    shapes = ((2, 8, 4, 4), (2, 4, 9, 8))
    dy, x = (tensor(n, *(s if layout == "NCHW" else (s[0], *s[2:], s[1])))
             for n, s in zip("gx", shapes, strict=True))  # fmt: skip
    how = {"strides": 2, "padding": (0, 1), "groups": groups}
    made = nn.conv2d_backward_weight(
        dy, x, **how, channels=8, kernel_size=(3, 3), grad_layout=layout, data_layout=layout,
        kernel_layout=kernel, out_dtype="float32",
    )  # fmt: skip
    values = values_of(relay.Function([dy, x], made))
    want = conv2d_backward_weight_python(*values, (3, 3), 2, (0, 1), layout, groups)
    np.testing.assert_allclose(in_float64(relay.Function([dy, x], made), values), want, atol=1e-12)
    for wrong, reason in (
        ({"kernel_size": None}, "kernel_size is not given"),
        ({"kernel_size": 5}, "the convolution gives"),
        ({"kernel_size": 3, "channels": 7}, "not 7"),
        ({"kernel_size": 3, "grad_layout": "HWCN"}, "layouts"),
    ):
        given = {"grad_layout": layout, "data_layout": layout} | how | wrong
        with pytest.raises(ModelError, match=reason):
            nn.conv2d_backward_weight(dy, x, **given)


@pytest.mark.slow
def test_check_grad_sees_right_and_wrong_gradients():
    x, w = tensor("x", 2, 3), tensor("w", 4, 3)
    f = relay.Function([x, w], relay.tanh(nn.dense(x, w)))
    relay.testing.check_grad(f, scale=0.5)
    relay.testing.check_grad(f, scale=0.5, executor_kind="graph", mode="first_order")
    inputs = [np.ones((2, 3), "float32"), np.ones((4, 3), "float32")]
    relay.testing.check_grad(f, inputs, test_inputs=inputs[1:])
    relay.op.register_gradient("tanh", lambda call, grad: [grad])
    try:
        with pytest.raises(AssertionError, match="by x on llvm"):
            relay.testing.check_grad(f, scale=0.5)
    finally:
        relay.op.get("tanh").reset_attr("FPrimalGradient")
    with pytest.raises(ModelError, match="not among inputs"):
        relay.testing.check_grad(f, inputs, test_inputs=[np.ones((4, 3))])
    with pytest.raises(ModelError, match="no gradient is to be compared"):
        relay.testing.check_grad(f, inputs, test_inputs=[])
