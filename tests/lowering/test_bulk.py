"""Bulk copies: what lowering makes of `bulk_copy`, rings of them and warps that load.

The interpreters find what is wrong with gates, phases and slots; numpy says what comes out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.bulk_products import H100, Bulk, arrays, schedule
from lowering.row_rings import without
from tests.interpreter import run
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.codegen import generate
from tilewright.cost.gpu_facts import GpuKernel
from tilewright.cost.machine_model import analyse
from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    AsyncCopy,
    Barrier,
    For,
    If,
    Program,
    Show,
    Stmt,
    children,
    map_children,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import var
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

ATOMS = Bulk(
    m=32, n=48, k=96, rows=32, columns=16, step=32, threads=(1, 2), atoms=True, dtype="float16"
)
FORMS = {
    "one slot": Bulk(slots=1),
    "three slots": Bulk(),
    "more slots than tiles": Bulk(slots=9),
    "a warp that loads": Bulk(loaders=1),
    "one slot and a warp that loads": Bulk(slots=1, loaders=1),
    "four warps that load": Bulk(loaders=4),
    "the loop runs again": Bulk(again=2),
    "the loop runs again beside a warp": Bulk(again=2, loaders=1),
    "rows that begin and end in zeros": Bulk(pad=4),
    "such rows and a warp": Bulk(pad=4, loaders=1),
    "atoms": ATOMS,
    "atoms and a warp": replace(ATOMS, loaders=1, swizzle=64),
    "one warp of atoms and a warp": replace(ATOMS, threads=(1, 1), loaders=1),
    "one warp of atoms and four that load": replace(ATOMS, threads=(1, 1), loaders=4, again=3),
    "atoms, swizzled, again": replace(ATOMS, again=3, swizzle=64),
}


def check(b: Bulk, runner: Callable[..., None] = run_fast) -> Program:
    program = lower_schedule(schedule(b), H100)
    verify(program)
    given, expected = arrays(b)
    runner(program, given)
    assert np.array_equal(given[-1], expected)
    return program


def body_of(program: Program) -> list[Stmt]:
    (kernel,) = program.kernels
    return list(statements(kernel.body))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_product_is_what_it_was(form: Bulk) -> None:
    check(form)


@pytest.mark.parametrize("form", [Bulk(), Bulk(again=2, loaders=1)])
def test_the_definition_says_so_too(form: Bulk) -> None:
    check(replace(form, m=8, n=32, k=20), run)


def test_no_barrier_stands_in_the_loop() -> None:
    for form in (Bulk(), Bulk(loaders=1), Bulk(again=2)):
        program = check(form)
        assert sum(isinstance(s, Barrier) for s in body_of(program)) == 1  # behind the gates
        loops = [s for s in body_of(program) if isinstance(s, For)]
        assert not any(isinstance(x, Barrier) for s in loops for x in statements(s))


def test_all_rings_of_a_loop_share_their_gates() -> None:
    expects = [s for s in body_of(check(Bulk())) if isinstance(s, Expect)]
    assert {s.nbytes for s in expects} == {8 * 8 * 4 + 16 * 8 * 4}
    gates = [s for s in body_of(check(Bulk())) if isinstance(s, MakeGates)]
    assert [(s.gates.count, s.arrivals) for s in gates] == [(3, 1), (3, 1)]  # one warp


def test_warps_that_load_do_nothing_else() -> None:
    (kernel,) = check(Bulk(loaders=1)).kernels
    assert kernel.block == (8, 8, 1)  # four more rows of eight threads
    branches = [s for s in statements(kernel.body) if isinstance(s, If) and s.orelse is not None]
    (branch,) = branches
    assert str(branch.condition) == "(thread_y < 4)"
    kinds = {type(s) for s in statements(branch.orelse)}
    assert {BulkCopy, Expect, Await} <= kinds and Arrive not in kinds


def test_whole_warps_wait() -> None:
    """Nothing that only some lanes do stands around a wait."""

    def look(stmt: Stmt, conditions: tuple[str, ...]) -> None:
        if isinstance(stmt, Await):
            assert not any("==" in c for c in conditions)
        own = (*conditions, str(stmt.condition)) if isinstance(stmt, If) else conditions
        for part in children(stmt):
            look(part, own)

    for form in FORMS.values():
        look(check(form).kernels[0].body, ())


def test_zeros_around_a_tensor_are_no_condition() -> None:
    copies = [s for s in body_of(check(Bulk(pad=4))) if isinstance(s, BulkCopy)]
    padded = next(s for s in copies if s.to.buffer.name == "p.shared")
    assert padded.box.shape == (24, 28)


def test_masks_ask_for_no_less_than_there_is() -> None:
    for form in FORMS.values():
        (kernel,) = generate(lower_schedule(schedule(form), H100), H100).kernels
        resources = Resources(LoopTree(schedule(form)).bounds(), H100)
        (own,) = resources.kernels
        assert kernel.shared_bytes <= own.shared_bytes <= kernel.shared_bytes + 4096
        x, y, z = kernel.block
        assert x * y * z == own.threads + own.loading_threads
        assert not judge(resources).reasons()


def test_a_ring_of_threads_beside_one_of_the_engine() -> None:
    """Each has its own waits; the threads' ring keeps its barrier."""
    b = Bulk()
    s = schedule(b)
    (stage,) = (st for st in s.stages if st.name == "w.shared")
    mixed = create_schedule(s.dag.outputs[0].op)
    for step in s.steps:
        if getattr(step, "stage", "") == stage.name and step.verb in ("bulk_copy", "pipeline"):
            continue
        mixed.do(step)
    own = mixed.find("w.shared")
    own.pipeline(2)
    fused = own.fuse(*own.op.axis)
    _, x = own.split(fused, factor=8)
    own.bind(x, "threadIdx.x")
    program = lower_schedule(mixed, H100)
    verify(program)
    given, expected = arrays(b)
    run_fast(program, given)
    assert np.array_equal(given[-1], expected)
    assert {AsyncCopy, BulkCopy} <= {type(s) for s in body_of(program)}


