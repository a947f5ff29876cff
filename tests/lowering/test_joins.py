"""Sums that blocks share and one of them finishes: what lowering makes of `join`.

The interpreters find what is wrong with barriers and counts; numpy says what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering import split_sums
from lowering.split_sums import CUDA, FAULTS, Sums, arrays, backwards, joins, ordered, wrong
from tests.interpreter import run
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import InternalError, LoweringError, ScheduleError
from tilewright.codegen import generate
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    Barrier,
    For,
    Join,
    Program,
    Stmt,
    Store,
    load,
    map_children,
    seq,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

BOTH = pytest.mark.parametrize("runner", [run, run_fast])


def check(r: Sums, program: Program, runner: Callable[..., None] = run_fast) -> np.ndarray:
    verify(program)
    given, expected = arrays(r)
    runner(ordered(program), given)
    np.testing.assert_array_equal(given[-1], expected)
    return given[-1]


@BOTH
@pytest.mark.parametrize("r", [Sums(), Sums(lanes=4, tile=16), Sums(blocks=1), Sums(threads=1)])
def test_one_kernel_gives_what_two_gave(r: Sums, runner: Callable[..., None]) -> None:
    program = split_sums.program(r)
    assert len(program.kernels) == 1 and [j.blocks for j in joins(program)] == [r.blocks]
    assert program.kernels[0].grid == (-(-r.n // r.tile), r.batch, r.blocks)
    check(r, program, runner)


@given(
    st.builds(
        Sums, st.integers(1, 40), st.integers(8, 40), st.integers(1, 3), st.integers(1, 5),
        st.integers(1, 12), st.integers(1, 6), st.sampled_from([1, 2, 4]),
    )
)  # fmt: skip
@examples(40)
def test_whatever_the_sizes_and_whichever_block_is_the_last(r: Sums) -> None:
    """The sum over blocks has one order: bit for bit the same."""
    program = split_sums.program(r)
    check(r, program)
    check(r, backwards(program))
    rng = np.random.default_rng(0)
    a = rng.standard_normal((r.batch, r.n, r.k)).astype(np.float32)
    found = []
    for each in (program, backwards(program)):
        out = np.full((r.batch, r.n), np.nan, np.float32)
        run_fast(ordered(each), [a, out])
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()


def test_a_barrier_is_before_the_count_only_where_there_are_several_threads() -> None:
    for threads, barriers in ((4, 1), (1, 0)):
        program = split_sums.program(Sums(threads=threads))
        everything = [s for k in program.kernels for s in statements(k.body)]
        assert sum(isinstance(s, Barrier) for s in everything) == barriers


def test_tiles_lie_one_behind_the_other_with_a_counter_each() -> None:
    r = Sums()
    program = split_sums.program(r)
    partial, counters = program.workspaces
    tiles = -(-r.n // r.tile) * r.batch
    assert partial.shape == (tiles, r.blocks, 1, r.tile) and counters.size == tiles
    assert program.counters == {counters}
    source = generate(program, CUDA)
    assert {b.name: b.role for b in source.buffers}[counters.name] == "counters"


@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, runner: Callable[..., None]) -> None:
    r = Sums()
    with pytest.raises(InterpreterError, match=FAULTS[fault][0]):
        runner(ordered(wrong(r, fault)), arrays(r)[0])


def test_both_interpreters_say_the_same() -> None:
    for fault in FAULTS:
        told = []
        for runner in (run, run_fast):
            with pytest.raises(InterpreterError) as caught:
                runner(ordered(wrong(Sums(), fault)), arrays(Sums())[0])
            told.append(str(caught.value).partition(" at ")[0])  # the fast one keeps loop variables
        assert told[0] == told[1], fault


@BOTH
def test_another_tile_is_no_part_of_what_came_before(runner: Callable[..., None]) -> None:
    """A block that reads partial sums of other tiles races with those that compute them."""
    r = Sums(n=16, batch=1)

    program = split_sums.program(r)
    size, (partial, _) = r.blocks * r.tile, program.workspaces

    def shifted(e: E.Expr) -> E.Expr | None:
        if e.op != "load" or e.attr is not partial:
            return None
        return load(partial, (e.args[0] + size) % (2 * size))

    def visit(stmt: Stmt) -> Stmt:
        return map_children(stmt, visit, lambda e: E.transform(e, shifted))

    def edit(stmt: Stmt) -> Stmt:
        return replace(stmt, body=visit(stmt.body)) if isinstance(stmt, Join) else stmt

    with pytest.raises(InterpreterError, match="was never written|no barrier lies between"):
        runner(ordered(split_sums.edited(program, edit)), arrays(r)[0])


def test_the_verifier_refuses_what_is_no_join() -> None:
    program = split_sums.program(Sums())
    (join,), (kernel,) = joins(program), program.kernels
    share, thread = split_sums.share_of(program), E.var("t")
    lane = next(t.var for t in kernel.threads if t.tag == "threadIdx.x")
    twice = For(thread, 2, join)
    again = seq(join, Store(join.counters, E.const(0), E.const(0)))
    for stmt, reason in (
        (twice, "counted in a loop"),
        (again, "another statement touches"),
        (replace(join, index=lane), "threads of a block count it at different places"),
        (replace(join, blocks=0), "0 blocks"),
        (replace(join, body=join), "bound twice|touches|counted behind another"),
    ):
        changed = replace(program, kernels=(replace(kernel, body=seq(Barrier(), stmt)),))
        with pytest.raises(InternalError, match=reason):
            verify(changed)
    with pytest.raises(InternalError, match=f"shows in {share.attr}|counted under the condition"):
        verify(split_sums.only_first(program))


# -- what is refused -------------------------------------------------------------------------------


def bound(**binds: str) -> Schedule:
    """C[i, j] = sum(A[i, j, k]) whose partial sums are joined at j's blocks, by these indices."""
    a = te.placeholder((8, 8, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, j, k], axis=k), name="C")
    s = create_schedule([c.op])
    share, _ = s[c].split(k, nparts=2)
    part = s.rfactor(c, share)
    j, inner = s[c].split(s[c].op.axis[1], factor=4)
    axes = {"i": s[c].op.axis[0], "j": j, "inner": inner}
    for name, axis in axes.items():
        if name in binds:
            s[c].bind(axis, binds[name])
    s[part].join(s[c], j)
    s[part].bind(s[part].op.axis[0], binds["share"])
    return s


