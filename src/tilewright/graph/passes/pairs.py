"""Two products of one value that meet element by element, as a gate does, become one product.

In: a canonical module whose weights are constants, behind `moves.py`.  Out: an equal one: columns
of both lie side by side, so that the kernel of the product has both where it needs them.
Read next: `combine.py`, `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tilewright.base.concurrency import in_threads
from tilewright.base.dtype import DType
from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType
from tilewright.graph.floats import AT_A_TIME
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, users, with_body

FEW = 4  # rows: of more, what the matrix units of warps compute lies in other lanes
MANY = 64  # rows, from which groups of warps bring both to shared memory anyway
LONGEST = 12  # operators in which the two products meet
JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)

Readers = Mapping[Expr, Sequence[Expr]]


def pair_gates(mod: IRModule) -> IRModule:
    """f(dense(x, V), dense(x, W))  ->  f(y[:, 0::2], y[:, 1::2]), y = dense(x, V and W in turn)

    f: elementwise; x: of few rows, see `pair_gates_of` for many.  Nothing else reads the products,
    or what f makes on its way.
    """
    return each_function(mod, lambda f: with_body(f, _paired(f.body, ())))


def pair_gates_of(large: Collection[DType]) -> Callable[[IRModule], IRModule]:
    """Give `pair_gates` which takes products of many rows of these types as well: where groups of
    warps multiply them, their results go by way of shared memory."""

    def pair_gates(mod: IRModule) -> IRModule:
        return each_function(mod, lambda f: with_body(f, _paired(f.body, large)))

    return pair_gates


def has_rows(product: Call, large: Collection[DType]) -> bool:
    """Whether a product has few rows, or many of these types."""
    rows = product.shape[0]
    kinds = {a.tensor_type.dtype for a in product.args}
    return rows in range(FEW + 1) or (len(kinds) == 1 and kinds <= {*large} and rows >= MANY)


def _paired(body: Expr, large: Collection[DType]) -> Expr:
    readers = users(body)
    alike: dict[object, list[Call]] = {}
    for node in readers:
        if is_call(node, "nn.dense") and isinstance(node, Call) and has_rows(node, large):
            data, weight = node.args
            if isinstance(weight, Constant):
                source = data.args[0] if is_view(data) and isinstance(data, Call) else data
                kind = data.shape, weight.shape, str(weight.dtype), str(node.dtype)
                alike.setdefault((source, kind), []).append(node)
    pairs = [products for products in alike.values() if len(products) == 2]
    pair_of = {p: pair for pair in pairs if meet(pair[0], pair[1], readers) for p in pair}
    if not pair_of:
        return body
    made: dict[Expr, Expr] = {}  # by the first of a pair

    def visit(old: Expr, node: Expr) -> Expr:
        if old not in pair_of or not isinstance(node, Call):
            return node
        first, second = pair_of[old]
        if first not in made:
            made[first] = _both(node, first, second)
        rows, columns = node.shape
        begin = (0, int(old is second))
        return call(
            "strided_slice", made[first], begin=begin, extents=(rows, columns), strides=(1, 2)
        )

    return rewrite(body, visit)


def _both(node: Call, first: Call, second: Call) -> Call:
    """The product with the rows of both weights in turn; node: one of the two, made anew."""
    weights = [p.args[1].data for p in (first, second) if isinstance(p.args[1], Constant)]
    bits = [w.view(f"u{w.itemsize}") for w in weights]  # numpy copies these fast
    rows, depth = weights[0].shape
    turns = np.empty((rows, 2, depth), bits[0].dtype)
    step = max(1, AT_A_TIME // depth)

    def put(begin: int) -> None:
        for k, own in enumerate(bits):
            turns[begin : begin + step, k] = own[begin : begin + step]

    in_threads(put, range(0, rows, step))
    both = Constant(turns.view(weights[0].dtype).reshape(2 * rows, depth))
    return Call(node.op, (node.args[0], both), node.attrs)


def meet(first: Call, second: Call, readers: Readers) -> bool:
    """Whether all that is made of both, element by element, ends in one value of both."""
    behind = [_behind(p, readers) for p in (first, second)]
    if not all(behind):
        return False
    shared = [node for node in behind[0] if node in behind[1]]
    if not shared:
        return False
    end = shared[0]
    inner = {n for found in behind for n in found[: found.index(end)]} | {first, second}
    return all(set(readers[n]) <= inner | {end} for n in inner)


def _behind(node: Call, readers: Readers) -> list[Expr]:
    """What is made of `node` element by element, in an order in which readers come later."""
    reached: set[Expr] = {node}
    near: list[Expr] = [node]
    for value in near:
        for reader in readers[value]:
            if reader not in reached and _is_elementwise(reader, node.shape):
                reached.add(reader)
                near.append(reader)
        if len(near) > 2 * LONGEST:
            break
    return [n for n in readers if n in reached and n is not node][:LONGEST]


def _is_elementwise(node: Expr, shape: tuple[int, ...]) -> bool:
    name = op_name(node)
    return (
        name != ""
        and TABLE[name].pattern in JOINS
        and isinstance(node.checked_type, TensorType)
        and node.shape == shape
    )
