"""What another program measured, as candidates to try here first.

In: a task, records that `measure/importing.py` made.  Out: candidates, the fastest there first, and
why others are of no use here.  A record of a template becomes a member of that template's sketch;
any other is replayed by its steps, as a sketch with nothing open.  Read next: `loop.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.record import Record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.task import Task
from tilewright.schedule.tree.legality import REASONS
from tilewright.search.propose.proposers import Candidate

REPLAY = "replay:"  # origin of what was measured here by the steps of an imported record
MOST = 8  # of a task, at the start of a run
LOOKED_AT = 64


class Replays:
    """Candidates of a task that are lists of steps; equal steps give equal candidates."""

    def __init__(self, task: Task, database: Database) -> None:
        self.task, self.database = task, database
        self._made: dict[bytes, Candidate] = {}

    def candidate(self, record: Record) -> Candidate:
        """Raises a TilewrightError where the steps do not fit the computation."""
        key = bytes(record.steps_json)
        if key not in self._made:
            closed = self.database.replay(record, self.task.dag)

            def build(config: Any) -> Schedule:
                return Schedule.replay(closed.dag, closed.steps)

            origin = REPLAY + record.origin.partition(":")[2]
            sketch = Sketch(origin, closed.dag, ConfigSpace(), build, self.task.target)
            self._made[key] = Candidate(sketch, 0)
        return self._made[key]


def imports(database: Database) -> dict[str, list[Record]]:
    """Imported records by the hash of their computation."""
    found: dict[str, list[Record]] = {}
    for record in database:
        if record.is_imported:
            found.setdefault(record.task.dag, []).append(record)
    return found


def first_candidates(
    task: Task, records: Sequence[Record], known: Collection[Candidate], replays: Replays
) -> tuple[list[Candidate], Counter[str]]:
    """The best of `records` that are legal here and not among `known`; reasons against others.

    Those filed under the task's own target go before those of other targets of its kind.
    """
    target = str(task.target)
    usable = [r for r in records if r.task.target.strip().partition(" ")[0] == task.target.kind]
    chosen: dict[Candidate, None] = {}
    refused: Counter[str] = Counter()
    for record in sorted(usable, key=lambda r: (r.task.target != target, r.seconds))[:LOOKED_AT]:
        if len(chosen) == MOST:
            break
        try:
            candidate = member(task, record) or replays.candidate(record)
        except TilewrightError as error:
            refused[error.reason] += 1
            continue
        if candidate in known or candidate in chosen:
            continue
        reasons = candidate.sketch.explain(candidate.index)
        if reasons:
            refused[REASONS.get(reasons[0], reasons[0])] += 1
        else:
            chosen[candidate] = None
    return list(chosen), refused


def member(task: Task, record: Record) -> Candidate | None:
    """By its decisions, in the sketch of its template or in one that gives the same steps."""
    decisions = record.decisions
    for sketch in task.sketches:
        knobs = sketch.space.space_map
        needed = {name for name, knob in knobs.items() if knob.absent is None}
        if not decisions or not needed <= set(decisions) <= set(knobs):
            continue
        try:
            index = sketch.space.index_of(decisions)
            named = sketch.origin in (record.origin, f"template:{record.task.name}")
            if named or sketch.close(index).to_json() == record.steps:
                return Candidate(sketch, index)
        except TilewrightError:
            continue
    return None
