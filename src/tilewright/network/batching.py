"""Whether the samples of a batch stay apart: then fewer of them may run in a network for more.

In: a prepared function, whose inputs have the batch first, and its kernels.  Out: why a sample
depends on others, or nothing.  Each kernel is looked at in tensor expressions, so operators need
no rule of their own: an element that lies at batch index b may read batched tensors at b only.
Read next: `build.py`, `runtime/network/graph_executor.py`, which pads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

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
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import is_call, op_name
from tilewright.ir.expr import walk
from tilewright.network.extract import FusedGroup
from tilewright.te.tensor import ComputeOp, Tensor


class Place(NamedTuple):
    """Where the batch lies in a tensor: in an axis of outer * batch * inner, in this order."""

    axis: int
    outer: int = 1
    inner: int = 1


class _Mixed(Exception):
    """Samples meet.  The argument says where."""


def sample_dependence(main: Function, groups: Sequence[FusedGroup]) -> str:
    """Say what makes samples depend on each other; "" where nothing does.

    groups: the kernels of `main`
    """
    batches = {p.shape[:1] for p in main.params}
    if len(batches) != 1 or () in batches:
        return "its inputs have no batch in common"
    batch = batches.pop()[0]
    group_of = {call: group for group in groups for call in group.calls}
    places: dict[Expr, Place | None] = {}
    try:
        for node in post_order(main.body):
            places[node] = _place(node, places, batch, group_of)
        for result in _tensors(main.body):
            if places[result] != Place(0):
                return "a result has not the batch as its first axis"
    except _Mixed as found:
        return str(found)
    return ""


def _tensors(node: Expr) -> list[Expr]:
    if isinstance(node, Tuple):
        return [t for field in node.fields for t in _tensors(field)]
    return [node]


def _place(
    node: Expr,
    places: Mapping[Expr, Place | None],
    batch: int,
    group_of: Mapping[Call, FusedGroup],
) -> Place | None:
    """Where the batch lies in `node`; None where it does not depend on the inputs."""
    if isinstance(node, Var):
        return Place(0)
    if isinstance(node, (Constant, Tuple)):
        return None  # a tuple is read by its fields
    read = [t for child in children(node) for t in _tensors(child)]
    if isinstance(node, TupleGetItem):
        fields = _tensors(node.tuple_value)  # a kernel with several results is one
        return places[fields[node.index if len(fields) > 1 else 0]]
    assert isinstance(node, Call)
    if node in group_of:
        return _through_kernel(group_of[node], [places[r] for r in read])
    found = {places[r] for r in read}
    if found == {None}:
        return None
    place = found.pop() if len(found) == 1 else None
    if place is None:
        raise _Mixed(f"{op_name(node)} joins what has a batch and what has none")
    if is_view(node):
        return _through_view(read[0].shape, node, place, batch)
    whole = isinstance(node.checked_type, TensorType) and node.shape[place.axis : place.axis + 1]
    extent = place.outer * batch * place.inner
    if is_call(node, "strided_slice", "concatenate") and whole == (extent,):
        return place
    raise _Mixed(f"{op_name(node)} takes samples apart")


def _through_view(before: tuple[int, ...], node: Call, place: Place, batch: int) -> Place:
    """Memory keeps its order: the batch is behind as many elements as before."""
    outside = prod(before[: place.axis]) * place.outer
    for axis, extent in enumerate(node.shape):
        outer, odd = divmod(outside, prod(node.shape[:axis]))
        if odd or extent % (outer * batch):
            continue
        inner = extent // (outer * batch)
        if inner * prod(node.shape[axis + 1 :]) == prod(before[place.axis + 1 :]) * place.inner:
            return Place(axis, outer, inner)
    raise _Mixed(f"reshape of {list(before)} to {list(node.shape)} splits the batch")


def _through_kernel(group: FusedGroup, args: Sequence[Place | None]) -> Place | None:
    """Where the batch lies in the result of a kernel."""
    inputs = [t for t in group.dag.args if t not in group.dag.outputs]
    places: dict[Tensor, Place | None] = dict(zip(inputs, args, strict=True))
    for op in group.dag.compute_ops:
        places |= dict.fromkeys(op.outputs, _of_stage(op, places, group.name))
    return places[group.dag.outputs[0]]


def _of_stage(op: ComputeOp, places: Mapping[Tensor, Place | None], kernel: str) -> Place | None:
    axes = {ax.var: k for k, ax in enumerate(op.axis)}
    found: set[Place] = set()
    for node in walk(op.body):
        place = places[node.attr] if node.op == "read" else None
        if place is None:
            continue
        axis = axes.get(node.args[place.axis])
        if axis is None or op.shape[axis] != node.attr.shape[place.axis]:
            raise _Mixed(f"{op.name} of {kernel} reads other samples than its own")
        found.add(place._replace(axis=axis))
    if len(found) > 1:
        raise _Mixed(f"{op.name} of {kernel} pairs samples")
    return found.pop() if found else None
