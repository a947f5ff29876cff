"""What each step does to a loop nest: cases for golden text and for the steps' own docstrings.

A case is text: a computation, calls that prepare its schedule, and the call that makes the step.
In calls, `s` is the schedule, a tensor has the name of its stage, and an axis its own name (of the
last stage that has it) or that of stage and axis: `C_i`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schedule.computations import matmul
from tilewright import te
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule import steps as S
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.steps.names import identifier
from tilewright.te.tensor import Tensor


def doubled(n: int) -> list[Tensor]:
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: a[i] * 2.0, name="B")]


def chain(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    return [a, te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")]


def row_sums(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")]


def half_sums(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), "float16", name="A")
    k = te.reduce_axis((0, m), "k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="C")]


def padded(n: int) -> list[Tensor]:
    a = te.placeholder((n,), name="A")
    p = te.compute(
        (n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), a[i - 1], 0.0), name="P"
    )
    k = te.reduce_axis((0, 3), "k")
    return [a, te.compute((n,), lambda x: te.max(p[x + k], axis=k), name="C")]


def weighted(n: int, m: int) -> list[Tensor]:
    """Halves, and weights that are known when it is built."""
    a, w = (
        te.placeholder((m,), "float16", name="A"),
        te.placeholder((n, m), "float16", name="W", constant=True),
    )
    k = te.reduce_axis((0, m), "k")
    return [a, w, te.compute((n,), lambda i: te.sum(w[i, k] * a[k], axis=k), name="C")]


def narrow(n: int, m: int, r: int) -> list[Tensor]:
    """Products with the upper halves of bytes."""
    a, w = te.placeholder((n, r), "float16", "A"), te.placeholder((m, r), "int8", "W")
    k = te.reduce_axis((0, r), "k")

    def one(i: Expr, j: Expr) -> Expr:
        number = E.binary("bitand", w[j, k], -16).astype("float32")
        return te.sum(a[i, k].astype("float32") * number, axis=k)

    return [a, w, te.compute((n, m), one, name="C")]


def narrow_sums(n: int, m: int, t: int, r: int, mask: int = -16) -> list[Tensor]:
    """Rows of floats, each times a number of its own, times bytes, of which some have a scale."""
    a, f = te.placeholder((n, t * r), "float16", "A"), te.placeholder((n,), name="F")
    w, s = te.placeholder((m, t, r), "int8", "W"), te.placeholder((m, t), name="S")
    k, u = te.reduce_axis((0, r), "k"), te.reduce_axis((0, t), "u")

    def wide(i: Expr, c: Expr) -> Expr:
        return (a[i, c].astype("float32") * f[i]).astype("float16")

    x = te.compute((n, t * r), wide, name="X")

    def term(i: Expr, j: Expr, q: Expr) -> Expr:
        number = E.binary("bitand", w[j, q, k], mask).astype("float32")
        return te.sum(x[i, q * r + k].astype("float32") * number, axis=k)

    p = te.compute((n, m, t), term, name="P")
    sums = te.compute((n, m), lambda i, j: te.sum(p[i, j, u] * s[j, u], axis=u), name="C")
    return [a, f, w, s, sums]


def cut_off_sums(m: int, r: int, where: str) -> list[Tensor]:
    """Products of bytes with floats, which are cut off to integers, or not all added up."""
    a, w = te.placeholder((1, 2 * r), name="A"), te.placeholder((m, 2, r), "int8", "W")
    s, k, u = te.placeholder((m, 2), name="S"), te.reduce_axis(r, "k"), te.reduce_axis(2, "u")

    def cut(value: Expr, name: str) -> Expr:
        return value.astype("int32").astype("float32") if name == where else value

    def row(i: Expr, c: Expr) -> Expr:
        return cut(a[i, c] * 0.5, "row")

    x = te.compute((1, 2 * r), row, name="X")

    def term(i: Expr, j: Expr, q: Expr) -> Expr:
        return te.sum(cut(x[i, q * r + k], "element") * w[j, q, k].astype("float32"), axis=k)

    p = te.compute((1, m, 2), term, name="P")

    def scaled(i: Expr, j: Expr) -> Expr:
        value = cut(p[i, j, u], "sum") * cut(s[j, u], "scale")
        return te.sum(te.if_then_else(u < 1, value, 0.0) if where == "some" else value, axis=u)

    return [a, w, s, te.compute((1, m), scaled, name="C")]


def scaled_sums(n: int, m: int, r: int, each: int = 2) -> list[Tensor]:
    """Sums of rows, times a scale of some of them."""
    a, s = te.placeholder((n, m, r), name="A"), te.placeholder((n, -(-m // each)), name="S")
    k, t = te.reduce_axis((0, r), "k"), te.reduce_axis((0, m), "t")
    p = te.compute((n, m), lambda i, q: te.sum(a[i, q, k], axis=k), name="P")
    return [a, s, te.compute((n,), lambda i: te.sum(p[i, t] * s[i, t // each], axis=t), name="C")]


def squares(n: int, m: int) -> list[Tensor]:
    """Of a matrix and its own rows; both factors vary along i."""
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * a[(i + j) % n, k], axis=k), name="C")
    return [a, c]


def filters(n: int, m: int, groups: int = 1) -> list[Tensor]:
    """A convolution of one dimension with 3 filters for each group of 2 channels."""
    a = te.placeholder((2 * groups, n), name="A")
    w = te.placeholder((3 * groups, 2, m), name="W", constant=True)
    c, r = te.reduce_axis((0, 2), "c"), te.reduce_axis((0, m), "r")
    sums = te.compute(
        (3 * groups, n + 1 - m),
        lambda f, x: te.sum(a[f // 3 * 2 + c, x + r] * w[f, c, r], axis=[c, r]),
        name="C",
    )
    return [a, w, sums]


def steps(n: int, m: int, step: int) -> list[Tensor]:
    """A convolution of one dimension over 2 channels with 3 filters, in steps."""
    a, w = te.placeholder((2, n), name="A"), te.placeholder((3, 2, m), name="W")
    c, r = te.reduce_axis((0, 2), "c"), te.reduce_axis((0, m), "r")
    sums = te.compute(
        (3, (n - m) // step + 1),
        lambda f, x: te.sum(a[c, x * step + r] * w[f, c, r], axis=[c, r]),
        name="C",
    )
    return [a, w, sums]


def window(n: int, m: int) -> list[Tensor]:
    """A convolution of one dimension with zeros around its data."""
    a, w = te.placeholder((n,), name="A"), te.placeholder((m,), name="W")
    p = te.compute(
        (n + 2,), lambda i: te.if_then_else(te.all(i >= 1, i < n + 1), a[i - 1], 0.0), name="P"
    )
    k = te.reduce_axis((0, m), "k")
    sums = te.compute((n + 3 - m,), lambda x: te.sum(p[x + k] * w[k], axis=k), name="C")
    return [a, w, sums]


def half_products(m: int, n: int, k: int) -> list[Tensor]:
    """C = 2 P, where P is a product of halves, its sums in float32."""
    a, b = te.placeholder((m, k), "float16", name="A"), te.placeholder((k, n), "float16", name="B")
    r = te.reduce_axis((0, k), "r")
    value = lambda i, j: a[i, r].astype("float32") * b[r, j].astype("float32")  # noqa: E731
    p = te.compute((m, n), lambda i, j: te.sum(value(i, j), axis=r), name="P")
    return [a, b, te.compute((m, n), lambda i, j: p[i, j] * 2.0, name="C")]


def shares(n: int, m: int, k: int) -> list[Tensor]:
    """C = P B, where P are quotients of halves, each row by a number of its own."""
    a, t = te.placeholder((n, k), "float16", name="A"), te.placeholder((n,), name="T")
    b = te.placeholder((k, m), "float16", name="B")
    quotient = lambda i, j: (a[i, j].astype("float32") / t[i]).astype("float16")  # noqa: E731
    p = te.compute((n, k), quotient, name="P")
    r = te.reduce_axis((0, k), "r")
    value = lambda i, j: p[i, r].astype("float32") * b[r, j].astype("float32")  # noqa: E731
    return [a, t, b, te.compute((n, m), lambda i, j: te.sum(value(i, j), axis=r), name="C")]


def masked_shares(n: int, m: int, k: int) -> list[Tensor]:
    """The same where a mask wants them, else zeros."""
    a, t = te.placeholder((n, k), name="A"), te.placeholder((n,), name="T")
    b, w = te.placeholder((k, m), name="B"), te.placeholder((k,), "bool", name="W")
    quotient = lambda i, j: te.if_then_else(w[j], a[i, j] / t[i], 0.0)  # noqa: E731
    p = te.compute((n, k), quotient, name="P")
    r = te.reduce_axis((0, k), "r")
    out = te.compute((n, m), lambda i, j: te.sum(p[i, r] * b[r, j], axis=r), name="C")
    return [a, t, b, w, out]


def quotients_of_columns(n: int, m: int, k: int) -> list[Tensor]:
    a, t = te.placeholder((n, k), name="A"), te.placeholder((k,), name="T")
    b = te.placeholder((k, m), name="B")
    p = te.compute((n, k), lambda i, j: a[i, j] / t[j], name="P")
    r = te.reduce_axis((0, k), "r")
    return [a, t, b, te.compute((n, m), lambda i, j: te.sum(p[i, r] * b[r, j], axis=r), name="C")]


def half_chain(n: int, m: int) -> list[Tensor]:
    """C = the maximum of rows of B = A + 1, in halves."""
    a = te.placeholder((n, m), "float16", name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + te.const(1, "float16"), name="B")
    k = te.reduce_axis((0, m), "k")
    top = te.compute((n,), lambda i: te.max(b[i, k], axis=k), name="M")
    return [a, te.compute((n,), lambda i: top[i] * te.const(2, "float16"), name="C")]


def softmax_of_products(rows: int, keys: int, columns: int, even: bool = False) -> list[Tensor]:
    """C = softmax(Q K) V; even: what is added up is no longer proportional to exp(-maximum)."""
    half, wide = "float16", "float32"
    q, k = te.placeholder((rows, 16), half, name="Q"), te.placeholder((keys, 16), half, name="K")
    v = te.placeholder((keys, columns), half, name="V")
    r, j, g, x = (te.reduce_axis((0, 16 if a == "r" else keys), a) for a in "rjgx")
    dot = lambda i, c: q[i, r].astype(wide) * k[c, r].astype(wide)  # noqa: E731
    s = te.compute((rows, keys), lambda i, c: te.sum(dot(i, c), axis=r), name="S")
    m = te.compute((rows,), lambda i: te.max(s[i, j], axis=j), name="M")
    t = te.compute((rows,), lambda i: te.sum(te.exp(s[i, g] - m[i]), axis=g), name="T")
    power = lambda i, c: te.exp(s[i, c] - m[i])  # noqa: E731
    one = lambda i, c: power(i, c) + 1.0 if even else power(i, c)  # noqa: E731
    p = te.compute((rows, keys), lambda i, c: one(i, c).astype(half), name="P")
    term = lambda i, c: p[i, x].astype(wide) * v[x, c].astype(wide)  # noqa: E731
    o = te.compute((rows, columns), lambda i, c: te.sum(term(i, c), axis=x), name="O")
    divided = lambda i, c: o[i, c] / t[i]  # noqa: E731
    return [q, k, v, te.compute((rows, columns), divided, name="C")]


COMPUTATIONS: dict[str, Callable[..., list[Tensor]]] = {
    f.__name__: f
    for f in (
        doubled,
        chain,
        row_sums,
        half_sums,
        padded,
        matmul,
        weighted,
        squares,
        filters,
        steps,
        window,
        half_products,
        shares,
        masked_shares,
        quotients_of_columns,
        half_chain,
        narrow,
        narrow_sums,
        cut_off_sums,
        scaled_sums,
        softmax_of_products,
    )
}


WARP = (  # 32 lanes take the elements that they hold: 8 rows, 2 columns in 4 places
    "s[C].split(C_i, factor=8)",
    "s[C].split(C_j, factor=2)",
    "s[C].reorder(C_i_inner, C_j_outer, C_i_outer, C_j_inner)",
    "s[C].fuse(C_i_inner, C_j_outer)",
    's[C].bind(i_inner_j_outer_fused, "threadIdx.x")',
)
TENSORIZE = 's[P].tensorize(P_i, "m16n8k16.float16")'
FRAGMENTS = (
    's[P].set_scope("fragment")',
    "s[P].compute_at(s[C], i_inner_j_outer_fused)",
    's.cache_read(A, "fragment", [P])',
    's.cache_read(B, "fragment", [P])',
    "s[P].split(r, factor=16)",
    "s[P].reorder(r_outer, P_i, P_j, r_inner)",
    "s[A_fragment].compute_at(s[P], r_outer)",
    "s[B_fragment].compute_at(s[P], r_outer)",
)


PARTS = (  # the sums of C by an atom, along slices of 16 terms; the terms inside
    "s[C].split(C_i, factor=8)",
    "s[C].split(C_c, factor=2)",
    "s[C].reorder(C_i_inner, C_c_outer, C_i_outer, C_c_inner)",
    "s[C].fuse(C_i_inner, C_c_outer)",
    's[C].bind(i_inner_c_outer_fused, "threadIdx.x")',
    *(f's[{name}].set_scope("fragment")' for name in "OPSMT"),
    *(f's.cache_read({name}, "fragment", [{to}])' for name, to in ("VO", "QS", "KS")),
    "s[O].compute_at(s[C], i_inner_c_outer_fused)",
    "s[O].split(x, factor=16)",
    "s[O].reorder(x_outer, O_i, O_c, x_inner)",
    's[O].tensorize(O_i, "m16n8k16.float16")',
    *(f"s[{name}].compute_at(s[O], x_outer)" for name in ("V_fragment", "P", "S")),
    "s[S].split(S_c, factor=8)",
    "s[S].reorder(S_c_outer, S_i, S_c_inner, r)",
    's[S].tensorize(S_i, "m16n8k16.float16")',
    *(f"s[{name}_fragment].compute_at(s[S], S_c_outer)" for name in "QK"),
)


@dataclass(frozen=True)
class Case:
    """step: the call that is tried; computation, before: how its schedule comes about."""

    computation: str
    step: str
    before: tuple[str, ...] = ()


IN_SHARED = ("s[B].compute_at(s[C], C_i)", 's[B].set_scope("shared")')
SHARES = (
    "s[C].split(k, nparts=2)", "s.rfactor(C, k_outer)", "s[C].split(C_i, factor=2)",
    's[C].bind(i_outer, "blockIdx.x")', 's[C_rf].bind(C_rf_k_outer, "blockIdx.y")',
)  # fmt: skip
SLICES = (
    's.cache_read(A, "shared", [C])', 's[C].bind(i, "blockIdx.x")', "s[C].split(k, factor=2)",
    "s[A_shared].compute_at(s[C], k_outer)",
)  # fmt: skip
BOXES = (*SLICES[:2], "s[C].split(k, factor=4)", SLICES[3])
PADDED_SLICES = (
    's.cache_read(P, "shared", [C])',
    "s[P].compute_inline()",
    "s[P_shared].compute_at(s[C], x)",
)
CASES: dict[type[S.Step], list[Case]] = {
    S.Split: [
        Case("doubled(20)", "s[B].split(i, factor=8)"),
        Case("doubled(20)", "s[B].split(i, factor=5)"),
        Case("doubled(20)", "s[B].split(i, nparts=3)"),
        Case("doubled(20)", "s[B].split(i_inner, factor=3)", ("s[B].split(i, factor=8)",)),
        Case("row_sums(4, 10)", "s[C].split(k, factor=4)"),
        Case("chain(6, 4)", "s[C].split(i, factor=4)", ("s[B].compute_at(s[C], i)",)),
    ],
    S.Fuse: [
        Case("matmul(4, 6, 8)", "s[C].fuse(i, j)"),
        Case("chain(6, 4)", "s[C].fuse(i, j)", ("s[B].compute_at(s[C], C_j)",)),
        Case("matmul(4, 6, 8)", "s[C].fuse(i, j, r)"),
    ],
    S.Reorder: [
        Case("matmul(4, 6, 8)", "s[C].reorder(r, i)"),
        Case("matmul(4, 6, 8)", "s[C].reorder(j, j)"),
    ],
    S.Bind: [
        Case("doubled(20)", 's[B].bind(i, "threadIdx.x")'),
        Case("doubled(20)", 's[B].bind(i_outer, "vthread")', ("s[B].split(i, factor=8)",)),
        Case("row_sums(4, 10)", 's[C].bind(k, "threadIdx.x")'),
        Case("row_sums(4, 10)", 's[C].bind(k, "blockIdx.x")'),
    ],
    S.Annotate: [
        Case("doubled(20)", "s[B].vectorize(i_inner)", ("s[B].split(i, factor=4)",)),
        Case("doubled(20)", "s[B].parallel(i)"),
        Case("row_sums(4, 10)", "s[C].unroll(k)"),
    ],
    S.Pragma: [
        Case("row_sums(4, 10)", 's[C].pragma(i, "auto_unroll_max_step", 16)'),
        Case("row_sums(4, 10)", 's[C].pragma(k, "unroll_explicit", 0)'),
    ],
    S.Tensorize: [
        Case(
            "half_products(16, 8, 32)", 's[P].tensorize(P_i, "m16n8k16.float16")', WARP + FRAGMENTS
        ),
        Case("half_products(16, 8, 32)", 's[P].tensorize(r, "m16n8k16.float16")', FRAGMENTS[:1]),
        Case("half_products(16, 8, 32)", 's[P].tensorize(P_i, "m16n8k16.float16")', FRAGMENTS[:1]),
        Case("half_products(16, 8, 16)", TENSORIZE),
        Case("half_products(16, 8, 16)", 's[P].tensorize(P_i, "m16n8k16.float8")', FRAGMENTS[:1]),
    ],
    S.ComputeAt: [
        Case("chain(6, 4)", "s[B].compute_at(s[C], i)"),
        Case("chain(6, 4)", "s[B].compute_at(s[C], C_j_outer)", ("s[C].split(C_j, factor=3)",)),
        Case("padded(10)", "s[P].compute_at(s[C], x_outer)", ("s[C].split(x, factor=4)",)),
    ],
    S.ComputeInline: [
        Case("chain(6, 4)", "s[B].compute_inline()"),
        Case("padded(10)", "s[P].compute_inline()"),
    ],
    S.ComputeRoot: [
        Case("chain(6, 4)", "s[B].compute_root()", ("s[B].compute_at(s[C], i)",)),
        Case("chain(6, 4)", "s[B].compute_root()", ("s[B].compute_inline()",)),
    ],
    S.SetScope: [
        Case("chain(6, 4)", 's[B].set_scope("shared")', ("s[B].compute_at(s[C], i)",)),
        Case("chain(6, 4)", 's[C].set_scope("local")'),
    ],
    S.StorageAlign: [
        Case("chain(6, 4)", "s[B].storage_align(B_i, 8, 1)"),
    ],
    S.StorageOrder: [
        Case("chain(6, 4)", "s[B].storage_order(B_i)"),
        Case("chain(6, 4)", "s[B].storage_order(B_j, B_i)"),
    ],
    S.CacheRead: [
        Case("row_sums(4, 10)", 's.cache_read(A, "global", [C])'),
        Case("matmul(4, 6, 8)", 's.cache_read(A, "shared", [C])'),
        Case("half_sums(4, 10)", 's.cache_read(A, "global", [C], dtype="float32")'),
        Case("half_sums(4, 10)", 's.cache_read(A, "global", [C], dtype="int8")'),
    ],
    S.CacheWrite: [
        Case("row_sums(4, 10)", 's.cache_write(C, "global")'),
        Case("half_sums(4, 10)", 's.cache_write(C, "global")'),
        Case("row_sums(4, 10)", 's.cache_write(C, "local")'),
    ],
    S.RFactor: [
        Case("row_sums(4, 10)", "s.rfactor(C, k_inner)", ("s[C].split(k, factor=2)",)),
        Case("row_sums(4, 10)", "s.rfactor(C, k_inner, 1)", ("s[C].split(k, factor=4)",)),
        Case("row_sums(4, 10)", "s.rfactor(C, k)"),
    ],
    S.Pack: [
        Case("row_sums(8, 10)", "s.pack(A, [4, 1], [0, 1, 2])"),
        Case("row_sums(6, 10)", "s.pack(A, [4, 1], [1, 0, 2])"),
        Case("row_sums(40, 10)", "s.pack(A, [[2, 8], 4], [0, 1, 4, 2, 3])"),
        Case("row_sums(40, 10)", "s.pack(A, [[2, 8], 4], [0, 1, 2, 3])"),
        Case("weighted(6, 5)", "s.pack(W_padded, [4, 1], [0, 1, 2])", ("s.pad(C, {i: 8, k: 3})",)),
        Case("chain(6, 4)", "s.pack(B, [2, 1], [0, 1, 2])"),
    ],
    S.Pad: [
        Case("matmul(2, 6, 4)", "s.pad(C, {j: 4, r: 3})"),
        Case("weighted(6, 5)", "s.pad(C, {i: 8, k: 3})"),
        Case("window(6, 3)", "s.pad(C, {x: 4})"),
        Case("window(6, 3)", "s.pad(C, {k: 2})"),
        Case("matmul(2, 6, 4)", "s.pad(C, {i: 2, r: 4})"),
        Case("matmul(2, 6, 4)", "s.pad(C, {i: 0})"),
        Case("matmul(2, 6, 4)", "s.pad(C, {i: 2**31})"),
        Case("matmul(2, 6, 4)", "s.pad(C, {i: 4})", ("s[C].split(i, factor=2)",)),
        Case("row_sums(4, 10)", "s.pad(C, {i: 8})"),
        Case("padded(10)", "s.pad(C, {x: 8})"),
        Case(
            "filters(6, 3)",
            "s.pad(C_product, {f_p: 4, k: 4})",
            ("s.as_product(C, m=[f], n=[x], k=[c, r])",),
        ),
    ],
    S.AsProduct: [
        Case("filters(6, 3)", "s.as_product(C, m=[f], n=[x], k=[c, r])"),
        Case("filters(6, 3, 2)", "s.as_product(C, m=[f], n=[x], k=[c])"),
        Case("filters(6, 3, 2)", "s.as_product(C, m=[x], n=[f], k=[c, r])"),
        Case("steps(9, 3, 2)", "s.as_product(C, m=[f], n=[x], k=[c])"),
        Case("matmul(2, 3, 4)", "s.as_product(C, m=[i], n=[j], k=[r])"),
        Case("matmul(2, 3, 4)", "s.as_product(C, m=[j, i], n=[], k=[r])"),
        Case("matmul(2, 3, 4)", "s.as_product(C, m=[i], n=[r], k=[j])"),
        Case("squares(3, 4)", "s.as_product(C, m=[i], n=[i], k=[k])"),
        Case("squares(3, 4)", "s.as_product(C, m=[i], n=[j], k=[k])"),
    ],
    S.Swizzle: [
        Case("chain(6, 4)", "s[B].swizzle(64)", IN_SHARED),
        Case("chain(6, 4)", "s[B].swizzle(48)", IN_SHARED),
        Case("chain(6, 4)", "s[B].swizzle(128)"),
        Case("row_sums(4, 10)", "s[A_shared].swizzle(128)", (*SLICES, "s[A_shared].pipeline(2)")),
    ],
    S.BulkCopy: [
        Case("row_sums(4, 16)", "s[A_shared].bulk_copy()", BOXES),
        Case(
            "row_sums(4, 16)",
            "s[A_shared].bulk_copy()",
            (*BOXES, "s[A_shared].split(ax1, factor=2)"),
        ),
        Case("row_sums(4, 16)", "s[A_global].bulk_copy()", ('s.cache_read(A, "global", [C])',)),
        Case("chain(6, 4)", "s[B].bulk_copy()", ('s[B].set_scope("shared")',)),
    ],
    S.Join: [
        Case("row_sums(4, 10)", "s[C_rf].join(s[C], i_outer)", SHARES),
        Case("row_sums(5, 9)", "s[C_rf].join(s[C], i_outer)", SHARES),
        Case("row_sums(4, 10)", "s[C].join(s[C_rf], k_outer)", SHARES),
        Case("half_sums(4, 10)", "s[C_rf].join(s[C], C_i)", SHARES),
    ],
    S.DivideLast: [
        Case("shares(2, 3, 4)", "s.divide_last(C)"),
        Case("masked_shares(2, 3, 4)", "s.divide_last(C)"),
        Case("shares(2, 3, 4)", "s.divide_last(C)", ("s[C].split(i, factor=2)",)),
        Case("quotients_of_columns(2, 3, 4)", "s.divide_last(C)"),
        Case("matmul(2, 3, 4)", "s.divide_last(C)"),
    ],
    S.SplitSoftmax: [
        Case("softmax_of_products(2, 8, 3)", "s.split_softmax(O, 2)"),
        Case("softmax_of_products(2, 8, 3, even=True)", "s.split_softmax(O, 2)"),
        Case("softmax_of_products(2, 8, 3)", "s.split_softmax(O, 3)"),
        Case("softmax_of_products(2, 8, 3)", "s.split_softmax(O, 0)"),
        Case(
            "softmax_of_products(2, 8, 3)", "s.split_softmax(O, 2)", ("s[O].split(O_i, factor=2)",)
        ),
        Case("shares(2, 3, 4)", "s.split_softmax(C, 2)"),
        Case("matmul(2, 3, 4)", "s.split_softmax(C, 2)"),
    ],
    S.Widen: [
        Case("half_chain(2, 4)", "s.widen(B)"),
        Case("half_chain(2, 4)", "s.widen(M)", ("s.widen(B)",)),
        Case("half_chain(2, 4)", "s.widen(C)"),
        Case("chain(6, 4)", "s.widen(B)"),
        Case("half_chain(2, 4)", "s.widen(B)", ("s[B].split(B_i, factor=2)",)),
    ],
    S.Apart: [
        Case("narrow(2, 3, 4)", 's.apart(C, "float16")'),
        Case("narrow(2, 3, 4)", 's.apart(C, "int8")'),
        Case("narrow(2, 3, 4)", 's.apart(C, "float16")', ("s[C].split(C_i, factor=2)",)),
        Case("matmul(2, 3, 4)", 's.apart(C, "float16")'),
    ],
    S.SumGroups: [
        Case("scaled_sums(2, 4, 3)", "s.sum_groups(C)"),
        Case("scaled_sums(2, 5, 3)", "s.sum_groups(C)"),
        Case("scaled_sums(2, 4, 3)", "s.sum_groups(C)", ("s[P].split(k, factor=2)",)),
        Case("matmul(2, 3, 4)", "s.sum_groups(C)"),
    ],
    S.Digits: [
        Case("narrow_sums(1, 3, 2, 4)", "s.digits(C, 2)", ("s[X].compute_inline()",)),
        Case("narrow_sums(2, 3, 2, 4)", "s.digits(C, 4)"),
        Case("narrow_sums(2, 3, 6, 2)", "s.digits(C, 3, 4, 2)", ("s[X].compute_inline()",)),
        Case("narrow_sums(1, 2, 4, 2)", "s.digits(C, 2, together=2, abreast=4)"),
        Case("narrow_sums(1, 3, 3, 4)", "s.digits(C, 2, abreast=2)"),
        Case("narrow_sums(1, 3, 3, 4)", "s.digits(C, 2, together=0)"),
        Case("narrow_sums(1, 3, 2, 4)", "s.digits(C, 5)"),
        Case("narrow_sums(1, 3, 2, 4)", "s.digits(C, 2)", ("s[P].split(k, factor=2)",)),
        Case("narrow_sums(1, 2, 1, 70000)", "s.digits(C, 3)"),
        Case("cut_off_sums(2, 4, 'row')", "s.digits(C, 3)", ("s[X].compute_inline()",)),
        Case("cut_off_sums(2, 4, 'element')", "s.digits(C, 3)"),
        Case("cut_off_sums(2, 4, 'sum')", "s.digits(C, 3)"),
        Case("cut_off_sums(2, 4, 'scale')", "s.digits(C, 3)"),
        Case("cut_off_sums(2, 4, 'some')", "s.digits(C, 3)"),
        Case("scaled_sums(2, 4, 3)", "s.digits(C, 2)"),
        Case("matmul(2, 3, 4)", "s.digits(C, 2)"),
    ],
    S.AccumulateAt: [
        Case(
            "softmax_of_products(16, 32, 8)",
            "s[M].accumulate_at(s[O], x_outer)",
            (*PARTS, "s[T].accumulate_at(s[O], x_outer)"),
        ),
        Case(
            "softmax_of_products(16, 32, 8, even=True)",
            "s[M].accumulate_at(s[O], x_outer)",
            (*PARTS, "s[T].accumulate_at(s[O], x_outer)"),
        ),
        Case("softmax_of_products(16, 32, 8)", "s[T].accumulate_at(s[O], x_inner)", PARTS),
        Case("softmax_of_products(16, 32, 8)", "s[P].accumulate_at(s[O], x_outer)", PARTS),
        Case("softmax_of_products(16, 32, 8)", "s[M].accumulate_at(s[C], C_i_outer)", PARTS),
        Case("matmul(2, 3, 4)", "s[C].accumulate_at(s[C], r)"),
    ],
    S.AsyncCopy: [
        Case("row_sums(4, 10)", "s[A_shared].async_copy()", SLICES),
        Case("row_sums(4, 10)", "s[A_global].async_copy()", ('s.cache_read(A, "global", [C])',)),
        Case("chain(6, 4)", "s[B].async_copy()", ('s[B].set_scope("shared")',)),
    ],
    S.Pipeline: [
        Case("row_sums(4, 10)", "s[A_shared].pipeline(3)", SLICES),
        Case("row_sums(4, 10)", "s[A_shared].pipeline(1)", SLICES),
        Case("row_sums(4, 10)", "s[A_shared].pipeline(0)", SLICES),
        Case("row_sums(4, 10)", "s[A_shared].pipeline(17)", SLICES),
        Case("padded(10)", "s[P_shared].pipeline(2)", PADDED_SLICES),
        Case(
            "row_sums(4, 16)",
            "s[A_shared].pipeline(3, loaders=1)",
            (*BOXES, "s[A_shared].bulk_copy()"),
        ),
        Case(
            "row_sums(4, 16)",
            "s[A_shared].pipeline(3, loaders=2)",
            (*BOXES, "s[A_shared].bulk_copy()"),
        ),
        Case("row_sums(4, 16)", "s[A_shared].pipeline(3, loaders=1)", BOXES),
    ],
}


def prepared(case: Case) -> Schedule:
    """The schedule before the step."""
    s = create_schedule([eval(case.computation, dict(COMPUTATIONS))[-1].op])
    for call in case.before:
        run(s, call)
    return s


def run(s: Schedule, call: str) -> None:
    names: dict[str, Any] = {"s": s}
    for stage in s.stages:
        names[identifier(stage.name)] = stage.tensor
        for ax in stage.all_iter_vars:
            names[identifier(ax.name)] = names[identifier(f"{stage.name}_{ax.name}")] = ax
    eval(call, names)


def nest(s: Schedule) -> str:
    """What the schedule prints, less its inputs."""
    return "\n".join(line for line in str(s).splitlines() if not line.endswith(" input"))
