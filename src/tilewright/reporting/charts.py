"""The charts of a report: sparkline, history, prediction, knobs, roofline, timeline.

In: what `model.py` has.  Out: `Html`.  Read next: `svg.py`, `sections.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.cost.ceilings import Ceilings
from tilewright.measure.record import ERROR_KINDS
from tilewright.reporting.markup import Html, joined, number, tag
from tilewright.reporting.model import Kernel, Knob, Lane, TaskPart, Trial
from tilewright.reporting.svg import (
    Axis,
    Point,
    axes,
    dots,
    line,
    steps,
    svg,
    text,
    thinned,
    ticks_down,
)
from tilewright.runtime.timing import show_seconds

WIDTH, HEIGHT = 344.0, 214.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 338.0, 24.0, 172.0
REFUSED = {kind: f"kind-{kind}" for kind in ERROR_KINDS}
_SPREAD = 12.0  # times the best, beyond which dots lie at the edge
_TICKS = 80  # refused candidates that have one, of a kind


def best_so_far(trials: Sequence[Trial]) -> list[Trial]:
    """The trials that set a record, in the order in which they finished."""
    found: list[Trial] = []
    least = math.inf
    for trial in trials:
        if trial.counts and not trial.error and not trial.final and trial.seconds < least:
            least = trial.seconds
            found.append(trial)
    return found


def sparkline(trials: Sequence[Trial]) -> Html:
    """Best so far against trials, both as shares."""
    leading = best_so_far(trials)
    if not leading:
        return joined()
    tried = sum(not t.final for t in trials)
    order = {id(t): k for k, t in enumerate(t for t in trials if not t.final)}
    best, first = leading[-1].seconds, max(leading[0].seconds, leading[-1].seconds * 1.05)
    x = Axis(0, max(tried - 1, 1), 1, 71)
    y = Axis(best, min(first, best * 8), 14, 2, log=True)
    points = [(x.at(order[id(t)]), y.at(t.seconds)) for t in leading]
    return tag(
        "svg", steps(points, 71, "line"), dots(points[-1:], "mark"), view_box="0 0 74 17",
        width="74", height="17", class_="spark", aria_hidden="true",
    )  # fmt: skip


def history(part: TaskPart, against: str, most: int) -> Html:
    """Best so far as steps, candidates as dots, refused ones as ticks under the axis.

    against: "trials", or "seconds" that searches had run
    """
    tried = [t for t in part.trials if not t.final]
    good = [t for t in tried if not t.error and math.isfinite(t.seconds)]
    if not good:
        return joined()
    scale_x, unit_x = _time_unit(part.trials[-1].elapsed)
    places = {
        id(t): (t.elapsed / scale_x if against == "seconds" else float(k))
        for k, t in enumerate(tried)
    }
    low, high = min(places.values()), max(places.values())
    x = Axis(low, high if high > low else low + 1, LEFT, RIGHT)
    leading = best_so_far(tried)
    best = leading[-1].seconds if leading else min(t.seconds for t in good)
    worst = max(t.seconds for t in good)
    y = Axis(best * 0.93, max(min(worst, best * _SPREAD), best * 1.3), BOTTOM, TOP, log=True)
    scale, unit = _unit(best)

    def at(trial: Trial) -> Point:
        return x.at(places[id(trial)]), y.at(trial.seconds)

    shown = thinned(good, most)
    refused = [t for t in tried if t.error]
    return svg(
        WIDTH, HEIGHT, f"Best time so far against {against}",
        axes(x, y, lambda v: f"{v:.3g}", lambda v: f"{v * scale:.3g}",
             f"{_SEARCHED}, {unit_x}" if against == "seconds" else "trials",
             f"time of a call, {unit}"),
        dots(map(at, (t for t in shown if t.raced)), "faint"),
        dots(map(at, (t for t in shown if not t.raced)), "plain"),
        (ticks_down((x.at(places[id(t)]) for t in thinned([r for r in refused if r.error == kind],
                                                          _TICKS)), BOTTOM, REFUSED[kind])
         for kind in ERROR_KINDS),
        steps([at(t) for t in leading], RIGHT, "line"),
    )  # fmt: skip


_SEARCHED = "time of search"


def prediction(part: TaskPart, most: int) -> tuple[Html, float | None]:
    """Measured against predicted, and their rank correlation; nothing where nobody predicted."""
    told = [t for t in part.trials if t.predicted and not t.error and not t.final]
    if len(told) < 8:
        return joined(), None
    every = [s for t in told for s in (t.seconds, t.predicted)]
    best = min(t.seconds for t in told)
    low, high = max(min(every), best / 4) * 0.93, min(max(every), best * _SPREAD)
    x = Axis(low, max(high, low * 1.3), LEFT, RIGHT, log=True)
    y = Axis(low, max(high, low * 1.3), BOTTOM, TOP, log=True)
    scale, unit = _unit(best)

    def named(value: float) -> str:
        return f"{value * scale:.3g}"

    shown = thinned(sorted(told, key=lambda t: t.number), most)
    picture = svg(
        WIDTH, HEIGHT, "Measured time against predicted time",
        axes(x, y, named, named, f"predicted, {unit}", f"measured, {unit}"),
        line([(LEFT, BOTTOM), (RIGHT, TOP)], "guide"),
        dots(((x.at(t.predicted), y.at(t.seconds)) for t in shown), "plain"),
    )  # fmt: skip
    return picture, rank_correlation([t.predicted for t in told], [t.seconds for t in told])


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Spearman's, equal values sharing their ranks; None where one of them has no spread."""
    one, other = _ranks(a), _ranks(b)
    mean = (len(a) - 1) / 2
    product = math.fsum((p - mean) * (q - mean) for p, q in zip(one, other, strict=True))
    size = math.fsum((p - mean) ** 2 for p in one) * math.fsum((q - mean) ** 2 for q in other)
    return product / math.sqrt(size) if size > 0 else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda k: values[k])
    ranks, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for k in order[at : end + 1]:
            ranks[k] = (at + end) / 2
        at = end + 1
    return ranks


