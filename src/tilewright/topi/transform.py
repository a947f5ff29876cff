"""Operators that move elements: shape, order, layout, slices.

In: tensors.  Out: one stage with tag "injective" whose index expressions are affine, or // and %
of affine ones where a reshape or a layout needs them.  Read next: `layout.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, cast

from tilewright import te
from tilewright.ir.expr import Expr, const
from tilewright.ir.symbols import number, simplifier
from tilewright.te.axis import shape_of
from tilewright.te.tensor import Tensor
from tilewright.topi import layout as L
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    is_integer,
    normal_axes,
    normal_axis,
    require,
    stage,
)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """The axes of `a` in the order `axes`; reversed when it is left out."""
    place = call_text("transpose", a=a, axes=axes)
    check_tensors(place, a=a)
    order = [normal_axis(k, a.ndim, place) for k in (axes or range(a.ndim - 1, -1, -1))]
    require(
        sorted(order) == list(range(a.ndim)), place, "axes is not a permutation",
        f"Name each of {list(range(a.ndim))} once.",
    )  # fmt: skip
    back = [order.index(k) for k in range(a.ndim)]
    return stage(
        [a.shape[k] for k in order],
        lambda i: a[tuple(i[k] for k in back)],
        "T_transpose",
        "injective",
    )


def reshape_groups(source: list[int], target: list[int]) -> list[tuple[list[int], list[int]]]:
    """Shortest runs of axes (numbers) of equal product; neither shape contains a 1."""
    groups = []
    s = t = 0
    if any(isinstance(n, Expr) for n in (*source, *target)):
        while s < min(len(source), len(target)) and source[s] == target[s]:
            groups.append(([s], [s]))
            s += 1
        rest = list(range(s, len(source))), list(range(s, len(target)))
        return [*groups, rest] if rest[0] else groups
    while s < len(source):
        s_end, t_end = s + 1, t + 1
        while (m := math.prod(source[s:s_end])) != (n := math.prod(target[t:t_end])):
            s_end, t_end = (s_end + 1, t_end) if m < n else (s_end, t_end + 1)
        groups.append((list(range(s, s_end)), list(range(t, t_end))))
        s, t = s_end, t_end
    return groups


def reshape_indices(
    source: Sequence[int], target: Sequence[int], indices: Indices
) -> tuple[Expr, ...]:
    """The indices in shape `source` of the element at `indices` of shape `target`, row-major.

    Axes that fall together are matched piece by piece, so only what really changes gets // and %.
    """
    result: list[Expr] = [const(0)] * len(source)
    if 0 in target:  # there is no element
        return tuple(result)
    wide_s = [k for k, n in enumerate(source) if n != 1]
    wide_t = [k for k, n in enumerate(target) if n != 1]
    for s_run, t_run in reshape_groups([source[k] for k in wide_s], [target[k] for k in wide_t]):
        flat: Expr = const(0)
        for t in t_run:
            flat = flat * target[wide_t[t]] + indices[wide_t[t]]
        stride = 1
        for s in reversed(s_run):
            extent = source[wide_s[s]]
            value = flat // stride
            result[wide_s[s]] = value if s == s_run[0] else value % extent
            stride *= extent
    return tuple(result)


def reshape(a: Tensor, newshape: Sequence[int | Expr] | int | Expr) -> Tensor:
    """The elements of `a` in row-major order under `newshape`; one extent may be -1."""
    place = call_text("reshape", a=a, newshape=newshape)
    check_tensors(place, a=a)
    given = newshape if isinstance(newshape, (tuple, list)) else (newshape,)
    require(
        all(is_integer(n) or isinstance(n, Expr) for n in given),
        place,
        "an extent is not an int",
        "Use ints, one of which may be -1.",
    )
    shape: list[Any] = [shape_of(n, place)[0] if isinstance(n, Expr) else int(n) for n in given]
    total: Any = math.prod(a.shape)
    known = [n for n in shape if not isinstance(n, Expr)]
    require(
        all(n >= -1 for n in known) and known.count(-1) <= 1 and not (-1 in known and 0 in known),
        place, "extents must be at least 0, and one of them may be -1 where none is 0",
        "Use extents of at least 0, or one -1 for the rest.",
    )  # fmt: skip
    if -1 in known:
        rest: Any = -math.prod(shape)
        require(
            total % rest == 0,
            place,
            f"{total} elements are not a multiple of {rest}",
            "Choose extents that divide them.",
        )
        extent = number(total // rest, simplifier(total, rest))
        shape = [extent if not isinstance(n, Expr) and n == -1 else n for n in shape]
    require(
        math.prod(shape) == total,
        place,
        f"{total} elements do not fill {math.prod(shape)} places",
        "The product of the extents must stay the same.",
    )
    return stage(shape, lambda i: a[reshape_indices(a.shape, shape, i)], "T_reshape", "injective")


def flatten(a: Tensor) -> Tensor:
    """[N, ...] as [N, product of the rest], in row-major order."""
    place = call_text("flatten", a=a)
    check_tensors(place, a=a)
    require(
        a.ndim > 0,
        place,
        "a zero-dimensional tensor has no batch axis",
        "Add one with expand_dims.",
    )
    shape = [a.shape[0], math.prod(a.shape[1:])]
    return stage(shape, lambda i: a[reshape_indices(a.shape, shape, i)], "tensor", "injective")


def squeeze(a: Tensor, axis: Any = None) -> Tensor:
    """`a` without the axes of extent 1 that `axis` names, or without all of them (None)."""
    place = call_text("squeeze", a=a, axis=axis)
    check_tensors(place, a=a)
    ones = [k for k, n in enumerate(a.shape) if n == 1]
    named = axis if isinstance(axis, (list, tuple)) else (axis,)
    gone = ones if axis is None else list(normal_axes(axis, a.ndim, place)) if named else []
    for k in gone:
        require(
            a.shape[k] == 1,
            place,
            f"axis {k} has extent {a.shape[k]}, not 1",
            "Name axes of extent 1, or leave axis out.",
        )
    kept = [k for k in range(a.ndim) if k not in gone]

    def body(i: Indices) -> Expr:
        at = dict(zip(kept, i, strict=True))
        return a[tuple(at.get(k, const(0)) for k in range(a.ndim))]

    return stage([a.shape[k] for k in kept], body, "T_squeeze", "injective")


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """`a` with `num_newaxis` axes of extent 1 before `axis`; -1 adds them behind the last."""
    place = call_text("expand_dims", a=a, axis=axis, num_newaxis=num_newaxis)
    check_tensors(place, a=a)
    require(0 <= num_newaxis <= 32, place, "that many axes cannot be new", "Use num_newaxis=1.")
    first = normal_axis(axis, a.ndim + 1, place)
    shape = [*a.shape[:first], *[1] * num_newaxis, *a.shape[first:]]
    return stage(
        shape, lambda i: a[i[:first] + i[first + num_newaxis :]], "T_expand_dims", "injective"
    )


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`; all other extents must agree."""
    parts = list(a_tuple)
    place = call_text("concatenate", a_tuple=parts, axis=axis)
    require(bool(parts), place, "nothing to concatenate", "Give at least one tensor.")
    check_tensors(place, **{f"a_tuple[{n}]": p for n, p in enumerate(parts)})
    first = parts[0]
    k = normal_axis(axis, first.ndim, place)
    for p in parts[1:]:
        same = p.ndim == first.ndim and _outside(p, k) == _outside(first, k)
        require(
            same,
            place,
            f"the shapes differ outside axis {k}",
            "Only the extents along axis may differ.",
        )
    ends = list(accumulate(p.shape[k] for p in parts))
    shape = [*first.shape[:k], ends[-1], *first.shape[k + 1 :]]

    def body(i: Indices) -> Expr:
        result: Expr | None = None
        for part, end in zip(reversed(parts), reversed(ends), strict=True):
            begin = end - part.shape[k]
            here = part[(*i[:k], i[k] - begin, *i[k + 1 :])]
            result = here if result is None else te.if_then_else(i[k] < end, here, result)
        assert result is not None
        return result

    return stage(shape, body, "T_concat", "injective")


