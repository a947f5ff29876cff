"""Running a template once for a whole population: ask for a value, partition, run again.

In: a function that may read `Choice`s as Python values, and an `Assignment`.  Out: one `Part` per
distinct trail of answers, with the rows it holds for.
Read next: `policies.py`, where Choices start.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tilewright.base import context
from tilewright.base.errors import LegalityError, ScheduleError, SpaceError, TilewrightError
from tilewright.schedule.space.decision import Assignment, Choice, Size, evaluate

T = TypeVar("T")
Rows = npt.NDArray[np.int64]
Trail = tuple[tuple[str, int], ...]  # (expression asked for, answer), in the order of asking

MAX_PARTS = 48
MAX_KEPT = 1024  # structures a Tracer remembers


def trace(
    build: Callable[[], T], assignment: Assignment, rows: int, max_parts: int = MAX_PARTS
) -> list[Part[T]]:
    """`build()` once for every trail of answers that occurs among the `rows` candidates.

    Parts come in ascending order of their trails' answers; their rows are disjoint, ascending, and
    together all of range(rows).
    """
    return Tracer(build, max_parts).parts(assignment, rows)


class Refused(SpaceError):
    """Raised by a template for candidates that it does not want, such as `cfg.raise_error`."""


REFUSALS = (Refused, ScheduleError, LegalityError)  # mark one part; anything else propagates


@dataclass(frozen=True)
class Part(Generic[T]):
    """The candidates (`rows`, int64 indices) for which `build` was given the answers of `trail`.

    value: what `build` returned, None where it raised `error`
    """

    value: T | None
    rows: Rows
    trail: Trail
    error: TilewrightError | None = None


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """What one run of the template gave: its value, or the refusal it raised.

    apart: conditions under which a candidate, closed, makes the template go another way without
           being asked (`decision.same`): its steps are others then, with the same meaning
    """

    value: T | None
    error: TilewrightError | None = None
    apart: tuple[Size, ...] = ()


class Tracer(Generic[T]):
    """Traces one `build` over many populations; a trail seen before is not built again.

    `cache` maps the trails seen so far to their outcomes.  A population with more than `max_parts`
    different trails is legal but slow (it approaches one run per candidate): the first time it
    happens a warning names the template's line, and what exceeds the limit is not kept.
    """

    def __init__(self, build: Callable[[], T], max_parts: int = MAX_PARTS) -> None:
        self.build, self.max_parts = build, max_parts
        self.cache: dict[Trail, Outcome[T]] = {}
        self.asked: dict[Trail, Choice] = {}  # what the template asks for next after a trail
        self.warned = False

    def parts(
        self, assignment: Assignment, rows: int, known: Collection[Trail] = (),
        others: int | None = None,
    ) -> list[Part[T]]:  # fmt: skip
        """The population `assignment` of `rows` candidates, partitioned; see `trace`.

        others: parts with a value whose trail is not among `known`, at most: the first in order.
        The template is not run for more of them, and their rows are in no part; default: all
        """
        if rows < 1:
            return []
        done: list[Part[T]] = []
        begun = {trail[:n] for trail in known for n in range(len(trail) + 1)}
        pending: list[tuple[Trail, Rows]] = [((), np.arange(rows, dtype=np.int64))]
        while pending:
            trail, chosen = pending.pop()
            question = self.asked.get(trail)
            if question is not None:  # known branch: no template runs
                branches = _branches(question, assignment, chosen, rows)
                name = str(question)
                pending += [((*trail, (name, a)), r) for a, r in reversed(branches)]
                continue
            if others == 0 and trail not in begun:
                continue
            outcome = self.cache.get(trail)
            if outcome is None:
                run = _Run(self, assignment, rows, trail, chosen, len(done) + len(pending))
                outcome, trail, chosen = run.outcome(), tuple(run.trail), run.chosen
                pending += reversed(run.left)
                if len(self.cache) < MAX_KEPT and len(done) < self.max_parts:
                    self.cache[trail] = outcome
            if others is not None and outcome.value is not None and trail not in known:
                if others == 0:
                    continue
                others -= 1
            done.append(Part(outcome.value, chosen, trail, outcome.error))
        return done

    def known(self, assignment: Assignment) -> T | None:
        """What `build` gave for the structure of a candidate, whose decisions are ints.

        None where it has not been run for that yet, refused it, or would do otherwise for this
        candidate than for others of its structure.
        """
        trail: Trail = ()
        while (question := self.asked.get(trail)) is not None:
            trail = *trail, (str(question), int(evaluate(question, assignment)))
        outcome = self.cache.get(trail)
        if outcome is None or any(evaluate(c, assignment) for c in outcome.apart):
            return None
        return outcome.value


class _Run(Generic[T]):
    """One run of the template: replays the answers of `trail`, then follows the smallest answers.

    Afterwards `trail` and `chosen` belong to the outcome; `left` holds the other branches.
    """

    def __init__(
        self, tracer: Tracer[T], assignment: Assignment, rows: int, trail: Trail, chosen: Rows,
        parts: int,
    ) -> None:  # fmt: skip
        self.tracer, self.assignment, self.rows = tracer, assignment, rows
        self.replay, self.chosen, self.parts = trail, chosen, parts
        self.trail: list[tuple[str, int]] = []
        self.left: list[tuple[Trail, Rows]] = []
        self._answers: dict[int, tuple[Choice, int]] = {}  # by identity, the Choice kept alive
        self._apart: dict[int, Size] = {}

    def outcome(self) -> Outcome[T]:
        with context.scope("tracer", self):
            try:
                value = self.tracer.build()
                outcome = Outcome(value, apart=tuple(self._apart.values()))
            except REFUSALS as error:
                outcome = Outcome(None, error.with_traceback(None))
        if len(self.trail) < len(self.replay):
            raise _not_repeatable("nothing", self.replay[len(self.trail)][0], None)
        return outcome

    def note(self, condition: Size) -> None:
        """See `Outcome.apart`."""
        self._apart[id(condition)] = condition

    def ask(self, expr: Choice) -> int:
        """The value of `expr` for the candidates this run is for."""
        known = self._answers.get(id(expr))
        if known is not None:
            return known[1]
        name, position = str(expr), len(self.trail)
        if position < len(self.replay):
            before, answer = self.replay[position]
            if name != before:
                raise _not_repeatable(name, before, sys._getframe(1))
        else:
            answer = self._decide(expr, name)
        self._answers[id(expr)] = expr, answer
        self.trail.append((name, answer))
        return answer

    def _decide(self, expr: Choice, name: str) -> int:
        trail = tuple(self.trail)
        (answer, chosen), *others = _branches(expr, self.assignment, self.chosen, self.rows)
        if len(self.tracer.asked) < MAX_KEPT * 16:
            self.tracer.asked[trail] = expr
        self.chosen = chosen
        # the earliest question lies deepest in `pending`, so parts come in order of their answers
        self.left = [((*trail, (name, a)), r) for a, r in others] + self.left
        if self.parts + len(self.left) + 1 > self.tracer.max_parts and not self.tracer.warned:
            self.tracer.warned = True
            _warn(expr, self.tracer.max_parts, _template_frame(sys._getframe(1)))
        return answer


def _branches(
    expr: Choice, assignment: Assignment, chosen: Rows, rows: int
) -> list[tuple[int, Rows]]:
    """(value, the rows among `chosen` that have it), ascending by value."""
    with np.errstate(divide="ignore"):  # rows outside `chosen` may divide by zero
        values = evaluate(expr, assignment)
    if not isinstance(values, np.ndarray):
        return [(int(values), chosen)]
    if len(chosen) < rows:
        values = values[chosen]
    first = values[0]
    if (values == first).all():
        return [(int(first), chosen)]
    return [(int(v), chosen[values == v]) for v in np.unique(values)]


_PACKAGE = str(Path(__file__).parents[1] / "_")[:-1]  # with its final separator
_ROOM = str(Path(__file__).parent / "_")[:-1]


def _template_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the template: outside the package, else outside this room."""
    ours: FrameType | None = None
    while frame is not None and frame.f_code is not _Run.outcome.__code__:
        name = frame.f_code.co_filename
        if not name.startswith(_PACKAGE):
            return frame
        if ours is None and not name.startswith(_ROOM):
            ours = frame
        frame = frame.f_back
    return ours


def _place(frame: FrameType | None) -> str:
    frame = _template_frame(frame)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "template"


def _not_repeatable(now: str, before: str, frame: FrameType | None) -> SpaceError:
    return SpaceError(
        f"trace({_place(frame)})",
        f"the template asked for {now} where it asked for {before} the time before",
        "Given the same answers a template must take the same path.",
    )


def _warn(expr: Choice, max_parts: int, frame: FrameType | None) -> None:
    message = (
        f"{_place(frame)}: the value of {expr} splits the candidates into more than {max_parts} "
        "structures, so they are built almost one by one. Use decisions in arithmetic, or compare "
        "them less finely, where the Python value is not needed."
    )
    if frame is None:
        warnings.warn(message, UserWarning, stacklevel=2)
        return
    warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno)