def strip(knob: Knob) -> Html:
    """A column for each value: its share of all candidates behind that of the leading ones."""
    every = sum(v.every for v in knob.values) or 1
    leading = sum(v.leading for v in knob.values) or 1
    shares = [(v.every / every, v.leading / leading) for v in knob.values]
    most = max(map(max, shares))
    behind = front = ""
    names: list[Html] = []
    left = 0.0
    for value, (of_all, of_first) in zip(knob.values, shares, strict=True):
        width = max(18.0, 6.0 * len(value.text) + 8)
        middle = left + width / 2
        behind += _column(middle, 12, of_all / most * 20)
        front += _column(middle, 6, of_first / most * 20)
        names.append(tag("tspan", value.text, x=middle))
        left += width
    told = "; ".join(
        f"{v.text}: {all_:.0%} of all, {first:.0%} of the leading"
        for v, (all_, first) in zip(knob.values, shares, strict=True)
    )
    return tag(
        "svg", tag("path", d=behind or "M0 0", class_="rail"),
        tag("path", d=front or "M0 0", class_="lead"),
        tag("path", d=f"M0 22.5h{number(left)}", class_="axis"),
        tag("text", names, y=34.0, text_anchor="middle"),
        view_box=f"0 0 {number(left)} 37", width=number(left), height="37", class_="strip",
        role="img", aria_label=told,
    )  # fmt: skip


def _column(middle: float, width: float, height: float) -> str:
    if height < 0.3:
        return ""
    tall = number(height)
    return f"M{number(middle - width / 2)} 22v-{tall}h{number(width)}v{tall}z"


def roofline(kernels: Sequence[Kernel], ceilings: Ceilings, link: Callable[[Kernel], Any]) -> Html:
    """Kernels as dots of their share's area, under the roofs of the device."""
    known = [k for k in kernels if k.work and k.seconds and k.work.flop and k.work.nbytes]
    if not known or not ceilings.memory:
        return joined()
    width, height, left, right, top, bottom = 720.0, 380.0, 66.0, 708.0, 22.0, 330.0
    roofs = _roofs(known, ceilings)
    if not roofs:
        return joined()
    peak = max(rate for _, rate in roofs)
    intensities = [k.work.intensity for k in known if k.work]
    rates = [k.work.flop / k.seconds for k in known if k.work and k.seconds]
    ridge = peak / ceilings.memory
    x = Axis(
        max(min(*intensities, 1.0) / 2, 1e-3), max(*intensities, ridge) * 3, left, right, log=True
    )
    y = Axis(min(*rates, peak) / 2, peak * 1.8, bottom, top, log=True)
    places = [-100.0, *(y.at(rate) for _, rate in roofs)][: len(roofs)]  # of the roof above
    slopes = [(n, r) for n, r in (("memory", ceilings.memory), ("cache", ceilings.cache)) if r]
    return svg(
        width, height, "Roofline: operations per second against operations per byte",
        axes(x, y, _short, _flops, "operations per byte", "operations per second"),
        (_slope(x, y, rate, peak, name) for name, rate in slopes),
        (_roof(x, y, name, rate, slopes[0][1], right, low=above - y.at(rate) > -24)
         for (name, rate), above in zip(roofs, places, strict=True)),
        (_dot(x, y, k, link(k)) for k in sorted(known, key=lambda k: -k.share)),
        class_="wide",
    )  # fmt: skip


def _roofs(known: Sequence[Kernel], ceilings: Ceilings) -> list[tuple[str, float]]:
    """Peaks that matter to these kernels, by what they are called."""
    found: dict[str, float] = {}
    for k in known:
        assert k.work is not None
        rate, side = ceilings.rate(k.work)
        if rate:
            found[f"{k.work.dtype}, {side}"] = rate
    return sorted(found.items(), key=lambda roof: -roof[1])


