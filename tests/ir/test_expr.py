"""Expressions: folding keeps values, nodes are shared, rewriting, and one test per refusal."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.scalars import build, calculate, conditions, floats, ints, small, value_of
from tests.tiers import examples
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, load

V, J, X = E.var("i"), E.var("j"), E.var("x", "float32")
FLAG = E.var("flag", "bool")

points = st.fixed_dictionaries({"i": small, "j": small, "k": small})


@pytest.mark.slow
@examples(40)
@given(st.one_of(ints, conditions), points)
def test_folding_integers_and_conditions_keeps_the_value(recipe, at):
    assert value_of(build(recipe), at) == calculate(recipe, at)


@pytest.mark.slow
@examples(40)
@given(floats, points, st.tuples(small, small))
def test_folding_floats_keeps_every_bit(recipe, at, xy):
    at = {**at, "x": np.float32(xy[0] / 3), "y": np.float32(xy[1] / 7)}
    with np.errstate(all="ignore"):
        folded, direct = value_of(build(recipe), at), calculate(recipe, at)
    assert np.float32(folded).tobytes() == np.float32(direct).tobytes() or (
        math.isnan(folded) and math.isnan(direct)
    )


@pytest.mark.slow
@examples(40)
@given(ints, points)
def test_substitution_evaluates(recipe, at):
    values = {v: E.const(at[v.name], v.dtype) for v in E.free_variables(build(recipe))}
    assert value_of(E.substitute(build(recipe), values), {}) == calculate(recipe, at)


@pytest.mark.slow
@examples(40)
@given(st.one_of(ints, floats, conditions))
def test_equal_recipes_are_one_node_and_survive_rewriting(recipe):
    node = build(recipe)
    assert build(recipe) is node
    assert E.transform(node, lambda n: None) is node
    assert E.rebuild(node, node.args) is node


@pytest.mark.slow
@examples(40)
@given(st.one_of(ints, conditions), points)
def test_pickling_keeps_the_value_and_shares_variables(recipe, at):
    one, two = pickle.loads(pickle.dumps((build(recipe), build(recipe))))
    assert one is two
    assert value_of(one, at) == calculate(recipe, at)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (V + 0, "i"), (0 + V, "i"), (V * 1, "i"), (V * 0, "0"), (V // 1, "i"), (V % 1, "0"),
        (V - V, "0"), (V + 2 + 3, "(i + 5)"), (V + 2 - 5, "(i + -3)"), (V - 2 - 3, "(i + -5)"),
        (V - -3, "(i + 3)"), (3 + V, "(i + 3)"), (0 // V, "0"), (E.minimum(V, V), "i"),
        (E.const(7) // -2, "-4"), (E.const(7) % -2, "-1"), (E.const(2) < 3, "(bool)1"),
        ((V < J) & True, "(i < j)"), ((V < J) & False, "(bool)0"), ((V < J) | False, "(i < j)"),
        (~~(V < J), "(i < j)"), (~E.const(True), "(bool)0"), (E.select(True, V, J), "i"),
        (E.if_then_else(FLAG, V, V), "i"), (E.cast("int32", V), "i"), (E.cast("float32", 2), "2f"),
        (X + 0.0, "(x + 0f)"), (X * 1.0, "(x*1f)"), (E.const(1.5) + 1.5, "(1.5f + 1.5f)"),
        (E.call("abs", V), "max(i, (0 - i))"), (V**2, "tir.pow(float32(i), 2f)"),
        (E.all_of(), "(bool)1"), (E.any_of(), "(bool)0"), (-V, "(0 - i)"), (-X, "(0f - x)"),
    ],
)  # fmt: skip
def test_folding_text(node, text):
    assert str(node) == text


def test_types_are_promoted():
    assert (V + E.var("k", "int64")).dtype == "int64"
    assert (V + X).dtype == "float32" and (V + 0.5).dtype == "float32"
    assert (X + 2).args[1].dtype == "float32"
    assert ((V < J) + 1).dtype == "int32"
    assert E.select(FLAG, 1, 2.5).dtype == "float32"
    assert E.call("exp", V).dtype == "float32"
    assert E.call("exp", E.var("d", "float64")).dtype == "float64"
    assert E.const(2**40).dtype == "int64" and E.const(True).dtype == "bool"


def test_numbers_take_the_type_beside_them_only_when_they_keep_their_value():
    assert (V + 2**40).dtype == "int64"
    assert (V + np.int64(3)).dtype == "int32"
    assert (V + np.float32(0.5)).dtype == "float32"
    assert (X + np.bool_(True)).args[1].attr == 1.0


def test_constants_are_told_apart():
    assert E.const(0.0) is not E.const(-0.0)
    assert E.const(1, "int32") is not E.const(True) and E.const(1) is not E.const(1, "int64")
    nan = float("nan")
    assert E.const(nan) is E.const(nan)


def test_variables_differ_even_with_equal_names():
    assert E.var("i") is not E.var("i")
    same, other = V.equal(V), V.equal(E.var("i"))
    assert bool(same) and not bool(other) and bool(V != J)
    assert V in {V: 1} and E.var("i") not in {V: 1}


def test_walk_gives_arguments_first_and_each_node_once():
    shared = V * J
    nodes = list(E.walk(shared + shared, shared))
    assert nodes == [V, J, shared, shared + shared]
    assert E.free_variables(shared + X) == {V, J, X}


def test_substitution_is_simultaneous():
    assert E.substitute(V - J, {V: J, J: V}) is J - V
    assert E.substitute(V + 1, {}) is V + 1
    assert E.substitute((V < 3) & FLAG, {V: 1}) is FLAG


def test_transform_sees_arguments_before_their_users():
    def double(node: Expr) -> Expr | None:
        return node * 2 if node is V else None

    assert str(E.transform((V + J) * V, double)) == "(((i*2) + j)*(i*2))"


def test_conjuncts_in_order():
    a, b, c = V < 1, J < 2, FLAG
    assert list(E.conjuncts((a & b) & c)) == [a, b, c]
    assert list(E.conjuncts(a | b)) == [a | b]


def test_vectors():
    ramp = E.ramp(V, 1, 4)
    assert ramp.lanes == 4 and str(ramp + J) == "(ramp(i, 1, 4) + x4(j))"
    assert E.ramp(V, 1, 1) is V and E.broadcast(ramp, 4) is ramp
    buffer = Buffer("b", "float32", 16)
    assert load(buffer, ramp).lanes == 4
    vector = E.if_then_else(FLAG, load(buffer, ramp), 0.0)
    assert vector.lanes == 4 and [a.lanes for a in vector.args] == [4, 4, 4]
    assert E.substitute(load(buffer, ramp), {V: 8}).args[0] is E.ramp(E.const(8), 1, 4)
    assert E.call("exp", load(buffer, ramp)).lanes == 4


def test_the_truth_of_an_expression_is_a_value_error():
    for test in (V < J, (V < J) | (J < 5), (V < J) & (J < 5)):
        with pytest.raises(ValueError, match="no truth value"):
            bool(test)


REFUSALS = {
    "truth": (lambda: bool(V < J), "no truth value before it runs. Use te.if_then_else"),
    "int": (lambda: int(V), "only a constant expression converts to int"),
    "range": (lambda: range(V), "only a constant expression converts to int"),
    "value": (lambda: V.value, "only a constant has a value"),
    "convert": (lambda: V + "2", "a str is not an expression"),
    "true division": (lambda: V / J, "true division of integers is ambiguous. Use //"),
    "zero divisor": (lambda: V // 0, "division by zero"),
    "zero modulus": (lambda: V % 0, "division by zero"),
    "zero constants": (lambda: E.const(3) % 0, "division by zero"),
    "condition": (lambda: V & FLAG, "a condition must be bool, not int32"),
    "not": (lambda: ~E.var("f", "float32"), "a condition must be bool"),
    "select": (lambda: E.select(V, 1, 2), "a condition must be bool"),
    "function": (lambda: E.call("sinc", X), "no such function. Known: abs, acos"),
    "arity": (lambda: E.call("pow", X), r"takes 2 argument\(s\), got 1"),
    "dtype": (lambda: E.var("h", "float8"), "dtype 'float8' is not supported"),
    "cast": (lambda: E.cast("int4", V), "dtype 'int4' is not supported"),
    "lanes": (lambda: E.ramp(V, 1, 4) + E.ramp(V, 1, 2), "vectors of 4 and 2 lanes do not mix"),
    "broadcast": (lambda: E.broadcast(E.ramp(V, 1, 4), 8), "a vector of 4 lanes cannot become 8"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    attempt, reason = REFUSALS[name]
    with pytest.raises(ExpressionError, match=reason):
        attempt()


def test_iterating_an_expression_is_refused():
    with pytest.raises(ExpressionError, match="cannot be iterated"):
        list(V)


def test_constants_hold_what_their_type_can() -> None:
    tenth = E.const(0.1, "float32")
    assert tenth.value == float(np.float32(0.1)) and str(tenth) == "0.1f"
    assert E.const(0.1, "float64").value == 0.1
    assert tenth is E.const(float(np.float32(0.1)), "float32")
    wide = E.cast("float64", tenth)
    assert wide.value == float(np.float32(0.1))
    assert bool(E.const(2.0**24 + 1, "float32").equal(2.0**24))
    with pytest.raises(ExpressionError, match="float32 holds"):
        E.const(1e39, "float32")
    assert E.const(float("-inf"), "float32").value == float("-inf")
    assert str(E.const(float("nan"), "float32")) == "nanf"
