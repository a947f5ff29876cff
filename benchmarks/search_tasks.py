"""The eight tasks on which benchmarks judge the search: one of every kind a network has.

In: a target.  Out: name -> `Task` with the sketches of templates and rules.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te, topi
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.rules.derive import ansor_rules, with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor


def conv2d_bias_relu(
    channels: int, size: int, outputs: int, kernel: int, stride: int = 1
) -> list[Tensor]:
    """Batch 1, NCHW, padded to keep its size (before the stride)."""
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((outputs, channels, kernel, kernel), name="kernel", constant=True)
    bias = te.placeholder((1, outputs, 1, 1), name="bias", constant=True)
    conv = topi.nn.conv2d_nchw(data, weight, stride, kernel // 2, 1)
    return [data, weight, bias, topi.nn.relu(topi.add(conv, bias))]


def depthwise_relu(channels: int, size: int) -> list[Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    weight = te.placeholder((channels, 1, 3, 3), name="kernel", constant=True)
    return [data, weight, topi.nn.relu(topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1))]


def dense_bias(rows: int, inputs: int, outputs: int) -> list[Tensor]:
    data = te.placeholder((rows, inputs), name="data")
    weight = te.placeholder((outputs, inputs), name="weight", constant=True)
    bias = te.placeholder((outputs,), name="bias", constant=True)
    return [data, weight, bias, topi.add(topi.nn.dense(data, weight), bias)]


def batch_matmul(batch: int, rows: int, inner: int, columns: int) -> list[Tensor]:
    left = te.placeholder((batch, rows, inner), name="left")
    right = te.placeholder((batch, columns, inner), name="right")
    return [left, right, topi.nn.batch_matmul(left, right)]


def softmax(rows: int, columns: int) -> list[Tensor]:
    data = te.placeholder((rows, columns), name="data")
    return [data, topi.nn.softmax(data)]


def max_pool(channels: int, size: int) -> list[Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    return [data, topi.nn.pool2d(data, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")]


TASKS: dict[str, Callable[[], list[Tensor]]] = {
    "conv 3x3 512x7x7": lambda: conv2d_bias_relu(512, 7, 512, 3),
    "conv 3x3 64x56x56": lambda: conv2d_bias_relu(64, 56, 64, 3),
    "conv 1x1 256x14x14": lambda: conv2d_bias_relu(256, 14, 1024, 1),
    "depthwise 512x14x14": lambda: depthwise_relu(512, 14),
    "dense 2048-1000": lambda: dense_bias(1, 2048, 1000),
    "batch_matmul 12x128x64": lambda: batch_matmul(12, 128, 64, 128),
    "softmax 1536x128": lambda: softmax(1536, 128),
    "max_pool 64x112x112": lambda: max_pool(64, 112),
}


def task(name: str, target: str | Target, *, ansor_alone: bool = False) -> Task:
    """ansor_alone: no templates, and no rules but Ansor's"""
    found = task_of_dag(ComputeDAG(TASKS[name]()), target, name)
    if ansor_alone:
        return with_rules(found, templates=False, rules=ansor_rules(found.target))
    return with_rules(found)
