"""Weights of dense layers become narrow, where a network asks for it.

In: a module behind all passes that compute with weights; a function asks by its attribute `weights`
(`graph/narrow.py`).  Out: one whose large constant weights are bytes and scales, and the products
of them `nn.dense_narrow`.  Embeddings, which are looked up, stay as they are.
Read next: `fuse.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from tilewright.graph.expr import Call, Constant, Expr, Function, IRModule, post_order
from tilewright.graph.layers import layers_of
from tilewright.graph.narrow import NarrowWeights, packed
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, users, with_body

ASKED = "weights"  # attribute of a function
LEAST = 1 << 14  # weights of a layer that is worth it
FEW = 16  # rows; for more, a kernel of its own makes floats of the weights again


@dataclass(frozen=True)
class Packing:
    """What became of a layer.

    layers: its names; error: as `graph/narrow.py` has it, of its weights
    """

    layers: tuple[str, ...]
    shape: tuple[int, ...]
    kind: str
    group: int
    error: float


# What bytes were made of, as long as a graph has them.
_MADE: WeakKeyDictionary[Expr, Packing] = WeakKeyDictionary()


def narrow_weights(mod: IRModule) -> IRModule:
    """Pack weights where functions ask for it."""
    return each_function(mod, narrowed)


def narrowed(function: Function) -> Function:
    """Give the function with its weights as it asks."""
    asked = function.attrs.get(ASKED)
    if not asked:
        return function
    return with_body(function, _packed(function.body, NarrowWeights.parsed(asked)))


def packings(body: Expr) -> list[Packing]:
    """Tell what became of the layers of a function whose weights this pass packed."""
    return [_MADE[node] for node in post_order(body) if node in _MADE]


def _packed(body: Expr, weights: NarrowWeights) -> Expr:
    kinds = _kinds(body, weights)
    done: dict[tuple[Constant, str], tuple[Constant, Constant] | None] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        kind = kinds.get(old)
        if kind is None or not isinstance(node, Call) or not isinstance(node.args[1], Constant):
            return node
        data, matrix = node.args
        assert isinstance(matrix, Constant)
        if (matrix, kind) not in done:
            group = weights.group_of(matrix.shape[1])
            made = packed(matrix.data, kind, group)
            done[matrix, kind] = None
            if made.error < 1:  # otherwise bytes cannot hold them
                weight = Constant(made.weight)
                done[matrix, kind] = weight, Constant(made.scale)
                layers = tuple(layers_of(old))
                _MADE[weight] = Packing(layers, matrix.shape, kind, group, made.error)
        narrow = done[matrix, kind]
        if narrow is None:
            return node
        if data.shape[0] > FEW:
            floats = call("nn.unpack_narrow", *narrow, kind=kind, dtype=str(matrix.dtype))
            return Call(node.op, (data, call("reshape", floats, newshape=matrix.shape)), node.attrs)
        return call("nn.dense_narrow", data, *narrow, kind=kind, out_dtype=node.attrs.out_dtype)

    return rewrite(body, visit)


def _kinds(body: Expr, weights: NarrowWeights) -> dict[Expr, str]:
    """What the weights of each layer become, of those that become something."""
    readers = users(body)
    nodes = post_order(body)
    multiplied: set[Expr] = set()  # what another contraction is made of
    found: dict[Expr, str] = {}
    for node in reversed(nodes):
        behind = any(r in multiplied or _multiplies(r) for r in readers[node])
        if behind:
            multiplied.add(node)
        if _fits(node, weights):
            kind = weights.kind if behind else weights.head
            if kind is not None:
                found[node] = kind
    if len(found) == 1:  # there is no last layer beside others
        return dict.fromkeys(found, weights.kind)
    return found


def _multiplies(node: Expr) -> bool:
    return bool(op_name(node)) and TABLE[op_name(node)].pattern == Pattern.ANCHOR


def _fits(node: Expr, weights: NarrowWeights) -> bool:
    if not is_call(node, "nn.dense") or not isinstance(node, Call):
        return False
    data, matrix = node.args
    return (
        isinstance(matrix, Constant)
        and not isinstance(data, Constant)
        and matrix.dtype.is_float
        and matrix.dtype is data.dtype
        and matrix.data.size >= LEAST
        and weights.group_of(matrix.shape[1]) > 0
    )
