"""Axes are told apart by what they are, never by what they are called."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.computations import draw_computation, matmul
from schedule.drawing import draw_schedule
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import LoweringError, ScheduleError
from tilewright.ir.stmt import For, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, Stage, create_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import IterVar, Tensor

Two = tuple[Tensor, IterVar, IterVar]


def two_of_one_name() -> Two:
    """A sum over two axes that both have the default name."""
    a = te.placeholder((4, 6, 10), name="A")
    r1, r2 = te.reduce_axis((0, 6)), te.reduce_axis((0, 10))
    assert r1.name == r2.name
    return te.compute((4,), lambda i: te.sum(a[i, r1, r2], axis=[r1, r2]), name="C"), r1, r2


def extents(s: Schedule, c: Tensor) -> str:
    """`name extent` of the loops of `c`, in order."""
    return " ".join(re.findall(r"for \S+ in (\d+)", str(s).split("C: ", 1)[1]))


STEPS: dict[str, tuple[Callable[[Stage, IterVar, IterVar], Any], str]] = {
    "split": (lambda st, r1, r2: st.split(r2, factor=5), "4 6 2 5"),
    "nparts": (lambda st, r1, r2: st.split(r1, nparts=3), "4 3 2 10"),
    "reorder": (lambda st, r1, r2: st.reorder(r2, r1), "4 10 6"),
    "fuse": (lambda st, r1, r2: st.fuse(r1, r2), "4 60"),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_acts_on_the_axis_that_is_given(name: str) -> None:
    c, r1, r2 = two_of_one_name()
    s = create_schedule(c.op)
    act, expected = STEPS[name]
    act(s[c], r1, r2)
    assert extents(s, c) == expected
    again = Schedule.replay(ComputeDAG([c]), s.to_json())
    assert extents(again, c) == expected
    scope: dict[str, Any] = {"s": create_schedule(c.op), "te": te, "C": c}
    exec(s.to_python(), scope)
    assert extents(scope["s"], c) == expected


@pytest.mark.parametrize("how", ["unroll", "bind", "pragma"])
def test_a_mark_is_on_the_axis_that_is_given(how: str) -> None:
    c, _, r2 = two_of_one_name()
    s = create_schedule(c.op)
    value: tuple[Any, ...] = {"bind": ("threadIdx.x",), "pragma": ("unroll_explicit", 1)}.get(
        how, ()
    )
    getattr(s[c], how)(r2, *value)
    line = next(text for text in str(s).splitlines() if "10" in text and "for" in text)
    assert {"unroll": "unrolled", "bind": "threadIdx.x", "pragma": "unroll_explicit"}[how] in line


def test_rfactor_takes_the_axis_that_is_given() -> None:
    c, _, r2 = two_of_one_name()
    s = create_schedule(c.op)
    assert s.rfactor(c, r2).shape == (10, 4)


def test_a_stage_is_attached_at_the_axis_that_is_given() -> None:
    a = te.placeholder((6, 10), name="A")
    b = te.compute((6, 10), lambda i, j: a[i, j] * 2.0, name="B")
    r1, r2 = te.reduce_axis((0, 6)), te.reduce_axis((0, 10))
    c = te.compute((1,), lambda i: te.sum(b[r1, r2], axis=[r1, r2]), name="C")
    s = create_schedule(c.op)
    s[b].compute_at(s[c], r2)
    assert "B: float32[1, 1]" in str(s)


def test_membership_and_positions_tell_the_truth() -> None:
    c, r1, r2 = two_of_one_name()
    s, other = create_schedule(c.op), create_schedule(c.op)
    loops = s[c].leaf_iter_vars
    assert r1 in loops and r2 in loops and c.op.axis[0] in loops
    assert [loops.index(ax) for ax in (c.op.axis[0], r1, r2)] == [0, 1, 2]
    assert list(loops).index(r2) == 2 and {ax: 1 for ax in loops}[r2] == 1
    assert loops[1] != loops[2] != r1
    outer, inner = s[c].split(r2, factor=5)
    assert r2 not in s[c].leaf_iter_vars and outer in s[c].leaf_iter_vars
    assert r2 in other[c].leaf_iter_vars and inner not in other[c].leaf_iter_vars


def test_an_axis_of_two_sums_is_one_of_each() -> None:
    a = te.placeholder((4, 10), name="A")
    r = te.reduce_axis((0, 10), "r")
    c = te.compute((4,), lambda i: te.sum(a[i, r], axis=r), name="B")
    d = te.compute((4,), lambda i: te.sum(a[i, r] * c[i], axis=r), name="C")
    s = create_schedule(d.op)
    assert r in s[c].leaf_iter_vars and r in s[d].leaf_iter_vars
    s[d].split(r, factor=5)
    assert r in s[c].leaf_iter_vars and r not in s[d].leaf_iter_vars
    assert s[c].op.reduce_axis[0] != s[d].op.reduce_axis[0]


def test_cache_write_moves_the_reduction_and_keeps_the_axes() -> None:
    c, r1, r2 = two_of_one_name()
    s = create_schedule(c.op)
    cached = s.cache_write(c, "local")
    assert c.op.axis[0] in s[c].leaf_iter_vars
    assert r1 not in s[c].leaf_iter_vars and s[cached].leaf_iter_vars.index(r2) == 2


def other_stage(s: Schedule, b: Tensor, c: Tensor) -> None:
    s[c].split(b.op.axis[0], factor=2)


def other_schedule(s: Schedule, b: Tensor, c: Tensor) -> None:
    s[c].vectorize(create_schedule(c.op)[c].split(c.op.axis[0], factor=2)[1])


def gone(s: Schedule, b: Tensor, c: Tensor) -> None:
    outer, _ = s[c].split(s[c].op.reduce_axis[0], factor=2)
    s.rfactor(c, outer)
    s[c].unroll(outer)


def no_axis(s: Schedule, b: Tensor, c: Tensor) -> None:
    s[c].split("i", factor=2)  # type: ignore[arg-type]


def stage_of_another(s: Schedule, b: Tensor, c: Tensor) -> None:
    s[b].compute_at(create_schedule(c.op)[c], c.op.axis[0])


def host_of_another_axis(s: Schedule, b: Tensor, c: Tensor) -> None:
    s[b].compute_at(s[c], b.op.axis[0])


STRANGERS = {
    other_stage: r"split\(C, i\): i:6 is an axis of B, not of C\. C has axes i:6 r:4; take them",
    other_schedule: r"vectorize\(C, i.inner\): i.inner:\? is of no stage here, not of C\.",
    gone: r"unroll\(C, r.outer\): r.outer:\? is of no stage here, .* cache_write and rfactor make",
    no_axis: r"split\(C, 'i'\): a str is no axis\. C has axes",
    stage_of_another: "no stage of this schedule",
    host_of_another_axis: r"compute_at\(C, i\): i:6 is an axis of B, not of C",
}


@pytest.mark.parametrize("request_", STRANGERS, ids=lambda f: f.__name__)
def test_strangers_are_refused(request_: Callable[[Schedule, Tensor, Tensor], None]) -> None:
    a = te.placeholder((6, 4), name="A")
    b = te.compute((6, 4), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 4), "r")
    c = te.compute((6,), lambda i: te.sum(b[i, r], axis=r), name="C")
    s = create_schedule(c.op)
    with pytest.raises(ScheduleError, match=STRANGERS[request_]):
        request_(s, b, c)


def renamed(dag: ComputeDAG, names: Callable[[], str]) -> ComputeDAG:
    """The same computation over axes of other names."""
    data = dag.to_json()
    for op in data["ops"]:
        if op[0] == "compute":
            op[2] = [[names(), extent, begin] for _, extent, begin in op[2]]
    return ComputeDAG.from_json(data)


def shape_of(s: Schedule, target: str) -> str | None:
    """The lowered program with loop variables numbered in the order they are declared."""
    try:
        program = lower_schedule(s, Target(target))
    except LoweringError:
        return None
    for kernel in program.kernels:
        loops = [stmt for stmt in statements(kernel.body) if isinstance(stmt, For)]
        for number, loop in enumerate(loops):
            loop.var.attr = f"v{number}"
    return str(program)


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10**9), st.booleans())
def test_axes_of_one_name_give_the_program_of_axes_of_many(seed: int, gpu: bool) -> None:
    dag = ComputeDAG(draw_computation(random.Random(seed))[1])
    fresh = (f"a{k}" for k in count())
    shapes = []
    for variant in (renamed(dag, lambda: "x"), renamed(dag, lambda: next(fresh))):
        s = draw_schedule(variant, random.Random(seed), gpu=gpu)
        shapes.append(shape_of(s, "cuda" if gpu else "llvm"))
        again = Schedule.replay(variant, s.to_json())
        assert str(again) == str(s)
    assert shapes[0] == shapes[1]


def test_an_axis_is_declared_once_per_sum() -> None:
    *_, c = matmul(4, 6, 8)
    s = create_schedule(c.op)
    assert s[c].op is c.op and s[c].leaf_iter_vars == [*c.op.axis, *c.op.reduce_axis]
