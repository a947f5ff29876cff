"""What a search found, as those see it who called it: `Tuned`.

In: a log, a report.  Out: text, the best schedules.  Read next: `../front.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import RecordError
from tilewright.measure.database import Database
from tilewright.measure.record import NetworkLine, task_label
from tilewright.runtime.network.profile import layers_text
from tilewright.runtime.timing import show_seconds
from tilewright.schedule.schedule import Schedule
from tilewright.search.progress import duration
from tilewright.search.report import Report, TaskReport


@dataclass(frozen=True)
class Tuned:
    """What a search found; printable.

    log:      the file that holds every result; None: none was written
    report:   tasks with their best records, trials, wall seconds
    networks: how the network is fastest as a whole, for each set of input shapes
    """

    log: Path | None
    report: Report
    networks: tuple[NetworkLine, ...] = ()

    @property
    def trials(self) -> int:
        """How many candidates were measured now."""
        return self.report.trials

    @property
    def best_seconds(self) -> tuple[float | None, ...]:
        """Of one call of each task, as fast as any run found it; None where nothing was valid."""
        return tuple(told.best_seconds for told in self.report.tasks)

    def schedule(self, task: int = 0) -> Schedule:
        """Give the best schedule of a task, by its number: printing it shows its loops,
        `to_python()` gives it as calls, `build` takes it.

        Raises RecordError where nothing valid was found.
        """
        told = self.report.tasks[task]
        if told.best is None:
            raise RecordError(
                f"task {task_label(told.task)}", "no candidate was valid", "Tune it for longer."
            )
        database = Database() if self.log is None else Database.load(self.log)
        return database.replay(told.best, told.task.dag)

    def __str__(self) -> str:
        report = self.report
        failed = sum(told.failed for told in report.tasks)
        where = "" if self.log is None else f"; the results are in {self.log}"
        rows = [("calls", "trials", "best", "GFLOP/s", "task"), *map(_row, report.tasks)]
        widths = [max(len(row[c]) for row in rows) for c in range(4)]
        lines = [
            "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=False))
            + f"  {row[4]}"
            for row in rows
        ]
        whole = [
            f"network: {show_seconds(line.seconds)} a run, {show_seconds(line.untuned_seconds)} "
            "untuned"
            for line in self.networks
        ]
        head = f"{report.trials} trials in {duration(report.seconds)}, {failed} failed{where}"
        return "\n".join([head, *lines, *whole])


def _row(told: TaskReport) -> tuple[str, str, str, str, str]:
    best = told.best_seconds
    time = "-" if best is None else show_seconds(best)
    rate = "-" if not best else f"{told.task.flop / best * 1e-9:.1f}"
    trials = str(told.known + told.trials)
    named = "  ".join(filter(None, (layers_text(told.task.layers), task_label(told.task))))
    return str(told.task.weight), trials, time, rate, named
