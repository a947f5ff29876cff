"""Maxima of what lanes have are one instruction, where they exchange floats and keep the larger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.codegen.c_family_programs import glob, program
from tilewright.codegen import generate
from tilewright.codegen.maxima import maxima_at_once
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    Exchange,
    Kernel,
    Program,
    Region,
    Store,
    Thread,
    load,
    seq,
    statements,
)
from tilewright.targets.target import Target

T, ZERO = E.var("t"), E.const(0)
APART = (16, 8, 4, 2, 1)


def exchanged(
    keep: Callable[[Expr, Expr], Expr] = E.maximum, apart: Sequence[int] = APART,
    dtype: str = "float32",
) -> Program:  # fmt: skip
    """y[t] = what 32 lanes make of x together."""
    own, other = (Buffer(name, dtype, 1, "local") for name in ("own", "other"))
    x, y = (glob(name, dtype, 32) for name in "xy")
    parts = []
    for n in apart:
        parts.append(Exchange(Region(other, ZERO, 1), Region(own, ZERO, 1), n))
        parts.append(Store(own, ZERO, keep(load(own, ZERO), load(other, ZERO))))
    body = seq(Store(own, ZERO, load(x, T)), *parts, Store(y, T, load(own, ZERO)))
    body = Allocate(own, Allocate(other, body))
    return program(Kernel("k", (x, y), body, (Thread("threadIdx.x", T, 32),)), 1)


def exchanges(made: Program) -> int:
    return sum(isinstance(s, Exchange) for s in statements(made.kernels[0].body))


def test_five_exchanges_are_one_maximum() -> None:
    assert exchanges(exchanged()) == 5 and exchanges(maxima_at_once(exchanged())) == 0
    text = generate(exchanged(), Target("cuda -arch=sm_90")).text
    assert "own[0] = tw_maximum(own[0]);" in text and "tw_exchange(&" not in text
    assert text.count("float tw_maximum(float x)") == 1


@pytest.mark.parametrize(
    "before",
    [
        exchanged(E.minimum), exchanged(lambda a, b: a + b), exchanged(apart=APART[1:]),
        exchanged(apart=(*APART[:4], 2)), exchanged(dtype="int32"), exchanged(lambda a, b: b),
    ],
    ids=["least", "sum", "of 16 lanes", "no maximum of all", "integers", "another lane's"],
)  # fmt: skip
def test_what_stays_as_it_is(before: Program) -> None:
    assert str(maxima_at_once(before)) == str(before)
