"""`dense.narrow` and `dense.narrow.llvm`: members at random compute what numpy says, of each kind
of weights; bytes become floats in words of registers."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter import run as run_defined
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ExpressionError, ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.graph.narrow import unpacked
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.narrow import KINDS

CUDA = Target("cuda -arch=sm_90")
CPU = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
OPENCL = Target("opencl")
NAMES = {CUDA: "dense.narrow", OPENCL: "dense.narrow", CPU: "dense.narrow.llvm"}
TARGETS = pytest.mark.parametrize("target", NAMES, ids=lambda t: t.kind)


def dense(
    kind: str, m: int = 1, k: int = 256, n: int = 24, group: int = 64, dtype: str = "bfloat16"
) -> list[Tensor]:
    data = te.placeholder((m, k), dtype, "data")
    shape = n, k // KINDS[kind].line, 16
    weight = te.placeholder(shape, "int8", "weight", constant=True)
    scale = te.placeholder((n, k // group), "bfloat16", "scale", constant=True)
    bias = te.placeholder((n,), dtype, "bias", constant=True)
    product = topi.nn.dense_narrow(data, weight, scale, kind, "float32")
    out = topi.nn.relu(topi.add(product, topi.cast(bias, "float32")))
    return [data, weight, scale, bias, out]


def gated(kind: str, m: int, k: int, n: int) -> list[Tensor]:
    """Pairs of columns that are added."""
    data, weight, scale, *_ = dense(kind, m, k, 2 * n)
    both = topi.nn.dense_narrow(data, weight, scale, kind)
    first, second = (topi.strided_slice(both, [0, c], [m, 2 * n], [1, 2]) for c in (0, 1))
    return [data, weight, scale, topi.add(topi.nn.relu(first), second)]


def normed(kind: str, m: int, k: int, n: int) -> list[Tensor]:
    """Of rows whose norm is a power of two: exact."""
    rows = te.placeholder((1, m, k), "bfloat16", "rows")
    _, weight, scale, *_ = dense(kind, m, k, n)
    norm = topi.nn.standardize(topi.cast(rows, "float32"), (-1,), 0.0, False)
    data = topi.reshape(topi.cast(norm, "bfloat16"), (m, k))
    return [rows, weight, scale, topi.nn.dense_narrow(data, weight, scale, kind, "float32")]


def sketch_of(tensors: list[Tensor], target: Target = CUDA, name: str = "") -> Sketch:
    dag, wanted = ComputeDAG(tensors), name or NAMES[target]
    (registered,) = (t for t in anchor_templates(dag, target) if t.name == wanted)
    return sketch_of_anchor(registered, dag, target)


def drawn(tensors: list[Tensor], seed: int) -> list[np.ndarray]:
    """Numbers whose products are exact, and so are their sums in float32."""
    rng = np.random.default_rng(seed)
    data, weight, scale, bias, _ = tensors
    return [
        rng.integers(-2, 3, data.shape).astype(data.dtype.storage),
        rng.choice([*range(-128, -64), *range(64)], weight.shape).astype("int8"),
        (2.0 ** rng.integers(-2, 2, scale.shape)).astype(scale.dtype.storage),
        rng.integers(-2, 3, bias.shape).astype(bias.dtype.storage),
    ]


def check(
    kind: str, tensors: list[Tensor], sketch: Sketch, index: int,
    run: Callable[..., None] = run_fast,
) -> None:  # fmt: skip
    values = drawn(tensors, index)
    program = lower_schedule(sketch.close(index), sketch.target, args=tensors)
    out = np.zeros(tensors[-1].shape, "float32")
    arrays = [
        a if b.packing is None else b.packing.apply(a)
        for a, b in zip(values, program.args, strict=False)
    ]
    run(program, [*arrays, out])
    data, weight, scale, bias = values
    floats = unpacked(weight, scale, kind).astype(np.float64)
    exact = data.astype(np.float64) @ floats.T + bias.astype(np.float64)
    np.testing.assert_array_equal(out, np.maximum(exact, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_each_byte(kind: str) -> None:
    every = np.arange(256).astype("uint8").view("int8")
    bits = te.placeholder((256,), "int8", "bits")
    halves = KINDS[kind].halves
    made = te.compute((halves, 256), lambda h, i: KINDS[kind].number(bits[i], h))
    (found,) = evaluate(ComputeDAG([bits, made]), [every])
    if kind == "float8":
        floats = every.view(ml_dtypes.float8_e4m3fn).astype("float64")
        wanted = np.where(np.isfinite(floats), floats, 480)  # what is no number is this one
        np.testing.assert_array_equal(found[0] * KINDS[kind].unit, wanted)
    elif kind == "int4":
        low = (every.view("uint8") & 15).astype(int)
        for numbers, nibbles in zip(found, (low, every.view("uint8") >> 4), strict=True):
            signed = np.where(nibbles > 7, nibbles.astype(int) - 16, nibbles.astype(int))
            np.testing.assert_array_equal(numbers * KINDS[kind].unit, signed)
    else:
        np.testing.assert_array_equal(found[0], every)


@TARGETS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [{}, {"m": 3, "n": 37, "group": 32, "dtype": "float32"}])
def test_members_compute_what_numpy_says(kind: str, form: dict[str, int], target: Target) -> None:
    tensors = dense(kind, **form)
    sketch = sketch_of(tensors, target)
    some = sketch.space.sample(64, np.random.default_rng(0))
    legal = some[sketch.legal(some)]
    assert len(legal) > 8
    for index in legal[:2]:
        check(kind, tensors, sketch, int(index))


@TARGETS
@pytest.mark.parametrize("form", [gated, normed])
def test_gates_and_norms_are_computed_beside_the_product(
    form: Callable[..., list[Tensor]], target: Target
) -> None:
    check_beside(form, ("int4", 2, 128, 20), target)


def check_beside(
    form: Callable[..., list[Tensor]], case: tuple[str, int, int, int], target: Target,
    name: str = "",
) -> None:  # fmt: skip
    """Three members of the template's space for a gate or a norm."""
    kind, m, k, n = case
    tensors = form(kind, m, k, n)
    sketch = sketch_of(tensors, target, name)
    some = sketch.space.sample(64, np.random.default_rng(0))
    data, weight, scale, _ = drawn(dense(kind, m, k, tensors[1].shape[0]), 1)
    if form is normed:
        row, place = np.indices((m, k))
        data = (2.0**row * (-1.0) ** (row + place // 4)).astype(data.dtype)
    exact = np.sign(data) if form is normed else data
    exact = exact.astype(np.float64) @ unpacked(weight, scale, kind).astype(np.float64).T
    size = np.abs(exact)
    if form is gated:  # both columns are rounded
        exact, size = np.maximum(exact[:, ::2], 0) + exact[:, 1::2], size[:, ::2] + size[:, 1::2]
    rounded = exact.astype(tensors[-1].dtype.storage).astype(np.float64)
    for index in some[sketch.legal(some)][:3]:
        program = lower_schedule(sketch.close(int(index)), target, args=tensors)
        assert len(program.kernels) == 1 or target is CPU
        given = [data.reshape(tensors[0].shape), weight, scale]
        arrays = [
            a if b.packing is None else b.packing.apply(a)
            for a, b in zip(given, program.args, strict=False)
        ]
        out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
        run_fast(program, [*arrays, out])
        assert (np.abs(out.astype(np.float64) - rounded) <= 2.0**-7 * size).all()


@pytest.mark.parametrize("kind", KINDS)
def test_no_thread_reads_what_another_still_writes(kind: str) -> None:
    tensors = dense(kind, n=5, k=128)
    sketch = sketch_of(tensors)
    check(kind, tensors, sketch, sketch.space.indices(np.array([[0]] * 7))[0], run_defined)


@given(
    st.sampled_from(list(KINDS)), st.integers(1, 16), st.integers(1, 40), st.integers(1, 5),
    st.sampled_from([32, 64]), st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
@examples(12)
def test_every_extent(
    kind: str, m: int, n: int, groups: int, group: int, gpu: bool, seed: int
) -> None:
    tensors = dense(kind, m, groups * group, n, group)
    if not gpu and n == 1:
        return
    sketch = sketch_of(tensors, CUDA if gpu else CPU)
    some = sketch.space.sample(64, np.random.default_rng(seed))
    check(kind, tensors, sketch, int(some[sketch.legal(some)][0]))


def text_of(kind: str) -> str:
    tensors = dense(kind)
    sketch = sketch_of(tensors)
    program = lower_schedule(sketch.close(sketch.fallback()), CUDA, args=tensors)
    return generate(program, CUDA).text


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("int8", "tw_byte(weight_local, j * 16 + ax1_outer * 8 + byte, 0, 0xffu)"),
        ("int4", ", 4 - half_1 * 4, 0xf0u)"),
        ("float8", "tw_byte_float8(weight_local, "),
    ],
)
def test_bytes_come_16_at_a_time_and_become_floats_in_words(kind: str, call: str) -> None:
    text = text_of(kind)
    assert "reinterpret_cast<const uint4*>(weight + " in text
    assert "weight[" not in text.split("__global__", 1)[1]  # nor one by one
    assert call.split("(")[0] in text and call.rpartition(", ")[2] in text


def test_it_comes_first_for_up_to_16_rows() -> None:
    def origins(tensors: list[Tensor], target: Target) -> list[str]:
        return [s.origin for s in anchor_sketches(ComputeDAG(tensors), target)]

    for rows in (3, 16):  # fewer are digits
        assert origins(dense("int4", rows, dtype="float32"), CUDA)[0] == "template:dense.narrow"
        assert origins(dense("int4", rows), CPU)[0] == "template:dense.narrow.llvm"
    assert not origins(dense("int4", 17), CUDA)
    with pytest.raises(ScheduleError, match="more than 16 rows"):
        sketch_of(dense("int4", 17))


@pytest.mark.parametrize(
    ("kind", "k", "rows", "lanes", "threads", "each"),
    [("int8", 2048, 1, 128, 2, 2), ("int8", 8192, 1, 128, 1, 2), ("int4", 2048, 1, 64, 2, 4),
     ("int4", 8192, 16, 32, 4, 2), ("float8", 64, 4, 1, 16, 4)],
)  # fmt: skip
def test_what_runs_untuned(
    kind: str, k: int, rows: int, lanes: int, threads: int, each: int
) -> None:
    """A block along the depth; the rows come to shared memory where there are several."""
    sketch = sketch_of(dense(kind, rows, k, 512))
    index = sketch.fallback()
    assert index is not None and sketch.legal(np.array([index])).all()
    config = sketch.space.get(index)
    names = ("lanes", "threads", "each", "shared_rows")
    assert [config[name].val for name in names] == [lanes, threads, each, int(rows > 1)]


def test_only_products_count_as_work() -> None:
    for kind in KINDS:
        products = 2 * 3 * 256 * 24
        assert products <= ComputeDAG(dense(kind, 3)).flop_ct <= 1.2 * products


def test_what_is_no_such_product_is_refused() -> None:
    x, w = te.placeholder((1, 64), "float32", "x"), te.placeholder((8, 4, 16), "int8", "w")
    s = te.placeholder((8, 2), "float32", "s")
    k = te.reduce_axis((0, 64), "k")
    same = te.compute((1, 8), lambda i, j: te.sum(x[i, k] * s[j, 0], k), tag="dense_narrow")
    for target in (CUDA, CPU):
        with pytest.raises(ScheduleError, match="no sum of lines"):
            sketch_of([x, s, same], target)
    with pytest.raises(ScheduleError, match="its weights are not known"):
        sketch_of([x, w, s, topi.nn.dense_narrow(x, w, s, "int8")], CPU)
    with pytest.raises(ExpressionError, match="no kind 'int3'"):
        topi.nn.dense_narrow(x, w, s, "int3")
    with pytest.raises(ExpressionError, match="not the weights of 64 features"):
        topi.nn.dense_narrow(x, w, s, "int4")
    with pytest.raises(ExpressionError, match="no whole lines and groups"):
        topi.nn.dense_narrow(x, w, te.placeholder((8, 3), "float32", "s"), "int8")
