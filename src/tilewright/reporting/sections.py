"""The sections of a page, one function each.

In: a `Report`.  Out: `Html`.  A section without anything to say is empty.
Read next: `task_section.py`, `page.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from tilewright.reporting.charts import roofline, sparkline, timeline
from tilewright.reporting.compare import FASTER, NOISE, SLOWER
from tilewright.reporting.markup import Html, breakable, clipped, joined, tag
from tilewright.reporting.model import Compared, Engine, Kernel, Refusal, Report, TaskPart
from tilewright.reporting.svg import bar
from tilewright.runtime.timing import show_seconds
from tilewright.search.progress import duration

FOLDED = 0.02  # of the time: rows of kernels that take less are folded
FEW_ROWS = 12  # that are never folded
MOST_ROWS = 200
HEAD = (
    ("kernel", "name"), ("calls", "n"), ("time of a call", "n"), ("share", "n"), ("GFLOP/s", "n"),
    ("GB/s", "n"), ("of roofline", "n"), ("limited by", ""), ("schedule", ""),
    ("best so far", ""),
)  # fmt: skip


def section(name: str, title: str, *children: Any) -> Html:
    return tag("section", tag("h2", title), *children, id=name)


def figures(report: Report) -> Html:
    """What matters most, in large type."""
    shown: list[tuple[str, str, str]] = []
    timed = [e for e in report.bench.engines if e.seconds] if report.bench else []
    if timed:
        ours = next((e for e in timed if e.name == "tuned"), timed[0])
        untuned, seconds = median(timed[0].seconds), median(ours.seconds)
        shown.append(("a run of the network", show_seconds(seconds), _gain(untuned, seconds)))
    for whole in report.whole[:1] if not timed else ():
        told = _gain(whole.untuned, whole.seconds)
        shown.append(("a run of the network", show_seconds(whole.seconds), told))
    known = [k for k in report.kernels if k.seconds]
    if known:
        called = any(k.calls for k in known)
        what = "sum of its kernels" if called else "sum of the best"
        if len(report.kernels) == 1:
            what = "a call"
        missing = len(report.kernels) - len(known)
        told = f"{len(known)} kernels" + (f", {missing} more unknown" if missing else "")
        shown.append((what, show_seconds(report.kernel_seconds), told))
    roofs = [(k.bound.seconds * max(k.calls, 1), k.total) for k in known if k.bound and k.total]
    if roofs:
        share = math.fsum(b for b, _ in roofs) / math.fsum(t for _, t in roofs)
        shown.append(("of the roofline", f"{share:.0%}", "weighted by time"))
    if report.trials:
        refused = f"{report.refused:,} refused" if report.refused else "none refused"
        shown.append(("trials", f"{report.trials:,}", refused))
    if report.length:
        rate = report.trials / report.length
        shown.append(("of search", duration(report.length), f"{rate:.3g} trials a second"))
    if not shown:
        return joined()
    return tag(
        "dl", (tag("div", tag("dt", name), tag("dd", value, tag("span", told, class_="of")))
               for name, value, told in shown), class_="figures",
    )  # fmt: skip


def _gain(untuned: float, seconds: float) -> str:
    if untuned == seconds:
        return "as it is untuned"
    return f"{show_seconds(untuned)} untuned, {untuned / seconds:.2f} times as fast"


def facts(report: Report) -> Html:
    listed = tag(
        "dl", (joined(tag("dt", name), tag("dd", value)) for name, value in report.facts),
        class_="facts",
    )  # fmt: skip
    again = None
    if report.commands:
        again = joined(
            tag("h3", "To do it again"), tag("pre", "\n".join(report.commands), class_="command")
        )
    told = (tag("p", note, class_="note") for note in report.notes)
    return section("about", "What was tuned, and on what", listed, again, told)


# -- kernels ---------------------------------------------------------------------------------------


def kernels(report: Report) -> Html:
    """The table, most time first; what takes little is folded."""
    rows = report.kernels[:MOST_ROWS]
    if not rows:
        return joined()
    trials = {part.number: part for part in report.tasks}
    most = max((k.share for k in rows), default=1.0) or 1.0
    first = [k for at, k in enumerate(rows) if at < FEW_ROWS or k.share >= FOLDED]
    rest = rows[len(first) :]
    folded = None
    if rest:
        share = math.fsum(k.share for k in rest)
        told = f"{len(rest)} kernels below {FOLDED:.0%} each, {share:.0%} together"
        folded = tag(
            "details", tag("summary", tag("span", told, class_="what")),
            tag("div", table(rest, trials, most), class_="inside"),
        )  # fmt: skip
    more = len(report.kernels) - len(rows)
    notes = [
        f"Share is of {report.shares_of}. " if len(rows) > 1 else "",
        "GB/s counts each input and output once. ",
        f"The roofline is {report.ceilings_told}. " if report.ceilings else
        f"There is no roofline: {report.ceilings_told}. ",
        f"{more} more kernels have no row." if more else "",
    ]  # fmt: skip
    return section(
        "kernels", "Kernels" if len(rows) > 1 else "The kernel", tag("p", *notes, class_="note"),
        table(first, trials, most), folded,
    )  # fmt: skip


def table(rows: Sequence[Kernel], trials: dict[int, TaskPart], most: float) -> Html:
    """most: the largest share, whose bar is full"""
    head = tag(
        "tr", (tag("th", name, class_=kind or None, data_sort=name != "best so far", scope="col")
               for name, kind in HEAD)
    )  # fmt: skip
    body = (_row(k, trials.get(-1 if k.task is None else k.task), most) for k in rows)
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide-table")


def _row(k: Kernel, part: TaskPart | None, most: float) -> Html:
    name: Any = breakable(k.name)
    if part is not None:
        name = tag("a", name, href=f"#task-{k.task}")
    below = [clipped(k.label)] if k.layers else []
    if len(k.layers) > 1:
        below.append("also " + ", ".join(map(clipped, k.layers[1:4])) + (
            f" and {len(k.layers) - 4} more" if len(k.layers) > 4 else ""
        ))  # fmt: skip
    roof = joined("-")
    if k.of_roof is not None:
        roof = joined(f"{k.of_roof:.0%}", bar(k.of_roof, "roofed", 52))
    return tag(
        "tr",
        tag("td", name, (tag("span", line, class_="sub") for line in below), class_="name"),
        tag("td", k.calls or "-", class_="n", data_v=k.calls),
        _cell("-" if k.seconds is None else show_seconds(k.seconds), k.seconds),
        tag("td", f"{k.share:.1%}", bar(k.share / most, "share", 52), class_="n",
            data_v=f"{k.share:.6g}"),
        _cell("-" if k.gflops is None else _rate(k.gflops), k.gflops),
        _cell("-" if k.gbytes is None else _rate(k.gbytes), k.gbytes),
        tag("td", roof, class_="n", data_v=f"{k.of_roof or 0:.6g}"),
        tag("td", k.bound.side if k.bound else "-", class_="side"),
        tag("td", k.source or "-"),
        tag("td", sparkline(part.trials) if part is not None else None),
    )  # fmt: skip


def _cell(shown: str, value: float | None) -> Html:
    return tag("td", shown, class_="n", data_v=f"{value or 0:.6g}")


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def roof(report: Report) -> Html:
    if report.ceilings is None:
        return joined()
    linked = {part.number for part in report.tasks}
    picture = roofline(
        report.kernels, report.ceilings,
        lambda k: f"#task-{k.task}" if k.task in linked else None,
    )  # fmt: skip
    if not picture:
        return joined()
    keys = (("arithmetic", "arithmetic or matrix units"), ("memory", "memory or cache"),
            ("launch", "being started"))  # fmt: skip
    legend = [joined(tag("i", class_=f"key of-{kind}"), f"{told}   ") for kind, told in keys]
    return section(
        "roofline", "Roofline",
        tag("p", "The area of a dot is its share of the time. A kernel under a slope waits for "
            "data, one under a level line for the units that compute. How far it lies below is "
            "what a better schedule could gain at most; short kernels lie low because starting one "
            "takes time, which the table counts and the picture does not. ",
            f"The lines are {report.ceilings_told}.", class_="note"),
        tag("figure", tag("div", picture, class_="scroll"),
            tag("figcaption", "Limited by: ", legend)),
    )  # fmt: skip


# -- bench, comparison -----------------------------------------------------------------------------


def engines(report: Report) -> Html:
    """What `bench` measured."""
    if report.bench is None or not report.bench.engines:
        return joined()
    timed = [e for e in report.bench.engines if e.seconds]
    base = median(timed[0].seconds) if timed else 0.0
    slowest = max((median(e.seconds) for e in timed), default=1.0)
    head = tag("tr", (tag("th", name, class_=kind, scope="col") for name, kind in
                      (("engine", "name"), ("median", "n"), ("from - to", "n"), ("speed", "n"),
                       ("note", None))))  # fmt: skip
    rows = (_engine(e, base, slowest) for e in report.bench.engines)
    return section(
        "bench", "Beside other engines",
        tag("p", f"On {report.bench.device}, in one run; speed is against the first row. ",
            report.bench.verdict, class_="note"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="wide-table"),
    )  # fmt: skip


def _engine(e: Engine, base: float, slowest: float) -> Html:
    if not e.seconds:
        dashes = (tag("td", "-", class_="n") for _ in range(3))
        return tag("tr", tag("td", e.name, class_="name"), dashes, tag("td", e.note))
    middle = median(e.seconds)
    return tag(
        "tr", tag("td", e.name, class_="name"),
        tag("td", show_seconds(middle), bar(middle / slowest, "share", 52), class_="n"),
        tag("td", f"{show_seconds(min(e.seconds))} - {show_seconds(max(e.seconds))}", class_="n"),
        tag("td", f"{base / middle:.2f}x", class_="n"), tag("td", e.note),
    )  # fmt: skip


def comparison(report: Report) -> Html:
    found = report.comparison
    if found is None:
        return joined()
    shown = found.rows[:MOST_ROWS]
    linked = {part.number for part in report.tasks}
    head = tag("tr", (tag("th", name, class_=kind, scope="col", data_sort=True) for name, kind in
                      (("kernel", "name"), ("here", "n"), ("there", "n"), ("here / there", "n"),
                       ("95% by repeats", "n"), ("verdict", None))))  # fmt: skip
    rules = (
        f"Faster or slower is said where the repeats of both exclude 1 with 95% confidence and the "
        f"difference exceeds {NOISE:.0%}, by which one kernel differs from one run of a device to "
        "the next. The best of many trials is a lucky one: small gains shrink when they are timed "
        "again."
    )
    body = (_compared(row, row.task in linked) for row in shown)
    return section(
        "against", f"Against {found.name}", tag("p", found.told),
        tag("p", rules, class_="note"),
        tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide-table")
        if shown else None,
        tag("p", f"{len(found.rows) - len(shown)} more rows are left out.", class_="note")
        if len(found.rows) > len(shown) else None,
    )  # fmt: skip


def _compared(row: Compared, is_linked: bool) -> Html:
    name: Any = breakable(row.label)
    if is_linked:
        name = tag("a", name, href=f"#task-{row.task}")
    between = "-"
    if row.low is not None and row.high is not None:
        between = f"{row.low:.3f} - {row.high:.3f}"
    kind = {FASTER: "good", SLOWER: "bad"}.get(row.verdict)
    return tag(
        "tr", tag("td", name, class_="name"),
        _cell("-" if row.here is None else show_seconds(row.here), row.here),
        _cell("-" if row.there is None else show_seconds(row.there), row.there),
        _cell("-" if row.ratio is None else f"{row.ratio:.3f}", row.ratio),
        tag("td", between, class_="n"), tag("td", row.verdict, class_=kind),
    )  # fmt: skip


# -- refusals, workers -----------------------------------------------------------------------------

MEANINGS = {
    "instantiate": "the schedule cannot be made",
    "compile": "the compiler refused it",
    "verify": "a limit of the device is exceeded",
    "run": "it did not run",
    "wrong": "its results differ from the reference",
    "timeout": "it took longer than allowed",
}


def refusals(report: Report) -> Html:
    if not report.refusals:
        return joined()
    told = (
        "Candidates that were tried and refused. Refusing is part of a search: none of these is "
        "ever used. Numbers in reasons are replaced by #."
    )
    head = tag("tr", tag("th", "refused because", scope="col"), tag("th", "times", class_="n"),
               tag("th", "reason, and one example", class_="name"))  # fmt: skip
    more = None
    if report.more_refusals:
        more = tag("p", f"{report.more_refusals} rarer reasons are left out.", class_="note")
    body = map(_refusal, report.refusals)
    return section(
        "refused", "Refused", tag("p", told, class_="note"),
        tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="wide-table"), more,
    )  # fmt: skip


def _refusal(r: Refusal) -> Html:
    example = tag(
        "details", tag("summary", tag("span", "example", class_="what")),
        tag("div", tag("p", r.label, class_="note"), tag("pre", r.example), class_="inside"),
    )  # fmt: skip
    return tag(
        "tr", tag("td", tag("i", class_=f"kind-{r.kind}"), MEANINGS[r.kind]),
        tag("td", f"{r.count:,}", class_="n"), tag("td", r.reason, example, class_="name"),
    )  # fmt: skip


def workers(report: Report) -> Html:
    picture = timeline(report.lanes, report.length)
    if not picture:
        return joined()
    devices = [lane for lane in report.lanes if lane.kind == "device"]
    builders = [lane for lane in report.lanes if lane.kind == "builder"]
    told = [f"{lane.name} was busy for {lane.busy:.0%} of the time." for lane in devices[:3]]
    if builders:
        mean = math.fsum(lane.busy for lane in builders) / len(builders)
        told.append(f"{len(builders)} processes built, for {mean:.0%} of the time each.")
    else:
        told.append("The log does not tell which process built what.")
    return section(
        "workers", "Who worked when", tag("p", " ".join(told), class_="note"),
        tag("figure", tag("div", picture, class_="scroll")),
    )  # fmt: skip
