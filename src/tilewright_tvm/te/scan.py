"""`te.scan`: tensors whose elements at a step are computed from those at earlier steps.

In: what the first steps are, what a step makes of earlier ones, and placeholders that stand for
them.  Out: the tensors of one stage, whose first axis is time.  Its loop is serial; what a step
computes on the way is computed inside it.  Read next: `te/recurrence.py`, what such a stage is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr, walk
from tilewright.ir.tuples import parts, together
from tilewright.te.recurrence import ScanOp
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor

_FORM = "Write a step as te.compute(shape, lambda t, ...: ... state[t - 1, ...] ...)."


@door(ExpressionError, "te.scan")
def scan(
    init: Any,
    update: Any,
    state_placeholder: Any,
    inputs: Tensor | Sequence[Tensor] = (),
    name: str = "scan",
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """The tensor that `update` makes step by step; for lists of states a tuple of tensors.

    init:              [k, ...], the first k steps
    update:            [steps, ...], of which step t reads the state at t - 1, or further back
    state_placeholder: [steps, ...], what stands for the state in `update`
    inputs:            what else is read; it follows from `update`

    All states have one shape.  An update that is no reduction, and that no other update reads, is
    the loop nest of the scan itself: `s[update]` is its stage.  Other stages that depend on the
    state are computed at its time axis, `scan.op.scan_axis`.
    Raises ExpressionError for states that do not match, and for a step that does not follow from
    earlier ones.
    """
    place = f"scan({name!r})"
    inits, updates, states = (_listed(x, place) for x in (init, update, state_placeholder))
    first = _checked(inits, updates, states, place)
    inside = _inside(updates, set(states))
    made_inside = {t for stage in inside for t in stage.outputs}
    for stage in inside:
        _check_step(stage, set(states), made_inside, first, place)
    if any(t in states for stage in _behind(inits) for t in stage.outputs):
        raise ExpressionError(place, "its first steps read the state", "Compute them from inputs.")
    read = {t for stage in inside for t in stage.input_tensors}
    axes = updates[0].op.axis
    at = tuple(ax.var for ax in axes)
    own: list[Tensor] = []
    values: list[Expr] = []
    for begin, new in zip(inits, updates, strict=True):
        step, op = new[at], new.op
        if isinstance(op, ComputeOp) and op.combiner is None and read.isdisjoint(op.outputs):
            same: Mapping[Expr, E.Value] = {a.var: v for a, v in zip(op.axis, at, strict=True)}
            step = E.substitute(parts(op.body)[new.value_index], same)
            own.append(new)
        values.append(E.if_then_else(at[0] < first, begin[at], step))
    made = ScanOp(name, axes, together(values), tag, attrs, states=states, first=first, updates=own)
    found = made.outputs
    several = isinstance(state_placeholder, (tuple, list))
    return found if several else found[0]  # type: ignore[return-value]


def _listed(given: Any, place: str) -> list[Tensor]:
    listed = list(given) if isinstance(given, (tuple, list)) else [given]
    for item in listed:
        if not isinstance(item, Tensor):
            raise ExpressionError(place, f"{item!r:.60} is no tensor", "Give tensors, or lists.")
    return listed


def _checked(
    inits: Sequence[Tensor], updates: Sequence[Tensor], states: Sequence[Tensor], place: str
) -> int:
    """How many steps are given.  Raises ExpressionError where shapes or types do not match."""
    if not states or not len(inits) == len(updates) == len(states) == len(set(states)):
        raise ExpressionError(
            place, f"{len(inits)} beginnings, {len(updates)} updates, {len(states)} states",
            "Give one of each for every state.",
        )  # fmt: skip
    shape = states[0].shape
    for begin, new, state in zip(inits, updates, states, strict=True):
        if not isinstance(state.op, PlaceholderOp) or not isinstance(new.op, ComputeOp):
            raise ExpressionError(
                place, f"{state.name} and {new.name}: a state is a te.placeholder, an update is "
                "computed from it", _FORM,
            )  # fmt: skip
        kinds = {begin.dtype, new.dtype, state.dtype}
        own = (new.shape, state.shape, (*shape[:1], *begin.shape[1:]))
        if not shape or len(kinds) > 1 or any(not _same(s, shape) for s in own) or not begin.shape:
            raise ExpressionError(
                place, f"{begin.name}, {new.name} and {state.name} have the shapes "
                f"{list(begin.shape)}, {list(new.shape)} and {list(state.shape)}, the types "
                f"{', '.join(sorted(map(str, kinds)))}",
                "Update and state are [steps, ...], the beginning is [k, ...], of one type; all "
                "states have one shape: use a scan for each, or pad them.",
            )  # fmt: skip
    counts = {begin.shape[0] for begin in inits}
    first = counts.pop()
    if counts or not isinstance(first, int) or first < 1:
        raise ExpressionError(place, "how many steps are given must be one number, at least 1")
    return first


def _same(a: Sequence[Any], b: Sequence[Any]) -> bool:
    if len(a) != len(b):
        return False
    return all(x is y or (isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True))


def _behind(tensors: Sequence[Tensor]) -> list[Any]:
    """All operations that the tensors are computed from, readers first."""
    found: dict[Any, None] = {}
    waiting = [t.op for t in tensors]
    while waiting:
        op = waiting.pop()
        if op not in found:
            found[op] = None
            waiting += [t.op for t in op.input_tensors]
    return list(found)


def _inside(updates: Sequence[Tensor], states: set[Tensor]) -> list[ComputeOp]:
    """The updates, and the operations between them and the states."""
    known: dict[Any, bool] = {t.op: True for t in (*states, *updates)}

    def depends(op: Any) -> bool:
        if op not in known:
            known[op] = any([depends(t.op) for t in op.input_tensors])
        return known[op]

    ops = _behind(updates)
    return [op for op in ops if depends(op) and isinstance(op, ComputeOp)]


def _check_step(
    op: ComputeOp, states: set[Tensor], inside: set[Tensor], first: int, place: str
) -> None:
    """Raises ExpressionError unless the first axis of `op` is the time at which it reads what is
    computed in the same step, and after which come the states that it reads."""
    if isinstance(op, ScanOp):
        raise ExpressionError(place, f"{op.name} is a scan in a step of a scan", "Unroll it.")
    for node in _reads(op):
        if node.attr not in states and node.attr not in inside:
            continue
        back = _back(node, op.axis)
        right = back is not None and (1 <= back <= first if node.attr in states else back == 0)
        if not right:
            which = "the step itself" if node.attr in inside else f"1 to {first} steps before"
            raise ExpressionError(
                place, f"{op.name} reads {node} at another time than {which}",
                f"{_FORM} What is read of earlier steps is a state; init says how many there are.",
            )  # fmt: skip


def _reads(op: ComputeOp) -> Iterator[Expr]:
    return (n for n in walk(op.body) if n.op == "read")


def _back(read: Expr, axes: tuple[IterVar, ...]) -> int | None:
    """How many steps before the first of `axes` it is; None where that is not a number."""
    if not axes or not read.args:
        return None
    form = Simplifier({}).linear(read.args[0])
    alone = len(form.terms) == 1 and form.terms.get(axes[0].var) == 1
    return -int(form.constant) if alone and isinstance(form.constant, int) else None
