"""Memory of a network: where its intermediate values live.

In: a fused function, or lifetimes as plain numbers.  Out: an offset in a slot for each value, and
the bytes of the slots.  Pure data, no device.  Read next: `graph/passes/views.py`,
`graph/passes/fuse.py`.

The bound: whatever the plan, the values that are alive at one step are apart, so it needs at least
the largest sum of their sizes over the steps (`peak_bytes`), for the order in which they run.

Method: greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020): values in some order, each at the lowest offset where nothing lives at the same
time.  No order is best for all networks: largest first, those of the fullest steps first, and the
largest products of size and lifetime are tried.  What ends above the bound then goes first, and
all are placed again, a few times; the smallest plan is taken, at once where it is near the bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from tilewright.graph.expr import (
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
from tilewright.graph.passes.views import begin_of, made_by
from tilewright.graph.passes.writes import last_writes
from tilewright.graph.traversal import is_call, op_name
from tilewright.runtime.drivers import ALIGNMENT

NEAR = 0.01  # of the bound: a plan that is so near is taken at once
ROUNDS = 8  # of placing again what did not fit, for each order
MOST = 2_000  # values placed in these rounds: long networks get fewer
_FOR_EVER = 1 << 60


@dataclass(frozen=True)
class Lifetime:
    """A value of `nbytes` that keeps its content from step `first` to `last`, both included.

    kept: a result, which has a slot of its own size, so that a caller can give its memory
    """

    name: str
    nbytes: int
    first: int
    last: int
    kept: bool = False


@dataclass(frozen=True)
class MemoryPlan:
    """place_of: value name -> slot, and its offset there in bytes; slot_bytes: size of each slot.

    unshared_bytes: what one buffer per value would take; peak_bytes: what is alive at the worst
    step, the least any plan needs.
    """

    place_of: dict[str, tuple[int, int]]
    slot_bytes: tuple[int, ...]
    unshared_bytes: int
    peak_bytes: int

    @property
    def planned_bytes(self) -> int:
        return sum(self.slot_bytes)

    def __str__(self) -> str:
        mib = 1 / (1 << 20)
        return (
            f"{len(self.place_of)} values: {self.planned_bytes * mib:.2f} MiB planned, "
            f"{self.unshared_bytes * mib:.2f} MiB unshared, "
            f"{self.peak_bytes * mib:.2f} MiB alive at once"
        )


def plan_memory(values: Sequence[Lifetime], alignment: int = ALIGNMENT) -> MemoryPlan:
    """Place `values` such that those alive at the same step are apart.

    alignment: of every value, in bytes
    """
    kept, free = [v for v in values if v.kept], [v for v in values if not v.kept]
    sizes = {v.name: -(-max(v.nbytes, 1) // alignment) * alignment for v in values}
    line = _Line(kept, sizes, len(values), alignment)
    peak = max(_live(values, {v.name: v.nbytes for v in values}), default=0)
    shared = max(_live(values, sizes), default=0) - sum(sizes[v.name] for v in kept)
    best, end = _best(free, sizes, line, line.begins[-1] + max(shared, 0) + int(NEAR * peak))
    place_of = {v.name: (k, 0) for k, v in enumerate(kept)}
    for name, address in best.items():
        slot = bisect_right(line.begins, address) - 1
        place_of[name] = slot, address - line.begins[slot]
    rest = [end - line.begins[-1]] if end > line.begins[-1] else []
    slots = (*(v.nbytes for v in kept), *rest)
    return MemoryPlan(place_of, slots, sum(v.nbytes for v in values), peak)


class _Line:
    """One line of addresses: the slots of results, then memory that all other values share.

    begins: of each of those slots, and of what is shared
    """

    def __init__(
        self, kept: Sequence[Lifetime], sizes: Mapping[str, int], room: int, alignment: int
    ) -> None:
        self.begins = [0]
        self._rows = np.empty((4, room + len(kept)), np.int64)  # first and last step, begin, end
        self._count = 0
        for value in kept:
            begin = self.begins[-1]
            usable = begin + value.nbytes // alignment * alignment
            end = begin + sizes[value.name] + alignment
            self.put(value.first, value.last, begin, usable)
            self.put(0, _FOR_EVER, usable, end)  # a wall: no value lies in two slots
            self.begins.append(end)
        self._fixed = self._count

    def clear(self) -> None:
        """Take away what was put since it was made."""
        self._count = self._fixed

    def put(self, *row: int) -> None:
        self._rows[:, self._count] = row
        self._count += 1

    def lowest(self, value: Lifetime, size: int) -> int:
        """The lowest address from which on `size` bytes are free while `value` lives."""
        first, last, begins, ends = self._rows[:, : self._count]
        met = np.flatnonzero((first <= value.last) & (last >= value.first))
        at = 0
        for begin, end in sorted(zip(begins[met].tolist(), ends[met].tolist(), strict=True)):
            if begin - at >= size:
                break
            at = max(at, end)
        return at


def _best(
    values: Sequence[Lifetime], sizes: Mapping[str, int], line: _Line, near: int
) -> tuple[dict[str, int], int]:
    """The address of each value in the best plan, and where that ends; up to `near` is enough."""
    rounds = min(ROUNDS, MOST // max(len(values), 1))
    found: tuple[dict[str, int], int] | None = None
    for order in _orders(values):
        for _ in range(1 + rounds):
            places, end = _placed(order, sizes, line)
            if found is None or end < found[1]:
                found = places, end
            if found[1] <= near:
                return found
            above = {v for v in order if places[v.name] + sizes[v.name] > near}
            order = [*(v for v in order if v in above), *(v for v in order if v not in above)]
    assert found is not None
    return found


def _orders(values: Sequence[Lifetime]) -> Iterator[list[Lifetime]]:
    live = _live(values, {v.name: v.nbytes for v in values})
    fullest = {v.name: max(live[v.first : v.last + 1]) for v in values}
    yield sorted(values, key=lambda v: (-v.nbytes, v.first, v.name))
    yield sorted(values, key=lambda v: (-fullest[v.name], -v.nbytes, v.first, v.name))
    yield sorted(values, key=lambda v: (-v.nbytes * (v.last - v.first + 1), v.first, v.name))


def _placed(
    order: Sequence[Lifetime], sizes: Mapping[str, int], line: _Line
) -> tuple[dict[str, int], int]:
    """The address of each value, and the end of all."""
    line.clear()
    found, end = dict[str, int](), line.begins[-1]
    for value in order:
        begin = found[value.name] = line.lowest(value, sizes[value.name])
        behind = begin + sizes[value.name]
        line.put(value.first, value.last, begin, behind)
        end = max(end, behind)
    return found, end


def _live(values: Sequence[Lifetime], sizes: Mapping[str, int]) -> list[int]:
    """Bytes alive at each step."""
    change = [0] * (max((v.last for v in values), default=-1) + 2)
    for v in values:
        change[v.first] += sizes[v.name]
        change[v.last + 1] -= sizes[v.name]
    return list(accumulate(change))


# -- values of a network ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where the value of a node is: in the memory of `owner`, from byte `offset` on."""

    owner: Expr
    offset: int = 0


