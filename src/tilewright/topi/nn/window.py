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
    pair,
    require,
    stage,
)

PADDINGS = 'Use an int, (height, width), (top, left, bottom, right), "SAME" or "VALID".'


Sides = tuple[int, int, int, int]


def get_pad_tuple(padding: Any, kernel: tuple[int, int], place: str = "padding") -> Sides:
    """(top, left, bottom, right) in elements.

    kernel: the dilated window.  "SAME" adds kernel - 1 per axis whatever the stride, the larger
    half in front, as in TVM.
    """
    if isinstance(padding, str):
        require(padding in ("SAME", "VALID"), place, f"unknown padding {padding!r}", PADDINGS)
        high, wide = (k - 1 if padding == "SAME" else 0 for k in kernel)
        return (high + 1) // 2, (wide + 1) // 2, high // 2, wide // 2
    sides = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    ok = len(sides) in (1, 2, 4) and all(is_integer(s) and int(s) >= 0 for s in sides)
    require(ok, place, f"padding={padding!r} is not understood", PADDINGS)
    whole = [int(s) for s in sides]
    top, left, bottom, right = whole * (4 // len(whole))
    return top, left, bottom, right


@dataclass(frozen=True)
class Window:
    """kernel, stride, dilation: (height, width); padding: (top, left, bottom, right)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: Sides

    @staticmethod
    def of(kernel: Any, stride: Any, padding: Any, dilation: Any, place: str) -> Window:
        size = pair(kernel, "kernel", place)
        dilated = pair(dilation, "dilation", place)
        reach = ((size[0] - 1) * dilated[0] + 1, (size[1] - 1) * dilated[1] + 1)
        sides = get_pad_tuple(padding, reach, place)
        return Window(size, pair(stride, "stride", place), dilated, sides)

    @property
    def reach(self) -> tuple[int, int]:
        """The extent from the first to the last tap of the dilated window."""
        return (
            (self.kernel[0] - 1) * self.dilation[0] + 1,
            (self.kernel[1] - 1) * self.dilation[1] + 1,
        )

    def output_size(self, height: int, width: int, place: str) -> tuple[int, int]:
        """Positions of the window in the padded height x width."""
        top, left, bottom, right = self.padding
        sizes = []
        for extent, reach, stride in zip(
            (height + top + bottom, width + left + right), self.reach, self.stride, strict=True
        ):
            require(
                extent >= reach, place,
                f"a dilated window of {reach} does not fit the padded extent {extent}",
                "Use more padding, a smaller kernel or less dilation.",
            )  # fmt: skip
            sizes.append((extent - reach) // stride + 1)
        return sizes[0], sizes[1]

    def pads(self, h_axis: int, w_axis: int, ndim: int) -> tuple[list[int], list[int]]:
        """Padding before and after each of `ndim` axes."""
        before, after = [0] * ndim, [0] * ndim
        before[h_axis], before[w_axis], after[h_axis], after[w_axis] = self.padding
        return before, after

    def taps(self, y: Expr, x: Expr, ry: Any, rx: Any) -> tuple[Expr, Expr]:
        """Where in the padded input tap (ry, rx) of the window at (y, x) reads."""
        (sh, sw), (dh, dw) = self.stride, self.dilation
        return y * sh + ry * dh, x * sw + rx * dw


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
