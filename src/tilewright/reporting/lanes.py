"""Who worked when: a lane for each process that built, and for each device.

In: trials.  Out: `Lane`s, with gaps where somebody waited.  Logs that do not tell who built have
lanes of devices only.  Read next: `trace.py`, `svg.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.reporting.model import Lane, Span, TaskPart
from tilewright.reporting.trials import Trials

MOST = 24  # lanes


def lanes_of(trials: Trials, tasks: Sequence[TaskPart], devices: int) -> list[Lane]:
    """Devices first; of many builders those that did most.

    devices: how many measured at once
    """
    length = trials.length
    builds: dict[int, list[Span]] = {}
    runs: dict[int, list[Span]] = {}
    for part in tasks:
        for trial in part.trials:
            outcome = trial.error or ("measured" if not trial.final else "timed again")
            if trial.run_s:
                begin = trial.elapsed - trial.run_s
                span = Span(begin, trial.elapsed, part.number, trial.number, outcome)
                runs.setdefault(trial.device, []).append(span)
            if trial.builder and trial.built and not trial.final:
                end = trial.elapsed - (trial.at - trial.built)
                span = Span(end - trial.build_s, end, part.number, trial.number, outcome)
                builds.setdefault(trial.builder, []).append(span)
    names = [name or "device" for name in trials.devices]
    lanes = [
        Lane(
            names[at] if k == 0 else f"{names[at]}, {k + 1}", "device", spans, _busy(spans, length)
        )
        for at, every in sorted(runs.items())
        for k, spans in enumerate(_apart(every, devices))
    ]
    made = sorted(
        builds.items(), key=lambda pair: (-sum(s.end - s.begin for s in pair[1]), pair[0])
    )
    lanes += [
        Lane(f"builder {k + 1}", "builder", ordered, _busy(ordered, length))
        for k, (_, spans) in enumerate(made)
        for ordered in [sorted(spans, key=_order)]
    ]
    return lanes[:MOST]


def _apart(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """In so many lanes at most, in which none overlaps another.  A trial in two parts, whose proof
    had to wait for a compiler, is drawn from where its lane is free."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=_order):
        free = next((lane for lane in lanes if lane[-1].end <= span.begin), None)
        if free is None and len(lanes) < most:
            free = []
            lanes.append(free)
        if free is None:
            free = min(lanes, key=lambda lane: lane[-1].end)
            span = replace(span, begin=min(free[-1].end, span.end))
        free.append(span)
    return lanes


def _order(span: Span) -> tuple[float, float]:
    return span.begin, span.end


def _busy(spans: Sequence[Span], length: float) -> float:
    spent = sum(span.end - span.begin for span in spans)
    return min(spent / length, 1.0) if length else 0.0
