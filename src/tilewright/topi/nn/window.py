"""Sliding windows: strides, padding and dilation as convolution and pooling share them.

In: the spellings users know (ints, pairs, four sides, "SAME", "VALID").  Out: `Window`, and `pad`.
Read next: `conv2d.py`, `pooling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    is_integer,
    per_axis,
    require,
    stage,
)

IMAGE = "DHW"  # axes of images, outermost first: of rank 1 W, of rank 2 HW
PADDINGS = {
    1: 'Use an int, (left, right), "SAME" or "VALID".',
    2: 'Use an int, (height, width), (top, left, bottom, right), "SAME" or "VALID".',
    3: 'Use an int, three of them, six (all in front, then all behind), "SAME" or "VALID".',
}

Ints = tuple[int, ...]


def image_letters(rank: int) -> str:
    """W, HW or DHW."""
    return IMAGE[-rank:]


def get_pad_tuple(padding: Any, kernel: Sequence[int], place: str = "padding") -> Ints:
    """Padding in elements, in front of each axis and then behind each: (top, left, bottom, right).

    kernel: the dilated window.  "SAME" adds kernel - 1 per axis whatever the stride, the larger
    half in front, as in TVM.
    """
    rank = len(kernel)
    way_out = PADDINGS.get(rank, PADDINGS[3])
    if isinstance(padding, str):
        require(padding in ("SAME", "VALID"), place, f"unknown padding {padding!r}", way_out)
        total = [k - 1 if padding == "SAME" else 0 for k in kernel]
        return (*((n + 1) // 2 for n in total), *(n // 2 for n in total))
    sides = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    ok = (
        len(sides) in (1, rank, 2 * rank)
        and rank > 0
        and all(is_integer(s) and int(s) >= 0 for s in sides)
    )
    require(ok, place, f"padding={padding!r} is not understood", way_out)
    return tuple(int(s) for s in sides) * (2 * rank // len(sides))


@dataclass(frozen=True)
class Window:
    """kernel, stride, dilation: one number per axis of the image; padding: in front of each axis,
    then behind each.
    """

    kernel: Ints
    stride: Ints
    dilation: Ints
    padding: Ints

    @staticmethod
    def of(
        kernel: Any, stride: Any, padding: Any, dilation: Any, place: str, rank: int = 2
    ) -> Window:
        size = per_axis(kernel, rank, "kernel", place)
        dilated = per_axis(dilation, rank, "dilation", place)
        reach = [(k - 1) * d + 1 for k, d in zip(size, dilated, strict=True)]
        sides = get_pad_tuple(padding, reach, place)
        return Window(size, per_axis(stride, rank, "stride", place), dilated, sides)

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def before(self) -> Ints:
        return self.padding[: self.rank]

    @property
    def after(self) -> Ints:
        return self.padding[self.rank :]

    @property
    def reach(self) -> Ints:
        """The extent from the first to the last tap of the dilated window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def output_size(self, sizes: Sequence[int], place: str) -> Ints:
        """Positions of the window in the padded image."""
        counts = []
        for n, size in enumerate(sizes):
            extent = size + self.before[n] + self.after[n]
            require(
                extent >= self.reach[n], place,
                f"a dilated window of {self.reach[n]} does not fit the padded extent {extent}",
                "Use more padding, a smaller kernel or less dilation.",
            )  # fmt: skip
            counts.append((extent - self.reach[n]) // self.stride[n] + 1)
        return tuple(counts)

    def pads(self, axes: Sequence[int], ndim: int) -> tuple[list[int], list[int]]:
        """Padding before and after each of `ndim` axes, of which `axes` are the image's."""
        before, after = [0] * ndim, [0] * ndim
        for axis, front, behind in zip(axes, self.before, self.after, strict=True):
            before[axis], after[axis] = front, behind
        return before, after

    def taps(self, index: Sequence[Expr], taps: Sequence[Any]) -> list[Expr]:
        """Return where in the padded image tap `taps` of the window at `index` reads."""
        return [
            i * s + t * d
            for i, s, t, d in zip(index, self.stride, taps, self.dilation, strict=True)
        ]


def pad(
    data: Tensor,
    pad_before: Sequence[int],
    pad_after: Sequence[int] | None = None,
    pad_value: float = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """`data` with `pad_value` around it; pad_before, pad_after: elements per axis.

    Without pad_after both sides are padded alike.  Without any padding the stage is a copy.
    """
    check_tensors("pad", data=data)
    after = pad_before if pad_after is None else pad_after
    place = call_text("pad", data=data, pad_before=list(pad_before), pad_after=list(after))
    require(
        len(pad_before) == len(after) == data.ndim, place,
        f"{data.ndim} axes need {data.ndim} numbers before and after",
        "Give one number per axis, 0 where nothing is added.",
    )  # fmt: skip
    require(
        all(is_integer(n) and int(n) >= 0 for n in (*pad_before, *after)), place,
        "padding is not an int of at least 0", "Slice with strided_slice to remove elements.",
    )  # fmt: skip
    sides = [(int(b), int(a), n) for b, a, n in zip(pad_before, after, data.shape, strict=True)]

    def body(i: Indices) -> Expr:
        inside = []
        for index, (before, behind, extent) in zip(i, sides, strict=True):
            if before:
                inside.append(index >= before)
            if behind:
                inside.append(index < extent + before)
        value = data[tuple(x - before for x, (before, _, _) in zip(i, sides, strict=True))]
        if not inside:
            return value
        return te.if_then_else(te.all(*inside), value, te.const(pad_value, data.dtype))

    shape = [before + extent + behind for before, behind, extent in sides]
    return stage(shape, body, name, "injective,pad", axes="i")
