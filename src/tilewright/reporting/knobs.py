"""What the decisions of candidates tell: which of them matter, and which values lead.

In: seconds and decisions of the trials of one sketch.  Out: `Knob`s, the one that explains most of
the spread first.  Read next: `collect.py`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import RecordError
from tilewright.measure.lines import decoded
from tilewright.reporting.model import Knob, Value

LEADING = 0.05  # of the candidates
MOST_VALUES = 12
FEW = 8  # trials, of which nothing follows
_WIDTH = 40


def knobs_of(
    trials: Sequence[tuple[float, bytes]], best: Mapping[str, Any], most: int
) -> list[Knob]:
    """The knobs that explain most; none where the trials are few.

    trials: seconds and decisions as text, of candidates of one sketch; best: those of the best
    """
    told: list[tuple[float, dict[str, Any]]] = []
    for seconds, text in trials:
        try:
            told.append((seconds, decoded(text, "decisions", dict[str, Any])))
        except RecordError:  # damaged
            continue
    if len(told) < FEW:
        return []
    logs = [math.log(seconds) for seconds, _ in told]
    order = sorted(range(len(told)), key=lambda k: logs[k])
    leading = set(order[: max(3, math.ceil(LEADING * len(order)))])
    found = [_knob(name, told, logs, leading, value) for name, value in best.items()]
    varied = [knob for knob in found if len(knob.values) > 1]
    return sorted(varied, key=lambda knob: (-knob.importance, knob.name))[:most]


def _knob(
    name: str, told: Sequence[tuple[float, Mapping[str, Any]]], logs: Sequence[float],
    leading: set[int], best: Any,
) -> Knob:  # fmt: skip
    written = [str(decisions.get(name)) for _, decisions in told]
    first_of = {text: decisions for text, (_, decisions) in zip(written, told, strict=True)}
    spelled = {text: shown(decisions.get(name)) for text, decisions in first_of.items()}
    values = [spelled[text] for text in written]
    every = Counter(values)
    first = Counter(values[k] for k in leading)
    chosen = sorted(every, key=lambda v: (-first[v], -every[v], v))
    if len(chosen) > MOST_VALUES:
        chosen = chosen[: MOST_VALUES - 1]
        rest = Value("others", every.total(), first.total())
        rest = rest._replace(
            every=rest.every - sum(every[v] for v in chosen),
            leading=rest.leading - sum(first[v] for v in chosen),
        )
    else:
        rest = None
    listed = [Value(v, every[v], first[v]) for v in sorted(chosen, key=_as_number)]
    listed += [rest] if rest is not None else []
    return Knob(name, _explained(values, logs), shown(best), tuple(listed))


def shown(value: Any) -> str:
    """A value of a knob as text: `4·1·16` of a list of factors."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
        text = "·".join(map(str, value))
    else:
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _as_number(text: str) -> tuple[list[float], str]:
    parts = text.split("·")
    try:
        return [float(part) for part in parts], text
    except ValueError:
        return [math.inf], text


def _explained(values: Sequence[str], logs: Sequence[float]) -> float:
    """Of the variance of `logs`, the share that lies between the values; chance, which explains
    some of it where values are many, is taken away."""
    whole = _squares(logs)
    groups: dict[str, list[float]] = {}
    for value, y in zip(values, logs, strict=True):
        groups.setdefault(value, []).append(y)
    within = math.fsum(_squares(ys) for ys in groups.values())
    free = len(logs) - len(groups)
    if whole <= 0 or free <= 0:
        return 0.0
    adjusted = 1 - (within / free) / (whole / (len(logs) - 1))
    return min(max(adjusted, 0.0), 1.0)


def _squares(values: Sequence[float]) -> float:
    """Of the distances to their mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
