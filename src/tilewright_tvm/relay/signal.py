"""Windows of tensors and their Fourier transforms: `relay.sliding_window`, `relay.stft`, ...

In: graph values and TVM's keywords.  Out: gathers at constant places, products with tables.
Read next: `graph/functions/fourier.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Tuple
from tilewright.graph.functions import tensor
from tilewright.graph.functions.fourier import transform
from tilewright.graph.functions.indexing import stack, strided_slice, take
from tilewright.graph.leaves import const

_TABLE_BYTES = 1 << 30  # of cosines and sines


def sliding_window(
    data: Expr, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> Expr:
    """All windows of `data` over the axes from `axis` on: the axes before it, then how often each
    one fits, then `window_shape`."""
    rank = len(data.shape)
    place = f"sliding_window(data={data.shape}, axis={axis}, window_shape={tuple(window_shape)})"
    first = axis + rank if axis < 0 else axis
    if not 0 <= first < rank or not len(window_shape) == len(strides) == rank - first:
        raise ModelError(
            place, "there is not one extent and one stride for each axis from `axis` on",
            "Give as many as there are axes behind it, and it.",
        )  # fmt: skip
    made = data
    for k, (window, step) in enumerate(zip(window_shape, strides, strict=True)):
        extent = data.shape[first + k]
        if not 1 <= window <= extent or step < 1:
            raise ModelError(
                place, f"windows of {window} every {step} of {extent}", "Use windows within it."
            )
        starts = np.arange(0, extent - window + 1, step, dtype="int32")
        at = starts[:, None] + np.arange(window, dtype="int32")
        made = take(made, const(at), axis=first + 2 * k)
    count = rank - first
    order = [*range(first), *(first + 2 * k for k in range(count)),
             *(first + 2 * k + 1 for k in range(count))]  # fmt: skip
    return tensor.transpose(made, order)


def dft(re_data: Expr, im_data: Expr, inverse: bool = False) -> Tuple:
    """(real, imaginary) parts of the transform of re_data + i * im_data along the last axis."""
    place = f"dft(re_data={re_data.shape}, im_data={im_data.shape})"
    if re_data.shape != im_data.shape or not re_data.shape or re_data.dtype != im_data.dtype:
        raise ModelError(place, "the parts differ in shape or type", "Give two alike.")
    both = stack([re_data, im_data], -1)
    rank = len(both.shape)
    made = transform(both, rank - 2, None, place, _room(place), inverse=bool(inverse))
    parts = [strided_slice(made, [k], [k + 1], axes=[rank - 1]) for k in range(2)]
    return Tuple([tensor.squeeze(p, [rank - 1]) for p in parts])


def stft(
    data: Expr,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: Expr | None = None,
    normalized: bool = False,
    onesided: bool = True,
) -> Expr:
    """Transforms of frames of data [B, N], one of `n_fft` points every `hop_length`:
    [B, frequencies, frames, 2], real and imaginary parts.

    window: [win_length], what the points of a frame are multiplied with; win_length: n_fft
    normalized: divided by the root of n_fft; onesided: only the n_fft // 2 + 1 first frequencies
    """
    place = f"stft(data={data.shape}, n_fft={n_fft}, hop_length={hop_length})"
    if len(data.shape) != 2 or not 1 <= n_fft <= data.shape[1] or hop_length < 1:
        raise ModelError(
            place, "data have no such frames", "Give [batch, points] and frames within them."
        )
    if win_length != n_fft or (window is not None and window.shape != (n_fft,)):
        raise ModelError(
            place, f"the window has another length than the {n_fft} points of a frame",
            "Use win_length=n_fft, and a window filled up with zeros.",
        )  # fmt: skip
    frames = sliding_window(data, 1, [n_fft], [hop_length])
    if window is not None:
        frames = tensor.multiply(frames, tensor.cast(window, data.dtype))
    scale = 1 / math.sqrt(n_fft) if normalized else 1.0
    made = transform(
        tensor.expand_dims(frames, 3), 2, None, place, _room(place), onesided=bool(onesided),
        scale=scale,
    )  # fmt: skip
    return tensor.transpose(made, (0, 2, 1, 3))


def _room(place: str) -> Callable[[int], None]:
    def check(size: int) -> None:
        if size > _TABLE_BYTES:
            raise ModelError(
                place, f"its table of cosines and sines takes {size} bytes",
                f"Use shorter signals: a network has {_TABLE_BYTES >> 30} GiB for it.",
            )  # fmt: skip

    return check


__all__ = ["dft", "sliding_window", "stft"]


def fifo_buffer(data: Expr, buffer: Expr, axis: int) -> Expr:
    """`buffer` with `data` behind it along `axis` and as much gone from its front."""
    rank = len(buffer.shape)
    place = f"nn.fifo_buffer(data={data.shape}, buffer={buffer.shape}, axis={axis})"
    if len(data.shape) != rank or not -rank <= axis < rank:
        raise ModelError(place, "they have not that axis", "Give two tensors of one rank.")
    axis %= rank
    kept, extent = data.shape[axis], buffer.shape[axis]
    if kept > extent:
        raise ModelError(place, "the data are longer than the buffer", "Use a longer buffer.")
    rest = strided_slice(buffer, [kept], [extent], axes=[axis])
    return tensor.concatenate([rest, data], axis)
