"""Well-formed programs pass; every kind of malformed one is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as S
from tests.ir import naive
from tests.tiers import examples
from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)
from tilewright.ir.verifier import verify

A, B = Buffer("a", "float32", 8), Buffer("b", "float32", 8)
LOCAL, SHARED = Buffer("l", "float32", 2, "local"), Buffer("s", "float32", 8, "shared")
V, J, T, U = E.var("i"), E.var("j"), E.var("t"), E.var("u")
ONE, ZERO = E.const(0), E.const(0.0)
SCRATCH = Buffer("w", "float32", 8)
THREADS = (Thread("blockIdx.x", U, 2), Thread("threadIdx.x", T, 8))


def program(body, threads=(), params=(A, B), workspaces=(), roles=("input", "output")):
    return Program("p", (A, B), roles, (Kernel("k", params, body, threads),), workspaces)


def put(index=ONE, value=ZERO, buffer=B):
    return Store(buffer, index, value)


@examples(40)
@given(S.dags(), st.sampled_from(naive.STYLES))
def test_naive_programs_are_well_formed(drawn, style):
    verify(naive.program(drawn[0], style))


WELL_FORMED = {
    "barrier between stores": program(
        Allocate(SHARED, seq(put(T, ZERO, SHARED), Barrier(), put(T, load(SHARED, T)))), THREADS
    ),
    "barrier under a condition on blocks": program(If(U < 1, Barrier()), THREADS),
    "barrier in a loop": program(For(V, 3, Barrier()), THREADS),
    "barrier after a condition": program(seq(If(T < 1, put()), Barrier()), THREADS),
    "vectors": program(put(E.ramp(V, 1, 4), E.broadcast(ZERO, 4)), (Thread("threadIdx.x", V, 2),)),
    "a condition on lanes": program(
        If(E.ramp(ONE, 1, 4) < 3, put(E.ramp(ONE, 1, 4), E.broadcast(ZERO, 4)))
    ),
    "workspace": program(put(ONE, ZERO, SCRATCH), params=(SCRATCH,), workspaces=(SCRATCH,)),
    "scratch on a CPU": program(Allocate(LOCAL, For(V, 2, put(V, ZERO, LOCAL), "parallel"))),
}


@pytest.mark.parametrize("name", WELL_FORMED)
def test_well_formed(name):
    verify(WELL_FORMED[name])


class Unknown(Stmt):
    pass


OTHER = Buffer("w", "float32", 8)
MALFORMED = {
    "roles": (program(put(), roles=("input",)), "p: 1 roles for 2 arguments"),
    "role": (program(put(), roles=("input", "inout")), "p: an argument has the role 'inout'"),
    "scope of an argument": (
        program(put(), workspaces=(LOCAL,)), r"l: float32\[2\] local is an argument or a workspace"
    ),
    "listed twice": (program(put(), workspaces=(A,)), "a buffer is listed twice"),
    "unknown parameter": (
        program(put(), params=(A, B, OTHER)), "k: the parameter w.* is no argument and no workspace"
    ),
    "unknown tag": (program(put(), (Thread("threadIdx.w", T, 8),)), "unknown or repeated"),
    "repeated tag": (
        program(put(), (Thread("threadIdx.x", T, 8), Thread("threadIdx.x", U, 8))),
        "unknown or repeated",
    ),
    "empty launch": (program(put(), (Thread("threadIdx.x", T, 0),)), "threadIdx.x has extent 0"),
    "bound twice": (
        program(For(V, 2, For(V, 2, put()))), r"k: for i in 2:: the variable i is bound twice"
    ),
    "bound in siblings": (
        program(seq(For(V, 2, put()), For(V, 2, put()))), "the variable i is bound twice"
    ),
    "bound by launch and loop": (program(For(T, 2, put()), THREADS), "t is bound twice"),
    "no variable": (program(For(E.const(3), 2, put())), "3 is bound but is no variable"),
    "unbound": (program(put(J)), r"k: b\[j\] = 0f: the variable j is not bound here"),
    "after its loop": (program(seq(For(V, 2, put()), put(V))), "the variable i is not bound here"),
    "loop kind": (program(For(V, 2, put(), "cooperative")), "unknown loop kind 'cooperative'"),
    "empty loop": (program(For(V, 0, put())), "a loop of extent 0"),
    "parallel in a launch": (
        program(For(V, 2, put(), "parallel"), THREADS), "a parallel loop in a kernel that has"
    ),
    "not a parameter": (program(put(), params=(A,)), "is neither a parameter nor allocated"),
    "load not a parameter": (program(put(ONE, load(OTHER, ONE))), "w.* is neither a parameter nor"),
    "before allocation": (
        program(seq(put(ONE, ZERO, LOCAL), Allocate(LOCAL, put()))), "is neither a parameter nor"
    ),
    "after allocation": (
        program(Seq((Allocate(LOCAL, put()), put(ONE, ZERO, LOCAL)))), "used outside its allocation"
    ),
    "allocated twice": (program(Allocate(LOCAL, Allocate(LOCAL, put()))), "is allocated twice"),
    "allocated parameter": (program(Allocate(A, put())), "is allocated twice or is a parameter"),
    "empty buffer": (program(Allocate(Buffer("e", "float32", 0, "local"), put())), "no elements"),
    "scope": (program(Allocate(Buffer("e", "float32", 1, "warp"), put())), "unknown scope 'warp'"),
    "global in a launch": (program(Allocate(OTHER, put()), THREADS), "global memory cannot be"),
    "stored type": (program(put(ONE, E.const(1))), "a int32 is stored to b"),
    "stored lanes": (program(put(E.ramp(ONE, 1, 4))), "1 lanes are stored to 4 places"),
    "index type": (program(put(ZERO)), "the index 0f is float32"),
    "load index type": (program(put(ONE, load(A, E.const(True)))), "is bool"),
    "load type": (
        program(put(ONE, E.cast("float32", E.make("load", (ONE,), A, "int32")))), "has type int32x1"
    ),
    "operand lanes": (
        program(put(ONE, E.make("add", (ZERO, E.broadcast(ZERO, 4)), None, "float32"))),
        "the operands of .* differ in lanes",
    ),
    "condition type": (program(If(ONE, put())), "a condition must be a bool, not int32"),
    "lanes of a condition": (
        program(If(E.ramp(ONE, 1, 4) < 3, put())), "1 lanes are stored under a condition of 4"
    ),
    "lanes of a condition in a launch": (
        program(If(E.ramp(ONE, 1, 4) < 3, put(E.ramp(ONE, 1, 4), E.broadcast(ZERO, 4))), THREADS),
        "a condition of 4 lanes in a kernel that has launch dimensions",
    ),
    "unlowered": (
        program(put(ONE, S.softmax(1, 2).compute_ops[0].body)), "has not been lowered"
    ),
    "divergent barrier": (
        program(If(T < 4, Barrier()), THREADS),
        r"k: barrier: a barrier under the condition \(t < 4\), which differs between threads",
    ),
    "divergent barrier in a loop": (
        program(If(T < 4, For(V, 2, If(U < 1, Barrier()))), THREADS), "under the condition"
    ),
    "divergent barrier in an else": (
        program(If(T < 4, put(), Barrier()), THREADS), "a barrier under the condition"
    ),
    "barrier in a parallel loop": (
        program(For(V, 2, Barrier(), "parallel")), "a barrier in a parallel loop"
    ),
    "statement": (program(Unknown()), "verifier: Unknown is no statement that this pass knows"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name):
    broken, reason = MALFORMED[name]
    with pytest.raises(InternalError, match=reason):
        verify(broken)
