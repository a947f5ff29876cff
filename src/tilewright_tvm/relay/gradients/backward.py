"""`relay.transform.gradient`: through a graph from its result to its parameters.

In: a function.  Out: one that gives the result and, for each parameter, how much the sum of the
result's elements grows with it.  Each node is asked once, after all that read it, for what the sum
of their gradients makes of its arguments.
Read next: `table.py` (the rule of each operator), `checkpoints.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    post_order,
)
from tilewright.graph.op import call
from tilewright.graph.op.row import Op
from tilewright.graph.passes.inline import defuse
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.nodes import make_function
from tilewright_tvm.relay.functional.untyped import typed
from tilewright_tvm.relay.gradients.branches import Branches
from tilewright_tvm.relay.gradients.checkpoints import Again
from tilewright_tvm.relay.gradients.shared import Cotangent, filled, whole
from tilewright_tvm.relay.gradients.table import rule_of

MODES = ("higher_order", "first_order")


@door(ModelError, "relay.transform.gradient")
def gradient(
    expr: Function | str, mod: IRModule | None = None, mode: str = "higher_order"
) -> Function:
    """The function that gives `(result, (gradient by each parameter, ...))`.

    The gradients are those of the sum of all elements of the result, of a tuple those of its first
    value, as in TVM; a parameter of integers has zeros.  What the function gives may be
    differentiated again.
    expr: a function, or the name of one of `mod`
    mode: "higher_order" or "first_order": both give the same function here
    Raises ModelError for an operator that has no gradient, and for values whose shapes are known
    when the network runs only.
    """
    place = "relay.transform.gradient"
    if mode not in MODES:
        raise ModelError(f"{place}(mode={mode!r})", "there is no such mode", 'Use "higher_order".')
    if isinstance(expr, str):
        if mod is None:
            raise ModelError(f"{place}({expr!r})", "it is a name without a module", "Give mod=.")
        expr = mod[expr]
    function = defuse(definitions.IRModule({"main": typed(expr)}))["main"]
    params, body = function.params, function.body
    grads = Tuple(_gradients(body, params))
    if any(p.open_extents for p in params):
        _remember(grads, body, params)
    return make_function(params, Tuple([body, grads]))


def _remember(grads: Tuple, body: Expr, params: Sequence[Expr]) -> None:
    """Make the gradients again for numbers, of what `body` is then: all together, or one of them
    where it is taken out."""
    error = ModelError(
        "relay.transform.gradient", "an extent is open", "Give the function shapes of numbers."
    )

    def made(given: Sequence[Expr], field: int | None = None) -> Expr:
        found = Tuple(_gradients(given[0], given[1:]))
        return found if field is None else found[field]

    parts = [body, *params]
    grads.origin = Deferred(parts, (), made, error)
    for k, one in enumerate(grads.fields):
        if one not in params and not isinstance(one, (Constant, Deferred)):
            one.origin = Deferred(parts, (), partial(made, field=k), error)


def _gradients(body: Expr, params: Sequence[Expr]) -> list[Expr]:
    """One for each of `params`; of those that are no variables zeros."""
    wanted = [p for p in params if isinstance(p, Var) and _is_float(p)]
    branches = Branches(body)
    walk = _Walk(branches, wanted, Again(branches))
    found = walk.gradients(branches.body, _one(branches.body))
    made = [found.get(p) for p in params]  # type: ignore[call-overload]
    pairs = zip(made, params, strict=True)
    return branches.restored([whole(g, p.checked_type) for g, p in pairs])


def _one(body: Expr) -> Cotangent:
    """The gradient of the result by itself: of a tuple by its first value."""
    if body.waits:
        return None
    return _one_of(body.checked_type)


def _one_of(kind: Type) -> Cotangent:
    if isinstance(kind, TensorType):
        return filled(kind, 1) if kind.dtype.is_float else None
    return [_one_of(f) if k == 0 else None for k, f in enumerate(kind.fields)]


class _Walk:
    """From values to the variables `wanted`.

    again: what gives the values that rules read
    """

    def __init__(self, branches: Branches, wanted: Sequence[Var], again: Again) -> None:
        self.branches, self.again = branches, again
        self.wanted = frozenset(wanted)
        self._moves: dict[Expr, bool] = {}  # whether a node grows with one of them

    def gradients(self, root: Expr, seed: Cotangent) -> dict[Var, Cotangent]:
        """Of those that have one, where that of `root` is `seed`."""
        order = post_order(root, self.branches.read)
        for node in order:
            self._moves[node] = self._is_moved(node)
        held: dict[Expr, Cotangent] = {root: seed}
        found: dict[Var, Cotangent] = {}
        for node in reversed(order):
            grad = held.pop(node, None)
            if grad is None or not self._moves[node]:
                continue
            if node in self.wanted:
                assert isinstance(node, Var)
                found[node] = _sum(found.get(node), grad)
            elif self.branches.is_one(node):
                for v, own in self._of_branch(node, grad).items():
                    found[v] = _sum(found.get(v), own)
            else:
                for child, share in self._onward(node, grad):
                    if share is not None and self._moves[child]:
                        held[child] = _sum(held.get(child), share)
        return found

    def _is_moved(self, node: Expr) -> bool:
        if node in self.wanted:
            return True
        moved = any(self._moves[c] for c in self.branches.read(node))
        if not moved:
            return False
        if node.waits:
            raise ModelError(
                "relay.transform.gradient", _why(node), "Give it numbers, or shapes of numbers."
            )
        return _is_float(node)

    def _onward(self, node: Expr, grad: Cotangent) -> list[tuple[Expr, Cotangent]]:
        if isinstance(node, Tuple):
            return list(zip(node.fields, _fields(grad, len(node.fields)), strict=True))
        if isinstance(node, TupleGetItem):
            kind = node.tuple_value.checked_type
            assert isinstance(kind, TupleType)
            one: list[Cotangent] = [None] * len(kind.fields)
            one[node.index] = grad
            return [(node.tuple_value, one)]
        assert isinstance(node, Call)
        read = self.again(node)
        assert isinstance(read, Call)
        given = list(rule_of(node)(read, grad))
        _check(node, given)
        return list(zip(node.args, given, strict=True))

    def _of_branch(self, node: Expr, grad: Cotangent) -> Mapping[Var, Cotangent]:
        """Of the branch that is taken; the other one's is not computed."""
        taken, other = (self.gradients(b, grad) for b in self.branches.both(node))
        names = [v for v in self.wanted if v in taken or v in other]
        if not names:
            return {}
        names.sort(key=lambda v: v.name_hint)
        pair = self.branches.chosen(node, *(
            Tuple([whole(side.get(v), v.checked_type) for v in names])
            for side in (taken, other)
        ))  # fmt: skip
        return {v: TupleGetItem(pair, k) for k, v in enumerate(names)}


