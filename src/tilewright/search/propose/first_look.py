"""A first look at the spaces of tasks: members drawn, judged and scored by the machine model.

In: sketches, a seed.  Out: of each the best it saw, with features.  A look depends on nothing else,
so the processes that build look at many tasks at once, and a search goes the same way whoever
looked.  Read next: `model_proposer.py`, which begins with a look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.cost.features import FEATURES, Matrix, Vector, describe, features_and_seconds
from tilewright.measure.jobs import Helper
from tilewright.measure.pool import WorkerFailure
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.trace import Trail
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.propose.proposers import Indices, Pool
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

KEPT = 4096  # best of a sketch by the machine model, whose features are kept
NARROW = 256  # candidates of a structure for which it pays to leave refused ones out
# Bytes of straight-line code: compilers take seconds for more, which holds up the whole search, and
# of 1,800 measured candidates of eight tasks no best one had more than 32 KiB.
MAX_CODE = 48 << 10
_CODE = FEATURES.index("log_code")
_SECONDS = 60.0  # of one task, at most; usually it is one


class Scored(NamedTuple):
    """Members of a space, with features and machine seconds.

    structures: those that were looked at, with the seconds of the fastest, infinity for none
    """

    indices: Indices
    features: Matrix
    machine: Vector
    structures: Mapping[Trail, float]


class Look(NamedTuple):
    """listed: the sensible members of a small space, None of a large one; scored: some of them"""

    listed: Indices | None
    scored: Scored


def score_sensible(
    sketch: Sketch,
    indices: Indices,
    among: Callable[[Sequence[Trail]], Collection[Trail]] | None = None,
    known: Collection[Trail] = (),
    others: int | None = None,
) -> Scored:
    """Those worth measuring, scored.  among, known, others: see `Sketch.groups`"""
    valid = sketch.space.valid_mask(indices)
    found: list[tuple[Indices, Matrix, Vector]] = []
    structures: dict[Trail, float] = {}
    for group in sketch.groups(indices, among, known, others):
        structures.setdefault(group.trail, np.inf)
        mask = group.verdict.sensible(len(group.rows)) & valid[group.rows]
        if not mask.any():
            continue
        own = indices[group.rows[mask]]
        if len(mask) > NARROW and len(own) < len(mask):
            rows, seconds = describe(group.resources_of(mask), len(own))
        else:
            rows, seconds = (each[mask] for each in features_and_seconds(group))
        found.append((own, rows, seconds))
        structures[group.trail] = min(structures[group.trail], float(seconds.min()))
    if not found:
        nothing = np.empty((0, len(FEATURES)), np.float32)
        return Scored(np.empty(0, np.int64), nothing, np.empty(0), {})
    parts = [np.concatenate(part) for part in zip(*found, strict=True)]
    return Scored(parts[0], parts[1], parts[2], structures)


def of_moderate_length(scored: Scored, *, needed: bool = False) -> Scored:
    """Those whose code compilers do not take seconds for; if `needed`, all where there are no
    others."""
    light = scored.features[:, _CODE] <= np.log2(MAX_CODE)
    if needed and not light.any():
        return scored
    indices, features, machine, structures = scored
    return Scored(indices[light], features[light], machine[light], structures)


def fastest_and_others(scored: Scored, room: int, rng: np.random.Generator) -> Scored:
    """`room` of them, most of them the fastest: the machine model alone is not to be trusted."""
    if len(scored.indices) <= room:
        return scored
    order = np.argsort(scored.machine, kind="stable")
    fastest = room * 3 // 4
    others = rng.choice(order[fastest:], room - fastest, replace=False)
    chosen = np.concatenate([order[:fastest], others])
    indices, features, machine, structures = scored
    return Scored(indices[chosen], features[chosen], machine[chosen], structures)


def look(sketch: Sketch, seed: Sequence[int], drawn: int, kept: int = KEPT) -> Look:
    """Look at `drawn` members of a sketch, keep `kept` of them.  seed: of the draw"""
    rng = np.random.default_rng(seed)
    pool = Pool(sketch, rng)
    members = pool.draw(drawn) if pool.listed is not None else pool.guess(drawn)
    scored = of_moderate_length(score_sensible(sketch, np.unique(members)), needed=True)
    return Look(pool.listed, fastest_and_others(scored, kept, rng))


class Request(NamedTuple):
    """What another process needs for the first looks at a task: `look` with seeds (seed, 0),
    (seed, 1) and so on.  origins: of its sketches, "" for those that nobody else can derive"""

    origins: tuple[str, ...]
    seed: int
    drawn: int
    kept: int = KEPT


class Looks(NamedTuple):
    """What was asked for, and the looks by origin."""

    request: Request | None = None
    found: Mapping[str, Look] = {}

    def at(self, place: int, mine: Request) -> Look | None:
        """The look that `mine` asks for at a place; None where these have no such look."""
        other = self.request
        if other is None or not mine.origins[place] or other[1:] != mine[1:]:
            return None
        if other.origins[place : place + 1] != (mine.origins[place],):
            return None
        return self.found.get(mine.origins[place])


def take_looks(dag: Any, target: Target, request: Request) -> Looks:
    """What other processes call.  dag: as JSON"""
    task = with_rules(task_of_dag(ComputeDAG.from_json(dag), target))
    of = {sketch.origin: sketch for sketch in task.sketches}
    _, seed, drawn, kept = request
    found = {
        origin: look(of[origin], (seed, place), drawn, kept)
        for place, origin in enumerate(request.origins)
        if origin in of
    }
    return Looks(request, found)


def begin_look(helper: Helper, task: Task, request: Request) -> Future[Looks]:
    """Have a process that builds take the looks."""
    call = take_looks, task.dag.to_json(), task.target, request
    return helper.call(task.target, *call, timeout=_SECONDS)


def looks_of(awaited: Future[Looks] | None) -> Looks:
    """None where the process failed: who asks looks for itself."""
    try:
        return Looks() if awaited is None else awaited.result()
    except (WorkerFailure, TilewrightError):
        return Looks()


@runtime_checkable
class LooksFirst(Protocol):
    """A proposer that begins with looks at its spaces, which other processes can take."""

    @property
    def request(self) -> Request:
        """What to look at."""

    @property
    def has_looked(self) -> bool:
        """Whether it did, or waits for looks."""

    def begin_with(self, looks: Future[Looks]) -> None:
        """The first suggestions wait for these."""
