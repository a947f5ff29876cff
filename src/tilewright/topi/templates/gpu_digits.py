"""Few rows of floats as digits in shared memory: what matrix units multiply narrow weights by.

In: an anchor of `topi.nn.dense_narrow` whose weights are whole numbers of a byte.  Out: the stages
of `s.digits`, and the schedule of those that a block makes of its rows: a warp reads a few terms
into registers, whose lanes exchange the largest element, and stores their digits, without a barrier
in between.  What all elements of a row are multiplied by, as a norm does, its results are, when the
products are there.  Read next: `gpu_narrow_few.py`, `schedule/steps/digits.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir.atoms import WARP, Fragment
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import deal
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.nn.narrow import LINE
from tilewright.topi.templates.gpu_atoms import N
from tilewright.topi.templates.gpu_rows import by_lanes, by_warps

WIDE, USUAL = 4, 3  # digits of a float32; of a half, all of whose bits they are where it is not
# less than 2**-14 of the largest in its row, of bfloat16, or 2**-11, of float16
WORD = 4  # elements whose digits are a word
LANE = 8  # elements of a lane, of long rows
LONG = 4096  # elements
ATOM = "m16n8k32.int8"
BYTES = Fragment(DType("int8"), "mk", "k2 k3 m0 m1 m2", "k0 k1 m3")  # of weights, 16 by 16
APART = 16, 128  # rows of digits are an odd number of 16 bytes apart: lanes read different banks


def count_of(data: Tensor) -> int:
    """Digits of an element of rows."""
    return WIDE if data.dtype.bytes > 2 else USUAL


def terms_of(rows: int, count: int, terms: int, depth: int) -> tuple[int, int]:
    """How many terms of a row are together, for as many elements as a warp takes at a time; and how
    many are abreast, so that no columns of an atom are left, or few."""
    together = WARP * WORD // gcd(WARP * WORD, depth)
    if terms * depth >= LONG and together * depth < WARP * LANE:
        together *= 2
    abreast = gcd(terms, N // (rows * (count + count % 2)))
    return together, abreast


@dataclass(frozen=True)
class Cut:
    """What `s.digits` makes, see `schedule.Schedule.digits`; behind: sums of elements of a row, and
    what is computed of these, that its results are multiplied by, or its elements made of."""

    s: Schedule
    behind: tuple[Stage, ...]
    count: int
    sums: Tensor
    products: Tensor
    numbers: Tensor
    rows: Tensor
    largest: Tensor
    scale: Tensor
    unit: Tensor
    whole: Tensor
    digits: Tensor
    columns: Tensor

    @staticmethod
    def made(a: Anchored, part: Tensor, data: Tensor, behind: tuple[Stage, ...]) -> Cut:
        """part: sums of products of the rows, which are data"""
        s = a.schedule
        for stage in s.stages:
            op = stage.op
            plain = isinstance(op, ComputeOp) and op.combiner is None and stage not in behind
            if plain and s.reaches(stage, s[part]):
                stage.compute_inline()
        count, op = count_of(data), s[part].op
        assert isinstance(op, ComputeOp)
        depth = prod(ax.size for ax in op.reduce_axis)
        numbers = terms_of(op.shape[0], count, op.shape[2], depth)
        return Cut(s, behind, count, *s.digits(a.anchor, count, *numbers))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those that are computed inside the kernel."""
        rows = (self.rows, self.largest, self.scale, self.unit, self.whole, self.digits)
        return tuple(self.s[tensor] for tensor in (self.sums, *rows, self.columns))

    def schedule(
        self, width: int, place: tuple[Stage, IterVar], thread: IterVar, warps: Any
    ) -> None:
        """By all warps of a block; several rows are normed in vectors of `width` elements.

        thread: of the block, which computes results
        """
        s, (root, _) = self.s, place
        names = (self.rows, self.largest, self.scale, self.unit, self.whole, self.digits)
        rows, largest, scale, unit, whole, digits = (s[t] for t in names)
        size = whole.op.shape[-1] // WARP  # elements of a lane
        for stage in (largest, scale, unit):
            stage.set_scope("shared" if stage is unit else "local")
            stage.compute_at(*place)
            part = stage.op.axis[1]
            if stage is unit:
                _, part = _dealt(stage, part, warps)
            stage.unroll(part)
        rows.set_scope("local")
        rows.compute_at(*place)
        outer, vector = rows.split(rows.op.axis[-1], factor=gcd(size, LINE // rows.op.dtype.bytes))
        rows.unroll(outer)
        rows.vectorize(vector)
        loop, vector = largest.split(largest.op.reduce_axis[0], factor=size)
        largest.pragma(deal(largest, loop, WARP), "exchange", 1)
        largest.unroll(vector)
        digits.set_scope("shared")
        digits.compute_at(*place)
        digits.storage_align(digits.op.axis[0], APART[1], APART[0])
        row, part, element = digits.op.axis
        row, digit = digits.split(row, factor=self.count)
        warp, turn = _dealt(digits, part, warps)
        loop, inner = digits.split(element, factor=size)
        word, vector = digits.split(inner, factor=WORD)
        lane = deal(digits, loop, WARP)
        digits.reorder(row, warp, turn, lane, word, digit, vector)
        for ax in (turn, word, digit):
            digits.unroll(ax)
        digits.vectorize(vector)
        whole.set_scope("local")
        whole.compute_at(digits, word)
        whole.vectorize(whole.op.axis[-1])
        first = self._first()
        for stage in self.behind:
            if stage.op.reduce_axis and prod(stage.op.shape) > 1:
                by_warps(s, stage, width, warps)
                stage.set_scope("shared")
                stage.compute_at(*place)
                continue
            if stage.op.reduce_axis:
                self._share_out(stage, size, place, warps)
            stage.set_scope("local")
            stage.compute_at(*(place if stage in first else (root, thread)))

    def _first(self) -> list[Stage]:
        """What elements of a row, or sums of them, are computed of, such as a mean."""
        s = self.s
        ends = [s[self.rows], *(stage for stage in self.behind if stage.op.reduce_axis)]
        return [b for b in self.behind if any(s.reaches(b, end) for end in ends if end is not b)]

    def _share_out(self, stage: Stage, size: int, place: tuple[Stage, IterVar], warps: Any) -> None:
        """The sum of one row, which each thread puts together of what warps have found of those
        elements whose digits they make."""
        s = self.s
        loop, _ = stage.split(stage.fuse(*stage.op.reduce_axis), factor=size)
        turn, _ = stage.split(loop, factor=WARP)
        part = s[s.rfactor(stage.tensor, turn)]
        part.set_scope("shared")
        part.compute_at(*place)
        _dealt(part, part.op.axis[0], warps)
        lane, vector = part.op.reduce_axis
        part.bind(lane, "threadIdx.x")
        by_lanes(s, part, lane, vector, size)
        stage.unroll(stage.op.reduce_axis[0])


def _dealt(stage: Stage, part: IterVar, warps: Any) -> tuple[IterVar, IterVar]:
    """Neighbouring parts of rows to each warp; returns the loops of warps and over their own."""
    warp, turn = stage.split(part, nparts=warps)
    stage.bind(warp, "threadIdx.y")
    return warp, turn
