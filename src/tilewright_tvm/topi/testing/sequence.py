"""numpy references of recurrent layers, losses and searches.

In: arrays.  Out: arrays.  Read next: `dense.py`.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilewright.topi.references.windows import Array


def lstm_python(
    Xs: Array, Wi: Array, Wh: Array, Bi: Any = None, Bh: Any = None, h_init: Any = None,
    c_init: Any = None, proj: Any = None, p_i: Any = None, p_f: Any = None, p_o: Any = None,
    reverse: bool = False, weight_layout: str = "IFGO",
) -> tuple[Array, Array]:  # fmt: skip
    """Hidden and cell states of each step, in the order in which they are made."""
    batch, hidden = Xs.shape[1], len(Wi) // 4
    h: Any = np.zeros((batch, Wh.shape[1])) if h_init is None else h_init
    c: Any = np.zeros((batch, hidden)) if c_init is None else c_init
    biases = sum(b.astype(np.float64) for b in (Bi, Bh) if b is not None)
    hs, cs = [], []
    for x in Xs[::-1] if reverse else Xs:
        gates = x.astype(np.float64) @ Wi.T + h @ Wh.T + biases
        i, f, g, o = (
            gates[:, k * hidden : (k + 1) * hidden] for k in map(weight_layout.index, "IFGO")
        )
        before = c
        c = _sigmoid(f + (0 if p_f is None else p_f * before)) * before
        c = c + _sigmoid(i + (0 if p_i is None else p_i * before)) * np.tanh(g)
        h = _sigmoid(o + (0 if p_o is None else p_o * c)) * np.tanh(c)
        h = h if proj is None else h @ proj.T
        hs.append(h)
        cs.append(c)
    return np.stack(hs).astype(Xs.dtype), np.stack(cs).astype(Xs.dtype)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def nll_loss(
    predictions: Array, targets: Array, weights: Array, reduction: str = "mean",
    ignore_index: int = -100,
) -> Array:  # fmt: skip
    """Minus the weighted predictions [N, C, ..] of the targets [N, ..], or their mean or sum."""
    taken = np.where(targets == ignore_index, 0, targets)
    weight = np.where(targets == ignore_index, 0, weights.astype(np.float64)[taken])
    each = -np.take_along_axis(predictions, taken[:, None], 1)[:, 0] * weight
    if reduction == "none":
        return each.astype(predictions.dtype)
    total = each.sum() / (weight.sum() if reduction == "mean" else 1)
    return np.asarray(total, predictions.dtype)


def searchsorted_ref(
    sorted_sequence: Array, values: Array, right: bool = False, out_dtype: str = "int64"
) -> Array:
    """Where each value belongs in its row of sorted numbers."""
    side: Literal["left", "right"] = "right" if right else "left"
    rows = sorted_sequence.reshape(-1, sorted_sequence.shape[-1])
    asked = values.reshape(len(rows), -1)
    found = [np.searchsorted(r, v, side) for r, v in zip(rows, asked, strict=True)]
    return np.array(found).reshape(values.shape).astype(out_dtype)
