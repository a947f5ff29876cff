"""A report as one page that opens anywhere: nothing is loaded from elsewhere.

In: a `Report`.  Out: HTML, the same for the same report.  Below `MOST_BYTES`: tasks that take least
are left out where there are too many.  Read next: `sections.py`, `style.py`.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape
from typing import Any

from tilewright.reporting import sections
from tilewright.reporting.markup import Html, breakable, clipped, island, tag
from tilewright.reporting.model import Report, TaskPart
from tilewright.reporting.style import CSS, SCRIPT
from tilewright.reporting.task_section import task_section

BEGIN = "<!doctype html>\n<!-- tilewright report 1 -->\n"
VERSION = 1  # of the data in the page
MOST_BYTES = 950_000
FULL_TASKS = 12  # which have all charts


def page(report: Report) -> str:
    """The whole file."""
    data, script = island(data_of(report)), tag("script", Html(SCRIPT))
    body = _body(report, len(CSS) + len(script) + len(data.encode()))
    title = " on ".join(filter(None, (report.title, ", ".join(filter(None, report.devices)))))
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{title} - Tilewright"), tag("style", Html(CSS)),
    )  # fmt: skip
    return BEGIN + tag("html", head, tag("body", body, data, script), lang="en") + "\n"


def inner(report: Report) -> str:
    """The page for a place inside another one, which has its own styles."""
    style = "width:100%;height:48rem;border:0"
    return f'<iframe srcdoc="{escape(page(report))}" sandbox="" style="{style}"></iframe>'


def _body(report: Report, taken: int) -> Html:
    """taken: bytes of the page that are none of it"""
    parts = _sections(report)
    taken += sum(len(html.encode()) for _, _, html in parts)
    shown = _tasks(report, MOST_BYTES - taken)
    listed, more = [html for _, html in shown], None
    left = len(report.tasks) - len(shown)
    if left:  # nothing may link to them
        report = replace(report, tasks=[part for part, _ in shown])
        parts = _sections(report)
        more = tag("p", f"{left} tasks that take less time are left out, to keep the file below "
                   "1 MB; --task NUMBER shows some alone.", class_="note")  # fmt: skip
    if report.tasks:
        told = (
            "Each computation that was tuned, those first that take most time: how the search "
            "went, which decisions mattered, what the best one looks like."
        )
        title = (
            f"{len(report.tasks) + left:,} tasks" if len(report.tasks) + left > 1 else "The task"
        )
        made = sections.section("tasks", title, tag("p", told, class_="note"), listed, more)
        parts.insert(TASKS, ("tasks", "Tasks", made))
    links = (tag("a", title, href=f"#{name}") for name, title, html in parts if html)
    where = ", ".join(filter(None, report.devices)) or "an unknown device"
    kind = next((value for name, value in report.facts if name == "target"), "")
    return tag(
        "main", tag("p", "Tilewright report", class_="eyebrow"),
        tag("h1", breakable(report.title)), tag("p", f"{where}, {kind}", class_="lead"),
        tag("nav", links), sections.figures(report), *(html for _, _, html in parts),
        _footer(report),
    )  # fmt: skip


TASKS = 4  # their place among the sections


def _sections(report: Report) -> list[tuple[str, str, Html]]:
    """All but tasks: anchor, title, content, which may be empty."""
    return [
        ("kernels", "Kernels", sections.kernels(report)),
        ("roofline", "Roofline", sections.roof(report)),
        ("bench", "Engines", sections.engines(report)),
        ("against", "Comparison", sections.comparison(report)),
        ("refused", "Refused", sections.refusals(report)),
        ("workers", "Workers", sections.workers(report)),
        ("about", "About", sections.facts(report)),
    ]


def _tasks(report: Report, room: int) -> list[tuple[TaskPart, Html]]:
    """Those that take longest first, as many as there is room for."""
    order = {k.task: at for at, k in enumerate(report.kernels) if k.task is not None}
    listed = sorted(report.tasks, key=lambda p: (order.get(p.number, len(order)), p.number))
    shown: list[tuple[TaskPart, Html]] = []
    for at, part in enumerate(listed):
        made = task_section(part, full=at < FULL_TASKS)
        room -= len(made.encode())
        if room < 0:
            break
        shown.append((part, made))
    return shown


def _footer(report: Report) -> Html:
    return tag(
        "footer",
        "Made by Tilewright from what is on disk; the same log gives the same bytes. This file "
        "holds shapes, schedules, names of layers and devices, and texts of compilers, but no "
        "weights. It loads nothing and can be read without scripts.",
    )  # fmt: skip


def data_of(report: Report) -> dict[str, Any]:
    """What scripts may read back from the page."""
    rows = [
        {
            "name": clipped(k.name), "label": clipped(k.label), "calls": k.calls,
            "seconds": k.seconds, "share": round(k.share, 6), "gflops": k.gflops,
            "gbytes": k.gbytes,
            "roofline": k.of_roof,
            "limit": k.bound.side if k.bound else None,
            "schedule": k.source, "task": k.task,
        }
        for k in report.kernels[: sections.MOST_ROWS]
    ]  # fmt: skip
    return {"version": VERSION, "title": report.title, "log": report.log, "kernels": rows}
