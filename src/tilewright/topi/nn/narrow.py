"""Matrix products whose weights are integers of a byte or less, in groups with a scale each.

In: rows of floats; weights as bytes, as `Narrow` says.  Out: two sums: of a line of 16 bytes, and
over lines with the scales of their groups, so that a scale costs nothing beside them; for products
of many rows the weights unpacked.
Read next: `dense.py`, `graph/passes/narrow.py`, which packs weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te
from tilewright.base.dtype import FLOAT32
from tilewright.ir import expr as E
from tilewright.ir import float8
from tilewright.ir.expr import Expr
from tilewright.schedule.template import PART
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    product_dtype,
    require,
    stage,
    workload,
)

LINE = 16  # bytes, one access of a GPU


@dataclass(frozen=True)
class Narrow:
    """How weights lie in bytes.

    halves: weights of a byte: with two, a line has the first 16 in its low bits
    unit:   what a whole number counts: bytes stand for numbers, times this, times their scale
    most:   the greatest number
    """

    name: str
    halves: int
    unit: float
    most: float

    @property
    def line(self) -> int:
        """Weights in a line."""
        return LINE * self.halves

    def number(self, byte: Expr, half: Expr | int) -> Expr:
        """The whole number of a weight, as float32, exact."""
        if self.name == "int4":  # at the upper end of a byte, where its sign is that of the byte
            moved = E.binary("shl", byte, 4 - half * 4) if self.halves > 1 else byte
            byte = E.binary("bitand", E.cast("int8", moved), -16)
        elif self.name == "float8":
            byte = float8.whole_number(E.cast("int32", byte))
        return E.cast(FLOAT32, byte)


KINDS = {
    kind.name: kind
    for kind in (
        Narrow("int8", 1, 1.0, 127.0),
        Narrow("int4", 2, 1 / 16, 7.0),
        Narrow("float8", 1, float8.UNIT, float8.GREATEST),
    )
}


def dense_narrow(
    data: Tensor, weight: Tensor, scale: Tensor, kind: str, out_dtype: str | None = None
) -> Tensor:
    """data [M, K] times the transpose of weights [N, K]; result [M, N].

    weight: int8 [N, lines, 16]; scale: float [N, groups]: of neighbours along K, a whole number of
    lines, times the unit of the kind.
    """
    place = call_text("dense_narrow", data=data, weight=weight, scale=scale, kind=kind)
    narrow, each = _checked(weight, scale, kind, place)
    check_tensor(data, "data", "MK", place)
    columns, lines, _ = weight.shape
    require(
        lines * narrow.line == data.shape[1], place,
        f"{lines} lines are not the weights of {data.shape[1]} features",
        f"A line has {narrow.line}.",
    )  # fmt: skip
    dtype = product_dtype(place, out_dtype, data=data)
    line_of = te.reduce_axis((0, lines), "line")
    byte = te.reduce_axis((0, LINE), "byte")
    halves = [te.reduce_axis((0, 2), "half")] if narrow.halves > 1 else []
    half = halves[0].as_expr() if halves else 0

    rows = stage(
        (data.shape[0], lines, narrow.line),
        lambda i: data[i[0], i[1] * narrow.line + i[2]],
        "T_rows",
        "injective",
        axes=["i", "l", "k"],
    )

    def part(i: Indices) -> Expr:
        row, column, at = i
        read = rows[row, at, half * LINE + byte].astype(FLOAT32)
        return te.sum(read * narrow.number(weight[column, at, byte], half), axis=[*halves, byte])

    work = {"FLOP": 2 * data.shape[0] * columns * data.shape[1]}  # unpacking does not count
    shape = data.shape[0], columns, lines
    parts = stage(shape, part, "T_line", PART, axes=["i", "j", "l"], attrs=work)
    made = stage(
        (data.shape[0], columns),
        lambda i: te.sum(
            parts[i[0], i[1], line_of] * scale[i[1], line_of // each].astype(FLOAT32), axis=line_of
        ),
        "T_dense_narrow",
        "dense_narrow",
        axes=["i", "j"],
        workload=workload("dense_narrow", data, weight, scale, kind),
    )
    if dtype == FLOAT32:
        return made
    return stage(made.shape, lambda i: made[i].astype(dtype), "T_cast", "elemwise")


def unpack_narrow(weight: Tensor, scale: Tensor, kind: str, dtype: str) -> Tensor:
    """Give the floats of weights [N, lines, 16], scale [N, groups]: [N, lines, halves, 16], which
    are rows of the depth."""
    place = call_text("unpack_narrow", weight=weight, scale=scale, kind=kind)
    narrow, each = _checked(weight, scale, kind, place)

    def one(i: Indices) -> Expr:
        column, line, half, byte = i
        number = narrow.number(weight[column, line, byte], half)
        return (number * scale[column, line // each].astype(FLOAT32)).astype(dtype)

    shape = (*weight.shape[:2], narrow.halves, LINE)
    return stage(shape, one, "T_unpack", "injective", axes=["j", "l", "h", "b"])


def _checked(weight: Tensor, scale: Tensor, kind: str, place: str) -> tuple[Narrow, int]:
    """The kind, and how many lines a group has."""
    require(kind in KINDS, place, f"there is no kind {kind!r}", f"Use {', '.join(KINDS)}.")
    check_tensor(weight, "weight", "NLB", place)
    check_tensor(scale, "scale", "NG", place)
    (columns, lines, line), groups = weight.shape, scale.shape[1]
    fits = line == LINE and weight.dtype == "int8" and scale.shape[0] == columns
    require(
        fits and lines % groups == 0, place, "the weights are no whole lines and groups",
        f"Give int8 [N, lines, {LINE}], and scales [N, groups] of whole lines.",
    )  # fmt: skip
    return KINDS[kind], lines // groups
