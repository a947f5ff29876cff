"""Hand-built programs in every element type: moves, computing in a wider type, all casts.

In: nothing.  Out: `TYPED`, name -> `Case`; `SHOWN`, those whose text is worth reading.
Read next: `test_c_family.py`.
"""

from __future__ import annotations

import numpy as np

from tests.codegen.c_family_programs import RNG, Array, Case, elementwise, glob, program
from tilewright.base.dtype import TYPES, DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    Kernel,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)

THREADS = 8
NARROW = tuple(t for t in map(DType, TYPES) if t.compute is not t)


def numbers(dtype: DType, count: int) -> Array:
    """Anything that the type holds, its limits among them."""
    if not dtype.is_float:
        widest = np.uint64 if dtype == "uint64" else np.int64
        limits = int(dtype.least), int(dtype.greatest)
        values = RNG.integers(*limits, count, widest, endpoint=True)
        values[:2] = dtype.least, dtype.greatest
        return values.astype(dtype.storage)
    values = (RNG.normal(size=count) * 100).astype(dtype.storage)
    special = [0.0, -0.0, np.inf, -np.inf, dtype.smallest, -dtype.smallest, dtype.least, dtype.eps]
    values[: len(special)] = special
    return values


def moves(dtype: DType) -> Case:
    """16 bytes a thread, through shared memory and registers, padded, chosen by lane, constant."""
    lanes = 16 // dtype.bytes
    n = THREADS * lanes
    a, t = glob("a", dtype, n), E.var("t")
    outputs = tuple(glob(x, dtype, n) for x in ("turned", "padded", "chosen", "filled"))
    tile, held = Buffer("tile", dtype, n, "shared"), Buffer("held", dtype, lanes, "local")
    here, mine = E.ramp(t * lanes, 1, lanes), E.ramp(E.const(0), 1, lanes)
    before = E.if_then_else(t >= 1, load(a, E.ramp(t * lanes - lanes, 1, lanes)), E.const(0, dtype))
    chosen = E.select((mine % 3).equal(0), load(a, here), E.const(1, dtype))
    body = seq(
        Store(tile, here, load(a, here)),
        Barrier(),
        Store(held, mine, load(tile, E.ramp((THREADS - 1 - t) * lanes, 1, lanes))),
        Store(outputs[0], here, load(held, mine)),
        Store(outputs[1], here, before),
        Store(outputs[2], here, chosen),
        Store(outputs[3], here, E.const(3, dtype)),
    )
    threads = (Thread("threadIdx.x", t, THREADS),)
    kernel = Kernel("moves", (a, *outputs), Allocate(tile, Allocate(held, body)), threads)
    x = numbers(dtype, n)
    rows = x.reshape(THREADS, lanes)
    one = np.ones((), dtype.storage)
    expected = (
        rows[::-1].reshape(-1), np.concatenate([np.zeros(lanes, dtype.storage), x[:-lanes]]),
        np.where(np.arange(lanes) % 3 == 0, rows, one).reshape(-1), np.full(n, 3, dtype.storage),
    )  # fmt: skip
    return Case(program(kernel, 1), (x,), expected)


def computed(dtype: DType) -> Case:
    """As lowering leaves arithmetic on a format of memory: in the wider type, cast at the store."""
    lanes, wide = 16 // dtype.bytes, dtype.compute
    n = THREADS * lanes
    a, b, out = glob("a", dtype, n), glob("b", dtype, n), glob("out", dtype, n)
    half, t = glob("wide", wide, n), E.var("t")
    here, few = E.ramp(t * lanes, 1, lanes), E.ramp(t * lanes, 1, 4)

    def read(buffer: Buffer, at: Expr) -> Expr:
        return E.cast(wide, load(buffer, at))

    body = seq(
        Store(out, here, E.cast(dtype, read(a, here) * read(b, here))),
        Store(half, few, read(a, few) - read(b, few)),
    )
    kernel = Kernel("computed", (a, b, out, half), body, (Thread("threadIdx.x", t, THREADS),))
    x, y = numbers(dtype, n), numbers(dtype, n)
    y[np.isinf(y)] = 1
    p, q = x.astype(wide.storage), y.astype(wide.storage)
    with np.errstate(over="ignore"):
        product = (p * q).astype(dtype.storage)
    some = np.where(np.arange(n) % lanes < 4, p - q, np.nan if dtype.is_float else 1)
    return Case(program(kernel, 2), (x, y), (product, some))


def casts(source: DType) -> Case:
    """To every other type, by scalars and by the widest vectors; folding constants says what."""
    n = 16
    a = glob("a", source, n)
    others = tuple(
        t
        for t in map(DType, TYPES)
        if t is not source and not (source.is_float and t == "uint64")  # holds no negative ones
    )
    outputs = tuple(glob(f"to_{t}", t, n) for t in others)

    def body(t: Expr) -> Stmt:
        return seq(*(Store(o, t, E.cast(o.dtype, load(a, t))) for o in outputs))

    values = [0, 1, 2, 3, 100, 127, 7, 11]
    if source.is_float:  # ties of bfloat16, and a little more than one of float16
        values += [-0.0, 0.25, -0.75, -99.5, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11 + 2**-40, -1.0]
    elif source.kind != "bool":
        rest = [int(source.least), int(source.greatest), 128, 255, 256, -1, -3, 65537]
        values += [v if source.holds(v) else 5 for v in rest]
    inside = np.array([*values, *[1] * (n - len(values))]).astype(source.storage)
    expected = tuple(
        np.array(
            [E.cast(t, E.const(v.item(), source)).value for v in inside],
            t if t == "uint64" else None,
        ).astype(t.storage)
        for t in others
    )
    return Case(elementwise("casts", (a,), outputs, body), (inside,), expected)


def unsigned() -> Case:
    """uint32 in full: it wraps around, divides without a sign and compares as what it is."""
    dtype, n = DType("uint32"), 16
    a, b = glob("a", dtype, n), glob("b", dtype, n)
    names = ("sum", "less", "product", "ratio", "rest", "least", "most", "float", "large")
    kinds = {"float": "float32", "large": "bool"}
    outputs = tuple(glob(x, kinds.get(x, "uint32"), n) for x in names)
    big = E.const(2**31 + 5, dtype)

    def body(t: Expr) -> Stmt:
        x, y = load(a, t), load(b, t)
        values = (
            x + y, x - y, x * y, x // y, x % y, E.minimum(x, big), E.maximum(x, y),
            E.cast("float32", x), x > big,
        )  # fmt: skip
        return seq(*(Store(o, t, v) for o, v in zip(outputs, values, strict=True)))

    x, y = numbers(dtype, n), np.maximum(numbers(dtype, n) >> 20, 1)
    least = np.minimum(x, np.uint32(big.attr))
    expected = (
        x + y, x - y, x * y, x // y, x % y, least, np.maximum(x, y), x.astype(np.float32),
        x > big.attr,
    )  # fmt: skip
    return Case(elementwise("unsigned", (a, b), outputs, body), (x, y), expected)


TYPED: dict[str, Case] = {
    **{f"moves_{t}": moves(DType(t)) for t in TYPES},
    **{f"computed_{t}": computed(t) for t in NARROW},
    **{f"casts_{t}": casts(DType(t)) for t in TYPES},
    "unsigned": unsigned(),
}
SHOWN = (
    "moves_float16", "moves_int8", "computed_float16", "computed_bfloat16", "computed_uint8",
    "casts_float64", "unsigned",
)  # fmt: skip
