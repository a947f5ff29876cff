"""A result that lies in the memory of what it keeps elements of: only new ones are stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.c_family_programs import glob, program
from tests.interpreter import run
from tilewright.codegen import generate
from tilewright.codegen.c_value import APART
from tilewright.codegen.kept_in_place import kept_in_place
from tilewright.codegen.reads_first import reads_first
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Stmt,
    Store,
    Thread,
    load,
    map_children,
    read_buffers,
    seq,
    statements,
)
from tilewright.targets.target import Target

ROWS, SIZE = 8, 4
T, J = E.var("t"), E.var("j")
X, Z, Y, V = (glob(name, "float32", ROWS * SIZE) for name in "xzyv")
U, AT = glob("u", "float32", SIZE), glob("i", "int32", 1)
HERE = E.binary("eq", T, load(AT, E.const(0)))


def write(y: Buffer = Y, x: Buffer = X, *, other: bool = False, at: Expr | None = None) -> Stmt:
    """y[t, j] = u[j] where t == i[0], else x[t, j]; other: the same, asked the other way round."""
    place = T * SIZE + J
    new, old = load(U, J), load(x, place if at is None else at)
    value = E.select(E.logical_not(HERE), old, new) if other else E.select(HERE, new, old)
    return For(J, SIZE, Store(y, place, value), "unrolled")


def linked(body: Stmt, outputs: int = 1) -> Program:
    args = (AT, U, X, Z, Y, V)[: 4 + outputs]
    kernel = Kernel("k", args, body, (Thread("threadIdx.x", T, ROWS),))
    return replace(program(kernel, 4), steady=frozenset({U}))


def known(stmt: Stmt, apart: bool) -> Stmt:
    """A statement where it is known whether memory is shared."""

    def rule(node: Expr) -> Expr | None:
        return E.const(apart) if node.op == APART else None

    return map_children(stmt, lambda s: known(s, apart), lambda e: E.transform(e, rule))


def values(made: Program, apart: bool, outputs: int = 1) -> list[np.ndarray]:
    """Results, of which each lies where the input is that it keeps, unless they are apart."""
    (kernel,) = made.kernels
    body = known(kernel.body, apart)
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal(ROWS * SIZE).astype("float32") for _ in "xz")
    given = [np.array([5], "int32"), rng.standard_normal(SIZE).astype("float32"), x, z]
    empty = [np.full_like(x, np.nan) if apart else a.copy() for a in (x, z)]
    arrays = [*given, *empty[:outputs]]
    roles = made.roles if apart else ("input",) * len(arrays)  # who keeps elements stores none
    run(replace(made, kernels=(replace(kernel, body=body),), roles=roles), arrays)
    for old, new in zip((x, z), arrays[4:], strict=False):
        want = old.reshape(ROWS, SIZE).copy()
        want[5] = given[1]
        np.testing.assert_array_equal(new.reshape(ROWS, SIZE), want)
    return arrays[4:]


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_it_computes_the_same_apart_and_in_place(apart: bool, other: bool) -> None:
    made = kept_in_place(linked(write(other=other)))
    (test,) = (s for s in statements(made.kernels[0].body) if isinstance(s, If))
    assert any(n.op == APART for n in E.walk(test.condition))
    values(made, apart)


@pytest.mark.parametrize("apart", [False, True])
def test_neighbours_are_read_before_any_is_stored(apart: bool) -> None:
    made = reads_first(kept_in_place(linked(seq(write(), write(V, Z)), 2)))
    for test in (s for s in statements(made.kernels[0].body) if isinstance(s, If)):
        inside = [s.buffer in made.args for s in statements(test.then) if isinstance(s, Store)]
        assert inside == sorted(inside) and not inside[0]
    values(made, apart, 2)


@pytest.mark.parametrize("apart", [False, True])
def test_single_elements_are_all_worked_out_before_one_is_stored(apart: bool) -> None:
    def single(y: Buffer, x: Buffer, j: int) -> Stmt:
        at = T * SIZE + j
        return Store(y, at, E.select(HERE, load(U, E.const(j)), load(x, at)))

    both = [single(y, x, j) for j in range(SIZE) for y, x in ((Y, X), (V, Z))]
    made = kept_in_place(linked(seq(*both), 2))
    stores = [s for s in statements(made.kernels[0].body) if isinstance(s, Store)]
    kept = [s.buffer in made.args for s in stores]
    assert kept == sorted(kept) and kept.count(True) == 2 * SIZE
    assert all(read_buffers(s).isdisjoint(made.args) for s in stores[kept.index(True) :])
    values(made, apart, 2)


@pytest.mark.parametrize("apart", [False, True])
def test_what_two_of_them_ask_for_comes_first(apart: bool) -> None:
    made = kept_in_place(linked(seq(write(), write(V, Z)), 2))
    found = [s for s in statements(made.kernels[0].body) if isinstance(s, (If, Store))]
    assert [isinstance(s, If) for s in found] == [False, False, True, False, True, False]
    values(made, apart, 2)


OTHERS = {
    "elsewhere": write(at=T * SIZE),
    "a constant": For(J, SIZE, Store(Y, T * SIZE + J, E.select(HERE, load(X, J), load(U, J)))),
    "of every element another one": For(J, SIZE, Store(Y, T * SIZE + J, load(X, T * SIZE + J))),
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_others_stay_as_they_are(body: Stmt) -> None:
    before = linked(body)
    assert str(kept_in_place(before)) == str(before)


def test_only_links_of_a_chain_ask() -> None:
    before = replace(linked(write()), steady=None)
    assert kept_in_place(before) is before
    chained = generate(linked(write()), Target("cuda -arch=sm_90")).text
    assert "(const void*)y != (const void*)x" in chained


@pytest.mark.parametrize("apart", [False, True])
def test_stores_that_a_program_guards_itself_stay_in_their_order(apart: bool) -> None:
    """The second reads what the first stored, and no element where its own test does not hold."""
    own, here = Buffer("own", "float32", 1, "local"), E.binary("lt", T, 5)
    at, zero = T * SIZE, E.const(0)
    guarded = [
        Store(own, zero, E.const(0.0, "float32")),
        If(here, Store(own, zero, load(U, zero) * 2.0)),
        If(E.binary("lt", T, 2), Store(own, zero, load(own, zero) + load(U, T + SIZE - 2))),
        Store(Y, at, load(own, zero)),
    ]
    made = kept_in_place(linked(seq(Allocate(own, seq(*guarded)), write(V, Z)), 2))
    (kernel,) = made.kernels
    u, z = np.arange(1, SIZE + 1, dtype="float32"), np.zeros(ROWS * SIZE, "float32")
    out = np.zeros(ROWS * SIZE, "float32")
    run(
        replace(made, kernels=(replace(kernel, body=known(kernel.body, apart)),),
                roles=("input",) * len(made.args)),
        [np.array([5], "int32"), u, z, z.copy(), out, z.copy()],
    )  # fmt: skip
    want = [2 + u[SIZE - 2], 2 + u[SIZE - 1], 2, 2, 2, 0, 0, 0]
    np.testing.assert_array_equal(out.reshape(ROWS, SIZE)[:, 0], want)