def _outside(t: Tensor, axis: int) -> tuple[int, ...]:
    return t.shape[:axis] + t.shape[axis + 1 :]


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Equal shapes joined along a new axis."""
    return concatenate([expand_dims(t, axis) for t in tensors], axis)


def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Pieces of `ary` along `axis`: a number of equal sections, or the indices where to cut."""
    place = call_text("split", ary=ary, indices_or_sections=indices_or_sections, axis=axis)
    check_tensors(place, ary=ary)
    k = normal_axis(axis, ary.ndim, place)
    extent = ary.shape[k]
    if isinstance(indices_or_sections, Sequence):
        cuts = [0, *map(int, indices_or_sections), extent]
        require(
            all(b < e for b, e in pairwise(cuts)), place,
            f"the cuts must rise strictly within 1 to {extent - 1}",
            "Give them in increasing order.",
        )  # fmt: skip
    else:
        count = indices_or_sections
        require(
            count > 0 and extent % count == 0, place,
            f"{extent} does not divide into {count} sections",
            "Give the indices where to cut.",
        )  # fmt: skip
        cuts = list(range(0, extent + 1, extent // count))

    def piece(begin: int, end: int) -> Tensor:
        shape = [*ary.shape[:k], end - begin, *ary.shape[k + 1 :]]
        return stage(
            shape, lambda i: ary[(*i[:k], i[k] + begin, *i[k + 1 :])], "T_split", "injective"
        )

    return [piece(b, e) for b, e in pairwise(cuts)]


def strided_slice(
    a: Tensor,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Tensor:
    """`a[begin:end:strides]` on the first axes or on `axes`; negatives mean what numpy means, as
    does what begin, end or strides do not name of the first axes.

    slice_mode: "end", or "size": `end` holds extents, negative for the rest, strides do not count
    """
    place = call_text("strided_slice", a=a, begin=begin, end=end, strides=strides, axes=axes)
    check_tensors(place, a=a)
    require(
        slice_mode in ("end", "size"), place, f"slice_mode {slice_mode!r} is not known",
        'Use "end" or "size".',
    )  # fmt: skip
    if slice_mode == "size":
        strides, pairs = None, zip(begin, end, strict=False)
        end = [None if n is None or n < 0 else (b or 0) + n for b, n in pairs]
    steps = list(strides) if strides is not None else [1] * len(begin)
    chosen = range(max(len(begin), len(end), len(steps))) if axes is None else axes
    if axes is None:
        begin = [*begin, *[None] * (len(chosen) - len(begin))]
        end = [*end, *[None] * (len(chosen) - len(end))]
        steps += [1] * (len(chosen) - len(steps))
    where = [normal_axis(k, a.ndim, place) for k in chosen]
    require(
        len(begin) == len(end) == len(steps) == len(where) <= a.ndim, place,
        "begin, end, strides and axes differ in length, or exceed the axes of the tensor",
        "Give one number per axis that is cut.",
    )  # fmt: skip
    require(0 not in steps, place, "a stride of 0", "Use 1 to keep every element.")
    ranges = [range(1) if isinstance(n, Expr) else range(n) for n in a.shape]
    for k, b, e, step in zip(where, begin, end, steps, strict=True):
        require(
            not isinstance(a.shape[k], Expr), place,
            f"axis {k} has {a.shape[k]} elements, no number",
            "Cut the other axes, or declare the result with te.compute.",
        )  # fmt: skip
        ranges[k] = range(a.shape[k])[slice(b, e, step)]

    def body(i: Indices) -> Expr:
        return a[tuple(x * r.step + r.start for x, r in zip(i, ranges, strict=True))]

    cut = zip(a.shape, ranges, strict=True)
    shape = [n if isinstance(n, Expr) else len(r) for n, r in cut]
    return stage(shape, body, "T_strided_slice", "injective")


def layout_transform(array: Tensor, src_layout: str, dst_layout: str) -> Tensor:
    """`array` stored in another layout, for example from NCHW to NCHW8c.

    A block must divide its extent.
    """
    place = call_text("layout_transform", array=array, src_layout=src_layout, dst_layout=dst_layout)
    check_tensors(place, array=array)
    src, dst = L.parse(src_layout, place), L.parse(dst_layout, place)
    require(
        sorted(src.outer) == sorted(dst.outer),
        place,
        "the layouts name different axes",
        "Use the same outer axes in another order.",
    )
    shape = L.shape_in(dst, L.extents(src, array.shape, place), place)
    return stage(
        shape, lambda i: array[tuple(L.source_indices(src, dst, i))], "T_layout_trans", "injective"
    )


# -- copies in other places ------------------------------------------------------------------------

# Where an axis of `n` elements is read that goes on beyond its ends, from the first one on.
# near: nowhere further than one more time its extent, then no division is needed
_BEYOND: dict[str, Callable[[Expr, int, bool], Expr]] = {
    "edge": lambda i, n, near: te.maximum(te.minimum(i, n - 1), 0),
    "wrap": lambda i, n, near: _once(i, n) if near else i % n,
    "reflect": lambda i, n, near: _folded(
        te.maximum(i, -i) if near else i % max(2 * n - 2, 1), 2 * n - 2
    ),
    "symmetric": lambda i, n, near: _folded(
        te.maximum(i, -1 - i) if near else i % (2 * n), 2 * n - 1
    ),
}


def _folded(i: Expr, last: int) -> Expr:
    return te.minimum(i, last - i)


def _once(i: Expr, n: int) -> Expr:
    return te.select(i < 0, i + n, te.select(i < n, i, i - n))


def mirror_pad(data: Tensor, pad_width: Sequence[Sequence[int]], mode: str = "symmetric") -> Tensor:
    """`data` with its own elements around it.

    pad_width: (before, after) for each axis, any counts of at least 0
    mode: "edge" repeats the last element, "reflect" mirrors without it, "symmetric" with it, "wrap"
    begins again
    """
    place = call_text("mirror_pad", data=data, pad_width=list(pad_width), mode=mode)
    check_tensors(place, data=data)
    require(mode in _BEYOND, place, f"the mode {mode!r}", f"Use one of {', '.join(_BEYOND)}.")
    sides = [tuple(w) for w in pad_width]
    ok = len(sides) == data.ndim and all(len(w) == 2 and min(w) >= 0 for w in sides)
    require(ok, place, "not one pair of counts for each axis", "Give ((before, after), ...).")
    beyond = _BEYOND[mode]

    def body(i: Indices) -> Expr:
        pairs = zip(i, sides, data.shape, strict=True)
        at = [beyond(x - b, n, max(b, a) < n) if b or a else x for x, (b, a), n in pairs]
        return data[tuple(at)]

    shape = [b + n + a for n, (b, a) in zip(data.shape, sides, strict=True)]
    return stage(shape, body, "T_mirror_pad", "injective,pad")


def strided_set(
    a: Tensor,
    v: Tensor,
    begin: Sequence[int | None] | Tensor,
    end: Sequence[int | None] | Tensor,
    strides: Sequence[int] | Tensor | None = None,
) -> Tensor:
    """`a` with `v` in place of a[begin:end:strides] on the first axes, as numpy has it.

    begin, end, strides: numbers, or vectors of ints of which a kernel reads them; strides are 1
        where there are none.  Read ones may leave out some of `v`.
    """
    place = call_text("strided_set", a=a, v=v, begin=begin, end=end, strides=strides)
    check_tensors(place, a=a, v=v)
    given = [t for t in (begin, end, strides) if isinstance(t, Tensor)]
    require(a.ndim == v.ndim, place, "values have other axes than the tensor", "Give as many.")
    require(a.dtype is v.dtype, place, f"{v.dtype} does not fit {a.dtype}", "Cast one of them.")
    require(
        all(t.ndim == 1 and t.dtype.is_int for t in given), place,
        "begin, end or strides are no vectors of ints", 'Give te.placeholder((3,), "int32").',
    )  # fmt: skip
    if given:
        return _set_where_data_say(a, v, begin, end, strides)
    ranges, numbers = [], [cast(Sequence[int | None] | None, t) for t in (begin, end, strides)]
    for k, n in enumerate(a.shape):
        first, last, step = (None if t is None or k >= len(t) else t[k] for t in numbers)
        require(step != 0, place, "a stride of 0", "Use 1 to set every element.")
        ranges.append(range(n)[slice(first, last, step)])
    require(
        [len(r) for r in ranges] == list(v.shape), place,
        f"the slice has shape {[len(r) for r in ranges]}, the values {list(v.shape)}",
        "Give values of the slice's shape.",
    )  # fmt: skip
    return set_from(a, v, [r.start for r in ranges], [r.step for r in ranges])


def _set_where_data_say(a: Tensor, v: Tensor, begin: Any, end: Any, strides: Any) -> Tensor:
    """`strided_set` by numbers of which some are elements of vectors."""

    def given(numbers: Any, k: int, otherwise: int) -> Expr:
        read = isinstance(numbers, Tensor)
        count = 0 if numbers is None else numbers.shape[0] if read else len(numbers)
        found = numbers[k] if k < count else None
        if found is None:
            return te.const(otherwise)
        return found.astype("int32") if read else te.const(found)

    def body(i: Indices) -> Expr:
        inside, at = [], []
        for k, (x, n, m) in enumerate(zip(i, a.shape, v.shape, strict=True)):
            step = given(strides, k, 1)
            forward = step > 0
            ends = []
            for numbers, otherwise in ((begin, 0), (end, n)):
                raw = given(numbers, k, otherwise)
                there = te.select(raw < 0, raw + n, raw)
                low, high = te.select(forward, 0, -1), te.select(forward, n, n - 1)
                ends.append(te.maximum(te.minimum(there, high), low))
            away = te.select(forward, x - ends[0], ends[0] - x)
            size = te.maximum(te.maximum(step, -step), te.const(1))
            inside += [away >= 0, te.select(forward, x < ends[1], x > ends[1])]
            inside.append((away % size).equal(0))
            at.append(te.maximum(te.minimum(away // size, te.const(m - 1)), te.const(0)))
        return te.if_then_else(te.all(*inside), v[tuple(at)], a[i])

    return stage(a.shape, body, "T_strided_set", "injective")


def set_from(
    a: Tensor, v: Tensor, begin: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:
    """`a` with `v` in place of the elements at begin + strides * (the index in `v`) of every axis.

    begin, strides: one number for each axis; strides are 1 unless given, and may be negative
    """
    steps = [1] * len(begin) if strides is None else list(strides)
    place = call_text("strided_set", a=a, v=v, begin=list(begin), strides=steps)
    check_tensors(place, a=a, v=v)
    require(
        a.ndim == v.ndim == len(begin) == len(steps) and 0 not in steps, place,
        "begin and strides are not one number for each axis",
        "Strides are not 0; values have as many axes as the tensor.",
    )  # fmt: skip
    require(a.dtype is v.dtype, place, f"{v.dtype} does not fit {a.dtype}", "Cast one of them.")
    for k, (b, s) in enumerate(zip(begin, steps, strict=True)):
        ends = b, b + s * (v.shape[k] - 1)
        require(
            min(ends) >= 0 and max(ends) < a.shape[k], place,
            f"axis {k} of extent {a.shape[k]} is left at {ends}", "Set elements that are there.",
        )  # fmt: skip

    def body(i: Indices) -> Expr:
        inside, at = [], []
        for x, b, s, n, m in zip(i, begin, steps, v.shape, a.shape, strict=True):
            away = x - b if s > 0 else b - x
            if n < m:
                inside += [away >= 0, away < abs(s) * n]
            if abs(s) > 1:
                inside.append((away % abs(s)).equal(0))
            at.append(away // abs(s))
        here = v[tuple(at)]
        return te.if_then_else(te.all(*inside), here, a[i]) if inside else here

    return stage(a.shape, body, "T_strided_set", "injective")
