"""Every operation in every element type, on NaN, infinities, zeros of both signs, subnormal and
extreme numbers and random bits, on every target here, against the interpreter's definition.

A try is one operation on one tuple of operands on one target.  What may differ is what
`docs/numerics.md` states, by the rules of `STATED`; everything else is a fault.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from drills.drill import Counts, Drill
from tilewright import te
from tilewright.base.dtype import TYPES, DType
from tilewright.ir.fast_interpreter import run_fast
from tilewright.runtime import Device, array, cpu, cuda, empty, opencl
from tilewright.te.numeric import ABSOLUTE, RELATIVE

Array = np.ndarray[Any, Any]
BOOL = DType("bool")
FLOATS = tuple(t for t in map(DType, TYPES) if t.is_float)
INTEGERS = tuple(t for t in map(DType, TYPES) if t.is_int)
NARROW = tuple(t for t in INTEGERS if not t.is_index)
NORMAL = {"float16": 2.0**-14, "float64": 2.0**-1022}  # the least; others have that of float32
BLOCK = 64
TERMS = 500  # of long sums
PER_CELL = 24  # tries of one operation in one type on one target, at least
EXACT_INDEX = 1 << 15  # products of smaller ones stay in int32
SIGMOID = 24.0  # units of eps that exp and a division may add


@dataclass(frozen=True)
class Operation:
    """`of` takes `arity` expressions of one of `types`.

    cost: its rounding in units of eps; terms: of a reduction, of which each operand is a row
    """

    name: str
    arity: int
    of: Callable[..., Any]
    types: tuple[DType, ...]
    cost: float = 0.0
    terms: int = 1


def _operations() -> list[Operation]:
    both, every = (*FLOATS, *INTEGERS), (*FLOATS, *INTEGERS, BOOL)
    functions = {
        "exp": te.exp, "log": te.log, "sqrt": te.sqrt, "rsqrt": te.rsqrt, "tanh": te.tanh,
        "erf": te.erf, "sin": te.sin, "cos": te.cos,
    }  # fmt: skip
    exact = {"abs": te.abs, "floor": te.floor, "ceil": te.ceil, "round": te.round}
    reductions = {"sum": te.sum, "reduce max": te.max, "reduce min": te.min}
    return [
        Operation("add", 2, lambda x, y: x + y, both, 1),
        Operation("sub", 2, lambda x, y: x - y, both, 1),
        Operation("mul", 2, lambda x, y: x * y, both, 1),
        Operation("div", 2, lambda x, y: x / y, FLOATS, RELATIVE["div"]),
        Operation("floordiv", 2, lambda x, y: x // y, both, RELATIVE["div"]),
        Operation("floormod", 2, lambda x, y: x % y, both, 1),
        Operation("pow", 2, te.power, FLOATS, RELATIVE["pow"]),
        Operation("neg", 1, lambda x: -x, both),
        Operation("less", 2, lambda x, y: x < y, both),
        Operation("less_equal", 2, lambda x, y: x <= y, both),
        Operation("select", 2, lambda x, y: te.select(x < y, x, y), both),
        Operation("min", 2, te.minimum, both),
        Operation("max", 2, te.maximum, both),
        Operation("relu", 1, lambda x: te.maximum(x, te.const(0, x.dtype)), both),
        Operation("sigmoid", 1, te.sigmoid, FLOATS, SIGMOID),
        *(Operation(n, 1, f, FLOATS, RELATIVE[n]) for n, f in functions.items()),
        *(Operation(n, 1, f, FLOATS) for n, f in exact.items()),
        *(
            Operation(f"to {to}", 1, lambda x, to=to: x.astype(to), every)
            for to in map(DType, TYPES)
        ),
        *(
            Operation(name, 1, f, (*FLOATS, *NARROW), 8 * TERMS**0.5 if name == "sum" else 0, TERMS)
            for name, f in reductions.items()
        ),
    ]


OPERATIONS = _operations()

# -- operands --------------------------------------------------------------------------------------


def special(dtype: DType) -> Array:
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.is_int:
        low, high = int(dtype.least), int(dtype.greatest)
        near = {low, low + 1, -1, 0, 1, 2, 7, high // 2, high - 1, high}
        return np.array(sorted(n for n in near if low <= n <= high), dtype.storage)
    least, great = NORMAL.get(dtype, 2.0**-126), float(dtype.greatest)
    values = [0.0, dtype.smallest, least / 2, least, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 11.0, 89.0]
    both = [*values, great / 2, great, np.inf]
    return np.array([*both, *(-x for x in both), np.nan]).astype(dtype.storage)


def random_bits(dtype: DType, count: int, rng: np.random.Generator) -> Array:
    """Of floats every exponent is as likely as any other."""
    if dtype == BOOL:
        return rng.integers(0, 2, count).astype(bool)
    return rng.integers(0, 256, count * dtype.bytes, dtype=np.uint8).view(dtype.storage)


def operands(op: Operation, dtype: DType, count: int, rng: np.random.Generator) -> list[Array]:
    """`count` tuples (rows of a reduction): half of special numbers, half of random bits."""
    if op.terms > 1:
        return [rows(dtype, count, op.terms, rng)]
    columns = [
        np.concatenate(
            [rng.choice(special(dtype), count // 2), random_bits(dtype, -(-count // 2), rng)]
        )
        for _ in range(op.arity)
    ]
    fits = defined(op, dtype, columns)
    return [np.where(fits, c, np.ones((), c.dtype)) for c in columns]


def rows(dtype: DType, count: int, terms: int, rng: np.random.Generator) -> Array:
    """Long rows of normal numbers, many of them with something special in a random place."""
    if dtype.is_int:
        return random_bits(dtype, count * terms, rng).reshape(count, terms)
    made = rng.normal(size=(count, terms)).astype(dtype.storage)
    for row in made[::2]:
        row[rng.integers(terms, size=2)] = rng.choice(special(dtype), 2)
    return made


def defined(op: Operation, dtype: DType, columns: list[Array]) -> Array:
    """Where `docs/numerics.md` says what an operation gives."""
    values = [c.astype(np.float64) for c in columns]
    if op.name in ("floordiv", "floormod") and dtype.is_int:
        return (values[1] != 0) & (np.abs(values[0]) < EXACT_INDEX)
    if dtype.is_index:
        limit = (
            min(EXACT_INDEX, float(DType(op.name[3:]).greatest))
            if "to int" in op.name
            else EXACT_INDEX
        )
        return np.logical_and.reduce([np.abs(v) < limit for v in values])
    to = DType(op.name[3:]) if op.name.startswith("to ") else dtype
    if dtype.is_float and to.is_int:
        whole = np.trunc(values[0])
        return np.isfinite(whole) & (whole >= float(to.least)) & (whole < float(to.greatest))
    return np.ones(len(values[0]), bool)


# -- both sides ------------------------------------------------------------------------------------


def scheduled(outs: list[te.Tensor], dev: Device) -> Any:
    s = te.create_schedule([out.op for out in outs])
    if dev.kind != "cpu":
        for out in outs:
            outer, inner = s[out].split(s[out].op.axis[0], factor=BLOCK)
            s[out].bind(outer, te.thread_axis("blockIdx.x"))
            s[out].bind(inner, te.thread_axis("threadIdx.x"))
    return s


def both_sides(
    dtype: DType, given: dict[Operation, list[Array]], dev: Device
) -> list[tuple[Array, Array]]:
    """(what the interpreter gives, what the device gives) for each operation."""
    args: list[te.Tensor] = []
    outs: list[te.Tensor] = []
    for op, columns in given.items():
        xs = [
            te.placeholder(c.shape, dtype, name=f"x{len(args) + k}") for k, c in enumerate(columns)
        ]
        outs.append(te.compute((len(columns[0]),), lambda i, op=op, xs=xs: value(op, xs, i)))
        args += xs
    s, target = scheduled(outs, dev), dev.device_kind.name
    arrays = [column for columns in given.values() for column in columns]
    want = [np.zeros(out.shape, out.dtype.storage) for out in outs]
    run_fast(tw.lower(s, [*args, *outs], target), [*arrays, *want])
    got = [empty(w.shape, out.dtype, dev) for w, out in zip(want, outs, strict=True)]
    tw.build(s, [*args, *outs], target)(*(array(x, dev) for x in arrays), *got)
    return [(w, g.numpy()) for w, g in zip(want, got, strict=True)]


def value(op: Operation, xs: list[te.Tensor], i: Any) -> Any:
    if op.terms == 1:
        return op.of(*(x[i] for x in xs))
    k = te.reduce_axis((0, op.terms), name="k")
    return op.of(xs[0][i, k], axis=k)


# -- verdicts --------------------------------------------------------------------------------------


def equal(want: Array, got: Array) -> Array:
    """To the bit, but that a NaN is like any other."""
    if want.dtype.kind in "biu":
        return want == got
    w, g = want.astype(np.float64), got.astype(np.float64)
    return (np.isnan(w) & np.isnan(g)) | ((w == g) & (np.signbit(w) == np.signbit(g)))


def rounding(op: Operation, dtype: DType, want: Array, got: Array, columns: list[Array]) -> Array:
    """Where the two differ by no more than rounding may."""
    if want.dtype.kind in "biu":
        return np.zeros(len(want), bool)
    w, g = want.astype(np.float64), got.astype(np.float64)
    eps, storage = dtype.compute.eps, dtype.eps if dtype.bits == 16 else 0.0
    size = np.abs(columns[0].astype(np.float64)).sum(axis=1) if op.terms > 1 else np.abs(w)
    slack = op.cost * eps * size + ABSOLUTE.get(op.name, 0) * eps + storage * np.abs(w)
    slack = slack + (dtype.smallest if op.cost else 0)
    return np.isfinite(w) & np.isfinite(g) & (np.abs(g - w) <= slack)


def nan_on_a_gpu(op: Operation, dev: Device, want: Array, columns: list[Array]) -> Array:
    """`min` and `max` give the operand that is no NaN."""
    if dev.kind == "cpu" or op.name.split()[-1] not in ("min", "max", "relu"):
        return np.zeros(len(want), bool)
    nans = [np.isnan(c.astype(np.float64)) for c in columns]
    return np.logical_or.reduce([n.any(axis=-1) if n.ndim > 1 else n for n in nans])


def zeros_of_min_and_max(op: Operation, dev: Device, want: Array, columns: list[Array]) -> Array:
    """Of two zeros of different signs either."""
    if op.name.split()[-1] not in ("min", "max", "relu"):
        return np.zeros(len(want), bool)
    return want.astype(np.float64) == 0


STATED = {"NaN in min or max on a GPU": nan_on_a_gpu, "sign of zero": zeros_of_min_and_max}


def judged(
    op: Operation, dtype: DType, dev: Device, want: Array, got: Array, columns: list[Array]
) -> Counts:
    counts: Counts = Counts()
    left = np.ones(len(want), bool)
    verdicts = {
        "equal": equal(want, got), "within rounding": rounding(op, dtype, want, got, columns),
        **{name: rule(op, dev, want, columns) for name, rule in STATED.items()},
        "differs": left,
    }  # fmt: skip
    for name, found in verdicts.items():
        counts[name] += int((left & found).sum())
        if name == "differs" and left.any():
            k = int(np.flatnonzero(left)[0])
            given = [c[k].tolist() for c in columns] if op.terms == 1 else "a row"
            print(f"{op.name} {dtype} {dev}: {given} {want[k]} {got[k]}", file=sys.stderr)
        left = left & ~found
    return +counts


def run(tries: int, seed: int) -> Counts:
    rng = np.random.default_rng(seed)
    devices = [d for d in (cpu(), opencl(), cuda()) if d.exist]
    cells = [(d, t, op) for d in devices for op in OPERATIONS for t in op.types]
    chosen = rng.permutation(len(cells))[: max(1, tries // PER_CELL)]
    shares = [len(part) for part in np.array_split(np.arange(tries), len(chosen))]
    groups: dict[tuple[Device, DType], dict[Operation, list[Array]]] = defaultdict(dict)
    counts: Counts = Counts()
    with np.errstate(all="ignore"):
        for index, count in zip(sorted(chosen), shares, strict=True):
            dev, dtype, op = cells[index]
            groups[dev, dtype][op] = operands(op, dtype, count, rng)
        for (dev, dtype), given in groups.items():
            sides = both_sides(dtype, given, dev)
            for (op, columns), (want, got) in zip(given.items(), sides, strict=True):
                counts += judged(op, dtype, dev, want, got, columns)
    return counts


DRILL = Drill(
    name="numerics",
    tried="operations on special and random operands",
    run=run,
    never=("differs",),
    always=("equal",),
    short=1_000,
    long=60_000,
)
