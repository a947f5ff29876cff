"""Cross entropy under TVM's names: `relay.nn.cross_entropy`, ...

In: predictions and targets, both of them probabilities.  Out: graph values.
Read next: `graph/functions/loss.py`.
"""

from __future__ import annotations

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor


def cross_entropy(predictions: Expr, targets: Expr) -> Expr:
    """-sum(targets * log(predictions)) over the batch, by its size: one number.

    predictions, targets: probabilities [N, C]
    """
    return cross_entropy_with_logits(tensor.log(predictions), targets)


def cross_entropy_with_logits(predictions: Expr, targets: Expr) -> Expr:
    """`cross_entropy` of logarithms: what log_softmax gives."""
    if predictions.shape != targets.shape or len(targets.shape) != 2 or not targets.shape[0]:
        raise ModelError(
            f"nn.cross_entropy(predictions={predictions.shape}, targets={targets.shape})",
            "they are not probabilities of the same classes", "Give two tensors [N, C].",
        )  # fmt: skip
    total = tensor.sum(tensor.multiply(predictions, targets))
    return tensor.divide(tensor.negative(total), targets.shape[0])


__all__ = ["cross_entropy", "cross_entropy_with_logits"]
open_doors(globals(), __all__, ModelError, "relay.nn")
