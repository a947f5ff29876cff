"""numpy references of softmax and batch normalisation.

In: arrays.  Out: arrays of the input's dtype, computed in float64.  Read next: `transform.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from tilewright.topi.references.windows import Array
from tilewright_tvm.topi.testing.conv2d import in_type, widest


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """exp(a) over its sum along `axis`."""
    x = a_np.astype(np.float64)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    result: Array = e / e.sum(axis=axis, keepdims=True)
    return result.astype(a_np.dtype)


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of softmax along `axis`."""
    x = a_np.astype(np.float64)
    x = x - x.max(axis=axis, keepdims=True)
    result: Array = x - np.log(np.exp(x).sum(axis=axis, keepdims=True))
    return result.astype(a_np.dtype)


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> list[Array]:
    """[normalised x, moving_mean, moving_var]; all vectors run over `axis`."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    mean, var, g, b = (
        v.astype(np.float64).reshape(shape) for v in (moving_mean, moving_var, gamma, beta)
    )
    out = (x.astype(np.float64) - mean) / np.sqrt(var + epsilon)
    out = out * g if scale else out
    out = out + b if center else out
    return [out.astype(x.dtype), moving_mean, moving_var]


def scale_shift_nchw_python(input_np: Array, scale_np: Array, shift_np: Array) -> Array:
    """input [N, C, H, W] * scale [C] + shift [C]."""
    return scale_shift_nhwc_python(input_np, scale_np[:, None, None], shift_np[:, None, None])


def scale_shift_nhwc_python(input_np: Array, scale_np: Array, shift_np: Array) -> Array:
    """input [N, H, W, C] * scale [C] + shift [C]."""
    return (widest(input_np) * widest(scale_np) + widest(shift_np)).astype(input_np.dtype)


def standardize_python(
    data: Array, axis: int | tuple[int, ...] = -1, epsilon: float = 1e-5, center: bool = True
) -> Array:
    """(data - mean) / sqrt(variance + epsilon) over `axis`; center=False leaves the mean in."""
    x = data.astype(np.float64)
    x = x - x.mean(axis, keepdims=True) if center else x
    result: Array = x / np.sqrt((x * x).mean(axis, keepdims=True) + epsilon)
    return result.astype(data.dtype)


def _scaled(made: Array, gamma: Array, beta: Array, axes: Collection[int]) -> Array:
    """made * gamma + beta, whose axes are `axes` of `made`."""
    wide = [n if k in axes else 1 for k, n in enumerate(made.shape)]
    return in_type(widest(made) * gamma.reshape(wide) + beta.reshape(wide), made)


def layer_norm_python(
    data: Array, gamma: Array, beta: Array, axis: Any, epsilon: float = 1e-5
) -> Array:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta over the axes `axis`."""
    return _scaled(standardize_python(data, axis, epsilon), gamma, beta, axis)


def rms_norm_python(
    data: Array, weight: Array, bias: Array | None, axis: Any, epsilon: float = 1e-5
) -> Array:
    """data / sqrt(mean square + epsilon) * weight + bias over the axes `axis`; bias: or None."""
    over = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    wide = [n if k in over else 1 for k, n in enumerate(data.shape)]
    x = data.astype(np.float64)
    made = x / np.sqrt((x * x).mean(over, keepdims=True) + epsilon) * weight.reshape(wide)
    return in_type(made if bias is None else made + bias.reshape(wide), data)


def instance_norm_python(
    data: Array, gamma: Array, beta: Array, axis: Any, epsilon: float = 1e-5
) -> Array:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta over the axes `axis`.

    gamma, beta: of the channels, axis 1, or with an element for each of what is normalised over
    """
    own = (1,) if gamma.shape == data.shape[1:2] else tuple(axis)
    return _scaled(standardize_python(data, tuple(axis), epsilon), gamma, beta, own)


def group_norm_python(
    data: Array, gamma: Array, beta: Array, num_groups: int, channel_axis: int, axes: Any,
    epsilon: float = 1e-5,
) -> Array:  # fmt: skip
    """Each of `num_groups` groups of channels normalised over it and `axes`; gamma, beta [C]."""
    channels = data.shape[channel_axis]
    split = (num_groups, channels // num_groups)
    grouped = data.reshape(data.shape[:channel_axis] + split + data.shape[channel_axis + 1 :])
    over = (channel_axis + 1, *(a + (a > channel_axis) for a in axes))
    made = standardize_python(grouped, over, epsilon).reshape(data.shape)
    return _scaled(made, gamma, beta, (channel_axis,))


def l2_normalize_python(a_np: Array, eps: float, axis: Any = None) -> Array:
    """a over the square root of its sum of squares along `axis`, which counts as at least `eps`."""
    x = widest(a_np)
    over = tuple(axis) if isinstance(axis, (list, tuple)) else axis
    return in_type(x / np.sqrt(np.maximum((x * x).sum(over, keepdims=True), eps)), a_np)


def lrn_python(a_np: Array, size: int, axis: int, bias: float, alpha: float, beta: float) -> Array:
    """a / (bias + alpha / size * the sum of squares of `size` neighbours along `axis`)**beta."""
    x = np.moveaxis(widest(a_np), axis, -1)
    reach = [(max(k - size // 2, 0), k + size // 2 + 1) for k in range(x.shape[-1])]
    sums = np.stack([(x[..., a:b] ** 2).sum(-1) for a, b in reach], -1)
    return in_type(np.moveaxis(x / (bias + alpha / size * sums) ** beta, -1, axis), a_np)
