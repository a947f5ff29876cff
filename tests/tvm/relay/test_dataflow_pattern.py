"""Patterns of graphs: what matches, what becomes of it."""

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import nn, testing
from tilewright_tvm.relay.dataflow_pattern import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_dtype,
    has_shape,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    partition,
    rewrite,
    wildcard,
)

X, Y, W = (relay.var(name) for name in "xyw")
CONV = nn.conv2d(X, W)
IS_CONV = is_op("nn.conv2d")(wildcard(), wildcard())
SECOND = relay.TupleGetItem(relay.Tuple([X, Y]), 1)
TENSOR = relay.var("t", shape=(2, 3))

MATCHES = {
    "operator": (is_op("add"), relay.op.get("add"), True),
    "other-operator": (is_op("add"), relay.op.get("exp"), False),
    "alternative": (is_op("add")(None) | is_op("subtract")(None), X - Y, True),
    "swapped": (is_op("multiply")(is_var("x"), is_var("y")), Y * X, True),
    "not-swapped": (is_op("divide")(is_var("x"), is_var("y")), Y / X, False),
    "name": (is_var("x"), Y, False),
    "any-arguments": (wildcard()(None), nn.relu(X), True),
    "count-of-arguments": (wildcard()(wildcard()), X + Y, False),
    "constant": (X_PLUS := is_op("add")(wildcard(), is_constant()), X + relay.const(1.0), True),
    "no-constant": (X_PLUS, X + Y, False),
    "same-twice": ((lambda a: is_op("add")(a, a))(wildcard()), X + X, True),
    "not-the-same": ((lambda a: is_op("add")(a, a))(wildcard()), X + Y, False),
    "value": (is_expr(relay.const(0.0)), relay.const(0.0), True),
    "other-value": (is_expr(relay.const(0.0)), relay.const(1.0), False),
    "tuple": (is_tuple([is_var("x"), wildcard()]), relay.Tuple([X, Y]), True),
    "long-tuple": (is_tuple([wildcard()]), relay.Tuple([X, Y]), False),
    "item": (is_tuple_get_item(is_tuple(None), 1), SECOND, True),
    "other-item": (is_tuple_get_item(wildcard(), 0), SECOND, False),
    "if": (is_if(wildcard(), is_var("x"), is_var("y")), relay.If(X < Y, X, Y), True),
    "else": (is_if(wildcard(), is_var("y"), is_var("x")), relay.If(X < Y, X, Y), False),
    "dtype": (has_dtype("float32"), TENSOR, True),
    "shape": (has_shape([3, 2]), TENSOR, False),
    "type": (wildcard().has_type(relay.TensorType((2, 3))), TENSOR, True),
    "no-type-yet": (has_shape([2, 3]), X, False),
    "attribute": (IS_CONV.has_attr({"data_layout": "NCHW"}), CONV, True),
    "list": (is_op("sum")(None).has_attr({"axis": [1]}), relay.sum(TENSOR, axis=[1]), True),
    "other-attribute": (IS_CONV.has_attr({"data_layout": "NHWC"}), CONV, False),
    "no-attribute": (IS_CONV.has_attr({"wrong": 1}), CONV, False),
    "kind": (wildcard().has_attr({"TOpPattern": 0})(None), relay.exp(X), True),
    "other-kind": (wildcard().has_attr({"TOpPattern": 0})(None), X + Y, False),
    "regrouped": (wildcard() * (is_var("y") / wildcard()), X * Y / W, True),
    "regrouped-back": (is_op("divide")(is_var("x") * is_var("y"), wildcard()), X * (Y / W), True),
    "function": (FunctionPattern(None, is_op("add")(None)), relay.Function([X, Y], X + Y), True),
    "parameters": (FunctionPattern([wildcard()], wildcard()), relay.Function([X, Y], X + Y), False),
}  # fmt: skip


@pytest.mark.parametrize("kind", MATCHES)
def test_what_matches(kind):
    pattern, node, yes = MATCHES[kind]
    assert pattern.match(node) is yes


def test_options_may_be_there_or_not():
    pattern = IS_CONV.optional(is_op("nn.relu")).optional(is_op("tanh"))
    chains = [CONV, nn.relu(CONV), relay.tanh(CONV), relay.tanh(nn.relu(CONV))]
    assert all(map(pattern.match, chains))
    assert not pattern.match(nn.relu(relay.tanh(CONV))) and not pattern.match(nn.dense(X, W))


