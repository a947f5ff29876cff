"""A report as Markdown, for pull requests and issues, and its table as CSV.

In: a `Report`.  Out: text.  Names stand in code spans, in which nothing is markup.
Read next: `page.py`, which says more.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tilewright.base.text import printable
from tilewright.reporting.compare import FASTER, SLOWER
from tilewright.reporting.model import Kernel, Report
from tilewright.reporting.sections import MEANINGS
from tilewright.runtime.timing import show_seconds

BEGIN = "# Tilewright report: "
ROWS, REASONS, CHANGES = 15, 8, 20
COLUMNS = (
    "kernel", "workload", "calls", "seconds of a call", "share", "GFLOP/s", "GB/s", "of roofline",
    "limited by", "schedule", "trials", "refused",
)  # fmt: skip
_LONGEST = 90


def markdown(report: Report) -> str:
    """The head, the kernels that take most, what changed against another log, what was refused."""
    lines = [BEGIN + code(report.title), ""]
    lines += [f"- {name}: {code(value)}" for name, value in report.facts if name != "seeds"]
    for whole in report.whole:
        gain = f"{whole.untuned / whole.seconds:.2f} times as fast"
        lines.append(
            f"- network: {show_seconds(whole.seconds)} a run, {show_seconds(whole.untuned)} "
            f"untuned: {gain}"
        )
    lines += _engines(report)
    shown = report.kernels[:ROWS]
    if shown:
        head = (
            "kernel",
            "calls",
            "time",
            "share",
            "GFLOP/s",
            "of roofline",
            "limited by",
            "schedule",
        )
        lines += ["", *_table(head, "lrrrrrll", map(_row, shown))]
    rest = report.kernels[len(shown) :]
    if rest:
        share = sum(k.share for k in rest)
        lines += ["", f"{len(rest)} more kernels take {share:.0%} together."]
    if report.ceilings is not None:
        lines += ["", f"The roofline is {report.ceilings_told}."]
    lines += _comparison(report)
    if report.refusals:
        lines += ["", "Refused candidates, none of which is used:", ""]
        rows = [
            (MEANINGS[r.kind], f"{r.count:,}", code(r.reason)) for r in report.refusals[:REASONS]
        ]
        lines += _table(("because", "times", "reason"), "lrl", rows)
    lines += [f"\n{printable(note)}" for note in report.notes]
    return "\n".join(lines) + "\n"


def _engines(report: Report) -> list[str]:
    if report.bench is None:
        return []
    from statistics import median

    rows = [
        (code(e.name), show_seconds(median(e.seconds)) if e.seconds else "-", code(e.note))
        for e in report.bench.engines
    ]
    return ["", *_table(("engine", "median", "note"), "lrl", rows)]


def _comparison(report: Report) -> list[str]:
    found = report.comparison
    if found is None:
        return []
    lines = ["", f"Against {code(found.name)}: {found.told}"]
    rows = [
        (code(r.label), show_seconds(r.here or 0.0), show_seconds(r.there or 0.0),
         f"{r.ratio:.3f}", r.verdict)
        for r in found.rows if r.verdict in (FASTER, SLOWER) and r.ratio
    ]  # fmt: skip
    if rows:
        head = ("kernel", "here", "there", "here / there", "verdict")
        lines += ["", *_table(head, "lrrrl", rows[:CHANGES])]
    if len(rows) > CHANGES:
        lines += ["", f"{len(rows) - CHANGES} more differ."]
    return lines


def _row(k: Kernel) -> tuple[str, ...]:
    return (
        code(k.name), str(k.calls or "-"), "-" if k.seconds is None else show_seconds(k.seconds),
        f"{k.share:.1%}", "-" if k.gflops is None else f"{k.gflops:,.1f}",
        "-" if k.of_roof is None else f"{k.of_roof:.0%}", k.bound.side if k.bound else "-",
        code(k.source or "-"),
    )  # fmt: skip


def _table(head: Sequence[str], sides: str, rows: object) -> list[str]:
    rule = "|".join("---:" if side == "r" else "---" for side in sides)
    assert hasattr(rows, "__iter__")
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def code(text: str) -> str:
    """As a code span of one line, in a table too."""
    flat = " ".join(printable(text).split()).replace("`", "'").replace("|", "\\|")
    if len(flat) > _LONGEST:
        flat = f"{flat[:_LONGEST]}…"
    return f"`{flat}`" if flat else ""


def table(report: Report) -> str:
    """The kernels as CSV, under a line of names; all of them, with figures in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for k in report.kernels:
        writer.writerow([
            _text(k.name), _text(k.label), k.calls or "", _figure(k.seconds), f"{k.share:.6f}",
            _figure(k.gflops), _figure(k.gbytes), _figure(k.of_roof),
            k.bound.side if k.bound else "", _text(k.source), k.trials, k.refused,
        ])  # fmt: skip
    return out.getvalue()


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _text(text: str) -> str:
    """Spreadsheets take what begins with such a sign for a formula."""
    told = printable(text)
    return f"'{told}" if told.startswith(("=", "+", "-", "@", "\t")) else told
