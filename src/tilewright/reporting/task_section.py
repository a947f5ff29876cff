"""One task of a report: history, prediction, knobs, the best candidates, loops and source.

In: a `TaskPart`.  Out: `Html`.  Read next: `charts.py`, `sections.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from statistics import median
from typing import Any

from tilewright.measure.record import ERROR_KINDS
from tilewright.reporting.charts import REFUSED, history, prediction, strip
from tilewright.reporting.kernels import source_text
from tilewright.reporting.knobs import LEADING
from tilewright.reporting.markup import Html, breakable, joined, tag
from tilewright.reporting.model import Choice, Knob, TaskPart
from tilewright.reporting.sections import MEANINGS
from tilewright.runtime.timing import show_seconds

FULL, BRIEF = 110, 40  # dots of a chart
BRIEF_KNOBS = 3


def task_section(part: TaskPart, full: bool) -> Html:
    """A block that is closed until somebody opens it."""
    best = "no result" if part.seconds is None else show_seconds(part.seconds)
    refused = f", {part.refused:,} refused" if part.refused else ""
    summary = tag(
        "summary", tag("span", breakable(part.name), class_="what"),
        tag("span", f"{part.measured:,} trials{refused}", class_="n trials"),
        tag("span", best, class_="n"),
    )  # fmt: skip
    inside = tag("div", *_inside(part, full), class_="inside")
    return tag("details", summary, inside, id=f"task-{part.number}")


def _inside(part: TaskPart, full: bool) -> list[Any]:
    found: list[Any] = [_head(part)]
    if part.measured:
        found.append(_histories(part, full))
    if part.knobs:
        found.append(_knobs(part, part.knobs if full else part.knobs[:BRIEF_KNOBS]))
    if part.leaders:
        found.append(_leaders(part, full))
    if part.loops:
        found.append(_text("Loop nest of the best", part.loops))
    if part.source:
        found.append(_text("Source of the best", part.source))
    if part.left_out:
        found.append(tag("p", part.left_out, class_="note"))
    return found


def _head(part: TaskPart) -> Html:
    words = []
    if part.layers:
        words.append(part.label + ".")
    if part.calls:
        words.append(f"Called {part.calls} time{'s' * (part.calls > 1)} in a run.")
    if part.instead_of:
        words.append("Another computation of the same thing: the faster one is used.")
    if part.work is not None:
        work = part.work
        words.append(
            f"{work.flop:,.0f} operations on {work.nbytes:,} bytes, {work.intensity:.3g} a byte."
        )
    if part.bound is not None and part.seconds:
        words.append(
            f"It can take {show_seconds(part.bound.seconds)} at best, limited by "
            f"{part.bound.side}: this is {part.bound.seconds / part.seconds:.0%} of that speed."
        )
    spread = part.best.costs if part.best else ()
    if len(spread) > 1:
        words.append(
            f"The best was timed {len(spread)} times, {show_seconds(min(spread))} to "
            f"{show_seconds(max(spread))}."
        )
    return tag("p", " ".join(words), class_="note")


def _histories(part: TaskPart, full: bool) -> Html:
    most = FULL if full else BRIEF
    charts = [history(part, "trials", most)]
    if full:
        charts.append(history(part, "seconds", most))
    picture, correlation = prediction(part, most)
    if full and picture:
        told = "" if correlation is None else f" Rank correlation {correlation:.2f}."
        charts.append(joined(picture, tag("p", "On the dashed line predictions are exact." + told,
                                          class_="note")))  # fmt: skip
    built = sum(t.build_s for t in part.trials)
    tried = sum(t.run_s for t in part.trials)
    words = [
        f"Builds took {built:.0f} s of all processes, trials {tried:.0f} s of the device. "
        "Pale dots lost the race against the best and were timed roughly.",
    ]
    kinds = [kind for kind in ERROR_KINDS if any(t.error == kind for t in part.trials)]
    marks = [joined(tag("i", class_=REFUSED[kind]), f"{MEANINGS[kind]}  ") for kind in kinds]
    if not full and correlation is not None:
        words.append(f" Predictions have a rank correlation of {correlation:.2f}.")
    return tag(
        "figure", tag("div", (tag("div", chart) for chart in charts if chart), class_="pair"),
        tag("figcaption", words, joined(" Ticks below were refused: ", marks) if marks else None),
    )  # fmt: skip


def _knobs(part: TaskPart, knobs: Sequence[Knob]) -> Html:
    rows = [_knob(knob) for knob in knobs]
    origin = source_text(part.best.origin) if part.best else ""
    told = (
        f"Of {part.sketch_trials:,} trials of {origin}: "
        f"grey is how often a value was tried, colour how often it is among the fastest "
        f"{LEADING:.0%}. Importance is the share of the spread of times that the value explains."
    )
    head = tag("tr", tag("th", "decision", scope="col"), tag("th", "importance", class_="n"),
               tag("th", "best", scope="col"), tag("th", "values"))  # fmt: skip
    return joined(
        tag("h3", "Decisions"), tag("p", told, class_="note"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="wide-table"),
    )  # fmt: skip


def _knob(knob: Knob) -> Html:
    return tag(
        "tr", tag("td", tag("code", knob.name)), tag("td", f"{knob.importance:.0%}", class_="n"),
        tag("td", tag("code", knob.best)),
        tag("td", strip(knob)),
    )  # fmt: skip


def _leaders(part: TaskPart, full: bool) -> Html:
    shown = part.leaders if full else part.leaders[:3]
    first = shown[0].seconds
    head = tag("tr", tag("th", "time", class_="n"), tag("th", "to the best", class_="n"),
               tag("th", "schedule"), tag("th", "decisions", class_="name"))  # fmt: skip
    return joined(
        tag("h3", "The fastest"),
        tag("div", tag("table", tag("thead", head),
                       tag("tbody", (_leader(c, first) for c in shown))), class_="wide-table"),
    )  # fmt: skip


def _leader(choice: Choice, first: float) -> Html:
    told = json.dumps(choice.decisions, separators=(", ", ": ")) if choice.decisions else "-"
    if len(told) > 600:
        told = f"{told[:600]}…"
    return tag(
        "tr", tag("td", show_seconds(median(choice.costs or (choice.seconds,))), class_="n"),
        tag("td", f"{choice.seconds / first:.2f}x", class_="n"),
        tag("td", source_text(choice.origin), tag("span", f"trial {choice.number}", class_="sub")),
        tag("td", tag("code", told), class_="name"),
    )  # fmt: skip


def _text(title: str, text: str) -> Html:
    lines = text.count("\n") + 1
    return tag(
        "details", tag("summary", tag("span", title, class_="what"),
                       tag("span", f"{lines:,} lines", class_="n")),
        tag("div", tag("pre", text), class_="inside"),
    )  # fmt: skip
