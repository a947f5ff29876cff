"""Normalisation layers, under TVM's names: `relay.nn.layer_norm` and its kin.

In: graph values.  Out: `nn.standardize` with the scale and shift behind it, which share its kernel.
Read next: `op/normalize.py`, `models/onnx/ops/normalize.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.sizes import settle
from tilewright.graph.op import call


def standardize(
    data: Expr, axis: int | Sequence[int] = -1, epsilon: float = 1e-5, center: bool = True
) -> Expr:
    """(data - mean) / sqrt(variance + epsilon), mean and variance over `axis`.

    center: False leaves the mean in, and the root is that of the mean square (RMS norm)
    """
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    return call(
        "nn.standardize", data, axis=tuple(int(k) for k in axes), epsilon=float(epsilon),
        center=bool(center),
    )  # fmt: skip


def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Standardised along `axis`, times gamma, plus beta: vectors along that axis.

    center: add beta; scale: multiply by gamma.
    """
    return _affine(standardize(data, axis, epsilon), gamma, beta, axis, center, scale)


def rms_norm(data: Expr, weight: Expr, axis: int = -1, epsilon: float = 1e-5) -> Expr:
    """data over the root of its mean square along `axis`, times weight, a vector along it."""
    made = standardize(data, axis, epsilon, center=False)
    return _affine(made, weight, weight, axis, center=False, scale=True)


def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Each channel of each image standardised; gamma and beta: vectors along `axis`, the channels.

    center: add beta; scale: multiply by gamma.
    """
    rank = len(data.shape)
    inner = [k for k in range(1, rank) if k != axis % rank]
    if not inner:
        raise ModelError(
            f"nn.instance_norm(data={data.shape}, axis={axis})",
            "it has no axis besides batch and channels", "Use nn.layer_norm.",
        )  # fmt: skip
    return _affine(standardize(data, inner, epsilon), gamma, beta, axis, center, scale)


def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Expr:
    """Groups of neighbouring channels standardised; gamma and beta: vectors along `axis`.

    center: add beta; scale: multiply by gamma.
    Raises ModelError unless `num_groups` divides the channels.
    """
    rank = len(data.shape)
    place = f"nn.group_norm(data={data.shape}, num_groups={num_groups}, axis={axis})"
    if not -rank <= axis < rank or axis % rank == 0:
        raise ModelError(place, "the channels are no axis behind the batch", "Use axis=1.")
    at = axis % rank
    channels = data.shape[at]
    if num_groups < 1 or channels % num_groups:
        raise ModelError(
            place, f"{channels} channels do not fall into {num_groups} groups", "Use a divisor."
        )
    each = channels // num_groups
    grouped = tensor.as_shape(data, (*data.shape[:at], num_groups, each, *data.shape[at + 1 :]))
    made = standardize(grouped, [k for k in range(1, rank + 1) if k != at], epsilon)
    along = (num_groups, each, *(1,) * (rank - at - 1))
    for wanted, vector, join in ((scale, gamma, tensor.multiply), (center, beta, tensor.add)):
        if wanted:
            settle(vector, (channels,), data)
            made = join(made, tensor.as_shape(vector, along))
    return tensor.as_shape(made, data.shape)


def l2_normalize(data: Expr, eps: float, axis: Sequence[int] | None = None) -> Expr:
    """data / sqrt(max(sum of squares over `axis`, eps)); axis: None for all."""
    squares = tensor.sum(tensor.multiply(data, data), axis=axis, keepdims=True)
    return tensor.divide(data, tensor.sqrt(tensor.maximum(squares, float(eps))))


def _affine(data: Expr, gamma: Expr, beta: Expr, axis: int, center: bool, scale: bool) -> Expr:
    rank = len(data.shape)
    for wanted, vector, join in ((scale, gamma, tensor.multiply), (center, beta, tensor.add)):
        if wanted:
            extent = data.shape[axis % rank]
            settle(vector, (extent,), data)
            behind = rank - 1 - axis % rank
            data = join(data, tensor.as_shape(vector, (extent, *(1,) * behind)))
    return data


__all__ = [
    "group_norm", "instance_norm", "l2_normalize", "layer_norm", "rms_norm", "standardize",
]  # fmt: skip
