"""Transpositions of transpositions: one move where two come after each other.

In: any module.  Out: an equal one with fewer kernels that only move.  Read next: `moves.py`.
"""

from __future__ import annotations

from math import prod

from tilewright.graph.expr import Call, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.traversal import each_function, is_call, rewrite, users, with_body


def merge_transposes(mod: IRModule) -> IRModule:
    """Rewrite a transposition of what is a transposition, or axes of one put together.

    transpose(transpose(x))           ->  transpose(x)
    transpose(reshape(transpose(x)))  ->  reshape(transpose(x)), where each axis of the reshaped
                                          value is one, or several neighbours, of those before

    What is moved first has no other reader.  Gives `mod` itself where there is nothing to do.
    """
    made = each_function(mod, lambda f: with_body(f, _merged(f.body)))
    return mod if all(made[name] is f for name, f in mod.functions.items()) else made


def _merged(body: Expr) -> Expr:
    readers = users(body)
    alone: dict[Expr, bool] = {}  # the new nodes that only one reads

    def visit(old: Expr, node: Expr) -> Expr:
        found = _of_both(node, alone) if is_call(node, "transpose") else None
        made = node if found is None else found
        alone[made] = len(readers[old]) == 1
        return made

    return rewrite(body, visit)


def _of_both(node: Expr, alone: dict[Expr, bool]) -> Expr | None:
    """The one move for the two that end in `node`; None where there are not two."""
    assert isinstance(node, Call)
    (value,) = node.args
    if not alone.get(value, False):
        return None
    first = value
    if is_call(value, "reshape"):
        assert isinstance(value, Call)
        first = value.args[0]
    if not is_call(first, "transpose") or not alone.get(first, False):
        return None
    assert isinstance(first, Call)
    groups = _groups(first.shape, value.shape)
    if groups is None:
        return None
    axes = [first.attrs.axes[k] for at in node.attrs.axes for k in groups[at]]
    moved = call("transpose", first.args[0], axes=tuple(axes))
    return moved if moved.shape == node.shape else call("reshape", moved, newshape=node.shape)


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> list[list[int]] | None:
    """Which axes of `before`, neighbours in their order, each of `after` is; None where one of them
    is not so."""
    groups: list[list[int]] = []
    k = 0
    for extent in after:
        own: list[int] = []
        while k < len(before) and prod(before[j] for j in own) < extent:
            own.append(k)
            k += 1
        if prod(before[j] for j in own) != extent:
            return None
        groups.append(own)
    if any(n != 1 for n in before[k:]):
        return None
    if groups:
        groups[-1] += range(k, len(before))
    return groups if groups or not before else None
