"""Tiles that overhang: dropped guards, whole and partial nests, masked vectors; all still right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import generate
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import For, If, Program, Stmt, Store, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.overhang import whole_tile
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

TARGET = Target("llvm")
CUDA = Target("cuda")


def product(rows: int, columns: int, inner: int, copies: bool) -> ComputeDAG:
    """a @ b; copies: both operands pass through a stage of their own first."""
    a, b = te.placeholder((rows, inner), name="a"), te.placeholder((inner, columns), name="b")
    x, y = a, b
    if copies:
        x = te.compute(a.shape, lambda i, j: a[i, j] * 2.0, name="x")
        y = te.compute(b.shape, lambda i, j: b[i, j] + 1.0, name="y")
    k = te.reduce_axis((0, inner), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="c")
    return ComputeDAG([a, b, c])


def tiled(dag: ComputeDAG, rows: int, vectors: int, lanes: int) -> Schedule:
    s = Schedule(dag)
    out = s[dag.outputs[0]]
    local = s[s.cache_write(dag.outputs[0], "local")]
    i, j = out.op.axis
    io, ii = out.split(i, factor=rows)
    jo, ji = out.split(j, factor=vectors * lanes)
    jv, jl = out.split(ji, factor=lanes)
    out.reorder(io, jo, ii, jv, jl)
    out.vectorize(jl)
    local.compute_at(out, jo)
    i, j = local.op.axis
    jv, jl = local.split(j, factor=lanes)
    local.reorder(*local.op.reduce_axis, i, jv, jl)
    local.vectorize(jl)
    return s


def interpreted(dag: ComputeDAG, schedule: Schedule, target: Target = TARGET) -> Program:
    program = lower_schedule(schedule, target)
    verify(program)
    inputs = random_inputs(dag, 3)
    out = np.full(dag.outputs[0].shape, np.nan, np.float32)
    run_fast(program, [*inputs, out])
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    assert (np.abs(out - expected[0]) <= tolerance[0]).all(), str(program)
    return program


def nest_of(program: Program) -> list[Stmt]:
    """The loops over k of the last kernel."""
    found = statements(program.kernels[-1].body)
    return [s for s in found if isinstance(s, For) and s.var.attr == "k"]


def guards(stmt: Stmt) -> int:
    return sum(isinstance(s, If) for s in statements(stmt))


@pytest.mark.parametrize("shape", [(5, 13, 3), (7, 9, 4), (3, 30, 5)])
def test_overhanging_tiles_of_workspaces_need_no_guard(shape: tuple[int, int, int]) -> None:
    dag = product(*shape, copies=True)
    program = interpreted(dag, tiled(dag, 2, 2, 4))
    (nest,) = nest_of(program)
    assert guards(nest) == 0
    sizes = {b.name: b.size - math.prod(b.shape) for b in program.workspaces}
    assert sizes["x"] > 0 and sizes["y"] > 0  # what overhanging tiles read behind the end


@pytest.mark.parametrize("shape", [(5, 13, 3), (7, 9, 4), (9, 30, 5)])
def test_inputs_are_read_unguarded_by_whole_tiles_only(shape: tuple[int, int, int]) -> None:
    dag = product(*shape, copies=False)
    program = interpreted(dag, tiled(dag, 2, 1, 4))
    partial_last = sorted(map(guards, nest_of(program)))
    assert len(partial_last) == 2
    assert partial_last[0] == 0 < partial_last[1]
    assert all(b.size == math.prod(b.shape) for b in program.args)


def test_a_guard_that_reads_need_stays_while_the_others_go() -> None:
    """x is an input, its rows guarded; the columns of y lie in a workspace and are not."""
    a, b = te.placeholder((5, 3), name="a"), te.placeholder((3, 10), name="b")
    y = te.compute(b.shape, lambda i, j: b[i, j] + 1.0, name="y")
    k = te.reduce_axis((0, 3), name="k")
    c = te.compute((5, 10), lambda i, j: te.sum(a[i, k] * y[k, j], axis=k), name="c")
    dag = ComputeDAG([a, b, c])
    program = interpreted(dag, tiled(dag, 2, 1, 8))
    (_, partial) = sorted(nest_of(program), key=guards)
    conditions = [s.condition for s in statements(partial) if isinstance(s, If)]
    assert conditions and all(c.lanes == 1 for c in conditions)


def test_dividing_tiles_have_one_nest_without_guards() -> None:
    dag = product(4, 8, 3, copies=False)
    (nest,) = nest_of(interpreted(dag, tiled(dag, 2, 1, 4)))
    assert guards(nest) == 0


def test_masked_stores_keep_what_lies_beside_them() -> None:
    dag = product(3, 7, 2, copies=False)
    program = interpreted(dag, tiled(dag, 3, 1, 8))
    masks = [
        s
        for s in statements(program.kernels[-1].body)
        if isinstance(s, If) and s.condition.lanes > 1
    ]
    assert masks
    stores = [t for m in masks for t in statements(m) if isinstance(t, Store)]
    assert {t.index.lanes for t in stores} == {8}


def test_masked_register_tiles_stay_registers() -> None:
    """No masked access to a local array: it would keep the array in memory."""
    dag = product(5, 13, 3, copies=False)
    text = generate(lower_schedule(tiled(dag, 2, 1, 4), TARGET), TARGET).text
    assert "llvm.masked" in text
    for line in text.splitlines():
        if "llvm.masked" in line and "call" in line:
            pointer = line.split("ptr ")[1].split(",")[0]
            assert "%local" not in line
            made = next((x for x in text.splitlines() if x.strip().startswith(f"{pointer} =")), "")
            assert "%local" not in made


def test_on_gpus_nothing_is_read_behind_a_workspace() -> None:
    dag = product(5, 13, 3, copies=True)
    s = Schedule(dag)
    out = s[dag.outputs[0]]
    local = s[s.cache_write(dag.outputs[0], "local")]
    i, j = out.op.axis
    io, ii = out.split(i, factor=2)
    out.bind(j, "threadIdx.x")
    out.reorder(io, j, ii)
    local.compute_at(out, j)
    program = interpreted(dag, s, CUDA)
    assert all(b.size == math.prod(b.shape) for b in program.workspaces)


def test_whole_tile_of_simple_and_other_guards() -> None:
    o, i = E.var("o"), E.var("i")
    simplify = Simplifier({o: (0, 3), i: (0, 3)})
    inside = whole_tile(o * 4 + i < 14, {i: 4}, simplify)
    assert inside is not None and simplify(inside) is simplify(o * 4 + 3 < 14)
    assert whole_tile(E.const(True), {i: 4}, simplify) is None
    assert whole_tile((i // 2) + o < 4, {i: 4}, simplify) is None
    assert whole_tile(i < 2, {i: 4}, simplify) is None  # no tile is whole
    n = te.var("n")
    assert whole_tile(o * 4 + i < 14, {i: n}, simplify) is None  # of any n?


def test_fresh_loops_rename_and_keep_limits() -> None:
    dag = product(5, 13, 3, copies=False)
    loop = nest_of(lower_schedule(tiled(dag, 2, 1, 4), TARGET))[0]
    assert isinstance(loop, For)
    limits = {loop.var: 64}
    copy = fresh_loops(loop, limits)
    assert isinstance(copy, For) and copy.var is not loop.var
    assert limits[copy.var] == 64
    used = {n for s in statements(copy) if isinstance(s, Store) for n in E.free_variables(s.value)}
    assert loop.var not in used and copy.var in used


def test_quotient_and_reduced_remainder_join_again() -> None:
    """(16 o + i) // 7 * 7 + (2 o + i) % 7 is 16 o + i, since 16 o and 2 o differ by 14 o."""
    o, i = E.var("o"), E.var("i")
    simplify = Simplifier({o: (0, 99), i: (0, 15)})
    whole = simplify((o * 16 + i) // 7 * 7 + (o * 16 + i) % 7)
    assert whole is simplify(o * 16 + i)
    apart = simplify((o * 16 + i) // 7 * 7 + (o * 3 + i) % 7)
    assert any(n.op == "floormod" for n in E.walk(apart))