@pytest.mark.parametrize(
    ("binds", "reason"),
    [
        ({"j": "blockIdx.x"}, "i, around it, is no loop over blocks"),
        ({"i": "threadIdx.x", "j": "blockIdx.x"}, "i, around it, is no loop over blocks"),
        ({"i": "blockIdx.z", "j": "blockIdx.x"}, "each block would compute a part of another tile"),
        (
            {"i": "blockIdx.y", "j": "blockIdx.x", "inner": "blockIdx.z", "share": "threadIdx.y"},
            "inside that loop, where one block of a tile is left",
        ),
    ],
)
def test_blocks_must_come_apart_into_tiles_and_groups(binds: dict[str, str], reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        LoopTree(bound(**{"share": "blockIdx.z", **binds}))


def test_the_buffer_must_be_seen_by_other_blocks() -> None:
    s = bound(i="blockIdx.y", j="blockIdx.x", share="threadIdx.y")
    LoopTree(s)
    s.find("C.rf").set_scope("shared")
    with pytest.raises(ScheduleError, match="its buffer is shared, which other blocks do not see"):
        LoopTree(s)


@pytest.mark.parametrize("kind", ["opencl", "llvm"])
def test_devices_whose_blocks_cannot_count_each_other(kind: str) -> None:
    s = split_sums.schedule(Sums())
    with pytest.raises(LoweringError, match="cannot count each other|no blocks and threads"):
        lower_schedule(s, Target(kind))
    if kind == "opencl":
        assert judge(Resources(LoopTree(s).bounds(), Target(kind))).reasons() == ["join"]


def test_compute_root_takes_it_back() -> None:
    s = split_sums.schedule(Sums())
    s.find("S.rf").compute_root()
    program = lower_schedule(s, CUDA)
    assert len(program.kernels) == 2 and not joins(program)
    check(Sums(), program)


# -- text ------------------------------------------------------------------------------------------


def test_the_text_counts_behind_a_barrier_and_reads_what_others_wrote() -> None:
    text = generate(split_sums.program(Sums()), CUDA).text
    (line,) = (s for s in text.splitlines() if "if (tw_last_to_come(" in s)
    assert line == "  if (tw_last_to_come(&S_rf_come[block_y * 5 + block_x], 3u)) {"
    assert text[: text.index(line)].rstrip().endswith("__syncthreads();")
    assert "float* S_rf," in text and "int* S_rf_come" in text  # compilers know that others write
    helper = text[: text.index('extern "C"')]
    assert "atom.acq_rel.gpu.global.inc.u32" in helper and "__syncthreads_or(found)" in helper
    fence = "__threadfence"  # for older devices
    assert helper.index(fence) < helper.index("atomicInc") < helper.rindex(fence)


def test_other_texts_know_nothing_of_it() -> None:
    s = split_sums.schedule(Sums())
    s.find("S.rf").compute_root()
    source = generate(lower_schedule(s, CUDA), CUDA)
    assert "tw_last_to_come" not in source.text
    assert "counters" not in {b.role for b in source.buffers}
