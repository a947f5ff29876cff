"""Whole numbers of Python's that vary from call to call, such as how many positions a cache holds:
where they only enter arithmetic, a graph reads them as data and is compiled once.

In: a graph of Dynamo's.  Out: the graph that takes them in tensors, and a function that passes them
so.  What decides an extent stays a number, of which each has a graph of its own.
Read next: `compile.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = Callable[..., Any]

# What numbers may meet in: each other, and tensors, which tensors without extents meet likewise.
_NUMBERS = (operator.add, operator.sub, operator.mul, operator.neg)
_TENSORS = (
    *_NUMBERS, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge
)  # fmt: skip
_BOUNDS = ("sym_max", "sym_min")  # of `torch`


@dataclass(frozen=True)
class Counts:
    """The numbers of a graph that are data.

    positions: of its arguments that are such numbers; read: those of them that tensors meet
    results:   where its results are numbers, in order; told: computes them from all `positions`
    """

    positions: tuple[int, ...]
    read: tuple[int, ...]
    results: tuple[int, ...]
    told: Call

    def passing(self, torch: Any, run: Call) -> Call:
        """The function of the graph as it was, by `run`, which takes `read` in tensors and no other
        of the numbers, and gives no numbers."""
        left = frozenset(self.positions) - frozenset(self.read)

        def call(*args: Any) -> Any:
            where = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
            given = list(args)
            for k in self.read:
                given[k] = torch.full((), args[k], dtype=torch.int64, device=where)
            made = list(run(*(a for k, a in enumerate(given) if k not in left)))
            numbers = self.told(*(args[k] for k in self.positions))
            for k, number in zip(self.results, numbers, strict=True):
                made.insert(k, number)
            return tuple(made)

        return call


def as_data(torch: Any, gm: Any) -> tuple[Any, Counts] | None:
    """A graph that takes whole numbers as tensors where it only computes with them, and which these
    are; None where there are none."""
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    bounds = tuple(getattr(torch, name) for name in _BOUNDS)
    extents = _extents(torch, inputs)
    given = {
        k: n for k, n in enumerate(inputs)
        if _is_count(torch, n) and not _symbols(n.meta["example_value"]) & extents
    }  # fmt: skip
    while given:
        chain, wrong = _followed(torch, gm.graph, set(given.values()), bounds)
        if not wrong:
            break
        given = {k: n for k, n in given.items() if n not in wrong}
    if not given:
        return None
    output = next(n for n in gm.graph.nodes if n.op == "output")
    results = [k for k, n in enumerate(output.args[0]) if n in chain]
    told = _alone(torch, gm, list(given.values()), chain, [output.args[0][k] for k in results])
    made, read = _with_tensors(torch, gm, given, chain, results, bounds)
    return made, Counts(tuple(given), read, tuple(results), told)


def _is_count(torch: Any, node: Any) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymInt)


def _extents(torch: Any, inputs: Sequence[Any]) -> frozenset[Any]:
    """What the extents of inputs depend on."""
    tensors = (n.meta.get("example_value") for n in inputs)
    sizes = ((*t.shape, *t.stride()) for t in tensors if isinstance(t, torch.Tensor))
    return frozenset(s for each in sizes for size in each for s in _symbols(size))


def _symbols(size: Any) -> frozenset[Any]:
    """The symbols of a number; none where it is one of Python's."""
    expression = getattr(getattr(size, "node", None), "expr", None)
    return frozenset(getattr(expression, "free_symbols", ()))


def _followed(
    torch: Any, graph: Any, begins: set[Any], bounds: tuple[Any, ...]
) -> tuple[set[Any], set[Any]]:
    """What is computed of these numbers and is a number, they themselves included; and which of
    them are wanted as numbers."""
    chain: dict[Any, set[Any]] = {n: {n} for n in begins}
    wrong: set[Any] = set()
    for node in graph.nodes:
        met = [n for n in node.all_input_nodes if n in chain]
        if not met or node.op == "output":
            continue
        sources = {s for n in met for s in chain[n]}
        if _is_count(torch, node):
            alone = all(n in chain for n in node.all_input_nodes)
            known = node.op == "call_function" and node.target in (*_NUMBERS, *bounds)
            chain[node] = sources
            if not (alone and known and not node.kwargs):
                wrong |= sources
        elif not _meets(torch, node, chain):
            wrong |= sources
    return set(chain), wrong


def _meets(torch: Any, node: Any, chain: dict[Any, set[Any]]) -> bool:
    """Whether it computes the same of a tensor and a number as of a tensor without extents."""
    if node.op != "call_function" or node.target not in _TENSORS or node.kwargs:
        return False
    for value in node.args:
        if value in chain:
            continue
        held = getattr(value, "meta", {}).get("example_value")
        if not isinstance(held, torch.Tensor):
            return False
        wide = held.dim() > 0 and held.dtype is not torch.bool
        if not (wide or held.dtype is torch.int64 or held.dtype.is_floating_point):
            return False  # whose result would be of the type of the number
    return True


def _alone(
    torch: Any, gm: Any, begins: Sequence[Any], chain: set[Any], results: Sequence[Any]
) -> Call:
    """A function of these numbers that gives those of the results."""
    graph, copies = torch.fx.Graph(), dict[Any, Any]()
    for node in begins:
        copies[node] = graph.placeholder(node.name)
    for node in gm.graph.nodes:
        if node in chain and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in results))
    graph.eliminate_dead_code()
    made: Call = torch.fx.GraphModule({}, graph).forward
    return made


def _with_tensors(
    torch: Any, gm: Any, given: dict[int, Any], chain: set[Any], results: Sequence[int],
    bounds: tuple[Any, ...],
) -> tuple[Any, tuple[int, ...]]:  # fmt: skip
    """The graph without results that are numbers, and with tensors for those that tensors meet,
    whose positions come behind."""
    graph, copies = torch.fx.Graph(), dict[Any, Any]()
    for node in gm.graph.nodes:
        if node.op == "output":
            kept = [n for k, n in enumerate(node.args[0]) if k not in results]
            graph.output(tuple(n if n is None else copies[n] for n in kept))
            continue
        made = graph.node_copy(node, copies.__getitem__)
        copies[node] = made
        if node not in chain:
            continue
        made.meta = {}
        if node.op == "placeholder":
            made.type = torch.Tensor
        elif node.target in bounds:
            _bound(torch, made, "min" if node.target is bounds[0] else "max")
    for node in reversed(gm.graph.nodes):
        if node in chain and not copies[node].users and node.op != "placeholder":
            graph.erase_node(copies.pop(node))
    read = tuple(k for k, n in given.items() if copies[n].users)
    for k, node in given.items():
        if k not in read:
            graph.erase_node(copies[node])
    return torch.fx.GraphModule(gm, graph), read


def _bound(torch: Any, node: Any, which: str) -> None:
    """Have a node that computes the greater or the smaller of two numbers do so of tensors."""
    number = next((a for a in node.args if isinstance(a, int)), None)
    if number is None:
        node.target = torch.maximum if which == "min" else torch.minimum
        return
    node.target, node.kwargs = torch.clamp, {which: number}
    node.args = tuple(a for a in node.args if a is not number)
