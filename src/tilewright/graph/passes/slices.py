"""Slices come first: what would be moved and then dropped is not moved.

In: any module.  Out: an equal one in which the rewrites below have been made.  Read next:
`dead_code.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.graph.expr import Call, Expr, IRModule, Tuple
from tilewright.graph.op import call
from tilewright.graph.passes.dead_code import is_view, merged_view
from tilewright.graph.traversal import each_function, is_call, rewrite, users, with_body

Readers = Mapping[Expr, Sequence[Expr]]


def slices_first(mod: IRModule) -> IRModule:
    """Rewrite slices of what moves elements.

    slice(slice(x))              ->  slice(x)
    slice(concatenate((a, b)))   ->  slice(a), where it lies within `a`
    slice(transpose(x)), ...     ->  transpose(slice(x)), ..., where only slices read the
                                     transposition, and together no more than all of it: queries,
                                     keys and values of one product are moved once
    slice(reshape(transpose(x))) ->  likewise
    reshape(slice(x))            ->  slice(reshape(x)), where that is still along one axis: heads,
                                     which are then transposed
    """
    return each_function(mod, lambda f: with_body(f, _rewritten(f.body)))


def _rewritten(body: Expr) -> Expr:
    readers = users(body)

    def visit(old: Expr, node: Expr) -> Expr:
        if is_view(node) and isinstance(node, Call):
            made = merged_view(node)
            return (_parts(made) if isinstance(made, Call) else None) or made
        if not is_call(node, "strided_slice"):
            return node
        assert isinstance(old, Call) and isinstance(node, Call)
        return _sliced(node.args[0], old.args[0], _ranges(node), readers) or node

    return rewrite(body, visit)


def _parts(view: Call) -> Expr | None:
    """A view of a slice along one axis as a slice of a view, which has it along one axis again."""
    data = view.args[0]
    if not is_call(data, "strided_slice") or not isinstance(data, Call):
        return None
    source, ranges = data.args[0], _ranges(data)
    axis = _only_axis(source, ranges)
    if axis is None:
        return None
    outer, inner = prod(source.shape[:axis]), prod(source.shape[axis + 1 :])
    head = _axis_at(view.shape, outer)
    if head is None:
        return None
    part = prod(view.shape[head + 1 :])
    kept, whole = ranges[axis], source.shape[axis] * inner
    if part == 1 or kept.start * inner % part or whole % part:
        return None
    shape = (*view.shape[:head], whole // part, *view.shape[head + 1 :])
    found = [range(n) for n in view.shape]
    found[head] = range(kept.start * inner // part, kept.stop * inner // part)
    return _slice(_view(source, shape), found)


def _view(data: Expr, shape: tuple[int, ...]) -> Expr:
    return merged_view(call("reshape", data, newshape=shape))


def _only_axis(source: Expr, ranges: Sequence[range]) -> int | None:
    """The axis of which neighbours are kept, where all others are kept whole."""
    pairs = zip(ranges, source.shape, strict=True)
    axes = [k for k, (r, n) in enumerate(pairs) if r != range(n)]
    return axes[0] if len(axes) == 1 and ranges[axes[0]].step == 1 else None


def _axis_at(shape: Sequence[int], outer: int) -> int | None:
    """The first axis of more than one element behind axes of `outer` elements in all."""
    before = 1
    for axis, extent in enumerate(shape):
        if before == outer and extent != 1:
            return axis
        before *= extent
    return None


def _of_view(view: Call, ranges: Sequence[range]) -> tuple[Expr, list[range]] | None:
    """What `view` shows, and the ranges of it that are `ranges` of the view, if one axis is kept
    in part and it has that axis, too."""
    axis, source = _only_axis(view, ranges), view.args[0]
    there = None if axis is None else _axis_at(source.shape, prod(view.shape[:axis]))
    if axis is None or there is None or source.shape[there] != view.shape[axis]:
        return None
    found = [range(n) for n in source.shape]
    found[there] = ranges[axis]
    return source, found


def _ranges(node: Call) -> list[range]:
    a = node.attrs
    ends = (b + s * n for b, s, n in zip(a.begin, a.strides, a.extents, strict=True))
    return [range(b, e, s) for b, e, s in zip(a.begin, ends, a.strides, strict=True)]


def _slice(data: Expr, ranges: Sequence[range]) -> Expr:
    if all(r == range(n) for r, n in zip(ranges, data.shape, strict=True)):
        return data
    return call(
        "strided_slice", data, begin=tuple(r.start for r in ranges),
        extents=tuple(map(len, ranges)), strides=tuple(r.step for r in ranges),
    )  # fmt: skip


def _sliced(data: Expr, old: Expr, ranges: Sequence[range], readers: Readers) -> Expr | None:
    """The slice of `data`, which `old` has become, spelled with an earlier one; None: it is not."""
    if is_call(data, "strided_slice"):
        assert isinstance(data, Call)
        inner = zip(_ranges(data), ranges, strict=True)
        return _slice(data.args[0], [_of_range(r, i) for r, i in inner])
    if is_call(data, "concatenate"):
        assert isinstance(data, Call)
        return _of_concatenation(data, ranges)
    if is_call(data, "transpose") and is_call(old, "transpose") and _only_sliced(old, readers):
        assert isinstance(data, Call) and isinstance(old, Call)
        axes = data.attrs.axes
        before = [ranges[axes.index(k)] for k in range(len(axes))]
        found = _sliced(data.args[0], old.args[0], before, readers)
        found = found or _slice(data.args[0], before)
        moved = [k for k in axes if found.shape[k] != 1]
        if moved == sorted(moved):
            return _view(found, tuple(found.shape[k] for k in axes))
        return call("transpose", found, axes=axes)
    if is_view(data) and is_view(old) and _only_sliced(old, readers):
        assert isinstance(data, Call) and isinstance(old, Call)
        seen = _of_view(data, ranges)
        kept = None if seen is None else _sliced(seen[0], old.args[0], seen[1], readers)
        return None if kept is None else _view(kept, tuple(map(len, ranges)))
    return None


def _of_range(outer: range, inner: range) -> range:
    """The elements of `outer` at the places `inner`."""
    step = outer.step * inner.step
    first = outer.start + outer.step * inner.start
    return range(first, first + step * len(inner), step)


def _of_concatenation(data: Call, ranges: Sequence[range]) -> Expr | None:
    parts, begin = data.args[0], 0
    axis = data.attrs.axis % len(data.shape)
    along = ranges[axis]
    for part in parts.fields if isinstance(parts, Tuple) else ():
        end = begin + part.shape[axis]
        if along and begin <= min(along) and max(along) < end:
            inside = range(along.start - begin, along.stop - begin, along.step)
            return _slice(part, [*ranges[:axis], inside, *ranges[axis + 1 :]])
        begin = end
    return None


def _only_sliced(node: Expr, readers: Readers) -> bool:
    """Whether only slices read `node`, and all of them together not more than it has."""
    found = readers.get(node, ())
    if len(found) == 1 and is_view(found[0]) and not is_view(node):
        return _only_sliced(found[0], readers)
    kept = sum(r.tensor_type.size for r in found if is_call(r, "strided_slice"))
    return all(is_call(r, "strided_slice") for r in found) and kept <= node.tensor_type.size