def diamond(data, weight, deep=False):
    conv = nn.conv2d(data, weight)
    left = relay.tanh(nn.relu(conv)) if deep else nn.relu(conv)
    return left + nn.leaky_relu(conv, alpha=0.5)


UNARY = wildcard().has_attr({"TOpPattern": 0})(wildcard())


def test_dominators():
    pattern = dominates(IS_CONV, UNARY, is_op("add")(wildcard(), wildcard()))
    assert pattern.match(diamond(X, W)) and pattern.match(diamond(X, W, deep=True))
    two = nn.relu(nn.conv2d(X, W)) + nn.leaky_relu(nn.conv2d(X, Y), alpha=0.5)
    assert not pattern.match(two)
    assert not pattern.match(nn.relu(X) + nn.leaky_relu(CONV, alpha=0.5))
    part = pattern.partition(diamond(X * X, W))
    assert relay.analysis.structural_equal(part.args[0], X * X) and part.args[1] is W
    label = "nn.conv2d_nn.relu_nn.leaky_relu_add_"
    assert part.op.attrs["PartitionedFromPattern"] == label


class Replace(DFPatternCallback):
    def __init__(self, pattern, make, once=False):
        super().__init__(rewrite_once=once)
        self.pattern, self.callback = pattern, lambda pre, post, found: make(post, found)


def test_rewriting_reaches_the_end_and_sees_what_was_rewritten_below():
    a, b = wildcard(), wildcard()
    both = Replace(
        is_op("exp")(is_op("log")(a)) | is_op("negative")(is_op("negative")(a)),
        lambda post, found: found[a][0],
    )
    deep = relay.exp(relay.log(relay.negative(-relay.exp(relay.log(X)))))
    assert rewrite(both, deep) is X
    add = Replace(is_op("add")(a, b), lambda post, found: found[a][0] - found[b][0])
    made = add.rewrite((X + Y) + W)
    assert relay.analysis.structural_equal(made, (X - Y) - W)
    inside = relay.Function([X, Y], X + Y)
    assert relay.analysis.structural_equal(rewrite(add, inside).body, X - Y)


def test_once_is_one_round_and_a_rewriting_without_end_is_refused():
    grow = lambda post, found: nn.relu(post)  # noqa: E731
    assert str(rewrite(Replace(is_op("nn.softmax")(None), grow, once=True), nn.softmax(X))) == str(
        nn.relu(nn.softmax(X))
    )
    shrink = Replace(is_op("exp")(None), lambda post, found: relay.exp(relay.exp(post.args[0])))
    with pytest.raises(ModelError, match="not ended.*rewrite_once=True"):
        from tilewright_tvm.relay.patterns import partition

        before, partition.MOST_ROUNDS = partition.MOST_ROUNDS, 5
        try:
            rewrite(shrink, relay.exp(X))
        finally:
            partition.MOST_ROUNDS = before
    with pytest.raises(ModelError, match="it gave a NoneType"):
        rewrite(Replace(is_op("exp")(None), lambda post, found: None), relay.exp(X))


def test_a_pattern_of_any_depth():
    deeper, inner = wildcard(), is_op("exp")(wildcard())
    chain = is_op("tanh")(deeper)
    deeper.redirect_to(chain | inner)
    node = relay.exp(X)
    for _ in range(5):
        node = relay.tanh(node)
    assert chain.match(node) and not chain.match(relay.tanh(relay.sqrt(X)))
    made = rewrite(Replace(chain, lambda post, found: nn.relu(post), once=True), node)
    assert relay.analysis.structural_equal(made, nn.relu(node))


def test_parts_read_elsewhere_stay_and_constants_are_in_or_out_by_the_pattern():
    pattern = is_op("nn.relu")(IS_CONV)
    shared = nn.relu(CONV) + CONV
    assert pattern.partition(shared) is shared
    assert pattern.partition(nn.relu(CONV), check=lambda node: False) is not None
    one = relay.const(1.0)
    lifted = is_op("add")(wildcard(), wildcard()).partition(X + one)
    kept = is_op("add")(wildcard(), is_constant()).partition(X + one, {"Composite": "plus"})
    assert len(lifted.args) == 2 and [a.name_hint for a in kept.args] == ["x"]
    assert kept.op.attrs["Composite"] == "plus"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "resnet-18", "squeezenet-1.1", "mobilenet"])
