"""Small computations that the tests of the core share; shapes are odd and tiny on purpose."""

from __future__ import annotations

import random

from tilewright import te
from tilewright.te.tensor import Tensor


def matmul(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def conv2d(
    n: int, ci: int, h: int, w: int, co: int, kh: int, kw: int, stride: int = 1, pad: int = 0,
    dilation: int = 1, *, epilogue: bool = False, constant: bool = False,
) -> list[Tensor]:  # fmt: skip
    """NCHW convolution as in the AutoTVM tutorial; with `epilogue` also bias and relu."""
    data = te.placeholder((n, ci, h, w), name="data")
    kernel = te.placeholder((co, ci, kh, kw), name="kernel", constant=constant)
    oh, ow = (
        (h + 2 * pad - dilation * (kh - 1) - 1) // stride + 1,
        (w + 2 * pad - dilation * (kw - 1) - 1) // stride + 1,
    )
    padded = te.compute(
        (n, ci, h + 2 * pad, w + 2 * pad),
        lambda *i: te.if_then_else(
            te.all(i[2] >= pad, i[2] < h + pad, i[3] >= pad, i[3] < w + pad),
            data[i[0], i[1], i[2] - pad, i[3] - pad],
            0.0,
        ),
        name="pad_temp",
    )
    rc, ry, rx = (
        te.reduce_axis((0, ci), "rc"),
        te.reduce_axis((0, kh), "ry"),
        te.reduce_axis((0, kw), "rx"),
    )
    conv = te.compute(
        (n, co, oh, ow),
        lambda nn, ff, yy, xx: te.sum(
            padded[nn, rc, yy * stride + ry * dilation, xx * stride + rx * dilation]
            * kernel[ff, rc, ry, rx],
            axis=[rc, ry, rx],
        ),
        name="compute",
    )
    if not epilogue:
        return [data, kernel, conv]
    bias = te.placeholder((co,), name="bias")
    added = te.compute(conv.shape, lambda n, f, y, x: conv[n, f, y, x] + bias[f], name="add")
    return [
        data,
        kernel,
        bias,
        te.compute(conv.shape, lambda *i: te.maximum(added(*i), 0.0), name="relu"),
    ]


def softmax(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    k1, k2 = te.reduce_axis((0, m), "k1"), te.reduce_axis((0, m), "k2")
    top = te.compute((n,), lambda i: te.max(a[i, k1], axis=k1), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    return [a, te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")]


def reshape(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    flat = te.compute((n * m,), lambda i: a[i // m, i % m] * 2.0, name="B")
    return [a, te.compute((m, n), lambda i, j: flat[i * n + j] + 1.0, name="C")]


def mirrored_max(n: int, m: int) -> list[Tensor]:
    """A stage read twice at different places, then a max reduction."""
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + b[n - 1 - i, j], name="C")
    k = te.reduce_axis((0, n), "k")
    return [a, te.compute((m,), lambda j: te.max(c[k, j], axis=k), name="D")]


def pooled(n: int, c: int, h: int, k: int, stride: int) -> list[Tensor]:
    a = te.placeholder((n, c, h, h), name="A")
    ry, rx = te.reduce_axis((0, k), "ry"), te.reduce_axis((0, k), "rx")
    out = (h - k) // stride + 1
    return [
        a,
        te.compute(
            (n, c, out, out),
            lambda b, f, y, x: te.max(a[b, f, y * stride + ry, x * stride + rx], axis=[ry, rx]),
            name="pool",
        ),
    ]


def grouped_conv2d(groups: int, ci: int, co: int, h: int, k: int) -> list[Tensor]:
    """`co` outputs and `ci` inputs a group: the group is a quotient of the output channel."""
    data = te.placeholder((1, groups * ci, h, h), name="data")
    kernel = te.placeholder((groups * co, ci, k, k), name="kernel")
    rc, ry, rx = te.reduce_axis(ci, "rc"), te.reduce_axis(k, "ry"), te.reduce_axis(k, "rx")
    out = te.compute(
        (1, groups * co, h - k + 1, h - k + 1),
        lambda n, f, y, x: te.sum(
            data[n, f // co * ci + rc, y + ry, x + rx] * kernel[f, rc, ry, rx], axis=[rc, ry, rx]
        ),
        name="grouped",
    )
    return [data, kernel, out]


def general_reduction(n: int, m: int) -> list[Tensor]:
    """A reducer of the user's own: the sum of squares kept as a combination of pairs."""
    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    longest = te.comm_reducer(
        lambda x, y: te.maximum(x, y) + te.minimum(x, y), lambda t: te.const(0, t), name="both"
    )
    return [a, te.compute((n,), lambda i: longest(a[i, k] * 0.5, axis=k), name="R")]


def gathered(n: int, m: int, k: int, dtype: str = "int32", limited: bool = False) -> list[Tensor]:
    """Rows of a computed table, chosen by computed indices, and their sum."""
    table = te.placeholder((n, m), name="table")
    chosen = te.placeholder((k,), dtype, name="chosen")
    doubled = te.compute((n, m), lambda i, j: table[i, j] * 2.0, name="doubled")
    at = te.compute((k,), lambda i: te.maximum(chosen[i], chosen[k - 1 - i]), name="at")

    def row(i: te.Expr) -> te.Expr:
        zero, last = te.const(0, dtype), te.const(n - 1, dtype)
        return te.maximum(te.minimum(at[i], last), zero) if limited else at[i]

    rows = te.compute((k, m), lambda i, j: doubled[row(i), j] + table[row(i), j], name="rows")
    r = te.reduce_axis(k, "r")
    return [table, chosen, te.compute((m,), lambda j: te.sum(rows[r, j], axis=r), name="out")]


def draw_computation(rng: random.Random) -> tuple[str, list[Tensor]]:
    """One of the above with random tiny sizes."""
    size = rng.randint
    table = {
        "matmul": lambda: matmul(size(1, 7), size(1, 7), size(1, 7)),
        "conv2d": lambda: conv2d(
            1, size(1, 3), size(5, 7), size(5, 7), size(1, 5), size(1, 3), size(1, 2), size(1, 2),
            size(0, 1), size(1, 2), epilogue=rng.random() < 0.5,
        ),
        "grouped_conv2d": lambda: grouped_conv2d(
            size(1, 3), size(1, 2), size(1, 3), size(3, 5), size(1, 3)
        ),
        "softmax": lambda: softmax(size(1, 5), size(1, 7)),
        "reshape": lambda: reshape(size(1, 6), size(1, 6)),
        "mirrored_max": lambda: mirrored_max(size(1, 6), size(1, 6)),
        "pooled": lambda: pooled(1, size(1, 4), size(3, 7), size(1, 3), size(1, 2)),
        "general_reduction": lambda: general_reduction(size(1, 5), size(1, 7)),
    }  # fmt: skip
    name = rng.choice(sorted(table))
    return name, table[name]()
