"""What a search begins with: trees, and schedules of these very computations, from knowledge.

In: a target as its device is.  Out: `Known`.  A folder that cannot be used costs a message, never
the search.  Read next: `knowledge/store.py`, `loop.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tilewright import knowledge
from tilewright.base.errors import TilewrightError
from tilewright.cost.features import FEATURES
from tilewright.knowledge.trees import Trees
from tilewright.measure.database import Database
from tilewright.measure.record import Key
from tilewright.schedule.task import Task
from tilewright.search.imported import Replays, first_candidates
from tilewright.search.propose.proposers import Candidate
from tilewright.targets.target import Target

_MOST = 2  # of a folder, for each task


@dataclass
class Known:
    """messages: why something of it is not used"""

    trees: Trees | None = None
    databases: list[Database] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

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


def recalled(target: Target) -> Known:
    """What knowledge holds for devices like the target's."""
    found = Known()
    try:
        found.databases = [database for of in knowledge.records(target) for database in of]
        found.trees = knowledge.trees(target)
    except TilewrightError as error:
        found.messages.append(f"Knowledge is left out: {error}")
    if found.trees is not None and found.trees.features != tuple(FEATURES):
        found.trees = None
        found.messages.append(
            "The trees of knowledge are of a version with other features: they are left out."
        )
    return found