def drawn(seed: int) -> Bulk:
    rng = random.Random(seed)
    threads = rng.choice([(4, 8), (2, 16), (8, 4), (4, 16)])
    rows, columns = (t * rng.randint(1, 2) for t in threads)
    step = 4 * rng.randint(1, 3)
    return Bulk(
        m=rng.randint(1, 20), n=rng.randint(1, 30), k=4 * rng.randint(3, 12), rows=rows,
        columns=columns, step=step, threads=threads, slots=rng.randint(1, 5),
        loaders=rng.choice([0, 0, 1, 1, 4]), pad=rng.choice([0, 0, 4]), again=rng.randint(1, 3),
        swizzle=rng.choice([0, 0, 32]) if step == 8 else 0,
    )  # fmt: skip


@examples(40)
@given(st.integers(0, 10**9))
def test_products_of_any_shape(seed: int) -> None:
    check(drawn(seed))


# -- faults ----------------------------------------------------------------------------------------


def early(stmt: Stmt) -> Stmt:
    """Copies do not wait until their slot was read."""
    if isinstance(stmt, Await) and ("+ 1" in str(stmt) or "of 1" in str(stmt)):
        return stmt if "+ 1" not in str(stmt) else replace(stmt, parity=stmt.parity * 0 + 1)
    return map_children(stmt, early)


FAULTS: dict[str, tuple[Callable[[Stmt], Stmt], str]] = {
    "no await": (without(Await), "does not know of|under way|more than|never written"),
    "no arrival": (without(Arrive), "waits for ever"),
    "reads not shown": (without(Show), "has not shown it to the copy engine"),
    "no bytes expected": (without(Expect), "waits for ever|does not know of|under way|never writ"),
    "no fence": (without(Fence), "no fence stands behind"),
    "no barrier": (without(Barrier), "never made|no barrier lies between"),
    "no copies": (without(BulkCopy), "waits for ever|bytes are expected"),
}


