"""Discrete Fourier transforms of signals and of their frames; tables of filters."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.fourier import transform
from tilewright.graph.functions.indexing import take
from tilewright.graph.leaves import const
from tilewright.models.onnx.checks import element_type
from tilewright.models.onnx.node import Converter, Node, number


def _dft(n: Node) -> Expr:
    rank, length = len(n[0].shape), n.ints("dft_length", 1)
    given = n.ints("axis", 2) if n.opset >= 20 else [n.attr("axis", 1)]
    axis = n.axis((given or [-2])[0], rank)
    return transform(
        n[0], axis, length[0] if length else None, n.place, n.room,
        inverse=n.flag("inverse"), onesided=n.flag("onesided"),
    )  # fmt: skip


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
        frames = tensor.multiply(frames, tensor.as_shape(n[2], (length, 1)))
    return transform(frames, 2, None, n.place, n.room, onesided=n.flag("onesided", True))


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
