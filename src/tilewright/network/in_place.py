"""Results that may be computed in the memory of an input: caches of which one row is new.

In: a prepared function.  Out: pairs of a result and an input.  A caller that is done with the input
gives its memory to both.  Read next: `../runtime/network/torch_calls.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.expr import Call, Expr, Function, Tuple
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.views import made_by
from tilewright.graph.passes.writes import kept_by
from tilewright.graph.traversal import users
from tilewright.runtime.network.plan import Pair


def in_place(main: Function) -> tuple[Pair, ...]:
    """Give each result that is `where(c, u, x)` of an input `x` that nothing else reads, by
    itself or beside other results of a kernel.

    An element either stays what it is, so that it does not matter whether it was written before it
    is read, or does not depend on `x`: this holds for any schedule, one that computes an element
    twice included.
    """
    results = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    if any(isinstance(result, Tuple) for result in results):
        return ()
    readers = users(main.body)
    made = [made_by(result) for result in results]
    inputs: dict[Expr, int] = {param: k for k, param in enumerate(main.params)}
    found = []
    for k, node in enumerate(made):
        if made.count(node) > 1:
            continue
        kept = kept_by(node)
        position = inputs.get(made_by(kept)) if kept is not None else None
        if position is None or kept is None:
            continue
        alone = _read_once(made_by(kept), readers) and made_by(kept) not in made
        if alone and kept.tensor_type.nbytes == results[k].tensor_type.nbytes:
            found.append(Pair(k, position))
    return tuple(found)


def _read_once(value: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> bool:
    """Whether one group reads `value`, at one place, whatever views are before it."""
    while True:
        if len(readers[value]) != 1:
            return False
        (reader,) = readers[value]
        if not isinstance(reader, Call):
            return False
        if isinstance(reader.op, Function):
            return list(reader.args).count(value) == 1
        if not is_view(reader):  # a part of it
            return False
        value = reader
