"""Elementwise stages of GPUs run in vectors where every access is one, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.driver.build import generate_source
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.search.rules.derive import rule_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

# Two cores, which small tensors keep busy.
CUDA = Target("cuda -arch=sm_90 -num-cores=2")


def placeholder(name: str, *shape: int, dtype: str = "float16") -> Tensor:
    return te.placeholder(shape, dtype, name)


def biased(*shape: int, dtype: str = "float16", axis: int = -1) -> list[Tensor]:
    ones = [1] * len(shape)
    ones[axis] = shape[axis]
    x, b = placeholder("x", *shape, dtype=dtype), placeholder("b", *ones, dtype=dtype)
    return [x, b, topi.nn.relu(topi.add(x, b))]


def cast(source: str, to: str) -> list[Tensor]:
    x = placeholder("x", 40, 64, dtype=source)
    return [x, topi.cast(x, to)]


def transposed(*axes: int) -> list[Tensor]:
    x = placeholder("x", 8, 16, 64)
    return [x, topi.transpose(x, axes)]


def sliced(begin: int) -> list[Tensor]:
    x = placeholder("x", 64, 80)
    return [x, topi.multiply(topi.strided_slice(x, [0, begin], [64, begin + 64]), 2.0)]


def padded() -> list[Tensor]:
    x = placeholder("x", 62, 64)
    return [x, topi.nn.pad(x, (1, 0), (1, 0))]


WIDE: dict[str, tuple[Callable[[], list[Tensor]], str]] = {
    "bias along the last axis": (lambda: biased(33, 64), "uint4"),
    "rows that no vector divides": (lambda: [*(t := biased(48, 49))[:1], topi.multiply(t[0], 2.0)],
                                    "uint4"),
    "float32": (lambda: biased(33, 64, dtype="float32"), "float4"),
    "few elements": (lambda: biased(20, 60), "uint2"),
    "half a vector divides": (lambda: biased(64, 60), "uint2"),
    "to float32": (lambda: cast("float16", "float32"), "float4"),
    "to float16": (lambda: cast("float32", "float16"), "uint2"),
    "rows that change places": (lambda: transposed(1, 0, 2), "uint4"),
    "from a multiple on": (lambda: sliced(8), "uint4"),
}  # fmt: skip
SINGLE: dict[str, Callable[[], list[Tensor]]] = {
    "bias along the first axis of odd rows": lambda: biased(48, 49, axis=0),
    "columns that change places": lambda: transposed(0, 2, 1),
    "from the middle of a vector on": lambda: sliced(3),
    "bytes to float32": lambda: cast("int8", "float64"),
    "padding": padded,
}


def check(tensors: list[Tensor], vector: str) -> None:
    dag = ComputeDAG(tensors)
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, t.shape).astype(t.dtype.storage) for t in tensors[:-1]]
    schedules = [default_schedule(dag, CUDA)]
    for sketch in rule_sketches(dag, CUDA):
        schedules += [sketch.close(i) for i in range(sketch.space.range_length)][:4]
    texts = [generate_source(s, CUDA).text for s in schedules]
    assert any("reinterpret_cast" in t for t in texts) == bool(vector)
    assert f"*reinterpret_cast<{vector}*>" in texts[0] or not vector
    marks = {mark for stage in schedules[0].stages for mark in stage.annotations.values()}
    assert ("vectorize" in marks) == bool(vector)
    for schedule in schedules:
        out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
        run_fast(lower_schedule(schedule, CUDA, args=tensors), [*given, out])
        np.testing.assert_array_equal(out, evaluate(dag, given)[0])


@pytest.mark.parametrize("name", WIDE)
def test_neighbours_come_in_vectors(name: str) -> None:
    make, vector = WIDE[name]
    check(make(), vector)


@pytest.mark.parametrize("name", SINGLE)
def test_what_is_no_vector_is_read_element_by_element(name: str) -> None:
    check(SINGLE[name](), "")
