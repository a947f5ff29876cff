"""Arithmetic of shapes: operators whose value import computes once their inputs are known.

In: a `Node` all of whose inputs are known.  Out: arrays.  Here are those that have no converter or
whose results have shapes that depend on data; every other is computed by its converter and the
numpy rule of its row.  Sizes are asked for (`room`) before anything is made.
Read next: `importer.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Array


def _arrays(n: Node) -> list[Array]:
    return [a for k in range(len(n.names)) if (a := n.static(k, f"input {k}")) is not None]


def _gather(n: Node) -> Array:
    data, index = _arrays(n)
    axis = n.axis(n.attr("axis", 0), data.ndim)
    n.require(
        index.size == 0 or (-data.shape[axis] <= index.min() and index.max() < data.shape[axis]),
        f"an index is outside the extent {data.shape[axis]}", "The model is damaged.",
    )  # fmt: skip
    n.room(index.size * data.size // max(data.shape[axis], 1) * data.itemsize)
    return np.asarray(np.take(data, index, axis))


def _slice(n: Node) -> Array:
    data = _arrays(n)[0]
    begins, ends = n.ints("starts", 1) or [], n.ints("ends", 2) or []
    axes = n.ints("axes", 3) or list(range(len(begins)))
    steps = n.ints("steps", 4) or [1] * len(begins)
    n.require(
        len(begins) == len(ends) == len(axes) == len(steps) and 0 not in steps,
        f"starts {begins}, ends {ends}, axes {axes} and steps {steps} do not fit each other",
        "Give one of each for every axis; no step may be 0.",
    )
    window = [slice(None)] * data.ndim
    for begin, end, axis, step in zip(begins, ends, axes, steps, strict=True):
        extent = data.shape[n.axis(axis, data.ndim)]
        last = -extent - 1 if step < 0 and end < -extent else end  # counted from the end: before 0
        window[n.axis(axis, data.ndim)] = slice(begin, None if last == -extent - 1 else last, step)
    return np.ascontiguousarray(data[tuple(window)])


def _range(n: Node) -> Array:
    start, limit, step = (a.reshape(-1)[0] for a in _arrays(n))
    n.require(step != 0, "its step is 0", "Use another.")
    count = max(math.ceil((limit.item() - start.item()) / step.item()), 0)
    n.room(count * start.dtype.itemsize)
    return np.asarray(start + np.arange(count, dtype=start.dtype) * step, start.dtype)


def _tile(n: Node) -> Array:
    data, times = _arrays(n)
    counts = [int(c) for c in times.reshape(-1)]
    n.require(len(counts) == data.ndim and min(counts, default=0) >= 0, "repeats do not fit", "")
    n.room(data.nbytes * math.prod(counts))
    return np.tile(data, counts)


def _expand(n: Node) -> Array:
    data, shape = _arrays(n)
    wanted = tuple(int(e) for e in shape.reshape(-1))
    n.room(math.prod(wanted) * max(data.size, 1) * data.itemsize)
    try:
        return np.ascontiguousarray(np.broadcast_to(data, np.broadcast_shapes(data.shape, wanted)))
    except ValueError:
        raise n.refuse(f"{data.shape} does not stretch to {wanted}") from None


def _nonzero(n: Node) -> Array:
    return np.array(np.nonzero(np.atleast_1d(_arrays(n)[0])), "int64")


def _compress(n: Node) -> Array:
    data, keep = _arrays(n)
    axis = n.attr("axis")
    if axis is None:
        return np.asarray(data.reshape(-1)[: keep.size][keep.astype(bool)[: data.size]])
    at = n.axis(axis, data.ndim)
    return np.asarray(np.compress(keep.astype(bool)[: data.shape[at]], data, at))


def _unique(n: Node) -> tuple[Array, ...]:
    """Values, where each is first, which of them each element is, how often each is there."""
    data, axis = _arrays(n)[0], n.attr("axis")
    found = np.unique(
        data, True, True, True, axis=None if axis is None else n.axis(axis, data.ndim)
    )
    values, first, inverse, counts = (np.asarray(a) for a in found)
    inverse = inverse.reshape(-1)
    if not n.flag("sorted", True):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, 0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return values, first.astype("int64"), inverse.astype("int64"), counts.astype("int64")


def _split(n: Node) -> list[Array]:
    data = _arrays(n)[0]
    axis = n.axis(n.attr("axis", 0), data.ndim)
    extent, sizes, count = data.shape[axis], n.ints("split", 1), n.attr("num_outputs")
    parts = count or len(n.outputs)
    each = -(-extent // max(parts, 1))
    sizes = sizes or [max(min(each, extent - k * each), 0) for k in range(parts)]
    n.require(sum(sizes) == extent and min(sizes) >= 0, f"{sizes} do not fill {extent}", "")
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


def _binary(function: Any) -> Converter:
    def compute(n: Node) -> Array:
        a, b = _arrays(n)
        n.require(a.dtype == b.dtype, f"it has elements of {a.dtype} and {b.dtype}", "Cast one.")
        try:
            n.room(math.prod(np.broadcast_shapes(a.shape, b.shape)) * a.itemsize)
        except ValueError:
            raise n.refuse(f"shapes {a.shape} and {b.shape} do not fit each other") from None
        return np.asarray(function(a, b))

    return compute


def _quotient(a: Array, b: Array) -> Array:
    """Integers round to zero; what is divided by zero is zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    whole = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))
    return np.asarray(np.where(b == 0, 0, whole), a.dtype)


ARITHMETIC: dict[str, Converter] = {
    "And": _binary(np.logical_and),
    "Compress": _compress,
    "Div": _binary(_quotient),
    "Expand": _expand,
    "Gather": _gather,
    "GreaterOrEqual": _binary(np.greater_equal),
    "LessOrEqual": _binary(np.less_equal),
    "Mod": lambda n: _binary(np.fmod if n.flag("fmod") else np.mod)(n),
    "NonZero": _nonzero,
    "Not": lambda n: np.logical_not(_arrays(n)[0]),
    "Or": _binary(np.logical_or),
    "Range": _range,
    "Sign": lambda n: np.sign(_arrays(n)[0]),
    "Slice": _slice,
    "Split": _split,
    "Tile": _tile,
    "Unique": _unique,
    "Xor": _binary(np.logical_xor),
}
