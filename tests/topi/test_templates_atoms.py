"""Templates on matrix units: members at random compute what numpy says, of every form of anchor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.split_sums import backwards, joins
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Mma, Program, Wait, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")
TF32 = Target("cuda -arch=sm_90 -precision=tf32")
SPLIT = Target("cuda -arch=sm_90 -precision=3xtf32")


def dense(m: int, k: int, n: int, constant: bool = True, dtype: str = "float16") -> list[Tensor]:
    data = te.placeholder((m, k), dtype, "data")
    weight = te.placeholder((n, k), dtype, "weight", constant=constant)
    bias = te.placeholder((n,), dtype, "bias", constant=True)
    return [data, weight, bias, topi.nn.relu(topi.add(topi.nn.dense(data, weight), bias))]


def matmul(m: int, k: int, n: int, dtype: str = "float16") -> list[Tensor]:
    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    return [a, b, topi.nn.matmul(a, b)]


def quantised(made: Tensor, bias: Tensor) -> Tensor:
    """Sums in int32 as steps of int8."""
    steps = te.compute(
        made.shape, lambda *i: te.round((made[i] + bias[i[1]]).astype("float32") * 0.0625)
    )
    return te.compute(made.shape, lambda *i: te.min(te.max(steps[i], -128), 127).astype("int8"))


def dense_of_bytes(m: int, k: int, n: int, left: str, right: str) -> list[Tensor]:
    data, bias = te.placeholder((m, k), left, "data"), te.placeholder((n,), "int32", "bias")
    weight = te.placeholder((n, k), right, "weight", constant=True)
    return [data, weight, bias, quantised(topi.nn.dense(data, weight, None, "int32"), bias)]


def conv_of_bytes(layout: str, c: int, size: int, f: int, data: str = "uint8") -> list[Tensor]:
    """Sums in int32 of a window of 3 x 3."""
    first = layout == "NCHW"
    image = te.placeholder((1, c, size, size) if first else (1, size, size, c), data, "data")
    shape = (f, c, 3, 3) if first else (3, 3, c, f)
    weight = te.placeholder(shape, "int8", "weight", constant=True)
    make = topi.nn.conv2d_nchw if first else topi.nn.conv2d_nhwc
    return [image, weight, make(image, weight, 1, 1, 1, "int32")]


def batch_matmul(batch: int, m: int, k: int, n: int) -> list[Tensor]:
    a = te.placeholder((batch, m, k), "float16", "a")
    b = te.placeholder((batch, n, k), "float16", "b")
    return [a, b, topi.nn.batch_matmul(a, b)]


def conv(
    layout: str, c: int, size: int, f: int, kernel: int, stride: int = 1, dtype: str = "float16"
) -> list[Tensor]:
    """A convolution that keeps the size of its image, with bias."""
    first = layout == "NCHW"
    data = te.placeholder((1, c, size, size) if first else (1, size, size, c), dtype, "data")
    shape = (f, c, kernel, kernel) if first else (kernel, kernel, c, f)
    weight = te.placeholder(shape, dtype, "weight", constant=True)
    make = topi.nn.conv2d_nchw if first else topi.nn.conv2d_nhwc
    sums = make(data, weight, stride, kernel // 2, 1)
    bias = te.placeholder((1, f, 1, 1) if first else (f,), dtype, "bias", constant=True)
    return [data, weight, bias, topi.add(sums, bias)]


CASES: dict[str, list[Tensor]] = {
    "dense": dense(40, 64, 24),
    "dense of odd sizes": dense(33, 50, 7),
    "dense, few rows": dense(3, 64, 48),
    "dense of two inputs": dense(32, 64, 16, constant=False),
    "matmul": matmul(24, 48, 40),
    "batch_matmul": batch_matmul(3, 20, 32, 12),
    "conv NCHW": conv("NCHW", 32, 7, 16, 3),
    "conv NCHW, first layer": conv("NCHW", 3, 9, 24, 3, stride=2),
    "conv NCHW 1x1": conv("NCHW", 32, 5, 40, 1),
    "conv NHWC": conv("NHWC", 16, 6, 24, 3),
    "conv NHWC, strided": conv("NHWC", 32, 7, 8, 3, stride=2),
    "dense in tf32": dense(40, 72, 24, dtype="float32"),
    "conv NCHW in tf32": conv("NCHW", 24, 7, 16, 3, dtype="float32"),
    "conv NHWC in tf32": conv("NHWC", 16, 6, 24, 3, dtype="float32"),
    "dense in 3xtf32": dense(40, 72, 24, dtype="float32"),
    "conv NCHW in 3xtf32": conv("NCHW", 24, 7, 16, 3, dtype="float32"),
    "dense of bytes": dense_of_bytes(40, 96, 24, "int8", "int8"),
    "dense of bytes, odd sizes": dense_of_bytes(33, 50, 7, "uint8", "uint8"),
    "dense of bytes, few rows": dense_of_bytes(3, 64, 48, "uint8", "int8"),
    "matmul of bytes": matmul(24, 48, 40, "int8"),
    "conv NCHW of bytes": conv_of_bytes("NCHW", 32, 7, 16),
    "conv NCHW of few bytes": conv_of_bytes("NCHW", 3, 9, 24),
    "conv NHWC of bytes": conv_of_bytes("NHWC", 32, 6, 24),
}


def is_of_products(name: str) -> bool:
    """Whether a template is one of those that are tested here."""
    return name.endswith(".tensor") and not name.startswith("attention")


def sketch_of(tensors: list[Tensor], float32: Target = TF32) -> Sketch:
    dag, target = ComputeDAG(tensors), float32 if tensors[0].dtype == "float32" else CUDA
    (registered,) = (t for t in anchor_templates(dag, target) if is_of_products(t.name))
    return sketch_of_anchor(registered, dag, target)


def computed(sketch: Sketch, index: int, tensors: list[Tensor], given: list[Any]) -> Any:
    program = lower_schedule(sketch.close(index), sketch.target, args=tensors)
    return run_program(program, tensors, given)


def run_program(program: Program, tensors: list[Tensor], given: list[Any]) -> Any:
    out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
    arrays = [
        a if b.packing is None else b.packing.apply(a)
        for a, b in zip(given, program.args, strict=False)
    ]
    run_fast(program, [*arrays, out])
    return out


def integers(rng: np.random.Generator, tensor: Tensor) -> Any:
    """Small ones, of bytes all: products and sums of them are exact."""
    kind = tensor.dtype
    if kind.bits == 8:
        return rng.integers(kind.least, kind.greatest + 1, tensor.shape).astype(kind.storage)
    return rng.integers(-2, 3, tensor.shape).astype(tensor.dtype.storage)


@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    """Integers in halves: exact, whatever the order of the sums."""
    tensors = CASES[name]
    sketch = sketch_of(tensors, SPLIT if "3xtf32" in name else TF32)
    rng = np.random.default_rng(len(name))
    some = sketch.space.sample(256, rng)
    legal = some[sketch.legal(some)]
    assert len(legal) > 8
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = reference(name, tensors, given)
    for index in legal[:6]:
        np.testing.assert_array_equal(computed(sketch, int(index), tensors, given), whole)


def reference(name: str, tensors: list[Tensor], given: list[Any]) -> Any:
    x = [a.astype(np.float64) for a in given]
    if name.startswith("dense of bytes"):
        return np.clip(np.round((x[0] @ x[1].T + x[2]) * 0.0625), -128, 127)
    if name.startswith("dense"):
        return np.maximum(x[0] @ x[1].T + x[2], 0)
    if name.startswith("matmul"):
        return x[0] @ x[1]
    if name == "batch_matmul":
        return x[0] @ x[1].transpose(0, 2, 1)
    data, weight = x[0], x[1]
    if "NHWC" in name:
        data, weight = data.transpose(0, 3, 1, 2), weight.transpose(3, 2, 0, 1)
    out = tensors[-1].shape
    rows = out[2] if "NCHW" in name else out[1]
    kernel, stride = weight.shape[-1], -(-data.shape[2] // rows)
    pad = kernel // 2
    data = np.pad(data, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(data, (kernel, kernel), axis=(2, 3))
    sums = np.einsum("nchwyx,fcyx->nfhw", windows[:, :, ::stride, ::stride], weight)
    if "NHWC" in name:
        sums = sums.transpose(0, 2, 3, 1)
    return sums + x[2] if len(x) > 2 else sums


def exact(m: int, n: int, k: int, kind: str, seed: int) -> None:
    """A legal member of the template that a search takes first, at random, on integers."""
    tensors, target = plain_dense(m, n, k, kind), SPLIT if kind == "3xtf32" else TF32
    sketch = anchor_sketches(ComputeDAG(tensors), target)[0]
    rng = np.random.default_rng(seed)
    some = sketch.space.sample(64, rng)
    index = int(some[sketch.legal(some)][0])
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = given[0].astype(np.float64) @ given[1].astype(np.float64).T
    np.testing.assert_array_equal(computed(sketch, index, tensors, given), whole)


def plain_dense(m: int, n: int, k: int, kind: str) -> list[Tensor]:
    dtype = "float32" if "tf32" in kind else kind
    data = te.placeholder((m, k), dtype, "data")
    weight = te.placeholder((n, k), dtype, "weight", constant=True)
    sums = "int32" if "int" in kind else "float32"
    return [data, weight, topi.nn.dense(data, weight, None, sums)]


KINDS = ("float16", "bfloat16", "tf32", "3xtf32", "int8", "uint8")


@given(
    st.integers(1, 72), st.integers(1, 72), st.sampled_from([1, 8, 15, 33]),
    st.sampled_from(KINDS), st.integers(0, 10**6),
)  # fmt: skip
@examples(20)
def test_every_extent_around_the_atoms(m: int, n: int, k: int, kind: str, seed: int) -> None:
    exact(m, n, k, kind, seed)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "n"), [(1, 9), (17, 2), (5, 23), (24, 16)])
def test_long_sums_are_exact(m: int, n: int, kind: str) -> None:
    exact(m, n, 4096, kind, m)


@pytest.mark.long
@pytest.mark.parametrize("k", [1, 8, 15, 33, 4096])
@pytest.mark.parametrize("m", range(1, 73))
def test_all_extents_around_the_atoms(m: int, k: int) -> None:
    """Every row count with each depth; columns go through theirs on the way, types as well."""
    for step in range(6 if k < 4096 else 1):
        n = (m * 29 + 13 * k + 12 * step + 5) % 72 + 1
        exact(m, n, k, KINDS[(m + step) % len(KINDS)], step)


def kinds(sketch: Sketch, want: Callable[[Any], bool]) -> set[type]:
    """Statements of a legal member whose configuration `want` accepts."""
    some = sketch.space.sample(512, np.random.default_rng(0))
    for index in some[sketch.legal(some)]:
        if want(sketch.space.get(int(index))):
            program = lower_schedule(sketch.close(int(index)), CUDA)
            return {type(s) for kernel in program.kernels for s in statements(kernel.body)}
    raise AssertionError("no such member was drawn")


def test_slices_are_copied_ahead_where_they_lie_in_a_row() -> None:
    found = kinds(sketch_of(dense(64, 256, 64)), lambda c: c["stages"].val == 3)
    assert {Mma, AsyncCopy, Wait} <= found
    assert len(sketch_of(conv("NHWC", 32, 7, 16, 3)).space.space_map["stages"]) > 1
    assert len(sketch_of(conv("NCHW", 32, 7, 16, 3)).space.space_map["stages"]) == 1


def test_it_is_offered_before_the_others_and_for_halves_only() -> None:
    halves = ComputeDAG(dense(32, 64, 32))
    assert "tensor" in anchor_sketches(halves, CUDA)[0].origin
    floats = ComputeDAG(dense(32, 64, 32, dtype="float32"))
    assert not any("tensor" in s.origin for s in anchor_sketches(floats, CUDA))
    for older in ("cuda -arch=sm_75", "opencl"):
        assert not any("tensor" in s.origin for s in anchor_sketches(halves, Target(older)))


def test_a_template_says_why_it_does_not_fit() -> None:
    dag = ComputeDAG(dense(32, 64, 32, dtype="float32"))
    (registered,) = (t for t in anchor_templates(dag, CUDA) if "tensor" in t.name)
    with pytest.raises(ScheduleError, match="multiplies no matrices of float32"):
        sketch_of_anchor(registered, dag, CUDA)


@pytest.mark.parametrize("name", CASES)
def test_every_configuration_is_a_schedule(name: str) -> None:
    sketch = sketch_of(CASES[name], SPLIT if "3xtf32" in name else TF32)
    some = sketch.space.sample(256, np.random.default_rng(1))
    knobs = {name: [e.val for e in sketch.space.space_map[name]] for name in ("split_k", "joined")}
    split, joined = (
        np.array(values)[sketch.space.positions(some)[[*sketch.space.space_map].index(name)]]
        for name, values in knobs.items()
    )
    alone = (split == 1) & joined  # of which the template says that nobody is joined
    assert sum(len(group.rows) for group in sketch.groups(some)) == len(some) - alone.sum()


SPLIT_SUMS: dict[str, list[Tensor]] = {
    "dense": dense(40, 128, 40),
    "dense of odd sizes": dense(33, 125, 7),
    "dense, few rows": dense(3, 160, 48),
    "matmul": matmul(24, 128, 40),
}


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SPLIT_SUMS)
def test_blocks_that_join_compute_what_numpy_says(name: str) -> None:
    """In one kernel, whichever of them is the last; with shares of warps and without."""
    tensors = SPLIT_SUMS[name]
    sketch, rng = sketch_of(tensors), np.random.default_rng(len(name))
    some = sketch.space.sample(512, rng)
    legal = [int(i) for i in some[sketch.legal(some)] if sketch.space.get(int(i))["joined"].val]
    shares = {sketch.space.get(i)["warps_k"].val > 1: i for i in legal}
    assert set(shares) == {False, True}
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = reference(name, tensors, given)
    for index in shares.values():
        program = lower_schedule(sketch.close(index), sketch.target, args=tensors)
        assert [j.blocks for j in joins(program)] == [sketch.space.get(index)["split_k"].val]
        for each in (program, backwards(program)):
            np.testing.assert_array_equal(run_program(each, tensors, given), whole)


def test_the_last_block_adds_up_in_vectors_without_an_overhang() -> None:
    """All partial sums of a thread are asked for before one is needed."""
    sketch = sketch_of(dense(64, 256, 64))
    space = sketch.space
    wanted = {"registers": False, "split_k": 4, "warps_k": 1, "joined": True}
    some = space.sample(4096, np.random.default_rng(0))
    index = next(int(i) for i in some if _is(space.get(int(i)), wanted, [-1, 2, 2]))
    program = lower_schedule(sketch.close(index), sketch.target)
    partial = next(b for b in program.workspaces if b not in program.counters)
    rows = 16 * np.prod(space.get(index)["tile_m"].size[1:])
    assert partial.shape[1:] == (4, rows, 32)
    text = generate(program, sketch.target).text
    assert "*reinterpret_cast<const float4*>(" in text[text.index("if (tw_last_to_come(") :]


def test_uneven_tiles_are_loaded_in_rows_and_stored_as_vectors() -> None:
    """The last block has five of seven atoms of columns; nobody stores what lies beyond."""
    sketch = sketch_of(dense(32, 64, 96))
    space = sketch.space
    wanted = {"registers": False, "split_k": 1, "warps_k": 1, "stages": 2}
    fixed = [k for k in range(len(space)) if _is(space.get(k), wanted, [-1, 1, 7])]
    index = next(k for k in fixed if sketch.legal(np.array([k]))[0])
    text = generate(lower_schedule(sketch.close(index), sketch.target), sketch.target).text
    body = text[text.index("__global__") :]
    assert body.count("tw_rows_") >= 2
    assert "make_uint1" in body and "*reinterpret_cast<uint1*>(" in body
    assert "? *reinterpret_cast<const uint1*>(weight_shared" not in body


def _is(chosen: Any, wanted: dict[str, Any], columns: list[int]) -> bool:
    tile = list(chosen["tile_n"].size[1:]) == columns[1:]
    return tile and all(chosen[name].val == value for name, value in wanted.items())
