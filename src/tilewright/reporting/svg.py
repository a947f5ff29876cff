"""Pictures as SVG in the page: small functions, no library, readable without scripts.

In: figures.  Out: `Html`.  Colours are classes, which `style.py` gives for both colour schemes;
dots of one kind are one path, which is ten bytes a dot.  Read next: `charts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.reporting.markup import Html, joined, number, tag

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From values to places.  low, high: values at `begin` and `end`"""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """The place of a value, at the edge where it lies beyond."""
        low, high = self._of(self.low), self._of(self.high)
        share = (self._of(value) - low) / (high - low) if high > low else 0.5
        return self.begin + (self.end - self.begin) * min(max(share, 0.0), 1.0)

    def _of(self, value: float) -> float:
        return math.log(max(value, 1e-300)) if self.log else value

    @property
    def ticks(self) -> list[float]:
        """Round values, three to seven of them."""
        if self.log:
            return _log_ticks(self.low, self.high)
        return _ticks(self.low, self.high)


def _ticks(low: float, high: float, most: int = 5) -> list[float]:
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * k for k in (1, 2, 5, 10, 20, 50) if span / (step * k) <= most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    if not 0 < low < high < math.inf:
        return [low]
    decades = math.log10(high / low)
    within: Sequence[float] = (1,) if decades > 2.5 else (1, 2, 5) if decades > 0.7 else ()
    if not within:
        return _ticks(low, high, 4)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in within if low <= m * 10.0**p <= high]
    while len(found) > 8:
        found = found[::2]
    return found


def svg(width: float, height: float, label: str, *children: Any, class_: str = "") -> Html:
    """A picture.  label: what it shows, for who cannot see it"""
    return tag(
        "svg", *children, view_box=f"0 0 {number(width)} {number(height)}", role="img",
        aria_label=label, class_=class_ or None, width=number(width), height=number(height),
    )  # fmt: skip


def dots(points: Iterable[Point], class_: str) -> Html:
    """Round dots, all in one path; their size is the width of its line."""
    places = dict.fromkeys(f"{number(x)} {number(y)}" for x, y in points)
    if not places:
        return joined()
    return tag("path", d="".join(f"M{place}h0" for place in places), class_=f"dots {class_}")


def ticks_down(places: Iterable[float], y: float, class_: str, length: float = 6) -> Html:
    """Short lines that hang from a line."""
    shown = dict.fromkeys(map(number, places))
    if not shown:
        return joined()
    path = "".join(f"M{x} {number(y)}v{number(length)}" for x in shown)
    return tag("path", d=path, class_=f"ticks {class_}")


def steps(points: Sequence[Point], end: float, class_: str) -> Html:
    """A line that holds each value until the next, up to `end`."""
    if not points:
        return joined()
    path, before = f"M{number(points[0][0])} {number(points[0][1])}", points[0]
    for point in points[1:]:
        path += f"H{number(point[0])}"
        if number(point[1]) != number(before[1]):
            path += f"V{number(point[1])}"
        before = point
    return tag("path", d=f"{path}H{number(end)}", class_=class_)


def line(points: Sequence[Point], class_: str) -> Html:
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return tag("path", d=f"M{path}", class_=class_)


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Html:
    return tag("text", words, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def axes(x: Axis, y: Axis, x_words: Any, y_words: Any, x_title: str, y_title: str) -> Html:
    """Hairlines at round values with their words, and what the axes are, in units."""
    left, right, top, bottom = x.begin, x.end, y.end, y.begin
    grid = "".join(f"M{number(left)} {number(y.at(v))}H{number(right)}" for v in y.ticks)
    return joined(
        tag("path", d=grid, class_="grid") if grid else None,
        tag("path", d=f"M{number(left)} {number(bottom)}H{number(right)}", class_="axis"),
        (text(left - 5, y.at(v) + 3.5, y_words(v), anchor="end") for v in y.ticks),
        (text(x.at(v), bottom + 20, x_words(v), anchor="middle") for v in x.ticks),
        text(right, bottom + 34, x_title, "title", "end"),
        text(2, top - 9, y_title, "title"),
    )  # fmt: skip


def bar(share: float, class_: str, width: float = 64) -> Html:
    """A share as a bar in a table."""
    full = max(min(share, 1.0), 0.0) * width
    return tag(
        "svg", tag("rect", width=float(width), height=6.0, class_="rail", rx=1.5),
        tag("rect", width=full, height=6.0, class_=class_, rx=1.5), view_box=f"0 0 {width:g} 6",
        width=f"{width:g}", height="6", aria_hidden="true", class_="bar",
    )  # fmt: skip


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """So many of them at most, evenly, first and last among them."""
    if len(items) <= most:
        return list(items)
    step = (len(items) - 1) / (most - 1)
    return [items[round(k * step)] for k in range(most)]
