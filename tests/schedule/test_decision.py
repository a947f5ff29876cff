"""Choice expressions: folding, evaluation on ints and vectors, text, JSON, and what they refuse."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilewright.base.errors import SpaceError
from tilewright.schedule.space.decision import (
    Assignment,
    Choice,
    ceil_div,
    evaluate,
    from_json,
    gcd,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    same,
    to_json,
    var,
    variables,
    where,
)

NAMES = ("a", "b", "c")
NUMERIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "mod": operator.mod, "ceil_div": ceil_div,
    "min": minimum, "max": maximum,
}  # fmt: skip
COMPARE = {n: getattr(operator, n) for n in ("eq", "ne", "lt", "le", "gt", "ge")}
DIVIDES = ("floordiv", "mod", "ceil_div")


LEAVES = st.sampled_from(NAMES) | st.integers(0, 3)


def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Trees such as ("add", "a", 2), one level deeper than `inner`."""
    compare = st.tuples(st.sampled_from(sorted(COMPARE)), inner, inner)
    condition = (
        compare
        | st.tuples(st.sampled_from(["and", "or"]), compare, compare)
        | st.tuples(st.just("not"), compare)
    )
    return st.deferred(
        lambda: (
            LEAVES
            | st.tuples(st.sampled_from(sorted(NUMERIC)), inner, inner)
            | st.tuples(st.just("where"), condition, inner, inner)
            | condition
        )
    )


TREES = grow(grow(grow(LEAVES)))


def build(tree: Any, env: dict[str, Any]) -> Any:
    """The value of `tree` with Python's own operators: a number, or a Choice."""
    if isinstance(tree, str):
        return env[tree]
    if isinstance(tree, int):
        return tree
    op, *args = tree
    values = [build(arg, env) for arg in args]
    if op in DIVIDES:
        return NUMERIC[op](values[0], maximum(values[1], 1))
    if op in NUMERIC:
        return NUMERIC[op](*values)
    if op in COMPARE:
        return COMPARE[op](*values)
    table: dict[str, Callable[..., Any]] = {
        "and": logical_and, "or": logical_or, "not": logical_not, "where": where,
    }  # fmt: skip
    return table[op](*values)


ROWS = st.lists(st.tuples(*[st.integers(1, 9)] * len(NAMES)), min_size=1, max_size=6)


@pytest.mark.slow
@given(TREES, ROWS)
def test_folded_expression_equals_python_on_each_row(tree: Any, rows: Any) -> None:
    expr = build(tree, {n: var(n) for n in NAMES})
    vectors = Assignment(zip(NAMES, np.array(rows, dtype=np.int64).T, strict=True))
    population = np.broadcast_to(evaluate(expr, vectors), len(rows))
    for i, row in enumerate(rows):
        ints = dict(zip(NAMES, row, strict=True))
        expected = build(tree, ints)
        one = evaluate(expr, ints)
        assert one == expected
        assert isinstance(one, int)
        assert population[i] == expected


@pytest.mark.slow
@given(TREES)
@example(("add", "a", ("add", "b", "c")))
@example(("eq", ("eq", "a", "b"), "c"))
def test_text_json_and_pickle_keep_the_expression(tree: Any) -> None:
    expr = build(tree, {n: var(n) for n in NAMES})
    assert same(from_json(to_json(expr)), expr)
    assert same(pickle.loads(pickle.dumps(expr)), expr)
    names = {n: var(n) for n in NAMES}
    functions = {
        "ceil_div": ceil_div, "min": minimum, "max": maximum, "where": where,
    }  # fmt: skip
    assert same(eval(str(expr), functions, names), expr)  # the text is Python


def test_equal_expressions_are_one_object() -> None:
    a, b = var("a"), var("b")
    assert a * b is var("a") * var("b")
    assert (a * b) is not (b * a)
    assert same(a + 1, a + 1) and not same(a, 1) and same(2, 2)
    assert copy.deepcopy(a * b) is copy.copy(a * b)


@pytest.mark.parametrize(
    "folded",
    [
        lambda x: x * 1, lambda x: 1 * x, lambda x: x + 0, lambda x: 0 + x, lambda x: x - 0,
        lambda x: x // 1, lambda x: ceil_div(x, 1), lambda x: minimum(x, x),
        lambda x: maximum(x, x), lambda x: where(x < 3, x, x), lambda x: +x, lambda x: round(x),
        lambda x: where(True, x, 0), math.floor, math.ceil, math.trunc,
    ],
)  # fmt: skip
def test_folds_to_its_operand(folded: Callable[[Choice], Any]) -> None:
    assert folded(var("x")) is var("x")


