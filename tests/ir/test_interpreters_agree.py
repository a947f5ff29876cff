"""The fast interpreter does what the plain one defines: results, and faults by kind and place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schedule.test_schedules import drawn as drawn_schedule
from schedule.test_schedules import lowered
from tests import strategies as S
from tests.interpreter import InterpreterError, run
from tests.ir import naive
from tests.ir.scalars import TYPED, build_typed, calculate_typed, numbers, typed
from tests.ir.test_interpreter import tiled_matmul
from tests.tiers import examples
from tilewright.base.dtype import TYPES, DType
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    load,
    map_children,
)
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs


def outcome(interpreter: Callable[..., None], program: Program, arrays: list[Any]) -> list[Any]:
    """The bits of the arrays, or which fault was found where."""
    own = [a.copy() for a in arrays]
    try:
        interpreter(program, own)
    except InterpreterError as error:
        reason = error.reason.partition(" (in ")[0]
        return [error.place, reason.partition(": thread")[0]]
    return [_canonical(a).tobytes() for a in own]


def _canonical(array: Any) -> Any:
    """NaNs have many forms."""
    if array.dtype.kind in "biu":
        return array
    wide = array.astype(np.float64)
    return np.where(np.isnan(wide), np.nan, wide)


def assert_agree(program: Program, arrays: list[Any]) -> list[Any]:
    plain, fast = (outcome(f, program, arrays) for f in (run, run_fast))
    assert fast == plain
    return plain


def arguments(dag: ComputeDAG, program: Program, seed: int = 0) -> list[Any]:
    inputs = iter(random_inputs(dag, seed))
    return [
        np.zeros(b.shape, b.dtype.storage) if role == "output" else next(inputs)
        for b, role in zip(program.args, program.roles, strict=True)
    ]


@pytest.mark.slow
@examples(40)
@given(S.dags(300), st.sampled_from(naive.STYLES), st.integers(0, 3))
def test_results_are_the_same(drawn: Any, style: str, seed: int) -> None:
    program = naive.program(drawn[0], style)
    assert len(assert_agree(program, arguments(drawn[0], program, seed))) == len(program.args)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_lowered_schedules_are_the_same(kind: str) -> None:
    """With and without their barriers, where several threads exchange what they computed."""
    faults = 0
    for seed in range(40):
        dag, schedule = drawn_schedule(31_000 + seed, kind == "cuda")
        program = lowered(schedule, kind)
        if program is None or sum(_work(k.body) * _threads(k) for k in program.kernels) > 20_000:
            continue
        arrays = arguments(dag, program)
        assert_agree(program, arrays)
        bare = replace(program, kernels=tuple(_changed(k, _no_barrier) for k in program.kernels))
        faults += len(assert_agree(bare, arrays)) != len(arrays) or bare.kernels != program.kernels
    assert kind == "llvm" or faults


def _work(stmt: Stmt) -> int:
    if isinstance(stmt, For):
        return stmt.extent * _work(stmt.body)
    total = [1]

    def count(s: Stmt) -> Stmt:
        total.append(_work(s))
        return s

    map_children(stmt, count)
    return sum(total)


def _threads(kernel: Kernel) -> int:
    return int(np.prod((*kernel.grid, *kernel.block)))


def _changed(kernel: Kernel, change: Callable[[Stmt], Stmt]) -> Kernel:
    def visit(stmt: Stmt) -> Stmt:
        return change(map_children(stmt, visit))

    return replace(kernel, body=visit(kernel.body))


def _no_barrier(stmt: Stmt) -> Stmt:
    return Seq(()) if isinstance(stmt, Barrier) else stmt


def _shifted(stmt: Stmt) -> Stmt:
    return Store(stmt.buffer, stmt.index + 1, stmt.value) if isinstance(stmt, Store) else stmt


def _all_at_once(stmt: Stmt) -> Stmt:
    return replace(stmt, kind="parallel") if isinstance(stmt, For) else stmt


def _half(stmt: Stmt) -> Stmt:
    return replace(stmt, extent=(stmt.extent + 1) // 2) if isinstance(stmt, For) else stmt


def _one_place(stmt: Stmt) -> Stmt:
    return Store(stmt.buffer, stmt.index // 2, stmt.value) if isinstance(stmt, Store) else stmt


def _guarded(stmt: Stmt) -> Stmt:
    return If(stmt.index < 3, stmt) if isinstance(stmt, Store) and stmt.index.lanes == 1 else stmt


@pytest.mark.slow
@examples(40)
@given(
    S.dags(300),
    st.sampled_from(naive.STYLES),
    st.sampled_from([_shifted, _all_at_once, _half, _one_place, _guarded]),
)
def test_faults_are_the_same(drawn: Any, style: str, change: Callable[[Stmt], Stmt]) -> None:
    # The verifier refuses a parallel loop in a launched kernel: nothing says what it would mean.
    assume((style, change) != ("launched", _all_at_once))
    program = naive.program(drawn[0], style)
    broken = replace(program, kernels=tuple(_changed(k, change) for k in program.kernels))
    assert_agree(broken, arguments(drawn[0], program))


@pytest.mark.parametrize("drop", [(), (0,), (1,), (0, 1)])
def test_barriers_order_the_same_accesses(drop: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((8, 8)).astype(np.float32) for _ in range(3)]
    found = assert_agree(tiled_matmul(8, 4, drop), arrays)
    assert (len(found) == 2) == bool(drop)


@pytest.mark.parametrize("op", ["select", "and", "or"])
def test_what_is_not_chosen_fails_all_the_same(op: str) -> None:
    row, x = E.var("row"), Buffer("x", DType("float32"), 1)
    given, fails = load(x, row), E.cast("int8", E.const(np.inf, DType("float32")))
    inner = E.select(fails.equal(1), given, given * 2)
    sure = given.equal(given)
    node = {
        "select": lambda: E.select(sure, given, inner),
        "and": lambda: E.binary("and", E.logical_not(sure), inner.equal(given)),
        "or": lambda: E.binary("or", sure, inner.equal(given)),
    }[op]()
    out = Buffer("out", node.dtype, 1)
    kernel = Kernel("k", (x, out), For(row, 1, Store(out, row, node)))
    program = Program("p", (x, out), ("input", "output"), (kernel,))
    arrays = [np.ones(1, np.float32), np.zeros(1, node.dtype.storage)]
    assert "infinity" in assert_agree(program, arrays)[1]


@pytest.mark.slow
@examples(40)
@given(st.data())
def test_every_element_type_computes_what_its_definition_says(data: st.DataObject) -> None:
    """All operations and casts, on values that nothing is known of; both interpreters and numpy."""
    dtype = DType(data.draw(st.sampled_from(TYPES)))
    recipe = data.draw(typed(dtype))
    node = build_typed(recipe)
    used = {name: TYPED[name] for name in _names(recipe)}
    rows = data.draw(
        st.lists(st.tuples(*(numbers(v.dtype) for v in used.values())), min_size=1, max_size=3)
    )
    row = E.var("row")
    sources = {name: Buffer(name, v.dtype, len(rows)) for name, v in used.items()}
    loads = {TYPED[name]: load(buffer, row) for name, buffer in sources.items()}
    out = Buffer("out", dtype, len(rows))
    body = For(row, len(rows), Store(out, row, E.substitute(node, loads)))
    args = (*sources.values(), out)
    roles = (*("input" for _ in sources), "output")
    program = Program("p", args, roles, (Kernel("k", args, body),))
    columns = [
        np.array([r[k] for r in rows], b.dtype.storage) for k, b in enumerate(sources.values())
    ]
    result = np.zeros(len(rows), dtype.storage)
    found = assert_agree(program, [*columns, result])
    try:
        with np.errstate(all="ignore"):
            expected = [
                calculate_typed(recipe, _row(used, columns, m))[1] for m in range(len(rows))
            ]
    except (ValueError, OverflowError):  # an integer of what is no number
        return
    assume(dtype.is_float or all(dtype.least <= x <= dtype.greatest for x in expected))
    assert found[-1] == _canonical(np.array(expected, dtype.storage)).tobytes()


def _names(recipe: Any) -> set[str]:
    if not isinstance(recipe, tuple):
        return set()
    return {recipe[1]} if recipe[0] == "typed" else set().union(*map(_names, recipe))


def _row(used: dict[str, Any], columns: list[Any], m: int) -> dict[str, Any]:
    values = {}
    for (name, v), column in zip(used.items(), columns, strict=True):
        values[name] = column[m] if v.dtype.is_float else column[m].item()
    return values
