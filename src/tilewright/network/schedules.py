"""Which schedule a kernel gets: `KINDS` has a row for each kind there is, preferred first.

In: what is known (`Evidence`), and a kernel's computation.  Out: choices, the preferred one first,
all of them on that very computation: a log says how to compute, never what.
Read next: `evidence.py`; `kernels.py`, which takes the first that compiles and computes the right
thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.measure.record import Record
from tilewright.network.evidence import Evidence, Log
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import (
    RegisteredAnchor,
    anchor_key,
    anchor_templates,
    find_anchor,
    sketch_of_anchor,
)
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

_RECORDS = 3  # of a kernel that are tried
_ANCHORS = 2  # records of other kernels whose template is tried on this one

# A schedule, or why there is none, or None for the default one; seconds of one call, if it is a
# record of this kernel that claims them.
Found = tuple[Schedule | str | None, float | None]


@dataclass(frozen=True)
class Kind:
    """A kind of schedule.

    name:    as reports say it
    find:    gives schedules for a computation from one place of the evidence, preferred first
    trusted: it is Tilewright's own choice: it may be built in this process, has a long deadline,
             and ships also where no device can try it.  All others ship only if they were tried
    """

    name: str
    find: Callable[[Evidence, Any, ComputeDAG, Target], Iterator[Found]]
    trusted: bool = False


@dataclass(frozen=True)
class Choice:
    """A schedule for a kernel.

    schedule: of exactly the kernel's computation; or why there is none; None: the default schedule
    seconds:  of one call, as the record claims for this kernel; what takes much longer is refused
    source:   as reports say it, usually the name of its kind
    """

    kind: Kind
    schedule: Schedule | str | None
    seconds: float | None
    source: str


def choices(evidence: Evidence, dag: ComputeDAG, target: Target) -> Iterator[Choice]:
    """Give the choices for a kernel, preferred first; the last one is the default schedule.

    Those that do not replay are among them, with the reason.
    """
    for kind, place in _places(evidence):
        source = getattr(place, "label", kind.name)
        for schedule, seconds in kind.find(evidence, place, dag, target):
            yield Choice(kind, schedule, seconds, source)


def _places(evidence: Evidence) -> Iterator[tuple[Kind, Any]]:
    """Where to look, in order, and for what."""
    for source in evidence.sources:
        log = evidence.log_of(source)
        yield (RECOMMENDED, source) if log is None else (RECORD, log)
    for log in chain(*evidence.known):
        yield KNOWLEDGE, log
    for kind in (REINSTANTIATED, PREDICTED, DEFAULT):
        yield kind, None


# -- how each kind is found ------------------------------------------------------------------------


def _recorded(evidence: Evidence, log: Log, dag: ComputeDAG, target: Target) -> Iterator[Found]:
    """The fastest records of this computation; the others are looked for when they fail."""
    keys = log.keys(dag.hash)
    bests = [best for key in keys if (best := log.database.best(key)) is not None]
    first = min(bests, key=lambda r: r.seconds, default=None)
    if first is None:
        return
    yield _replayed(log, first, dag)
    others = [r for key in keys for r in log.database.leaders(key, _RECORDS)]
    others = [r for r in others if r.candidate != first.candidate]
    for record in sorted(others, key=lambda r: r.seconds)[: _RECORDS - 1]:
        yield _replayed(log, record, dag)


def _recommended(
    evidence: Evidence, source: Any, dag: ComputeDAG, target: Target
) -> Iterator[Found]:
    """What a source says that has no records of ours."""
    found = source.lookup(dag, target)
    if found is not None:
        yield found if found.dag.hash == dag.hash else "it computes something else", None


def _reinstantiated(
    evidence: Evidence, place: None, dag: ComputeDAG, target: Target
) -> Iterator[Found]:
    """The anchor's template again, on this DAG, with the decisions of other DAGs' records."""
    templates = {t.origin: t for t in anchor_templates(dag, target)}
    anchor = find_anchor(dag)
    if not templates or anchor is None:
        return
    structure, packable = anchor_key(anchor)

    def closed() -> Iterator[Schedule]:
        for logs in (evidence.own, *evidence.known):
            usable = [
                (constant != packable, record.seconds, record)
                for constant, record in evidence.with_anchor(logs, structure)
                if record.task.dag != dag.hash and record.origin in templates
            ]
            for _, _, record in sorted(usable, key=lambda item: item[:2]):
                with suppress(TilewrightError):
                    yield _close(templates[record.origin], record.decisions, dag, target)

    yield from ((schedule, None) for schedule in islice(closed(), _ANCHORS))


def _predicted(evidence: Evidence, place: None, dag: ComputeDAG, target: Target) -> Iterator[Found]:
    """What the trees of knowledge say is the fastest of its templates."""
    found = evidence.predictions.get(dag) if evidence.predictions else None
    if found is not None:
        templates = {t.origin: t for t in anchor_templates(dag, target)}
        with suppress(TilewrightError):
            yield _close(templates[found.origin], found.decisions, dag, target), None


def _default(evidence: Evidence, place: None, dag: ComputeDAG, target: Target) -> Iterator[Found]:
    yield None, None


RECORD = Kind("record", _recorded)  # of this computation, measured on this device
RECOMMENDED = Kind("record", _recommended)  # by a log of another program, or a table of the user's
KNOWLEDGE = Kind("knowledge", _recorded)  # of this computation, on devices of the class
REINSTANTIATED = Kind("re-instantiated", _reinstantiated)  # as what has the same anchor
PREDICTED = Kind("predicted", _predicted)  # to be the fastest of a template's members
DEFAULT = Kind("default", _default, trusted=True)
KINDS = (RECORD, RECOMMENDED, KNOWLEDGE, REINSTANTIATED, PREDICTED, DEFAULT)


def _close(
    template: RegisteredAnchor, decisions: Mapping[str, Any], dag: ComputeDAG, target: Target
) -> Schedule:
    """The template's schedule of another DAG.  Raises a TilewrightError where it has none."""
    sketch = sketch_of_anchor(template, dag, target)
    return sketch.close(sketch.space.index_of(decisions))


def _replayed(log: Log, record: Record, dag: ComputeDAG) -> Found:
    try:
        return log.database.replay(record, dag), record.seconds
    except TilewrightError as error:
        return str(error), None
