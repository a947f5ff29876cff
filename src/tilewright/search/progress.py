"""What a user sees while a network is tuned: a live table, or lines where there is no terminal.

In: the tasks, then each `Record` as it arrives.  Out: best times, failures, the network's estimated
latency, elapsed and remaining time.  It draws only when called, never while a kernel is timed.
Read next: `report.py`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from tilewright.base.terminal import say
from tilewright.base.text import printable
from tilewright.runtime.network.profile import layers_text
from tilewright.runtime.timing import show_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from tilewright.measure.record import Record

# Of the best seconds of tasks by their keys: seconds of a run, and of these each task's part.
Estimate = Callable[[Mapping[str, float]], tuple[float, dict[str, float]]]

_REDRAW_SECONDS = 0.25
_LINE_SECONDS = 10.0


@dataclass
class TaskRow:
    """One task: what it is, and what has been found.

    weight: how often the network calls it; flop: of one call
    trials, failed: measured so far in all runs of this log
    family: what implementations of one thing share, of which the network runs the fastest
    key: of its records
    layers: of the model, that it computes
    """

    name: str
    weight: int
    flop: float
    trials: int = 0
    failed: int = 0
    best_seconds: float | None = None
    family: str = ""
    key: str = ""
    layers: tuple[str, ...] = ()

    @property
    def gflops(self) -> float | None:
        """Billions of operations per second of the best; None before there is one."""
        return self.flop / self.best_seconds * 1e-9 if self.best_seconds else None


class Progress:
    """A context manager; call `start` with the tasks, then `record` for each result.

    trials, seconds: the budget, either or both
    stream:          where to write, default standard output
    what:            the tasks are of
    Set `estimate` to have the network's latency from it, and `untuned` to have it compared with
    that: seconds of a run.  Without an estimate there is but the sum of the tasks.
    """

    def __init__(
        self,
        trials: int | None = None,
        seconds: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        what: str = "network",
    ) -> None:
        self.trials, self.seconds, self.what = trials, seconds, what
        self.rows: list[TaskRow] = []
        self.estimate: Estimate | None = None
        self.untuned: float | None = None
        self._confirmed: float | None = None
        self.done = self.failed = self.timed_again = 0
        self._stream = stream or sys.stdout
        self._clock = clock
        self._began = self._drawn = clock()
        self._live: Any = None

    def __enter__(self) -> Progress:
        self._began = self._drawn = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._on_display(lambda live: (live.update(self.table(), refresh=True), live.stop()))
            self._live = None
        elif self.rows:
            self._say(self.line())

    def start(self, rows: Sequence[TaskRow]) -> None:
        """The tasks of the network, with what an earlier run found for them."""
        self.rows = list(rows)
        if self._stream.isatty():
            self._live = self._start_live()

    def record(self, index: int, record: Record) -> None:
        """A candidate of task `index` was measured."""
        row, failed = self.rows[index], record.result.error is not None
        self.done += 1
        self.failed += failed
        row.trials += 1
        row.failed += failed
        if record.result.verified and record.seconds < (row.best_seconds or float("inf")):
            row.best_seconds = record.seconds
        self.redraw()

    def again(self) -> None:
        """A leader was timed again, which is no trial."""
        self.timed_again += 1
        self.redraw()

    def settle(self, best_seconds: Sequence[float | None]) -> None:
        """What the log says of each task in the end: leaders count with their last timing.

        Of a search that was interrupted early, the last tasks may be missing.
        """
        for row, seconds in zip(self.rows, best_seconds, strict=False):
            row.best_seconds = seconds or row.best_seconds

    def confirmed(self, seconds: float, untuned: float | None = None) -> None:
        """The network was run: this is what it takes, and what it took untuned in turn with it."""
        self._confirmed, self.untuned = seconds, untuned

    def redraw(self) -> None:
        now = self._clock()
        pause = _REDRAW_SECONDS if self._live is not None else _LINE_SECONDS
        if now - self._drawn < pause:
            return
        self._drawn = now
        if self._live is not None:
            self._on_display(lambda live: live.update(self.table(), refresh=True))
        else:
            self._say(self.line())

    def note(self, text: str) -> None:
        """A line that stays, above the table."""
        if self._live is not None:
            self._on_display(lambda live: live.console.print(text, highlight=False, markup=False))
        else:
            self._say(text)

    @property
    def elapsed(self) -> float:
        return self._clock() - self._began

    @property
    def remaining(self) -> float | None:
        """Seconds to the end by whichever budget ends first; None where nothing tells."""
        left = []
        if self.seconds is not None:
            left.append(max(self.seconds - self.elapsed, 0.0))
        if self.trials is not None and self.done:
            left.append(self.elapsed / self.done * max(self.trials - self.done, 0))
        return min(left, default=None)

    def network_seconds(self) -> tuple[float, int]:
        """Of a run of the network, and how many tasks it leaves out that have no result yet."""
        if self._confirmed is not None:
            return self._confirmed, 0
        if self.estimate is not None:
            return self._estimated()[0], 0
        families = {self._family(row) for row in self.rows}
        chosen = self.chosen()
        known = [r.weight * r.best_seconds for r in chosen if r.best_seconds is not None]
        return sum(known), len(families) - len(known)

    def _estimated(self) -> tuple[float, dict[str, float]]:
        assert self.estimate is not None
        return self.estimate(
            {row.key: row.best_seconds for row in self.rows if row.best_seconds is not None}
        )

    def parts(self) -> dict[int, float]:
        """By the `id` of its row, seconds of a run that each task takes which is in it."""
        if self.estimate is None:
            return {id(r): r.weight * (r.best_seconds or 0.0) for r in self.chosen()}
        found = self._estimated()[1]
        return {id(row): found[row.key] for row in self.rows if row.key in found}

    def chosen(self) -> list[TaskRow]:
        """The fastest measured implementation of each task."""
        best: dict[object, TaskRow] = {}
        for row in self.rows:
            if row.best_seconds is not None:
                known = best.get(self._family(row), row)
                assert known.best_seconds is not None
                faster = row.best_seconds < known.best_seconds
                best[self._family(row)] = row if faster else known
        return list(best.values())

    @staticmethod
    def _family(row: TaskRow) -> object:
        return row.family or id(row)

    def line(self) -> str:
        of = f"/{self.trials}" if self.trials is not None else ""
        again = f"  timed again {self.timed_again}" if self.timed_again else ""
        return (
            f"{duration(self.elapsed)}  trials {self.done}{of}  failed {self.failed}{again}  "
            f"{self._network()}  left {self._left()}"
        )

    def table(self) -> Table:
        """The table that is shown live."""
        from rich.table import Table
        from rich.text import Text

        table = Table(caption=self.line(), caption_justify="left", expand=False)
        named = any(row.layers for row in self.rows)
        if named:
            table.add_column("layer", max_width=32)
        table.add_column("task", max_width=72)  # the one that gives way on a narrow terminal
        for column in ("calls", "trials", "failed", "best", "GFLOP/s", "share"):
            table.add_column(column, justify="right", no_wrap=True)
        total, _ = self.network_seconds()
        parts = self.parts()
        for row in self.rows:
            best, share = "-", "-"
            if row.best_seconds is not None:
                best = show_seconds(row.best_seconds)
                part = parts.get(id(row), 0.0) / total
                share = f"{part:.0%}" if part else "-"
            rate = "-" if row.gflops is None else f"{row.gflops:.1f}"
            texts = [layers_text(row.layers), row.name] if named else [row.name]
            table.add_row(
                *(Text(printable(t), no_wrap=True, overflow="ellipsis") for t in texts),
                str(row.weight), str(row.trials), str(row.failed), best, rate, share,
            )  # fmt: skip
        return table

    def _network(self) -> str:
        total, missing = self.network_seconds()
        summed = self.estimate is None and self._confirmed is None
        what = "all tasks" if summed and self.what == "network" else self.what
        if summed and not self.chosen():
            return f"{what} -"
        tasks = "task" if missing == 1 else "tasks"
        rest = f" + {missing} {tasks} without a result" if missing else ""
        gain = f", {self.untuned / total:.2f}x as fast as untuned" if self.untuned else ""
        return f"{what} {show_seconds(total)}{rest}{gain}"

    def _left(self) -> str:
        left = self.remaining
        return "-" if left is None else duration(left)

    def _say(self, text: str) -> None:
        say(text, stream=self._stream)

    def _on_display(self, draw: Callable[[Any], object]) -> None:
        """A terminal that is gone ends the display, not the search."""
        try:
            draw(self._live)
        except (OSError, ValueError):
            self._live = None

    def _start_live(self) -> Any:
        from rich.console import Console
        from rich.live import Live

        live = Live(self.table(), console=Console(file=self._stream), auto_refresh=False)
        live.start(refresh=True)
        return live


def duration(seconds: float) -> str:
    """`4:05`, `1:02:03`."""
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
