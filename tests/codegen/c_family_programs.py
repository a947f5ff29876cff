"""Hand-built programs for the C family, with inputs and what numpy says of the outputs.

In: nothing.  Out: `CASES`, name -> `Case`.  Read next: `test_c_family.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
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

Array = np.ndarray
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """`expected(*inputs)` are the outputs; tolerance is relative, 0 asks for equal bits."""

    program: Program
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    tolerance: float = 0.0


def glob(name: str, dtype: str, *shape: int) -> Buffer:
    return Buffer(name, dtype, math.prod(shape), "global", shape)


def program(
    kernel: Kernel | tuple[Kernel, ...], inputs: int, workspaces: tuple[Buffer, ...] = ()
) -> Program:
    """The kernel's parameters are the arguments; the first `inputs` of them are inputs."""
    kernels = kernel if isinstance(kernel, tuple) else (kernel,)
    args = tuple(dict.fromkeys(p for k in kernels for p in k.params if p not in workspaces))
    roles = ("input",) * inputs + ("output",) * (len(args) - inputs)
    return Program(kernels[0].name, args, roles, kernels, workspaces)


def elementwise(
    name: str, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], body: Callable[[Expr], Stmt]
) -> Program:
    """One thread for each element of the first output."""
    t = E.var("i")
    threads = (Thread("threadIdx.x", t, outputs[0].size),)
    return program(Kernel(name, inputs + outputs, body(t), threads), len(inputs))


