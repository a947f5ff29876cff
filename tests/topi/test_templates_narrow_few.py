"""`dense.narrow.few`: members at random compute what numpy says, of each kind of weights; bytes
come in the order of lanes, far ahead of their use, and become halves in words of registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter import run as run_defined
from tests.tiers import examples
from tests.topi.test_templates_narrow import CUDA, check, check_beside, dense, gated, normed
from tests.topi.test_templates_narrow import sketch_of as sketch_by_name
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.graph.narrow import unpacked
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Mma, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.narrow import KINDS

FORMS = [
    {}, {"m": 3, "n": 37, "group": 32}, {"m": 16, "n": 44, "k": 288, "group": 32},
    {"m": 8, "k": 192, "n": 64},
]  # fmt: skip


def sketch_of(tensors: list[Tensor], target: Target = CUDA) -> Sketch:
    return sketch_by_name(tensors, target, "dense.narrow.few")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_members_compute_what_numpy_says(kind: str, form: dict[str, int]) -> None:
    tensors = dense(kind, **form)
    sketch = sketch_of(tensors)
    some = sketch.space.sample(64, np.random.default_rng(0))
    legal = some[sketch.legal(some)]
    assert len(legal) > 30
    for index in legal[:2]:
        check(kind, tensors, sketch, int(index))


@pytest.mark.parametrize("form", [gated, normed])
@pytest.mark.parametrize(("kind", "m", "n"), [("int4", 2, 20), ("int8", 1, 32), ("int4", 9, 48)])
def test_gates_and_norms_are_computed_beside_the_product(
    form: Callable[..., list[Tensor]], kind: str, m: int, n: int
) -> None:
    check_beside(form, (kind, m, 128, n), CUDA, "dense.narrow.few")


def test_the_norm_of_a_row_that_is_alone_is_shared_by_warps() -> None:
    for kind, rows, shared in (("float8", 1, True), ("int8", 1, True), ("int8", 2, False)):
        tensors = normed(kind, rows, 2048, 64)
        sketch = sketch_of(tensors)
        program = lower_schedule(sketch.close(sketch.fallback()), CUDA, args=tensors)
        found = re.search(r"(\w*squares\w*)\[thread_y\] =", generate(program, CUDA).text)
        assert found is not None and found[1].endswith("_rf") is shared


@pytest.mark.parametrize(("m", "scaled"), [(1, True), (2, True), (1, False)])
def test_rows_in_digits_are_less_their_mean(m: int, scaled: bool) -> None:
    """What elements are made of is there before their digits are: a mean, and with a shift behind
    it what a norm multiplies with."""
    _, weight, scale, *_ = dense("int8", m, 512, 20, 128)
    rows = te.placeholder((1, m, 512), "float32", "rows")
    shift = te.placeholder((512,), "float32", "shift", constant=True)
    if scaled:
        made = topi.add(topi.nn.standardize(rows, (-1,), 0.0, True), shift)
    else:
        made = topi.subtract(rows, topi.mean(rows, (-1,), True))
    data = topi.reshape(made, (m, 512))
    tensors = [rows, weight, scale, *[shift][: int(scaled)]]
    tensors.append(topi.nn.dense_narrow(data, weight, scale, "int8", "float32"))
    sketch = sketch_of(tensors)
    some = sketch.space.sample(16, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    values = [
        rng.standard_normal(rows.shape).astype("float32") + np.float32(0.5),
        rng.integers(-128, 128, weight.shape).astype("int8"),
        (rng.random(scale.shape) + 0.5).astype(scale.dtype.storage),
        rng.standard_normal(512).astype("float32"),
    ]
    floats = values[0][0].astype(np.float64)
    floats -= floats.mean(1, keepdims=True)
    if scaled:
        floats = floats / floats.std(1, keepdims=True) + values[3]
    weights = unpacked(values[1], values[2], "int8").astype(np.float64)
    room = 2.0**-20 * (np.abs(floats) @ np.abs(weights).T)
    for index in (sketch.fallback(), some[sketch.legal(some)][0]):
        assert any(step.verb == "digits" for step in sketch.close(int(index)).steps)
        out = computed(sketch, int(index), tensors, values[: len(tensors) - 1])
        assert (np.abs(out - floats @ weights.T) <= room).all()


@pytest.mark.parametrize(
    ("kind", "m", "group", "groups"), [("int8", 1, 96, 6), ("int4", 2, 160, 5), ("int4", 1, 384, 3)]
)
def test_groups_that_are_no_power_of_two(kind: str, m: int, group: int, groups: int) -> None:
    """A lane has a whole number of words of each neighbourhood, side by side."""
    tensors = dense(kind, m, group * groups, 24, group)
    sketch = sketch_of(tensors)
    some = sketch.space.sample(16, np.random.default_rng(0))
    for index in (sketch.fallback(), some[sketch.legal(some)][0]):
        assert any(step.verb == "digits" for step in sketch.close(int(index)).steps)
        check(kind, tensors, sketch, int(index))


def test_rows_of_float16_have_integers_only() -> None:
    """Their exponents are too few for the whole numbers that eight-bit floats count as."""
    for kind in ("int4", "int8"):
        tensors = dense(kind, 2, dtype="float16")
        sketch = sketch_of(tensors)
        check(kind, tensors, sketch, int(sketch.fallback() or 0))
    with pytest.raises(ScheduleError, match="float16 does not hold every value"):
        sketch_of(dense("float8", 2, dtype="float16"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_warp_reads_what_another_still_copies(kind: str) -> None:
    tensors = dense(kind, 2, 256, 24)
    sketch = sketch_of(tensors)
    index = int(sketch.space.indices(np.array([[0], [1], [0], [1], [0], [0]]))[0])
    check(kind, tensors, sketch, index, run_defined)


@given(
    st.sampled_from(list(KINDS)), st.integers(1, 16), st.integers(1, 72), st.integers(2, 9),
    st.sampled_from([32, 64]), st.integers(0, 10**6),
)  # fmt: skip
@examples(10)
def test_every_extent(kind: str, m: int, n: int, groups: int, group: int, seed: int) -> None:
    tensors = dense(kind, m, groups * group, n, group)
    sketch = sketch_of(tensors)
    some = sketch.space.sample(64, np.random.default_rng(seed))
    check(kind, tensors, sketch, int(some[sketch.legal(some)][0]))


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_asked_for_before_the_kernel_waits_and_become_halves_in_words(kind: str) -> None:
    tensors = dense(kind, 1, 8192, 64)
    sketch = sketch_of(tensors)
    program = lower_schedule(sketch.close(sketch.fallback()), CUDA, args=tensors)
    copied = [s for k in program.kernels for s in statements(k.body) if isinstance(s, AsyncCopy)]
    assert {s.source.count * s.source.buffer.dtype.bytes for s in copied} == {16}
    assert any(isinstance(s, Mma) for k in program.kernels for s in statements(k.body))
    names = ("weight.packed", "scale.packed", "bias")
    steady = frozenset(b for b in program.args if b.name in names)
    text = generate(replace(program, steady=steady, lets_in=True), CUDA).text
    body = text.partition("__global__")[2]
    before, behind = re.split(r"tw_await_kernel\w*\(\)", body, maxsplit=1)
    assert "weight_packed_shared[" in before and "data_shared[" not in before
    assert "tw_commit();" in before, "a slice is waited for alone, not all that was asked for"
    if kind == "float8":
        call = f"tw_bfloat16_of_{kind}(&weight_apart["
        assert call in behind and "tw_float32_to_bfloat16(" not in behind
        return
    # Bytes are multiplied as they are, by digits, of which a word is stored at once.
    assert "tw_mma_m16n8k32_int8(" in behind and "uint1*>(T_rows_digits" in behind
    assert "= make_uint1(tw_word_where(T_rows_digits" in behind, "no lane branches"
    makes, multiplies = behind.split("tw_wait_copies(", maxsplit=1)
    assert "__syncthreads" not in makes, "who reads a few terms makes their digits"
    assert makes.count("*>(data + ") == 1 and "(data + " not in multiplies, "rows are read once"
    assert (f"tw_int8_of_{kind}(&weight_apart[" in behind) is (kind == "int4")


@pytest.mark.parametrize(
    ("case", "form"),
    [
        (("int4", 1, 2048, 2048), (1, 16, 2, 2, 0)), (("int8", 1, 2048, 3072), (2, 4, 1, 2, 1)),
        (("int4", 1, 8192, 2048), (1, 16, 1, 8, 0)), (("int8", 1, 2048, 16384), (1, 2, 1, 3, 1)),
        (("int8", 1, 8192, 2048), (1, 16, 1, 2, 1)), (("int8", 4, 4096, 4096), (2, 8, 2, 12, 0)),
        (("int4", 16, 4096, 4096), (2, 8, 2, 8, 0)), (("int4", 4, 64, 40), (1, 2, 2, 2, 0)),
        (("int4", 1, 2048, 16384), (2, 4, 1, 6, 0)), (("int4", 1, 2048, 3072), (2, 16, 2, 2, 0)),
    ],
)  # fmt: skip
def test_what_runs_untuned(case: tuple[str, int, int, int], form: tuple[int, ...]) -> None:
    """Of one row a step is 128 of the depth, or more; rings are as deep as there is room.  Rows in
    digits have a block for each core, in one slice or in slices of two groups of each warp."""
    kind, m, k, n = case
    sketch = sketch_of(dense(kind, m, k, n, 128 if kind == "int8" else 32))
    index = sketch.fallback()
    assert index is not None and sketch.legal(np.array([index])).all()
    config = sketch.space.get(index)
    names = ("warps_k", "step_k", "stages", "grouped")
    assert (config["tile_m"].size[2], *(config[name].val for name in names)) == form


def test_it_comes_before_the_other_one() -> None:
    sketches = anchor_sketches(ComputeDAG(dense("int4", 16, 2048, 64)), CUDA)
    assert [s.origin for s in sketches] == ["template:dense.narrow.few", "template:dense.narrow"]


def test_others_are_refused() -> None:
    def why(tensors: list[Tensor], target: Target = CUDA) -> str:
        with pytest.raises(ScheduleError) as caught:
            sketch_of(tensors, target)
        return str(caught.value)

    x, w = te.placeholder((1, 64), "bfloat16", "x"), te.placeholder((8, 4, 16), "int8", "w")
    s = te.placeholder((8, 2), "bfloat16", "s")
    assert "more than 16 rows" in why(dense("int4", 17))
    assert "multiplies no matrices of float32" in why(dense("int4", 3, dtype="float32"))
    assert "multiplies no matrices" in why(dense("int8"), Target("cuda -arch=sm_75"))
    assert "not constant" in why([x, w, s, topi.nn.dense_narrow(x, w, s, "int8")])
    assert "few lines" in why(dense("int4", k=32, group=32))


def computed(sketch: Sketch, index: int, tensors: list[Tensor], values: list[np.ndarray]) -> Any:
    program = lower_schedule(sketch.close(index), CUDA, args=tensors)
    out = np.zeros(tensors[-1].shape, "float32")
    pairs = zip(values, program.args, strict=False)
    run_fast(program, [*(a if b.packing is None else b.packing.apply(a) for a, b in pairs), out])
    return out


@pytest.mark.parametrize(
    ("kind", "m", "dtype"),
    [("int4", 1, "bfloat16"), ("int8", 1, "bfloat16"), ("int8", 2, "bfloat16"),
     ("int8", 1, "float32"), ("int4", 2, "float32")],
)  # fmt: skip
def test_few_rows_are_multiplied_digit_by_digit(kind: str, m: int, dtype: str) -> None:
    """As near to the exact result as float32 brings it, whatever sizes the rows have."""
    tensors = dense(kind, m, 512, 24, 128 if kind == "int8" else 32, dtype)
    sketch = sketch_of(tensors)
    assert any(step.verb == "digits" for step in sketch.close(int(sketch.fallback() or 0)).steps)
    rng = np.random.default_rng(0)
    data, weight, scale, bias, _ = tensors
    for size, spread in ((1.0, 1.0), (1e-30, 1.0), (1e30, 1.0), (3.0, 6.0)):
        floats = rng.standard_normal(data.shape) * np.exp(spread * rng.standard_normal(data.shape))
        values = [
            (floats * size).astype(data.dtype.storage),
            rng.integers(-128, 128, weight.shape).astype("int8"),
            (rng.random(scale.shape) + 0.5).astype(scale.dtype.storage),
            np.zeros(bias.shape, bias.dtype.storage),
        ]
        out = computed(sketch, int(sketch.fallback() or 0), tensors, values)
        rows = values[0].astype(np.float64)
        weights = unpacked(values[1], values[2], kind).astype(np.float64)
        exact = np.maximum(rows @ weights.T, 0)
        # An element is off by a share of the largest in its row, and by roundings.
        least = 2.0 ** (-22 if dtype == "bfloat16" else -29) * np.abs(rows).max(1, keepdims=True)
        room = (least + 2.0**-127) * np.abs(weights).sum(1)
        room += 2.0**-20 * np.abs(rows) @ np.abs(weights).T
        assert (np.abs(out - exact) <= room).all()
        assert np.abs(out - exact).max() <= 1e-4 * exact.max()


def test_rows_of_zeros_and_without_numbers() -> None:
    tensors = dense("int4", 2, 256, 24, 32)
    sketch = sketch_of(tensors)
    rng = np.random.default_rng(0)
    values = [np.zeros(t.shape, t.dtype.storage) for t in tensors[:-1]]
    values[1] = rng.integers(-128, 128, values[1].shape).astype("int8")
    values[2] += 1
    out = computed(sketch, int(sketch.fallback() or 0), tensors, values)
    assert (out == 0).all()
    values[0][0, 5], values[0][1, 7] = np.nan, np.inf
    assert np.isnan(computed(sketch, int(sketch.fallback() or 0), tensors, values)).all()
