"""A first look at the spaces of tasks: members drawn, judged and scored by the machine model.

In: sketches, a seed.  Out: of each the best it saw, with features.  A look depends on nothing else,
so the processes that build look at many tasks at once, and a search goes the same way whoever
looked.  Read next: `model_proposer.py`, which begins with a look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import TilewrightError
from tilewright.cost.features import FEATURES, Matrix, Vector, describe, features_and_seconds
from tilewright.measure.jobs import Helper
from tilewright.measure.pool import WorkerFailure
from tilewright.schedule.sketch import Group, Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.space.trace import Trail
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.propose.proposers import Indices, Pool
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

Mask = npt.NDArray[np.bool_]
KEPT = 4096  # best of a sketch by the machine model, whose features are kept
NARROW = 256  # refused ones among those of a structure for which it pays to leave them out
# Bytes of straight-line code: compilers take seconds for more, which holds up the whole search, and
# of 1,800 measured candidates of eight tasks no best one had more than 32 KiB.
MAX_CODE = 48 << 10
LISTED = 16_384  # spaces up to this size are listed, and judged whole
# Structures that a look at a larger space begins with, and has at most; each costs some 20 ms,
# however few of the candidates have it.  From one to the next the machine model rises and falls
# steadily, so those next to the best are looked at, round after round.
BEGINNINGS, MOST_STRUCTURES, ROUNDS = 8, 16, 8
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
    groups = sketch.groups(indices, among, known, others)
    return _scored(indices, ((group, _sensible(group) & valid[group.rows]) for group in groups))


def _sensible(group: Group) -> Mask:
    return np.asarray(group.verdict.sensible(len(group.rows)))


def _scored(indices: Indices, judged: Iterable[tuple[Group, Mask]]) -> Scored:
    """The candidates of the masks.  judged: groups of `indices`"""
    nothing = np.empty(0, np.int64), np.empty((0, len(FEATURES)), np.float32), np.empty(0)
    found: list[tuple[Indices, Matrix, Vector]] = [nothing]
    structures: dict[Trail, float] = {}
    for group, mask in judged:
        structures.setdefault(group.trail, np.inf)
        if not mask.any():
            continue
        own = indices[group.rows[mask]]
        if len(mask) - len(own) > NARROW:  # else it costs more than it saves
            rows, seconds = describe(group.resources_of(mask), len(own))
        else:
            rows, seconds = features_and_seconds(group)
            rows, seconds = rows[mask], seconds[mask]
        found.append((own, rows, seconds))
        structures[group.trail] = min(structures[group.trail], float(seconds.min()))
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
    pool, listed = Pool(sketch, rng), None
    if pool.size <= LISTED:
        scored, listed = _look_at_all(pool, drawn), pool.listed
    else:
        guesses = np.unique(pool.guess(drawn))
        scored = _look_around(sketch, guesses, rng)
        if not len(scored.indices):
            scored = score_sensible(sketch, guesses)
    scored = of_moderate_length(scored, needed=True)
    return Look(listed, fastest_and_others(scored, kept, rng))


def _look_around(sketch: Sketch, drawn: Indices, rng: np.random.Generator) -> Scored:
    """Score those of some structures: any to begin with, then such as are next to the best."""
    found = _scored(drawn, ())
    near = rng.choice(drawn, min(BEGINNINGS, len(drawn)), replace=False)
    for _ in range(ROUNDS):
        new = [trail for trail in sketch.structures(near) if trail not in found.structures]
        new = new[: MOST_STRUCTURES - len(found.structures)]
        if not new:
            break
        judged = score_sensible(sketch, np.union1d(drawn, near), None, new, 0)
        found = _together(found, judged)
        if not len(found.indices):
            break
        best = found.indices[np.argmin(found.machine)]
        near = adjacent(sketch.space, np.array([best]))
    return found


def _together(first: Scored, second: Scored) -> Scored:
    """What is known by two looks at other structures."""
    return Scored(
        np.concatenate([first.indices, second.indices]),
        np.concatenate([first.features, second.features]),
        np.concatenate([first.machine, second.machine]),
        {**first.structures, **second.structures},
    )


def adjacent(space: ConfigSpace, indices: Indices) -> Indices:
    """All that differ from one of `indices` in a single knob, by one place."""
    own = space.positions(indices)
    moved = [own]
    for knob, size in enumerate(space.dims):
        for step in (-1, 1):
            there = own[:, (own[knob] + step >= 0) & (own[knob] + step < size)].copy()
            there[knob] += step
            moved.append(there)
    return np.unique(space.indices(np.concatenate(moved, axis=1)))


def _look_at_all(pool: Pool, drawn: int) -> Scored:
    """List a small space, and score `drawn` of its sensible members."""
    every = pool.all()
    valid = pool.sketch.space.valid_mask(every)
    judged = [(g, _sensible(g) & valid[g.rows]) for g in pool.sketch.groups(every)]
    mask = np.zeros(len(every), bool)
    for group, sensible in judged:
        mask[group.rows] = sensible
    pool.listed = every[mask]
    chosen = np.zeros(len(every), bool)
    chosen[pool.draw(drawn) - pool.first] = True
    return _scored(every, ((group, chosen[group.rows]) for group, _ in judged))


class Request(NamedTuple):
    """What another process needs for the first looks at a task: `look` with seeds (seed, 0),
    (seed, 1) and so on.  origins: of its sketches, "" for those that nobody else can derive"""

    origins: tuple[str, ...]
    seed: int
    drawn: int
    kept: int = KEPT

    def parts(self) -> list[Request]:
        """One for each sketch, with its own place."""
        places = range(len(self.origins))
        return [
            self._replace(origins=tuple(o if at == k else "" for at, o in enumerate(self.origins)))
            for k in places
            if self.origins[k]
        ]


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
    return looks_at(with_rules(task_of_dag(ComputeDAG.from_json(dag), target)), request)


def looks_at(task: Task, request: Request) -> Looks:
    """Look at the sketches of a task that a request names."""
    of = {sketch.origin: sketch for sketch in task.sketches}
    _, seed, drawn, kept = request
    found = {
        origin: look(of[origin], (seed, place), drawn, kept)
        for place, origin in enumerate(request.origins)
        if origin in of
    }
    return Looks(request, found)


Awaited = Callable[[], Looks]  # waits for them, raises what kept a process from taking them


def begin_look(helper: Helper, task: Task, request: Request) -> Awaited:
    """Have processes that build take the looks, one those at each sketch."""
    call = partial(helper.call, task.target, take_looks, task.dag.to_json(), task.target)
    return partial(_joined, request, [call(p, timeout=_SECONDS) for p in request.parts()])


def _joined(request: Request, taken: Sequence[Future[Looks]]) -> Looks:
    return Looks(request, {origin: k for t in taken for origin, k in t.result().found.items()})


def looks_of(awaited: Awaited | None) -> Looks:
    """None where the process failed: who asks looks for itself."""
    try:
        return Looks() if awaited is None else awaited()
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

    def begin_with(self, looks: Awaited) -> None:
        """The first suggestions wait for these."""
