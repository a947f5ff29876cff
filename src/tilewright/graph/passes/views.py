"""Slices and concatenations that need no kernel: a part of memory is another value.

In: the body of a function.  Out: its calls that only say where something is.  Fusion leaves them
outside groups, as it does views; `network/memory.py` gives the places.  Read next: `fuse.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from math import prod

from tilewright.graph.expr import Call, Expr, Tuple, Var
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import is_call, op_name
from tilewright.runtime.drivers import ALIGNMENT

Readers = Mapping[Expr, Sequence[Expr]]


def memory_views(body: Expr, readers: Readers, taken: Iterable[Expr] = ()) -> set[Expr]:
    """Give the slices and concatenations of `body` that need no kernel.

    A slice whose elements are neighbours is a part of what it reads, unless that is made for it
    alone by moving or elementwise steps: then only what is kept is computed.  The parts of a
    concatenation are computed in their places, each by a kernel of its own, where they are
    neighbours.  Every part begins where kernels may be given memory, at a multiple of `ALIGNMENT`.
    Results of the body have memory of their own, so they are computed.

    readers: of each node, arguments before their readers; taken: what is in a group already
    """
    own = {made_by(r) for r in (body.fields if isinstance(body, Tuple) else (body,))}
    own.update(taken)
    found: set[Expr] = set()
    for node in readers:
        if node not in own and _is_part(node, readers, found):
            found.add(node)
    parts = set(own | found)  # made as parts of something, or never
    for node in reversed(list(readers)):  # the whole first: it may take in smaller ones
        made = [] if node in own else [made_by(p) for p in _parts(node)]
        free = len(set(made)) == len(made) and not parts.intersection(made)
        if made and free and all(op_name(m) for m in made):
            found.add(node)
            parts.update(made)
    return found


def made_by(node: Expr) -> Expr:
    """Give what computes the value that `node` is a view of."""
    while is_view(node):
        assert isinstance(node, Call)
        node = node.args[0]
    return node


def begin_of(node: Expr) -> int:
    """Say where in what it reads a view, or a slice that is a part of it, begins; in bytes."""
    if not is_call(node, "strided_slice"):
        return 0
    assert isinstance(node, Call)
    data, begin = node.args[0].tensor_type, 0
    for first, extent in zip(node.attrs.begin, data.shape, strict=True):
        begin = begin * extent + int(first)
    return begin * data.dtype.bytes


def _is_part(node: Expr, readers: Readers, found: Collection[Expr]) -> bool:
    """Whether `node` is a slice that is a part of what it reads; found: slices that are."""
    if not is_call(node, "strided_slice"):
        return False
    assert isinstance(node, Call)
    data, attrs = node.args[0], node.attrs
    if not isinstance(data, (Call, Var)) or 0 in node.shape or begin_of(node) % ALIGNMENT:
        return False
    made = op_name(data) and not is_view(data) and data not in found
    if made and len(readers[data]) == 1 and TABLE[op_name(data)].pattern <= Pattern.INJECTIVE:
        return False
    outer = next((k for k, n in enumerate(node.shape) if n > 1), len(node.shape))
    steps = zip(node.shape, attrs.strides, strict=True)
    return node.shape[outer + 1 :] == data.shape[outer + 1 :] and all(
        n == 1 or step == 1 for n, step in steps
    )


def _parts(node: Expr) -> Sequence[Expr]:
    """What a concatenation reads, where that lies one behind the other, each at a multiple of
    `ALIGNMENT`; otherwise nothing."""
    if not is_call(node, "concatenate"):
        return ()
    assert isinstance(node, Call)
    whole, axis = node.args[0], node.attrs.axis % len(node.shape)
    if not isinstance(whole, Tuple) or prod(node.shape[:axis]) != 1:
        return ()
    parts = whole.fields
    sizes = [p.tensor_type.nbytes for p in parts]
    begins = accumulate(sizes[:-1], initial=0)
    return () if 0 in sizes or any(b % ALIGNMENT for b in begins) else parts
