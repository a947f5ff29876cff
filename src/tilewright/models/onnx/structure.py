"""The order of an ONNX graph's nodes, and which of them count.

In: the nodes of a graph or a function, the names it defines and gives.  Out: a `Plan`: the nodes
that its results need, each after those it reads.  Read next: `importer.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.errors import ModelError
from tilewright.models.onnx.checks import DAMAGED, shown

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto


@dataclass(frozen=True)
class Plan:
    """
    nodes: with their numbers in the file, in an order in which they can be computed
    read:  names that one of them or the result reads
    """

    nodes: tuple[tuple[int, NodeProto], ...]
    read: frozenset[str]


def subgraphs(attributes: Iterable[AttributeProto]) -> Iterator[GraphProto]:
    """The graphs that attributes hold, such as the branches of an `If`."""
    for attribute in attributes:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def names_read(node: NodeProto) -> set[str]:
    """What `node` reads, graphs inside it included."""
    found = {name for name in node.input if name}
    for graph in subgraphs(node.attribute):
        found |= _free_names(graph)
    return found


def _free_names(graph: GraphProto) -> set[str]:
    """The names of outer graphs that `graph` reads."""
    own = {info.name for info in graph.input} | {weight.name for weight in graph.initializer}
    found = {info.name for info in graph.output}
    for node in graph.node:
        found |= names_read(node)
        own.update(node.output)
    return found - own


def plan(nodes: Sequence[NodeProto], results: Iterable[str], place: str) -> Plan:
    """The part of `nodes` that `results` need, each node after those that it reads.

    Nodes that are in order keep theirs.  Raises ModelError for a name that two nodes give and for
    nodes that read each other.
    """
    giver: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in filter(None, node.output):
            if giver.setdefault(name, k) != k or list(node.output).count(name) > 1:
                raise ModelError(place, f"{shown(name)!r} is there already", DAMAGED)
    reads = [names_read(node) for node in nodes]
    results = set(results)
    needed: set[int] = set()
    waiting = [giver[name] for name in results if name in giver]
    while waiting:
        k = waiting.pop()
        if k not in needed:
            needed.add(k)
            waiting += [giver[name] for name in reads[k] if name in giver]
    order = _ordered(sorted(needed), reads, giver, nodes, place)
    read = results.union(*(reads[k] for k in order))
    return Plan(tuple((k, nodes[k]) for k in order), frozenset(read))


def _ordered(
    needed: Sequence[int], reads: Sequence[set[str]], giver: dict[str, int],
    nodes: Sequence[NodeProto], place: str,
) -> list[int]:  # fmt: skip
    before = {k: {giver[name] for name in reads[k] if name in giver} for k in needed}
    if all(max(before[k], default=-1) < k for k in needed):
        return list(needed)
    missing = Counter({k: len(before[k]) for k in needed})
    readers: dict[int, list[int]] = {k: [] for k in needed}
    for k in needed:
        for j in before[k]:
            readers[j].append(k)
    order = [k for k in needed if not missing[k]]
    for k in order:  # grows while it is walked
        for reader in readers[k]:
            missing[reader] -= 1
            if not missing[reader]:
                order.append(reader)
    if len(order) < len(needed):
        stuck = next(k for k in needed if missing[k])
        name = shown(nodes[stuck].name) or f"#{stuck}"
        raise ModelError(
            place, f"its nodes read each other in a circle, {name} among them", DAMAGED
        )
    return order


def without(node: NodeProto, absent: frozenset[str]) -> NodeProto:
    """`node` as if it were not given the inputs `absent`, which the caller left out."""
    if not absent.intersection(node.input):
        return node
    made = type(node)()
    made.CopyFrom(node)
    made.input[:] = ["" if i in absent else i for i in node.input]
    while made.input and not made.input[-1]:
        made.input.pop()
    return made
