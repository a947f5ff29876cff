"""How operators that choose, place and order elements are written in ONNX.

In: the writer of `export.py` and a call.  Out: the name of its value.  Read next: `export.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, TensorType
from tilewright.models.onnx.writer import Exporter, Writer

LAST = np.iinfo(np.int64).min  # an end before the first element


def _take(w: Writer, node: Call) -> str:
    data, indices = node.args
    a = node.attrs
    if a.batch_dims:
        raise ModelError("to_onnx: take", "ONNX has no batch_dims for it", "Use gather.")
    extent = data.shape[a.axis % len(data.shape)]
    at = w.cast(w.name(indices), "int64")
    # ONNX counts from the end where an index is negative, and knows none further out
    least = 0 if a.mode == "clip" else -extent
    at = w.op("Clip", at, w.ints(least, "least"), w.ints(extent - 1, "most"))
    return w.op("Gather", w.name(data), at, axis=a.axis)


def _points_last(w: Writer, node: Call) -> str:
    rank = len(node.args[1].shape)
    name = w.op("Transpose", w.name(node.args[1]), perm=[*range(1, rank), 0])
    return w.cast(name, "int64")


def _gather(w: Writer, node: Call) -> str:
    at = w.cast(w.name(node.args[1]), "int64")
    return w.op("GatherElements", w.name(node.args[0]), at, axis=node.attrs.axis)


def _gather_nd(w: Writer, node: Call) -> str:
    data, at = w.name(node.args[0]), _points_last(w, node)
    return w.op("GatherND", data, at, batch_dims=node.attrs.batch_dims)


def _reduction(node: Call) -> str | None:
    reduction = node.attrs.reduction
    if reduction in ("min", "max"):
        raise ModelError(
            "to_onnx: scatter", f"opset 17 has no reduction={reduction!r}",
            "Use update, add or mul.",
        )  # fmt: skip
    return None if reduction == "update" else str(reduction)


def _scatter_elements(w: Writer, node: Call) -> str:
    data, at, updates = map(w.name, node.args)
    return w.op(
        "ScatterElements", data, w.cast(at, "int64"), updates, axis=node.attrs.axis,
        reduction=_reduction(node),
    )  # fmt: skip


def _scatter_nd(w: Writer, node: Call) -> str:
    data, _, updates = map(w.name, node.args)
    return w.op("ScatterND", data, _points_last(w, node), updates, reduction=_reduction(node))


def _arg(onnx_op: str) -> Exporter:
    def export(w: Writer, node: Call) -> str:
        a = node.attrs
        found = w.op(
            onnx_op, w.name(node.args[0]), axis=a.axis, keepdims=int(a.keepdims),
            select_last_index=int(a.select_last_index),
        )  # fmt: skip
        return w.cast(found, node.dtype)

    return export


def _topk(w: Writer, node: Call) -> str:
    a = node.attrs
    _, found = w.ops(
        "TopK", 2, w.name(node.args[0]), w.ints([a.k], "k"), axis=a.axis,
        largest=int(not a.is_ascend),
    )  # fmt: skip
    return w.cast(found, node.dtype)


def _cumsum(w: Writer, node: Call) -> str:
    a = node.attrs
    axis = w.ints(a.axis, "axis")
    return w.op(
        "CumSum", w.name(node.args[0]), axis, exclusive=int(a.exclusive), reverse=int(a.reverse)
    )


def _cumprod(w: Writer, node: Call) -> str:
    """Opset 17 has no running product: the product of what a triangle leaves of n copies."""
    a, data = node.attrs, node.args[0]
    rank = len(data.shape)
    axis, extent = a.axis % rank, data.shape[a.axis]
    seen = np.tri(extent, extent, -1 if a.exclusive else 0, dtype=bool)
    seen = seen.T if a.reverse else seen
    mask = w.array(seen.reshape(extent, extent, *[1] * (rank - 1 - axis)), "seen")
    one = w.array(np.ones((), data.dtype), "one")
    copies = w.op("Unsqueeze", w.name(data), w.ints([axis], "axes"))
    kept = w.op("Where", mask, copies, one)
    return w.op("ReduceProd", kept, w.ints([axis + 1], "axes"), keepdims=0)


def _strided_slice(w: Writer, node: Call) -> str:
    a = node.attrs
    ends = [b + s * n for b, s, n in zip(a.begin, a.strides, a.extents, strict=True)]
    return w.op(
        "Slice", w.name(node.args[0]), w.ints(a.begin, "starts"),
        w.ints([e if e >= 0 else LAST for e in ends], "ends"),
        w.ints(range(len(ends)), "axes"), w.ints(a.strides, "steps"),
    )  # fmt: skip


def _strided_set(w: Writer, node: Call) -> str:
    data, v = node.args
    a, kind = node.attrs, v.checked_type
    assert isinstance(kind, TensorType)
    begin, strides = (np.reshape(x, (-1, *[1] * len(kind.shape))) for x in (a.begin, a.strides))
    places = np.moveaxis(begin + strides * np.indices(kind.shape), 0, -1)
    return w.op("ScatterND", w.name(data), w.ints(places, "places"), w.name(v))


def _mirror_pad(w: Writer, node: Call) -> str:
    mode = node.attrs.mode
    if mode not in ("edge", "reflect"):
        raise ModelError(
            "to_onnx: nn.mirror_pad", f"opset 17 has no mode {mode!r}", "Use edge or reflect."
        )
    before, after = zip(*node.attrs.pad_width, strict=True)
    return w.op("Pad", w.name(node.args[0]), w.ints([*before, *after], "pads"), mode=mode)


EXPORTERS: dict[str, Exporter] = {
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "cumprod": _cumprod,
    "cumsum": _cumsum,
    "gather": _gather,
    "gather_nd": _gather_nd,
    "nn.mirror_pad": _mirror_pad,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "strided_set": _strided_set,
    "strided_slice": _strided_slice,
    "take": _take,
    "topk": _topk,
}
