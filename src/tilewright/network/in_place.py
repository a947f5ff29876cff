"""Results that may be computed in the memory of an input: caches of which one row is new.

In: a prepared function.  Out: pairs of a result and an input.  A caller that is done with the input
gives its memory to both.  Read next: `../runtime/network/torch_calls.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.graph.expr import Call, Expr, Function, Tuple, TupleGetItem
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.views import made_by
from tilewright.graph.passes.writes import kept_by
from tilewright.graph.traversal import users
from tilewright.network.memory import steps
from tilewright.runtime.network.plan import Pair


def in_place(main: Function) -> tuple[Pair, ...]:
    """Give each result that is `where(c, u, x)` of an input `x` that nothing reads later, by
    itself or beside other results of a kernel.

    An element either stays what it is, so that it does not matter whether it was written before it
    is read, or does not depend on `x`: this holds for any schedule, one that computes an element
    twice included.
    """
    results = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    if any(isinstance(result, Tuple) for result in results):
        return ()
    readers = users(main.body)
    order: dict[Expr, int] = {call: k for k, call in enumerate(steps(main.body))}
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
        alone = made_by(kept) not in made and _is_read_first(made_by(kept), node, readers, order)
        if alone and kept.tensor_type.nbytes == results[k].tensor_type.nbytes:
            found.append(Pair(k, position))
    return tuple(found)


def _is_read_first(
    value: Expr, result: Expr, readers: Mapping[Expr, Sequence[Expr]], order: Mapping[Expr, int]
) -> bool:
    """Whether one kernel gives `result` and reads `value` at one place, whatever views are before
    it, and all others that read it run before."""
    write = result.tuple_value if isinstance(result, TupleGetItem) else result
    places, waiting = 0, [value]
    for node in waiting:
        for reader in readers[node]:
            if not isinstance(reader, Call):
                return False
            if reader is write:
                places += list(reader.args).count(node)
            elif isinstance(reader.op, Function):
                if order[reader] > order[write]:
                    return False
            elif is_view(reader):
                waiting.append(reader)
            else:  # a part of it
                return False
    return places == 1
