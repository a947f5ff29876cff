"""Computations and invented results for the tests of the auto-scheduler's names.

In: nothing.  Out: registered workloads, tasks, a function that says how long a candidate takes.
"""

from __future__ import annotations

import json
from typing import Any

from tilewright import te, topi
from tilewright.measure.jobs import Job, RunResult
from tilewright.schedule.workload import plain
from tilewright.te.tensor import Tensor
from tilewright_tvm import auto_scheduler
from tilewright_tvm.target import Target

CPU = Target("llvm -num-cores=2 -vector-bytes=32")


@auto_scheduler.register_workload
def product(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return [a, b, topi.nn.relu(c)]


@auto_scheduler.register_workload("tests/conv2d_layer")
def conv2d_layer(size: int, co: int, ci: int, stride: Any, padding: Any) -> list[Tensor]:
    data = te.placeholder((1, ci, size, size), name="data")
    kernel = te.placeholder((co, ci, 3, 3), name="kernel")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


def three(*sizes: int) -> list[auto_scheduler.SearchTask]:
    return [auto_scheduler.SearchTask(func=product, args=(n, n, n), target=CPU) for n in sizes]


def invented(job: Job) -> RunResult:
    """Seconds that depend on the decisions; one in seven fails."""
    number = sum(json.dumps(plain(list(job.decisions.values()))).encode())
    if number % 7 == 0 and job.decisions:
        return RunResult(error="run", message=f"lost {number} times")
    return RunResult(costs=(1e-6 * (1 + number % 97),), verified=True)
