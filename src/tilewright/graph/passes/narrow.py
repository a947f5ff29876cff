"""Weights of dense layers become narrow, where a network asks for it.

In: a module behind all passes that compute with weights; a function asks by its attribute `weights`
(`graph/narrow.py`).  Out: one whose large constant weights are bytes and scales, and the products
of them `nn.dense_narrow`.  The types of these are known at once, their values when somebody asks.
Embeddings, which are looked up, stay as they are.
Read next: `fuse.py`.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from tilewright.base.concurrency import lock
from tilewright.base.dtype import DType
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    post_order,
)
from tilewright.graph.floats import same
from tilewright.graph.later import Later
from tilewright.graph.layers import layers_of
from tilewright.graph.narrow import SCALES, NarrowWeights, Packed, can_hold, packed
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, users, with_body
from tilewright.topi.nn.narrow import KINDS, LINE

ASKED = "weights"  # attribute of a function
LEAST = 1 << 14  # weights of a layer that is worth it
FEW = 16  # rows; for more, a kernel of its own makes floats of the weights again


class Packing:
    """What becomes of the weights of a layer: they are packed when somebody asks, once, for all
    networks that have the same ones then.  For several threads.

    layers: its names; shape: of its weights
    """

    def __init__(self, layers: tuple[str, ...], matrix: Array, kind: str, group: int) -> None:
        self.layers, self.shape, self.kind, self.group = layers, matrix.shape, kind, group
        self._floats: Array | None = matrix
        self._packed: Packed | None = None
        self._keeping, self._lock = 0, lock()

    @property
    def packed(self) -> Packed:
        """Bytes, scales and how far they are from the floats, which are gone unless kept."""
        with self._lock:
            if self._packed is None:
                assert self._floats is not None
                self._packed = packed(self._floats, self.kind, self.group)
                self._drop_floats()
            return self._packed

    @property
    def floats(self) -> Array | None:
        """The weights; None where they are gone."""
        with self._lock:
            return self._floats

    def keep_floats(self) -> bool:
        """Keep the weights, for who compares, until `release_floats`; False where they are gone."""
        with self._lock:
            self._keeping += self._floats is not None
            return self._floats is not None

    def release_floats(self) -> None:
        """Keep them no more."""
        with self._lock:
            self._keeping -= 1
            self._drop_floats()

    def _drop_floats(self) -> None:
        if self._packed is not None and not self._keeping:
            self._floats = None

    def is_of(self, layers: tuple[str, ...], matrix: Array, kind: str, group: int) -> bool:
        """Whether it packs these weights of such layers, as far as they are there to look."""
        floats = self.floats
        if floats is None or (self.layers, self.kind, self.group) != (layers, kind, group):
            return False
        alike = (floats.shape, floats.dtype) == (matrix.shape, matrix.dtype)
        return floats is matrix or (alike and same(floats, matrix))

    def constants(self) -> tuple[Constant, Constant]:
        """The bytes and scales in a graph."""
        rows, depth = self.shape
        lines = TensorType((rows, depth // KINDS[self.kind].line, LINE), DType("int8"))
        scales = TensorType((rows, depth // self.group), DType(SCALES.name))
        weight = Later(lines, lambda: self.packed.weight)
        _MADE[weight] = self
        return weight, Later(scales, lambda: self.packed.scale)


# What bytes are made of, as long as a graph has them.
_MADE: WeakKeyDictionary[Expr, Packing] = WeakKeyDictionary()


def _packing(layers: tuple[str, ...], matrix: Array, kind: str, group: int) -> Packing:
    """What packs these weights: those of a network for other shapes may be the same."""
    alike = (known for known in list(_MADE.values()) if known.is_of(layers, matrix, kind, group))
    return next(alike, None) or Packing(layers, matrix, kind, group)


def narrow_weights(mod: IRModule) -> IRModule:
    """Pack weights where functions ask for it."""
    return each_function(mod, narrowed)


def narrowed(function: Function) -> Function:
    """Give the function with its weights as it asks."""
    asked = function.attrs.get(ASKED)
    if not asked:
        return function
    return with_body(function, _packed(function.body, NarrowWeights.parsed(asked)))


def packings(body: Expr) -> dict[Expr, Packing]:
    """Give what becomes of the layers of a function whose weights this pass packed, by the bytes in
    it."""
    return {node: _MADE[node] for node in post_order(body) if node in _MADE}


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
            done[matrix, kind] = None
            if can_hold(matrix.data, kind):
                group = weights.group_of(matrix.shape[1], kind)
                made = _packing(tuple(layers_of(old)), matrix.data, kind, group)
                done[matrix, kind] = made.constants()
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
        and matrix.tensor_type.size >= LEAST
        and weights.group_of(matrix.shape[1], weights.kind) > 0
    )
