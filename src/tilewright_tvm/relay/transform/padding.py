"""`relay.transform.FoldExplicitPadding`: padding in front of a window becomes the window's.

In: any module.  Out: an equal one with fewer operators.  Read next: `graph/op/window.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.expr import Call, Expr, IRModule
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, with_body

_MAXIMA = tuple(f"nn.max_pool{rank}d" for rank in (1, 2, 3))
_MEANS = tuple(f"nn.avg_pool{rank}d" for rank in (1, 2, 3))


def fold_explicit_padding(mod: IRModule) -> IRModule:
    """conv(pad(x, zeros), W)     ->  conv(x, W, padding), where only the image is padded
    avg_pool(pad(x, zeros))       ->  avg_pool(x, padding), where what is padded counts
    max_pool(pad(x, the least))   ->  max_pool(x, padding), as long as each window has an element
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    name = op_name(node)
    if not isinstance(node, Call) or name not in (*CONVOLUTIONS, *_MAXIMA, *_MEANS):
        return node
    pad = node.args[0]
    if not isinstance(pad, Call) or not is_call(pad, "nn.pad") or not _is_its_own(node, pad):
        return node
    layout = [
        c for c in str(node.attrs.get("data_layout", node.attrs.get("layout"))) if c.isalpha()
    ]
    width = dict(zip(layout, pad.attrs.pad_width, strict=True))
    image = [c for c in layout if c in "DHW"]
    if any(any(sides) for c, sides in width.items() if c not in image):
        return node
    added = [width[c][end] for end in (0, 1) for c in image]
    both = tuple(int(p + a) for p, a in zip(node.attrs.padding, added, strict=True))
    if name in _MAXIMA and max(both) >= min(node.attrs.pool_size):
        return node
    return Call(node.op, (pad.args[0], *node.args[1:]), {**node.attrs, "padding": both})


def _is_its_own(node: Call, pad: Call) -> bool:
    """Whether the window would pad with the same numbers."""
    if op_name(node) in _MAXIMA:
        value, kind = pad.attrs.pad_value, node.dtype
        least = np.finfo(kind.storage).min if kind.is_float else kind.least
        return bool(value == least or (kind.is_float and value == -np.inf))
    counts = op_name(node) in CONVOLUTIONS or bool(node.attrs.count_include_pad)
    return bool(pad.attrs.pad_value == 0 and counts)
