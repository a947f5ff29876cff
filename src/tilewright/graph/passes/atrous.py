"""Convolutions between blocks in the batch and blocks in space become dilated ones.

In: a module as frameworks without dilated convolutions write it.  Out: an equal one in which the
blocks never exist.  Read next: `graph/functions/blocks.py`, which spells the blocks.
"""

from __future__ import annotations

from tilewright.graph.expr import Call, Expr, IRModule
from tilewright.graph.functions.blocks import batch_to_space_nd, space_to_batch_nd
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body

# Of `relay.nn.batch_to_space_nd` of a convolution of `relay.nn.space_to_batch_nd`, from behind.
_CHAIN = (
    "strided_slice", "reshape", "transpose", "reshape", "nn.conv2d", "reshape", "transpose",
    "reshape", "nn.pad",
)  # fmt: skip


def flatten_atrous(mod: IRModule) -> IRModule:
    """batch_to_space_nd(conv2d(space_to_batch_nd(x), W))  ->  conv2d(x, W, dilation=the blocks)

    Where the convolution has the layout NHWC, neither padding nor strides, and no more is cut off
    behind it than was padded in front.
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, lambda old, n: _flat(n))))


def _flat(node: Expr) -> Expr:
    chain = _chain(node)
    if chain is None:
        return node
    back, conv, padding = chain[3], chain[4], chain[8]
    a, x = conv.attrs, padding.args[0]
    plain = not any(a.padding) and set((*a.strides, *a.dilation)) == {1}
    if a.data_layout != "NHWC" or not plain or padding.attrs.pad_value or len(back.shape) != 6:
        return node
    blocks, pads = list(back.shape[:2]), [tuple(p) for p in padding.attrs.pad_width[1:3]]
    crops = [
        (begin, whole - begin - kept)
        for begin, whole, kept in zip(
            chain[0].attrs.begin[1:3], chain[1].shape[1:3], node.shape[1:3], strict=True
        )
    ]
    if any(n % b for n, b in zip(padding.shape[1:3], blocks, strict=True)):
        return node
    moved = Call(conv.op, (space_to_batch_nd(x, blocks, pads), conv.args[1]), a)
    again = _chain(batch_to_space_nd(moved, blocks, crops))
    if again is None or any(
        m.attrs != n.attrs or m.shape != n.shape for m, n in zip(again, chain, strict=True)
    ):
        return node
    # of both axes in front, then behind
    sides = tuple(p[k] - c[k] for k in (0, 1) for p, c in zip(pads, crops, strict=True))
    if min(sides) < 0:
        return node
    dilated = {**a, "padding": sides, "dilation": tuple(blocks)}
    return Call(conv.op, (x, conv.args[1]), dilated)


def _chain(node: Expr) -> list[Call] | None:
    found: list[Call] = []
    for name in _CHAIN:
        if not isinstance(node, Call) or not is_call(node, name):
            return None
        found.append(node)
        node = node.args[0]
    return found
