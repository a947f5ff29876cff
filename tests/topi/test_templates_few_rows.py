"""`dense.rows`: members at random compute what numpy says, in every form that an anchor has; its
weights come 16 bytes at a time, to registers or ahead of their use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter import run as run_defined
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.codegen.steady_first import steady_first
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Program, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")
Case = tuple[list[Tensor], Callable[..., Any]]


def dense(m: int, k: int, n: int, dtype: str = "float16", constant: bool = True) -> Case:
    data = te.placeholder((m, k), dtype, "data")
    weight = te.placeholder((n, k), dtype, "weight", constant=constant)
    bias = te.placeholder((n,), dtype, "bias", constant=True)
    out = topi.nn.relu(topi.add(topi.nn.dense(data, weight), bias))
    return [data, weight, bias, out], lambda x, w, b: np.maximum(x @ w.T + b, 0)


def gated(m: int, k: int, n: int) -> Case:
    """Pairs of columns that are added."""
    data = te.placeholder((m, k), "float16", "data")
    weight = te.placeholder((2 * n, k), "float16", "weight", constant=True)
    both = topi.nn.dense(data, weight)
    first, second = (topi.strided_slice(both, [0, c], [m, 2 * n], [1, 2]) for c in (0, 1))
    return [data, weight, topi.add(topi.nn.relu(first), second)], _gated


def _gated(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    both = x @ w.T
    return np.maximum(both[:, ::2], 0) + both[:, 1::2]


def normed(m: int, k: int, n: int, center: bool = False) -> Case:
    """Of rows whose norm is a power of two: exact."""
    rows = te.placeholder((1, m, k), "float16", "rows")
    weight = te.placeholder((n, k), "float16", "weight", constant=True)
    norm = topi.nn.standardize(topi.cast(rows, "float32"), (-1,), 0.0, center)
    data = topi.reshape(topi.cast(norm, "float16"), (m, k))
    return [rows, weight, topi.nn.dense(data, weight)], _normed


def _normed(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return (x[0] / np.sqrt((x[0] ** 2).mean(-1, keepdims=True))) @ w.T


def of_bytes(m: int, k: int, n: int) -> Case:
    data = te.placeholder((m, k), "int8", "data")
    weight = te.placeholder((n, k), "int8", "weight", constant=True)
    return [data, weight, topi.nn.dense(data, weight, out_dtype="int32")], lambda x, w: x @ w.T


def matmul(m: int, k: int, n: int, constant: bool = False) -> Case:
    a = te.placeholder((m, k), "float16", "a")
    b = te.placeholder((k, n), "float16", "b", constant=constant)
    return [a, b, topi.nn.matmul(a, b)], lambda a, b: a @ b


def batch_matmul(batch: int, m: int, k: int, n: int, transposed: bool = True) -> Case:
    a = te.placeholder((batch, m, k), "float16", "a")
    b = te.placeholder((batch, n, k) if transposed else (batch, k, n), "float16", "b")
    product = topi.nn.batch_matmul(a, b, transpose_b=transposed)
    return [a, b, product], lambda a, b: a @ (b.transpose(0, 2, 1) if transposed else b)


CASES: dict[str, Case] = {
    "one row": dense(1, 256, 48),
    "three rows": dense(3, 512, 40),
    "odd sizes": dense(5, 50, 7),
    "a depth that lanes do not divide": dense(1, 1000, 37),
    "bfloat16": dense(1, 128, 24, "bfloat16"),
    "float32": dense(2, 256, 64, "float32"),
    "bytes": of_bytes(2, 96, 40),
    "weights as an input": dense(1, 256, 24, constant=False),
    "columns side by side": matmul(1, 256, 128),
    "four rows, columns side by side": matmul(4, 200, 96),
    "constants are turned": matmul(1, 256, 64, constant=True),
    "a gate": gated(1, 256, 24),
    "a gate of three rows, odd": gated(3, 96, 13),
    "a norm": normed(1, 256, 40),
    "norms of three rows": normed(3, 96, 12),
    "a norm that is centered": normed(1, 128, 24, center=True),
    "one column": dense(300, 64, 1),
    "a batch": batch_matmul(3, 1, 128, 40),
    "a batch, columns side by side": batch_matmul(2, 2, 96, 64, transposed=False),
}


def sketch_of(tensors: list[Tensor], target: Target = CUDA) -> Sketch:
    dag = ComputeDAG(tensors)
    (registered,) = (t for t in anchor_templates(dag, target) if t.name == "dense.rows")
    return sketch_of_anchor(registered, dag, target)


def member(sketch: Sketch, **wanted: int) -> int:
    """The first one with these values."""
    knobs = sketch.space.space_map
    positions = [
        [[e.val for e in knob].index(wanted[name]) if name in wanted else 0]
        for name, knob in knobs.items()
    ]
    return int(sketch.space.indices(np.array(positions))[0])


def program_of(sketch: Sketch, index: int, tensors: list[Tensor]) -> Program:
    return lower_schedule(sketch.close(index), sketch.target, args=tensors)


def check(
    case: Case, sketch: Sketch, index: int, run: Callable[..., None] = run_fast,
    chained: bool = False,
) -> None:  # fmt: skip
    """Small integers: exact, whatever the order of the sums.

    chained: as a link of a chain, whose copies of weights come first
    """
    tensors, expected = case
    rng = np.random.default_rng(index)
    given = [rng.integers(-2, 3, t.shape).astype(t.dtype.storage) for t in tensors[:-1]]
    if tensors[0].name == "rows":
        row, k = np.indices(tensors[0].shape[1:])
        given[0] = (2.0**row * (-1.0) ** (row + k // 4))[None].astype("float16")
    program = program_of(sketch, index, tensors)
    if chained:
        weights = frozenset(b for b in program.args if b.name.startswith("weight"))
        program = steady_first(
            replace(program, steady=weights), sketch.target.limits.shared_bytes_per_block
        )
    out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
    arrays = [
        a if b.packing is None else b.packing.apply(a)
        for a, b in zip(given, program.args, strict=False)
    ]
    run(program, [*arrays, out])
    np.testing.assert_array_equal(out, expected(*(a.astype(np.float64) for a in given)))


@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    sketch = sketch_of(CASES[name][0])
    some = sketch.space.sample(256, np.random.default_rng(0))
    assert sum(len(group.rows) for group in sketch.groups(some)) == len(some)
    legal = some[sketch.legal(some)]
    assert len(legal) > 8
    for index in legal[:5]:
        check(CASES[name], sketch, int(index))


@pytest.mark.parametrize("slots", [0, 3])
def test_no_thread_reads_what_another_still_writes(slots: int) -> None:
    case = dense(1, 128, 8)
    sketch = sketch_of(case[0])
    check(case, sketch, member(sketch, lanes=8, threads=2, each=2, slots=slots), run_defined)


@given(
    st.integers(1, 8), st.integers(1, 72), st.sampled_from([1, 8, 15, 33, 64]),
    st.integers(0, 10**6),
)  # fmt: skip
@examples(12)
def test_every_extent(m: int, n: int, k: int, seed: int) -> None:
    case = dense(m, k, n)
    sketch, rng = sketch_of(case[0]), np.random.default_rng(seed)
    some = sketch.space.sample(64, rng)
    check(case, sketch, int(some[sketch.legal(some)][0]))


def text_of(sketch: Sketch, index: int, tensors: list[Tensor], chained: bool = False) -> str:
    program = program_of(sketch, index, tensors)
    if chained:
        constants = frozenset(b for b in program.args if b.name in ("weight", "bias"))
        program = replace(program, steady=constants, lets_in=True)
    return generate(program, sketch.target).text


@pytest.mark.parametrize("name", ["one row", "columns side by side", "bfloat16", "float32"])
def test_weights_are_read_16_bytes_at_a_time(name: str) -> None:
    tensors = CASES[name][0]
    text = text_of(sketch_of(tensors), member(sketch_of(tensors), ahead=4, slots=0), tensors)
    vector = "float4" if name == "float32" else "uint4"
    weight = tensors[1].name
    assert f"reinterpret_cast<const {vector}*>({weight} + " in text
    assert f"{weight}[" not in text.split("{", 1)[1]  # nor one by one


def test_in_a_chain_weights_are_asked_for_before_the_kernel_waits() -> None:
    tensors = CASES["one row"][0]
    sketch = sketch_of(tensors)
    index = member(sketch, lanes=8, slots=3)
    program = program_of(sketch, index, tensors)
    assert any(isinstance(s, AsyncCopy) for k in program.kernels for s in statements(k.body))
    body = text_of(sketch, index, tensors, chained=True).partition("__global__")[2]
    assert 0 < body.index("tw_copy_16(") < body.index("tw_await_kernel_only()")
    assert body.index("tw_await_kernel_only()") < body.index("data +")


def test_in_a_chain_weights_behind_a_norm_are_asked_for_before_the_kernel_waits() -> None:
    """As far as the ring has slots; no more of them, which would take time from kernels before."""
    tensors = CASES["a norm"][0]
    sketch = sketch_of(tensors)
    for slots in (3, 4):
        text = text_of(sketch, member(sketch, lanes=8, ahead=1, slots=slots), tensors, chained=True)
        before = text.partition("__global__")[2].partition("tw_await_kernel_only()")[0]
        assert "tw_copy_16(&weight_shared[" in before and "rows +" not in before
        assert before.index("tw_let_next_in_first()") < before.index("tw_copy_16(&weight_shared[")
        assert "tw_prefetch" not in text


def test_links_of_a_chain_compute_the_same() -> None:
    """Nobody reads what is copied over what others still read."""
    for case in (normed(1, 64, 4), dense(2, 64, 4)):
        sketch = sketch_of(case[0])
        index = member(sketch, lanes=8, ahead=1, slots=3)
        for run in (run_defined, run_fast):
            check(case, sketch, index, run, chained=True)


def test_it_comes_first_for_few_rows_and_refuses_others() -> None:
    def origins(case: Case, target: Target = CUDA) -> list[str]:
        return [s.origin for s in anchor_sketches(ComputeDAG(case[0]), target)]

    assert origins(dense(1, 256, 64, "float32"))[0] == "template:dense.rows"
    assert origins(dense(8, 256, 64))[:2] == ["template:dense.few", "template:dense.rows"]
    assert "template:dense.rows" not in origins(dense(9, 256, 64))
    assert "template:dense.rows" not in origins(dense(1, 256, 64), Target("opencl"))
    with pytest.raises(ScheduleError, match="it has more than 8 rows"):
        sketch_of(dense(9, 256, 64)[0])


def test_what_is_no_matrix_times_rows_is_refused() -> None:
    x = te.placeholder((1, 64), "float16", "x")
    k = te.reduce_axis((0, 64), "k")
    same = te.compute((1, 8), lambda i, j: te.sum(x[i, k] * x[0, k], k), tag="dense")
    with pytest.raises(ScheduleError, match="no product of a matrix"):
        sketch_of([x, same])
    w = te.placeholder((16, 64), "float16", "w")
    r = te.reduce_axis((0, 4), "r")
    y = te.placeholder((1, 64, 4), "float16", "y")
    inner = te.compute((1, 64), lambda i, j: te.sum(y[i, j, r], r), "inner")
    with pytest.raises(ScheduleError, match="inner, which it reads, is a sum itself"):
        sketch_of([y, w, topi.nn.dense(inner, w)])
    apart = te.compute((1, 8), lambda i, j: te.sum(x[i, k] * w[j, 63 - k], k), tag="dense")
    with pytest.raises(ScheduleError, match="along no axis"):
        sketch_of([x, w, apart])


@pytest.mark.parametrize("rows", [1, 4, 8])
def test_what_runs_untuned(rows: int) -> None:
    """Up to four rows a ring; of more, matrix units are faster where there are some."""
    halves, floats = (
        sketch_of(dense(rows, 256, 64)[0]),
        sketch_of(dense(rows, 256, 64, "float32")[0]),
    )
    chosen = [s.fallback() for s in (halves, floats)]
    assert (chosen[0] is None) == (rows > 4) and chosen[1] is not None
    for sketch, index in zip((halves, floats), chosen, strict=True):
        assert index is None or sketch.space.get(index)["slots"].val > 0
