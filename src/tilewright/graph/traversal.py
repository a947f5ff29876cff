"""Walking and rewriting graphs: every function here visits a shared node once, without recursion.

In: expressions.  Out: orders, users, rebuilt graphs.  Nested (fused) functions are not entered.
Read next: `passes/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.graph.deferred import made_again
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleGetItem,
    children,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of


def with_children(node: Expr, new: tuple[Expr, ...]) -> Expr:
    """`node` reading `new`; the node itself when nothing changed."""
    old = children(node)
    if len(old) == len(new) and all(a is b for a, b in zip(old, new, strict=True)):
        return node
    return adopt(node.with_parts(new), layers_of(node))


def users(root: Expr) -> dict[Expr, list[Expr]]:
    """The distinct nodes that read each node; `root` itself has none."""
    found: dict[Expr, list[Expr]] = {node: [] for node in post_order(root)}
    for node in found:
        for child in dict.fromkeys(children(node)):
            found[child].append(node)
    return found


def unpacked(node: Expr) -> Expr:
    """The k-th value where `node` is `(a, b, ...).k`, else `node`."""
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
        return node.tuple_value.fields[node.index]
    return node


def rewrite(root: Expr, visit: Callable[[Expr, Expr], Expr]) -> Expr:
    """Rebuild from the leaves: `visit(old, rebuilt)` gives each node's replacement.

    rebuilt: `old` with its children already replaced.  What is made is of the layers of `old`.
    """
    new: dict[Expr, Expr] = {}
    for node in post_order(root):
        made = visit(node, with_children(node, tuple(new[c] for c in children(node))))
        new[node] = adopt(made, layers_of(node)) if node.parts else made
    return new[root]


def substitute(root: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """`root` with some nodes replaced, in functions that read them, too; what can be made again for
    other extents still can."""
    new: dict[Expr, Expr] = {}
    for node in post_order(root, made_of):
        if isinstance(node, Function) and any(v in replacements for v in node.free):
            new[node] = node.with_body(substitute(node.body, replacements))
        else:
            new[node] = replacements[node] if node in replacements else remade(node, new)
    return new[root]


def made_of(node: Expr) -> tuple[Expr, ...]:
    """What `node` reads, and what it is made again of where extents are open."""
    again = made_again(node)
    return children(node) if again is None else (*children(node), *again.parts)


def remade(node: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """`node` where what it is `made_of` has become something else."""
    made = with_children(node, tuple(new[c] for c in children(node)))
    again = made_again(node)
    if again is None or all(new[p] is p for p in again.parts):
        return made
    made = twin(node) if made is node else made
    made.origin = again.with_parts([new[p] for p in again.parts])
    return made


def twin(node: Expr) -> Expr:
    """Another node that is the same."""
    return adopt(node.with_parts(node.parts), layers_of(node))


def with_body(function: Function, body: Expr) -> Function:
    """`function` with another body."""
    return function if body is function.body else function.with_body(body)


def each_function(mod: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """A module in which every function was changed."""
    functions = {name: change(f) for name, f in mod.functions.items()}
    return mod.with_functions(functions)


def is_call(node: Expr, *names: str) -> bool:
    """Whether `node` calls one of the operators `names`."""
    return op_name(node) in names


def op_name(node: Expr) -> str:
    """The operator a node calls; "" for anything else."""
    return getattr(node.op, "name", "") if isinstance(node, Call) else ""


def is_constant(node: Expr) -> bool:
    return isinstance(node, Constant)
