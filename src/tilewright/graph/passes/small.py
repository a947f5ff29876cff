"""Kernels of few elements: fewer of them, since a launch costs more.

In: a module of fused functions.  Out: an equal one.  Angles by which a position turns its queries
are worked out in one kernel from the position on, sines beside cosines; positions of all layers
move on in one.  Read next: `writes.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Call, Expr, IRModule, post_order
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.results import call_of, steps_of
from tilewright.graph.passes.writes import is_there, kept_by, side_by_side
from tilewright.graph.traversal import each_function, op_name, rewrite, with_body

FEW = 1024  # elements
LONGEST = 16  # operators of a kernel
MOST = 32  # results


def join_small(mod: IRModule) -> IRModule:
    """Let kernels of few elements work out for themselves what few elements they read, and let
    those of one shape be one, where all that they read is there when the first of them runs.

    rewrite: a = add(i); c = cos(a); s = sin(a)   ->   t = add_cos_add_sin(i); f(t.0, t.1)
    """
    return each_function(mod, lambda f: with_body(f, _beside(_alone(f.body))))


def _alone(body: Expr) -> Expr:
    """Each of them as one that works out what few elements it reads, where that is not long."""
    behind = _behind(body)
    new = dict[Expr, Expr]()

    def visit(old: Expr, node: Expr) -> Expr:
        calls = behind.get(old, [])
        new[old] = call_of(calls, calls[-1:], new) if len(calls) > 1 else node
        return new[old]

    return rewrite(body, visit)


def _behind(body: Expr) -> dict[Expr, list[Call]]:
    """For each kernel of few elements the calls that lead to it, views included, itself last."""
    found: dict[Expr, list[Call]] = {}
    for node in post_order(body):
        view = is_view(node) and isinstance(node, Call) and node.args[0] in found
        if not isinstance(node, Call) or not (view or _is_few(node)):
            continue
        before = dict.fromkeys(c for a in node.args for c in found.get(a, ()))
        calls = [*before, node]
        if sum(len(steps_of(c)) or 1 for c in calls) <= LONGEST:
            found[node] = calls
    return {node: calls for node, calls in found.items() if not is_view(node)}


def _beside(body: Expr) -> Expr:
    """Those of one shape, as results of the first of which all that they read is there."""
    position = {node: k for k, node in enumerate(post_order(body))}
    together: dict[Expr, list[Call]] = {}
    for node in position:
        if not isinstance(node, Call) or not _is_few(node):
            continue
        for first, own in together.items():
            there = all(is_there(a, position[first], position) for a in node.args)
            if first.shape == node.shape and there and len(own) < MOST:
                own.append(node)
                break
        else:
            together[node] = [node]
    return side_by_side(body, together)


def _is_few(node: Call) -> bool:
    """Whether it is a kernel of one result of few elements, each of a few of what it reads."""
    steps = steps_of(node)
    simple = all(TABLE[op_name(s)].pattern <= Pattern.INJECTIVE or is_view(s) for s in steps)
    few = bool(steps) and simple and node.tensor_type.size <= FEW
    return few and kept_by(node) is None  # which may be written where it is: see `writes.py`
