"""Tensors of a functional program: nodes of a graph that is computed when somebody has to know.

In: typed graph values, and what computes a function of tensors.  Out: arrays.  What is computed is
cut out of the graph in one piece, with all in it that is still of use; the rest stays a graph, so
that pieces are as large as what asks for numbers lets them be.
Read next: `machine.py`; `relay/stages.py`, which does the like for ordinary networks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    as_array,
    check_dtype,
    children,
    post_order,
)
from tilewright.graph.traversal import substitute, unpacked
from tilewright_tvm.relay.functional.nodes import make_function
from tilewright_tvm.relay.stages import SHORT, SMALL, Compute


class Tensor:
    """One tensor of a program: `expr`, whose value is known or not yet."""

    __slots__ = ("__weakref__", "expr")

    def __init__(self, expr: Expr) -> None:
        self.expr = expr


class Pool:
    """The tensors of one run.

    made: how many operators were added since something was computed
    """

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._known: WeakKeyDictionary[Expr, Any] = WeakKeyDictionary()
        self._pending: WeakSet[Tensor] = WeakSet()
        self.made = 0

    def given(self, array: Any) -> Tensor:
        """An array, which is where it is already."""
        dtype = check_dtype(str(array.dtype), "input")
        var = Var("input", TensorType(tuple(map(int, array.shape)), dtype))
        self._known[var] = array
        return Tensor(var)

    def value(self, expr: Expr) -> Any:
        """A typed graph value: a tensor, or a tuple of values."""
        if isinstance(expr, Tuple):
            return tuple(map(self.value, expr.fields))
        if isinstance(expr.checked_type, TupleType):
            count = len(expr.checked_type.fields)
            return tuple(self.value(unpacked(TupleGetItem(expr, k))) for k in range(count))
        made = Tensor(expr)
        if not self._is_known(expr):
            self._pending.add(made)
            self.made += 1
        return made

    def number(self, tensor: Tensor) -> Array:
        """Its array, for those who have to look at it."""
        return as_array(self.arrays([tensor])[0])

    def constant(self, tensor: Tensor) -> Constant:
        """What it is, as a node whose numbers are known."""
        return tensor.expr if isinstance(tensor.expr, Constant) else Constant(self.number(tensor))

    def arrays(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Those of several, computed together: arrays of numpy, or of a device."""
        self._settle([t.expr for t in tensors])
        return [self._array(t.expr) for t in tensors]

    def settle(self) -> None:
        """Compute all that is of use and not known."""
        self._settle([t.expr for t in self._pending])

    def _is_known(self, expr: Expr) -> bool:
        return isinstance(expr, Constant) or expr in self._known

    def _array(self, expr: Expr) -> Any:
        return expr.data if isinstance(expr, Constant) else self._known[expr]

    def _settle(self, wanted: Sequence[Expr]) -> None:
        wanted = [e for e in wanted if not self._is_known(e)]
        if not wanted:
            return
        nodes = post_order(Tuple(wanted), lambda n: () if n in self._known else children(n))[:-1]
        alive = {t.expr for t in self._pending}.union(wanted)
        outputs = [n for n in nodes if n in alive and not self._is_known(n)]
        inputs = [n for n in nodes if n in self._known]
        params = {
            e: e if isinstance(e, Var) else Var(f"value.{k}", e.checked_type)
            for k, e in enumerate(inputs)
        }
        there: dict[Expr, Expr] = {e: p for e, p in params.items() if e is not p}
        body: Expr = Tuple(outputs)
        function = make_function(list(params.values()), substitute(body, there) if there else body)
        given = [self._known[e] for e in inputs]
        run = evaluated if is_small(function) else self._compute
        for expr, array in zip(outputs, run(function, given), strict=True):
            self._known[expr] = array
        self.made = 0
        self._let_go(set(outputs))

    def _let_go(self, computed: set[Expr]) -> None:
        """What was computed stands for itself from here on: its history can go."""
        for tensor in [t for t in self._pending if t.expr in computed]:
            self._pending.discard(tensor)
            var = Var("value", tensor.expr.checked_type)
            self._known[var] = self._known[tensor.expr]
            tensor.expr = var


def evaluated(function: Function, given: Sequence[Any]) -> Sequence[Any]:
    """The results of a function of tensors, by numpy."""
    arrays = {p.name_hint: as_array(a) for p, a in zip(function.params, given, strict=True)}
    found: Sequence[Any] = evaluate(function, arrays)
    return found


def is_small(function: Function) -> bool:
    """Whether it is arithmetic of a few numbers, which is evaluated and not compiled."""
    kinds = (n.checked_type for n in post_order(function.body))
    sizes = [k.size for k in kinds if isinstance(k, TensorType)]
    return max(sizes, default=0) <= SMALL and sum(sizes) <= SHORT * SMALL
