"""Matrix products whose weights are integers of a byte or less, in groups with a scale each.

In: rows of floats; weights as bytes, as `Narrow` says.  Out: for few rows two sums: of a line of
16 bytes, and over lines with the scales of their groups, so that a scale costs nothing beside
them; for more rows weights that are unpacked, and a product of these.
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
from tilewright.topi.nn.dense import dense
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    product_dtype,
    require,
    stage,
    workload,
)

LINE = 16  # bytes, one access of a GPU, one vector of float32 of a CPU
FEW = 16  # rows; of more, weights are unpacked by themselves


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
    require(kind in KINDS, place, f"there is no kind {kind!r}", f"Use {', '.join(KINDS)}.")
    check_tensor(data, "data", "MK", place)
    check_tensor(weight, "weight", "NLB", place)
    check_tensor(scale, "scale", "NG", place)
    narrow = KINDS[kind]
    columns, lines, line = weight.shape
    groups = scale.shape[1]
    fits = line == LINE and weight.dtype == "int8" and lines * narrow.line == data.shape[1]
    require(
        fits and lines % groups == 0 and scale.shape[0] == columns, place,
        f"weights of {data.shape[1]} {kind} are no whole lines and groups",
        f"Give int8 [N, {data.shape[1]} / {narrow.line}, {LINE}], and scales of whole lines.",
    )  # fmt: skip
    dtype = product_dtype(place, out_dtype, data=data)
    each = lines // groups  # lines of a group
    if data.shape[0] > FEW:
        return dense(data, _unpacked(data, weight, scale, narrow, each), out_dtype=dtype)
    line_of = te.reduce_axis((0, lines), "line")
    byte = te.reduce_axis((0, LINE), "byte")
    halves = [te.reduce_axis((0, 2), "half")] if narrow.halves > 1 else []
    half = halves[0].as_expr() if halves else 0

    def part(i: Indices) -> Expr:
        row, column, at = i
        read = data[row, at * narrow.line + half * LINE + byte].astype(FLOAT32)
        return te.sum(read * narrow.number(weight[column, at, byte], half), axis=[*halves, byte])

    parts = stage((data.shape[0], columns, lines), part, "T_line", PART, axes=["i", "j", "l"])
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


def _unpacked(data: Tensor, weight: Tensor, scale: Tensor, narrow: Narrow, each: int) -> Tensor:
    """[N, K] in the type of the data."""

    def one(i: Indices) -> Expr:
        j, k = i
        line, rest = k // narrow.line, k % narrow.line
        number = narrow.number(weight[j, line, rest % LINE], rest // LINE)
        return (number * scale[j, line // each].astype(FLOAT32)).astype(data.dtype)

    return stage((weight.shape[0], data.shape[1]), one, "T_unpack", "injective", axes=["j", "k"])
