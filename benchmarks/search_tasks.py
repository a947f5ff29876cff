"""The eight tasks on which benchmarks judge the search: one of every kind a network has.

In: a target.  Out: name -> `Task` with the sketches of templates and rules.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te, topi
from tilewright.base.dtype import DType
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.rules.derive import ansor_rules, with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor


def sum_of(dtype: str) -> str:
    """What sums of products are stored as: products of narrow integers need more room."""
    kind = DType(dtype)
    return kind.accumulator if kind.is_int else kind


def conv2d_bias_relu(
    channels: int, size: int, outputs: int, kernel: int, stride: int = 1, dtype: str = "float32",
    batch: int = 1, last: bool = False,
) -> list[Tensor]:  # fmt: skip
    """Padded to keep its size (before the stride); last: NHWC, else NCHW."""
    image, taps = (size, size), (kernel, kernel)
    shape = (batch, *image, channels) if last else (batch, channels, *image)
    data = te.placeholder(shape, dtype, "data")
    filters = (*taps, channels, outputs) if last else (outputs, channels, *taps)
    weight = te.placeholder(filters, dtype, "kernel", constant=True)
    op = topi.nn.conv2d_nhwc if last else topi.nn.conv2d_nchw
    conv = op(data, weight, stride, kernel // 2, 1, out_dtype=sum_of(dtype))
    each = (1, 1, 1, outputs) if last else (1, outputs, 1, 1)
    bias = te.placeholder(each, conv.dtype, "bias", constant=True)
    return [data, weight, bias, topi.nn.relu(topi.add(conv, bias))]


def depthwise_relu(
    channels: int, size: int, batch: int = 1, dtype: str = "float32"
) -> list[Tensor]:
    data = te.placeholder((batch, channels, size, size), dtype, "data")
    weight = te.placeholder((channels, 1, 3, 3), dtype, "kernel", constant=True)
    conv = topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1, out_dtype=sum_of(dtype))
    return [data, weight, topi.nn.relu(conv)]


def dense_bias(rows: int, inputs: int, outputs: int, dtype: str = "float32") -> list[Tensor]:
    data = te.placeholder((rows, inputs), dtype, "data")
    weight = te.placeholder((outputs, inputs), dtype, "weight", constant=True)
    product = topi.nn.dense(data, weight, out_dtype=sum_of(dtype))
    bias = te.placeholder((outputs,), product.dtype, "bias", constant=True)
    return [data, weight, bias, topi.add(product, bias)]


def batch_matmul(
    batch: int, rows: int, inner: int, columns: int, dtype: str = "float32"
) -> list[Tensor]:
    left = te.placeholder((batch, rows, inner), dtype, "left")
    right = te.placeholder((batch, columns, inner), dtype, "right")
    return [left, right, topi.nn.batch_matmul(left, right, out_dtype=sum_of(dtype))]


def attention(heads: int, rows: int, keys: int, depth: int, dtype: str = "float32") -> list[Tensor]:
    """softmax(q k / sqrt(depth)) v, for each head."""
    q = te.placeholder((heads, rows, depth), dtype, "q")
    k, v = (te.placeholder((heads, keys, depth), dtype, name) for name in "kv")
    scores = topi.nn.batch_matmul(topi.multiply(q, depth**-0.5), k)
    return [q, k, v, topi.nn.batch_matmul(topi.nn.softmax(scores), v, transpose_b=False)]


def softmax(rows: int, columns: int, dtype: str = "float32") -> list[Tensor]:
    data = te.placeholder((rows, columns), dtype, "data")
    return [data, topi.nn.softmax(data)]


def add_relu(*shape: int, dtype: str = "float32") -> list[Tensor]:
    left = te.placeholder(shape, dtype, "left")
    right = te.placeholder(shape, dtype, "right")
    return [left, right, topi.nn.relu(topi.add(left, right))]


def max_pool(channels: int, size: int, dtype: str = "float32") -> list[Tensor]:
    data = te.placeholder((1, channels, size, size), dtype, "data")
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
