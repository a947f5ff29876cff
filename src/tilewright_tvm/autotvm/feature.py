"""`autotvm.feature`: what AutoTVM's cost models see of a schedule, as flat vectors.

In: a schedule whose loops are all placed.  Out: float32 vectors in the layout of
`loop_features.py`, or the same numbers as lists by loop and name.
Read next: `feature_types.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Group, Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.targets.target import Target
from tilewright_tvm.autotvm.loop_features import (
    SAMPLES,
    LoopRow,
    curve_features,
    itervar_rows,
    logarithms,
)

__all__ = [
    "flatten_itervar_feature", "get_buffer_curve_sample_flatten", "get_flatten_name",
    "get_itervar_feature", "get_itervar_feature_flatten",
]  # fmt: skip

MOST_SAMPLES = 64  # of a curve: counts are of 64 bits
_NAMES = {
    "_attr_": ("length", "nest_level", "topdown", "bottomup", *(f"ann_{k}" for k in range(20))),
    "_arith_": ("add", "mul", "div"),
}
_OF_ACCESSES = ("stride", "mod", "count", "reuse", "T_count", "T_reuse")
_ELSEWHERE = {"ana_lower": "lower(s, args) gives a Program, which prints as loops."}


def get_itervar_feature(
    sch: Schedule, args: Sequence[Any] = (), take_log: bool = False
) -> list[list[list[Any]]]:
    """A list for each loop, see `loop_features.py`:

        [["_itervar_", axis], ["_attr_", ...], ["_arith_", ...], [access, ...], ...]

    args: what the kernel takes, not needed; take_log: log2 of x + 1 in place of sizes and counts
    """
    rows = itervar_rows(_group(sch))
    return [_listed(logarithms(row) if take_log else row) for row in rows]


def flatten_itervar_feature(fea: Sequence[Any]) -> npt.NDArray[np.float32]:
    """The numbers of what `get_itervar_feature` gives, one after the other.

    Raises SpaceError for anything else.
    """
    pairs = [pair for _, own in _by_axis("flatten_itervar_feature", fea) for pair in own]
    return np.array([x for _, numbers in pairs for x in numbers], np.float32)


def get_flatten_name(fea: Sequence[Any]) -> list[str]:
    """What each number of `flatten_itervar_feature` is: `f0.i._attr_.length`, ...

    fea: as `get_itervar_feature` gives it; raises SpaceError for anything else
    """
    found: list[str] = []
    for axis, pairs in _by_axis("get_flatten_name", fea):
        for key, numbers in pairs:
            words = _NAMES.get(key, _OF_ACCESSES)[: len(numbers)]
            found += [f"{axis}.{key}.{word}" for word in words]
    return [f"f{k}.{name}" for k, name in enumerate(found)]


def _by_axis(place: str, fea: Sequence[Any]) -> list[tuple[str, list[tuple[str, list[float]]]]]:
    """The name of each loop, and its lists of numbers by theirs."""
    try:
        return [
            (axis.name, [(str(key), [float(x) for x in numbers]) for key, *numbers in pairs])
            for (_, axis), *pairs in fea
        ]
    except (TypeError, ValueError, AttributeError):
        raise SpaceError(
            f"autotvm.feature.{place}", f"{fea!r:.60} is no list of features",
            "Give what get_itervar_feature returned.",
        ) from None  # fmt: skip


def get_itervar_feature_flatten(
    sch: Schedule, args: Sequence[Any] = (), take_log: bool = True
) -> npt.NDArray[np.float32]:
    """`get_itervar_feature`, flattened."""
    return flatten_itervar_feature(get_itervar_feature(sch, args, take_log))


def get_buffer_curve_sample_flatten(
    sch: Schedule, args: Sequence[Any] = (), sample_n: int = SAMPLES
) -> npt.NDArray[np.float32]:
    """Curves of the innermost accesses, see `loop_features.py`; args: not needed; sample_n:
    samples of each."""
    if not 0 < sample_n <= MOST_SAMPLES:
        raise SpaceError(
            f"get_buffer_curve_sample_flatten(sample_n={sample_n})",
            f"not from 1 to {MOST_SAMPLES}", "Leave sample_n out.",
        )  # fmt: skip
    return np.asarray(curve_features(_group(sch), sample_n)[0], np.float32)


def _listed(row: LoopRow) -> list[list[Any]]:
    """One candidate's row as lists of Python's numbers."""
    accesses = [[name, *map(_number, pattern)] for name, pattern in row.accesses.items()]
    attributes = ["_attr_", *map(_number, row.attributes)]
    return [["_itervar_", row.axis], attributes, ["_arith_", *row.arithmetic], *accesses]


def _number(value: Any) -> Any:
    """Of one candidate, whose numbers may be vectors of one."""
    return np.ravel(value)[0].item()


def _group(sch: Schedule) -> Group:
    target = Target.current() or Target("llvm")
    sketch = Sketch("given", sch.dag, ConfigSpace(), lambda _: sch, target)
    (group,) = sketch.groups(np.zeros(1, np.int64))
    return group


open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.feature", name, _ELSEWHERE)
