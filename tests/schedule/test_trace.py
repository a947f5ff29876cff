"""Tracing a template over a population: parts, replay, the cache, refusals, the limit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tilewright.base import context
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.schedule.space import trace as trace_module
from tilewright.schedule.space.decision import Assignment, Choice, evaluate, var
from tilewright.schedule.space.trace import Part, Refused, Tracer, trace

A, B, C = var("a"), var("b"), var("c")
ROWS = st.lists(st.tuples(*[st.integers(1, 4)] * 3), min_size=1, max_size=24)

# What a template may ask, each answered alike for ints and for Choices.
QUESTIONS: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, c: a > 2,
    lambda a, b, c: bool(a - b),
    lambda a, b, c: int(c),
    lambda a, b, c: list(range(a % 3)),
    lambda a, b, c: a * b in (2, 4, 6),
    lambda a, b, c: b in {1, 4},
    lambda a, b, c: {1: "one", 2: "two"}.get(c, "many"),
    lambda a, b, c: "even" if (a + b + c) % 2 == 0 else "odd",
    lambda a, b, c: 2**c,
    lambda a, b, c: max(a, b) == a,
    lambda a, b, c: [0, 1, 2, 3, 4][b],
]
# Several questions in a row; a question may end the template where its answer is falsy.
PROGRAMS = st.lists(
    st.tuples(st.integers(0, len(QUESTIONS) - 1), st.booleans()), min_size=0, max_size=5
)


def run(program: list[tuple[int, bool]], a: Any, b: Any, c: Any) -> list[Any]:
    seen: list[Any] = []
    for index, stops in program:
        answer = QUESTIONS[index](a, b, c)
        if isinstance(answer, Choice):
            answer = bool(answer)
        seen.append(answer)
        if stops and not answer:
            break
    return seen


def population(rows: list[tuple[int, ...]]) -> Assignment:
    return Assignment(zip("abc", np.array(rows, dtype=np.int64).T, strict=True))


def check_partition(parts: list[Part[Any]], rows: int) -> None:
    assert sorted(int(r) for p in parts for r in p.rows) == list(range(rows))
    assert all((np.diff(p.rows) > 0).all() for p in parts)
    assert len({p.trail for p in parts}) == len(parts)


@pytest.mark.slow
@given(PROGRAMS, ROWS)
def test_parts_equal_one_run_per_row(program: list[tuple[int, bool]], rows: Any) -> None:
    parts = trace(lambda: run(program, A, B, C), population(rows), len(rows))
    check_partition(parts, len(rows))
    for part in parts:
        for row in part.rows:
            assert part.value == run(program, *rows[row])


@pytest.mark.slow
@given(PROGRAMS, ROWS, ROWS)
def test_parts_do_not_depend_on_what_is_cached(program: Any, rows: Any, before: Any) -> None:
    warm = Tracer(lambda: run(program, A, B, C))
    warm.parts(population(before), len(before))
    fresh = trace(lambda: run(program, A, B, C), population(rows), len(rows))
    again = warm.parts(population(rows), len(rows))
    assert [(p.trail, p.rows.tolist(), p.value) for p in again] == [
        (p.trail, p.rows.tolist(), p.value) for p in fresh
    ]


@pytest.mark.slow
@given(PROGRAMS, ROWS, ROWS)
def test_some_parts_do_not_depend_on_what_is_cached(program: Any, rows: Any, before: Any) -> None:
    """Those that are known, and the first of the others."""
    every = trace(lambda: run(program, A, B, C), population(rows), len(rows))
    known = {part.trail for part in every[1::2]}
    wanted = [*every[:1], *(p for p in every[1:] if p.trail in known)]
    warm = Tracer(lambda: run(program, A, B, C))
    warm.parts(population(before), len(before))
    for tracer in (warm, Tracer(warm.build)):
        some = tracer.parts(population(rows), len(rows), known, 1)
        assert [(p.trail, p.rows.tolist()) for p in some] == [
            (p.trail, p.rows.tolist()) for p in wanted
        ]


def test_trail_and_order() -> None:
    env = population([(4, 1, 1), (1, 1, 1), (4, 2, 1), (1, 2, 1)])
    parts = trace(lambda: int(B) if A > 2 else -1, env, 4)
    assert [(p.trail, p.rows.tolist(), p.value) for p in parts] == [
        ((("a > 2", 0),), [1, 3], -1),
        ((("a > 2", 1), ("b", 1)), [0], 1),
        ((("a > 2", 1), ("b", 2)), [2], 2),
    ]


def test_a_question_is_asked_once_per_run() -> None:
    parts = trace(lambda: [bool(A > 2), bool(A > 2)], population([(1, 1, 1)]), 1)
    assert parts[0].trail == (("a > 2", 0),)


def test_uniform_population_of_ints() -> None:
    (part,) = trace(lambda: int(A + B), Assignment(a=2, b=3), 5)
    assert part.value == 5 and part.rows.tolist() == [0, 1, 2, 3, 4]


def test_empty_population() -> None:
    assert trace(lambda: int(A), Assignment(a=np.empty(0, dtype=np.int64)), 0) == []


def test_unread_decisions_stay_open() -> None:
    (part,) = trace(lambda: A * B, population([(1, 2, 1), (3, 4, 1)]), 2)
    assert part.value is A * B and part.trail == ()
    assert evaluate(part.value, population([(1, 2, 1), (3, 4, 1)])).tolist() == [2, 12]  # type: ignore[union-attr]


def test_known_structures_are_not_built_again() -> None:
    built = []

    def build() -> int:
        built.append(1)
        return int(A)

    tracer = Tracer(build)
    assert [p.value for p in tracer.parts(population([(1, 1, 1), (2, 1, 1)]), 2)] == [1, 2]
    assert len(built) == 2
    assert [p.value for p in tracer.parts(population([(2, 1, 1), (1, 3, 1)]), 2)] == [1, 2]
    assert len(built) == 2
    assert [p.value for p in tracer.parts(population([(2, 1, 1), (3, 3, 1)]), 2)] == [2, 3]
    assert len(built) == 3
    assert tracer.cache[(("a", 3),)].value == 3


@pytest.mark.parametrize("error", [Refused("t", "no"), ScheduleError("split", "no")])
def test_a_refusal_marks_its_part_only(error: Exception) -> None:
    def build() -> str:
        if A == 2:
            raise error
        return "fine"

    tracer = Tracer(build)
    for _ in range(2):  # built, then from the cache
        good, bad = tracer.parts(population([(1, 1, 1), (2, 1, 1)]), 2)
        assert (good.value, good.error, good.rows.tolist()) == ("fine", None, [0])
        assert (bad.value, bad.error, bad.rows.tolist()) == (None, error, [1])
    assert context.current("tracer") is None


def test_other_errors_propagate() -> None:
    with pytest.raises(ZeroDivisionError):
        trace(lambda: 1 // 0, population([(1, 1, 1)]), 1)
    assert context.current("tracer") is None


def test_rows_of_other_parts_may_divide_by_zero() -> None:
    def build() -> int:
        return int(B // (A - 1)) if A > 1 else -1

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parts = trace(build, population([(1, 4, 1), (3, 4, 1)]), 2)
    assert [p.value for p in parts] == [-1, 2]


def test_too_many_parts_warn_once_and_stay_right() -> None:
    tracer = Tracer(lambda: int(A), max_parts=5)  # the line the warning names
    line = test_too_many_parts_warn_once_and_stay_right.__code__.co_firstlineno + 1
    env = Assignment(a=np.arange(20) % 10)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            parts = tracer.parts(env, 20)
            check_partition(parts, 20)
            assert [p.value for p in parts] == list(range(10))
    assert len(caught) == 1
    assert f"{__file__}:{line}: the value of a splits" in str(caught[0].message)
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
    assert len(tracer.cache) == 5


def test_few_parts_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(trace(lambda: int(A), Assignment(a=np.arange(48)), 48)) == 48


def test_a_template_must_repeat_itself() -> None:
    calls: list[int] = []

    def other_question() -> int:
        calls.append(1)
        return int(A) if len(calls) == 1 else int(B)

    with pytest.raises(SpaceError, match=r"asked for b where it asked for a"):
        trace(other_question, population([(1, 1, 1), (2, 1, 1)]), 2)
    calls.clear()

    def fewer_questions() -> int:
        calls.append(1)
        return int(A) if len(calls) == 1 else 0

    with pytest.raises(SpaceError, match=r"asked for nothing where it asked for a"):
        trace(fewer_questions, population([(1, 1, 1), (2, 1, 1)]), 2)


def test_traces_nest() -> None:
    inner = Assignment(c=np.array([7, 8]))

    def build() -> list[Any]:
        return [p.value for p in trace(lambda: int(C), inner, 2)] + [int(A)]

    parts = trace(build, population([(1, 1, 1), (2, 1, 1)]), 2)
    assert [p.value for p in parts] == [[7, 8, 1], [7, 8, 2]]


def test_a_choice_in_a_set_or_dict_is_its_value_whoever_looks() -> None:
    with pytest.raises(SpaceError, match="value of a: the search has not decided it here"):
        {A: "a"}  # noqa: B018
    values = population([(1, 1, 1), (2, 1, 1)])
    looks = "def look(choice): return {1: 'one', 2: 'two'}[choice]"
    for file in ("template.py", tilewright.__file__, trace_module.__file__):  # whose frame it is
        scope: dict[str, Any] = {}
        exec(compile(looks, file, "exec"), scope)
        parts = trace(lambda look=scope["look"]: look(A), values, 2)  # type: ignore[misc]
        assert [p.value for p in parts] == ["one", "two"]
