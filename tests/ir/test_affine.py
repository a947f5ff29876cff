"""The simplifier keeps the value of every integer expression it changes, and its bounds hold."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ir.scalars import VARIABLES, build, conditions, ints, value_of
from tests.tiers import examples
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier

spans = st.fixed_dictionaries(
    {n: st.tuples(st.integers(-3, 3), st.integers(0, 5)) for n in VARIABLES}
)


def simplifier(ranges):
    return Simplifier({VARIABLES[n]: (lo, lo + more) for n, (lo, more) in ranges.items()})


def points(ranges):
    axes = [[(n, v) for v in range(lo, lo + more + 1)] for n, (lo, more) in ranges.items()]
    return [dict(p) for p in itertools.product(*axes)]


@pytest.mark.slow
@examples(40)
@given(st.one_of(ints, conditions), spans)
def test_simplifying_keeps_the_value(recipe, ranges):
    node = build(recipe)
    simple = simplifier(ranges)(node)
    assert simple.dtype == node.dtype
    for at in points(ranges):
        assert value_of(simple, at) == value_of(node, at)


@pytest.mark.slow
@examples(100)
@given(ints, spans)
def test_intervals_contain_every_value(recipe, ranges):
    node = build(recipe)
    low, high = simplifier(ranges).interval(node)
    for at in points(ranges):
        assert low <= value_of(node, at) <= high


@pytest.mark.slow
@examples(40)
@given(ints, conditions, spans)
def test_assumptions_keep_the_value_where_they_hold(recipe, condition, ranges):
    node, test = build(recipe), build(condition)
    simple = simplifier(ranges).assuming(test)(node)
    for at in points(ranges):
        if value_of(test, at):
            assert value_of(simple, at) == value_of(node, at)


@pytest.mark.slow
@examples(40)
@given(ints, st.integers(1, 6), spans)
def test_multiples_are_multiples(recipe, k, ranges):
    node = build(recipe)
    if simplifier(ranges).is_multiple(node, k):
        assert all(value_of(node, at) % k == 0 for at in points(ranges))


V, J = VARIABLES["i"], VARIABLES["j"]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ((V * 4 + J) // 4, "i"),
        ((V * 4 + J) % 4, "j"),
        ((V * 4 + J) // 8, "(i // 2)"),
        (V // 4 * 4 + V % 4, "i"),
        (V // 2 // 3, "(i // 6)"),
        ((V + 12) // 4, "((i // 4) + 3)"),
        ((V * 2 + J // 2) // 5, "(((i*4) + j) // 10)"),
        ((V * 64 + J) // 7 * 7 + (V * 64 + J) % 7, "((i*64) + j)"),
        (V < 100, "(bool)1"),
        (E.minimum(V, 50), "i"),
        (V - V + J, "j"),
    ],
)
def test_what_loop_nests_need(node, text):
    assert str(Simplifier({V: (0, 9), J: (0, 3)})(node)) == text


def test_remainders_by_variables_are_left_alone():
    n = E.var("n")
    assert str(Simplifier({V: (0, 9), n: (1, 4)})((V % n) % 4)) == "((i % n) % 4)"


@examples(40)
@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 7)),
    st.integers(1, 8),
    st.integers(1, 8),
)
def test_remainders_of_one_number_become_one(form, k, m):
    """x // k and x % k are simplified apart, and look nothing like x when they meet again."""
    a, b, c = form
    x = V * a + J * b + c
    simplify = Simplifier({V: (0, 9), J: (0, 3)})
    joined, whole = simplify(x // k % m * k + x % k), simplify(x % (m * k))
    assert divisions(joined) == divisions(whole)
    for i, j in itertools.product(range(10), range(4)):
        assert value_of(joined, {"i": i, "j": j}) == (i * a + j * b + c) % (m * k)


def divisions(node):
    return sum(n.op in ("floordiv", "floormod") for n in E.walk(node))


@pytest.mark.parametrize(("k", "m"), [(-6, -6), (2, -6), (-2, 3)])
def test_remainders_by_negative_numbers_keep_their_value(k, m):
    x = V * 4 + J
    simple = Simplifier({V: (0, 9), J: (0, 3)})(x // k % m * k + x % k)
    for i, j in itertools.product(range(10), range(4)):
        x = i * 4 + j
        assert value_of(simple, {"i": i, "j": j}) == x // k % m * k + x % k


def test_a_quotient_and_a_remainder_by_a_variable_are_one_number() -> None:
    x, y, n = E.var("x"), E.var("y"), E.var("n")
    simple = Simplifier({x: (0, 100), y: (0, 100), n: (1, 100)})
    assert simple(x // n * n + x % n) is x
    assert simple((x + y * 4) // n * n + 3 + (x + y * 4) % n) is simple(x + y * 4 + 3)
    for other in (x // n * n + y % n, x // n * 2 + x % n, x // n * n - x % n):
        assert any(node.op == "floormod" for node in E.walk(simple(other)))
