"""Kernels of a network that only move elements, and what keeps each from being part of another.

In: a prepared function, the kernel of each call.  Out: rows for the build's report.
Read next: `../graph/passes/fuse.py`, `build.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tilewright.graph.expr import Call, Expr, Function, Tuple, TupleGetItem, post_order
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import op_name, users
from tilewright.runtime.network.report import KernelReport, Moved

_INSIDE = "it writes what is new to the memory of an input"
_CHOICES = ("cast", "where")  # elements of floats that are not computed


def moved(
    mains: Sequence[Function], kernel_of: Sequence[Mapping[Call, int]],
    kernels: Sequence[KernelReport], written: Sequence[Collection[Expr]],
) -> tuple[Moved, ...]:  # fmt: skip
    """Give a row for each kernel that only moves, those with the most bytes first.

    kernel_of: of each function the number of the kernel of each of its calls
    written:   of each function which results are written over inputs, in place
    """
    found: dict[tuple[int, str], Moved] = {}
    for k, (main, numbers, over) in enumerate(zip(mains, kernel_of, written, strict=True)):
        readers, inside = users(main.body), set(map(_maker, over))
        for node in readers:
            if not isinstance(node, Call) or node not in numbers or not _only_moves(node):
                continue
            kernel, why = numbers[node], _INSIDE if node in inside else _why(node, readers)
            nbytes = sum(n.tensor_type.nbytes for n in _results(node))
            known = found.get((kernel, why)) or Moved(
                kernels[kernel].label, 0, 0, why, (0,) * len(mains)
            )
            each = tuple(n + (i == k) for i, n in enumerate(known.each))
            found[kernel, why] = Moved(
                known.label, known.calls + 1, known.nbytes + nbytes, why, each
            )
    return tuple(sorted(found.values(), key=lambda row: -row.nbytes))


def _maker(value: Expr) -> Expr:
    """The call that a result is of, by views and tuples or not."""
    while True:
        if isinstance(value, TupleGetItem):
            value = value.tuple_value
        elif is_view(value) and isinstance(value, Call):
            value = value.args[0]
        else:
            return value


def _only_moves(node: Call) -> bool:
    """Whether no float is computed; numbers that say where to are."""
    if not isinstance(node.op, Function):
        return False
    calls = [n for n in post_order(node.op.body) if isinstance(n, Call)]
    return bool(calls) and all(map(_moves, calls))


def _moves(call: Call) -> bool:
    name = op_name(call)
    if not name:
        return False
    if is_view(call) or name in _CHOICES or TABLE[name].pattern is Pattern.INJECTIVE:
        return True
    whole = not call.tensor_type.dtype.is_float
    return whole and TABLE[name].pattern < Pattern.INJECTIVE


def _results(node: Call) -> list[Expr]:
    body = node.op.body if isinstance(node.op, Function) else node
    return list(body.fields) if isinstance(body, Tuple) else [body]


def _why(node: Call, readers: Mapping[Expr, Sequence[Expr]]) -> str:
    """What reads the result, and so why that does not compute it."""
    reading = list(dict.fromkeys(_readers(node, readers)))
    if None in reading:
        return "it is a result of the network"
    if len(reading) > 1:
        return f"{len(reading)} kernels read it"
    (reader,) = reading
    assert reader is not None
    body = reader.op.body if isinstance(reader.op, Function) else reader
    names = (op_name(n) for n in post_order(body) if isinstance(n, Call))
    patterns = {name: TABLE[name].pattern for name in names if name in TABLE}
    anchors = [n for n, pattern in patterns.items() if pattern >= Pattern.REDUCTION]
    if anchors:
        return f"{anchors[0]} reads it, more than once an element"
    return f"it is apart from {'+'.join(dict.fromkeys(patterns)) or 'what reads it'}"


def _readers(node: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> Iterator[Call | None]:
    """The kernels that read `node`, by views and tuples or not; None for the network's result."""
    if not readers[node]:
        yield None
    for reader in readers[node]:
        if isinstance(reader, Call) and isinstance(reader.op, Function):
            yield reader
        elif isinstance(reader, Call | Tuple | TupleGetItem):
            yield from _readers(reader, readers)
