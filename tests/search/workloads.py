"""Computations for the tests of sketch rules: those of TVM's unit tests, and small odd ones.

In: nothing.  Out: `COUNTED`, whose sketches are counted, and `SMALL`, which are run; both map names
to functions that declare a computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schedule.computations import conv2d, gathered, grouped_conv2d, matmul, softmax
from tilewright import te, topi
from tilewright.te.tensor import Tensor
from tilewright.topi.nn import winograd as transformed

Declare = Callable[[], list[Tensor]]

# F(m, 3): transforms of the input and of the output, one row per point of the tile.
WINOGRAD = {
    2: (
        ((1, 0, 0, 0), (0, 1, -1, 1), (-1, 1, 1, 0), (0, 0, 0, -1)),
        ((1, 0), (1, 1), (1, -1), (0, -1)),
    ),
    4: (
        (
            (4, 0, 0, 0, 0, 0), (0, -4, 4, -2, 2, 4), (-5, -4, -4, -1, -1, 0),
            (0, 1, -1, 2, -2, -5), (1, 1, 1, 1, 1, 0), (0, 0, 0, 0, 0, 1),
        ),
        ((1, 0, 0, 0), (1, 1, 1, 1), (1, -1, 1, -1), (1, 2, 4, 8), (1, -2, 4, -8), (0, 0, 0, 1)),
    ),
}  # fmt: skip


def two_matmuls(n: int, m: int, k: int) -> list[Tensor]:
    """The product of a product."""
    a, b, out = matmul(n, m, k)
    d, r = te.placeholder((m, n), name="D"), te.reduce_axis((0, m), "r2")
    body = lambda i, j: te.sum(out[i, r] * d[r, j], axis=r)  # noqa: E731
    return [a, b, d, te.compute((n, n), body, name="E")]


def conv2d_bn_relu() -> list[Tensor]:
    data, kernel, conv = conv2d(1, 512, 7, 7, 512, 3, 3, 1, 1)
    vectors = [te.placeholder((512,), name=name) for name in ("bias", "scale", "offset")]
    bias, scale, offset = vectors
    added = te.compute(conv.shape, lambda n, f, y, x: conv[n, f, y, x] + bias[f], name="bias_add")
    wide = te.compute(conv.shape, lambda n, f, y, x: added[n, f, y, x] * scale[f], name="bn_mul")
    moved = te.compute(conv.shape, lambda n, f, y, x: wide[n, f, y, x] + offset[f], name="bn_add")
    return [data, kernel, *vectors, topi.nn.relu(moved)]


def pool(channels: int, size: int, kernel: int, stride: int, pad: int, kind: str) -> list[Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    window = (kernel, kernel), (stride, stride), (1, 1), (pad,) * 4
    return [data, topi.nn.pool2d(data, *window, kind)]


def minimum(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    return [a, topi.min(a, axis=-1)]


def squares(*shape: int) -> list[Tensor]:
    """A sum over everything: rank 0."""
    a = te.placeholder(shape, name="A")
    axes = [te.reduce_axis((0, n), f"k{d}") for d, n in enumerate(shape)]
    return [a, te.compute((), lambda: te.sum(a[*axes] * a[*axes], axis=axes), name="B")]


def constants(rows: Sequence[Sequence[float]], name: str) -> Tensor:
    """A matrix known when compiling, as a choice per element."""

    def element(i: te.Expr, j: te.Expr) -> te.Expr:
        chosen = te.const(0.0, "float32")
        for y, row in enumerate(rows):
            for x, value in enumerate(row):
                chosen = te.select(te.all(i.equal(y), j.equal(x)), float(value), chosen)
        return chosen

    return te.compute((len(rows), len(rows[0])), element, name=name)


def winograd(size: int, ci: int, co: int, m: int, pad: int = 1) -> list[Tensor]:
    """NHWC convolution by 3 x 3 kernels, which come transformed; tiles of m x m outputs."""
    unrolled = "auto_scheduler_simplify_const_tensor_indices"
    alpha, out = m + 2, size + 2 * pad - 2
    tiles = -(-out // m)
    points, edge = tiles * tiles, tiles * m + 2
    data = te.placeholder((1, size, size, ci), name="data")
    weight = te.placeholder((alpha, alpha, ci, co), name="weight")
    b, a = constants(WINOGRAD[m][0], "B"), constants(WINOGRAD[m][1], "A")
    padded = topi.nn.pad(
        data, (0, pad, pad, 0), (0, edge - size - pad, edge - size - pad, 0), name="data_pad"
    )
    tile = te.compute(
        (alpha, alpha, points, ci),
        lambda eps, nu, p, c: padded[0, p // tiles * m + eps, p % tiles * m + nu, c],
        name="input_tile",
    )
    ra, rb = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
    packed = te.compute(
        (alpha, alpha, points, ci),
        lambda eps, nu, p, c: te.sum(tile[ra, rb, p, c] * b[ra, eps] * b[rb, nu], axis=[ra, rb]),
        name="data_pack",
        attrs={unrolled: ["eps", "nu", "r_a", "r_b"]},
    )
    rc = te.reduce_axis((0, ci), "rc")
    product = te.compute(
        (alpha, alpha, points, co),
        lambda eps, nu, p, f: te.sum(packed[eps, nu, p, rc] * weight[eps, nu, rc, f], axis=rc),
        name="bgemm",
    )
    qa, qb = te.reduce_axis((0, alpha), "r_a"), te.reduce_axis((0, alpha), "r_b")
    inverse = te.compute(
        (m, m, points, co),
        lambda vh, vw, p, f: te.sum(product[qa, qb, p, f] * a[qa, vh] * a[qb, vw], axis=[qa, qb]),
        name="inverse",
        attrs={unrolled: ["vh", "vw", "r_a", "r_b"]},
    )
    result = te.compute(
        (1, out, out, co),
        lambda n, h, w, f: inverse[h % m, w % m, h // m * tiles + w // m, f],
        name="conv2d_winograd",
    )
    return [data, weight, result]


def winograd_relu(size: int, ci: int, co: int, m: int) -> list[Tensor]:
    data = te.placeholder((1, ci, size, size), name="data")
    weight = te.placeholder((m + 2, m + 2, ci, co), name="weight", constant=True)
    made = transformed.winograd(data, weight, 1, m, transformed=True)
    return [data, weight, topi.nn.relu(made)]


def depthwise(channels: int, size: int, stride: int) -> list[Tensor]:
    data = te.placeholder((1, channels, size, size), name="data")
    kernel = te.placeholder((channels, 1, 3, 3), name="kernel")
    return [data, kernel, topi.nn.depthwise_conv2d_nchw(data, kernel, stride, 1, 1)]


def dense(n: int, m: int, k: int) -> list[Tensor]:
    data, weight = te.placeholder((n, k), name="data"), te.placeholder((m, k), name="weight")
    bias = te.placeholder((m,), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.nn.dense(data, weight, bias))]


def batch_matmul(b: int, n: int, m: int, k: int) -> list[Tensor]:
    x, y = te.placeholder((b, n, k), name="x"), te.placeholder((b, m, k), name="y")
    return [x, y, topi.nn.batch_matmul(x, y)]


def chain(n: int, m: int) -> list[Tensor]:
    """Elementwise stages, one of them with a function call, one read twice."""
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m,), name="B")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] * 0.25), name="E")
    c = te.compute((n, m), lambda i, j: e[i, j] + b[j], name="C")
    d = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0) * c[i, j], name="D")
    return [a, b, d]


def transposed(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    return [a, topi.transpose(b)]


def layer_norm(n: int, m: int) -> list[Tensor]:
    """Two reductions of one input, both feeding the output."""
    a = te.placeholder((n, m), name="A")
    k1, k2 = te.reduce_axis((0, m), "k1"), te.reduce_axis((0, m), "k2")
    total = te.compute((n,), lambda i: te.sum(a[i, k1], axis=k1), name="total")
    squared = te.compute((n,), lambda i: te.sum(a[i, k2] * a[i, k2], axis=k2), name="squared")
    mean = te.compute((n,), lambda i: total[i] / float(m), name="mean")

    def normal(i: te.Expr, j: te.Expr) -> te.Expr:
        variance = te.maximum(squared[i] / float(m) - mean[i] * mean[i], 0.0)
        return (a[i, j] - mean[i]) / (variance + 1.0)

    return [a, te.compute((n, m), normal, name="normal")]


def several_outputs(n: int, m: int, k: int) -> list[Tensor]:
    """A product, a function of it and its row sums, all asked for."""
    a, b, c = matmul(n, m, k)
    relu = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="relu")
    r = te.reduce_axis((0, m), "q")
    return [a, b, c, relu, te.compute((n,), lambda i: te.sum(c[i, r], axis=r), name="rows")]


def attention(n: int, d: int) -> list[Tensor]:
    """softmax(Q K) V: two products with a softmax between them."""
    q, k, v = (te.placeholder((n, d), name=name) for name in "QKV")
    return [q, k, v, topi.nn.matmul(topi.nn.softmax(topi.nn.matmul(q, topi.transpose(k))), v)]


def column_sums(n: int, m: int) -> list[Tensor]:
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, n), "k")
    total = te.compute((m,), lambda j: te.sum(a[k, j], axis=k), name="total")
    return [a, te.compute((m,), lambda j: total[j] * 0.5, name="half")]


def scaled(n: int, m: int, k: int) -> list[Tensor]:
    """A product, then a factor per row and one per column: values of both stages are reused."""
    a, b, c = matmul(n, m, k)
    x, y = te.placeholder((n,), name="x"), te.placeholder((m,), name="y")
    return [a, b, x, y, te.compute((n, m), lambda i, j: c[i, j] * x[i] + y[j], name="scaled")]


def two_branches(n: int, m: int, k: int) -> list[Tensor]:
    """The sum of two products, as where a residual block ends."""
    a, b, left = matmul(n, m, k)
    d, e = te.placeholder((n, k), name="D"), te.placeholder((k, m), name="E")
    r = te.reduce_axis((0, k), "r")
    right = te.compute((n, m), lambda i, j: te.sum(d[i, r] * e[r, j], axis=r), name="right")
    return [a, b, d, e, te.compute((n, m), lambda i, j: left[i, j] + right[i, j], name="both")]


def product_and_more(n: int, m: int, k: int) -> list[Tensor]:
    """A product, and what its only reader makes of it, are both asked for."""
    a, b, c = matmul(n, m, k)
    return [a, b, c, te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="relu")]


def sums_and_more(n: int, m: int) -> list[Tensor]:
    """Row sums, and rows that add up to one, are both asked for."""
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), "k")
    total = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="total")
    share = te.compute((n, m), lambda i, j: a[i, j] / (total[i] * total[i] + 1.0), name="share")
    return [a, total, share]


def sums_times_matrix(n: int, m: int, k: int) -> list[Tensor]:
    """Row sums, copied into shared memory by a product."""
    a, b = te.placeholder((n, k), name="A"), te.placeholder((n, m), name="B")
    q, r = te.reduce_axis((0, k), "q"), te.reduce_axis((0, n), "r")
    total = te.compute((n,), lambda i: te.sum(a[i, q], axis=q), name="total")
    body = lambda i, j: te.sum(total[r] * b[r, j], axis=r)  # noqa: E731
    return [a, b, te.compute((4, m), body, name="C")]


def half_of_squares(n: int, m: int) -> list[Tensor]:
    """A number, and what is made of it."""
    a, total = squares(n, m)
    return [a, te.compute((), lambda: total() * 0.5, name="half")]


def axes_named_like_choices(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "unroll")
    body = lambda at, parallel: te.sum(a[at, r] * b[r, parallel], axis=r)  # noqa: E731
    return [a, b, te.compute((n, m), body, name="C")]


def spread_out(n: int, m: int, times: int) -> list[Tensor]:
    """A product of few elements, each of which is read in many places."""
    a, b, c = matmul(n, m, 6)
    shape = n * times, m * times
    body = lambda i, j: c[i // times, j // times] * 2.0  # noqa: E731
    return [a, b, te.compute(shape, body, name="spread")]


COUNTED: dict[str, Declare] = {
    "matmul": lambda: matmul(512, 512, 512),
    "few points": lambda: matmul(8, 8, 1024),
    "two matmuls": lambda: two_matmuls(512, 512, 512),
    "conv2d": conv2d_bn_relu,
    "pool": lambda: pool(512, 56, 2, 1, 1, "max"),
    "min": lambda: minimum(10, 1024),
    "softmax": lambda: softmax(2, 1024),
    "winograd": lambda: winograd(28, 128, 128, 4),
    "rank 0": lambda: squares(128),
}

SMALL: dict[str, Declare] = {
    "matmul": lambda: matmul(6, 9, 20),
    "matmul of a prime": lambda: matmul(7, 10, 5),
    "matrix-vector": lambda: matmul(3, 1, 48),
    "few points": lambda: matmul(2, 3, 64),
    "two matmuls": lambda: two_matmuls(6, 10, 4),
    "conv2d": lambda: conv2d(1, 3, 9, 7, 6, 3, 3, 2, 1, epilogue=True),
    "conv2d, dilated": lambda: conv2d(2, 4, 6, 6, 3, 3, 2, 1, 0, 2),
    "grouped conv2d": lambda: grouped_conv2d(2, 2, 3, 6, 3),
    "depthwise": lambda: depthwise(6, 9, 2),
    "dense": lambda: dense(3, 10, 12),
    "batch matmul": lambda: batch_matmul(2, 4, 6, 5),
    "winograd": lambda: winograd(5, 3, 4, 2),
    "winograd in two steps": lambda: winograd_relu(5, 3, 4, 2),
    "max pool": lambda: pool(6, 9, 3, 2, 1, "max"),
    "average pool": lambda: pool(4, 6, 2, 2, 0, "avg"),
    "softmax": lambda: softmax(6, 40),
    "log softmax": lambda: [
        x := te.placeholder((4, 36), name="A"), topi.nn.log_softmax(x)
    ],
    "min": lambda: minimum(5, 80),
    "rank 0": lambda: squares(12, 15),
    "column sums": lambda: column_sums(40, 6),
    "elementwise": lambda: chain(6, 10),
    "transpose": lambda: transposed(9, 8),
    "layer norm": lambda: layer_norm(6, 40),
    "several outputs": lambda: several_outputs(6, 8, 5),
    "attention": lambda: attention(6, 4),
    "factors per row and column": lambda: scaled(6, 10, 5),
    "rows chosen by data": lambda: gathered(6, 10, 5),
    "two branches": lambda: two_branches(6, 10, 5),
    "a product that is an output": lambda: product_and_more(6, 10, 5),
    "sums that are an output": lambda: sums_and_more(5, 70),
    "sums that are copied": lambda: sums_times_matrix(8, 6, 70),
    "a function of a number": lambda: half_of_squares(12, 15),
    "axes named like choices": lambda: axes_named_like_choices(6, 10, 20),
    "few points, many readers": lambda: spread_out(3, 4, 12),
    "a long prime": lambda: matmul(1, 1031, 3),
}  # fmt: skip
