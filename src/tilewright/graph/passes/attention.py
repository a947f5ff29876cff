"""Attention as one kernel: softmax(a b) c with all that stands in between.

In: a function before fusion.  Out: groups for `fuse`: product, elementwise steps and views, the
softmax, the same again, product; and what only moves the operands or the result, such as taking the
heads of queries out of a larger product and putting them side by side again.  Whether they are one
kernel or several is decided by what was measured: `network/extract.py` offers both,
`network/decide.py` takes the faster one.  Read next: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType, Tuple
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.indices import index_steps
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)

JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)
JOINED = Pattern.INJECTIVE  # at most, of what is computed element by element
PRODUCT, SOFTMAX, SINGLE = "nn.batch_matmul", "nn.softmax", "nn.dense"
MOVES = ("transpose", "strided_slice", "broadcast_to")
LONGEST = 8  # steps between a product and the softmax, or before an operand

Readers = Mapping[Expr, Sequence[Expr]]


def single_heads(mod: IRModule) -> IRModule:
    """dense(softmax(dense(a, b)), c)  ->  products of a batch of one, for computed b and c.

    So an attention with one head is one like any other.  A product with a weight stays.
    """
    return each_function(mod, lambda f: with_body(f, _in_batches(f.body)))


def _in_batches(body: Expr) -> Expr:
    readers = users(body)
    position = {node: k for k, node in enumerate(readers)}
    found = set[Expr]()
    for node in readers:
        if _is_single(node) and isinstance(node, Call):
            after = _path(node.args[0], SOFTMAX, readers, position)
            before = after and _path(after[0].args[0], SINGLE, readers, position)
            if before and _is_single(before[0]):
                found |= {before[0], node}

    def visit(old: Expr, node: Expr) -> Expr:
        if old not in found or not isinstance(node, Call):
            return node
        a, b = (call("reshape", x, newshape=(1, *x.shape)) for x in node.args)
        made = call(PRODUCT, a, b, out_dtype=node.attrs.out_dtype, transpose_b=True)
        return call("reshape", made, newshape=node.shape)

    return rewrite(body, visit) if found else body


def _is_single(node: Expr) -> bool:
    """Whether it is a product of two matrices, the second not a weight, moved or not."""
    if not (is_call(node, SINGLE) and isinstance(node, Call) and len(node.args[0].shape) == 2):
        return False
    second = node.args[1]
    while isinstance(second, Call) and (is_view(second) or is_call(second, *MOVES)):
        second = second.args[0]
    return isinstance(second, Call)


def attentions(body: Expr) -> list[list[Call]]:
    """Give the steps of each attention in `body`, in order; the last one is its result."""
    readers = users(body)
    position = {node: k for k, node in enumerate(readers)}
    found, taken = [], set[Expr]()
    for before, after, node in _between_products(readers, position):
        if _by_rows(before[0], after[0], node):
            inner = [*before, *after, node]
            operands = [*before[0].args, node.args[1]]
            moved = [step for arg in operands for step in _moves(arg, inner, readers)]
            moved += _turned(before[0].args[0], inner, readers)
            moved += _masks(inner, readers)
            steps = {*moved, *inner, *_moved_result(node, readers)}
            if not steps & taken:
                taken |= steps
                found.append(sorted(steps, key=position.__getitem__))
    return found


def softmax_between_products(body: Expr) -> list[tuple[Call, Call, Call]]:
    """Give each softmax that nothing but a product is made of, and which is made of one alone,
    between the two."""
    readers = users(body)
    position = {node: k for k, node in enumerate(readers)}
    return [(b[0], a[0], node) for b, a, node in _between_products(readers, position)]


def has_rows_of_heads(scores: Call, softmax: Call, product: Call) -> bool:
    """Whether both products have the rows of several heads one behind the other, which are heads
    of their own to the softmax."""
    rows, times = scores.shape[-2], softmax.shape[-2]
    last = {scores.shape[-1], softmax.shape[-1], product.args[0].shape[-1]}
    return (
        not scores.attrs.transpose_a
        and softmax.attrs.axis in (-1, len(softmax.shape) - 1)
        and all(type(n) is int for n in (*scores.shape, *softmax.shape, *product.args[0].shape))
        and len(last) == 1
        and scores.shape == product.args[0].shape
        and 1 < times < rows
        and rows % times == 0
    )


def has_attention(mod: IRModule) -> bool:
    return any(
        _by_rows(*each) or has_rows_of_heads(*each)
        for f in mod.functions.values()
        for each in softmax_between_products(f.body)
    )


def _between_products(
    readers: Readers, position: Mapping[Expr, int]
) -> Iterator[tuple[list[Call], list[Call], Call]]:
    """The steps from a product to a softmax, those from there to the next product, and that."""
    for node in readers:
        if op_name(node) == PRODUCT and isinstance(node, Call) and not node.attrs.transpose_a:
            after = _path(node.args[0], SOFTMAX, readers, position)
            before = after and _path(after[0].args[0], PRODUCT, readers, position)
            if after and before:
                yield before, after, node


def is_attention(steps: Sequence[str]) -> bool:
    """Say whether the operators of a group are those of an attention."""
    return SOFTMAX in steps and list(steps).count(PRODUCT) == 2


def _by_rows(scores: Call, softmax: Call, product: Call) -> bool:
    """Whether the softmax is over rows of `scores`, which are then the rows that `product` reads,
    whatever shapes they have in between."""
    if scores.attrs.transpose_a or softmax.attrs.axis not in (-1, len(softmax.shape) - 1):
        return False
    return scores.shape[-2:] == softmax.shape[-2:] == product.args[0].shape[-2:]


def _path(end: Expr, start: str, readers: Readers, position: Mapping[Expr, int]) -> list[Call]:
    """The calls from an operator `start` to `end`, which nothing else reads; [] for none."""
    near: list[Expr] = [end]
    for node in near:
        if isinstance(node, Call) and op_name(node) != start and len(near) <= 4 * LONGEST:
            near += [a for a in node.args if _keeps_order(node, a) and a not in near]
    made: dict[Expr, bool] = {}  # whether it is computed of `start`, element by element
    for node in sorted(near, key=position.__getitem__):
        made[node] = op_name(node) == start or (
            isinstance(node, Call)
            and any(made.get(a, False) and _keeps_order(node, a) for a in node.args)
        )
    found = [n for n, yes in made.items() if yes and isinstance(n, Call)]
    closed = all(set(readers[n]) <= set(found) for n in found if n is not end)
    one = sum(op_name(n) == start for n in found) == 1
    if not made[end] or not one or not closed or len(readers[end]) != 1 or len(found) > LONGEST:
        return []
    return found


def _keeps_order(node: Call, arg: Expr) -> bool:
    """Whether `node` computes each element from the one of `arg` that is at the same place in
    memory."""
    if not op_name(node) or not isinstance(arg.checked_type, TensorType):
        return False
    if is_view(node):
        return True
    return TABLE[op_name(node)].pattern in JOINS and node.shape == arg.shape


def _moves(operand: Expr, inner: Sequence[Call], readers: Readers) -> list[Call]:
    """What only moves an operand of `inner`, or multiplies it by a number, for `inner` alone."""
    found: list[Call] = []
    node, allowed = operand, set[Expr](inner)
    while isinstance(node, Call) and len(found) < LONGEST:
        scaled = is_call(node, "multiply") and _is_number(node.args[1])
        if not (is_view(node) or is_call(node, *MOVES) or scaled):
            break
        if not set(readers[node]) <= allowed:
            break
        found.append(node)
        node, allowed = node.args[0], {node}
    while found and is_view(found[-1]):  # they cost nothing outside
        found.pop()
    return found


def _turned(queries: Expr, inner: Sequence[Call], readers: Readers) -> list[Call]:
    """What makes queries of other values for `inner` alone, element by element, such as turning
    them by their position: each block has its own rows of them, so none is made twice."""
    found: dict[Expr, None] = {}
    waiting = [queries]
    while waiting:
        node = waiting.pop()
        parts = node.fields if isinstance(node, Tuple) else ()
        made = bool(parts) or (bool(op_name(node)) and TABLE[op_name(node)].pattern <= JOINED)
        if node in found or not made or not set(readers[node]) <= {*inner, *found}:
            continue
        if len(found) > 2 * LONGEST:
            return []
        found[node] = None
        waiting += node.args if isinstance(node, Call) else parts
    while ends := [n for n in found if is_view(n) and not set(n.args) & set(found)]:  # type: ignore[attr-defined]
        for node in ends:  # they cost nothing outside
            del found[node]
    return [n for n in found if isinstance(n, Call)]


def _masks(inner: Sequence[Call], readers: Readers) -> list[Call]:
    """What says by the places of keys and queries whether they meet, for `inner` alone."""
    found: list[Call] = []
    for step in inner:
        own = index_steps(step.args[0]) if is_call(step, "where") else {}
        if own and all(set(readers[n]) <= {step, *own} for n in own):
            found += [n for n in own if isinstance(n, Call)]
    return found


def _is_number(node: Expr) -> bool:
    return isinstance(node, Constant) and node.data.size == 1


def _moved_result(result: Call, readers: Readers) -> list[Call]:
    """The transposition of the result that puts heads side by side, with views before it."""
    found: list[Call] = []
    node: Expr = result
    while len(readers[node]) == 1 and len(found) < LONGEST:
        (node,) = readers[node]
        if not isinstance(node, Call) or not (is_view(node) or is_call(node, "transpose")):
            break
        found.append(node)
    while found and is_view(found[-1]):
        found.pop()
    return found
