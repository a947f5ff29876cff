"""Heads of keys and values that several heads of queries share are read where they are.

In: a canonical module.  Out: an equal one, in which the second operand of a batched product of one
row is not repeated: the rows that meet the same matrix become the rows of one product with it.
And the other way round, for attentions that become one kernel, which repeats by index arithmetic.
Read next: `moves.py`, which brings the views that this leaves behind the steps that follow.
"""

from __future__ import annotations

from math import prod

from tilewright.graph.expr import Call, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.passes.attention import has_rows_of_heads, softmax_between_products
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body

PRODUCT = "nn.batch_matmul"


def group_heads(mod: IRModule) -> IRModule:
    """batch_matmul(a, reshape(broadcast_to(b)))  ->  reshape(batch_matmul(reshape(a), b)), for `a`
    of one row and a `b` of which each matrix is repeated for several neighbours in the batch.

    Between the repetition and the product there may be views, casts, and transpositions of each
    matrix.  Of more rows a mask differs from row to row; repeated for the heads it would have to be
    moved.
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def spread_heads(mod: IRModule) -> IRModule:
    """batch_matmul(a, b)  ->  reshape(batch_matmul(reshape(a), reshape(broadcast_to(b)))), for both
    products of an attention whose rows are those of several heads, between which its softmax is
    one for each head: then the rows of all three are the same.

    Only for what becomes one kernel: elsewhere the repeated matrices would be stored.
    """
    return each_function(mod, lambda f: with_body(f, _spread(f.body)))


def _spread(body: Expr) -> Expr:
    rows_of = {
        product: softmax.shape[-2]
        for first, softmax, second in softmax_between_products(body)
        if has_rows_of_heads(first, softmax, second)
        for product in (first, second)
    }

    def visit(old: Expr, node: Expr) -> Expr:
        if old not in rows_of or not isinstance(node, Call):
            return node
        (a, b), rows = node.args, rows_of[old]
        shared, times = a.shape[0], a.shape[1] // rows
        left = call("reshape", a, newshape=(shared * times, rows, a.shape[2]))
        each = call("reshape", b, newshape=(shared, 1, *b.shape[1:]))
        every = call("broadcast_to", each, shape=(shared, times, *b.shape[1:]))
        right = call("reshape", every, newshape=(shared * times, *b.shape[1:]))
        return call("reshape", Call(node.op, (left, right), node.attrs), newshape=node.shape)

    return rewrite(body, visit) if rows_of else body


def _visit(old: Expr, node: Expr) -> Expr:
    if not is_call(node, PRODUCT) or not isinstance(node, Call) or node.attrs.transpose_a:
        return node
    a, b = node.args
    if len(a.shape) != 3 or a.shape[1] != 1 or not all(isinstance(n, int) for n in b.shape):
        return node
    single = _unrepeated(b, b.shape[-2] * b.shape[-1])
    if single is None or a.shape[0] != b.shape[0]:
        return node
    shared, times = single.shape[0], b.shape[0] // single.shape[0]
    rows = call("reshape", a, newshape=(shared, times, a.shape[2]))
    return call("reshape", Call(node.op, (rows, single), node.attrs), newshape=node.shape)


def _unrepeated(node: Expr, size: int) -> Expr | None:
    """The matrices of `size` elements of `node`, each once; None where they are not repeated, or
    not one behind the other."""
    if is_view(node) and isinstance(node, Call):
        single = _unrepeated(node.args[0], size)
        if single is None:
            return None
        return call("reshape", single, newshape=(single.tensor_type.size // size, *node.shape[-2:]))
    if is_call(node, "cast") and isinstance(node, Call):
        single = _unrepeated(node.args[0], size)
        return None if single is None else Call(node.op, (single,), node.attrs)
    if is_call(node, "transpose") and isinstance(node, Call):
        axes, rank = list(node.attrs.axes), len(node.shape)
        within = axes == [*range(rank - 2), rank - 1, rank - 2]
        if not within or node.shape[-2] * node.shape[-1] != size:
            return None
        single = _unrepeated(node.args[0], size)
        return None if single is None else call("transpose", single, axes=(0, 2, 1))
    if not is_call(node, "broadcast_to") or not isinstance(node, Call):
        return None
    data, whole = node.args[0], node.shape
    if len(data.shape) != len(whole) or len(whole) < 3:
        return None
    axes = [k for k, n in enumerate(whole) if data.shape[k] != n]
    if len(axes) != 1 or prod(whole[axes[0] + 1 :]) != size or whole[-2] * whole[-1] != size:
        return None
    return call("reshape", data, newshape=(data.tensor_type.size // size, *whole[-2:]))
