"""Networks in which values decide shapes, one stage after the other.

In: a graph with nodes that wait (`graph/deferred.py`), values of its inputs, and what computes
graphs without such nodes.  Out: its result.  A stage computes what has to be looked at, and with it
what the rest reads of that; then the rest is made for what was seen, as far as the next such place.
Stages are kept by what was seen.
Read next: `executable.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Computed
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    as_array,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.traversal import unpacked
from tilewright.graph.waiting import advanced_body, nodes_waited_for

# What computes a function of tensors: of the values of its parameters those of its results.
Compute = Callable[[Function, Sequence[Any]], Sequence[Any]]


MOST_STAGES = 10_000  # of one run


MOST_KEPT = 256  # stages of one network


SMALL, SHORT = 1024, 64  # elements, and nodes, of what is evaluated rather than compiled


_WAY_OUT = "Let what it depends on end it sooner, or unroll it where the network is made."


class Stage:
    """One part of a run.

    body:     what is left of the network; without a node that waits it is the last stage
    waiting:  nodes that can be made, or computed, once what they ask for is known
    carried:  tensors that are computed for that, and that the rest reads
    results:  of the last stage: the tensors of the network
    outputs:  all that is computed: results of `function`
    """

    def __init__(self, body: Expr) -> None:
        self.body, self.waiting = body, nodes_waited_for(body)
        self.asked = list(dict.fromkeys(a for node in self.waiting for a in node.asks))
        states = [p for n in self.waiting if n.trip for p in n.parts if not p.waits]
        self.carried = _read_behind(body, [*self.asked, *states]) if self.waiting else []
        self.results = [] if self.waiting else _tensors(body)
        wanted = dict.fromkeys([*self.asked, *self.carried, *self.results])
        self.outputs = [e for e in wanted if not isinstance(e, (Var, Constant))]
        result = Tuple(self.outputs)
        self.function = Function(free_vars(result), result)
        self.constants: dict[Expr, Any] = {
            e: e.data for e in self.results if isinstance(e, Constant)
        }

    @property
    def is_small(self) -> bool:
        """Whether it is arithmetic of a few numbers, such as extents."""
        nodes = post_order(self.function.body)
        kinds = [n.checked_type for n in nodes]
        sizes = [k.size for k in kinds if isinstance(k, TensorType)]
        return bool(self.waiting) and len(nodes) <= SHORT and max(sizes, default=0) <= SMALL

    def values(self, there: Mapping[Var, Any], compute: Compute) -> dict[Expr, Any]:
        """Of the outputs, from those of variables."""
        found: dict[Expr, Any] = dict(self.constants)
        found.update(there.items())
        if not self.outputs:
            return found
        given = [there[p] for p in self.function.params]
        if self.is_small:
            arrays = {
                p.name_hint: as_array(v) for p, v in zip(self.function.params, given, strict=True)
            }
            made = evaluate(self.function, arrays)
        else:
            made = compute(self.function, given)
        found.update(zip(self.outputs, made, strict=True))
        return found


@dataclass
class _Next:
    """A stage that was made, and which variables stand in it for what was computed before."""

    stage: Stage
    variables: dict[Expr, list[Var]] = field(default_factory=dict)


class Stages:
    """Those of one network; the oldest are dropped."""

    def __init__(self, main: Function) -> None:
        main = extension().typed(main)
        self.params, self.first = main.params, Stage(advanced_body(main.body, {}))
        self._kept: OrderedDict[tuple[Any, ...], _Next] = OrderedDict()
        self._numbers = count()

    def run(self, given: Mapping[Var, Any], compute: Compute) -> tuple[list[Any], Expr]:
        """The values of the network's tensors, in order, and the graph that gave them.

        Raises ModelError for a run that does not end, and for what cannot be made of the values.
        """
        stage, there = self.first, dict(given)
        for _ in range(MOST_STAGES):
            values = stage.values(there, compute)
            if not stage.waiting:
                return [values[e] for e in stage.results], stage.body
            found: dict[Expr, tuple[Any, ...]] = {
                n: _arrays_of(n, values) for n in stage.waiting if isinstance(n, Computed)
            }
            following = self._next(stage, values, found)
            for node, variables in following.variables.items():
                arrays = found.get(node, (values.get(node),))
                there.update(zip(variables, arrays, strict=True))
            stage = following.stage
        place = stage.waiting[0].error.place
        raise ModelError(place, f"it has not ended after {MOST_STAGES} steps", _WAY_OUT)

    def _next(
        self, stage: Stage, values: Mapping[Expr, Any], found: Mapping[Expr, tuple[Array, ...]]
    ) -> _Next:
        """The rest, for what was seen.  found: what `Computed` nodes gave"""
        decide = dict.fromkeys(a for n in stage.waiting if n not in found for a in n.asks)
        seen = {a: as_array(values[a]) for a in decide}
        key = (
            stage,
            *((a.dtype.str, a.shape, blake2b(a.tobytes()).digest()) for a in seen.values()),
            *((a.dtype.str, a.shape) for arrays in found.values() for a in arrays),
        )
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        new: dict[Expr, Expr] = {a: Constant(array) for a, array in seen.items()}
        variables: dict[Expr, list[Var]] = {}
        for node, arrays in found.items():
            mine = [self._variable(Constant(a).tensor_type) for a in arrays]
            several = isinstance(node, Computed) and node.several
            variables[node], new[node] = mine, Tuple(mine) if several else mine[0]
        for node in stage.carried:
            if node not in new:
                new[node] = variable = self._variable(node.tensor_type)
                variables[node] = [variable]
        made = self._kept[key] = _Next(Stage(advanced_body(stage.body, new)), variables)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return made

    def _variable(self, kind: TensorType) -> Var:
        return Var(f"value.{next(self._numbers)}", kind)


def _read_behind(root: Expr, asked: Sequence[Expr]) -> list[Expr]:
    """The tensors that are computed for `asked`, and that nodes read which are not."""
    inside = set(post_order(Tuple(asked)))
    read = (c for n in post_order(root) if n not in inside for c in children(n))
    return [
        c for c in dict.fromkeys(read)
        if c in inside and isinstance(c, (Call, TupleGetItem))
        and isinstance(c.checked_type, TensorType)
    ]  # fmt: skip


def _tensors(node: Expr) -> list[Expr]:
    """The values in a tuple of tuples, in order; a tensor alone."""
    if not isinstance(node.checked_type, TupleType):
        return [node]
    parts = (unpacked(TupleGetItem(node, k)) for k in range(len(node.checked_type.fields)))
    return [t for part in parts for t in _tensors(part)]


def _arrays_of(node: Computed, values: Mapping[Expr, Any]) -> tuple[Array, ...]:
    parts = [p.data if isinstance(p, Constant) else as_array(values[p]) for p in node.parts]
    return node.arrays(parts)
