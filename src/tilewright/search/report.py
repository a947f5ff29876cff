"""What a search is told and what it tells: options, events, reports.

In: a user's wishes.  Out: `Options` for the loop; `Event`s and a `Report` from it.
Read next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.base.errors import SearchError
from tilewright.measure.record import Record
from tilewright.schedule.task import Task
from tilewright.search.gradient import Gradient

# By whether kernels run on the processor that builds:
BATCH = {True: 8, False: 16}  # proposals at once
AHEAD = {True: 2, False: 5}  # batches on their way: a device of its own must not wait for compilers
# Several devices take more at once: a proposal takes 25 ms of a core in a batch of 16, 16 ms in one
# of 32, 11 ms in one of 64, so that one proposer keeps up with them, and learns later for it.
MOST_BATCH = 64
MAX_FRUITLESS = 4  # batches without one success before a task is given up
NEGLIGIBLE = 1e-5  # of all tasks' time: a thousand more trials would save one percent at most


@dataclass(frozen=True)
class Options:
    """trials, seconds: the budget, whichever ends first (None: no limit); trials count new ones
    early_stopping: a task ends after so many trials without improvement
    patience: the run ends after so many trials without an improvement of any task
    tuner:   one of `propose.named.tuners()`
    plan:    results between fits of the model that tasks share; 0: by how many there are
    order:   who is next: "gain", the task with the greatest predicted gain, or "turns"
    batch:   proposals made at once; ahead: proposals on their way at most; 0: by the devices
    batch_most: of a batch by the devices; 0: no limit.  With neither said, each of many tasks tries
                nothing but what would run untuned before all have
    leaders: of each task, timed again in turn at the end
    negligible:  the run ends when the next trial is predicted to save less than this share of what
                 all tasks take, whichever task it goes to; 0: never
    fruitless:   a task is given up after so many batches without one success; 0: never
    lost_seconds: how long to wait for a device, space or memory that is lost in mid-search
    objective: what is to be made small: of the seconds of all tasks, in order; None: their
               weighted sum
    unverified: what a measurer did not verify may be the best of its task, too
    knowledge: begin with what is known of devices of this class; see `tilewright.knowledge`
    gradient:  Ansor's prediction decides what "gain" means; None: the search's own
    """

    trials: int | None = None
    seconds: float | None = None
    early_stopping: int | None = None
    patience: int | None = None
    tuner: str = "xgb"
    order: str = "gain"
    seed: int = 0
    batch: int = 0
    plan: int = 0
    ahead: int = 0
    batch_most: int = 0
    leaders: int = 3
    negligible: float = NEGLIGIBLE
    fruitless: int = MAX_FRUITLESS
    lost_seconds: float = 60.0
    objective: Callable[[Sequence[float]], float] | None = None
    gradient: Gradient | None = None
    unverified: bool = False
    knowledge: bool = True

    def sizes(self, shares_host: bool, devices: int = 1) -> tuple[int, int]:
        """Batch and look-ahead: what is proposed meanwhile, and two trials for each device."""
        most = self.batch_most or MOST_BATCH
        batch = self.batch or min(BATCH[shares_host] * devices, MOST_BATCH, most)
        waiting = (AHEAD[shares_host] - 1) * min(batch, self.batch or BATCH[shares_host])
        return batch, max(self.ahead or batch + max(waiting, 2 * devices), batch)


@dataclass(frozen=True)
class Event:
    """kind: "start" (of a task), "trial", "fit" (of the model), "exhausted", "stopped",
    "fruitless", "final"; with a message for the user: "imported" (what is tried first),
    "paused" and "resumed" (the device was lost, or space or memory), "converged" (nothing is left
    to gain), "leaders" (they are timed again: a "final" for each, which is no trial)

    task: its position in the list given; record: of a trial; best: seconds of the task's best
    trial: results consumed so far in all; elapsed: seconds since the start
    improved: the trial set a record
    """

    kind: str
    task: int
    trial: int
    elapsed: float
    record: Record | None = None
    best: float | None = None
    improved: bool = False
    correlation: float | None = None
    message: str = ""


@dataclass
class TaskReport:
    """What is known of a task: of earlier runs (`known`), of this one (`trials`, `failed`).

    best: the fastest verified record, of any run
    exhausted: there was nothing left to propose; stopped: early stopping ended it
    fruitless: it was given up without one success, and keeps its default; failure: the last one
    """

    task: Task
    known: int = 0
    trials: int = 0
    failed: int = 0
    best: Record | None = None
    exhausted: bool = False
    stopped: bool = False
    fruitless: bool = False
    failure: str = ""

    @property
    def best_seconds(self) -> float | None:
        return None if self.best is None else self.best.seconds


@dataclass
class Report:
    """interrupted: by Ctrl-C; correlation: of the model, see `CostModel.correlation`
    converged: it ended before its budget, because no task was predicted to gain anything
    """

    tasks: list[TaskReport] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False
    converged: bool = False
    correlation: float | None = None

    @property
    def trials(self) -> int:
        return sum(t.trials for t in self.tasks)

    def check(self) -> None:
        """Raises SearchError where every trial of the run failed, and nothing is known from before:
        that is hardly the fault of all candidates."""
        tried = [t for t in self.tasks if t.trials]
        if not tried or any(t.best or t.failed < t.trials for t in self.tasks):
            return
        raise SearchError(
            f"search of {len(self.tasks)} task{'s' * (len(self.tasks) > 1)}",
            f"none of {self.trials} trials succeeded; the last failed with {tried[-1].failure}",
            "Where the reason does not tell what is wrong, `tilewright doctor` may.",
        )
