"""Loss functions under TVM's names.

In: predictions and the classes that are right.  Out: graph values.  A class is found by comparison:
nothing is read at an index that the data hold.  Read next: `normalize.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const

REDUCTIONS = ("none", "sum", "mean")


def nll_loss(
    predictions: Expr,
    targets: Expr,
    weights: Expr | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
) -> Expr:
    """Negative log likelihood: -predictions[n, targets[n, ...], ...] * weights[targets[n, ...]].

    predictions: logarithms [N, C, ...]; targets: integers [N, ...]; weights [C]: None for ones
    reduction: "none" keeps the shape of the targets, "sum" adds, "mean" divides by the weights' sum
    ignore_index: a target that counts for nothing; so do those that are no class
    """
    place = f"nn.nll_loss(predictions={predictions.shape}, targets={targets.shape})"
    if reduction not in REDUCTIONS:
        raise ModelError(place, f"reduction={reduction!r} is not known", 'Use "mean" or "sum".')
    shape = predictions.shape
    if len(shape) < 2 or targets.shape != (shape[0], *shape[2:]):
        raise ModelError(
            place, "the targets are no class for each prediction",
            "Give predictions [N, C, ...] and targets [N, ...].",
        )  # fmt: skip
    rank, classes = len(shape), shape[1]
    if not targets.tensor_type.dtype.is_int:
        raise ModelError(place, f"the targets are {targets.dtype}", "Cast them to int32.")
    kind = targets.tensor_type.dtype.storage
    if ignore_index is not None:
        none = const(-1, str(targets.dtype))
        ignored = tensor.equal(targets, const(ignore_index, str(targets.dtype)))
        targets = tensor.where(ignored, none, targets)
    along = (1, classes, *(1,) * (rank - 2))
    hit = tensor.equal(
        tensor.expand_dims(targets, 1), const(np.arange(classes, dtype=kind).reshape(along))
    )
    weight = None if weights is None else tensor.as_shape(weights, along)
    zero = const(0, predictions.dtype)
    weighed = predictions if weight is None else tensor.multiply(predictions, weight)
    loss = tensor.negative(tensor.sum(tensor.where(hit, weighed, zero), axis=1))
    if reduction == "none":
        return loss
    if reduction == "sum":
        return tensor.sum(loss)
    each = const(1, predictions.dtype) if weight is None else weight
    share = tensor.sum(tensor.where(hit, each, zero))
    return tensor.divide(tensor.sum(loss), share)


__all__ = ["nll_loss"]
