"""Memory of a network: which intermediate values may share storage.

In: a fused function, or lifetimes as plain numbers.  Out: slots and their bytes.  Pure
data, no device.  Read next: `passes/fuse.py`.

Method: greedy (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference",
2020): values in some order, each into the slot that fits best, none of whose values lives at the
same time, and which grows if it must.  No order is best for all networks: largest first, those of
the fullest steps first, and from the last step back are tried, and the smallest plan is taken.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    children,
    post_order,
)
from tilewright.relay.passes.dead_code import is_view


@dataclass(frozen=True)
class Lifetime:
    """A value of `nbytes` that keeps its content from step `first` to `last`, both included."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """slot_of: value name -> slot; slot_bytes: size of each slot.

    unshared_bytes: what one buffer per value would take; peak_bytes: what is alive at the worst
    step, the least any plan needs.
    """

    slot_of: dict[str, int]
    slot_bytes: tuple[int, ...]
    unshared_bytes: int
    peak_bytes: int

    @property
    def planned_bytes(self) -> int:
        return sum(self.slot_bytes)

    def __str__(self) -> str:
        mib = 1 / (1 << 20)
        return (
            f"{len(self.slot_of)} values in {len(self.slot_bytes)} buffers: "
            f"{self.planned_bytes * mib:.2f} MiB planned, "
            f"{self.unshared_bytes * mib:.2f} MiB unshared, "
            f"{self.peak_bytes * mib:.2f} MiB alive at once"
        )


def plan_memory(values: Sequence[Lifetime]) -> MemoryPlan:
    """Slots for `values` such that values alive at the same step never share one."""
    live = _live(values)
    fullest = {v.name: max(live[v.first : v.last + 1]) for v in values}
    orders = (
        sorted(values, key=lambda v: (-v.nbytes, v.first, v.name)),
        sorted(values, key=lambda v: (-fullest[v.name], -v.nbytes, v.first, v.name)),
        sorted(values, key=lambda v: (-v.last, -v.nbytes, v.first, v.name)),
    )
    slot_of, sizes = min((_assigned(order) for order in orders), key=lambda made: sum(made[1]))
    return MemoryPlan(slot_of, tuple(sizes), sum(v.nbytes for v in values), max(live, default=0))


def _assigned(order: Sequence[Lifetime]) -> tuple[dict[str, int], list[int]]:
    """The slot of each value, and the size of each slot."""
    slots: list[list[Lifetime]] = []  # what each holds, in order of time
    sizes: list[int] = []
    slot_of: dict[str, int] = {}
    for value in order:
        free = [k for k, held in enumerate(slots) if _is_free(held, value)]
        if not free:
            slots.append([])
            sizes.append(value.nbytes)
            free = [len(slots) - 1]
        need = value.nbytes
        best = min(free, key=lambda k: (max(need - sizes[k], 0), sizes[k], k))
        sizes[best] = max(sizes[best], need)
        insort(slots[best], value, key=_first)
        slot_of[value.name] = best
    return slot_of, sizes


def _is_free(held: Sequence[Lifetime], value: Lifetime) -> bool:
    """held: values of one slot, none of which meet."""
    following = bisect_left(held, value.first, key=_first)
    before, after = held[max(following - 1, 0) : following], held[following : following + 1]
    return all(v.last < value.first for v in before) and all(value.last < v.first for v in after)


def _first(value: Lifetime) -> int:
    return value.first


def _live(values: Sequence[Lifetime]) -> list[int]:
    """Bytes alive at each step."""
    change = [0] * (max((v.last for v in values), default=-1) + 2)
    for v in values:
        change[v.first] += v.nbytes
        change[v.last + 1] -= v.nbytes
    return list(accumulate(change))


def lifetimes(function: Function) -> dict[Expr, Lifetime]:
    """When each computed value of `function` is alive, by the node that computes it.

    Step k is the k-th call that is not a view.  A view lives in the memory of what it renames, so a
    read of the view is a read of that.  Inputs and constants have memory of their own and do not
    appear.  The results of the function live to the end.
    """
    owner: dict[Expr, Expr] = {}
    first: dict[Expr, int] = {}
    last: dict[Expr, int] = {}
    step = -1
    for node in post_order(function.body):
        if isinstance(node, (Var, Constant, Tuple, TupleGetItem)):
            continue
        if is_view(node):
            source = children(node)[0]
            owner[node] = owner.get(source, source)
            continue
        step += 1
        owner[node] = node
        first[node] = last[node] = step
        for value in _read(node):
            if (held := owner.get(value)) in last:
                last[held] = step
    results = _read(function.body) if isinstance(function.body, Tuple) else [function.body]
    for result in results:
        if (held := owner.get(result)) in last:
            last[held] = max(step, 0)
    return {
        node: Lifetime(f"v{begin}", _nbytes(node), begin, last[node])
        for node, begin in first.items()
    }


def _read(node: Expr) -> list[Expr]:
    """The tensors `node` reads, looking through tuples."""
    found: list[Expr] = []
    for child in children(node):
        found += _read(child) if isinstance(child, Tuple) else [child]
    return found


def _nbytes(node: Expr) -> int:
    found = node.checked_type
    assert isinstance(node, Call) and isinstance(found, TensorType)
    return found.nbytes