def _is_float(node: Expr) -> bool:
    """Whether it holds numbers that have a gradient."""
    return not node.waits and _has_float(node.checked_type)


def _has_float(kind: Any) -> bool:
    if isinstance(kind, TupleType):
        return any(map(_has_float, kind.fields))
    return isinstance(kind, TensorType) and kind.dtype.is_float


def _why(node: Expr) -> str:
    later = next((n for n in post_order(node) if isinstance(n, Deferred)), None)
    what = "values" if later is None else later.error.place
    return f"{what} has a shape that is known when it runs only, and grows with a parameter"


def _sum(a: Cotangent, b: Cotangent) -> Any:
    if a is None or b is None:
        return b if a is None else a
    if isinstance(a, Expr) and isinstance(b, Expr):
        return call("add", a, b)
    count = len(b)
    pairs = zip(_fields(a, count), _fields(b, count), strict=True)
    return [_sum(x, y) for x, y in pairs]


def _fields(grad: Cotangent, count: int) -> list[Cotangent]:
    if grad is None:
        return [None] * count
    if isinstance(grad, Tuple):
        return list(grad.fields)
    if isinstance(grad, Expr):
        return [TupleGetItem(grad, k) for k in range(count)]
    return list(grad)


def _check(node: Call, given: Sequence[Cotangent]) -> None:
    """Refuse gradients that are not those of the arguments: a user may have written the rule."""
    assert isinstance(node.op, Op)
    place = f"gradient of {node.op.name}"
    if len(given) != len(node.args):
        raise ModelError(
            place, f"there are {len(given)} for {len(node.args)} arguments", "Give one for each."
        )
    for name, arg, grad in zip(node.op.inputs, node.args, given, strict=True):
        if not isinstance(grad, Expr) or isinstance(grad, Tuple) or grad.waits:
            continue
        if _has_float(arg.checked_type) and grad.checked_type != arg.checked_type:
            raise ModelError(
                place, f"that of {name} has type {grad.checked_type}, not {arg.checked_type}",
                "Use relay.collapse_sum_like(grad, arg) or relay.cast_like.",
            )  # fmt: skip


__all__ = ["MODES", "gradient"]