def matmul_tile() -> Case:
    """C = relu(A B): 32x32 tiles in shared memory, fetched as vectors, 4x2 results a thread."""
    n, tile, tk = 64, 32, 16
    a, b, c = (glob(x, "float32", n, n) for x in "ABC")
    a_s, b_s = (Buffer(x, "float32", tile * tk, "shared") for x in ("A.shared", "B.shared"))
    acc = Buffer("C.local", "float32", 8, "local")
    bx, by, tx, ty = (E.var(v) for v in ("bx", "by", "tx", "ty"))
    ko, ki, i, j = E.var("k.outer"), E.var("k.inner"), E.var("i"), E.var("j")
    i0, j0, i1, j1 = E.var("i"), E.var("j"), E.var("i"), E.var("j")
    lane = (ty * 16 + tx) * 4
    row_a, col_a = lane // tk, lane % tk
    row_b, col_b = lane // tile, lane % tile
    fetch_a = Store(
        a_s, E.ramp(lane, 1, 4),
        load(a, E.ramp((by * tile + row_a) * n + ko * tk + col_a, 1, 4)),
    )  # fmt: skip
    fetch_b = Store(
        b_s, E.ramp(lane, 1, 4),
        load(b, E.ramp((ko * tk + row_b) * n + bx * tile + col_b, 1, 4)),
    )  # fmt: skip
    product = load(a_s, (ty * 4 + i) * tk + ki) * load(b_s, ki * tile + tx * 2 + j)
    update = Store(acc, i * 2 + j, load(acc, i * 2 + j) + product)
    inner = For(ki, tk, For(i, 4, For(j, 2, update, "unrolled"), "unrolled"), "unrolled")
    main = For(ko, n // tk, Seq((Barrier(), fetch_a, fetch_b, Barrier(), inner)))
    clear = For(i0, 4, For(j0, 2, Store(acc, i0 * 2 + j0, E.const(0.0)), "unrolled"), "unrolled")
    out = Store(
        c, (by * tile + ty * 4 + i1) * n + bx * tile + tx * 2 + j1,
        E.maximum(load(acc, i1 * 2 + j1), 0.0),
    )  # fmt: skip
    write = For(i1, 4, For(j1, 2, out, "unrolled"), "unrolled")
    body = Allocate(acc, Allocate(a_s, Allocate(b_s, Seq((clear, main, write)))))
    threads = (
        Thread("blockIdx.x", bx, n // tile), Thread("blockIdx.y", by, n // tile),
        Thread("threadIdx.x", tx, 16), Thread("threadIdx.y", ty, 8),
    )  # fmt: skip
    x, y = (RNG.normal(size=(n, n)).astype(np.float32) for _ in "ab")
    want = np.maximum(x.astype(np.float64) @ y, 0)
    return Case(program(Kernel("matmul", (a, b, c), body, threads), 2), (x, y), (want,), 1e-5)


def vector_copy() -> Case:
    """Vectors of every type that has them, wider ones in parts, and lanes of what has none."""
    n = 64
    names = ("f", "d", "i", "l")
    dtypes = ("float32", "float64", "int32", "int64")
    inputs = tuple(glob(f"{x}_in", t, n) for x, t in zip(names, dtypes, strict=True))
    outputs = tuple(glob(f"{x}_out", t, n) for x, t in zip(names, dtypes, strict=True))
    outputs += (glob("mask", "bool", n),)
    t = E.var("t")
    f, d, i, k = inputs

    def at(lanes: int) -> Expr:
        return E.ramp(t * 8 if lanes == 8 else t * 8 + 4, 1, lanes)

    body = seq(
        Store(outputs[0], at(8), load(f, at(8)) * 2.0),
        Store(outputs[1], at(8), load(d, at(8)) + E.cast("float64", load(f, at(8)))),
        Store(outputs[2], at(8), load(i, at(8))),
        Store(outputs[2], at(4), E.maximum(load(i, at(4)), E.ramp(t, 3, 4))),
        Store(outputs[3], at(8), load(k, at(8)) - E.const(1, "int64")),
        Store(outputs[4], at(8), load(f, at(8)) > E.cast("float32", load(i, at(8)))),
    )
    kernel = Kernel("vectors", inputs + outputs, body, (Thread("threadIdx.x", t, n // 8),))
    x = RNG.normal(size=n).astype(np.float32)
    y = RNG.normal(size=n)
    z = RNG.integers(-3, 3, n).astype(np.int32)
    w = RNG.integers(-(2**62), 2**62, n)
    ints = z.reshape(-1, 8).copy()
    ramp = np.arange(8)[:, None] + 3 * np.arange(4)
    ints[:, 4:] = np.maximum(ints[:, 4:], ramp)
    expected = (x * 2, y + x, ints.reshape(-1), w - 1, x > z.astype(np.float32))
    return Case(program(kernel, 4), (x, y, z, w), expected)


def guarded_tail() -> Case:
    """A grid that does not divide the length, and a two-armed branch."""
    n = 50
    a, b = glob("a", "float32", n), glob("b", "float32", n)
    bx, tx = E.var("bx"), E.var("tx")
    at = bx * 16 + tx
    arms = If(at % 2 < 1, Store(b, at, load(a, at)), Store(b, at, load(a, at) * load(a, at)))
    body = If(at < n, arms)
    threads = (Thread("blockIdx.x", bx, 4), Thread("threadIdx.x", tx, 16))
    x = RNG.normal(size=n).astype(np.float32)
    want = np.where(np.arange(n) % 2 == 0, x, x * x)
    return Case(program(Kernel("tail", (a, b), body, threads), 1), (x,), (want,))


def guarded_reads() -> Case:
    """Padding: scalar, by lanes that differ, and whole vectors that are read or not."""
    n = 32
    a = glob("a", "float32", n)
    left, lanes, whole, scaled = (
        glob(x, "float32", n) for x in ("left", "lanes", "whole", "scaled")
    )
    t, i = E.var("t"), E.var("i")
    near = E.if_then_else((i >= 1) & (i < n - 3), load(a, i - 1) + load(a, i + 3), 0.0)
    ramp = E.ramp(t * 4, 1, 4)
    shifted = ramp - E.broadcast(E.const(2), 4)
    by_lane = E.if_then_else(shifted >= 0, load(a, E.ramp(t * 4 - 2, 1, 4)), E.const(-1.0))
    inside = (t >= 1) & (t < n // 4)
    vector = E.if_then_else(inside, load(a, E.ramp(t * 4 - 4, 1, 4)), 0.0)
    mean = E.select(inside, vector, E.const(1.0)) * 0.5
    body = seq(
        For(i, n, If((i // 4).equal(t), Store(left, i, near))),
        Store(lanes, ramp, by_lane),
        Store(whole, ramp, vector),
        Store(scaled, ramp, mean + E.broadcast(load(a, t), 4)),
    )
    outputs = (left, lanes, whole, scaled)
    kernel = Kernel("padded", (a, *outputs), body, (Thread("threadIdx.x", t, n // 4),))
    x = RNG.normal(size=n).astype(np.float32)
    p = np.pad(x, 4)
    middle = (np.arange(n) >= 1) & (np.arange(n) < n - 3)
    near_want = np.where(middle, p[3 : n + 3] + p[7 : n + 7], 0)
    lane_want = np.concatenate([[-1, -1], x[:-2]]).astype(np.float32)
    shift = np.concatenate([np.zeros(4), x[:-4]]).astype(np.float32)
    mean_want = np.concatenate([np.ones(4), x[:-4]]).astype(np.float32) * np.float32(0.5)
    scaled_want = mean_want + np.repeat(x[:8], 4)
    return Case(program(kernel, 1), (x,), (near_want, lane_want, shift, scaled_want), 1e-6)


def negative_floordiv() -> Case:
    """Division that rounds down: proved non-negative, moved by a constant, and of unknown sign."""
    n = 24
    a, b = glob("a", "int32", n), glob("b", "int32", n)
    names = ("plain", "moved", "rest", "div", "mod", "wide")
    outputs = tuple(glob(x, "int64" if x == "wide" else "int32", n) for x in names)
    long_a, long_b = (lambda t, x=x: E.cast("int64", load(x, t)) for x in (a, b))

    def body(t: Expr) -> Stmt:
        x, y = load(a, t), load(b, t)
        values = (
            t // 5 * 10 + t % 5, (t - 11) // 5, (t - 11) % 5, x // y, x % y,
            long_a(t) // long_b(t) * E.const(1 << 40, "int64") + long_a(t) % long_b(t),
        )  # fmt: skip
        return seq(*(Store(o, t, v) for o, v in zip(outputs, values, strict=True)))

    x = RNG.integers(-50, 50, n).astype(np.int32)
    y = RNG.choice([-7, -3, -1, 1, 2, 5], n).astype(np.int32)
    t = np.arange(n)
    wide = (x // y).astype(np.int64) * (1 << 40) + x % y
    expected = (t // 5 * 10 + t % 5, (t - 11) // 5, (t - 11) % 5, x // y, x % y, wide)
    return Case(elementwise("floors", (a, b), outputs, body), (x, y), expected)


def random_indices() -> Case:
    """Seeded random integer expressions, evaluated by constant folding."""
    rng, n, count = random.Random(3), 12, 24
    t, u = E.var("t"), E.var("u")

    def any_expr(depth: int) -> Expr:
        if depth == 0:
            return rng.choice([t, u, t * 7, u - 4, E.const(rng.randint(-9, 9))])
        op = rng.choice(["add", "sub", "mul", "floordiv", "floormod", "min", "max", "choose"])
        a, b = any_expr(depth - 1), any_expr(depth - 1)
        if op == "choose":
            return E.select((a < b) | ((a + b) % 3).equal(1) & (u != t), a, b)
        if op in ("floordiv", "floormod"):
            b = E.const(rng.choice([-4, -3, 2, 3, 5, 8]))
        if op == "mul":
            b = E.const(rng.randint(-3, 3))
        return E.binary(op, a, b)

    exprs = [any_expr(3) for _ in range(count)]
    out = glob("out", "int32", count, n, 3)
    body = For(u, 3, seq(*(Store(out, (t + k * n) * 3 + u, e) for k, e in enumerate(exprs))))
    kernel = Kernel("indices", (out,), body, (Thread("threadIdx.x", t, n),))
    want = [
        [[E.substitute(e, {t: i, u: j}).value for j in range(3)] for i in range(n)] for e in exprs
    ]
    return Case(program(kernel, 0), (), (np.array(want, np.int32),))


def functions(dtype: str) -> Case:
    n = 16
    x, y = glob("x", dtype, n), glob("y", dtype, n)
    numpy = {
        "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda v: 1 / np.sqrt(v),
        "tanh": np.tanh, "erf": np.vectorize(math.erf), "abs": np.abs, "floor": np.floor,
        "ceil": np.ceil, "round": np.rint, "sin": np.sin, "cos": np.cos, "tan": np.tan,
        "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
        "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    }  # fmt: skip
    signed = {
        "tanh", "erf", "abs", "floor", "ceil", "round", "sin", "cos", "atan", "sinh", "asinh"
    }  # fmt: skip
    domains = {"acosh": (1.0, 1.0), **dict.fromkeys(("asin", "acos", "atanh"), (0.0, 0.25))}
    names = [*(f for f in numpy if f not in domains), *domains]
    outputs = tuple(
        glob(f"{f}_out", dtype, n) for f in (*names, "pow", "rest", "least", "most", "ratio")
    )

    def body(t: Expr) -> Stmt:
        a, b = load(x, t), load(y, t)
        values = [E.call(f, b if f in signed else a) for f in numpy if f not in domains]
        values += [E.call(f, start + step * a) for f, (start, step) in domains.items()]
        values += [
            E.call("pow", a, b),
            E.call("fmod", b, a),
            E.minimum(a, b),
            E.maximum(a, b),
            (a - b) / (a + 4.0),
        ]
        return seq(*(Store(o, t, v) for o, v in zip(outputs, values, strict=True)))

    p = RNG.uniform(0.1, 3, n).astype(dtype)
    q = RNG.uniform(-3, 3, n).astype(dtype)
    q[:3] = 0.5, 1.5, -2.5  # ties
    a, b = p.astype(np.float64), q.astype(np.float64)
    want = [g(b if f in signed else a) for f, g in numpy.items() if f not in domains]
    want += [numpy[f](start + step * a) for f, (start, step) in domains.items()]
    want += [a**b, np.fmod(b, a), np.minimum(a, b), np.maximum(a, b), (a - b) / (a + 4)]
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    return Case(elementwise("functions", (x, y), outputs, body), (p, q), tuple(want), tolerance)


def small_types() -> Case:
    """bool, int32 and int64 buffers and the casts between all types."""
    n = 16
    m, i, f = glob("m", "bool", n), glob("i", "int32", n), glob("f", "float32", n)
    dtypes = ("bool", "bool", "int32", "int64", "float64", "int32", "float32", *("int32",) * 5)
    outputs = tuple(glob(f"o{k}", t, n) for k, t in enumerate(dtypes))

    def body(t: Expr) -> Stmt:
        a, b, c = load(m, t), load(i, t), load(f, t)
        values = (
            (a & (b > 0)) | ~a & (c < E.const(0.5)), E.cast("bool", b), E.cast("int32", a) + b,
            E.minimum(E.cast("int64", b), E.const(3, "int64")) * E.const(1 << 33, "int64"),
            E.cast("float64", a) + E.cast("float64", b), E.cast("int32", c),
            E.select(a.equal(b > 1), E.cast("float32", b), c),
            *(E.binary(op, b + 1, 3) + 1 for op in ("bitand", "bitor", "bitxor", "shl", "shr")),
        )  # fmt: skip
        return seq(*(Store(o, t, v) for o, v in zip(outputs, values, strict=True)))

    a = RNG.integers(0, 2, n).astype(bool)
    b = RNG.integers(-4, 8, n).astype(np.int32)
    c = (RNG.normal(size=n) * 5).astype(np.float32)
    expected = (
        a & (b > 0) | ~a & (c < 0.5), b != 0, a + b, np.minimum(b, 3).astype(np.int64) << 33,
        a.astype(np.float64) + b, np.trunc(c), np.where(a == (b > 1), b, c),
        ((b + 1) & 3) + 1, ((b + 1) | 3) + 1, ((b + 1) ^ 3) + 1, ((b + 1) << 3) + 1,
        ((b + 1) >> 3) + 1,
    )  # fmt: skip
    return Case(elementwise("types", (m, i, f), outputs, body), (a, b, c), expected)


def constants() -> Case:
    floats = [0.1, -0.0, 1.0, 1e30, -1e-30, 16777217.0, math.inf, -math.inf, math.nan, 1 / 3]
    ints = [-(2**31), 2**31 - 1, -1]
    longs = [-(2**63), 2**63 - 1, 1 << 40]
    outputs = tuple(
        glob(f"{t}_out", t, len(v))
        for t, v in (("float32", floats), ("float64", floats), ("int32", ints), ("int64", longs))
    )
    stores = [
        Store(o, E.const(k), E.const(v, o.dtype))
        for o, values in zip(outputs, (floats, floats, ints, longs), strict=True)
        for k, v in enumerate(values)
    ]
    kernel = Kernel("constants", outputs, seq(*stores), (Thread("threadIdx.x", E.var("t"), 1),))
    expected = (
        np.array(floats, np.float32), np.array(floats), np.array(ints, np.int32), np.array(longs)
    )  # fmt: skip
    return Case(program(kernel, 0), (), expected)


def shared_reuse() -> Case:
    """Three shared buffers, two of which follow each other and take the same place."""
    n = 64
    a, b = glob("a", "float32", n), glob("b", "float32", n)
    names = ("keep", "first", "second")
    keep, first, second = (Buffer(x, "float32", n + 1, "shared") for x in names)
    t, k = E.var("t"), E.var("k")
    acc = Buffer("acc", "float32", 1, "local")
    reverse = seq(
        Store(first, t, load(a, t)), Barrier(),
        For(k, 4, Store(acc, E.const(0), load(acc, E.const(0)) + load(first, (t + k) % n))),
    )  # fmt: skip
    turn = seq(
        Store(second, t, load(acc, E.const(0))), Barrier(),
        Store(b, t, load(second, n - 1 - t) + load(keep, (t + 1) % n)),
    )  # fmt: skip
    body = Allocate(acc, Allocate(keep, seq(
        Store(keep, t, load(a, t) * 2.0), Store(acc, E.const(0), E.const(0.0)), Barrier(),
        Allocate(first, reverse), Allocate(second, turn),
    )))  # fmt: skip
    kernel = Kernel("reuse", (a, b), body, (Thread("threadIdx.x", t, n),))
    x = RNG.normal(size=n).astype(np.float32)
    sums = sum(np.roll(x, -j) for j in range(4))
    return Case(program(kernel, 1), (x,), (sums[::-1] + 2 * np.roll(x, -1),), 1e-5)


def two_kernels() -> Case:
    """A workspace between kernels, launch dimensions and loops of one step."""
    a, w, b = glob("a", "float32", 4, 8), glob("w", "float32", 4), glob("b", "float32", 4, 8)
    t, k, z, one = E.var("t"), E.var("k"), E.var("z"), E.var("one")
    total = seq(
        Store(w, t, E.const(0.0)),
        For(k, 8, Store(w, t, load(w, t) + load(a, t * 8 + k))),
    )
    first = Kernel("sums", (a, w), total, (Thread("threadIdx.x", t, 4), Thread("blockIdx.z", z, 1)))
    x, y = E.var("x"), E.var("y")
    at = (y + z) * 8 + x
    divide = For(one, 1, Store(b, at + one, load(a, at) / load(w, y + one)))
    threads = (
        Thread("blockIdx.y", y, 4), Thread("threadIdx.x", x, 8), Thread("blockIdx.z", z, 1),
    )  # fmt: skip
    second = Kernel("divide", (w, a, b), divide, threads)
    v = RNG.uniform(1, 2, size=(4, 8)).astype(np.float32)
    want = v / v.sum(1, keepdims=True)
    return Case(program((first, second), 1, (w,)), (v,), (want,), 1e-6)


def awkward_names() -> Case:
    """Everything is called by a word of C, of CUDA, of OpenCL, or the same."""
    n = 8
    words = ("kernel", "float4", "max", "max", "threadIdx", "1st.input", "exp", "größe")
    inputs = tuple(glob(w, "float32", n) for w in words)
    out = glob("void", "float32", n)
    i, j = E.var("for"), E.var("for")
    total = E.maximum(load(inputs[0], j * 4 + i), load(inputs[1], j * 4 + i))
    for x in inputs[2:]:
        total = total + E.call("exp", load(x, j * 4 + i))
    body = For(i, 4, Store(out, j * 4 + i, total))
    kernel = Kernel("tanh", (*inputs, out), body, (Thread("threadIdx.x", j, 2),))
    xs = tuple(RNG.normal(size=n).astype(np.float32) for _ in words)
    want = np.maximum(xs[0], xs[1]) + sum(np.exp(x) for x in xs[2:])
    return Case(program(kernel, len(words)), xs, (want,), 1e-5)


def inlined_chain() -> Case:
    """Twelve GELUs inlined into one another: 2**12 copies if nothing got a name.

    Scalar, guarded and by lanes.
    """
    n = 16
    a = glob("a", "float32", n)
    plain, guarded, lanes = (glob(x, "float32", n) for x in ("plain", "guarded", "lanes"))

    def gelu(v: Expr) -> Expr:
        return v * 0.5 * (E.call("erf", v * math.sqrt(0.5)) + 1.0)

    def body(t: Expr) -> Stmt:
        stores: list[Stmt] = []
        vector = E.ramp(t * 2, 1, 2)
        for x in (t, vector):
            v = load(a, x)
            for _ in range(12):
                v = gelu(v + 0.5)
            stores.append(Store(plain if x is t else lanes, x, v))
            if x is t:
                stores.append(Store(guarded, x, E.if_then_else(t < n - 1, v, 0.0) * 2.0))
        return seq(*stores[:-1], If(t < n // 2, stores[-1]))

    x = RNG.normal(size=n).astype(np.float32)
    want = x.astype(np.float64)
    for _ in range(12):
        want = want + 0.5
        want = want * 0.5 * (np.vectorize(math.erf)(want * math.sqrt(0.5)) + 1)
    some = np.where(np.arange(n) < n - 1, 2 * want, 0)
    case = elementwise("chain", (a,), (plain, guarded, lanes), body)
    return Case(case, (x,), (want, some, want), 1e-5)


def overlapping_lanes() -> Case:
    """Lanes that are read must not see lanes that are stored."""
    n = 16
    a, b = glob("a", "float32", n), glob("b", "float32", n + 1)
    tmp = Buffer("tmp", "float32", 9, "local")
    t, i = E.var("t"), E.var("i")
    body = Allocate(tmp, seq(
        For(i, 8, Store(tmp, i, load(a, t * 8 + i)), "unrolled"),
        Store(tmp, E.ramp(E.const(1), 1, 8), load(tmp, E.ramp(E.const(0), 1, 8)) * 2.0),
        Store(b, E.ramp(t * 8, 1, 8), load(tmp, E.ramp(E.const(0), 1, 8))),
    ))  # fmt: skip
    kernel = Kernel("overlap", (a, b), body, (Thread("threadIdx.x", t, 2),))
    x = RNG.normal(size=n).astype(np.float32)
    rows = x.reshape(2, 8)
    want = np.concatenate([rows[:, :1], rows[:, :-1] * 2], axis=1).reshape(-1)
    return Case(program(kernel, 1), (x,), (np.append(want, np.nan),))


def conv2d() -> Case:
    """The last layer of ResNet in small: (1,16,7,7) * (32,16,3,3), pad 1, 2x7 results a thread."""
    channels = 16
    x = RNG.normal(size=(1, channels, 7, 7)).astype(np.float32)
    w = RNG.normal(size=(32, channels, 3, 3)).astype(np.float32)
    p = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    want = np.zeros((1, 32, 7, 7))
    for dy in range(3):
        for dx in range(3):
            taps = w[:, :, dy, dx].astype(np.float64)
            want[0] += np.einsum("oc,cyx->oyx", taps, p[:, dy : dy + 7, dx : dx + 7])
    return Case(conv2d_program(channels, 32, "serial"), (x, w), (want,), 1e-5)


def conv2d_program(channels: int, filters: int, unroll: str = "unrolled") -> Program:
    """Direct convolution of 7x7 images with 3x3 filters: 32 filters a block, 8 channels a step."""
    data = glob("data", "float32", 1, channels, 7, 7)
    weight = glob("kernel", "float32", filters, channels, 3, 3)
    conv = glob("conv", "float32", 1, filters, 7, 7)
    image = Buffer("pad_temp.shared", "float32", 8 * 81, "shared")
    taps = Buffer("kernel.shared", "float32", 32 * 72, "shared")
    acc = Buffer("conv.local", "float32", 14, "local")
    block, tx, ty = E.var("blockIdx_x"), E.var("xx"), E.var("ff")
    rco = E.var("rc.outer")
    thread = ty * 7 + tx

    fused = E.var("ax0.ax1.ax2.ax3.fused")
    e = fused * 112 + thread
    row, column = e % 81 // 9, e % 9
    inside = (row >= 1) & (row < 8) & (column >= 1) & (column < 8)
    source = load(data, rco * 392 + e // 81 * 49 + row * 7 + column - 8)
    fetch_image = For(
        fused, 6, If(e < 648, Store(image, e, E.if_then_else(inside, source, 0.0))), "unrolled"
    )
    fused2 = E.var("ax0.ax1.ax2.ax3.fused")
    g = fused2 * 112 + thread
    weights = load(weight, (block * 32 + g // 72) * (channels * 9) + rco * 72 + g % 72)
    fetch_taps = For(fused2, 21, If(g < 2304, Store(taps, g, weights)), "unrolled")

    rci, ry, rx, f, y = (E.var(v) for v in ("rc.inner", "ry", "rx", "ff.inner", "yy"))
    here = f * 7 + y
    product = load(image, rci * 81 + (y + ry) * 9 + tx + rx) * load(
        taps, (ty * 2 + f) * 72 + rci * 9 + ry * 3 + rx
    )
    nest: Stmt = Store(acc, here, load(acc, here) + product)
    for v, extent in ((y, 7), (f, 2), (rx, 3), (ry, 3), (rci, 8)):
        nest = For(v, extent, nest, unroll if v is rci else "unrolled")
    body = For(rco, channels // 8, Seq((Barrier(), fetch_image, fetch_taps, Barrier(), nest)))
    clear, f1, y1 = E.var("i"), E.var("ff"), E.var("yy")
    out = Store(conv, (block * 32 + ty * 2 + f1) * 49 + y1 * 7 + tx, load(acc, f1 * 7 + y1))
    whole = Seq((
        For(clear, 14, Store(acc, clear, E.const(0.0)), "unrolled"), body,
        For(f1, 2, For(y1, 7, out, "unrolled"), "unrolled"),
    ))  # fmt: skip
    nested = Allocate(acc, Allocate(image, Allocate(taps, whole)))
    threads = (
        Thread("blockIdx.x", block, filters // 32), Thread("threadIdx.x", tx, 7),
        Thread("threadIdx.y", ty, 16),
    )  # fmt: skip
    return program(Kernel("conv2d", (data, weight, conv), nested, threads), 2)


CASES: dict[str, Case] = {
    "matmul": matmul_tile(),
    "vector_copy": vector_copy(),
    "guarded_tail": guarded_tail(),
    "guarded_reads": guarded_reads(),
    "negative_floordiv": negative_floordiv(),
    "random_indices": random_indices(),
    "functions_float32": functions("float32"),
    "functions_float64": functions("float64"),
    "small_types": small_types(),
    "constants": constants(),
    "shared_reuse": shared_reuse(),
    "two_kernels": two_kernels(),
    "awkward_names": awkward_names(),
    "inlined_chain": inlined_chain(),
    "overlapping_lanes": overlapping_lanes(),
    "conv2d": conv2d(),
}
