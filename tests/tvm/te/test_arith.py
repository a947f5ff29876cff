"""arith.Analyzer and tir.stmt_functor: what is said of an expression holds for all its values."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tilewright_tvm.tir.stmt_functor import post_order_visit, substitute

from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.te.axis import Range
from tilewright_tvm import arith, ir, tir

X, Y = te.var("x"), te.var("y")
LEAVES = st.one_of(st.sampled_from([X, Y]), st.integers(-9, 9).map(te.const))
NODES = st.recursive(
    LEAVES,
    lambda inner: st.tuples(st.sampled_from("+-*/%mM"), inner, inner).map(
        lambda t: {
            "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
            "/": lambda a, b: a // 3, "%": lambda a, b: a % 4,
            "m": tir.min, "M": tir.max,
        }[t[0]](t[1], t[2])
    ),
    max_leaves=6,
)  # fmt: skip


@examples(40)
@given(NODES)
def test_what_is_known_holds_for_all_values(node):
    known = arith.Analyzer()
    known.bind(X, Range(2, 5))
    known.bind(Y, Range(-1, 3))
    short, bound = known.simplify(node), known.const_int_bound(node)
    values = [
        (substitute(node, {X: x, Y: y}), substitute(short, {X: x, Y: y}))
        for x in range(2, 7) for y in range(-1, 2)
    ]  # fmt: skip
    numbers = [int(a) for a, _ in values]
    assert numbers == [int(b) for _, b in values]
    assert bound.min_value <= min(numbers) and max(numbers) <= bound.max_value
    assert known.can_prove_greater_equal(node, bound.min_value)
    assert not known.can_prove(node < min(numbers))
    assert known.can_prove_equal(node, short)


def test_variables_with_a_value_and_without():
    known = arith.Analyzer()
    assert known.const_int_bound(X).max_value == arith.ConstIntBound.POS_INF
    assert known.simplify(X + 1 - X).value == 1
    assert not known.can_prove_equal(X, 4)
    known.bind(X, 4)
    assert known.simplify(X * 2).value == 8 and known.can_prove_equal(X, 4)
    with pytest.raises(ExpressionError, match="it is no variable"):
        known.bind(X + 1, 4)
    with pytest.raises(ExpressionError, match="has no numbers"):
        known.bind(Y, Range(0, X))
    with pytest.raises(AttributeError, match=r"Analyzer.modular_set does not exist here. Use"):
        _ = known.modular_set
    with pytest.raises(AttributeError, match="arith.IntervalSet does not exist here. Ask"):
        _ = arith.IntervalSet


def test_visits_come_to_arguments_first():
    seen = []
    post_order_visit(X * 2 + Y, lambda node: seen.append(str(node)))
    assert seen == ["x", "2", "(x*2)", "y", "((x*2) + y)"]
    assert importlib.import_module("tilewright_tvm.tir.stmt_functor") is tir.stmt_functor
    with pytest.raises(AttributeError, match="tir.stmt_functor.ir_transform does not exist here"):
        _ = tir.stmt_functor.ir_transform


def test_expressions_are_equal_where_they_are_one():
    assert ir.structural_equal(X + 1, X + 1) and not ir.structural_equal(X + 1, Y + 1)
    ir.assert_structural_equal(tir.all(te.const(True), te.const(False)), te.const(False))
    with pytest.raises(ValueError, match=r"they differ: \(x \+ 1\) and \(y \+ 1\)"):
        ir.assert_structural_equal(X + 1, Y + 1)