@pytest.mark.parametrize(
    ("folded", "value"),
    [
        (lambda x: x * 0, 0), (lambda x: 0 * x, 0), (lambda x: x - x, 0), (lambda x: x % 1, 0),
        (lambda x: 0 // x, 0), (lambda x: 0 % x, 0), (lambda x: x == x, True),
        (lambda x: x < x, False),
        (lambda x: logical_and(x > 1, False), False), (lambda x: logical_or(x > 1, True), True),
    ],
)  # fmt: skip
def test_folds_to_a_constant(folded: Callable[[Choice], Any], value: Any) -> None:
    assert folded(var("x")) is value


def test_readable_text() -> None:
    a, b = var("tile_f.2"), var("tile_f.3")
    assert str(a * b) == "tile_f.2*tile_f.3"
    assert str((a + 1) * b) == "(tile_f.2 + 1)*tile_f.3"
    assert str(a - (b - 1)) == "tile_f.2 - (tile_f.3 - 1)"
    assert str(ceil_div(512, a * b)) == "ceil_div(512, tile_f.2*tile_f.3)"
    assert str((a > 1) & (b <= 4)) == "(tile_f.2 > 1) & (tile_f.3 <= 4)"
    assert str(-a) == "0 - tile_f.2"


def test_vectors_ints_and_numpy_scalars() -> None:
    v = np.array([1, 5, 9])
    assert ceil_div(v, 4).tolist() == [1, 2, 3]
    assert ceil_div(9, v).tolist() == [9, 2, 1]
    assert minimum(v, 4).tolist() == [1, 4, 4] and maximum(4, v).tolist() == [4, 5, 9]
    assert where(v > 4, v, 0).tolist() == [0, 5, 9]
    assert gcd(v, 3).tolist() == [1, 1, 3]  # type: ignore[union-attr]
    assert (ceil_div(7, 2), minimum(1, 2), gcd(12, 18)) == (4, 1, 6)
    assert np.int64(2) * var("a") is 2 * var("a")
    assert np.prod([var("a"), var("b")]) is var("a") * var("b")
    assert evaluate(abs(var("a") - 5), {"a": 2}) == 3
    assert all(map(same, divmod(var("a"), 4), (var("a") // 4, var("a") % 4)))


def test_conditions_count_as_numbers() -> None:
    a = var("a")
    assert evaluate((a > 1) + (a > 2), {"a": np.array([1, 2, 3])}).tolist() == [0, 1, 2]  # type: ignore[union-attr]
    assert evaluate((a > 1) & (a < 3), {"a": 2}) is True
    assert evaluate(~(a > 1), {"a": np.array([1, 2])}).tolist() == [True, False]  # type: ignore[union-attr]
    assert logical_not(logical_not(a > 1)) is (a > 1)


def test_comparison_with_other_types_is_plain() -> None:
    a = var("a")
    assert (a == None) is False  # noqa: E711
    assert (a == "a") is False
    assert (a != "a") is True


def test_variables_in_order_of_appearance() -> None:
    assert variables(var("b") * var("a") + var("b")) == ("b", "a")
    assert variables(3) == ()


def test_assignment_forgets_what_it_derived() -> None:
    env = Assignment(a=np.array([1, 2]), b=3)
    expr = var("a") * var("b")
    assert evaluate(expr, env).tolist() == [3, 6]  # type: ignore[union-attr]
    assert evaluate(expr, env) is evaluate(expr, env)  # kept
    env["b"] = 4
    assert evaluate(expr, env).tolist() == [4, 8]  # type: ignore[union-attr]
    env.update(b=5)
    assert evaluate(expr, env).tolist() == [5, 10]  # type: ignore[union-attr]
    env |= {"b": 6}
    assert evaluate(expr, env).tolist() == [6, 12]  # type: ignore[union-attr]


def test_assignment_rows() -> None:
    env = Assignment(a=np.array([4, 5, 6]), b=3)
    assert env.rows == 3 and Assignment(a=1).rows == 1
    part = env.take(np.array([2, 0]))
    assert part["a"].tolist() == [6, 4] and part["b"] == 3  # type: ignore[union-attr]
    assert env.take(np.arange(3)) is env
    assert env.row(1) == {"a": 5, "b": 3}
    assert pickle.loads(pickle.dumps(env)).row(0) == {"a": 4, "b": 3}


@pytest.mark.parametrize(
    "ask",
    [
        bool, int, range, lambda x: x > 3 and True, lambda x: [0] * x, lambda x: x / 2,
        lambda x: 2**x, lambda x: x << 1, lambda x: 8 >> x, lambda x: x & 3, lambda x: x * 0.5,
        lambda x: math.log2(x), lambda x: x ^ 1, lambda x: ~x,
    ],
)  # fmt: skip
def test_a_value_nobody_decided_is_refused(ask: Callable[[Choice], Any]) -> None:
    with pytest.raises(SpaceError, match="has not decided it"):
        ask(var("x"))


def test_missing_decision_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"lacks this decision.*It has b"):
        evaluate(var("a") + 1, {"b": 1})


@pytest.mark.parametrize("divide", [lambda x: x // 0, lambda x: x % 0, lambda x: ceil_div(x, 0)])
def test_division_by_zero_is_refused(divide: Callable[[Choice], Any]) -> None:
    with pytest.raises(SpaceError, match="division by zero"):
        divide(var("x"))


@pytest.mark.parametrize("data", ["x", [], ["pow", 1, 2], ["add", 1], None])
def test_foreign_json_is_refused(data: Any) -> None:
    with pytest.raises(SpaceError):
        from_json(data)


def test_a_choice_is_made_by_var_only() -> None:
    with pytest.raises(SpaceError, match="interned"):
        Choice()


def test_vectors_and_choices_do_not_mix() -> None:
    with pytest.raises(TypeError):
        np.array([1, 2]) * var("a")
