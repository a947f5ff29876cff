"""Prefetches of CPUs: of each element of large weights that pass once, and of nothing else."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.codegen import asked_ahead, generate
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.stmt import For, Kernel, Prefetch, Program, Stmt, children
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

CPU = Target("llvm -mcpu=skylake-avx512 -num-cores=2")
TEMPLATES = ("dense.llvm", "dense.narrow.llvm")


def product_of(kind: str, rows: int = 1, depth: int = 64, columns: int = 128) -> list[Tensor]:
    data = te.placeholder((rows, depth), "float32" if kind == "int4" else kind, "data")
    if kind != "int4":
        weight = te.placeholder((columns, depth), kind, "weight", constant=True)
        return [data, weight, topi.nn.dense(data, weight)]
    weight = te.placeholder((columns, depth // 32, 16), "int8", "weight", constant=True)
    scale = te.placeholder((columns, depth // 32), "bfloat16", "scale", constant=True)
    return [data, weight, scale, topi.nn.dense_narrow(data, weight, scale, kind, "float32")]


def sketch_of(tensors: list[Tensor], target: Target = CPU) -> Sketch:
    dag = ComputeDAG(tensors)
    (found,) = (t for t in anchor_templates(dag, target) if t.name in TEMPLATES)
    return sketch_of_anchor(found, dag, target)


def programs(tensors: list[Tensor], count: int) -> list[Program]:
    sketch = sketch_of(tensors)
    some = sketch.space.sample(64, np.random.default_rng(0))
    return [
        lower_schedule(sketch.close(int(k)), CPU, args=tensors)
        for k in some[sketch.legal(some)][:count]
    ]


def asked(kernel: Kernel) -> dict[str, Counter[int]]:
    """By the names of buffers, how often each element is asked for."""
    found: dict[str, Counter[int]] = {}

    def visit(stmt: Stmt, loops: tuple[For, ...]) -> None:
        if isinstance(stmt, Prefetch):
            region = stmt.source
            for values in product(*(range(loop.extent) for loop in loops)):
                given = {loop.var: E.const(v) for loop, v in zip(loops, values, strict=True)}
                first = Simplifier({})(E.substitute(region.index, given)).attr
                places = range(first, first + region.count)
                found.setdefault(region.buffer.name, Counter()).update(places)
        inside = (*loops, stmt) if isinstance(stmt, For) else loops
        for child in children(stmt):
            visit(child, inside)

    visit(asked_ahead.asked_ahead(kernel).body, ())
    return found


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int4"])
def test_each_element_of_weights_that_pass_once_is_asked_for_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_ahead, "LEAST", 1)
    some = 0
    for program in programs(product_of(kind), 6):
        (kernel,) = program.kernels
        for buffer in kernel.params:
            if buffer.packing is not None and (times := asked(kernel).get(buffer.name)):
                assert times == Counter(range(buffer.size))
                some += buffer.name.startswith("weight")
        assert set(asked(kernel)) <= {b.name for b in kernel.params if b.packing is not None}
    assert some >= 4  # blocks shorter than a line are left out


def test_weights_that_pass_more_often_or_stay_in_caches_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (small,) = programs(product_of("float32"), 1)
    assert not asked(small.kernels[0])
    monkeypatch.setattr(asked_ahead, "LEAST", 1)
    for program in programs(product_of("float32", rows=96), 6):  # several tiles of rows
        (kernel,) = program.kernels
        assert asked_ahead.asked_ahead(kernel) is kernel


def test_the_text_asks_for_lines_some_way_behind() -> None:
    tensors = product_of("bfloat16", depth=1024, columns=1024)
    sketch = sketch_of(tensors)
    index = sketch.fallback()
    assert index is not None
    text = generate(lower_schedule(sketch.close(index), CPU, args=tensors), CPU).text
    nbytes = sketch.space.get(index)["tile_j"].val * 16 * 2
    assert text.count("call void @llvm.prefetch.p0(ptr ") == nbytes // 64
    for at in range(0, nbytes, 64):
        assert f", i64 {asked_ahead.DISTANCE + at}\n" in text
