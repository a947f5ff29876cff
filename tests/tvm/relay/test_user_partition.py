"""Passes that make functions of parts, and fold padding: MergeComposite, FoldExplicitPadding."""

import numpy as np
import pytest

from graph.test_passes import compare, inputs_of, names
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.dataflow_pattern import is_op, wildcard
from tilewright_tvm.relay.transform import DefuseOps, FoldExplicitPadding, MergeComposite

X, Y = (relay.var(n, shape=(4, 4)) for n in "xy")
ADD_RELU = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))


def composites(mod: relay.IRModule) -> list[str]:
    calls = [n for n in relay.analysis.post_order(mod["main"].body) if isinstance(n, relay.Call)]
    return [c.op.attrs["Composite"] for c in calls if isinstance(c.op, relay.Function)]


def test_parts_that_match_are_functions_with_a_name():
    mod = relay.IRModule.from_expr(relay.exp(nn.relu(nn.relu(X + Y) + X)))
    made = MergeComposite([("sum", ADD_RELU), ("plain", is_op("add")(None))])(mod)
    assert composites(made) == ["sum", "sum"]
    first = MergeComposite([("plain", is_op("add")(wildcard(), wildcard())), ("sum", ADD_RELU)])
    assert composites(first(mod)) == ["plain", "plain"], "the first pattern comes first"
    inputs = inputs_of(mod["main"])
    compare(relay.evaluate(mod, inputs), relay.evaluate(made, inputs))
    assert relay.analysis.structural_equal(DefuseOps()(made), mod)


def test_a_check_says_which_parts():
    mod = relay.IRModule.from_expr(nn.relu(nn.relu(X + Y) + X))
    kept = MergeComposite([("sum", ADD_RELU, lambda part: part.args[0].args[1] is Y)])(mod)
    assert composites(kept) == ["sum"]
    with pytest.raises(ModelError, match="a str is no pattern"):
        MergeComposite([("sum", "add")])(mod)


def test_an_expression_is_a_pattern_of_its_operators():
    """As scripts wrote patterns before there were any."""
    a, b = relay.var("a"), relay.var("b")
    mod = relay.IRModule.from_expr(nn.relu(nn.relu(X + Y) + X))
    made = MergeComposite([("sum", nn.relu(relay.add(a, b)))])(mod)
    assert tvm_equal(made, MergeComposite([("sum", ADD_RELU)])(mod))
    twice = relay.IRModule.from_expr((X + Y) * (X - Y) + (X + Y) * (Y - Y))
    pattern = relay.multiply(relay.add(a, b), relay.subtract(a, b))
    assert composites(MergeComposite([("squares", pattern)])(twice)) == ["squares"]
    with pytest.raises(ModelError, match="Function in an expression is no pattern"):
        MergeComposite([("sum", relay.Function([X], X))])(mod)


def tvm_equal(a, b):
    return relay.analysis.structural_equal(a, b)


IMAGE, WEIGHT = relay.var("x", shape=(1, 2, 6, 6)), relay.var("w", shape=(3, 2, 3, 3))
EDGES = [(0, 0), (0, 0), (1, 0), (2, 1)]
LEAST = float(np.finfo("float32").min)
BYTES = relay.var("x", shape=(1, 2, 6, 6), dtype="int8")
FOLDS = {
    "conv": (nn.conv2d(nn.pad(IMAGE, EDGES), WEIGHT, padding=(1, 0)), (2, 2, 1, 1)),
    "last": (
        nn.conv2d(
            nn.pad(relay.var("x", shape=(1, 6, 6, 2)), [(0, 0), (1, 1), (0, 2), (0, 0)]),
            relay.var("w", shape=(3, 3, 2, 3)), data_layout="NHWC", kernel_layout="HWIO",
        ), (1, 0, 1, 2),
    ),
    "mean": (
        nn.avg_pool2d(nn.pad(IMAGE, EDGES), (3, 3), count_include_pad=True), (1, 2, 0, 1)
    ),
    "greatest": (nn.max_pool2d(nn.pad(IMAGE, EDGES, LEAST), (3, 3)), (1, 2, 0, 1)),
    "infinite": (nn.max_pool2d(nn.pad(IMAGE, EDGES, -np.inf), (3, 3)), (1, 2, 0, 1)),
    "integers": (nn.max_pool2d(nn.pad(BYTES, EDGES, -128), (3, 3)), (1, 2, 0, 1)),
}  # fmt: skip
STAYS = {
    "ones": nn.conv2d(nn.pad(IMAGE, EDGES, 1.0), WEIGHT),
    "edge": nn.conv2d(nn.pad(IMAGE, EDGES, 0.0, "edge"), WEIGHT),
    "channels": nn.conv2d(
        nn.pad(IMAGE, [(0, 0), (0, 1), (0, 0), (0, 0)]), relay.var("w", shape=(3, 3, 3, 3))
    ),
    "not-counted": nn.avg_pool2d(nn.pad(IMAGE, EDGES), (3, 3)),
    "zeros": nn.max_pool2d(nn.pad(IMAGE, EDGES), (3, 3)),
    "empty-window": nn.max_pool2d(nn.pad(IMAGE, EDGES, LEAST), (2, 2)),
}


@pytest.mark.parametrize("case", FOLDS)
def test_padding_becomes_the_windows(case):
    body, padding = FOLDS[case]
    mod = relay.IRModule.from_expr(body)
    folded = FoldExplicitPadding()(mod)
    assert names(folded["main"].body) == [body.op.name]
    assert tuple(folded["main"].body.attrs.padding) == padding
    inputs = inputs_of(mod["main"])
    compare(relay.evaluate(mod, inputs), relay.evaluate(folded, inputs))


@pytest.mark.parametrize("case", STAYS)
def test_other_padding_stays(case):
    mod = relay.IRModule.from_expr(STAYS[case])
    assert relay.analysis.structural_equal(FoldExplicitPadding()(mod), mod)
