"""Products of one value with several weights become one product with all of them.

In: a canonical module whose weights are constants.  Out: an equal one: queries, keys and values are
slices of one product, which fills a device where three small ones do not.  Read next: `slices.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType, post_order
from tilewright.graph.layers import adopt, joined, layers_of
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)

Readers = dict[Expr, list[Expr]]


def combine_products(mod: IRModule) -> IRModule:
    """dense(x, V), dense(x, W) -> slices of dense(x, (V, W)), with their constant shifts, where
    all results are only moved, so that the slices cost nothing more; of one row also where what
    reads them has kernels of its own anyway: there a slice is a place in memory."""
    return each_function(mod, lambda f: with_body(f, _combined(f.body)))


def _combined(body: Expr) -> Expr:
    readers = users(body)
    found: dict[tuple[Expr, object], list[Call]] = {}
    for node in post_order(body):
        if is_call(node, "nn.dense") and isinstance(node, Call):
            data, weight = node.args
            if isinstance(weight, Constant) and _may_be_slice(_shifted(node, readers), readers):
                source = data.args[0] if is_view(data) and isinstance(data, Call) else data
                kind = data.shape, str(weight.dtype), str(node.dtype), _shift(node, readers) is None
                found.setdefault((source, kind), []).append(node)
    several = [products for products in found.values() if len(products) > 1]
    plan = {_shifted(p, readers): products for products in several for p in products}
    new: dict[Expr, Expr] = {}
    wholes: dict[Expr, Expr] = {}  # of the first product

    def visit(old: Expr, node: Expr) -> Expr:
        if (products := plan.get(old)) is not None:
            first = products[0]
            if first not in wholes:
                wholes[first] = _whole(new[first.args[0]], products, readers)
            node = _slice(wholes[first], old, products, readers)
        new[old] = node
        return node

    return rewrite(body, visit) if plan else body


def _shift(node: Call, readers: Readers) -> Constant | None:
    """The constant of `node + c` where that is all that is made of `node`."""
    (reader,) = readers[node] if len(readers[node]) == 1 else (None,)
    if reader is None or not is_call(reader, "add") or not isinstance(reader, Call):
        return None
    shift = reader.args[1]
    rows = isinstance(shift, Constant) and shift.shape == (1, node.shape[1])
    return shift if rows and isinstance(shift, Constant) else None


def _shifted(node: Call, readers: Readers) -> Expr:
    return node if _shift(node, readers) is None else readers[node][0]


def _may_be_slice(node: Expr, readers: Readers) -> bool:
    return _is_moved(node, readers) or (node.shape[0] == 1 and _is_apart(node, readers))


def _is_apart(node: Expr, readers: Readers) -> bool:
    """Whether something reads `node`, under whatever shape and in whatever type, that cannot join
    its kernel: what is more than elementwise, or has more elements."""
    waiting = list(readers[node])
    while waiting:
        reader = waiting.pop()
        if is_view(reader) or is_call(reader, "cast"):
            waiting += readers[reader]
        elif (name := op_name(reader)) and (
            TABLE[name].pattern > Pattern.BROADCAST
            or not isinstance(reader.checked_type, TensorType)
            or reader.checked_type.size > node.tensor_type.size
        ):
            return True
    return False


def _is_moved(node: Expr, readers: Readers) -> bool:
    """Whether all that reads `node`, under whatever shape, is transpositions."""
    waiting, seen = list(readers[node]), 0
    while waiting:
        reader = waiting.pop()
        if is_view(reader):
            waiting += readers[reader]
        elif not is_call(reader, "transpose"):
            return False
        else:
            seen += 1
    return seen > 0


def _whole(data: Expr, products: Sequence[Call], readers: Readers) -> Expr:
    """The product of `data` with all weights, and all shifts."""
    weights = [p.args[1].data for p in products if isinstance(p.args[1], Constant)]
    first = products[0]
    whole: Expr = Call(first.op, (data, Constant(np.concatenate(weights))), first.attrs)
    shifts = [s.data for p in products if (s := _shift(p, readers)) is not None]
    if shifts:
        whole = call("add", whole, Constant(np.concatenate(shifts, axis=1)))
    return adopt(whole, joined(map(layers_of, products)))


def _slice(whole: Expr, one: Expr, products: Sequence[Call], readers: Readers) -> Expr:
    before = [_shifted(p, readers) for p in products]
    begin = sum(p.shape[1] for p in before[: before.index(one)])
    return call("strided_slice", whole, begin=(0, begin), extents=one.shape, strides=(1, 1))