def places(body: Expr) -> dict[Expr, Place]:
    """Give the place of each tensor of a fused function.

    Calls of operators are left outside groups where they need no kernel: a view or a slice is a
    part of what it reads, and what a concatenation reads is made as a part of it.
    """
    nodes = [n for n in post_order(body) if _is_tensor(n)]
    found: dict[Expr, Place] = {}
    for node in reversed(nodes):  # a concatenation of concatenations before those
        if is_call(node, "concatenate"):
            whole = found.setdefault(node, Place(node))
            begin = whole.offset
            for part in _read(node):
                found[made_by(part)] = Place(whole.owner, begin)
                begin += _nbytes(part)
    for node in nodes:
        if node in found:
            continue
        found[node] = Place(node)
        if op_name(node):
            source = found[_read(node)[0]]
            found[node] = Place(source.owner, source.offset + begin_of(node))
    return found


def _is_tensor(node: Expr) -> bool:
    """Whether it is one tensor that is not a field of a tuple of others."""
    if isinstance(node, TupleGetItem):
        return isinstance(node.tuple_value, Call)
    return isinstance(node.checked_type, TensorType)


def made_in(body: Expr) -> dict[Expr, list[Expr]]:
    """Give the tensors that each group of a fused function makes, in the order of its results."""
    found: dict[Expr, list[Expr]] = {
        call: [call] if isinstance(call.checked_type, TensorType) else [] for call in steps(body)
    }
    several = [n for n in post_order(body) if isinstance(n, TupleGetItem) and _is_tensor(n)]
    for node in sorted(several, key=lambda n: n.index):
        found[node.tuple_value].append(node)
    return found


