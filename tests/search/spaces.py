"""Tasks for the search's tests, and hidden cost functions in place of hardware.

In: nothing.  Out: the AutoTVM tutorial's conv2d task, a small CPU task, `hidden_cost` of a
candidate's knobs, and measurers that answer from such a function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from schedule.seed003 import FLAGSHIP
from tilewright import te
from tilewright.measure.jobs import Job, RunResult
from tilewright.measure.record import Record, Result, make_record
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import get_config, template
from tilewright.search.jobs import Measurer
from tilewright.search.propose.proposers import Candidate
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor

CPU = Target("llvm -num-cores=2 -vector-bytes=32")


@template("tests/search/matmul")
def matmul(n: int, m: int, k: int) -> tuple[Schedule, list[Tensor]]:
    """Tiles in registers, vectors along columns, rows of tiles over the cores."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = create_schedule([c.op])
    cfg = get_config()
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, num_outputs=2, filter=lambda e: e.size[-1] <= 16)
    cfg.define_split("tile_j", j, num_outputs=3, filter=lambda e: e.size[-1] <= 16)
    cfg.define_split("tile_r", r, num_outputs=2)
    cfg.define_knob("unroll", [0, 1])
    local = s.cache_write(c, "local")
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, jm, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(io, jo, jm, ii, ji)
    s[c].parallel(io)
    s[c].vectorize(ji)
    s[local].compute_at(s[c], jm)
    i, j = s[local].op.axis
    (r,) = s[local].op.reduce_axis
    ro, ri = cfg["tile_r"].apply(s, local, r)
    s[local].reorder(ro, ri, i, j)
    s[local].vectorize(j)
    if cfg["unroll"].val:
        s[local].unroll(ri)
    return s, [a, b, c]


@cache
def flagship() -> Task:
    """10,454,400 configurations, about 16% of them sensible."""
    return create("tests/conv2d_no_batching", FLAGSHIP, "cuda")


def conv(channels: int, size: int) -> Task:
    args = (1, size, size, channels, channels, 3, 3, 1, 1)
    return create("tests/conv2d_no_batching", args, "cuda")


def cpu_task(n: int = 48, m: int = 64, k: int = 32) -> Task:
    """A few hundred configurations, several structures."""
    return create("tests/search/matmul", (n, m, k), CPU)


def hidden_cost(task: Task, indices: np.ndarray) -> np.ndarray:
    """Seconds that depend on sizes of tiles in a way no model of ours has heard of."""
    space = task.sketches[0].space
    values = {n: np.asarray(v, float) for n, v in space.decode(indices).items()}
    if "tile_i.0" in values:
        log = {n: np.log2(v) for n, v in values.items() if "." in n}
        bad = (log["tile_i.1"] - 2) ** 2 + (log["tile_j.2"] - 3) ** 2 + 0.3 * log["tile_r.1"]
        return 1e-5 * (1 + 0.4 * bad + 0.2 * (values["unroll"] == 0))

    def product(level: int) -> np.ndarray:
        return values[f"tile_f.{level}"] * values[f"tile_y.{level}"] * values[f"tile_x.{level}"]

    threads, tile = np.log2(product(2)), np.log2(product(1) * product(3))
    blocks, chunk = np.log2(product(0)), np.log2(values["tile_rc.1"] * values["tile_rc.2"])
    bad = 0.3 * (threads - 7) ** 2 + 0.25 * (tile - 3) ** 2 + 0.2 * (blocks - 6) ** 2
    bad = bad + 0.1 * (chunk - 4) ** 2 + 0.2 * np.abs(np.log2(values["tile_rc.2"]) - 2)
    bad = bad + 0.15 * (values["auto_unroll_max_step"] != 512) + 0.3 * (values["tile_x.2"] != 7)
    return 5e-5 * (1 + bad)


def cost_of(candidate: Candidate, task: Task) -> float:
    return float(hidden_cost(task, np.array([candidate.index]))[0])


def answer(task: Task) -> Callable[[Job], RunResult]:
    """What a runner would say of a job of `task`."""

    def result(job: Job) -> RunResult:
        index = task.sketches[0].space.index_of(job.decisions)
        return RunResult(costs=(cost_of(Candidate(task.sketches[0], index), task),), verified=True)

    return result


class Instant(Measurer):
    """A measurer that answers at once.  failing: trial -> the kind of failure it has."""

    database = None

    def __init__(
        self, tasks: list[Task], failing: Callable[[int], str | None] = lambda trial: None,
        verified: bool = True, interrupt_at: int | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.of = {t.key: answer(t) for t in tasks}
        self.failing, self.verified, self.interrupt_at = failing, verified, interrupt_at
        self.tick = tick
        self.jobs: list[Job] = []
        self.records: list[Record] = []
        self.ahead = 0

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        self.ahead = max(self.ahead, len(self.jobs) - len(self.records))

    def next(self) -> Record:
        number = len(self.records)
        if number == self.interrupt_at:
            raise KeyboardInterrupt
        self.tick()
        job = self.jobs[number]
        kind = self.failing(number)
        result = Result(error=kind, message=f"planted {kind}")
        if kind is None:
            result = Result(costs=self.of[job.task.dag](job).costs, verified=self.verified)
        record = make_record(
            job.task, result, origin=job.origin, decisions=job.decisions, steps=job.steps,
            seed=job.seed, trial=job.trial,
        )  # fmt: skip
        self.records.append(record)
        return record
