"""AutoTVM's kinds of features by name: `knob`, `itervar`, `curve`.

In: candidates of a sketch.  Out: float32 rows, wide enough for the widest structure seen so far,
and which candidates are worth measuring at all.  Read next: `plan_model.py`, who learns from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from tilewright.cost.features import Matrix
from tilewright.schedule.sketch import Group, Sketch
from tilewright.schedule.space.config_space import ConfigSpace, OtherOptionSpace, SplitSpace
from tilewright.schedule.space.policies import Knob
from tilewright.search.propose.proposers import Indices
from tilewright_tvm.autotvm.loop_features import curve_features, itervar_features

Mask = npt.NDArray[np.bool_]
FEATURE_TYPES = ("itervar", "knob", "curve")
_OF_LOOPS: dict[str, Callable[[Group], Matrix]] = {
    "itervar": itervar_features, "curve": curve_features,
}  # fmt: skip


def rows_of(kind: str, sketch: Sketch, indices: Indices) -> tuple[Matrix, Mask]:
    """float32 [n, width] of one of `FEATURE_TYPES`, and which candidates are worth measuring.

    A row is zero where the template refuses its candidate.  `itervar` and `curve` begin with the
    numbers of the plain knobs, with which AutoTVM's end: so they stay where they are when
    structures differ in width.
    """
    if kind == "knob":
        return knob_features(sketch.space, indices), sketch.legal(indices)
    found, sensible = [], np.zeros(len(indices), bool)
    for group in sketch.groups(indices):
        found.append((group.rows, _OF_LOOPS[kind](group)))
        sensible[group.rows] = group.verdict.sensible(len(group.rows))
    width = max((part.shape[1] for _, part in found), default=0)
    rows = np.zeros((len(indices), width), np.float32)
    for where, part in found:
        rows[where, : part.shape[1]] = part
    plain = [k for k in sketch.space.space_map.values() if isinstance(k, OtherOptionSpace)]
    rows = np.concatenate([_entities(sketch.space, plain, indices), rows], axis=1)
    return rows, sensible & sketch.space.valid_mask(indices)


def knob_features(space: ConfigSpace, indices: Indices) -> Matrix:
    """float32 [n, width]: of every knob its sizes, order, one-hot marks or number."""
    return _entities(space, list(space.space_map.values()), indices)


def widened(rows: Matrix, width: int) -> Matrix:
    """`rows` with zeros up to `width` columns."""
    return np.pad(rows, ((0, 0), (0, max(width - rows.shape[1], 0))))


def stacked(parts: list[Matrix]) -> Matrix:
    """All rows, as wide as the widest part."""
    width = max((part.shape[1] for part in parts), default=0)
    return np.concatenate([np.empty((0, width), np.float32), *(widened(p, width) for p in parts)])


def _entities(space: ConfigSpace, knobs: Sequence[Knob], indices: Indices) -> Matrix:
    positions = dict(zip(space.space_map.values(), space.positions(indices), strict=True))
    parts = [_table(knob)[positions[knob]] for knob in knobs]
    return np.concatenate([np.empty((len(indices), 0), np.float32), *parts], axis=1)


def _table(knob: Knob) -> Matrix:
    """float32 [entities, width]: the features of each."""
    if isinstance(knob, SplitSpace):  # the sizes are what it decides
        return knob.columns.T.astype(np.float32)
    return stacked([np.array([entity.feature()], np.float32) for entity in knob])