def steps(body: Expr) -> list[Call]:
    """Give the calls of groups, in the order in which they run: what is written to inputs comes
    when all others have read these, and not at the very end: the kernel behind it may ask for its
    weights meanwhile."""
    calls = [n for n in post_order(body) if isinstance(n, Call) and isinstance(n.op, Function)]
    last = last_writes(body)
    writes = set(last)
    others = [call for call in calls if call not in writes]
    reads = [_sources(call) for call in others]
    behind: dict[int, list[Call]] = {}
    for write in last:
        sources = _sources(write)
        inputs = {source for source in sources if isinstance(source, Var)}
        near = (k for k, call in enumerate(others) if call in sources or inputs & reads[k])
        behind.setdefault(max(near, default=-1), []).append(write)
    order = behind.get(-1, [])
    return [*order, *(c for k, call in enumerate(others) for c in (call, *behind.get(k, ())))]


def _sources(call: Call) -> set[Expr]:
    """The inputs, constants and calls of groups that a call reads something of."""
    found: set[Expr] = set()
    waiting = list(call.args)
    for value in waiting:
        if isinstance(value, (Var, Constant)) or (
            isinstance(value, Call) and isinstance(value.op, Function)
        ):
            found.add(value)
        else:  # a view, a part, a result of several
            waiting += children(value)
    return found


def lifetimes(function: Function) -> dict[Expr, Lifetime]:
    """Say when each value of `function` that has memory is alive, by the node that owns it.

    Step k is the k-th call of a group.  To read a part of a value is to read it; inputs and
    constants have memory of their own and do not appear.  The results live to the end.
    """
    place = places(function.body)
    first: dict[Expr, int] = {}
    last: dict[Expr, int] = {}
    order, made = steps(function.body), made_in(function.body)
    for step, node in enumerate(order):
        for value in made[node]:
            first.setdefault(place[value].owner, step)
        for value in (*made[node], *_read(node)):
            last[place[value].owner] = step
    body = function.body
    results = {place[r].owner for r in (_read(body) if isinstance(body, Tuple) else [body])}
    for owner in results:
        last[owner] = max(len(order) - 1, 0)
    return {
        node: Lifetime(_name(node, begin), _nbytes(node), begin, last[node], node in results)
        for node, begin in first.items()
        if not isinstance(node, (Var, Constant))
    }


def _name(node: Expr, step: int) -> str:
    return f"v{step}.{node.index}" if isinstance(node, TupleGetItem) else f"v{step}"


def _read(node: Expr) -> list[Expr]:
    """The tensors `node` reads, looking through tuples."""
    found: list[Expr] = []
    for child in children(node):
        if isinstance(child, TupleGetItem) and isinstance(child.tuple_value, Tuple):
            child = child.tuple_value.fields[child.index]
        found += _read(child) if isinstance(child, Tuple) else [child]
    return found


def _nbytes(node: Expr) -> int:
    found = node.checked_type
    assert isinstance(found, TensorType)
    return found.nbytes
