"""Features of programs by the auto-scheduler's names, for cost models of users.

In: states with their task, pairs, or a log.  Out: a float32 matrix for each program, with a row for
each store.  What the columns are, and which are ours: `store_features.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import door
from tilewright.base.errors import RecordError, ScheduleError, SpaceError, TilewrightError, absent
from tilewright.schedule.schedule import Schedule
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.loop_state import State, schedule_of
from tilewright_tvm.auto_scheduler.pairs import RecordReader
from tilewright_tvm.auto_scheduler.records import Path
from tilewright_tvm.auto_scheduler.results import MeasureInput, MeasureResult
from tilewright_tvm.auto_scheduler.store_features import MOST_BUFFERS, names, store_features

DEFAULT_MAX_N_BUFS, DEFAULT_FEATURE_VEC_LEN = MOST_BUFFERS, len(names())

Arrays = tuple[npt.NDArray[Any], npt.NDArray[np.float64], npt.NDArray[np.int64]]
_ELSEWHERE = {
    "features_from_primfunc": "Use get_per_store_features_from_states.",
    "named_features_from_primfunc": "Use get_per_store_features_from_states.",
    "unpack_feature": "Features come as arrays; leave it out.",
}


@door(SpaceError, "feature.get_per_store_feature_names")
def get_per_store_feature_names(max_n_bufs: int | None = None) -> list[str]:
    """What each column is; max_n_bufs: buffers that a store's row has room for, by default 5."""
    return names(_room(max_n_bufs))


@door(SpaceError, "feature.get_per_store_features_from_states")
def get_per_store_features_from_states(
    states: Sequence[State | Schedule], task: Computation, max_n_bufs: int | None = None
) -> npt.NDArray[Any]:
    """A matrix for each state: float32 [stores, columns]; of a state that is not finished one row
    of zeros."""
    return _listed([_row(schedule_of(state), _room(max_n_bufs)) for state in states])


@door(SpaceError, "feature.get_per_store_features_from_measure_pairs")
def get_per_store_features_from_measure_pairs(
    inputs: Sequence[MeasureInput], results: Sequence[MeasureResult],
    skip_first_n_feature_extraction: int = 0, max_n_bufs: int | None = None,
) -> Arrays:  # fmt: skip
    """(matrices, throughputs, tasks) of trials.

    throughputs: of the fastest trial of the same task as 1; of a failure 0
    tasks:       the number of each trial's task, in the order they appear
    skip_first_n_feature_extraction: the first trials, whose matrices are one row of zeros
    """
    if len(inputs) != len(results):
        raise SpaceError(
            "get_per_store_features_from_measure_pairs",
            f"{len(inputs)} inputs and {len(results)} results",
            "Pass pairs as load_records gives them.",
        )  # fmt: skip
    room, skipped = _room(max_n_bufs), skip_first_n_feature_extraction
    rows = [
        _nothing(room) if k < skipped else _trial(given, room) for k, given in enumerate(inputs)
    ]
    keys = [given.record.task.of_any_device for given in inputs]
    number = {key: k for k, key in enumerate(dict.fromkeys(keys))}
    seconds = np.array(
        [float(np.mean(r.costs)) if r.error_no == 0 else np.inf for r in results], np.float64
    )
    tasks = np.array([number[key] for key in keys], np.int64)
    fastest = np.array([seconds[tasks == k].min() for k in tasks], np.float64)
    speeds = np.where(np.isfinite(seconds), fastest / seconds, 0.0)
    return _listed(rows), speeds, tasks


@door(RecordError, "feature.get_per_store_features_from_file")
def get_per_store_features_from_file(
    filename: Path, max_lines: int, max_n_bufs: int | None = None
) -> Arrays:
    """The same of the first `max_lines` trials of a log."""
    inputs, results = RecordReader(filename).read_lines(max_lines)
    return get_per_store_features_from_measure_pairs(inputs, results, 0, max_n_bufs)


def _room(buffers: int | None) -> int:
    if buffers is not None and not 1 <= buffers <= 100:
        raise SpaceError(f"max_n_bufs={buffers}", "not a number from 1 to 100", "Leave it out.")
    return MOST_BUFFERS if buffers is None else buffers


def _trial(given: MeasureInput, room: int) -> npt.NDArray[np.float32]:
    try:
        return _row(given.state.schedule, room)
    except TilewrightError:  # a record whose steps do not apply
        return _nothing(room)


def _row(schedule: Schedule, room: int) -> npt.NDArray[np.float32]:
    try:
        return store_features(schedule, room)
    except (ScheduleError, SpaceError):
        return _nothing(room)


def _nothing(room: int) -> npt.NDArray[np.float32]:
    return np.zeros((1, len(names(room))), np.float32)


def _listed(rows: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[Any]:
    found = np.empty(len(rows), object)
    for k, row in enumerate(rows):
        found[k] = row
    return found


def __getattr__(name: str) -> Any:
    raise absent("auto_scheduler.feature", name, _ELSEWHERE)
