"""Control flow, sequences and optionals: nothing of them is left in the network.

In: a `Node`.  Out: values.  Branches and bodies are inlined, sequences are lists that are known at
import.  Read next: `values.py`, `importer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import indexing, tensor
from tilewright.models.onnx.inference import static_type
from tilewright.models.onnx.node import Node
from tilewright.models.onnx.structure import names_read
from tilewright.models.onnx.values import Absent, Items, Unknown, Value

# -- branches and loops ----------------------------------------------------------------------------


def _if(n: Node) -> list[Value]:
    """The branch that is taken; both, and a choice between their results, where that is open."""
    then, other = n.attr("then_branch"), n.attr("else_branch")
    condition = n.known(n.value(0))
    if condition is not None:
        return n.inline(then if _truth(n, condition) else other, [])
    pairs = zip(n.inline(then, []), n.inline(other, []), strict=False)
    return [_chosen(n, n[0], a, b) for a, b in pairs]


def _chosen(n: Node, condition: Expr, a: Value, b: Value) -> Value:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return Unknown()
    if isinstance(a, Items) and isinstance(b, Items) and len(a.parts) == len(b.parts):
        pairs = zip(a.parts, b.parts, strict=True)
        return Items(tuple(_chosen(n, condition, x, y) for x, y in pairs))
    several = "its condition is computed by the network, its branches give"
    if isinstance(a, (Items, Absent)) or isinstance(b, (Items, Absent)):
        raise n.not_yet(condition, f"{several} different sequences")
    left, right = n.as_expr(a), n.as_expr(b)
    if left.waits or right.waits:
        raise n.not_yet(condition, f"{several} what values decide")
    if left.checked_type != right.checked_type:
        raise n.not_yet(condition, f"{several} {left.checked_type} and {right.checked_type}")
    return tensor.where(tensor.as_shape(condition, (1,) * max(len(left.shape), 1)), left, right)


def _truth(n: Node, condition: Array) -> bool:
    n.require(condition.size == 1, f"its condition has {condition.size} elements", "Give one.")
    return bool(condition.reshape(-1)[0])


def _loop(n: Node) -> list[Value]:
    """As many copies of the body as it has trips."""
    body = n.attr("body")
    most = n.whole(0, "the number of trips")
    trips = np.inf if most is None else most
    asked = n.has(1) or trips == np.inf
    going = n.value(1) if n.has(1) else np.array(True)
    carried = [n.value(k) for k in range(2, len(n.names))]
    scans: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
    done = 0
    if isinstance(n.resume, Items):
        at, going, *rest = n.resume.parts
        done = int(np.asarray(n.known(at)))
        carried, *scans = (list(r.parts) for r in rest if isinstance(r, Items))
    while done < trips:
        known = n.known(going)
        if known is None:
            state = Items(
                (np.array(done), going, Items(tuple(carried)), *(Items(tuple(s)) for s in scans))
            )
            raise n.not_yet(going, "how often it runs is computed by the network", state)
        if not _truth(n, known):
            break
        if done == int(asked) and (not asked or _goes_on(body)):
            n.require(
                trips < np.inf, "it never ends", "The body must end it, or a number of trips."
            )
            n.copies(body, int(trips) - done)
        elif asked and done:
            n.trip(body, done + 1)
        made = n.inline(body, [np.array(done, "int64"), np.array(True), *carried])
        going, carried = made[0] if asked else going, made[1 : 1 + len(carried)]
        for scan, value in zip(scans, made[1 + len(carried) :], strict=True):
            scan.append(value)
        done += 1
    infos = body.output[1 + len(carried) :]
    return [*carried, *(_stacked(n, s, 0, i) for s, i in zip(scans, infos, strict=True))]


def _goes_on(body: Any) -> bool:
    """Whether no trip of a loop decides if there is another: its condition depends neither on the
    trip's number nor on what trips compute, so what the first one says holds for all."""
    number, _, *carried = (i.name for i in body.input)
    computed = {output: node for node in body.node for output in node.output if output}
    waiting, seen = [body.output[0].name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in (number, *carried):
            return False
        if name in computed and name not in seen:
            waiting += names_read(computed[name])
        seen.add(name)
    return True


def _scan(n: Node) -> list[Value]:
    """A copy of the body for each slice of its inputs."""
    if n.opset < 9:
        return _scan_of_batches(n)
    body, count, held = _scan_counts(n, len(n.names))
    states = [n.value(k) for k in range(held)]
    sources = [n[k] for k in range(held, len(n.names))]
    results = len(body.output) - len(states)
    ways = _per_item(n, "scan_input_directions", count)
    axes = [
        n.axis(a, len(s.shape))
        for a, s in zip(_per_item(n, "scan_input_axes", count), sources, strict=True)
    ]
    back, onto = (
        _per_item(n, "scan_output_directions", results),
        _per_item(n, "scan_output_axes", results),
    )
    lengths = {s.shape[a] for s, a in zip(sources, axes, strict=True)}
    n.require(len(lengths) == 1, f"its inputs have lengths {sorted(lengths)}", "Give one length.")
    length = lengths.pop()
    n.copies(body, length)
    states, scans = _scanned(n, body, states, sources, axes, ways, length)
    scans = [s[::-1] if way else s for s, way in zip(scans, back, strict=True)]
    infos = body.output[len(states) :]
    stacked = [_stacked(n, s, a, i) for s, a, i in zip(scans, onto, infos, strict=True)]
    return [*states, *stacked]


def _scan_counts(n: Node, given: int) -> tuple[Any, int, int]:
    """The body, how many of the `given` inputs it runs along, and how many are its states."""
    body, count = n.attr("body"), n.attr("num_scan_inputs")
    n.require(1 <= count <= given, f"num_scan_inputs={count} does not fit", "Give all.")
    held = given - count
    n.require(
        len(body.output) >= held, f"its body gives {len(body.output)} of {held} states",
        "The model is damaged; export it again.",
    )  # fmt: skip
    return body, count, held


def _scanned(
    n: Node, body: Any, states: list[Value], sources: Sequence[Expr], axes: Sequence[int],
    ways: Sequence[int], length: int,
) -> tuple[list[Value], list[list[Value]]]:  # fmt: skip
    """The last states, and what each step gives; a way that is not 0 begins at the end."""
    scans: list[list[Value]] = [[] for _ in body.output[len(states) :]]
    for k in range(length):
        slices = [
            _element(s, a, length - 1 - k if way else k)
            for s, a, way in zip(sources, axes, ways, strict=True)
        ]
        made = n.inline(body, [*states, *slices])
        states = made[: len(states)]
        for scan, value in zip(scans, made[len(states) :], strict=True):
            scan.append(value)
    return states, scans


def _scan_of_batches(n: Node) -> list[Value]:
    """As before opset 9: input 0 has the lengths of the sequences, batches are axis 0 of all else
    and time is axis 1; what is behind the end of a sequence is 0."""
    body, count, held = _scan_counts(n, len(n.names) - 1)
    states, sources = ([n[k] for k in range(a, b)] for a, b in
                       ((1, 1 + held), (1 + held, len(n.names))))  # fmt: skip
    ways = _per_item(n, "directions", count)
    shapes = [s.shape for s in (*states, *sources)]
    fits = len({s[:2] for s in shapes[held:]}) == 1 and len({s[:1] for s in shapes}) == 1
    n.require(
        fits and len(shapes[held]) >= 2, f"its batches and lengths do not fit: its states and "
        f"inputs are {shapes}", "Give all one batch, and inputs to run along one length behind it.",
    )  # fmt: skip
    batch, length = shapes[held][:2]
    n.require(batch * length > 0, f"it has {batch} sequences of {length}", "Give it at least one.")
    given = n.static(0, "the lengths of its sequences")
    lengths = [length] * batch if given is None else given.reshape(-1).tolist()
    n.require(
        len(lengths) == batch and all(v in range(1, length + 1) for v in lengths),
        f"the lengths {lengths} of its sequences do not fit {batch} of at most {length}",
        "Give one length of at least 1 for each.",
    )  # fmt: skip
    lengths = [int(v) for v in lengths]
    n.copies(body, sum(lengths))
    rows: list[list[Expr]] = []
    for b, own in enumerate(lengths):
        parts = [slice_of(_element(s, 0, b), 0, 0, own) for s in sources]
        first: list[Value] = [_element(s, 0, b) for s in states]
        last, scans = _scanned(n, body, first, parts, [0] * count, ways, own)
        steps = [[n.as_expr(v) for v in scan] for scan in scans]
        whole = [
            indexing.stack([*s, *[indexing.zeros_like(s[0])] * (length - own)], 0) for s in steps
        ]
        rows.append([*(n.as_expr(v) for v in last), *whole])
    return [indexing.stack(list(column), 0) for column in zip(*rows, strict=True)]


def _per_item(n: Node, name: str, count: int) -> list[int]:
    given = n.ints(name) or [0] * count
    n.require(len(given) == count, f"{name} has {len(given)} numbers, not {count}", "Give all.")
    return given


def _element(data: Expr, axis: int, index: int) -> Expr:
    """`data` at one index of `axis`, which goes."""
    return tensor.squeeze(slice_of(data, axis, index, index + 1), (axis,))


def slice_of(data: Expr, axis: int, begin: int, end: int) -> Expr:
    return indexing.strided_slice(data, (begin,), (end,), axes=(axis,))


def _stacked(n: Node, values: Sequence[Value], axis: int, info: Any) -> Value:
    """`values` along a new axis.

    info: how the body declares one of them, for none at all
    """
    if any(isinstance(v, Unknown) for v in values):
        return Unknown()
    if not values:
        kind = static_type(info.type)
        if kind is None:
            raise n.refuse("it makes an empty result of unknown shape", "Give the body's shapes.")
        return np.zeros((*kind.shape[:axis], 0, *kind.shape[axis:]), kind.dtype.storage)
    known = [n.known(v) for v in values]
    if all(a is not None and a.dtype.kind != "f" for a in known):
        n.room(sum(a.nbytes for a in known if a is not None))
        return np.stack([a for a in known if a is not None], axis)
    parts = [n.as_expr(v) for v in values]
    at = n.axis(axis, len(parts[0].shape) + 1)
    return tensor.concatenate([tensor.expand_dims(p, at) for p in parts], at)


# -- sequences -------------------------------------------------------------------------------------


def _items(n: Node, index: int) -> tuple[Value, ...]:
    value = n.typed(n.value(index))
    n.require(isinstance(value, Items), f"input {index} is not a sequence", "Give it one.")
    return value.parts if isinstance(value, Items) else ()


def _place(n: Node, index: int, count: int, default: int) -> int:
    """A position among `count`, from the front."""
    given = n.whole(index, "its position")
    at = default if given is None else given
    n.require(
        -count <= at < max(count, 1), f"position {at} of {count} is not there", "Use another."
    )
    return at % max(count, 1)


def _sequence_at(n: Node) -> Value:
    parts = _items(n, 0)
    n.require(bool(parts), "the sequence is empty", "Give it values.")
    return parts[_place(n, 1, len(parts), 0)]


def _sequence_insert(n: Node) -> Items:
    parts = _items(n, 0)
    given = n.whole(2, "its position")
    at = len(parts) if given is None else given
    n.require(abs(at) <= len(parts), f"position {at} of {len(parts)} is not there", "Use another.")
    at %= max(len(parts), 1) if at < 0 else len(parts) + 1
    return Items((*parts[:at], n.value(1), *parts[at:]))


def _sequence_erase(n: Node) -> Items:
    parts = _items(n, 0)
    n.require(bool(parts), "the sequence is empty", "Give it values.")
    at = _place(n, 1, len(parts), len(parts) - 1)
    return Items((*parts[:at], *parts[at + 1 :]))


def _sequence_empty(n: Node) -> Items:
    n.attr("dtype")
    return Items(())


def _split_to_sequence(n: Node) -> Items:
    data, keep = n[0], n.flag("keepdims", True)
    axis = n.axis(n.attr("axis", 0), len(data.shape))
    extent, given = data.shape[axis], n.static(1, "split")
    if given is None:
        sizes = [1] * extent
    elif given.ndim == 0:
        size = int(given)
        n.require(size >= 1, f"split={size} is no length", "Use 1 or more.")
        sizes = [min(size, extent - begin) for begin in range(0, extent, size)]
    else:
        sizes = [int(v) for v in given.reshape(-1)]
    n.require(
        min(sizes, default=0) >= 0 and sum(sizes) == extent,
        f"split {sizes} does not fill the extent {extent}", "Their sum must be that.",
    )  # fmt: skip
    ends = np.cumsum(sizes).tolist()
    parts = [slice_of(data, axis, e - s, e) for s, e in zip(sizes, ends, strict=True)]
    if given is None and not keep:
        parts = [tensor.squeeze(p, (axis,)) for p in parts]
    return Items(tuple(parts))


def _concat_from_sequence(n: Node) -> Expr:
    parts = [n.as_expr(v) for v in _items(n, 0)]
    n.require(bool(parts), "the sequence is empty", "Give it values.")
    is_new, rank = n.flag("new_axis"), len(parts[0].shape)
    axis = n.axis(n.attr("axis"), rank + is_new)
    return tensor.concatenate(
        [tensor.expand_dims(p, axis) for p in parts] if is_new else parts, axis
    )


def _sequence_map(n: Node) -> list[Value]:
    """A copy of the body for each element."""
    body, first = n.attr("body"), _items(n, 0)
    given = [n.typed(n.value(k)) for k in range(len(n.names))]
    for k, value in enumerate(given):
        fits = not isinstance(value, Items) or len(value.parts) == len(first)
        n.require(
            fits, f"input {k} has another length than input 0", "Give sequences of one length."
        )
    n.copies(body, len(first))
    rows = [
        n.inline(body, [v.parts[k] if isinstance(v, Items) else v for v in given])
        for k in range(len(first))
    ]
    return [Items(tuple(row[k] for row in rows)) for k in range(len(body.output))]


# -- optionals -------------------------------------------------------------------------------------


def _optional(n: Node) -> Value:
    n.attr("type")
    return n.value(0) if n.has(0) else Absent()


def _optional_get(n: Node) -> Value:
    value = n.typed(n.value(0))
    n.require(not isinstance(value, Absent), "the optional holds nothing", "Give it a value.")
    return value


def _optional_has(n: Node) -> Array:
    return np.array(n.has(0) and not isinstance(n.typed(n.value(0)), Absent))


CONTROL: dict[str, Callable[[Node], Any]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Identity": lambda n: n.value(0),
    "If": _if,
    "Loop": _loop,
    "Optional": _optional,
    "OptionalGetElement": _optional_get,
    "OptionalHasElement": _optional_has,
    "Scan": _scan,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": lambda n: Items(tuple(n.value(k) for k in range(len(n.names)))),
    "SequenceEmpty": _sequence_empty,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": lambda n: np.array(len(_items(n, 0)), "int64"),
    "SequenceMap": _sequence_map,
    "SplitToSequence": _split_to_sequence,
}
