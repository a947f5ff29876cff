"""Operators whose results are as long as the data say, and numbers that data decide.

Networks with them run under `relay.create_executor("vm")` and `relay.vm`.
"""

from __future__ import annotations

import operator

import numpy as np

from tilewright.graph.expr import Array, Expr, TupleGetItem
from tilewright.graph.functions import tensor
from tilewright.graph.functions.boxes import selected_boxes
from tilewright.graph.functions.indexing import take
from tilewright.graph.leaves import const
from tilewright.graph.traversal import unpacked
from tilewright.models.torch.node import Converter, Node, as_type
from tilewright.models.torch.ops.indexing import places
from tilewright.models.torch.ops.movement import reshaped


def _non_zero(n: Node) -> Expr:
    return n.computed(lambda held: np.argwhere(held).astype("int64"), n["self"])


def _masked_select(n: Node) -> Expr:
    data, mask = n["self"], n["mask"]
    shape = tuple(map(int, np.broadcast_shapes(data.shape, mask.shape)))
    data, mask = (v if v.shape == shape else tensor.broadcast_to(v, shape) for v in (data, mask))
    return take(reshaped(data, (data.tensor_type.size,)), places(n, mask), 0)


def _several(n: Node, made: Expr) -> list[Expr]:
    return [unpacked(TupleGetItem(made, k)) for k in range(len(n.results))]


def _unique(n: Node) -> list[Expr]:
    """[different elements, or slices of an axis, in rising order; which each one is; how often each
    is there]; what is not asked for is empty."""
    axis = n.args.get("dim")
    inverse, counts = (bool(n.get(f"return_{k}", False)) for k in ("inverse", "counts"))

    def found(array: Array) -> tuple[Array, ...]:
        values, which, often = np.unique(
            array, return_inverse=True, return_counts=True, axis=axis, equal_nan=False
        )
        which = which.reshape(array.shape if axis is None else -1)
        return values, _if(inverse or len(n.results) == 2, which), _if(counts, often)

    return _several(n, n.computed(found, n["self"], several=True))


def _runs(n: Node) -> list[Expr]:
    """Likewise of equal elements, or slices of an axis, that follow each other."""
    axis = n.args.get("dim")
    inverse, counts = (bool(n.get(f"return_{k}", False)) for k in ("inverse", "counts"))

    def found(array: Array) -> tuple[Array, ...]:
        rows = array.reshape(-1) if axis is None else np.moveaxis(array, axis, 0)
        differs = rows[1:] != rows[:-1]
        differs = differs.any(axis=tuple(range(1, rows.ndim)))
        is_new = np.concatenate([[True], differs])[: len(rows)]
        values = rows[is_new]
        which = (np.cumsum(is_new) - 1).reshape(array.shape if axis is None else -1)
        often = np.diff([*np.flatnonzero(is_new), len(rows)])
        return (
            values if axis is None else np.moveaxis(values, 0, axis),
            _if(inverse, which), _if(counts, often),
        )  # fmt: skip

    return _several(n, n.computed(found, n["self"], several=True))


def _if(asked: bool, array: Array) -> Array:
    return (array if asked else np.empty(0)).astype("int64")


def _bin_count(n: Node) -> Expr:
    least = n.integer("minlength", 0)
    n.require(n.get("weights") is None, "PyTorch exports its element type wrongly where there are "
              "weights", "Add the weights up with index_add.")  # fmt: skip
    return n.computed(lambda data: np.bincount(data, minlength=least).astype("int64"), n["self"])


def _repeated(n: Node) -> Expr:
    """Each place as often as it says."""
    return n.computed(
        lambda often: np.repeat(np.arange(len(often)), often).astype(often.dtype), n["repeats"]
    )


def _nms(n: Node) -> Expr:
    overlap = float(n.args["iou_threshold"])

    def chosen(boxes: Array, scores: Array) -> Array:
        ranks = np.empty(len(scores))
        ranks[np.argsort(-scores, kind="stable")] = np.arange(len(scores), 0, -1)
        return selected_boxes(
            boxes[None], ranks[None, None], len(scores), overlap, -np.inf
        )[:, 2]  # fmt: skip

    return n.computed(chosen, n["dets"], n["scores"])


def _extent(n: Node) -> Expr:
    data = n["self"]
    return const(data.shape[n.axis()], "int64")


def _number(n: Node) -> Expr:
    data = as_type(n["self"], n.dtype)
    return reshaped(data, ())


def _arithmetic(name: str) -> Converter:
    """Of numbers of Python's, which are known when this is asked."""
    compute = getattr(operator, name)

    def convert(n: Node) -> Expr:
        return const(compute(*n.args.values()), n.dtype)

    return convert


NUMBERS: dict[str, Converter] = {  # of Python's
    "sym_size.int": _extent,
    "_local_scalar_dense.default": _number,
    **{name: _arithmetic(name) for name in ("add", "sub", "mul", "floordiv", "mod", "neg")},
}
CONVERTERS: dict[str, Converter] = {
    "nonzero.default": _non_zero,
    "masked_select.default": _masked_select,
    "_unique2.default": _unique,
    "_unique.default": _unique,
    "unique_dim.default": _unique,
    "unique_consecutive.default": _runs,
    "bincount.default": _bin_count,
    "repeat_interleave.Tensor": _repeated,
    "torchvision.nms.default": _nms,
    **NUMBERS,
}
