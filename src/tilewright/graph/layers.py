"""Which layers of a model a node is of: names of ONNX nodes or of modules of PyTorch.

In: names that importers give.  Out: the same on what passes make of the nodes, down to the kernels
of a built network, whose first name is that of what takes the time.  A node says it once; what is
made for it and says nothing is of the same layers (`adopt`).  Nothing that is computed depends on
them, and neither do keys and texts of graphs.
Read next: `traversal.py`, `passes/fuse.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tilewright.graph.expr import Call, Expr, TupleGetItem, Var, children, post_order

Layers = tuple[str, ...]
_WEIGHT = re.compile(r"(.+)[._](?:weight|kernel|bias|gamma|beta|\w+_mean|\w+_var)", re.DOTALL)


def layers_of(node: Expr) -> Layers:
    """Give the names of the layers that `node` is of, the one that takes the time first."""
    found: Layers = getattr(node, "layers", ())
    return found


def adopt(made: Expr, layers: Layers) -> Expr:
    """Give `made`, which is of these layers now, as is all that it reads, where neither says."""
    waiting = [made]
    while waiting:
        node = waiting.pop()
        if not hasattr(node, "layers"):
            node.layers = layers
            waiting += (c for c in children(node) if c.parts)
    return made


def joined(each: Iterable[Layers]) -> Layers:
    """Give the names of several, each once."""
    return tuple(dict.fromkeys(name for layers in each for name in layers))


def of_each(calls: Iterable[Call]) -> Layers:
    """Give of each call of a kernel the first name, each once."""
    return joined(layers_of(call)[:1] for call in calls)


def name_by_weights(body: Expr) -> None:
    """Name what a graph built by hand computes after its weights: what reads `conv1_weight`, and
    says nothing, is of the layer `conv1`."""
    for node in post_order(body):
        if hasattr(node, "layers"):
            continue
        if isinstance(node, TupleGetItem) and (layers := layers_of(node.tuple_value)):
            node.layers = layers
        elif isinstance(node, Call):
            names = (a.name_hint for a in node.args if isinstance(a, Var))
            found = [m[1] for name in names if (m := _WEIGHT.fullmatch(name))]
            if found:
                node.layers = (found[0],)
