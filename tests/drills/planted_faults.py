"""One candidate in ten is faulty, in every way that a kernel can be: only those are lost."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np

from device import test_faults as gpu
from drills.drill import Counts, Drill
from measure import kernels as cpu
from tilewright.base.artifact import Source
from tilewright.measure.jobs import Job
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import TaskId
from tilewright.measure.reference import ReferenceStore
from tilewright.runtime.device import device
from tilewright.targets.target import Target

LIMIT = 2.0  # seconds for a trial, also beside other work
FAULTS = {
    "llvm": ("segfault", "endless", "wrong", "overrun", "memory", "stack", "abort", "output"),
    "opencl": ("illegal", "endless", "wrong", "overrun", "memory", "stack", "output"),
    "cuda": ("illegal", "endless", "wrong", "overrun", "memory", "abort"),
}


def run(tries: int, seed: int) -> Counts:
    """The same number on each device there is."""
    there = [kind for kind in FAULTS if device(kind).exist]
    counts: Counts = Counter()
    for at, kind in enumerate(there):
        share = tries // len(there) + (at < tries % len(there))
        counts += _on_device(kind, share, random.Random(f"{seed} {kind}"))
    return counts


def _on_device(kind: str, tries: int, rng: random.Random) -> Counts:
    planted = rng.sample(range(1, tries), max(tries // 10, 1))
    faults = {n: FAULTS[kind][k % len(FAULTS[kind])] for k, n in enumerate(planted)}
    with (
        LocalBuilder(build_func="tilewright.measure.calls:build_source", n_parallel=1) as builder,
        LocalRunner(timeout=LIMIT, number=1, repeat=1, race=False) as runner,
        ReferenceStore() as store,
        Pipeline(builder, runner) as pipeline,
    ):
        target = Target(kind).on(runner.describe(Target(kind)))
        size = cpu.SIZE if kind == "llvm" else gpu.SIZE
        a = np.linspace(-3, 3, size, dtype=np.float32)
        reference = store.put("twice", [a], [2.0 * a.astype(np.float64)], [1e-6])
        task = TaskId("twice", [], "d" * 32, str(target))
        jobs = [
            Job(task, {"source": _source(kind, faults.get(n, "good"), n)}, reference,
                decisions={"n": n}, target=target, trial=n)
            for n in range(tries)
        ]  # fmt: skip
        records = list(pipeline.measure(jobs, ahead=16))
    assert [r.trial for r in records] == list(range(tries))
    return Counter(_named(faults.get(r.trial), r.result.ok) for r in records)


def _source(kind: str, fault: str, number: int) -> Source:
    """number: sources that differ in it are different programs to the pipeline"""
    if kind == "llvm":
        return cpu.source(fault, number)
    return gpu.source(kind, fault, number)


def _named(fault: str | None, kept: bool) -> str:
    if fault is None:
        return "sound and kept" if kept else "sound and lost"
    return "planted and kept" if kept else "planted and lost"


DRILL = Drill(
    name="planted_faults",
    tried="candidates on each kind of device",
    run=run,
    never=("sound and lost", "planted and kept"),
    always=("sound and kept", "planted and lost"),
    short=20,
    long=2000,
)
