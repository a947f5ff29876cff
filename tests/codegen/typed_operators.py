"""Small operators in any element type.

In: a `DType`.  Out: `OPERATORS`, name -> (its tensors, the types it is for).
Read next: `test_element_types.py`, `benchmarks/element_types.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright import te, topi
from tilewright.base.dtype import TYPES, DType
from tilewright.te.tensor import Tensor


def tensor(name: str, dtype: DType, *shape: int, constant: bool = False) -> Tensor:
    return te.placeholder(shape, dtype, name, constant=constant)


def wide(dtype: DType) -> str:
    """Narrow integers add up in a wider type; other sums are stored in the type of their data."""
    return dtype.accumulator if dtype.is_int else dtype


def elementwise(dtype: DType) -> list[Tensor]:
    a, b = tensor("a", dtype, 3, 64), tensor("b", dtype, 3, 64)
    return [a, b, topi.maximum(topi.add(a, topi.multiply(b, 3)), 2)]


def choose(dtype: DType) -> list[Tensor]:
    a, b = tensor("a", dtype, 100), tensor("b", dtype, 100)
    return [a, b, te.compute((100,), lambda i: te.if_then_else(i % 3 < 1, a[i], b[i]), name="out")]


def to_float32(dtype: DType) -> list[Tensor]:
    a = tensor("a", dtype, 64, 8)
    return [a, te.compute((64, 8), lambda i, j: a[i, j].astype("float32"), name="out")]


def row_sum(dtype: DType) -> list[Tensor]:
    a, k = tensor("a", dtype, 12, 100), te.reduce_axis((0, 100), "k")
    return [a, te.compute((12,), lambda i: te.sum(a[i, k], axis=k), name="out")]


def row_max(dtype: DType) -> list[Tensor]:
    a, k = tensor("a", dtype, 12, 100), te.reduce_axis((0, 100), "k")
    return [a, te.compute((12,), lambda i: te.max(a[i, k], axis=k), name="out")]


def dense(dtype: DType) -> list[Tensor]:
    a, b = tensor("a", dtype, 16, 48), tensor("b", dtype, 32, 48)
    return [a, b, topi.nn.dense(a, b, out_dtype=wide(dtype))]


def batch_matmul(dtype: DType) -> list[Tensor]:
    a, b = tensor("a", dtype, 2, 16, 24), tensor("b", dtype, 2, 32, 24)
    return [a, b, topi.nn.batch_matmul(a, b, out_dtype=wide(dtype))]


def conv2d(dtype: DType) -> list[Tensor]:
    a = tensor("data", dtype, 1, 8, 9, 9)
    w = tensor("weight", dtype, 16, 8, 3, 3, constant=True)
    return [a, w, topi.nn.relu(topi.nn.conv2d_nchw(a, w, 1, 1, 1, out_dtype=wide(dtype)))]


def depthwise(dtype: DType) -> list[Tensor]:
    a = tensor("data", dtype, 1, 16, 9, 9)
    w = tensor("weight", dtype, 16, 1, 3, 3, constant=True)
    return [a, w, topi.nn.depthwise_conv2d_nchw(a, w, 1, 1, 1, out_dtype=wide(dtype))]


def max_pool(dtype: DType) -> list[Tensor]:
    a = tensor("data", dtype, 1, 4, 10, 10)
    return [a, topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")]


def avg_pool(dtype: DType) -> list[Tensor]:
    a = tensor("data", dtype, 1, 4, 10, 10)
    return [a, topi.nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg")]


def softmax(dtype: DType) -> list[Tensor]:
    a = tensor("a", dtype, 8, 40)
    return [a, topi.nn.softmax(a)]


def functions(dtype: DType) -> list[Tensor]:
    a = tensor("a", dtype, 128)
    return [a, te.compute((128,), lambda i: te.tanh(a[i]) * te.exp(a[i] * 0.125), name="out")]


ANY, NUMBERS, FLOATS = (
    [DType(t) for t in TYPES if test(DType(t))]
    for test in (lambda t: True, lambda t: t.kind != "bool", lambda t: t.is_float)
)
OPERATORS: dict[str, tuple[Callable[[DType], list[Tensor]], list[DType]]] = {
    "choose": (choose, ANY), "to float32": (to_float32, ANY),
    "elementwise": (elementwise, NUMBERS), "sum": (row_sum, NUMBERS), "max": (row_max, NUMBERS),
    "dense": (dense, NUMBERS), "batch_matmul": (batch_matmul, NUMBERS),
    "conv2d": (conv2d, NUMBERS), "depthwise": (depthwise, NUMBERS),
    "max_pool": (max_pool, NUMBERS), "avg_pool": (avg_pool, FLOATS), "softmax": (softmax, FLOATS),
    "functions": (functions, FLOATS),
}  # fmt: skip
