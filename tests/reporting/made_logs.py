"""Logs as a search writes them, made by program: what a report of any size can be tried on.

In: how many tasks and trials.  Out: a log.  Decisions are drawn from the sketches of real
templates, times follow the machine model with noise; only the best of a task has its steps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright import front, te
from tilewright.measure.database import Database
from tilewright.measure.record import Result, make_record
from tilewright.schedule.task import Task
from tilewright.search.jobs import decisions_of, task_id
from tilewright.search.propose.model_proposer import evaluate
from tilewright.search.propose.proposers import Candidate
from tilewright.targets.spec import DeviceSpec
from tilewright.topi import nn

TARGET = "cuda -arch=sm_90"
DEVICE = DeviceSpec("cuda", "Example GPU", "Example GPU / sm_90 / 132 cores / 80 GiB", "sm_90")
BEGAN = 1.8e9
VERSIONS = {"tilewright": "0", "compiler": "NVRTC 13.0"}
REASONS = (
    ("verify", "kernel k: 1152 threads in a block, the device has 1024"),
    ("compile", "too many resources requested for launch"),
    ("timeout", "the trial took more than 10 s"),
    ("wrong", "output C is wrong in 12 of 4096 elements"),
)


def dense(n: int, m: int, k: int):  # type: ignore[no-untyped-def]
    """A layer of a network."""
    x = te.placeholder((n, k), "float32", "x")
    w = te.placeholder((m, k), "float32", "w", constant=True)
    y = nn.dense(x, w)
    return [x, w, te.compute(y.shape, lambda i, j: te.max(y[i, j], 0.0), "relu")]


def tasks_of(count: int, target: str = TARGET) -> list[Task]:
    """So many layers, all of different shapes."""
    made = [front.task(dense, (64 + 8 * (k % 8), 64 * (1 + k // 8), 256), target)
            for k in range(count)]  # fmt: skip
    return made


def write_log(
    path: Path, tasks: list[Task], trials: int, *, seed: int = 0, layers: bool = True,
    faster: float = 1.0, device: DeviceSpec = DEVICE,
) -> None:  # fmt: skip
    """A log of a search over `tasks`, of so many trials in all.

    faster: by which all times are divided
    """
    rng = np.random.default_rng(seed)
    each = -(-trials // len(tasks))
    names = {t.key: [f"/encoder/layer.{k}/dense", f"/encoder/layer.{k}/relu"]
             for k, t in enumerate(tasks)}  # fmt: skip
    with Database(path) as database:
        database.note_run(
            tuner="xgb", seed=seed, trials=trials, seconds=None, tasks=[t.key for t in tasks],
            calls=[1 + k % 3 for k in range(len(tasks))], instead_of={},
            layers=names if layers else {}, devices=1,
        )  # fmt: skip
        told = [_candidates(task, each, rng) for task in tasks]
        at = BEGAN
        for number in range(each):
            for task, (sketch, indices, predicted, measured, best) in zip(tasks, told, strict=True):
                if number >= len(indices):
                    continue
                at += 0.05
                candidate = Candidate(sketch, int(indices[number]))
                refused = rng.random() < 0.04 and number != best
                kind, text = REASONS[int(rng.integers(len(REASONS)))]
                seconds = float(measured[number]) / faster
                spread = 1 + 0.004 * rng.standard_normal(3)
                result = Result(
                    costs=() if refused else tuple((seconds * spread).tolist()),
                    error=kind if refused else None, message=text if refused else "",
                    build_s=0.2, run_s=0.02, verified=not refused,
                    raced=not refused and number != best and rng.random() < 0.7,
                    predicted=float(predicted[number]), builder=4000 + int(rng.integers(4)),
                    built=at - 0.1,
                )  # fmt: skip
                steps = sketch.close(candidate.index).to_json() if number == best else []
                record = make_record(
                    task_id(task, device), result, origin=sketch.origin,
                    decisions=decisions_of(candidate), steps=steps, device=device.name, seed=seed,
                    trial=number, timestamp=at, versions=VERSIONS,
                )  # fmt: skip
                database.append(record, task.dag.to_json())
    _without_clock(path)


def _candidates(task, count, rng):  # type: ignore[no-untyped-def]
    sketch = task.sketches[0]
    drawn = np.unique(sketch.space.sample(8 * count, rng))
    _, seconds = evaluate(sketch, drawn)
    legal = drawn[seconds < 3000]
    indices = rng.permutation(legal)[:count]
    _, predicted = evaluate(sketch, indices)
    measured = predicted * np.exp(0.2 * rng.standard_normal(len(indices)))
    return sketch, indices, predicted, measured, int(np.argmin(measured))


def _without_clock(path: Path) -> None:
    """The run began when its log says it did."""
    first, rest = path.read_bytes().split(b"\n", 1)
    head, _, tail = first.partition(b'"timestamp":')
    after = tail[tail.index(b",") :]
    path.write_bytes(head + b'"timestamp":%.1f' % BEGAN + after + b"\n" + rest)