def test_networks_compute_the_same_in_parts_and_rewritten(name):
    mod = testing.NETWORKS[name]()[0]
    main = mod["main"]
    linear = is_op("nn.conv2d")(wildcard(), wildcard()) | is_op("nn.dense")(wildcard(), wildcard())
    biased = linear.optional(lambda x: is_op("nn.bias_add")(x, wildcard()))
    parts = biased.optional(lambda x: is_op("nn.relu")(x)).partition(main)
    groups = [n for n in relay.analysis.post_order(parts.body) if isinstance(n, relay.Call)]
    assert any("PartitionedFromPattern" in getattr(n.op, "attrs", {}) for n in groups)
    assert relay.analysis.structural_equal(
        relay.transform.DefuseOps()(relay.IRModule({"main": parts}))["main"],
        relay.transform.DefuseOps()(mod)["main"],
    )
    a = wildcard()
    undo = Replace(is_op("negative")(is_op("negative")(a)), lambda post, found: found[a][0])
    minus = lambda post, found: relay.negative(-post)  # noqa: E731
    twice = Replace(is_op("nn.relu")(a), minus, once=True)
    assert relay.analysis.structural_equal(rewrite(undo, rewrite(twice, main)), main)


def test_a_pattern_of_let_is_one_of_its_body():
    x, y, named = relay.var("x"), relay.var("y"), relay.var("named")
    name, a = is_var("named"), wildcard()
    pattern = is_let(name, is_op("less")(a, is_var("y")), is_op("cast")(name))
    assert pattern.match(relay.Let(named, x < y, relay.cast(named, "int32")))
    assert pattern.match(relay.cast(x < y, "int32"))
    assert not pattern.match(relay.Let(named, x > y, relay.cast(named, "int32")))
    assert not pattern.match(relay.Let(named, y < x, relay.cast(named, "int32")))
    found = Replace(pattern, lambda post, found: relay.negative(found[a][0]))
    assert relay.analysis.structural_equal(
        rewrite(found, relay.exp(relay.cast(x < y, "int32"))), relay.exp(relay.negative(x))
    )
    twice = is_let(name, is_let(name, is_var("x"), name + name), name * name)
    assert twice.match((x + x) * (x + x)) is False, "two nodes, one name"
    inner = x + x
    assert twice.match(inner * inner)


def test_what_is_read_outside_only_for_the_part_itself():
    x, w, b = (relay.var(n, shape=(4, 4)) for n in "xwb")
    biased = relay.nn.dense(x, w) + b
    gated = biased * relay.sigmoid(biased)
    pattern = (is_op("nn.dense")(wildcard(), wildcard()) + wildcard()) * wildcard()
    main = relay.Function([x, w, b], gated)
    parted = partition(pattern, main)
    [call] = [n for n in relay.analysis.post_order(parted.body)
              if isinstance(n, relay.Call) and isinstance(n.op, relay.Function)]  # fmt: skip
    assert call.op.attrs["PartitionedFromPattern"] == "nn.dense_add_multiply_"
    arrays = np.random.default_rng(0).normal(size=(3, 4, 4)).astype("float32")
    for mod in (main, parted):
        got = relay.create_executor("debug", relay.IRModule({"main": mod})).evaluate()(*arrays)
        wanted = arrays[0] @ arrays[1].T + arrays[2]
        np.testing.assert_allclose(got.numpy(), wanted / (1 + np.exp(-wanted)), rtol=1e-5)
    escapes = relay.Tuple([gated, relay.sigmoid(biased)])
    assert relay.analysis.structural_equal(partition(pattern, escapes), escapes)


def test_parts_of_graphs_without_types_have_none():
    x, one = relay.var("x"), relay.const(1.0)
    part = partition(is_op("add")(wildcard(), wildcard()), relay.add(relay.exp(x), one))
    assert not any(p.is_typed for p in part.op.params)


def test_tuples_of_what_has_no_type_have_a_length():
    assert len(relay.Tuple([relay.var("x"), relay.var("y")])) == 2
