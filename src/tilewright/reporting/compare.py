"""Two logs side by side: of each task, whether one is faster or both are the same within noise.

In: the best candidates of the same computations in both.  Out: a `Comparison`.
Two medians of a few repeats always differ.  What counts as a difference is one that the repeats of
both make certain (Welch's interval of the logarithms, 95%), and that is more than the same kernel
differs by from one run of a device to the next, which repeats in one run do not show.
Read next: `collect.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, variance

from tilewright.measure.database import Database
from tilewright.measure.record import Record, TaskId, task_label
from tilewright.reporting.model import Compared, Comparison, TaskPart
from tilewright.runtime.timing import show_seconds

NOISE = 0.03  # of a kernel's time, between runs of one device
# Student's t, 97.5%, by degrees of freedom; beyond these by the last.
_T = {
    1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262,
    10: 2.228, 12: 2.179, 15: 2.131, 20: 2.086, 30: 2.042, 60: 2.0,
}  # fmt: skip
FASTER, SAME, SLOWER = "faster", "same within noise", "slower"
FEW, HERE, THERE, NONE = "not comparable", "only here", "only there", "no result"


def compared(
    name: str, tasks: Sequence[TaskPart], ids: Sequence[TaskId], other: Database
) -> Comparison:
    """The tasks of a log with those of another, called `name`.

    ids: of `tasks`, one for each
    """
    theirs = {(t.dag, t.target): t for t in other.tasks()}
    rows: list[Compared] = []
    elsewhere: set[str] = set()
    for part, own in zip(tasks, ids, strict=True):
        task = theirs.pop((own.dag, own.target), None)
        there = None if task is None else other.best(task)
        if task is not None and task.fingerprint != own.fingerprint and task.fingerprint:
            elsewhere.add(task.fingerprint)
        rows.append(_row(part, there, task is not None))
    for task in theirs.values():
        best = other.best(task)
        seconds = None if best is None else best.seconds
        rows.append(Compared(task_label(task), None, seconds, None, None, None, THERE))
    order = (SLOWER, FASTER, SAME, FEW, NONE, HERE, THERE)
    rows.sort(
        key=lambda row: (order.index(row.verdict), -(row.here or row.there or 0.0), row.label)
    )
    return Comparison(name, _told(rows, sorted(elsewhere)), tuple(rows))


def _row(part: TaskPart, there: Record | None, is_known: bool) -> Compared:
    if not is_known:
        return Compared(part.label, part.seconds, None, None, None, None, HERE, part.number)
    if part.best is None or there is None:
        seconds = None if there is None else there.seconds
        return Compared(part.label, part.seconds, seconds, None, None, None, NONE, part.number)
    ratio = part.best.seconds / there.seconds
    interval = interval_of(part.best.costs, there.result.costs)
    low, high = interval if interval is not None else (None, None)
    verdict = verdict_of(ratio, interval)
    return Compared(
        part.label, part.best.seconds, there.seconds, ratio, low, high, verdict, part.number
    )


def interval_of(here: Sequence[float], there: Sequence[float]) -> tuple[float, float] | None:
    """Where the ratio of the true times is, with 95% confidence; None with one repeat of either."""
    if min(len(here), len(there)) < 2:
        return None
    a, b = ([math.log(cost) for cost in costs] for costs in (here, there))
    spread = [variance(a) / len(a), variance(b) / len(b)]
    middle, width = fmean(a) - fmean(b), math.sqrt(sum(spread))
    parts = spread[0] ** 2 / (len(a) - 1) + spread[1] ** 2 / (len(b) - 1)
    free = sum(spread) ** 2 / parts if parts else 60.0
    known = [t for degrees, t in _T.items() if degrees <= max(free, 1.0)]
    width *= known[-1]
    return math.exp(middle - width), math.exp(middle + width)


def verdict_of(ratio: float, interval: tuple[float, float] | None) -> str:
    """What a ratio means; with one repeat only one that is far from 1 means anything."""
    if abs(math.log(ratio)) <= math.log1p(NOISE):
        return SAME
    if interval is None:
        return FEW
    if interval[0] <= 1 <= interval[1]:
        return SAME
    return FASTER if ratio < 1 else SLOWER


def _told(rows: Sequence[Compared], elsewhere: Sequence[str]) -> str:
    both = [r for r in rows if r.here is not None and r.there is not None]
    counts: Mapping[str, int] = {
        v: sum(r.verdict == v for r in rows) for v in (FASTER, SAME, SLOWER)
    }
    if not any(r.verdict not in (HERE, THERE) for r in rows):
        return (
            "The two logs have no computation in common: they are of different networks, or of "
            "different targets, and nothing can be compared."
        )
    told = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    here, there = (
        (
            math.fsum(filter(None, each))
            for each in zip(*((r.here, r.there) for r in both), strict=True)
        )
        if both
        else (0.0, 0.0)
    )
    text = f"Of {len(both)} computations that both have: {told}."
    if both:
        text += f" Their sum is {show_seconds(here)} here and {show_seconds(there)} there."
    if elsewhere:
        text += f" The other log is of another device ({', '.join(elsewhere)})."
    return text
