"""Layout strings such as NCHW, NHWC, OIHW and the blocked NCHW8c, OIHW8i8o.

In: text.  Out: `Layout`, the axes in order, and the arithmetic of shapes and indices between two of
them.
Read next: `transform.py` (layout_transform), `nn/pooling.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr, const


@dataclass(frozen=True)
class Layout:
    """text: as written; axes: one letter each; blocks: size of each lower-case (inner) axis.

    The extent of an axis X with an inner axis x of size b is (extent of X) * b, and element e of it
    lies at X = e // b, x = e % b.
    """

    text: str
    axes: str
    blocks: dict[str, int]

    @property
    def outer(self) -> str:
        return "".join(a for a in self.axes if a.isupper())

    def __len__(self) -> int:
        return len(self.axes)

    def __str__(self) -> str:
        return self.text

    def __contains__(self, axis: object) -> bool:
        return isinstance(axis, str) and len(axis) == 1 and axis in self.axes

    def __getitem__(self, index: int) -> str:
        """The letter of a dimension; negative ones count from the end."""
        return self.axes[index]

    def index_of(self, axis: str) -> int:
        """The dimension that has this letter; -1 where there is none."""
        return self.axes.index(axis) if axis in self else -1

    def factor_of(self, axis: str) -> int:
        """The size of the block that `axis`, in either case, is stored in; -1 where it has none."""
        return self.blocks.get(axis.lower(), -1) if isinstance(axis, str) else -1


def letters_of(text: str) -> str:
    """Name the axes of a layout in order, a letter each: NCHWc of NCHW8c.  It is not checked."""
    return "".join(filter(str.isalpha, text))


def parse(text: str, place: str) -> Layout:
    """The layout `text` describes; an inner axis needs its size, as in NCHW8c."""

    def refuse(reason: str) -> ExpressionError:
        return ExpressionError(place, f"layout {text!r}: {reason}", "Examples: NCHW, NHWC, NCHW8c.")

    parts = re.findall(r"(\d*)([A-Za-z])", text)
    if not text or "".join(n + a for n, a in parts) != text:
        raise refuse("not a string of axis letters")
    axes = "".join(a for _, a in parts)
    if len(set(axes)) != len(axes):
        raise refuse("an axis appears twice")
    blocks = {}
    for size, axis in parts:
        if axis.isupper() and size:
            raise refuse(f"only an inner axis has a size, {axis} is an outer one")
        if axis.islower():
            if axis.upper() not in axes:
                raise refuse(f"the inner axis {axis} has no outer axis {axis.upper()}")
            if not size or int(size) < 1:
                raise refuse(f"the inner axis {axis} needs a size of at least 1")
            blocks[axis] = int(size)
    return Layout(text, axes, blocks)


def extents(layout: Layout, shape: Sequence[int], place: str) -> dict[str, int]:
    """The whole extent of every outer axis of a tensor of `shape`."""
    if len(shape) != len(layout):
        raise ExpressionError(
            place,
            f"shape {list(shape)} has {len(shape)} dimensions, layout {layout.text} {len(layout)}",
            "Name one axis per dimension.",
        )
    size = dict(zip(layout.axes, shape, strict=True))
    for axis, block in layout.blocks.items():
        if size[axis] != block:
            raise ExpressionError(
                place,
                f"axis {axis} of layout {layout.text} has extent {size[axis]}, not {block}",
                "Write the block's size as it is stored.",
            )
    return {a: size[a] * layout.blocks.get(a.lower(), 1) for a in layout.outer}


def shape_in(layout: Layout, whole: dict[str, int], place: str) -> list[int]:
    """The shape of a tensor of extents `whole` stored in `layout`."""
    for axis, block in layout.blocks.items():
        if whole[axis.upper()] % block:
            raise ExpressionError(
                place,
                f"{axis.upper()}={whole[axis.upper()]} is not a multiple of its block {block}",
                "Choose a block that divides it, or pad first.",
            )  # fmt: skip
    return [
        layout.blocks[a] if a.islower() else whole[a] // layout.blocks.get(a.lower(), 1)
        for a in layout.axes
    ]


def source_indices(src: Layout, dst: Layout, indices: Sequence[Expr]) -> list[Expr]:
    """Find where in `src` the element lies that has `indices` in `dst`."""
    at = dict(zip(dst.axes, indices, strict=True))
    found = {}
    for axis in src.outer:
        inner = axis.lower()
        here, there = src.blocks.get(inner, 1), dst.blocks.get(inner, 1)
        if here == there:
            found[axis] = at[axis]
            if inner in src.blocks:
                found[inner] = at[inner] if inner in at else const(0)
            continue
        whole = at[axis] * there + at[inner] if inner in at else at[axis]
        found[axis] = whole // here
        if inner in src.blocks:
            found[inner] = whole % here
    return [found[a] for a in src.axes]
