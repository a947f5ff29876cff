"""Passes that only users call: each does what it says and keeps the meaning of what it changes."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.test_passes import compare, inputs_of, names
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright_tvm import ir, relay, tir, transform
from tilewright_tvm.relay import nn
from tilewright_tvm.relay import transform as passes
from tilewright_tvm.relay.analysis import structural_equal
from tilewright_tvm.relay.testing.temp_op_attr import TempOpAttr

RNG = np.random.default_rng(0)
SIMPLIFY = passes.SimplifyExpr()


def body_after(change, value: relay.Expr) -> relay.Expr:
    """The result of a pass, after both were computed and compared."""
    mod = relay.IRModule.from_expr(value)
    made = change(mod)
    inputs = inputs_of(mod["main"])
    compare(relay.evaluate(mod, inputs), relay.evaluate(made, inputs))
    return made["main"].body


def vector(dtype: str = "float64", *shape: int) -> relay.Var:
    return relay.var("x", shape=shape or (4, 6), dtype=dtype)


def numbers(*shape: int) -> relay.Constant:
    return relay.const(RNG.uniform(0.5, 2, shape))


# -- SimplifyExpr
@pytest.mark.parametrize(
    "dtype, casts, left",
    [
        ("int8", ["int16", "int32", "float64"], ["float64"]),  # each holds what it gets
        ("float32", ["int32", "float32"], ["int32", "float32"]),  # drops the fraction
        ("int64", ["bool", "int32"], ["bool", "int32"]),
        ("int32", ["float32", "float64"], ["float32", "float64"]),  # rounds
        ("int32", ["uint32", "int64"], ["uint32", "int64"]),  # wraps
        ("int32", ["int32"], []),
        ("float16", ["float32", "float64"], ["float64"]),
        ("bfloat16", ["float16", "float32"], ["float16", "float32"]),  # overflows
        ("bool", ["int8", "float32"], ["float32"]),
    ],
)
def test_casts_join_where_nothing_is_lost(dtype, casts, left):
    value = relay.var("x", shape=(4, 6), dtype=dtype)
    made = wanted = value
    for kind in casts:
        made = relay.cast(made, kind)
    for kind in left:
        wanted = relay.cast(wanted, kind)
    after = passes.SimplifyExpr()(relay.IRModule.from_expr(relay.Function([value], made)))
    assert structural_equal(after["main"], relay.Function([value], wanted))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("middle", ["uint8", "int8"])
def test_casts_of_limited_values_join_where_all_are_inside(dtype, middle):
    x = relay.var("x", shape=(400,), dtype=dtype)
    limited = relay.clip(x, 0.0, 255.0)
    value = relay.cast(relay.cast(limited, middle), "int32")
    made = SIMPLIFY(relay.IRModule.from_expr(value))
    data = {"x": np.linspace(-300, 300, 400).astype(dtype)}
    same = [relay.evaluate(m, data) for m in (relay.IRModule.from_expr(value), made)]
    np.testing.assert_array_equal(*same)
    kept = {"uint8": {"int32": ["clip"], "float32": ["clip", "cast"]}[dtype]}
    assert names(made["main"].body) == kept.get(middle, ["clip", "cast", "cast"])


def test_limits_join_and_disappear():
    x = vector("int32")
    twice = relay.clip(relay.cast(relay.clip(x, 3, 200), "uint8"), 10, 250)
    assert names(body_after(SIMPLIFY, twice)) == ["clip", "cast"]
    whole = relay.clip(relay.cast(x, "uint8"), 0, 255)
    assert names(SIMPLIFY(relay.IRModule.from_expr(whole))["main"].body) == ["cast"]
    for low, high in ((0.5, 250), (1, 255), (0, 254)):
        kept = relay.clip(relay.cast(relay.clip(x, 0, 300), "uint8"), low, high)
        assert names(SIMPLIFY(relay.IRModule.from_expr(kept))["main"].body).count("clip") == 2


def test_constants_of_neighbours_join_whatever_side_they_are_on():
    x, a, b, c = vector(), numbers(6), numbers(6), numbers(1)
    for value, left in (
        (x + a + b, ["add"]), (a + x + b, ["add"]), (b * (a * x), ["multiply"]),
        ((a + x) * b, ["multiply", "add"]), (c + b * (x + a), ["multiply", "add"]),
        (c * (b + a * x), ["multiply", "add"]),
    ):  # fmt: skip
        assert names(body_after(SIMPLIFY, value)) == left
    huge = relay.const(np.full(6, 1e300))
    assert names(SIMPLIFY(relay.IRModule.from_expr(x * huge * huge))["main"].body) == [
        "multiply", "multiply",
    ]  # fmt: skip


def test_what_changes_nothing_disappears_and_tensors_of_one_number_are_the_number():
    x = vector()
    zeros, ones = relay.zeros((4, 6), "float64"), relay.ones((6,), "float64")
    for value in (zeros + x, x + zeros, x - zeros, ones * x, x / ones):
        assert body_after(SIMPLIFY, value) is x
    twos = relay.full(relay.const(2.0), (4, 6), "float64")
    left = body_after(SIMPLIFY, twos / x)
    assert isinstance(left.args[0], relay.Constant) and left.args[0].shape == ()
    wider = relay.zeros((2, 4, 6), "float64") + x
    assert names(body_after(SIMPLIFY, wider)) == ["add"]
    assert names(body_after(SIMPLIFY, x + x)) == ["multiply"]
    assert names(body_after(SIMPLIFY, relay.const(np.float64(1)) / relay.sqrt(relay.abs(x)))) == [
        "abs", "rsqrt",
    ]  # fmt: skip


@given(st.data())
@examples(40)
def test_chains_of_moves_become_three_calls_at_most(data):
    value: relay.Expr = relay.var("x", shape=(2, 6, 1, 4), dtype="float64")
    count = data.draw(st.integers(1, 6))
    for _ in range(count):
        if data.draw(st.booleans()):
            axes = data.draw(st.permutations(range(len(value.shape))))
            value = relay.transpose(value, axes=axes)
        else:
            shapes = [(48,), (2, 24), (4, 3, 4), (2, 6, 1, 4), (1, 8, 6), (2, 3, 2, 2, 2)]
            value = relay.reshape(value, data.draw(st.sampled_from(shapes)))
    left = names(body_after(SIMPLIFY, value))
    assert len(left) <= count
    pairs = list(itertools.pairwise(left))
    assert ("reshape", "reshape") not in pairs and ("transpose", "transpose") not in pairs


def test_layouts_there_and_back_leave_nothing():
    x = vector("float64", 1, 8, 3, 5)
    there = relay.layout_transform(relay.transpose(x, axes=[0, 2, 3, 1]), "NHWC", "NCHW4c")
    back = relay.layout_transform(there, "NCHW4c", "NCHW")
    assert body_after(SIMPLIFY, back) is x
    assert names(body_after(SIMPLIFY, relay.layout_transform(back, "NCHW", "NHWC"))) == [
        "transpose"
    ]


@pytest.mark.parametrize("name", ["argmax", "argmin", "argsort"])
def test_places_of_the_least_are_found_in_the_integers(name):
    x = vector("int8")
    real = relay.qnn.op.dequantize(x, relay.const(0.25), relay.const(3))
    found = body_after(SIMPLIFY, getattr(relay, name)(real, axis=1))
    assert len(names(found)) == 1 and found.args[0] is x
    falling = relay.qnn.op.dequantize(x, relay.const(-0.25), relay.const(3))
    assert len(names(body_after(SIMPLIFY, getattr(relay, name)(falling, axis=1)))) > 1


# -- products of one value
@pytest.mark.parametrize("bias", [(), (1,), (5,), (3, 1), (3, 5), (2, 3, 5)])
def test_operands_of_any_rank_go_with_their_dense_layers(bias):
    x = relay.var("x", shape=(3, 4), dtype="float64")
    layers = []
    for k in range(2):
        weight = relay.var(f"w{k}", shape=(5, 4), dtype="float64")
        operand = relay.var(f"b{k}", shape=bias, dtype="float64")
        layers.append(nn.relu(nn.dense(x, weight) + operand))
    for to_batch in (False, True):
        found = names(body_after(passes.CombineParallelDense(2, to_batch), relay.Tuple(layers)))
        kind = "nn.batch_matmul" if to_batch else "nn.dense"
        assert found.count(kind) == 1
        together = len(bias) in (1, 2) if to_batch else True
        assert found.count("nn.relu") == (1 if together else 2)


def test_products_of_one_batch_become_one():
    x = relay.var("x", shape=(2, 3, 4), dtype="float64")
    weights = [relay.var(f"w{k}", shape=(2, n, 4), dtype="float64") for k, n in enumerate((5, 6))]
    value = relay.Tuple([nn.batch_matmul(x, w) for w in weights])
    assert names(body_after(passes.CombineParallelBatchMatmul(2), value)).count(
        "nn.batch_matmul"
    ) == 1  # fmt: skip
    assert names(body_after(passes.CombineParallelBatchMatmul(), value)).count(
        "nn.batch_matmul"
    ) == 2  # fmt: skip
    with transform.PassContext(required_pass=["CombineParallelBatchMatmul"]):
        assert "nn.batch_matmul" in str(relay.optimize(relay.IRModule.from_expr(value)))


# -- dilation
def dilated(crops, pad_value=0.0, layout="NHWC", block=2, strides=1):
    x = relay.var("x", shape=(1, 5, 5, 4), dtype="float64")
    pads = [[block, 2 * block - 1]] * 2
    apart = nn.space_to_batch_nd(x, [block, block], pads, pad_value)
    shape = (3, 3, 4, 2) if layout == "NHWC" else (2, apart.shape[1], 1, 1)
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    made = nn.conv2d(
        apart, numbers(*shape), strides=strides, data_layout=layout, kernel_layout=kernel
    )
    return nn.batch_to_space_nd(made, [block, block], crops)


@pytest.mark.parametrize("block", [2, 4])
def test_convolutions_of_blocks_are_dilated(block):
    value = dilated([[0, block - 1]] * 2, block=block)
    made = body_after(passes.FlattenAtrousConv(), value)
    assert names(made) == ["nn.conv2d"]
    assert made.attrs.dilation == (block, block) and made.attrs.padding == (block,) * 4
    assert names(relay.optimize(relay.IRModule.from_expr(value))["main"].body).count(
        "transpose"
    ) == 0  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        {"crops": [[3, 0]] * 2},  # more is cut off than was padded
        {"crops": [[0, 1]] * 2, "pad_value": 1.0},
        {"crops": [[0, 1]] * 2, "layout": "NCHW"},
        {"crops": [[0, 1]] * 2, "strides": 2},
    ],
)
def test_other_convolutions_between_blocks_stay(given):
    assert "transpose" in names(body_after(passes.FlattenAtrousConv(), dilated(**given)))


# -- what users register
def test_functions_that_users_register_replace_calls():
    x = vector()
    mod = relay.IRModule.from_expr(nn.relu(relay.exp(x)))
    seen = []

    def doubled(attrs, inputs, types):
        seen.append((dict(attrs), inputs[0] is x, [str(t) for t in types]))
        return relay.exp(inputs[0] * relay.const(2.0, "float64"))

    with TempOpAttr("exp", "FTVMLegalize", doubled):
        found = passes.Legalize()(mod)["main"].body
    assert names(found) == ["multiply", "exp", "nn.relu"]
    assert seen == [({}, True, ["Tensor[(4, 6), float64]"] * 2)]
    assert names(passes.Legalize()(mod)["main"].body) == ["exp", "nn.relu"]
    with TempOpAttr("exp", "FTVMAlterOpLayout", lambda attrs, inputs, types, result: None):
        assert structural_equal(passes.AlterOpLayout()(mod), mod)
    for wrong, message in (
        (lambda a, i, t: 3, "gave a int"), (lambda a, i, t: relay.sum(i[0]), "gave float64"),
        (lambda a: None, "positional"),
    ):  # fmt: skip
        with TempOpAttr("exp", "FTVMLegalize", wrong), pytest.raises(ModelError, match=message):
            passes.Legalize()(mod)


def test_attributes_of_operators_go_by_their_level():
    row = relay.op.get("log")
    assert row.num_inputs == 1 and row.get_attr("mine") is None

    @ir.register_op_attr("log", "mine", level=11)
    def first(x):
        return x + 1

    relay.op.register_op_attr("log", "mine", lambda x: x + 2)
    assert row.get_attr("mine") is first and relay.op.get("exp").get_attr("mine") is None
    with TempOpAttr("log", "mine", "other"):
        assert row.get_attr("mine") == "other"
    assert row.get_attr("mine") is first
    row.reset_attr("mine")
    assert row.get_attr("mine") is None
    with pytest.raises(ModelError, match="no such operator"):
        relay.op.register_legalize("logg", first)


# -- small passes
def test_each_reader_has_its_own_cast():
    x = relay.var("x", shape=(4, 6), dtype="int8")
    wide = relay.cast(x, "int32")
    value = (wide + relay.const(1)) * (wide + relay.const(2))
    assert names(body_after(passes.CanonicalizeCast(), value)).count("cast") == 2
    narrow = relay.cast(relay.var("y", shape=(4,), dtype="int32"), "int8")
    kept = (narrow + relay.const(1, "int8")) * (narrow + relay.const(2, "int8"))
    assert names(body_after(passes.CanonicalizeCast(), kept)).count("cast") == 1


def test_calls_of_functions_are_what_they_compute():
    p, x = relay.var("p", shape=(4, 6), dtype="float64"), vector()
    twice = relay.Function([p], p + p)
    assert names(body_after(passes.Inline(), twice.with_attr("Inline", 1)(relay.exp(x)))) == [
        "exp", "add",
    ]  # fmt: skip
    assert isinstance(body_after(passes.Inline(), twice(x)).op, relay.Function)
    mod = relay.IRModule.from_expr(relay.exp(x))
    assert passes.DynamicToStatic()(mod) is mod


def test_functions_of_a_module_that_are_marked_are_inlined():
    def module(mark: int, **more):
        mod, inner, outer = relay.IRModule({}), relay.GlobalVar("inner"), relay.GlobalVar("outer")
        p, q, x = (relay.var(n, shape=(2,)) for n in "pqx")
        own = relay.Function([p], relay.exp(p)).with_attr("Inline", mark)
        for name, value in more.items():
            own = own.with_attr(name, value)
        mod[inner] = own
        mod[outer] = relay.Function([q], inner(q) + q)
        mod["main"] = relay.Function([x], outer(inner(x)))
        return mod

    done = passes.Inline()(module(1))
    assert list(done.functions) == ["outer", "main"]
    assert names(done["outer"].body) == ["exp", "add"]
    assert structural_equal(done["main"].body.op, done["outer"])
    assert names(done["main"].body.args[0]) == ["exp"]
    same = passes.Inline()(module(0))
    assert list(same.functions) == ["inner", "outer", "main"] and structural_equal(same, module(0))
    elsewhere = passes.Inline()(module(1, Compiler="a"))
    assert isinstance(elsewhere["main"].body.args[0].op, relay.Function)


def test_a_marked_function_that_nobody_calls_stays():
    mod, inner, outer = relay.IRModule({}), relay.GlobalVar("inner"), relay.GlobalVar("outer")
    p, q = (relay.var(n, shape=(2,)) for n in "pq")
    mod[inner] = relay.Function([p], relay.exp(p)).with_attr("Inline", 1)
    mod[outer] = relay.Function([q], inner(q) + q).with_attr("Inline", 1)
    done = passes.Inline()(mod)
    assert list(done.functions) == ["outer"] and names(done["outer"].body) == ["exp", "add"]
    assert done["outer"].attrs["Inline"] == 1


def test_a_function_that_calls_itself_is_not_inlined():
    mod, count = relay.IRModule({}), relay.GlobalVar("count")
    i = relay.var("i", shape=(), dtype="int32")
    one = relay.const(1, "int32")
    body = relay.If(i < one, i, count(i - one) + one)
    mod[count] = relay.Function([i], body).with_attr("Inline", 1)
    j = relay.var("j", shape=(), dtype="int32")
    mod["main"] = relay.Function([j], count(j))
    assert structural_equal(passes.Inline()(mod), mod)


def test_a_sum_to_its_own_shape_is_one_call():
    x = relay.var("x", shape=(2, 3), dtype="float32")
    assert names(relay.collapse_sum_to(x, (3,))) == ["sum"]
    assert repr(tir.Any()) == "relay.Any()"


def test_contractions_that_ask_for_float32_are_narrow_too():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(5, 3, 3, 3))
    value = nn.relu(nn.conv2d(x, w, padding=1, out_dtype="float32"))
    made = passes.ToMixedPrecision("float16")(relay.IRModule.from_expr(value))["main"].body
    assert made.dtype == "float16" and names(made) == ["cast", "cast", "nn.conv2d", "nn.relu"]
    kept = nn.conv2d(x, w, padding=1, out_dtype="float64")
    made = passes.ToMixedPrecision("float16")(relay.IRModule.from_expr(kept))["main"].body
    assert made.dtype == "float64"


# -- shapes that are values of the graph
def test_what_is_known_of_the_graph_may_be_a_shape():
    x, y = relay.var("x", shape=(2, 3, 4)), relay.var("y", shape=(8, 3))
    like = relay.shape_of(y)
    assert relay.reshape(x, like).shape == (8, 3)
    half = relay.concatenate([like, relay.const(np.array([1], "int32"))], 0)
    assert relay.reshape(x, half).shape == (8, 3, 1)
    assert relay.broadcast_to(relay.var("z", shape=(3,)), like).shape == (8, 3)
    assert relay.tile(y, relay.shape_of(relay.var("t", shape=(2, 2)))).shape == (16, 6)
    assert relay.zeros(like).shape == relay.full(relay.const(1.0), like).shape == (8, 3)
    assert relay.topk(y, relay.const(2), ret_type="values").shape == (8, 2)
    with pytest.raises(ModelError, match="newshape"):
        relay.reshape(x, relay.zeros((2000,), "int32"))
    with pytest.raises(ModelError, match='"vm"'):
        _ = relay.broadcast_to(x, relay.var("s", shape=(2,), dtype="int32")).shape


# -- layouts
def test_integers_have_layouts_of_their_own():
    x, w = relay.var("x", shape=(1, 4, 6, 6)), relay.var("w", shape=(8, 4, 3, 3))
    wide = nn.conv2d(x, w)
    kernel = relay.var("k", shape=(8, 8, 1, 1), dtype="int32")
    value = nn.conv2d(relay.cast(wide, "int32"), kernel, out_dtype="int32")
    mod = relay.IRModule.from_expr(value)

    def layouts(desired):
        made = passes.ConvertLayout(desired)(mod)["main"].body
        found = [n for n in relay.analysis.post_order(made) if isinstance(n, relay.Call)]
        return [n.attrs.data_layout for n in found if n.op.name == "nn.conv2d"]

    first, last = ["NCHW", "default"], ["NHWC", "default"]
    assert layouts({"nn.conv2d": last}) == ["NHWC", "NHWC"]
    assert layouts({"qnn.conv2d": last}) == ["NCHW", "NHWC"]
    assert layouts({"nn.conv2d": last, "qnn.conv2d": first}) == ["NHWC", "NCHW"]
    body_after(passes.ConvertLayout({"qnn.conv2d": last}), value)
    with pytest.raises(ModelError, match="no layout to choose"):
        passes.ConvertLayout({"qnn.add": last})(mod)


@pytest.mark.parametrize("layout, wanted", [("NCHW", "NHWC"), ("NHWC", "NCHW")])
def test_resizes_have_layouts(layout, wanted):
    x = relay.var("x", shape=(1, 4, 5, 6), dtype="float64")
    value = relay.image.resize2d(x, (8, 8), layout=layout)
    made = body_after(passes.ConvertLayout({"image.resize2d": [wanted]}), value)
    assert names(made) == ["transpose", "image.resize", "transpose"]
    assert names(body_after(passes.ConvertLayout({"image.resize2d": [layout]}), value)) == [
        "image.resize"
    ]


def test_strides_may_name_more_axes_than_ends():
    x = relay.var("x", shape=(1, 8, 6, 4))
    assert relay.strided_slice(x, [0, 1], [1, -1, 5], strides=[1, 1, 2, 1]).shape == (1, 6, 3, 4)


# -- small things that scripts ask for
def test_a_network_for_another_batch_size():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    mod = relay.IRModule.from_expr(relay.Function([x, w], relay.reshape(nn.dense(x, w), (2, 2, 2))))
    made = passes.ChangeBatch({x: 0}, batch_size=8)(mod)["main"]
    assert made.ret_type == relay.TensorType((8, 2, 2)) and made.params[1] is w
    for wrong in ({}, {x: 1}, {relay.var("z", shape=(2, 3)): 0}):
        with pytest.raises(ModelError, match="ChangeBatch"):
            passes.ChangeBatch(wrong)(mod)


def test_without_a_target_layouts_stay():
    x, w = relay.var("x", shape=(1, 16, 6, 6)), relay.var("w", shape=(16, 16, 3, 3))
    mod = relay.IRModule.from_expr(nn.conv2d(x, w))
    assert passes.AlterOpLayout()(mod) is mod
    assert not structural_equal(passes.AlterOpLayout("llvm")(mod), mod)


def test_what_a_network_calls_and_how_it_runs():
    x = vector()
    mod = relay.IRModule.from_expr(relay.exp(x) + relay.exp(relay.exp(x)))
    assert relay.analysis.extract_operators(mod) == ["exp", "add"]
    executor = relay.backend.Executor("graph")
    assert executor["link-params"] is False
    with pytest.raises(ModelError, match="no such option"):
        _ = executor["interface-api"]
    two = relay.create_executor("debug").evaluate(relay.Function([x], x + x))
    held = np.full((4, 6), 2.0)
    np.testing.assert_array_equal(two(relay.const(held)).numpy(), held * 2)


def test_attributes_of_functions():
    p, x = relay.var("p", shape=(4, 6), dtype="float64"), vector()
    plain = relay.Function([p], p + p)
    group = plain.with_attr("Primitive", 1)
    assert group.attrs["Primitive"] == 1 and not plain.attrs and structural_equal(group, plain)
    assert names(body_after(passes.Inline(), plain.with_attr("Inline", 1)(x))) == ["add"]
    kept = body_after(passes.Inline(), group(x))
    assert isinstance(kept.op, relay.Function)
    assert names(body_after(passes.DefuseOps(), kept)) == ["add"]
