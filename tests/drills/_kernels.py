"""Random kernels for drills: a computation, a schedule of it, its program; and trials of them.

In: a random number generator, a kind of target.  Out: `Kernel`s, and what a trial in a worker says.
Read next: `_mutations.py` (what is planted), `planted_kernels.py`, `sound_kernels.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from schedule.computations import draw_computation
from schedule.drawing import draw_schedule
from te.retype import retyped
from tilewright import te
from tilewright.base.errors import TilewrightError
from tilewright.codegen import generate
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.ir.stmt import Program
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure import calls
from tilewright.measure.jobs import Job, RunJob, RunResult
from tilewright.measure.pool import Options, WorkerFailure, WorkerPool
from tilewright.measure.record import TaskId
from tilewright.measure.reference import ReferenceStore
from tilewright.runtime.device import device
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import legality
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG

SECONDS = 20.0  # for one trial
_FLOATS = ("float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Kernel:
    """A lowered computation for a kind of target."""

    dag: ComputeDAG
    program: Program
    kind: str


def kinds() -> list[str]:
    """The kinds of target with a device here that drills are run on."""
    return [k for k in ("llvm", "opencl", "cuda") if device(k).exist]


def drawn(rng: random.Random, kind: str) -> Kernel:
    """Some computation, in one of three cases of another element type, and some schedule."""
    while True:
        dag = ComputeDAG(draw_computation(rng)[1])
        if rng.random() < 0.3:
            dag = retyped(dag, rng.choice(_FLOATS))
        made = of_dag(dag, rng, kind)
        if made is not None:
            return made


def of_dag(dag: ComputeDAG, rng: random.Random, kind: str) -> Kernel | None:
    """`dag` by a random schedule; None where lowering refuses it."""
    return _lowered(dag, draw_schedule(dag, rng, gpu=kind != "llvm"), kind)


def long_sums(rng: random.Random, kind: str) -> Kernel:
    """Sums of rows, one row after the other in the outer loop: what threads may race for."""
    rows, columns = rng.randint(200, 400), rng.randint(40, 80)
    a, k = te.placeholder((columns, rows), name="A"), te.reduce_axis((0, columns), "k")
    out = te.compute((rows,), lambda i: te.sum(a[k, i], axis=k), name="out")
    dag = ComputeDAG([a, out])
    s = Schedule(dag)
    s[out].reorder(s[out].op.reduce_axis[0], s[out].op.axis[0])
    made = _lowered(dag, s, kind)
    assert made is not None
    return made


def tiles(rng: random.Random, kind: str) -> Kernel:
    """A product of matrices by way of tiles in shared memory, which 128 threads fill and read."""
    m, n, k = 8 * rng.randint(1, 3), 16 * rng.randint(1, 2), 4 * rng.randint(2, 5)
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    dag = ComputeDAG([a, b, c])
    s = Schedule(dag)
    copies = [s.cache_read(t, "shared", [c]) for t in (a, b)]
    block_y, y = s[c].split(s[c].op.axis[0], factor=8)
    block_x, x = s[c].split(s[c].op.axis[1], factor=16)
    outer, inner = s[c].split(s[c].op.reduce_axis[0], factor=rng.choice([2, 4]))
    s[c].reorder(block_y, block_x, y, x, outer, inner)
    tags = ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")
    for axis, tag in zip((block_y, block_x, y, x), tags, strict=True):
        s[c].bind(axis, tag)
    for copy in copies:
        s[copy].compute_at(s[c], outer)
        rest, x = s[copy].split(s[copy].fuse(*s[copy].op.axis), factor=16)
        _, y = s[copy].split(rest, factor=8)
        s[copy].bind(x, "threadIdx.x")
        s[copy].bind(y, "threadIdx.y")
    made = _lowered(dag, s, kind)
    assert made is not None
    return made


def _lowered(dag: ComputeDAG, schedule: Schedule, kind: str) -> Kernel | None:
    try:
        tree, target = LoopTree(schedule), Target(kind)
        bounds = tree.bounds()
        legality.check(Resources(bounds, target), "drill")
        program = lower_schedule(schedule, target, tree=tree, bounds=bounds)
        verify(program)
    except TilewrightError:  # a shape that is refused with a way out
        return None
    return Kernel(dag, program, kind)


class Bench:
    """Tries kernels in a worker process; one that dies is replaced."""

    def __init__(self) -> None:
        self._store = ReferenceStore()
        self._pool = WorkerPool(1, Options())

    def result(self, kernel: Kernel, seed: int) -> RunResult:
        """What a trial says of it.  Raises a TilewrightError where there is no text for it."""
        target = Target(kernel.kind).native()
        artifact = compile_source(generate(kernel.program, target), target, Cache(None))
        first, *also = cases(kernel.dag, seed)
        reference = self._store.put(
            kernel.dag.hash, first.inputs, first.expected, first.tolerance, also
        )
        task = TaskId("drill", [], kernel.dag.hash, str(target))
        run = RunJob(Job(task, {}, reference), artifact, race=False)
        try:
            done = self._pool.submit(calls.run, run, 0, 4, 3, 0.0, 0, 0.0, timeout=SECONDS)
            result: RunResult = done.result()
            return result
        except WorkerFailure as failure:
            return RunResult(error="run", message=str(failure))

    def close(self) -> None:
        self._pool.close()
        self._store.close()


@contextmanager
def bench() -> Iterator[Bench]:
    opened = Bench()
    try:
        yield opened
    finally:
        opened.close()


def arrays(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """One per argument of the program; outputs are empty."""
    given = iter(inputs)
    return [
        np.array(next(given)) if role == "input" else np.zeros(b.shape or (1,), b.dtype.storage)
        for b, role in zip(kernel.program.args, kernel.program.roles, strict=True)
    ]
