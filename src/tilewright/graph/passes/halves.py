"""A product whose halves meet element by element becomes two, as where a model has both weights of
a gate in one matrix.

In: a canonical module whose weights are constants, before `moves.py`.  Out: an equal one, which
`pairs.py` makes one product of again, with the columns of both in turn.  Read next: `pairs.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.op import call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.pairs import has_rows, meet
from tilewright.graph.traversal import each_function, is_call, rewrite, users, with_body

Readers = Mapping[Expr, Sequence[Expr]]


def halve_gates(mod: IRModule) -> IRModule:
    """y = dense(x, V above W), f(y[:, :n], y[:, n:])  ->  f(dense(x, V), dense(x, W))

    f: elementwise; x: of few rows, see `halve_gates_of` for many
    """
    return each_function(mod, lambda f: with_body(f, _halved(f.body, ())))


def halve_gates_of(large: Collection[DType]) -> Callable[[IRModule], IRModule]:
    """Give `halve_gates` for what `pair_gates_of` takes."""

    def halve_gates(mod: IRModule) -> IRModule:
        return each_function(mod, lambda f: with_body(f, _halved(f.body, large)))

    return halve_gates


def _halved(body: Expr, large: Collection[DType]) -> Expr:
    readers = users(body)
    product_of: dict[Expr, tuple[Call, int]] = {}
    for node in readers:
        if is_call(node, "nn.dense") and isinstance(node, Call) and has_rows(node, large):
            halves = _halves(node, readers) if isinstance(node.args[1], Constant) else None
            if halves and meet(*halves, readers):
                product_of |= {half: (node, k) for k, half in enumerate(halves)}
    if not product_of:
        return body
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if is_call(old, "nn.dense"):
            new[old] = node
        if old not in product_of:
            return node
        product, k = product_of[old]
        whole = new[product]
        assert isinstance(whole, Call) and isinstance(whole.args[1], Constant)
        weight = Constant(np.split(whole.args[1].data, 2)[k])
        half = adopt(Call(whole.op, (whole.args[0], weight), whole.attrs), layers_of(product))
        return call("reshape", half, newshape=old.tensor_type.shape)

    return rewrite(body, visit)


def _halves(node: Call, readers: Readers) -> tuple[Call, Call] | None:
    """The halves of its columns, where these are all that is read of `node`, in whatever shape."""
    columns, waiting, found = node.shape[-1], list(readers[node]), list[Call]()
    while waiting:
        reader = waiting.pop()
        if not isinstance(reader, Call) or not isinstance(reader.checked_type, TensorType):
            return None
        if is_call(reader, "strided_slice"):
            found.append(reader)
        elif is_view(reader) and reader.shape[-1:] == (columns,):
            waiting += readers[reader]
        else:
            return None
    found.sort(key=lambda half: tuple(half.attrs.begin))
    if len(found) != 2 or columns % 2:
        return None
    for k, half in enumerate(found):
        source = half.args[0].tensor_type.shape
        begin = (*(0 for _ in source[:-1]), k * columns // 2)
        same = half.shape == (*source[:-1], columns // 2) and set(half.attrs.strides) == {1}
        if tuple(half.attrs.begin) != begin or not same:
            return None
    return found[0], found[1]
