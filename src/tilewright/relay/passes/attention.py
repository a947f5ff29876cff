"""Attention as one kernel: softmax(a b) c with all that stands in between.

In: a function before fusion.  Out: groups for `fuse`: product, elementwise steps and views, the
softmax, the same again, product.  Whether they are one kernel or several is decided by what was
measured: `compile/extract.py` offers both, `compile/grouping.py` takes the faster one.
Read next: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.relay.graph.expr import Call, Expr, IRModule, TensorType
from tilewright.relay.graph.traversal import op_name, users
from tilewright.relay.op import TABLE, Pattern
from tilewright.relay.passes.dead_code import is_view

JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)
PRODUCT, SOFTMAX = "nn.batch_matmul", "nn.softmax"
LONGEST = 8  # steps between a product and the softmax


def attentions(body: Expr) -> list[list[Call]]:
    """The steps of each attention in `body`, in order; the last one is its result."""
    readers = users(body)
    found = []
    for node in readers:
        if op_name(node) == PRODUCT and isinstance(node, Call) and not node.attrs.transpose_a:
            after = _path(node.args[0], SOFTMAX, readers)
            before = after and _path(after[0].args[0], PRODUCT, readers)
            if after and before and _by_rows(after[0]) and not before[0].attrs.transpose_a:
                found.append([*before, *after, node])
    return found


def has_attention(mod: IRModule) -> bool:
    return any(attentions(f.body) for f in mod.functions.values())


def is_attention(steps: Sequence[str]) -> bool:
    """Whether the operators of a group are those of an attention."""
    return SOFTMAX in steps and list(steps).count(PRODUCT) == 2


def _by_rows(softmax: Call) -> bool:
    return softmax.attrs.axis in (-1, len(softmax.shape) - 1)


def _path(
    end: Expr, start: str, readers: Mapping[Expr, Sequence[Expr]], most: int = LONGEST
) -> list[Call]:
    """The calls from an operator `start` to `end`, each read by the next one alone; [] for none."""
    if not isinstance(end, Call) or len(readers[end]) != 1 or most < 0:
        return []
    if op_name(end) == start:
        return [end]
    for arg in end.args:
        if _keeps_rows(end, arg) and (path := _path(arg, start, readers, most - 1)):
            return [*path, end]
    return []


def _keeps_rows(node: Call, arg: Expr) -> bool:
    """Whether `node` computes each element from the same one of `arg`, in the same matrix."""
    if not op_name(node) or not isinstance(arg.checked_type, TensorType):
        return False
    if is_view(node):
        return len(arg.shape) > 1 and node.shape[-2:] == arg.shape[-2:]
    return TABLE[op_name(node)].pattern in JOINS and node.shape == arg.shape
