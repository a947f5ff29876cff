"""Computations of every element type, from `te` to machine code, against the float64 reference.

The default schedules and random ones, on this machine's processor and on the first x86-64.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.drawing import draw_schedule
from schedule.test_schedules import lowered, run_on
from tests.codegen.test_llvm_types import on_both
from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.dtype import TYPES
from tilewright.codegen import generate
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs

NUMBERS = [t for t in TYPES if t != "bool"]
FLOATS = [t for t in NUMBERS if t.is_float]


def elementwise(kind: str) -> ComputeDAG:
    """Sums, products, extremes, choices, a comparison."""
    a, b = (te.placeholder((7, 19), kind, name=n) for n in "ab")
    c = te.compute((7, 19), lambda i, j: te.maximum(a[i, j] * b[i, j] + a[i, 18 - j], 2), name="c")
    d = te.compute(
        (7, 19), lambda i, j: te.if_then_else(c[i, j] < b[i, j], b[i, j] - 1, c[i, j]), name="d"
    )
    f = te.compute((7, 19), lambda i, j: d[i, j] > a[i, j], name="f")
    return ComputeDAG([a, b, d, f])


def casts(kind: str) -> ComputeDAG:
    """To every type that holds the values."""
    a = te.placeholder((45,), kind, name="a")
    outs = [
        te.compute((45,), lambda i, t=t: te.minimum(a[i], 7).astype(t), name=f"to_{t}")
        for t in NUMBERS
        if t.kind != "uint" or a.dtype.kind == "uint"  # others have negative numbers
    ]
    return ComputeDAG([a, *outs])


def product(kind: str) -> ComputeDAG:
    a, b = te.placeholder((5, 12), kind, name="a"), te.placeholder((12, 19), kind, name="b")
    k = te.reduce_axis((0, 12), "k")
    wide = "int64" if kind in ("int16", "uint16") else None  # 12 products exceed 32 bits
    c = te.compute(
        (5, 19), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k, acc_dtype=wide), name="c"
    )
    return ComputeDAG([a, b, topi.nn.relu(c)])


def convolution(kind: str) -> ComputeDAG:
    x = te.placeholder((1, 3, 9, 9), kind, name="x")
    w = te.placeholder((18, 3, 3, 3), kind, name="w")
    return ComputeDAG([x, w, topi.nn.conv2d(x, w, 2, 1)])


def softmax(kind: str) -> ComputeDAG:
    x = te.placeholder((5, 37), kind, name="x")
    return ComputeDAG([x, topi.nn.softmax(x)])


def functions(kind: str) -> ComputeDAG:
    x = te.placeholder((37,), kind, name="x")
    small = te.compute((37,), lambda i: te.minimum(te.maximum(x[i], -4), 4), name="small")
    names = [
        "exp", "tanh", "erf", "abs", "floor", "ceil", "round", "sin", "cos", "tan", "atan", "sinh",
        "cosh", "asinh",
    ]  # fmt: skip
    return ComputeDAG([
        x, *(te.compute((37,), lambda i, n=n: getattr(te, n)(small[i]), name=n) for n in names)
    ])  # fmt: skip


OF_FLOATS = [softmax, functions]
COMPUTATIONS = [
    *((c, t) for c in (elementwise, casts, product) for t in NUMBERS),
    *((convolution, t) for t in NUMBERS if t not in ("int16", "uint16", "uint32", "uint64")),
    *((c, t) for c in OF_FLOATS for t in FLOATS),
]


def check(dag: ComputeDAG, schedule: Schedule, target: Target) -> None:
    program, inputs = lower_schedule(schedule, target), random_inputs(dag, 3)
    expected, bounds = evaluate_with_tolerance(dag, inputs)
    for got, reference, bound in zip(
        run_on(target, program, inputs), expected, bounds, strict=True
    ):
        assert agrees(got, reference, bound).all(), program


@pytest.mark.sampled(11)
@pytest.mark.slow
@on_both
@pytest.mark.parametrize(
    "make, kind", COMPUTATIONS, ids=[f"{c.__name__}-{t}" for c, t in COMPUTATIONS]
)
def test_default_schedules_compute_in_every_type(
    make: Callable[[str], ComputeDAG], kind: str, target: Target
) -> None:
    dag = make(kind)
    check(dag, default_schedule(dag, target), target)


@pytest.mark.long
@examples(25)
@given(st.integers(0, 10**9), st.sampled_from(COMPUTATIONS), st.sampled_from(["", " -mcpu=x86-64"]))
def test_random_schedules_compute_in_every_type(
    seed: int, computation: tuple[Callable[[str], ComputeDAG], str], option: str
) -> None:
    make, kind = computation
    dag = make(kind)
    s = draw_schedule(dag, random.Random(seed), gpu=False)
    if lowered(s, "llvm") is not None:
        check(dag, s, Target("llvm" + option))


def test_halves_are_loaded_as_vectors() -> None:
    x = te.placeholder((64,), "float16", name="x")
    dag = ComputeDAG([x, topi.nn.relu(x)])
    target = Target("llvm -vector-bytes=32")
    text = generate(lower_schedule(default_schedule(dag, target), target), target).text
    assert re.search(r"load <(8|16) x half>", text)
    assert re.search(r"store <(8|16) x half>", text)
