"""`testing.autotvm`: a template, tasks and results to try tuners with, where no device is needed.

In: sizes.  Out: a task whose space has 64 configurations, a runner that invents costs, records.
Read next: `autotvm/measure/measure.py`, `autotvm/tuners.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from tilewright import te
from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import get_config, template
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor
from tilewright_tvm.autotvm.measure.measure import BuildResult, Runner
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult

__all__ = ["DummyRunner", "bad_matmul", "get_sample_records", "get_sample_task", "matmul"]


class DummyRunner(Runner):
    """Runs nothing: costs are random numbers of seconds below one."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]
    ) -> list[MeasureResult]:
        costs = 1 - np.random.random(len(measure_inputs))  # none is zero
        return [MeasureResult((float(cost),), 0, 0.2, time.time()) for cost in costs]


def _product(rows: int, depth: int, columns: int, dtype: str, summed: int) -> list[Tensor]:
    """[a, b, product], of which only the first `summed` terms are added."""
    a = te.placeholder((rows, depth), dtype, name="A")
    b = te.placeholder((depth, columns), dtype, name="B")
    r = te.reduce_axis((0, summed), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return [a, b, c]


@template("testing/matmul")
def matmul(N: int, L: int, M: int, dtype: str) -> tuple[Schedule, Sequence[Tensor]]:
    """A tiled product [N, L] x [L, M] with the knobs tile_y and tile_x; columns in tiles of one are
    not split, so configurations differ in how many loops they have."""
    args = _product(N, L, M, dtype, L)
    c = args[-1]
    s = te.create_schedule(c.op)
    (y, x), (r,) = s[c].op.axis, s[c].op.reduce_axis
    cfg = get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    outer_y, inner_y = cfg["tile_y"].apply(s, c, y)
    if cfg["tile_x"].size[-1] > 1:
        outer_x, inner_x = cfg["tile_x"].apply(s, c, x)
        s[c].reorder(outer_y, outer_x, r, inner_y, inner_x)
    else:
        s[c].reorder(outer_y, r, inner_y, x)
    return s, args


@template("testing/bad_matmul")
def bad_matmul(N: int, L: int, M: int, dtype: str) -> tuple[Schedule, Sequence[Tensor]]:
    """`matmul`, whose last term is forgotten on targets with the key "bad_device"."""
    target = Target.current()
    if target is None or "bad_device" not in target.keys:
        return matmul(N, L, M, dtype)
    args = _product(N, L, M, dtype, L - 1)
    s = te.create_schedule(args[-1].op)
    y, x = s[args[-1]].op.axis
    cfg = get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    return s, args


def get_sample_task(n: int = 128) -> tuple[Task, Target]:
    """The task of `matmul` for n x n float32 on llvm, and its target."""
    target = Target("llvm")
    return create("testing/matmul", (n, n, n, "float32"), target), target


def get_sample_records(n: int) -> list[tuple[MeasureInput, MeasureResult]]:
    """`n` pairs of the sample task: configuration k, from the first again after the last, takes
    k + 1 seconds."""
    task, target = get_sample_task()
    space = task.config_space
    return [
        (
            MeasureInput(target, task, space.get(k % len(space))),
            MeasureResult((k + 1,), 0, k, time.time()),
        )
        for k in range(n)
    ]


open_doors(globals(), ("get_sample_records", "get_sample_task"), SpaceError)


def __getattr__(name: str) -> object:
    raise absent("testing.autotvm", name, {})
