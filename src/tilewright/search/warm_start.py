"""What a search begins with: trees, and schedules of these very computations, from knowledge.

In: a target as its device is.  Out: `Known`.  A folder that cannot be used costs a message, never
the search.  Read next: `knowledge/store.py`, `measure/anchors.py`, `loop.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from tilewright import knowledge
from tilewright.base.errors import TilewrightError
from tilewright.knowledge.trees import Trees
from tilewright.measure.anchors import bests_by_anchor
from tilewright.measure.database import Database
from tilewright.measure.jobs import Helper
from tilewright.measure.record import Key, Record
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task
from tilewright.schedule.template import anchor_key, anchor_templates, find_anchor
from tilewright.search.imported import Replays, first_candidates
from tilewright.search.jobs import candidate_of
from tilewright.search.predictions import Predictions
from tilewright.search.propose.first_look import Awaited, Request
from tilewright.search.propose.prior import is_known
from tilewright.search.propose.proposers import Candidate
from tilewright.targets.target import Target

_MOST = 2  # of a folder, for each task


@dataclass
class Known:
    """messages: why something of it is not used"""

    trees: Trees | None = None
    databases: list[Database] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    predictions: Predictions | None = None
    _by_anchor: list[dict[str, list[tuple[bool, Record]]]] | None = None

    def candidates(self, task: Task, measured: Collection[Candidate]) -> list[Candidate]:
        """Of exactly this computation, what was fastest on devices of the class, and of others
        that count for it."""
        found: list[Candidate] = []
        for database in self.databases:
            names = sorted({t.target for t in database.tasks()})  # of the class, however spelled
            best = [r for name in names for r in database.leaders(Key(task.key, name), _MOST)]
            best = sorted(best, key=lambda r: r.seconds)[:_MOST]
            found += first_candidates(task, best, measured, Replays(task, database))[0]
        return list(dict.fromkeys(found))

    def untuned(self, task: Task) -> list[Candidate]:
        """What a build would run of a computation that knowledge does not have; and what others of
        its templates run usually."""
        predicted = None
        if self.predictions is not None and has_template(task):
            predicted = self.predictions.get(task.dag)
        if predicted is not None:
            chosen = candidate_of(task, predicted.origin, predicted.decisions)
            if chosen is not None:
                usual = {t.origin for t in anchor_templates(task.dag, task.target) if t.usual}
                own = _defaults(s for s in task.sketches if s.origin in usual)
                return [*self.of_anchor(task), chosen, *own]
        return [*_defaults(task.sketches), *self.of_anchor(task)]

    def expect(self, tasks: Iterable[Task], requests: Mapping[str, Request]) -> dict[str, Awaited]:
        """Begin to look for what is predicted of them; see `Predictions.prefetch`."""
        if self.predictions is None:
            return {}
        dags = (task.dag for task in tasks if has_template(task))
        return self.predictions.prefetch(dags, requests)

    def of_anchor(self, task: Task) -> list[Candidate]:
        """The templates of the fastest with the same anchor, with their decisions."""
        anchor = find_anchor(task.dag)
        if anchor is None:
            return []
        if self._by_anchor is None:
            keys = [[Key(t.dag, t.target) for t in d.tasks()] for d in self.databases]
            self._by_anchor = list(map(bests_by_anchor, self.databases, keys))
        structure, constant = anchor_key(anchor)
        alike: dict[Candidate, None] = {}
        for bests in self._by_anchor:
            same = [(c != constant, r.seconds, r) for c, r in bests.get(structure, ())]
            for _, _, record in sorted(same, key=lambda item: item[:2]):
                candidate = candidate_of(task, record.origin, record.decisions)
                if candidate is not None:
                    alike[candidate] = None
        return list(islice((c for c in alike if c.sketch.runs(c.index)), _MOST))


def _defaults(sketches: Iterable[Sketch]) -> list[Candidate]:
    found = ((s, s.fallback()) for s in sketches)
    return [Candidate(s, at) for s, at in found if at is not None]


def has_template(task: Task) -> bool:
    """Whether a sketch of the task is one that predictions are made for."""
    offered = {t.origin for t in anchor_templates(task.dag, task.target) if t.offered}
    return any(sketch.origin in offered for sketch in task.sketches)


def recalled(target: Target, helper: Helper | None = None) -> Known:
    """What knowledge holds for devices like the target's.  helper: see `Predictions`"""
    found = Known()
    try:
        found.databases = [database for of in knowledge.records(target) for database in of]
    except TilewrightError as error:
        found.messages.append(f"Knowledge is left out: {error}")
    else:
        found.trees, why = usable_trees(target)
        found.messages += [why] if why else []
    found.predictions = Predictions(target, found.trees, helper)
    return found


def usable_trees(target: Target) -> tuple[Trees | None, str]:
    """Those of knowledge for devices like the target's, and why they are left out; ""."""
    try:
        trees = knowledge.trees(target)
    except TilewrightError as error:
        return None, f"Trees of knowledge are left out: {error}"
    if trees is not None and not is_known(trees):
        return None, (
            "The trees of knowledge are of a version with other features: they are left out."
        )
    return trees, ""
