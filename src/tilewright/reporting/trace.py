"""A search as a trace for ui.perfetto.dev: a track for each worker, the best times as counters.

In: a `Report`.  Out: JSON in Chromium's format.  No two events of a track overlap, which that
format cannot draw.  Read next: `lanes.py`.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

from tilewright.reporting.charts import best_so_far
from tilewright.reporting.model import Report

BEGIN = b'{"displayTimeUnit"'
COUNTERS = 12  # tasks that have one
_PROCESSES = {"device": 1, "builder": 2}
_NAMES = {"device": "devices", "builder": "builders"}


def trace(report: Report) -> bytes:
    """The same bytes for the same report."""
    told = {"displayTimeUnit": "ms", "traceEvents": list(_events(report))}
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()


def packed(report: Report) -> bytes:
    """The same, compressed."""
    return gzip.compress(trace(report), mtime=0)


def _events(report: Report) -> Iterator[dict[str, Any]]:
    labels = {part.number: part for part in report.tasks}
    for kind, process in _PROCESSES.items():
        yield _named("process_name", process, 0, _NAMES[kind])
    for thread, lane in enumerate(report.lanes):
        process = _PROCESSES[lane.kind]
        yield _named("thread_name", process, thread, lane.name)
        free = 0
        for span in lane.spans:
            begin = max(round(span.begin * 1e6), free)
            end = max(round(span.end * 1e6), begin)
            free = end
            yield {
                "ph": "X", "pid": process, "tid": thread, "ts": begin, "dur": end - begin,
                "name": labels[span.task].name if span.task in labels else f"task {span.task}",
                "args": {"task": span.task, "trial": span.number, "outcome": span.outcome},
            }  # fmt: skip
    order = [k.task for k in report.kernels if k.task in labels][:COUNTERS]
    for number in order:
        name = f"best us, task {number}"
        for trial in best_so_far(labels[number].trials):
            yield {
                "ph": "C", "pid": 1, "ts": round(trial.elapsed * 1e6), "name": name,
                "args": {"us": round(trial.seconds * 1e6, 4)},
            }  # fmt: skip


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": {"name": name}}