def _slope(x: Axis, y: Axis, rate: float, peak: float, name: str) -> Html:
    first = max(x.low, y.low / rate)
    last = min(peak / rate, x.high)
    if last <= first:
        return joined()
    begin, end = (x.at(first), y.at(first * rate)), (x.at(last), y.at(last * rate))
    turn = math.degrees(math.atan2(end[1] - begin[1], end[0] - begin[0]))
    words = (
        f"{name}, {rate * 1e-9:,.3g} GB/s" if rate < 1e12 else f"{name}, {rate * 1e-12:.3g} TB/s"
    )
    place = first * (last / first) ** 0.04
    return joined(
        line([begin, end], "roof"),
        tag("text", words, class_="roof-name", transform=f"translate({number(x.at(place))} "
            f"{number(y.at(place * rate) - 5)}) rotate({number(turn)})"),
    )  # fmt: skip


def _roof(x: Axis, y: Axis, name: str, rate: float, memory: float, right: float, low: bool) -> Html:
    """low: its name stands below it, as there is no room above"""
    begin = max(rate / memory if memory else x.low, x.low)
    if begin >= x.high:
        return joined()
    return joined(
        line([(x.at(min(begin, x.high)), y.at(rate)), (right, y.at(rate))], "roof"),
        text(right, y.at(rate) + (13 if low else -5), f"{name}, {_flops(rate)}FLOP/s",
             "roof-name", "end"),
    )  # fmt: skip


def _dot(x: Axis, y: Axis, kernel: Kernel, target: Any) -> Html:
    assert kernel.work is not None and kernel.seconds
    side = kernel.bound.side if kernel.bound else ""
    near = "" if kernel.of_roof is None else f", {kernel.of_roof:.0%} of what {side} allows"
    told = f"{kernel.name}: {show_seconds(kernel.seconds)}{near}, {kernel.share:.1%} of the time"
    mark = tag(
        "circle", cx=x.at(kernel.work.intensity), cy=y.at(kernel.work.flop / kernel.seconds),
        r=max(math.sqrt(kernel.share) * 26, 2.5), class_=f"dot side-{side.replace(' ', '-')}",
    )  # fmt: skip
    inside = tag("g", tag("title", told), mark)
    return tag("a", inside, href=target) if target else inside


def timeline(lanes: Sequence[Lane], length: float) -> Html:
    """A lane for each worker, filled where it was busy."""
    if not lanes or not length:
        return joined()
    width, left, right, row = 720.0, 118.0, 708.0, 17.0
    bottom = 8 + row * len(lanes)
    scale, unit = _time_unit(length)
    x = Axis(0, length / scale, left, right)
    rows = []
    for k, lane in enumerate(lanes):
        top = 6 + row * k
        name = lane.name if len(lane.name) <= 17 else f"{lane.name[:16]}…"
        rows.append(joined(
            text(left - 6, top + 10, name, anchor="end"),
            tag("rect", x=left, y=top, width=right - left, height=12.0, class_="rail"),
            tag("path", d=_filled(lane, x, top, scale), class_=f"lane {lane.kind}"),
        ))  # fmt: skip
    marks = "".join(f"M{number(x.at(v))} {number(bottom)}v4" for v in x.ticks)
    return svg(
        width, bottom + 36, "When each worker was busy", rows,
        tag("path", d=marks, class_="axis"),
        (text(x.at(v), bottom + 16, f"{v:.3g}", anchor="middle") for v in x.ticks),
        text(right, bottom + 31, f"{_SEARCHED}, {unit}", "title", "end"), class_="wide",
    )  # fmt: skip


def _filled(lane: Lane, x: Axis, top: float, scale: float) -> str:
    """What lies closer than half a pixel is one block."""
    blocks: list[list[float]] = []
    for span in lane.spans:
        begin, end = x.at(span.begin / scale), x.at(span.end / scale)
        if blocks and begin - blocks[-1][1] < 0.5:
            blocks[-1][1] = max(blocks[-1][1], end)
        else:
            blocks.append([begin, end])
    return "".join(
        f"M{number(a)} {number(top)}h{number(max(b - a, 0.3))}v12h-{number(max(b - a, 0.3))}z"
        for a, b in blocks
    ) or "M0 0"  # fmt: skip


def _unit(seconds: float) -> tuple[float, str]:
    return next(
        ((scale, unit) for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6))
         if seconds * scale >= 1), (1e9, "ns"),
    )  # fmt: skip


def _time_unit(length: float) -> tuple[float, str]:
    """Of the time of a search."""
    if length < 180:
        return 1.0, "s"
    return (60.0, "minutes") if length < 3 * 3600 else (3600.0, "hours")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _flops(value: float) -> str:
    for scale, sign in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= scale:
            return f"{value / scale:.3g} {sign}"
    return f"{value:.3g} "
