"""Fusion: which operators end up in one kernel, and that the meaning stays."""

import numpy as np
import pytest
from hypothesis import given

from graph.cases import function, random_inputs, tensor
from graph.drawing import networks
from tests.tiers import examples
from tilewright.graph import passes
from tilewright.graph.expr import post_order
from tilewright.graph.passes import fuse
from tilewright.graph.passes.fuse import LONGEST
from tilewright.graph.printer import structural_key
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


def groups(body) -> list[str]:
    """The groups in the order they run, as `op op op`; a view as `(op)`."""
    f = function(body)
    fused = fuse(relay.IRModule.from_expr(f))["main"]
    inputs = random_inputs(f)
    np.testing.assert_array_equal(relay.evaluate(f, inputs), relay.evaluate(fused, inputs))
    found = []
    for node in post_order(fused.body):
        if op_name(node):
            found.append(f"({op_name(node)})")
        elif isinstance(node, relay.Call):
            assert node.op.attrs["name"].startswith("fused_")
            steps = [op_name(n) for n in post_order(node.op.body) if op_name(n)]
            found.append(" ".join(s.removeprefix("nn.") for s in steps))
    return found


def image(name="x", channels=4):
    return tensor(name, 1, channels, 6, 6)


def conv(x, name="w", out=4, kernel=3):
    weight = tensor(name, out, x.shape[1], kernel, kernel)
    return nn.conv2d(x, weight, padding=kernel // 2)


def test_an_anchor_takes_the_elementwise_steps_behind_it():
    b = tensor("b", 1, 4, 1, 1)
    assert groups(nn.relu(conv(image()) + b)) == ["conv2d add relu"]
    assert groups(relay.clip(nn.max_pool2d(image(), 2), 0, 6)) == ["max_pool2d clip"]
    dense = nn.dense(tensor("d", 2, 3), tensor("w", 5, 3))
    assert groups(relay.tanh(dense + tensor("b", 5)) * 2.0) == ["dense add tanh multiply"]
    assert groups(relay.sqrt(relay.sum(relay.exp(image()), axis=1))) == ["exp", "sum sqrt"]


def test_a_residual_sum_that_is_read_twice_ends_its_group():
    x = image()
    total = nn.relu(conv(nn.relu(conv(x, "w1")), "w2") + x)
    again = nn.relu(conv(total, "w3") + total)
    assert groups(again) == ["conv2d relu", "conv2d add relu", "conv2d add relu"]


def test_steps_that_meet_again_are_one_group():
    y = conv(image()) + 1.0
    swish = y * relay.sigmoid(y)
    assert groups(swish) == ["conv2d add sigmoid multiply"]
    assert groups(nn.relu(relay.exp(swish) + (swish - 1.0)) * 2.0) == [
        "conv2d add sigmoid multiply exp subtract add relu multiply"
    ]
    assert groups(nn.relu(y) * relay.exp(y) + image("z")) == ["conv2d add relu exp multiply add"]
    x = relay.exp(image())
    assert groups(x + relay.tanh(x)) == ["exp tanh add"]


def test_a_value_is_computed_once_where_its_readers_do_not_meet():
    y = conv(image()) + 1.0
    assert groups(nn.relu(y) * nn.max_pool2d(y, 1)) == ["conv2d add", "relu", "max_pool2d multiply"]
    assert groups(relay.Tuple([relay.exp(y) * y, y])) == ["conv2d add", "exp multiply"]
    square = relay.exp(tensor("s", 4, 4))
    assert groups(square + relay.transpose(square)) == ["exp", "transpose add"]


def test_reading_one_value_twice_in_one_step_is_one_reader():
    y = conv(image())
    assert groups(y * y) == ["conv2d multiply"]


def test_a_sum_of_two_anchors_joins_the_first():
    x = image()
    one, two = conv(x, "w1"), conv(x, "w2", kernel=1)
    for body, first in ((one + two, "w1"), (two + one, "w2")):
        assert groups(body) == ["conv2d", "conv2d add"]
        joined = fuse(relay.IRModule.from_expr(function(body)))["main"].body
        inputs = [a.name_hint for a in joined.args if isinstance(a, relay.Var)]
        assert inputs == ["x", first]


def test_a_sum_joins_an_anchor_rather_than_elementwise_steps():
    assert groups(nn.relu(image()) + conv(image("y"))) == ["relu", "conv2d add"]


def test_a_reduction_reads_narrow_floats_itself():
    """Where nothing else reads them as wide ones."""
    x = relay.var("x", shape=(1, 4, 6, 6), dtype="float16")
    wide = relay.cast(x, "float32")
    means = relay.mean(wide, axis=(2, 3), keepdims=True)
    assert groups(relay.cast(means, "float16")) == ["cast mean cast"]
    assert groups(means * wide) == ["cast", "mean", "multiply"]
    assert groups(relay.sum(relay.cast(image(), "float16"), axis=1)) == ["cast", "sum"]
    assert groups(nn.max_pool2d(wide, 2)) == ["cast", "max_pool2d"]


def test_stretching_ends_a_group():
    """exp would be computed once per element of the larger tensor."""
    small = relay.exp(tensor("s", 1, 4, 1, 1))
    assert groups(small + image()) == ["exp", "add"]


def test_moving_steps_join_each_other_but_no_anchor():
    x = image()
    moved = relay.transpose(relay.exp(x), (0, 2, 3, 1)) + 1.0
    assert groups(moved) == ["exp transpose add"]
    assert groups(relay.transpose(conv(x), (0, 2, 3, 1))) == ["conv2d", "transpose"]
    both = relay.concatenate([nn.relu(x), relay.exp(x)], axis=1)
    assert groups(both) == ["relu exp concatenate"]


def test_chains_without_an_anchor_are_one_kernel_where_they_meet():
    x, y, z = (tensor(n, 3, 4) for n in "xyz")
    assert groups(relay.exp(x) * relay.sigmoid(y)) == ["exp sigmoid multiply"]
    gates = relay.tanh(relay.exp(x)) * relay.sigmoid(y) + relay.cos(relay.sin(z)) * relay.exp(y)
    assert len(groups(gates)) == 1
    shared = relay.exp(x)
    assert groups(relay.Tuple([shared * relay.sin(y), shared])) == ["exp", "sin multiply"]
    assert groups(relay.exp(tensor("s", 3, 1)) * relay.sin(x)) == ["exp", "sin multiply"]
    assert groups(conv(image()) + relay.exp(image("y"))) == ["exp", "conv2d add"]
    long = [tensor(f"x{k}", 2) for k in range(LONGEST)]
    total = relay.exp(long[0])
    for other in long[1:]:
        total = total + relay.exp(other)
    assert max(len(g.split()) for g in groups(total)) <= LONGEST


def test_views_stay_outside():
    flat = nn.batch_flatten(nn.global_avg_pool2d(nn.relu(image())))
    body = nn.softmax(nn.dense(flat, tensor("w", 3, 4)))
    assert groups(body) == ["relu", "global_avg_pool2d", "(nn.batch_flatten)", "dense", "softmax"]


def test_softmax_shares_its_kernel_with_nothing():
    assert groups(relay.exp(nn.softmax(relay.exp(tensor("x", 2, 3))))) == ["exp", "softmax", "exp"]


def test_a_single_number_becomes_part_of_the_kernel():
    mod = fuse(relay.IRModule.from_expr(function(image() * 0.5)))
    assert len(mod["main"].body.op.params) == 1


def test_groups_of_equal_structure_have_equal_keys():
    x = image()
    f = fuse(relay.IRModule.from_expr(function(nn.relu(conv(nn.relu(conv(x, "w1")), "w2")))))
    first, second = (n.op for n in post_order(f["main"].body) if isinstance(n, relay.Call))
    assert first is not second
    assert structural_key(first) == structural_key(second)
    other = fuse(relay.IRModule.from_expr(function(nn.relu(conv(x, out=3)))))["main"].body.op
    assert structural_key(first) != structural_key(other)
    assert str(f).count("fused @") == 1


@pytest.mark.slow
@given(networks())
@examples(30)
def test_every_operator_is_in_exactly_one_group(mod):
    plain = passes.simplify_inference(mod)["main"]
    fused = fuse(relay.IRModule.from_expr(plain))["main"]
    inside = 0
    for node in post_order(fused.body):
        if isinstance(node, relay.Call) and isinstance(node.op, relay.Function):
            steps = [n for n in post_order(node.op.body) if op_name(n)]
            inside += len(steps)
            heavy = relay.op.Pattern.REDUCTION
            anchors = [n for n in steps if relay.op.get(op_name(n)).pattern >= heavy]
            assert len(anchors) <= 1
            assert not anchors or anchors[0] is steps[0]
        elif op_name(node):
            inside += 1
            assert relay.op.get(op_name(node)).view
    assert inside == sum(1 for n in post_order(plain.body) if op_name(n))


def test_a_kernel_has_no_more_operators_than_its_expression_can_bear():
    body = tensor("x", 4)
    for _ in range(2 * LONGEST + 1):
        body = relay.tanh(body)
    found = [g.count("tanh") for g in groups(body)]
    assert found == [LONGEST, LONGEST, 1]


def test_a_value_is_not_written_out_again_and_again():
    """What doubles with every step ends its group at LARGEST, long before LONGEST."""
    body = tensor("x", 4)
    for _ in range(12):
        body = body * relay.sigmoid(body)
    sizes = [g.count("sigmoid") for g in groups(body)]
    assert sum(sizes) == 12 and max(sizes) == 7  # 2 * (2**7 - 1) operators


def test_halves_that_are_turned_and_put_together_are_one_group():
    """As positions are rotated into queries and keys."""
    x = tensor("x", 2, 6, 8)
    first = relay.strided_slice(x, [0, 0, 0], [2, 6, 4])
    second = relay.strided_slice(x, [0, 0, 4], [2, 6, 8])
    turned = relay.concatenate([-second, first], axis=2)
    (found,) = groups(x * tensor("cos", 6, 8) + turned * tensor("sin", 6, 8))
    assert found.split().count("strided_slice") == 2


def test_what_a_tuple_holds_twice_or_returns_ends_its_group():
    y = relay.exp(image())
    assert groups(relay.concatenate([y, y], axis=1)) == ["exp", "concatenate"]
    assert groups(relay.Tuple([relay.exp(y), nn.relu(y)])) == ["exp", "exp", "relu"]


def test_what_only_moves_joins_whatever_reads_it_alone():
    x = image()
    moved = relay.transpose(x, (0, 2, 3, 1))
    assert groups(relay.concatenate([moved, moved], axis=3)) == ["transpose concatenate"]
    assert groups(nn.dense(relay.transpose(tensor("m", 3, 4)), tensor("w", 5, 3))) == [
        "transpose", "dense",
    ]  # fmt: skip