@pytest.mark.parametrize("form", [Bulk(k=60), Bulk(k=60, loaders=1)], ids=["threads", "a warp"])
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(fault: str, form: Bulk) -> None:
    change, told = FAULTS[fault]
    program = lower_schedule(schedule(form), H100)
    (kernel,) = program.kernels
    wrong = replace(program, kernels=(replace(kernel, body=change(kernel.body)),))
    with pytest.raises(InterpreterError, match=told):
        run_fast(wrong, arrays(form)[0])


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_80"])
def test_devices_without_an_engine(target: str) -> None:
    with pytest.raises(LoweringError, match="has no engine that copies boxes"):
        lower_schedule(schedule(Bulk()), Target(target))


NO_BOXES = {
    "tiles of short rows": (Bulk(step=6), "rows of 24 bytes, no multiple of 16"),
    "rows of another swizzle": (Bulk(swizzle=64), "rows of 32 bytes, swizzled by 64"),
    "zeros that are no unit": (Bulk(pad=2), "which may be no multiple of 4 elements, 16 bytes"),
    "threads that are no warps": (Bulk(threads=(3, 8), rows=9), "not a whole number of warps"),
    "a large box": (Bulk(m=600, rows=300, threads=(4, 8)), "a box of 300 elements"),
}


@pytest.mark.parametrize("name", NO_BOXES)
def test_boxes_that_do_not_fit_are_refused_by_name(name: str) -> None:
    form, told = NO_BOXES[name]
    assert "box" in judge(Resources(LoopTree(schedule(form)).bounds(), H100)).reasons()
    with pytest.raises(LegalityError, match=told):
        lower_schedule(schedule(form), H100)


def copied(tensor: te.Tensor, output: te.Tensor) -> Schedule:
    s = create_schedule(output.op)
    if tensor.op in s.dag.ops and not isinstance(tensor.op, te.PlaceholderOp):
        s[tensor].compute_inline()
    shared = s.cache_read(tensor, "shared", [output])
    axis = s[output].op.axis[0]
    s[output].bind(axis, "blockIdx.x")
    s[shared].compute_at(s[output], axis)
    s[shared].bulk_copy()
    return s


