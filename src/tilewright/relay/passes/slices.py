"""Slices come first: what would be moved and then dropped is not moved.

In: any module.  Out: an equal one in which the rewrites below have been made.  Read next:
`dead_code.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.relay.graph.expr import Call, Expr, IRModule, Tuple
from tilewright.relay.graph.traversal import each_function, is_call, rewrite, users, with_body
from tilewright.relay.op import call

Readers = Mapping[Expr, Sequence[Expr]]


def slices_first(mod: IRModule) -> IRModule:
    """Rewrite slices of what moves elements.

    slice(slice(x))              ->  slice(x)
    slice(concatenate((a, b)))   ->  slice(a), where it lies within `a`
    slice(transpose(x)), ...     ->  transpose(slice(x)), ..., where only slices read the
                                     transposition, and together no more than all of it: queries,
                                     keys and values of one product are moved once
    """
    return each_function(mod, lambda f: with_body(f, _rewritten(f.body)))


def _rewritten(body: Expr) -> Expr:
    readers = users(body)

    def visit(old: Expr, node: Expr) -> Expr:
        if not is_call(node, "strided_slice"):
            return node
        assert isinstance(old, Call) and isinstance(node, Call)
        return _sliced(node.args[0], old.args[0], _ranges(node), readers) or node

    return rewrite(body, visit)


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
        return call("transpose", found or _slice(data.args[0], before), axes=axes)
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
    kept = sum(r.tensor_type.size for r in found if is_call(r, "strided_slice"))
    return all(is_call(r, "strided_slice") for r in found) and kept <= node.tensor_type.size
