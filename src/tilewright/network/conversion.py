"""A network in the element type and the layout that were asked for, before it is tuned or built.

In: a module and its weights.  Out: one that computes the same, to the rounding of the type.
Read next: `graph/passes/layouts.py`, `graph/passes/mixed_precision.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, IRModule, post_order
from tilewright.graph.passes import PASSES, fold_constants, fuse, optimize
from tilewright.graph.passes.data_layout import axis_layout
from tilewright.graph.passes.layouts import convert_layout
from tilewright.graph.passes.mixed_precision import to_mixed_precision
from tilewright.graph.traversal import op_name

CONVOLUTIONS = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")


def in_layout(mod: IRModule, layout: str | None) -> IRModule:
    """Give the network with its convolutions in `layout`; None: as they are.  Raises ModelError."""
    if layout is None:
        return mod
    axis_layout("NCHW", layout, "layout")  # where no convolution looks at it, too
    made = convert_layout(mod, {name: [layout, "default"] for name in CONVOLUTIONS})
    found = _layouts(made)
    if found and layout not in found and found == _layouts(mod):
        raise ModelError(
            "layout", f"the channels of no convolution divide into the blocks of {layout}",
            "Use NHWC or smaller blocks, or leave it out.",
        )  # fmt: skip
    return made


def _layouts(mod: IRModule) -> set[str]:
    """Of the data of its convolutions."""
    nodes = (n for f in mod.functions.values() for n in post_order(f.body))
    calls = (n for n in nodes if isinstance(n, Call) and op_name(n) in CONVOLUTIONS)
    return {str(call.attrs["data_layout"]) for call in calls}


def in_type(
    mod: IRModule, params: Mapping[str, Any], dtype: str, keep_outputs: bool = False
) -> IRModule:
    """Give the network with its weights inside and its contractions in `dtype`.

    Batch norms are folded before anything is rounded.  keep_outputs: in the types that they have
    Raises ModelError.
    """
    folded = optimize(mod, params, [p for p in PASSES if p is not fuse])
    return fold_constants(to_mixed_precision(folded, dtype, keep_outputs))


def converted(
    mods: Sequence[IRModule], params: Mapping[str, Any], dtype: str = "float32",
    layout: str | None = None,
) -> tuple[list[IRModule], dict[str, Any]]:  # fmt: skip
    """Give the network for each size, in its element type and layout, and the weights that are not
    inside.  Raises ModelError."""
    if dtype != "float32":
        mods, params = [in_type(mod, params, dtype) for mod in mods], {}
    return [in_layout(mod, layout) for mod in mods], dict(params)