def test_tensors_that_are_seen_by_no_box() -> None:
    odd = te.placeholder((4, 7), name="odd")
    y = te.compute((4, 7), lambda i, j: odd[i, 6 - j], name="y")
    with pytest.raises(ScheduleError, match="28 bytes apart, no multiple of 16"):
        LoopTree(copied(odd, y))
    a = te.placeholder((8, 8), name="a")
    turned = te.compute((8, 8), lambda i, j: a[j, i], name="turned")
    y = te.compute((8, 8), lambda i, j: turned[i, j] + 1.0, name="y")
    with pytest.raises(ScheduleError, match="neighbours in its buffer are no neighbours in its"):
        LoopTree(copied(turned, y))
    flat = te.compute((64,), lambda i: a[i // 8, i % 8], name="flat")
    y = te.compute((64,), lambda i: flat[i] + 1.0, name="y")
    with pytest.raises(ScheduleError, match="is no loop of the stage"):
        LoopTree(copied(flat, y))
    some = te.compute(
        (8, 8), lambda i, j: te.if_then_else(j < 5, a[i, j], te.const(0.0, "float32")), name="some"
    )
    y = te.compute((8, 8), lambda i, j: some[i, j] + 1.0, name="y")
    with pytest.raises(ScheduleError, match="it is zero where .* does not hold, not only outside"):
        LoopTree(copied(some, y))


def test_loops_of_a_stage_that_an_engine_copies_stay_as_they_are() -> None:
    s = schedule(Bulk())
    stage = s.find("x.shared")
    stage.vectorize(stage.op.axis[1])
    with pytest.raises(ScheduleError, match="its loops are split, bound or marked"):
        LoopTree(s)


def test_warps_that_load_want_all_of_the_loop() -> None:
    s = schedule(Bulk(loaders=1))
    other = create_schedule(s.dag.outputs[0].op)
    for step in s.steps:
        if getattr(step, "stage", "") == "w.shared" and step.verb in ("bulk_copy", "pipeline"):
            continue
        other.do(step)
    with pytest.raises(ScheduleError, match=r"w\.shared is shared, too, and in that loop"):
        LoopTree(other)


def test_a_ring_may_be_asked_for_before_the_engine() -> None:
    s = schedule(Bulk())
    steps = [step for step in s.steps if getattr(step, "stage", "") == "x.shared"]
    assert [step.verb for step in steps][-2:] == ["bulk_copy", "pipeline"]
    turned = create_schedule(s.dag.outputs[0].op)
    later = steps[-2]
    for step in s.steps:
        if step is not later:
            turned.do(step)
            if step is steps[-1]:
                turned.do(later)
    told = [str(lower_schedule(one, H100)) for one in (s, turned)]
    assert told[0] == told[1]


# -- costs -----------------------------------------------------------------------------------------


def facts(form: Bulk) -> GpuKernel:
    (found,), _ = analyse(Resources(LoopTree(schedule(form)).bounds(), H100), 1)
    assert isinstance(found, GpuKernel)
    return found


def test_an_engine_takes_no_loads_of_threads() -> None:
    small = replace(ATOMS, m=1024, n=1024, k=1024, rows=128, columns=128, step=64, threads=(2, 4))
    small = replace(small, swizzle=128)
    engine, threads = facts(small), facts(replace(small, bulk=False))
    assert engine.instructions < threads.instructions
    assert engine.traffic <= threads.traffic
    assert engine.barriers == 0 < threads.barriers
    assert [float(r.ahead) for r in engine.rings] == [2.0]
    loading = facts(replace(small, loaders=4))
    assert (int(loading.loading), int(engine.loading)) == (128, 0)


def test_masks_judge_populations_as_they_judge_one() -> None:
    """Rows of numbers for what is open: tiles, slots, swizzle, warps that load."""
    rows = [
        (8, 16, 8, 3, 0, 0), (8, 16, 8, 1, 32, 1), (8, 16, 16, 4, 32, 0), (8, 16, 6, 2, 0, 1),
        (16, 32, 16, 2, 64, 4), (4, 8, 4, 5, 0, 0), (8, 16, 2, 3, 0, 0),
    ]  # fmt: skip
    names = ("rows", "columns", "step", "slots", "swizzle", "loaders")
    form = Bulk(m=40, n=72, k=96)
    opened = schedule(replace(form, **{name: var(name) for name in names}))
    columns = {
        n: np.array(values) for n, values in zip(names, zip(*rows, strict=True), strict=True)
    }
    many = Resources(LoopTree(opened).bounds(columns), H100)
    (kernel,), verdict = many.kernels, judge(many)
    (found,), times = analyse(many, len(rows))
    for k, row in enumerate(rows):
        alone = schedule(replace(form, **dict(zip(names, row, strict=True))))
        one = Resources(LoopTree(alone).bounds(), H100)
        assert np.broadcast_to(kernel.shared_bytes, len(rows))[k] == one.kernels[0].shared_bytes
        assert (
            np.broadcast_to(kernel.loading_threads, len(rows))[k] == one.kernels[0].loading_threads
        )
        told = {r for r, mask in verdict.refused.items() if np.broadcast_to(mask, len(rows))[k]}
        assert told == set(judge(one).reasons())
        (own,), _ = analyse(one, 1)
        for fact in ("instructions", "traffic", "barriers"):
            given = np.broadcast_to(getattr(found, fact), len(rows))[k]
            assert given == pytest.approx(float(np.max(getattr(own, fact))))
    assert len(times) == 1
