"""Reductions whose partial results have another type than their stage."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.drawing import draw_schedule
from schedule.test_schedules import lowered
from tests import strategies as S
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.stmt import Allocate, Buffer, Program, Store, expressions, statements
from tilewright.lowering.nest import build_nests
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, Stage, create_schedule
from tilewright.schedule.space import decision
from tilewright.schedule.tree.accumulators import accumulator_elements
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


def product(kind: str, acc: str | None = None, epilogue: bool = False) -> ComputeDAG:
    """5 x 7 of 6 products: no tile divides it."""
    a, b = te.placeholder((5, 6), kind, name="a"), te.placeholder((6, 7), kind, name="b")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((5, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, acc_dtype=acc), name="c")
    if not epilogue:
        return ComputeDAG([a, b, c])
    return ComputeDAG([a, b, te.compute((5, 7), lambda i, j: te.maximum(c[i, j], 0), name="d")])


def convolution(kind: str, acc: str | None = None) -> ComputeDAG:
    """3 x 3, padded."""
    x, w = te.placeholder((3, 5, 5), kind, name="x"), te.placeholder((4, 3, 3, 3), kind, name="w")
    p = te.compute(
        (3, 7, 7),
        lambda c, i, j: te.if_then_else(
            te.all(i > 0, i < 6, j > 0, j < 6), x[c, i - 1, j - 1], te.const(0, kind)
        ),
        name="p",
    )
    c, r, q = (te.reduce_axis((0, 3), n) for n in "crq")
    out = te.compute(
        (4, 5, 5),
        lambda f, i, j: te.sum(p[c, i + r, j + q] * w[f, c, r, q], axis=[c, r, q], acc_dtype=acc),
        name="out",
    )
    return ComputeDAG([x, w, out])


def loops(s: Schedule, name: str = "c") -> tuple[Stage, te.IterVar, te.IterVar, te.IterVar]:
    stage = next(stage for stage in s.stages if stage.name == name)
    return (stage, *stage.op.axis, *stage.op.reduce_axis)


def k_innermost(s: Schedule) -> None:
    """The order that te gives."""


def k_outermost(s: Schedule) -> None:
    c, i, j, k = loops(s)
    c.reorder(k, i, j)


def tiled(s: Schedule) -> None:
    c, i, j, k = loops(s)
    io, ii = c.split(i, 2)
    jo, ji = c.split(j, 4)
    ko, ki = c.split(k, 4)
    c.reorder(io, jo, ko, ki, ii, ji)
    c.vectorize(ji)
    c.unroll(ii)
    c.parallel(io)


def lanes_around_the_reduction(s: Schedule) -> None:
    c, i, j, k = loops(s)
    jo, ji = c.split(j, 4)
    c.reorder(jo, ji, i, k)
    c.vectorize(ji)


def computed_inside(s: Schedule) -> None:
    c, *_ = loops(s)
    host = s.stages[-1]
    if host is c:
        return
    i, j = host.op.axis
    jo, ji = host.split(j, 4)
    host.reorder(jo, i, ji)
    c.compute_at(host, jo)


def in_threads(s: Schedule) -> None:
    c, i, j, k = loops(s)
    jo, ji = c.split(j, 4)
    c.reorder(k, jo, i, ji)
    c.bind(i, "blockIdx.x")
    c.bind(ji, "threadIdx.x")


def in_virtual_threads(s: Schedule) -> None:
    c, i, j, k = loops(s)
    io, ii = c.split(i, 2)
    jo, ji = c.split(j, 4)
    c.reorder(io, k, jo, ii, ji)
    c.bind(io, "vthread")
    c.bind(jo, "vthread")
    c.bind(ji, "threadIdx.x")


def shared_by_threads(s: Schedule) -> None:
    c, i, _, k = loops(s)
    _, inner = c.split(k, 4)
    c.bind(inner, "threadIdx.x")
    c.bind(i, "blockIdx.x")


CPU = (k_innermost, k_outermost, tiled, lanes_around_the_reduction, computed_inside)
GPU = (k_innermost, k_outermost, in_threads, in_virtual_threads, shared_by_threads)
ORDERS = [(f, "llvm") for f in CPU] + [(f, "cuda") for f in GPU]


@pytest.mark.sampled(72)
@pytest.mark.slow
@pytest.mark.parametrize("kind, acc", [
    ("float16", None), ("float16", "float16"), ("bfloat16", None), ("float32", "float64"),
    ("int8", None), ("uint8", "int64"),
])  # fmt: skip
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize("order, target", ORDERS, ids=[f"{t}-{f.__name__}" for f, t in ORDERS])
def test_every_loop_order_gives_the_product(
    order: Callable[[Schedule], None], target: str, epilogue: bool, kind: str, acc: str | None
) -> None:
    dag = product(kind, acc, epilogue)
    s = create_schedule(dag)
    order(s)
    S.assert_computes(lower_schedule(s, Target(target)), dag)


NARROW = (("float16", None), ("float16", "float16"), ("bfloat16", None), ("int8", None))


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10_000), st.booleans())
def test_random_schedules_of_narrow_computations(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    build = rng.choice((product, convolution))
    dag = build(*rng.choice(NARROW))
    s = draw_schedule(dag, rng, gpu=gpu)
    program = lowered(s, "cuda" if gpu else "llvm")
    if program is not None:
        S.assert_computes(program, dag, seed)


def allocated(program: Program, suffix: str) -> list[Buffer]:
    return [
        s.buffer
        for kernel in program.kernels
        for s in statements(kernel.body)
        if isinstance(s, Allocate) and s.buffer.name.endswith(suffix)
    ]


@pytest.mark.parametrize("order, target", ORDERS, ids=[f"{t}-{f.__name__}" for f, t in ORDERS])
def test_the_count_of_accumulators_is_what_lowering_makes(
    order: Callable[[Schedule], None], target: str
) -> None:
    s = create_schedule(product("float16", epilogue=order is computed_inside))
    order(s)
    tree = LoopTree(s)
    (node,) = (n for n in tree.nodes if n.op.combiner is not None)
    program = lower_schedule(s, Target(target))
    made = allocated(program, ".acc")
    # whole and partial tiles have a nest each, and one of them runs
    assert max((b.size for b in made), default=0) == accumulator_elements(node, tree.bounds())
    assert {b.dtype for b in made} <= {"float32"}


def test_one_element_per_iteration_inside_the_reduction() -> None:
    sizes = {k_innermost: 1, k_outermost: 35, tiled: 8, lanes_around_the_reduction: 4,
             in_threads: 2, in_virtual_threads: 12, shared_by_threads: 0}  # fmt: skip
    for order, expected in sizes.items():
        s = create_schedule(product("float16"))
        order(s)
        tree = LoopTree(s)
        assert accumulator_elements(tree.nodes[0], tree.bounds()) == expected, order


def test_a_population_is_counted_at_once() -> None:
    s = create_schedule(product("float16"))
    c, i, j, k = loops(s)
    jo, ji = c.split(j, decision.var("tile"))
    c.reorder(i, jo, k, ji)
    bounds = LoopTree(s).bounds({"tile": np.array([1, 2, 4])})
    assert accumulator_elements(bounds.tree.nodes[0], bounds).tolist() == [1, 2, 4]


def test_nothing_changes_where_the_stage_itself_accumulates() -> None:
    for dag in (product("float32"), product("int8"), product("float16", "float16")):
        s = create_schedule(dag)
        k_outermost(s)
        assert not allocated(lower_schedule(s, Target("llvm")), ".acc")
    s = create_schedule(product("float16"))
    cached = s.cache_write(s.stages[-1].tensor, "local")
    s[cached].compute_at(s[s.stages[-1].tensor], s.stages[-1].op.axis[0])
    assert not allocated(lower_schedule(s, Target("llvm")), ".acc")


def test_partial_results_of_threads_are_wide() -> None:
    s = create_schedule(product("float16"))
    shared_by_threads(s)
    program = lower_schedule(s, Target("cuda"))
    (partial,), (board,) = allocated(program, ".partial"), allocated(program, ".board")
    assert partial.dtype == board.dtype == "float32"
    tree = LoopTree(s)
    (kernel,) = build_nests(tree, tree.bounds(), "main", gpu=True).kernels
    stores = [s for s in statements(kernel.body) if isinstance(s, Store) and s.buffer.name == "c"]
    (value,) = (s.value for s in stores)
    assert (value.op, value.dtype, value.args[0].attr.name) == ("cast", "float16", "c.board")


def test_lanes_of_a_gpu_are_those_of_the_narrow_type() -> None:
    """Eight halves are read and stored at once, though their sums are eight floats."""
    a, b = te.placeholder((4, 6), "float16", name="a"), te.placeholder((6, 16), "float16", name="b")
    k = te.reduce_axis((0, 6), "k")
    c = te.compute((4, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = create_schedule(ComputeDAG([a, b, c]))
    stage, i, j, k = loops(s)
    block, lanes = stage.split(j, 8)
    stage.reorder(i, block, k, lanes)
    stage.vectorize(lanes)
    stage.bind(i, "threadIdx.x")
    (kernel,) = lower_schedule(s, Target("cuda")).kernels
    widths = {
        (s.buffer.name, s.index.lanes) for s in statements(kernel.body) if isinstance(s, Store)
    }
    assert widths == {("c.acc", 8), ("c", 8)}
    loads = [n for n in E.walk(*expressions(kernel.body)) if n.op == "load"]
    assert {(n.attr.name, n.lanes) for n in loads} == {("a", 1), ("b", 8), ("c.acc", 8)}


def test_a_parallel_loop_inside_the_reduction_is_refused() -> None:
    s = create_schedule(product("float16"))
    c, i, j, k = loops(s)
    c.reorder(k, i, j)
    c.parallel(i)
    reason = r"parallel\(c.i\): partial results of c are float32 and private.*Reorder.*cache_write"
    with pytest.raises(LoweringError, match=reason):
        lower_schedule(s, Target("llvm"))
    s = create_schedule(product("float32"))
    c, i, j, k = loops(s)
    c.reorder(k, i, j)
    c.parallel(i)
    lower_schedule(s, Target("llvm"))  # elements of the stage itself are shared by its loops
