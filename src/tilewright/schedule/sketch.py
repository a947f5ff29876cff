"""`Sketch`: a computation, a space of decisions, and the schedule they close into.

In: a function from a configuration to a Schedule (a template, or rules).  Out: closed schedules for
single configurations, and legality and loop trees for whole populations at once.
Read next: `template.py` (who makes sketches), then the room `search`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import TilewrightError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.space.decision import Assignment
from tilewright.schedule.space.trace import MAX_PARTS, REFUSALS, Part, Refused, Tracer, Trail
from tilewright.schedule.tree.legality import Verdict, judge
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

Indices = npt.NDArray[np.int64]
CHUNK = 8192  # candidates per vector call: large enough to hide Python, small enough for the caches


@dataclass(frozen=True)
class Group:
    """Candidates of one structure.  rows: their positions in the population asked for."""

    trail: Trail
    rows: Indices
    tree: LoopTree
    resources: Resources
    verdict: Verdict

    @property
    def bounds(self) -> Bounds:
        return self.resources.bounds

    def resources_of(self, mask: npt.NDArray[np.bool_]) -> Resources:
        """Resources of the candidates of the mask alone."""
        assignment = self.bounds.assignment
        assert isinstance(assignment, Assignment)
        own = self.tree.bounds(assignment.take(np.flatnonzero(mask)))
        return Resources(own, self.resources.target)


class Sketch:
    """origin: "template:NAME" or "rules:N"
    build: configuration (concrete or symbolic) -> Schedule
    structures: kinds of loop nests that `build` gives, at most
    outline: the schedule before its loops are marked, as in the first configuration; default: that
    repeatable: whether another process gets the same from the computation and the target alone
    """

    def __init__(
        self,
        origin: str,
        dag: ComputeDAG,
        space: ConfigSpace,
        build: Callable[[Any], Schedule],
        target: Target,
        fallback: Callable[[], Any] | None = None,
        structures: int = MAX_PARTS,
        outline: Callable[[], Schedule] | None = None,
        repeatable: bool = False,
    ) -> None:
        self.origin, self.dag, self.space, self.target = origin, dag, space, target
        self.repeatable = repeatable
        self._fallback = fallback
        self.build = build
        self.outline = outline or (lambda: self.close(0))
        symbolic = space.symbolic()
        self._tracer: Tracer[LoopTree] = Tracer(lambda: LoopTree(build(symbolic)), structures)

    def close(self, index: int) -> Schedule:
        """The schedule of configuration `index`; raises what the template or a step refuses."""
        config = self.space.get(index)
        schedule = self.build(config)
        if not config.valid():
            raise Refused(self.origin, config.errors[0])
        return schedule

    def steps(self, index: int) -> list[list[Any]]:
        """`close(index).to_json()`, for a fraction of what that takes where a candidate of the same
        structure was judged before: its steps are there, with their numbers open.  Else its
        structure is made, as whoever learns from the candidate would.

        Of what is ours: other code may look whether a number is open, and nobody would be told.
        """
        assignment = self.space.decode(index)
        tree = self._tracer.known(assignment) if self.repeatable else None
        if tree is None and self.repeatable:
            self.structures(np.array([index]))
            tree = self._tracer.known(assignment)
        if tree is None or not self.space.is_index_valid(index):
            return self.close(index).to_json()
        assert isinstance(tree.schedule, Schedule)
        return [step.under(assignment).to_json() for step in tree.schedule.steps]

    @property
    def has_fallback(self) -> bool:
        """Whether there is an untuned configuration: of our templates without looking for it, which
        takes its time."""
        if self.repeatable:
            return self._fallback is not None
        return self.fallback() is not None

    def fallback(self) -> int | None:
        """Index of the untuned configuration; None where there is none or it is not legal here."""
        return self.checked(self._fallback)

    def checked(self, choose: Callable[[], Any] | None) -> int | None:
        """Index of the configuration that `choose` gives; None where it is not legal here, or it
        refuses."""
        if choose is None:
            return None
        try:
            chosen = choose()
            index = chosen if isinstance(chosen, int) else self.space.index_of(chosen)
            tree = LoopTree(self.close(index))
            return None if judge(Resources(tree.bounds(), self.target)).reasons() else index
        except REFUSALS:
            return None

    def structures(self, indices: Indices) -> list[Trail]:
        """Those that the candidates have, less what the template refuses."""
        parts = self._tracer.parts(self.space.decode(indices), len(indices))
        return [part.trail for part in parts if part.value is not None]

    def groups(
        self,
        indices: Indices,
        among: Callable[[Sequence[Trail]], Collection[Trail]] | None = None,
        known: Collection[Trail] = (),
        others: int | None = None,
    ) -> Iterator[Group]:
        """The population grouped by structure, less what the template refuses; many of one
        structure come in several groups.

        among: chooses structures, the rest is left out
        known, others: how many structures that are not known are looked at; default: all
        """
        assignment = self.space.decode(indices)
        every = self._tracer.parts(assignment, len(indices), known, others)
        parts = [part for part in every if part.value is not None]
        wanted = None if among is None else among([part.trail for part in parts])
        for part in parts:
            if wanted is not None and part.trail not in wanted:
                continue
            for start in range(0, len(part.rows), CHUNK):
                rows = part.rows[start : start + CHUNK]
                whole = len(rows) == len(indices)
                yield self._group(part, rows, assignment if whole else assignment.take(rows))

    def _group(self, part: Part[LoopTree], rows: Indices, assignment: Assignment) -> Group:
        assert part.value is not None
        resources = Resources(part.value.bounds(assignment), self.target)
        return Group(part.trail, rows, part.value, resources, judge(resources))

    def legal(self, indices: Indices, *, sensible: bool = True) -> npt.NDArray[np.bool_]:
        """Mask of the candidates that can run (and, if `sensible`, are not surely bad)."""
        mask = np.zeros(len(indices), bool)
        for group in self.groups(indices):
            n = len(group.rows)
            mask[group.rows] = group.verdict.sensible(n) if sensible else group.verdict.legal(n)
        return mask & self.space.valid_mask(indices)

    def refusals(self, indices: Indices) -> dict[str, int]:
        """Count the candidates that each reason refuses (one may count under several)."""
        counts: dict[str, int] = {}
        seen = 0
        for group in self.groups(indices):
            n = len(group.rows)
            seen += n
            for reason, mask in {**group.verdict.refused, **group.verdict.discouraged}.items():
                hits = int(np.count_nonzero(np.broadcast_to(mask, n)))
                if hits:
                    counts[reason] = counts.get(reason, 0) + hits
        if seen < len(indices):
            counts["refused by the template"] = len(indices) - seen
        return counts

    def runs(self, index: int) -> bool:
        """Whether configuration `index` is legal: `explain`, where nobody asks why, by what its
        structure is found to be for all that is done with it later."""
        try:
            return bool(self.legal(np.array([index]), sensible=False)[0])
        except TilewrightError:
            return False

    def explain(self, index: int) -> list[str]:
        """Why configuration `index` is refused; empty when it is legal."""
        try:
            bounds = LoopTree(self.close(index)).bounds()
            return judge(Resources(bounds, self.target)).reasons()
        except TilewrightError as error:
            return [str(error)]

    def __repr__(self) -> str:
        return f"Sketch({self.origin}, {self.space.range_length} configurations)"
