"""What runs untuned where devices of the class were measured: of the members of a computation's
templates the one that the trees of knowledge predict to be the fastest.

In: computations, a target.  Out: of each that a template fits a `Predicted`.  It is what a search
that begins with these trees proposes first.  The processes that build look for many at once, the
cache keeps what they found.
Read next: `warm_start.py`, `propose/model_proposer.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, replace
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import TilewrightError
from tilewright.driver.cache import default_cache
from tilewright.knowledge.trees import Trees
from tilewright.measure.jobs import Helper
from tilewright.measure.pool import WorkerFailure
from tilewright.measure.signatures import code_key
from tilewright.schedule.task import Task, task_of_dag
from tilewright.schedule.template import (
    RegisteredAnchor,
    all_ours,
    anchor_templates,
    measured_member,
)
from tilewright.search.jobs import decisions_of
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.first_look import (
    Awaited,
    Looks,
    Request,
    looks_at,
    looks_of,
)
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.prior import Prior, import_alone
from tilewright.search.propose.proposers import Candidate
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

FEW = 2  # computations, for which no process is worth its start
_SECONDS = 60.0  # of one computation, at most; usually it is one


class Predicted(msgspec.Struct, frozen=True):
    """A candidate: origin and decisions of its record.  seconds: of one call, as predicted"""

    origin: str
    decisions: dict[str, Any]
    seconds: float


def predict(dag: ComputeDAG, target: Target, trees: Trees) -> Predicted | None:
    """None where no template fits, or masks leave none of its members."""
    return _predict(task_of_dag(dag, target), Prior(trees), Looks())


def _predict(task: Task, prior: Prior, looks: Looks) -> Predicted | None:
    """Of the sketches of templates.  looks: of which it takes what it would look at itself"""
    if not task.sketches:
        return None
    templates = {t.origin: t for t in anchor_templates(task.dag, task.target)}
    alone = [s for s in task.sketches if templates[s.origin].alone]
    task = replace(task, sketches=alone) if alone else task
    usual = _measured(task, templates) or _usual(task, {o for o, t in templates.items() if t.usual})
    model = CostModel()
    model.begin_with(prior)
    proposer = ModelProposer(task, 0, model)
    proposer.begin_with(lambda: looks)
    for candidate in usual or proposer.suggest(1):
        seconds = float(proposer.predict([candidate])[0])
        return Predicted(candidate.sketch.origin, decisions_of(candidate), seconds)
    return None


def _measured(task: Task, templates: Mapping[str, RegisteredAnchor]) -> list[Candidate]:
    """The member of a template that was measured to be faster than what trees say, if there is
    one."""
    found = ((s, measured_member(templates[s.origin], s)) for s in task.sketches)
    return next(([Candidate(s, index)] for s, index in found if index is not None), [])


def _usual(task: Task, origins: Collection[str]) -> list[Candidate]:
    """The one that was measured to be faster than what trees say, if there is one.

    origins: of templates that have such ones, where they come before all others
    """
    for sketch in takewhile(lambda s: s.origin in origins, task.sketches):
        index = sketch.fallback()
        if index is not None:
            return [Candidate(sketch, index)]
    return []


class Predictions:
    """`predict` for computations on one target, each once; for several threads.

    trees: of knowledge; None: nothing is predicted
    helper: whose processes look for many at once; None: this one looks for each
    """

    def __init__(
        self, target: Target, trees: Trees | None = None, helper: Helper | None = None
    ) -> None:
        self.target, self.trees, self.helper = target, trees, helper
        self._found: dict[str, Predicted | None] = {}
        self._awaited: dict[str, Future[tuple[Predicted | None, Looks]]] = {}
        self._looked: dict[str, tuple[Task, Awaited]] = {}

    @cached_property
    def prior(self) -> Prior:
        """The trees, ready to predict."""
        assert self.trees is not None
        return Prior(self.trees)

    def __bool__(self) -> bool:
        return self.trees is not None

    def prefetch(
        self, dags: Iterable[ComputeDAG], requests: Mapping[str, Request] | None = None
    ) -> dict[str, Awaited]:
        """Begin to look for them, where they are many.

        requests: of looks that a search needs, by the hashes of computations
        Returns the looks that are taken beside.
        """
        if self.trees is None or self.helper is None:
            return {}
        new = {d.hash: d for d in dags if not self._is_known(d) and d.hash not in self._awaited}
        looks: dict[str, Awaited] = {}
        if len(new) > FEW:
            for key, dag in new.items():
                request = (requests or {}).get(key)
                call = _predict_json, dag.to_json(), self.target, self.trees, request
                self._awaited[key] = self.helper.call(self.target, *call, timeout=_SECONDS)
                if request is not None:
                    looks[key] = partial(_looks, self._awaited[key])
        return looks

    def begin_with(self, task: Task, looks: Awaited) -> None:
        """Take the sketches of a task, and looks at them that a search needs anyway, for what is
        predicted of its computation."""
        if task.target.limits == self.target.limits:
            self._looked[task.dag.hash] = task, looks

    def get(self, dag: ComputeDAG) -> Predicted | None:
        """Waits for it.  None, too, where that failed: the computation has a default schedule."""
        if self.trees is None:
            return None
        if not self._is_known(dag):
            awaited = self._awaited.get(dag.hash)
            try:
                found = awaited.result()[0] if awaited else self._predict(dag)
            except (WorkerFailure, TilewrightError):
                self._found[dag.hash] = None
            else:
                self._found[dag.hash] = found
                default_cache().keep(self._key(dag), msgspec.json.encode(found))
            self._awaited.pop(dag.hash, None)
        return self._found[dag.hash]

    def _predict(self, dag: ComputeDAG) -> Predicted | None:
        task, looks = self._looked.pop(dag.hash, (None, None))
        if task is None:
            return _predict(task_of_dag(dag, self.target), self.prior, Looks())
        templates = {t.origin for t in anchor_templates(dag, task.target) if t.offered}
        own = [sketch for sketch in task.sketches if sketch.origin in templates]
        return _predict(replace(task, sketches=own), self.prior, looks_of(looks))

    def _is_known(self, dag: ComputeDAG) -> bool:
        """Whether it need not be looked for: it was, here or by an earlier process; or a template
        may be a user's, whose code we do not know."""
        if dag.hash not in self._found and dag.hash not in self._awaited:
            templates = anchor_templates(dag, self.target)
            kept = default_cache().kept(self._key(dag)) if templates else None
            if not templates or not all_ours(templates):
                self._found[dag.hash] = None
            elif kept is not None:
                self._found[dag.hash] = msgspec.json.decode(kept, type=Predicted | None)
        return dag.hash in self._found

    def _key(self, dag: ComputeDAG) -> str:
        assert self.trees is not None
        limits = asdict(self.target.limits)
        return code_key("predicted", dag.hash, str(self.target), limits, self.trees.digest)


def _predict_json(
    dag: Any, target: Target, trees: Trees, request: Request | None
) -> tuple[Predicted | None, Looks]:
    task = task_of_dag(ComputeDAG.from_json(dag), target)
    looks = Looks() if request is None else looks_at(with_rules(task), request)
    return _predict(task, _ready(trees), looks), looks


_READY: list[Prior] = []  # of the last trees, which take as long to make ready as a look


def _ready(trees: Trees) -> Prior:
    """Trees ready to predict: a process that looks for many has them once.  Such processes are
    ours."""
    if not _READY or _READY[0].trees.digest != trees.digest:
        import_alone()
        _READY[:] = [Prior(trees)]
    return _READY[0]


def _looks(awaited: Future[tuple[Predicted | None, Looks]]) -> Looks:
    return awaited.result()[1]
