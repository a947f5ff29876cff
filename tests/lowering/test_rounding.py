"""Operands of tf32 are rounded once, where that costs least: constants when they are packed, slabs
where they have arrived, what an engine brings on the way; and results are those of rounded ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowering.group_products import Product, product
from tests import interpreter
from tilewright import te, topi
from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.ir import expr as E
from tilewright.ir.atoms import ROUNDED
from tilewright.ir.bulk import BulkCopy
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Mma, Program, Store, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.steps import Pack, step_from_json
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

TF32 = Target("cuda -arch=sm_90 -precision=tf32")


def rounded(array: Any) -> Any:
    """To 11 digits, halves away from zero."""
    words = array.astype(np.float32).view(np.uint32)
    return ((words + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def places_of_rounding(program: Program) -> set[str]:
    """Scopes of what statements store rounded."""
    found = set()
    for kernel in program.kernels:
        for stmt in statements(kernel.body):
            if isinstance(stmt, Store) and ROUNDED in str(stmt.value):
                found.add(stmt.buffer.scope)
    return found


def slab(kernel: int, layout: str = "NHWC") -> tuple[Sketch, Any]:
    c, size, f = 16, 6, 16
    shape, window = ((1, size, size, c), (kernel, kernel, c, f))
    if layout == "NCHW":
        shape, window = ((1, c, size, size), (f, c, kernel, kernel))
    data = te.placeholder(shape, "float32", "data")
    weight = te.placeholder(window, "float32", "weight", constant=True)
    dag = ComputeDAG([data, weight, topi.nn.conv(data, weight, 1, kernel // 2, 1, 1, layout)])
    name = (
        "conv2d_nhwc.slab" if layout == "NHWC" and kernel > 1 else f"conv2d_{layout.lower()}.tensor"
    )
    (row,) = (r for r in anchor_templates(dag, TF32) if r.name == name)
    return sketch_of_anchor(row, dag, TF32), dag


def some_member(sketch: Sketch, **wanted: Any) -> int:
    for index in sketch.space.sample(4096, np.random.default_rng(0)).tolist():
        found = sketch.space.get(index)
        if all(found[k].val == v for k, v in wanted.items()) and sketch.legal(np.array([index]))[0]:
            return int(index)
    raise AssertionError(wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "layout", "wanted", "places"),
    [
        (3, "NHWC", {"stages": 1, "split_k": 1}, {"shared"}),
        (3, "NHWC", {"stages": 2, "split_k": 1, "step_k": 1}, {"shared"}),
        (3, "NCHW", {"stages": 2, "registers": True, "split_k": 1}, {"shared"}),
        (1, "NHWC", {"registers": True, "stages": 2, "split_k": 1}, {"local"}),
        (1, "NHWC", {"registers": False, "stages": 2, "split_k": 1}, {"local"}),
    ],
)
def test_a_slab_is_rounded_once(kernel: int, layout: str, wanted: Any, places: set[str]) -> None:
    sketch, dag = slab(kernel, layout)
    program = lower_schedule(sketch.close(some_member(sketch, **wanted)), TF32)
    verify(program)
    assert places_of_rounding(program) == places
    rng = np.random.default_rng(1)
    data, weight = (rng.standard_normal(t.shape).astype(np.float32) for t in dag.args[:2])
    image, window = rounded(data).astype(np.float64), rounded(weight).astype(np.float64)
    if layout == "NHWC":
        image, window = image.transpose(0, 3, 1, 2), window.transpose(3, 2, 0, 1)
    pad = kernel // 2
    views = np.lib.stride_tricks.sliding_window_view(
        np.pad(image, ((0, 0), (0, 0), (pad, pad), (pad, pad))), (kernel, kernel), axis=(2, 3)
    )
    exact = np.einsum("ncyxij,fcij->nfyx", views, window)
    exact = exact.transpose(0, 2, 3, 1) if layout == "NHWC" else exact
    for run in (run_fast, interpreter.run) if wanted["stages"] == 1 else (run_fast,):
        result = np.zeros(exact.shape, np.float32)
        run(program, [data, weight, result])
        np.testing.assert_allclose(result, exact, rtol=0, atol=2e-5)


@pytest.mark.parametrize("loaders", [0, 4])
def test_an_engine_rounds_on_the_way(loaders: int) -> None:
    p = Product(m=64, n=16, k=64, atom="m64n16k8.tf32", bulk=True, loaders=loaders)
    schedule, args = product(p)
    program = lower_schedule(schedule, TF32, args=args)
    verify(program)
    copies = [s for s in statements(program.kernels[0].body) if isinstance(s, BulkCopy)]
    assert len(copies) >= 2 and all(s.rounded for s in copies)
    assert all(view.rounded for k in generate(program, TF32).kernels for view in k.maps)
    rng = np.random.default_rng(0)
    a, b, bias = (rng.standard_normal(n).astype(np.float32) for n in ((64, 64), (16, 64), (16,)))
    exact = rounded(a).astype(np.float64) @ rounded(b).astype(np.float64).T + bias
    for run in (run_fast, interpreter.run):
        result = np.zeros((64, 16), np.float32)
        run(program, [a, b, bias, result])
        np.testing.assert_allclose(result, np.maximum(exact, 0), rtol=0, atol=2e-5)


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_groups_multiply_numbers_of_two_parts(slots: int) -> None:
    """Three products, of the parts that threads took apart, are as exact as float32."""
    p = Product(m=64, n=16, k=96, atom="m64n16k8.3xtf32", slots=slots)
    schedule, args = product(p)
    program = lower_schedule(schedule, TF32, args=args)
    verify(program)
    names = [s.atom.name for s in statements(program.kernels[0].body) if isinstance(s, Mma)]
    turns = 2 if slots > 2 else 1  # the last one stands behind the loop where batches are in flight
    assert names == ["m64n16k8.tf32"] * 3 * turns
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(n).astype(np.float32) for n in ((64, 96), (16, 96)))
    a[0] = b[0] = 1 + 2.0**-11 + 2.0**-12 - 2.0**-23
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    sizes = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    for run in (run_fast, interpreter.run):
        result = np.zeros((64, 16), np.float32)
        run(program, [a, b, np.zeros(16, np.float32), result])
        assert (np.abs(result - np.maximum(exact, 0)) <= 2.0**-19 * sizes).all()


def test_an_engine_takes_no_numbers_apart() -> None:
    schedule, _ = product(Product(m=64, n=16, k=64, atom="m64n16k8.3xtf32", bulk=True))
    with pytest.raises(ScheduleError, match="an engine takes no numbers apart"):
        LoopTree(schedule)


def test_halves_come_as_they_are() -> None:
    schedule, args = product(Product(m=64, n=16, bulk=True))
    program = lower_schedule(schedule, TF32, args=args)
    copies = [s for s in statements(program.kernels[0].body) if isinstance(s, BulkCopy)]
    assert copies and not any(s.rounded for s in copies)


def test_a_packing_rounds_to_nearest_and_keeps_what_is_no_number() -> None:
    given = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 2.0**-12, np.inf, np.nan, 0], np.float32)
    nan = np.frombuffer(np.uint32(0xFFFFFFFF).tobytes(), np.float32)
    packing = Packing((7,), (1,), (0,), rounded=True)
    found = packing.apply(np.concatenate([given, nan]))
    wanted = [1 + 2.0**-10, -1 - 2.0**-10, 1, np.inf, np.nan, 0, np.nan]
    np.testing.assert_array_equal(found, np.array(wanted, np.float32))
    moved = Packing((7,), (1,), (0,)).followed_by(packing).followed_by(Packing((7,), (1,), (0,)))
    assert moved.gives_rounded and not Packing((7,), (1,), (0,)).gives_rounded


def test_what_no_atom_reads_is_not_packed_rounded() -> None:
    a = te.placeholder((8, 4), "float32", "A", constant=True)
    b = te.compute((8, 4), lambda i, j: a[i, j] * 2, name="B")
    s = create_schedule(b.op)
    s.pack(a, [4, 1], [0, 1, 2], rounded=True)
    with pytest.raises(ScheduleError, match="B reads it, which no atom that rounds its operands"):
        LoopTree(s)
    half = te.placeholder((8, 4), "float16", "H", constant=True)
    s = create_schedule(te.compute((8, 4), lambda i, j: half[i, j] * 2, name="B").op)
    with pytest.raises(ScheduleError, match="float16 has no digits that a matrix unit leaves out"):
        s.pack(half, [4, 1], [0, 1, 2], rounded=True)
    assert E.call(ROUNDED, E.const(1.0, "float32")).dtype == "float32"


def test_a_rounded_pack_is_stored_and_written_as_it_is() -> None:
    sketch, dag = slab(3)
    schedule = sketch.close(some_member(sketch, registers=True, stages=1, split_k=1))
    (step,) = (step for step in schedule.steps if isinstance(step, Pack))
    assert step.rounded and step_from_json(step.to_json()) == step
    again = Schedule.replay(dag, [step.to_json() for step in schedule.steps])
    assert again.to_python() == schedule.to_python()
    assert "rounded=True)" in schedule.to_python()
