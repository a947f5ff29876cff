"""Discrete Fourier transforms, as products with tables of cosines and sines; tables of filters."""

from __future__ import annotations

import math

import numpy as np

from tilewright.relay import tensor
from tilewright.relay.exchange.onnx.checks import element_type
from tilewright.relay.exchange.onnx.node import Converter, Node, number
from tilewright.relay.graph.expr import Array, Expr, const
from tilewright.relay.indexing import strided_slice, take
from tilewright.relay.linear import product


def _table(n: Node, taken: int, parts: int, size: int, inverse: bool, onesided: bool) -> Array:
    """What each of `taken` points, of `parts` numbers (real, imaginary), adds to each result:
    [taken, parts, results, their parts].

    size: of the transform; onesided: half of the results, or of the points of an inverse, are left
    out, which follow from the others as the signal is real
    """
    real = inverse and onesided
    results = size // 2 + 1 if onesided and not inverse else size
    n.room(taken * parts * results * 2 * 8)
    angle = np.outer(np.arange(taken), np.arange(results)) % size * (2 * math.pi / size)
    cosine, sine = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    table = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
    if inverse:
        table /= size
    if real:  # each point but the first and, of an even size, the last stands for two
        double = [1 if k == 0 or 2 * k == size else 2 for k in range(taken)]
        table = table[..., :1] * np.reshape(double, (-1, 1, 1, 1))
    return np.asarray(table[:, :parts])


def _transformed(
    n: Node, x: Expr, axis: int, size: int | None, inverse: bool, onesided: bool
) -> Expr:
    """The transform of `x` [.., parts] along `axis`."""
    rank, parts = len(x.shape), x.shape[-1]
    n.require(
        axis < rank - 1 and parts in (1, 2), f"axis {axis} of {x.shape} is no signal",
        "The last axis holds a number and its imaginary part, or the number alone.",
    )  # fmt: skip
    points, half = x.shape[axis], inverse and onesided
    size = size or (2 * (points - 1) if half else points)
    n.require(size >= 1, f"its length is {size}", "Use 1 or more.")
    taken = min(points, size // 2 + 1 if half else size)
    if taken < points:
        x = strided_slice(x, [0], [taken], axes=[axis])
    order = [*(k for k in range(rank - 1) if k != axis), axis, rank - 1]
    table = _table(n, taken, parts, size, inverse, onesided)
    moved = tensor.transpose(x, order)
    rows = tensor.reshape(moved, (*moved.shape[:-2], taken * parts))
    weights = const(table.reshape(taken * parts, -1), x.dtype)
    made = tensor.reshape(product(rows, weights), (*moved.shape[:-2], *table.shape[2:]))
    return tensor.transpose(made, [order.index(k) for k in range(rank)])


def _dft(n: Node) -> Expr:
    rank, length = len(n[0].shape), n.ints("dft_length", 1)
    given = n.ints("axis", 2) if n.opset >= 20 else [n.attr("axis", 1)]
    axis = n.axis((given or [-2])[0], rank)
    return _transformed(
        n, n[0], axis, length[0] if length else None, n.flag("inverse"), n.flag("onesided")
    )


def _stft(n: Node) -> Expr:
    x, step = n[0], n.ints("frame_step", 1) or [0]
    n.require(len(x.shape) == 3, f"the signal has shape {x.shape}", "[batch, length, 1] is needed.")
    given = n.ints("frame_length", 3)
    length = given[0] if given else n[2].shape[0] if n.has(2) else x.shape[1]
    n.require(
        step[0] >= 1 and 1 <= length <= x.shape[1],
        f"frames of {length} every {step[0]} of {x.shape[1]} points", "Use frames within it.",
    )  # fmt: skip
    starts = np.arange(0, x.shape[1] - length + 1, step[0], dtype="int32")
    frames = take(x, const(starts[:, None] + np.arange(length, dtype="int32")), axis=1)
    if n.has(2):
        n.require(n[2].shape == (length,), f"the window has shape {n[2].shape}", "Give one number "
                  "for each point of a frame.")  # fmt: skip
        frames = tensor.multiply(frames, tensor.reshape(n[2], (length, 1)))
    return _transformed(n, frames, 2, None, False, n.flag("onesided", True))


def _mel(n: Node) -> Array:
    """Triangles over the bins of a spectrum, evenly spaced in mel: [bins, triangles]."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    count, length, rate, low, high = (number(n, name, k, 0.0) for k, name in enumerate(names))
    n.require(
        count >= 1 and length >= 1 and 0 <= low <= high <= rate / 2,
        f"{count:g} triangles from {low:g} to {high:g} Hz at {rate:g} Hz", "Use up to half of it.",
    )  # fmt: skip
    bins = int(length) // 2 + 1
    n.room(bins * int(count) * 8)
    ends = [2595 * math.log10(1 + hertz / 700) for hertz in (low, high)]
    mels = ends[0] + np.arange(int(count) + 2) * (ends[1] - ends[0]) / (count + 2)
    corners = ((length + 1) * 700 * (10 ** (mels / 2595) - 1)) // rate
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    place = np.arange(bins)[:, None]
    rising = (place - left) / np.maximum(middle - left, 1)
    falling = (right - place) / np.maximum(right - middle, 1)
    made = np.where(place < middle, rising, np.where(right > middle, falling, place == middle))
    return np.clip(made, 0, None).astype(element_type(n.attr("output_datatype", 1)))


CONVERTERS: dict[str, Converter] = {
    "DFT": _dft,
    "MelWeightMatrix": _mel,
    "STFT": _stft,
}
