"""`MeasureInput` and `MeasureResult`: what was tried and what came of it, by the auto-scheduler's
names; made of records, or by hand.

In: records, or a task with a state.  Out: pairs, and the records that logs take.
Read next: `measure/record.py`, `pairs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tilewright import te
from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import cached_property
from tilewright.base.doors import door
from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.measure.record import MOST_SECONDS, ErrorKind, Record, Result, make_record
from tilewright.schedule.schedule import Schedule
from tilewright.search.jobs import task_id
from tilewright.te.tensor import Tensor
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.loop_state import State, schedule_of
from tilewright_tvm.autotvm.results import ERROR_NUMBERS

BY_HAND = "by hand"  # the origin of inputs that users make
# The auto-scheduler's numbers; several of them are one kind of failure here.
KINDS: dict[int, ErrorKind] = {
    **{number: kind for kind, number in reversed(ERROR_NUMBERS.items())},
    3: "compile", 6: "timeout", 8: "run",
}  # fmt: skip


class Seconds(float):
    """A time; `.value` is the same, as TVM's numbers have it."""

    __slots__ = ()

    @property
    def value(self) -> float:
        return float(self)


def replayed(record: Record, dag: te.ComputeDAG | None) -> Schedule:
    """The measured schedule.  Raises RecordError where it cannot be made again."""
    if dag is None:
        raise no_computation(record)
    try:
        return Schedule.replay(dag, record.steps)
    except TilewrightError as error:
        raise RecordError(
            f"record of {record.task.name}", f"its steps do not apply here ({error})",
            "Tune the task again.",
        ) from None  # fmt: skip


def no_computation(record: Record) -> RecordError:
    return RecordError(
        f"record of {record.task.name}", "the log does not tell its computation for a known target",
        "Use a log that was not edited.",
    )  # fmt: skip


class MeasureInput:
    """What was measured, or is to be: a task and a state of its computation.

    record: the line of the log; of an input that is made by hand, one without a result
    dag, search_task: None where the log does not tell the computation
    """

    @door(SpaceError, "MeasureInput")
    def __init__(self, task: Computation, state: State | Schedule) -> None:
        if task.compute_dag.hash != schedule_of(state).dag.hash:
            raise SpaceError(
                "MeasureInput(task, state)", "the state is of another computation",
                "Begin with task.compute_dag.get_init_state().",
            )  # fmt: skip
        self.search_task: Computation | None = task
        self.dag: ComputeDAG | None = task.compute_dag
        steps = state.to_json()
        self.record = make_record(task_id(task.task), Result(), origin=BY_HAND, steps=steps)

    @classmethod
    def of(
        cls, record: Record, dag: ComputeDAG | None, search_task: Computation | None = None
    ) -> MeasureInput:
        """That of a record."""
        made = cls.__new__(cls)
        made.record, made.dag, made.search_task = record, dag, search_task
        return made

    @cached_property
    def state(self) -> State:
        """The schedule.  Raises RecordError where it cannot be made again."""
        return State(replayed(self.record, self.dag))

    @property
    def task(self) -> Computation:
        """The `SearchTask`.  Raises RecordError where the log does not tell it."""
        if self.search_task is None:
            raise no_computation(self.record)
        return self.search_task

    def __repr__(self) -> str:
        key = self.record.task.name if self.search_task is None else self.search_task.workload_key
        return f"MeasureInput({key} for {self.record.task.target}, {self.record.origin})"


@dataclass(frozen=True)
class MeasureResult:
    """costs: seconds per repeat, infinity for a failure; error_no: 0 for success, see ERROR_NUMBERS
    error_msg: the full text; all_cost: wall seconds; timestamp: since the epoch
    verified: the outputs were compared with the reference; only such trials are ever the best
    """

    costs: Sequence[float]
    error_no: int
    error_msg: str
    all_cost: float
    timestamp: float
    verified: bool = False

    def __post_init__(self) -> None:
        try:
            costs = tuple(Seconds(cost) for cost in self.costs)
        except (TypeError, ValueError):
            costs = ()
        if not costs or (self.error_no == 0 and not all(0 < c < MOST_SECONDS for c in costs)):
            raise RecordError(
                f"MeasureResult(costs={self.costs!r})", "not seconds of one run or more",
                "Give a list of positive numbers.",
            )  # fmt: skip
        if self.error_no and self.error_no not in KINDS:
            raise RecordError(
                f"MeasureResult(error_no={self.error_no!r})", "no such number",
                f"0 is success; failures are {', '.join(map(str, sorted(KINDS)))}.",
            )  # fmt: skip
        object.__setattr__(self, "costs", costs)

    @staticmethod
    def of(record: Record) -> MeasureResult:
        """That of a record; one with neither costs nor an error is a failure, too."""
        r = record.result
        number = 0 if r.ok else ERROR_NUMBERS[r.error or "run"]
        return MeasureResult(
            r.costs or (float("inf"),), number, r.message,
            r.build_s + r.run_s, record.timestamp, r.verified,
        )  # fmt: skip

    def __str__(self) -> str:
        costs = ",".join(f"{c:.6g}" for c in self.costs)
        return (
            f"MeasureResult(cost:[{costs}], error_no:{self.error_no}, "
            f"all_cost:{self.all_cost:.2f}, Tstamp:{self.timestamp:.2f})"
        )


@dataclass(frozen=True)
class BuildResult:
    """What a builder gives: an artefact, or error_no and error_msg.

    args: the arguments of the built function; time_cost: wall seconds
    """

    artifact: Artifact | None
    args: Sequence[Tensor]
    error_no: int
    error_msg: str
    time_cost: float


def record_of(given: MeasureInput, result: MeasureResult) -> Record:
    """The line of a log for a pair; where the result is the input's own, its line as it is."""
    known = given.record
    if known.result != Result() and MeasureResult.of(known) == result:
        return known
    if result.error_no:
        found = Result(
            error=KINDS[result.error_no], message=result.error_msg, run_s=result.all_cost
        )
    else:
        costs = tuple(float(cost) for cost in result.costs)
        found = Result(costs, run_s=result.all_cost, verified=result.verified)
    return replace(known, result=found, timestamp=float(result.timestamp))


@door(RecordError)
def recover_measure_input(inp: MeasureInput, rebuild_state: bool = False) -> MeasureInput:
    """The same with its task; rebuild_state: and with its schedule made again.

    Raises RecordError where the log does not tell the computation, or the steps do not apply.
    """
    made = MeasureInput.of(inp.record, inp.dag, inp.task)
    if rebuild_state:
        made.state.stages  # noqa: B018  # replays the steps
    return made
