"""A statement that something does not know is refused by name; nothing lets it pass in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.interpreter import run
from tilewright import te
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.expr import Expr
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    STATEMENTS,
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Parts,
    Program,
    Stmt,
    Store,
    Thread,
    expressions,
    load,
    map_children,
    seq,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering import pipeline
from tilewright.lowering.loops import simplify_indices
from tilewright.lowering.pipeline import PASSES, lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Foreign(Stmt):
    """Reads something; nobody was told of it."""

    value: Expr


V = E.var("i")
A, B = Buffer("a", "float32", 8), Buffer("b", "float32", 8)
FOREIGN = Foreign(load(A, E.const(0)))


def product() -> te.Tensor:
    """Of narrow numbers, so that the pass over types looks at it."""
    a, b = (te.placeholder((16, 16), "float16", name) for name in "ab")
    k = te.reduce_axis((0, 16), "k")
    return te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, acc_dtype="float16"))


def on_gpu() -> Schedule:
    """Virtual threads, shared memory and vectors: every pass has work to do."""
    c = product()
    s = create_schedule([c.op])
    a = s.cache_read(c.op.input_tensors[0], "shared", [c])
    rows, columns = s[c].op.axis
    virtual, threads = s[c].split(rows, factor=8)
    s[c].bind(virtual, "vthread")
    s[c].bind(threads, "threadIdx.x")
    s[a].compute_at(s[c], threads)
    s[c].vectorize(s[c].split(columns, factor=4)[1])
    return s


def on_cpu() -> Schedule:
    c = product()
    s = create_schedule([c.op])
    s[c].vectorize(s[c].split(s[c].op.axis[1], factor=8)[1])
    return s


SCHEDULES = {"cuda": on_gpu, "llvm": on_cpu}
ONLY_ON_GPUS = ("barriers", "unseen", "choices", "guards")


def first(body: Stmt) -> Stmt:
    return seq(FOREIGN, body)


def innermost(body: Stmt) -> Stmt:
    """Beside every store: inside loops, guards and allocations."""

    def visit(stmt: Stmt) -> Stmt:
        return seq(stmt, FOREIGN) if isinstance(stmt, Store) else map_children(stmt, visit)

    return visit(body)


@pytest.mark.parametrize("place", [first, innermost])
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("number", range(len(PASSES)), ids=[label for label, _ in PASSES])
def test_every_pass_refuses_a_foreign_statement(
    number: int, kind: str, place: Callable[[Stmt], Stmt], monkeypatch: pytest.MonkeyPatch
) -> None:
    label, apply = PASSES[number]
    if label in ONLY_ON_GPUS and kind != "cuda":
        return

    def inject(kernel: Kernel, *_: object) -> Kernel:
        return replace(kernel, body=place(kernel.body))

    monkeypatch.setattr(pipeline, "PASSES", (*PASSES[:number], ("inject", inject), (label, apply)))
    with pytest.raises(InternalError, match=f"^pass '{label}' on .*: Foreign is no statement"):
        lower_schedule(SCHEDULES[kind](), Target(kind))


def program(body: Stmt, threads: tuple[Thread, ...] = ()) -> Program:
    return Program("p", (A, B), ("input", "output"), (Kernel("k", (A, B), body, threads),))


def copy(extra: Stmt | None = None) -> Stmt:
    return For(V, 8, seq(Store(B, V, load(A, V)), extra))


BODIES = {
    "alone": FOREIGN,
    "in a loop": copy(FOREIGN),
    "in a branch": seq(copy(), If(load(A, E.const(0)) < 1.0, FOREIGN)),
    "otherwise": seq(
        copy(), If(load(A, E.const(0)) < -1.0, Store(B, E.const(0), E.const(1.0)), FOREIGN)
    ),
    "in an allocation": Allocate(Buffer("l", "float32", 1, "local"), FOREIGN),
}


@pytest.mark.parametrize("body", BODIES)
def test_whatever_takes_programs_refuses_a_foreign_statement(body: str) -> None:
    broken = program(BODIES[body])
    arrays = [np.zeros(8, np.float32) for _ in range(2)]
    takers: dict[str, Callable[[], object]] = {
        "verifier": lambda: verify(broken),
        "(interpreter|traversal)": lambda: run(broken, arrays),
        "(fast interpreter: )?(fast interpreter|traversal)": lambda: run_fast(broken, arrays),
        "printer": lambda: str(broken),
        **{
            rf"generate\(p, {kind}\)": lambda kind=kind: generate(broken, Target(kind))
            for kind in ("llvm", "cuda", "opencl")
        },
    }
    for name, take in takers.items():
        with pytest.raises(InternalError, match=f"^{name}: .*Foreign"):
            take()


@pytest.mark.parametrize("walk", [lambda s: list(statements(s)), lambda s: list(expressions(s))])
def test_traversals_refuse_a_foreign_statement(walk: Callable[[Stmt], object]) -> None:
    with pytest.raises(InternalError, match="^traversal: Foreign is no statement"):
        walk(copy(FOREIGN))


# -- a statement that is declared, as one is when the language grows -------------------------------


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Copy(Stmt):
    """`buffer[index] = value`, some time."""

    buffer: Buffer
    index: Expr
    value: Expr
    then: Stmt | None = None


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(statements=("then",), expressions=("index", "value"), written=("buffer",))
    monkeypatch.setitem(STATEMENTS, Copy, parts)


@pytest.mark.usefixtures("declared")
def test_generic_passes_work_through_declared_parts() -> None:
    body = For(V, 8, Copy(B, (V * 4 + 3) // 4, load(A, (V * 4) // 4), Store(B, V // 1, 0 * V + 1)))
    new = simplify_indices(program(body).kernels[0]).body
    assert isinstance(new, For) and isinstance(new.body, Copy)
    assert new.body.index is V and new.body.value is load(A, V)
    assert [type(s) for s in statements(new)] == [For, Copy, Store]
    fresh = fresh_loops(new, {})
    assert isinstance(fresh, For) and fresh.var is not V
    assert all(V not in E.free_variables(e) for e in expressions(fresh))
    assert Simplifier({V: (0, 7)})(V // 8) is E.const(0)


@pytest.mark.usefixtures("declared")
def test_passes_with_meanings_of_their_own_still_ask_for_a_row() -> None:
    shared = Buffer("s", "float32", 8, "shared")
    body = Allocate(shared, seq(Copy(shared, V, load(A, V)), Store(B, V, load(shared, 7 - V))))
    kernel = program(body, (Thread("threadIdx.x", V, 8),)).kernels[0]
    with pytest.raises(InternalError, match="^barriers: Copy is no statement that this pass knows"):
        insert_barriers(kernel)
    for kind in ("cuda", "opencl", "llvm"):
        with pytest.raises(InternalError, match=rf"^generate\(p, {kind}\): .*"):
            generate(program(kernel.body, kernel.threads), Target(kind))
