"""Hypothesis strategies for computations: small odd shapes of every kind of operator.

In: nothing.  Out: `dags()` and one strategy per operator, each drawing `(ComputeDAG, description)`;
the builder functions under them; `assert_computes`, which checks a lowered program by interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright import te
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Program
from tilewright.ir.verifier import verify
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs

Drawn = tuple[ComputeDAG, str]


def assert_computes(program: Program, dag: ComputeDAG, seed: int = 0) -> None:
    """`program` is well formed, runs without a fault and gives what `dag` means."""
    verify(program)
    inputs = random_inputs(dag, seed)
    expected, bounds = evaluate_with_tolerance(dag, inputs)
    given = dict(zip([t.name for t in dag.args if t not in dag.outputs], inputs, strict=True))
    outputs = iter([np.full(t.shape, 99, t.dtype) for t in dag.outputs])
    arrays = [
        given[b.name] if role == "input" else next(outputs)
        for b, role in zip(program.args, program.roles, strict=True)
    ]
    run_fast(program, arrays)
    written = [a for a, role in zip(arrays, program.roles, strict=True) if role == "output"]
    for tensor, actual, value, bound in zip(dag.outputs, written, expected, bounds, strict=True):
        good = agrees(actual.reshape(tensor.shape), value, bound)
        at = tuple(int(k) for k in np.argwhere(~good)[0]) if not good.all() else ()
        assert good.all(), (
            f"{tensor.name}{list(at)} is {actual.reshape(tensor.shape)[at]}, "
            f"should be {value[at]} within {bound[at]}; {int((~good).sum())} of {good.size} differ"
        )


def points(dag: ComputeDAG) -> int:
    """Loop iterations of the unscheduled computation: what the interpreter pays for."""
    return sum(
        math.prod(op.shape) * math.prod(int(ax.extent or 1) for ax in op.reduce_axis)
        for op in dag.compute_ops
    )


# -- builders --------------------------------------------------------------------------------------


def padded(data: te.Tensor, pads: Sequence[int], value: float = 0.0) -> te.Tensor:
    """`data` with `pads[d]` elements of `value` on both sides of dimension d."""
    if not any(pads):
        return data
    shape = [n + 2 * p for n, p in zip(data.shape, pads, strict=True)]

    def element(*i: Any) -> Any:
        inside = [
            c
            for x, p, n in zip(i, pads, data.shape, strict=True) if p
            for c in (x >= p, x < n + p)
        ]  # fmt: skip
        source = data(*(x - p for x, p in zip(i, pads, strict=True)))
        return te.if_then_else(te.all(*inside), source, te.const(value, data.dtype))

    return te.compute(shape, element, name="pad_temp")


def with_epilogue(out: te.Tensor, channel: int, kind: str) -> tuple[list[te.Tensor], te.Tensor]:
    """(extra inputs, output): kind is "", "relu" or "bias_relu" (a bias per index of `channel`)."""
    if not kind:
        return [], out
    extra: list[te.Tensor] = []
    if kind == "bias_relu":
        bias = te.placeholder((out.shape[channel],), dtype=out.dtype, name="bias")
        extra.append(bias)
        before = out
        out = te.compute(before.shape, lambda *i: before(*i) + bias[i[channel]], name="T_add")
    last = out
    zero = te.const(0, out.dtype)
    return extra, te.compute(last.shape, lambda *i: te.maximum(last(*i), zero), name="T_relu")


def matmul(
    m: int, n: int, k: int, batch: int = 0, transposed: str = "nn", epilogue: str = "",
    dtype: str = "float32",
) -> ComputeDAG:  # fmt: skip
    """C[(b,) i, j] = sum A[i, k] B[k, j]; transposed: "n" or "t" for A and B."""
    lead = (batch,) if batch else ()
    a = te.placeholder(lead + ((m, k) if transposed[0] == "n" else (k, m)), dtype, name="A")
    b = te.placeholder(lead + ((k, n) if transposed[1] == "n" else (n, k)), dtype, name="B")
    r = te.reduce_axis((0, k), "k")

    def element(*at: Any) -> Any:
        *outer, i, j = at
        left = a(*outer, i, r) if transposed[0] == "n" else a(*outer, r, i)
        right = b(*outer, r, j) if transposed[1] == "n" else b(*outer, j, r)
        return te.sum(left * right, axis=r)

    c = te.compute((*lead, m, n), element, name="C")
    extra, out = with_epilogue(c, len(lead) + 1, epilogue)
    return ComputeDAG([a, b, *extra, out])


def conv2d(
    batch: int, channels: int, size: tuple[int, int], filters: int, kernel: tuple[int, int],
    stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1, layout: str = "NCHW",
    epilogue: str = "",
) -> ComputeDAG:  # fmt: skip
    """`channels` and `filters` are per group."""
    (h, w), (kh, kw) = size, kernel
    reach = (dilation * (kh - 1) + 1, dilation * (kw - 1) + 1)
    oh, ow = ((x + 2 * padding - r) // stride + 1 for x, r in zip(size, reach, strict=True))
    ci, co = channels * groups, filters * groups
    rc, ry, rx = (te.reduce_axis((0, e), n) for e, n in ((channels, "rc"), (kh, "ry"), (kw, "rx")))
    if layout == "NCHW":
        data = te.placeholder((batch, ci, h, w), name="data")
        weight = te.placeholder((co, channels, kh, kw), name="kernel")
        pad = padded(data, (0, 0, padding, padding))
        out = te.compute(
            (batch, co, oh, ow),
            lambda n, f, y, x: te.sum(
                pad[n, f // filters * channels + rc if groups > 1 else rc,
                    y * stride + ry * dilation, x * stride + rx * dilation] * weight[f, rc, ry, rx],
                axis=[rc, ry, rx],
            ),
            name="conv2d_nchw",
        )  # fmt: skip
    else:
        data = te.placeholder((batch, h, w, ci), name="data")
        weight = te.placeholder((kh, kw, channels, co), name="kernel")
        pad = padded(data, (0, padding, padding, 0))
        out = te.compute(
            (batch, oh, ow, co),
            lambda n, y, x, f: te.sum(
                pad[n, y * stride + ry * dilation, x * stride + rx * dilation,
                    f // filters * channels + rc if groups > 1 else rc] * weight[ry, rx, rc, f],
                axis=[ry, rx, rc],
            ),
            name="conv2d_nhwc",
        )  # fmt: skip
    extra, last = with_epilogue(out, 1 if layout == "NCHW" else 3, epilogue)
    return ComputeDAG([data, weight, *extra, last])


def depthwise(
    batch: int, channels: int, size: tuple[int, int], kernel: tuple[int, int], stride: int = 1,
    padding: int = 0, layout: str = "NCHW", epilogue: str = "",
) -> ComputeDAG:  # fmt: skip
    (h, w), (kh, kw) = size, kernel
    oh, ow = ((x + 2 * padding - k) // stride + 1 for x, k in ((h, kh), (w, kw)))
    ry, rx = te.reduce_axis((0, kh), "ry"), te.reduce_axis((0, kw), "rx")
    if layout == "NCHW":
        data = te.placeholder((batch, channels, h, w), name="data")
        weight = te.placeholder((channels, 1, kh, kw), name="kernel")
        pad = padded(data, (0, 0, padding, padding))
        out = te.compute(
            (batch, channels, oh, ow),
            lambda n, c, y, x: te.sum(
                pad[n, c, y * stride + ry, x * stride + rx] * weight[c, 0, ry, rx], axis=[ry, rx]
            ),
            name="DepthwiseConv2d",
        )
    else:
        data = te.placeholder((batch, h, w, channels), name="data")
        weight = te.placeholder((kh, kw, channels, 1), name="kernel")
        pad = padded(data, (0, padding, padding, 0))
        out = te.compute(
            (batch, oh, ow, channels),
            lambda n, y, x, c: te.sum(
                pad[n, y * stride + ry, x * stride + rx, c] * weight[ry, rx, c, 0], axis=[ry, rx]
            ),
            name="DepthwiseConv2d",
        )
    extra, last = with_epilogue(out, 1 if layout == "NCHW" else 3, epilogue)
    return ComputeDAG([data, weight, *extra, last])


def softmax(rows: int, columns: int) -> ComputeDAG:
    """Four stages, as TVM writes it."""
    x = te.placeholder((rows, columns), name="x")
    k1, k2 = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "k")
    top = te.compute((rows,), lambda i: te.max(x[i, k1], axis=k1), name="T_softmax_maxelem")
    exp = te.compute(x.shape, lambda i, j: te.exp(x[i, j] - top[i]), name="T_softmax_exp")
    total = te.compute((rows,), lambda i: te.sum(exp[i, k2], axis=k2), name="T_softmax_expsum")
    out = te.compute(x.shape, lambda i, j: exp[i, j] / total[i], name="T_softmax_norm")
    return ComputeDAG([x, out])


norm = te.comm_reducer(lambda x, y: te.sqrt(x * x + y * y), lambda t: te.const(0, t), name="norm")
_union = te.comm_reducer(lambda x, y: x + y - x * y, lambda t: te.const(0, t), name="either")


def either(x: Any, axis: Any) -> Any:
    """Of values made small, so that no order of combining them loses their digits."""
    return _union(te.maximum(te.minimum(x, 1.0), -1.0) * 0.015625, axis=axis)


REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": te.sum, "max": te.max, "min": te.min, "prod": te.prod, "norm": norm, "either": either,
}  # fmt: skip


def reduction(
    shape: Sequence[int], axes: Sequence[int], kind: str, dtype: str = "float32"
) -> ComputeDAG:
    """`kind` in REDUCERS over the dimensions `axes`; one of extent 1 is left if all are."""
    x = te.placeholder(shape, dtype, name="x")
    reduced = {d: te.reduce_axis((0, shape[d]), f"r{d}") for d in axes}
    kept = [d for d in range(len(shape)) if d not in reduced]

    def element(*i: Any) -> Any:
        position = iter(i)
        at = [reduced[d] if d in reduced else next(position) for d in range(len(shape))]
        return REDUCERS[kind](x(*at), axis=list(reduced.values()))

    out = te.compute([shape[d] for d in kept] or [1], element, name="out")
    return ComputeDAG([x, out])


def transpose(shape: Sequence[int], order: Sequence[int]) -> ComputeDAG:
    x = te.placeholder(shape, name="x")
    inverse = [list(order).index(d) for d in range(len(shape))]
    out = te.compute([shape[d] for d in order], lambda *i: x(*(i[k] for k in inverse)), name="T")
    return ComputeDAG([x, out])


def flatten(shape: Sequence[int]) -> ComputeDAG:
    """All dimensions in one: quotients and remainders as indices."""
    x = te.placeholder(shape, name="x")

    def element(i: Any) -> Any:
        at: list[Any] = []
        for d in reversed(shape):
            at.insert(0, i % d)
            i = i // d
        return x(*at) * 2.0

    return ComputeDAG([x, te.compute((math.prod(shape),), element, name="flat")])


def broadcast_add(shape: Sequence[int], ones: Sequence[bool]) -> ComputeDAG:
    """x + y, where y has extent 1 in the dimensions that `ones` marks."""
    x = te.placeholder(shape, name="x")
    y = te.placeholder([1 if one else n for n, one in zip(shape, ones, strict=True)], name="y")
    out = te.compute(
        shape,
        lambda *i: x(*i) + y(*(0 if one else k for k, one in zip(i, ones, strict=True))),
        name="T_add",
    )
    return ComputeDAG([x, y, out])


def pool(
    batch: int, channels: int, size: tuple[int, int], kernel: int, stride: int, padding: int,
    kind: str,
) -> ComputeDAG:  # fmt: skip
    """NCHW; kind "max" or "avg" (padding counts)."""
    data = te.placeholder((batch, channels, *size), name="data")
    oh, ow = ((x + 2 * padding - kernel) // stride + 1 for x in size)
    pad = padded(data, (0, 0, padding, padding), -3.0e38 if kind == "max" else 0.0)
    dh, dw = te.reduce_axis((0, kernel), "dh"), te.reduce_axis((0, kernel), "dw")
    reducer = te.max if kind == "max" else te.sum
    out = te.compute(
        (batch, channels, oh, ow),
        lambda n, c, y, x: reducer(pad[n, c, y * stride + dh, x * stride + dw], axis=[dh, dw]),
        name=f"pool_{kind}",
    )
    if kind == "avg":
        total = out
        out = te.compute(
            total.shape, lambda *i: total(*i) / float(kernel * kernel), name="pool_divided"
        )
    return ComputeDAG([data, out])


# name -> function of (this tensor's element, the first input's element, the indices)
ELEMENTWISE: dict[str, Callable[[Any, Any, Sequence[Any]], Any]] = {
    "relu": lambda v, x, i: te.maximum(v, 0.0),
    "scale": lambda v, x, i: v * 0.5 + 1.0,
    "tanh": lambda v, x, i: te.tanh(v),
    "sigmoid": lambda v, x, i: te.sigmoid(v),
    "exp": lambda v, x, i: te.exp(te.minimum(v, 4.0)),
    "root": lambda v, x, i: te.sqrt(te.abs(v) + 1e-3),
    "rsqrt": lambda v, x, i: te.rsqrt(v * v + 1.0),
    "residual": lambda v, x, i: v + x,
    "gate": lambda v, x, i: te.select(x > 0.0, v, v * 0.1),
    "square": lambda v, x, i: v * v,
    "divide": lambda v, x, i: v / (te.abs(x) + 2.0),
    "ramp": lambda v, x, i: v - i[-1].astype("float32"),
    "parity": lambda v, x, i: te.if_then_else((i[-1] % 2).equal(0), v, -v),
    "floor": lambda v, x, i: te.floor(v),
    "gelu": lambda v, x, i: v * (te.erf(v * 0.70710678) + 1.0) * 0.5,
}


def elementwise(shape: Sequence[int], names: Sequence[str]) -> ComputeDAG:
    """One stage per name in ELEMENTWISE."""
    x = te.placeholder(shape, name="x")
    out = x
    for k, name in enumerate(names):
        before, rule = out, ELEMENTWISE[name]
        out = te.compute(shape, lambda *i, t=before, f=rule: f(t(*i), x(*i), i), name=f"{name}_{k}")
    return ComputeDAG([x, out])


def two_outputs(m: int, n: int) -> ComputeDAG:
    """Row sums, and rows divided by them: two results of one chain."""
    x = te.placeholder((m, n), name="x")
    k = te.reduce_axis((0, n), "k")
    total = te.compute((m,), lambda i: te.sum(te.abs(x[i, k]) + 1.0, axis=k), name="total")
    out = te.compute((m, n), lambda i, j: x[i, j] / total[i], name="normalised")
    return ComputeDAG([x, total, out])


def gather(table: tuple[int, int], count: int) -> ComputeDAG:
    """Rows of a table picked by an integer input."""
    data = te.placeholder(table, name="table")
    rows = te.placeholder((count,), "int32", name="rows")
    out = te.compute((count, table[1]), lambda i, j: data[rows[i], j] * 2.0, name="picked")
    return ComputeDAG([data, rows, out])


# -- strategies ------------------------------------------------------------------------------------

sizes = st.integers(1, 9)
small = st.integers(1, 4)
shapes = st.lists(st.integers(1, 7), min_size=1, max_size=3)
epilogues = st.sampled_from(["", "relu", "bias_relu"])


@st.composite
def matmuls(draw: st.DrawFn) -> Drawn:
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    batch = draw(st.sampled_from([0, 0, 1, 3]))
    transposed = draw(st.sampled_from(["nn", "nt", "tn", "tt"]))
    epilogue = draw(epilogues)
    text = f"matmul {m}x{n}x{k} batch={batch} {transposed} {epilogue}"
    return matmul(m, n, k, batch, transposed, epilogue), text


def _window(draw: st.DrawFn, dilations: Sequence[int]) -> tuple[Any, Any, int, int, int]:
    """(size, kernel, stride, padding, dilation) with at least one output."""
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    stride, padding = draw(st.integers(1, 2)), draw(st.integers(0, 1))
    dilation = draw(st.sampled_from(dilations))
    least = [max(1, dilation * (k - 1) + 1 - 2 * padding) for k in kernel]
    size = tuple(draw(st.integers(n, n + 4)) for n in least)
    return size, kernel, stride, padding, dilation


@st.composite
def conv2ds(draw: st.DrawFn) -> Drawn:
    size, kernel, stride, padding, dilation = _window(draw, [1, 1, 2])
    batch, channels, filters = draw(st.integers(1, 2)), draw(small), draw(small)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    layout, epilogue = draw(st.sampled_from(["NCHW", "NHWC"])), draw(epilogues)
    dag = conv2d(
        batch, channels, size, filters, kernel, stride, padding, dilation, groups, layout, epilogue
    )
    text = (
        f"conv2d {layout} {batch}x{channels}x{size} {filters}x{kernel} stride={stride}"
        f" pad={padding} dilation={dilation} groups={groups} {epilogue}"
    )
    return dag, text


@st.composite
def depthwises(draw: st.DrawFn) -> Drawn:
    size, kernel, stride, padding, _ = _window(draw, [1])
    batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 6))
    layout, epilogue = draw(st.sampled_from(["NCHW", "NHWC"])), draw(epilogues)
    dag = depthwise(batch, channels, size, kernel, stride, padding, layout, epilogue)
    text = f"depthwise {layout} {batch}x{channels}x{size} {kernel} stride={stride} pad={padding}"
    return dag, f"{text} {epilogue}"


@st.composite
def softmaxes(draw: st.DrawFn) -> Drawn:
    rows, columns = draw(sizes), draw(sizes)
    return softmax(rows, columns), f"softmax {rows}x{columns}"


@st.composite
def reductions(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    kind = draw(st.sampled_from(sorted(REDUCERS)))
    integers = ["int32"] if kind in ("sum", "max", "min") else []
    dtype = draw(st.sampled_from(["float32", "float32", "float64", *integers]))
    return reduction(shape, axes, kind, dtype), f"{kind} of {dtype}{shape} over {axes}"


@st.composite
def long_reductions(draw: st.DrawFn) -> Drawn:
    """Few rows of many elements: what schedules split over threads."""
    shape = [draw(st.integers(1, 3)), draw(st.integers(33, 130))]
    kind = draw(st.sampled_from(["sum", "max", "norm", "either"]))
    return reduction(shape, [1], kind), f"{kind} of the rows of {shape}"


@st.composite
def elementwise_chains(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    names = draw(st.lists(st.sampled_from(sorted(ELEMENTWISE)), min_size=1, max_size=4))
    return elementwise(shape, names), f"elementwise {shape} {' '.join(names)}"


@st.composite
def transposes(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    order = draw(st.permutations(range(len(shape))))
    return transpose(shape, order), f"transpose {shape} by {order}"


@st.composite
def flattens(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    return flatten(shape), f"flatten {shape}"


@st.composite
def broadcast_adds(draw: st.DrawFn) -> Drawn:
    shape = draw(shapes)
    ones = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    return broadcast_add(shape, ones), f"broadcast add {shape}, ones at {ones}"


@st.composite
def pools(draw: st.DrawFn) -> Drawn:
    kernel, stride = draw(st.tuples(st.integers(2, 3), st.integers(1, 2)))
    padding = draw(st.integers(0, 1))
    length = st.integers(max(1, kernel - 2 * padding), 7)
    size = draw(st.tuples(length, length))
    batch, channels = draw(st.integers(1, 2)), draw(small)
    kind = draw(st.sampled_from(["max", "avg"]))
    text = f"{kind} pool {batch}x{channels}x{size} k={kernel} stride={stride} pad={padding}"
    return pool(batch, channels, size, kernel, stride, padding, kind), text


@st.composite
def pairs(draw: st.DrawFn) -> Drawn:
    m, n = draw(sizes), draw(sizes)
    return two_outputs(m, n), f"two outputs {m}x{n}"


@st.composite
def gathers(draw: st.DrawFn) -> Drawn:
    """Not among `dags()`: their reads have no affine index."""
    table, count = (draw(sizes), draw(sizes)), draw(sizes)
    return gather(table, count), f"gather {count} of {table}"


def dags(most: int = 20_000) -> st.SearchStrategy[Drawn]:
    """Any computation of at most `most` loop iterations, with a line that describes it."""
    kinds = (
        matmuls(), conv2ds(), conv2ds(), conv2ds(), depthwises(), softmaxes(), reductions(),
        long_reductions(), elementwise_chains(), transposes(), flattens(), broadcast_adds(),
        pools(), pairs(),
    )  # fmt: skip
    return st.one_of(*kinds).filter(lambda drawn: points(drawn[0]) <= most)
