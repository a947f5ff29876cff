"""Legalising element types: the same results, arithmetic in compute types only."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter import run
from tests.tiers import examples
from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Stmt,
    Store,
    expressions,
    load,
    statements,
)
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.lowering.types import legalize_types
from tilewright.schedule.schedule import create_schedule
from tilewright.targets.target import Target

COUNT = 8
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16")
MOVES = ("load", "const", "cast", "select", "if_then_else", "broadcast")

FORMS = ("read", "const", "cast", "choose", "divide", "binary", "binary", "binary")


def program_of(value: Expr, buffers: list[Buffer], index: Expr) -> Program:
    """`out[index] = value`, for every value of the loop variable if `index` is one."""
    out = Buffer("out", value.dtype, COUNT)
    body: Stmt = Store(out, index, value)
    if index.op == "var":
        body = For(index, COUNT, body)
    args, roles = (*buffers, out), ("input",) * len(buffers) + ("output",)
    return Program("main", args, roles, (Kernel("main", args, body),))


def legal(program: Program) -> Program:
    return Program(
        program.name, program.args, program.roles, tuple(map(legalize_types, program.kernels))
    )


def result(program: Program, inputs: list[np.ndarray]) -> np.ndarray:
    verify(program)
    out = np.zeros(COUNT, program.args[-1].dtype.storage)
    run(program, [*inputs, out])
    return out


def assert_wide(body: Stmt) -> None:
    """Narrow types are moved, and converted from and to their compute type; nothing else."""
    for node in E.walk(*expressions(body)):
        kinds = {node.dtype, *(a.dtype for a in node.args)}
        for kind in kinds:
            if kind.compute is not kind:
                assert node.op in MOVES, str(node)
                assert node.op != "cast" or kinds == {kind, kind.compute}, str(node)


def integer_expression(rng: random.Random, reads: list[Expr], depth: int) -> Expr:
    def part(bits: int = 64) -> Expr:
        while True:  # sums of int32 and int64 count as exact: only narrow ones are drawn
            e = integer_expression(rng, reads, depth - 1)
            if e.dtype.bits <= bits:
                return e

    kind = rng.choice(("read", "const")) if depth == 0 else rng.choice(FORMS)
    if kind == "read":
        return rng.choice(reads)
    if kind == "const":
        narrow = DType(rng.choice(INTEGERS[:3]))
        return E.const(narrow.wrapped(rng.randint(-300, 300)), narrow)
    if kind == "cast":
        return E.cast(rng.choice(INTEGERS), part())
    if kind == "choose":
        choose = rng.choice((E.select, E.if_then_else))
        return choose(part() < part(), part(), part())
    if kind == "divide":
        value = part()
        divisor = rng.choice((2, 7) if value.dtype.kind == "uint" else (-3, -1, 2, 7))
        return E.binary(rng.choice(("floordiv", "floormod")), value, divisor)
    return E.binary(rng.choice(("add", "sub", "mul", "min", "max")), part(16), part(16))


def float_expression(rng: random.Random, reads: list[Expr], depth: int) -> Expr:
    """Of values near one, in which nothing cancels."""

    def part() -> Expr:
        return float_expression(rng, reads, depth - 1)

    kind = "read" if depth == 0 else rng.choice(("read", "cast", "sqrt", "choose", *["binary"] * 3))
    if kind == "read":
        return rng.choice(reads)
    if kind == "cast":
        return E.cast(reads[0].dtype, E.cast("float32", part()))
    if kind == "sqrt":
        return E.call("sqrt", part())
    if kind == "choose":
        return E.select(rng.choice(reads) < 1, part(), part())
    return E.binary(rng.choice(("add", "mul", "min", "max")), part(), part())


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 100_000), st.booleans())
def test_integers_stay_exactly_what_they_were(seed: int, vector: bool) -> None:
    rng = random.Random(seed)
    index = E.ramp(E.const(0), 1, COUNT) if vector else E.var("i")
    buffers = [Buffer(t, DType(t), COUNT) for t in INTEGERS]
    value = integer_expression(rng, [load(b, index) for b in buffers], rng.randint(1, 3))
    before = program_of(E.broadcast(value, index.lanes), buffers, index)
    after = legal(before)
    assert_wide(after.kernels[0].body)
    inputs = []
    for kind in map(DType, INTEGERS):
        low, high = max(kind.least, -(2**20)), min(kind.greatest, 2**20)
        values = [low, high, low + 1, 0, *(rng.randint(low, high) for _ in range(COUNT - 4))]
        inputs.append(np.array(values, kind.storage))
    assert result(after, inputs).tolist() == result(before, inputs).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOATS)
@examples(40)
@given(st.integers(0, 100_000), st.booleans())
def test_floats_differ_by_their_rounding_only(kind: str, seed: int, vector: bool) -> None:
    rng = random.Random(seed)
    index = E.ramp(E.const(0), 1, COUNT) if vector else E.var("i")
    buffers = [Buffer(n, DType(kind), COUNT) for n in "ab"]
    value = float_expression(rng, [load(b, index) for b in buffers], 3)
    before = program_of(value, buffers, index)
    after = legal(before)
    assert_wide(after.kernels[0].body)
    inputs = [
        np.array([rng.uniform(0.9, 1.1) for _ in range(COUNT)]).astype(DType(kind).storage)
        for _ in buffers
    ]
    exact, actual = (result(p, inputs).astype(np.float64) for p in (before, after))
    np.testing.assert_allclose(actual, exact, rtol=30 * DType(kind).eps)


def stores(program: Program) -> list[Store]:
    found = (s for kernel in program.kernels for s in statements(kernel.body))
    return [s for s in found if isinstance(s, Store)]


def in_loop(kind: str, value: Expr, index: Expr) -> Expr:
    """The value that is stored for `value` once it is legal."""
    kernel = Kernel(
        "main", (), For(index, COUNT, Store(Buffer("out", DType(kind), 8), index, value))
    )
    loop = legalize_types(kernel).body
    assert isinstance(loop, For)
    assert isinstance(loop.body, Store)
    return loop.body.value


I = E.var("i")  # noqa: E741
HALF = load(Buffer("half", DType("float16"), COUNT), I)
BYTE = load(Buffer("byte", DType("int8"), COUNT), I)
WORD = load(Buffer("word", DType("int16"), COUNT), I)
REAL = load(Buffer("real", DType("float32"), COUNT), I)


def to(kind: str) -> Callable[[E.Value], Expr]:
    return lambda value: E.cast(kind, value)


f16, f32, i8, i16, i32 = map(to, ("float16", "float32", "int8", "int16", "int32"))


@pytest.mark.parametrize("value, stored", [
    (HALF * HALF + HALF, f16(f32(HALF) * f32(HALF) + f32(HALF))),
    (E.call("exp", HALF), f16(E.call("exp", f32(HALF)))),
    # a result is rounded once more only where the program says so
    (f16(REAL) + HALF, f16(f32(f16(REAL)) + f32(HALF))),
    (f32(HALF + HALF), f32(HALF) + f32(HALF)),
    (f16(REAL), f16(REAL)),
    # an integer wraps before it is read again, and once where it is stored or made narrower
    (BYTE + BYTE, i8(i32(BYTE) + i32(BYTE))),
    (i32(BYTE + BYTE), i32(i8(i32(BYTE) + i32(BYTE)))),
    (i8(WORD + WORD), i8(i32(WORD) + i32(WORD))),
    (i32(BYTE // -1), i32(i8(i32(BYTE) // -1))),
    (E.minimum(BYTE, 3), i8(E.minimum(i32(BYTE), 3))),
    (i16(BYTE), i16(i32(BYTE))),
    (f16(BYTE), f16(f32(i32(BYTE)))),
    (i8(HALF), i8(i32(f32(HALF)))),
    # a choice among loads is converted behind it, so that a guarded load needs no branch
    (f32(E.if_then_else(I > 2, HALF, 0)), f32(E.if_then_else(I > 2, HALF, 0))),
    (E.select(I > 2, HALF, 0) * HALF, f16(f32(E.select(I > 2, HALF, 0)) * f32(HALF))),
], ids=str)  # fmt: skip
def test_the_form_of_a_stored_value(value: Expr, stored: Expr) -> None:
    assert in_loop(value.dtype, value, I) is stored


@pytest.mark.parametrize(
    "value",
    [
        HALF,
        E.if_then_else(I > 2, HALF, 0),
        E.select(I > 2, E.select(I > 4, BYTE, 1), E.cast("int8", E.const(2))),
        E.const(1, "bfloat16"),
        REAL * REAL,
    ],
    ids=str,
)
def test_what_only_moves_stays(value: Expr) -> None:
    assert in_loop(value.dtype, value, I) is value


def test_conditions_and_indices_are_legal_too() -> None:
    table = Buffer("table", DType("float32"), 200)
    out = Buffer("out", DType("float32"), COUNT)
    store = Store(out, I, load(table, E.cast("int32", BYTE + 1)))
    body = legalize_types(Kernel("main", (), If(BYTE < 3, For(I, COUNT, store)))).body
    assert_wide(body)
    assert isinstance(body, If)
    assert body.condition is (i32(BYTE) < 3)


def test_a_kernel_without_narrow_types_is_itself() -> None:
    value = E.cast("float64", REAL) + E.cast("uint32", E.cast("int64", I))
    kernel = Kernel("main", (), For(I, COUNT, Store(Buffer("out", DType("float64"), 8), I, value)))
    assert legalize_types(kernel) is kernel


def test_vector_copies_of_16_bytes_stay() -> None:
    """Eight halves move as one vector on a GPU, and are converted by vectors on a CPU."""
    a = te.placeholder((64,), "float16", name="a")
    copied = te.compute((64,), lambda i: a[i], name="copied")
    doubled = te.compute((64,), lambda i: copied[i] + copied[i], name="doubled")
    for kind in ("cuda", "llvm"):
        s = create_schedule([doubled.op])
        for stage in (s[copied], s[doubled]):
            stage.vectorize(stage.split(stage.op.axis[0], 8)[1])
        first, second = stores(lower_schedule(s, Target(kind)))
        assert (first.value.op, first.value.lanes) == ("load", 8)
        (read,) = {n for n in E.walk(second.value) if n.op == "load"}
        assert second.value is f16(f32(read) + f32(read))
        assert read.lanes == 8


def test_a_type_that_nothing_stores_is_computed_in_another_too() -> None:
    """The sum of `c` is rounded to float16 on the way, which no buffer holds."""
    a, b = (te.placeholder((4,), name=n) for n in "ab")
    c = te.compute(
        (4,),
        lambda i: (a[i].astype("float16") + b[i].astype("float16")).astype("float32"),
        name="c",
    )
    dag = te.ComputeDAG([a, b, c])
    assert dag.types == {"float16", "float32", "int32"}
    (store,) = stores(lower_schedule(create_schedule(dag), Target("llvm")))
    x, y = (n for n in E.walk(store.value) if n.op == "load")
    assert store.value is f32(f16(x)) + f32(f16(y))
