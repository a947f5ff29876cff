"""The tables that commands end with: results of `bench`, contents of a log, findings of `doctor`.

In: values of the rooms below.  Out: text on standard output, plain where it is no terminal.
Read next: `app.py`.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.base.text import printable
from tilewright.runtime.timing import show_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from tilewright.driver.doctor import Finding
    from tilewright.front import Network
    from tilewright.measure.database import Database
    from tilewright.measure.importing import ImportReport
    from tilewright.measure.record import TaskId
    from tilewright.runtime.network.report import Accuracy

_FIGURES = {
    "GFLOP/s", "best", "calls", "count", "failed", "lines", "mean", "median", "records", "share",
    "speed", "std", "tasks", "time", "trials learned from",
}  # fmt: skip
_WORDS = {"layer", "of peak", "schedule"}  # which are short, and stay in one piece
_ONE_LINE = ("kernel",)  # texts that end in dots where there is no room
_LEAST_LINE = 24  # characters of such a text
_LEAST_TEXT = 6  # characters of a column of text, below which nobody reads it
_WIDTH = 120  # of a table where no terminal and no COLUMNS says one


@dataclass(frozen=True)
class Latency:
    """One engine's times for the whole network; seconds: one entry per repeat.

    note: why there are none, or what the engine did ("2 threads")
    """

    engine: str
    seconds: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class KernelLine:
    """One kernel of the network as it was built, or what kernels leave of a run.

    source: "record", "knowledge", "re-instantiated", "predicted" or "default"; seconds: of one
            call, alone
    share:  of a run, "12.5%"; layers: whose they are, "conv1 +2"; of_peak: how near it is to what
            the device's limits allow, "71% memory"
    """

    name: str
    calls: int
    flop: float
    source: str
    seconds: float | None = None
    share: str = ""
    layers: str = ""
    of_peak: str = ""


@dataclass(frozen=True)
class BenchReport:
    """What `bench` found.

    largest_error:  |ours - reference| by its tolerance, at most 1 when all is right
    relative_error: the same by the largest output
    network: that was built, in the type and layout that were asked for
    timed:   of its kernels, by the key of what they compute: seconds of a call alone, and where the
             schedule is from
    accuracy: what narrow weights cost, where there are any
    movement: of what runs, the part of kernels that only move elements, and which those are
    """

    model: str
    target: str
    device: str
    latencies: Sequence[Latency]
    kernels: Sequence[KernelLine]
    largest_error: float
    relative_error: float
    reference: str = "an independent reference"
    network: Network | None = None
    timed: Mapping[str, tuple[float | None, str]] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    movement: Sequence[str] = ()

    @property
    def correct(self) -> bool:
        return self.largest_error <= 1.0


def print_bench(report: BenchReport, console: Console | None = None) -> None:
    """Latencies, a row per task, the largest error."""
    console = console or _console()
    rows: list[tuple[str, ...]] = []
    base = next((statistics.median(x.seconds) for x in report.latencies if x.seconds), None)
    for x in report.latencies:
        if not x.seconds:
            rows.append((x.engine, "-", "-", "-", "-", x.note))
            continue
        median = statistics.median(x.seconds)
        figures = (statistics.fmean(x.seconds), median, statistics.pstdev(x.seconds))
        speed = f"{base / median:.2f}x" if base else "-"
        rows.append((x.engine, *map(show_seconds, figures), speed, x.note))
    title = f"{report.model} on {report.device} ({report.target})"
    _print(console, title, ("engine", "mean", "median", "std", "speed", "note"), rows)
    if report.kernels:
        head = ("share", "time", "calls", "GFLOP/s", "of peak", "schedule", "layer", "kernel")
        each = [_kernel_row(k) for k in report.kernels]
        kept = [c for c, name in enumerate(head) if name == "kernel" or any(row[c] for row in each)]
        _print(
            console, "kernels, each alone", [head[c] for c in kept],
            [[row[c] for c in kept] for row in each],
        )  # fmt: skip
    for line in report.movement:
        console.print(line, highlight=False)
    verdict = "within" if report.correct else "BEYOND"
    console.print(
        f"largest error against {report.reference}: {report.relative_error:.2e} of the "
        f"largest output, {report.largest_error:.2f} of the tolerance ({verdict} it)"
    )
    if report.accuracy is not None:
        console.print(str(report.accuracy))


def _kernel_row(k: KernelLine) -> tuple[str, ...]:
    said = (k.of_peak, k.source, k.layers, k.name)
    calls = str(k.calls) if k.calls else ""
    if k.seconds is None:
        return k.share, "-", calls, "-", *said
    taken = k.seconds * max(k.calls, 1)
    sign = "-" if taken < 0 else ""
    rate = f"{k.flop / k.seconds * 1e-9:.1f}" if k.flop and k.seconds else ""
    return k.share, sign + show_seconds(abs(taken)), calls, rate, *said


def print_records(
    database: Database, most_failures: int = 12, console: Console | None = None
) -> None:
    """Best record per task, counts, why candidates failed, lines that could not be read."""
    from tilewright.measure.record import layers_told
    from tilewright.runtime.network.profile import layers_text

    console = console or _console()
    counts = database.counts()
    console.print(
        f"{counts.records} records of {counts.tasks} tasks: {counts.ok} measured, "
        f"{counts.failed} failed"
    )
    for skipped in database.skipped.told():
        console.print(f"skipped {skipped}", markup=False, highlight=False)
    if not counts.records:
        return
    head = ("task", "target", "records", "failed", "best", "GFLOP/s", "by", "layer")
    layers = layers_told(database.runs)
    rows = [(*_task_row(database, t), layers_text(layers.get(t.dag, ()))) for t in database.tasks()]
    kept = len(head) - (not any(row[-1] for row in rows))
    _print(console, "best per task", head[:kept], [row[:kept] for row in rows])
    failures = database.failures()
    if not failures:
        return
    told: list[tuple[str, ...]] = [
        (f.kind, str(f.count), f.reason) for f in failures[:most_failures]
    ]
    rest = failures[most_failures:]
    if rest:
        told.append(("...", str(sum(f.count for f in rest)), f"{len(rest)} more reasons"))
    _print(console, "failures", ("kind", "count", "reason"), told)


def print_knowledge(
    head: Sequence[str], rows: Sequence[tuple[str, ...]], console: Console | None = None
) -> None:
    """What was published, or which folders are in force."""
    _print(console or _console(), "knowledge", head, rows)


def print_import(report: ImportReport, console: Console | None = None) -> None:
    """What came out of an old log: records per task, unusable lines by reason."""
    from tilewright.measure.lines import numbered
    from tilewright.measure.record import task_label

    console = console or _console()
    imported = report.imported.total()
    known = f", {report.known} known already" if report.known else ""
    console.print(
        f"{report.lines} lines: {imported} imported{known}, {report.unusable.total()} unusable"
    )
    if imported:
        tasks = [(report.tasks[key], n) for key, n in report.imported.most_common()]
        named = [(task_label(task), task.target, str(n)) for task, n in tasks]
        _print(console, "imported", ("task", "target", "records"), named)
    if report.unusable:
        rows = [
            (reason, str(n), numbered(report.unusable.lines.get(reason, ()), n))
            for reason, n in report.unusable.most_common()
        ]
        _print(console, "unusable", ("reason", "lines", "numbers"), rows)


def _task_row(database: Database, task: TaskId) -> tuple[str, ...]:
    from tilewright.measure.record import task_label

    records, failed = database.tally(task)
    best = database.best(task)
    head = (task_label(task), task.target, str(records), str(failed))
    if best is None:
        return (*head, "-", "-", "-")
    flop = _flop(database, task)
    rate = f"{flop / best.seconds * 1e-9:.1f}" if flop else "-"
    return (*head, show_seconds(best.seconds), rate, best.origin)


def _flop(database: Database, task: TaskId) -> float | None:
    """From the computation in the log, where it is there and this version can read it."""
    dag = database.computation(task.dag)
    return None if dag is None else dag.flop_ct


def print_findings(findings: Iterable[Finding], console: Console | None = None) -> None:
    """One line per device and compiler, with the way out below those that do not work."""
    console = console or _console()
    for f in findings:
        mark = "[green]ok[/] " if f.works else "[red]NO[/] "
        console.print(mark, end="")
        console.print(f"{f.what}: {f.detail}", markup=False, highlight=False, soft_wrap=True)
        if f.way_out and not f.works:
            console.print(f"   {f.way_out}", markup=False, highlight=False, soft_wrap=True)


def _print(
    console: Console, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in rows]
    if _least_width(head, rows) > console.width:
        _print_blocks(console, title, head, rows)
        return
    narrow = console.width < _WIDTH
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=not narrow,
        padding=(0, 0 if narrow else 1),
    )  # fmt: skip
    gap = 1 if narrow else 3
    widths = map(max, zip(*([len(t) + gap for t in row] for row in (head, *rows)), strict=True))
    rest = sum(w for w, name in zip(widths, head, strict=True) if name not in _ONE_LINE) + gap
    for name in head:
        if name in _FIGURES:
            table.add_column(name, justify="right", no_wrap=True)  # a figure in parts misleads
        elif name in _WORDS:
            table.add_column(name, no_wrap=True)
        elif name in _ONE_LINE:
            most = max(console.width - rest, _LEAST_LINE)
            table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=most)
        else:
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _least_width(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Of a table whose figures are in one piece and whose text can still be read."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return len(head) + sum(
        width
        if name in _FIGURES | _WORDS
        else min(width, _LEAST_LINE if name in _ONE_LINE else _LEAST_TEXT)
        for name, width in zip(head, widths, strict=True)
    )


def _print_blocks(
    console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """A row a block, a cell a line."""
    width = max(map(len, head))
    lines = [title]
    for row in rows:
        cells = zip(head[1:], row[1:], strict=True)
        lines += ["", row[0], *(f"  {name:<{width}}  {cell}" for name, cell in cells if cell)]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    console.print()


def _console() -> Console:
    """As wide as COLUMNS says, or the terminal, which may be behind a pager."""
    from rich.console import Console

    told = shutil.get_terminal_size((0, 0)).columns  # COLUMNS, or the terminal of this output
    return Console() if told or _has_terminal() else Console(width=_WIDTH)


def _has_terminal() -> bool:
    """Whether this process has one, for any of its streams: the console asks all of them."""
    return any(map(os.isatty, range(3)))
