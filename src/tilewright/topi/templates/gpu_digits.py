"""Few rows of floats as digits in shared memory: what matrix units multiply narrow weights by.

In: an anchor of `topi.nn.dense_narrow` whose weights are whole numbers of a byte.  Out: the stages
of `s.digits`, and the schedule of those that a block makes of its rows: the largest element by
warps whose lanes exchange it, then all digits by all threads.  What all elements of a row are
multiplied by, as a norm does, its results are, when the products are there.
Read next: `gpu_narrow_few.py`, `schedule/steps/digits.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP, Fragment
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import deal, fetch
from tilewright.schedule.vectors import inlined_body
from tilewright.te.tensor import ComputeOp, IterVar, Tensor
from tilewright.topi.templates.gpu_rows import by_warps, share_out

WIDE, USUAL = 4, 3  # digits of a float32; of a half, all of whose bits they are where it is not
# less than 2**-14 of the largest in its row, of bfloat16, or 2**-11, of float16
TOGETHER = 4  # elements of a thread at a time, whose digits are words
ATOM = "m16n8k32.int8"
BYTES = Fragment(DType("int8"), "mk", "k2 k3 m0 m1 m2", "k0 k1 m3")  # of weights, 16 by 16
APART = 16, 128  # rows of digits are an odd number of 16 bytes apart: lanes read different banks


def count_of(data: Tensor) -> int:
    """Digits of an element of rows."""
    return WIDE if data.dtype.bytes > 2 else USUAL


@dataclass(frozen=True)
class Cut:
    """What `s.digits` makes, see `schedule.Schedule.digits`; behind: sums of elements of a row, and
    what is computed of these, that its results are multiplied by."""

    s: Schedule
    behind: tuple[Stage, ...]
    sums: Tensor
    products: Tensor
    numbers: Tensor
    largest: Tensor
    scale: Tensor
    whole: Tensor
    digits: Tensor

    @staticmethod
    def made(a: Anchored, part: Tensor, data: Tensor, behind: tuple[Stage, ...]) -> Cut:
        """part: sums of products of the rows, which are data"""
        s = a.schedule
        for stage in s.stages:
            op = stage.op
            plain = isinstance(op, ComputeOp) and op.combiner is None and stage not in behind
            if plain and s.reaches(stage, s[part]):
                stage.compute_inline()
        return Cut(s, behind, *s.digits(a.anchor, count_of(data)))

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those that are computed inside the kernel."""
        own = (self.sums, self.largest, self.scale, self.whole, self.digits)
        return tuple(self.s[tensor] for tensor in own)

    def schedule(
        self, width: int, place: tuple[Stage, IterVar], thread: IterVar, warps: Any
    ) -> None:
        """By all warps of a block; rows come in vectors of `width` elements.

        thread: of the block, which computes results
        """
        s, (root, _) = self.s, place
        largest = s[self.largest]
        inside = (largest, s[self.whole], *self.behind)
        reads = [e.attr for st in inside for e in E.walk(inlined_body(s, st)) if e.op == "read"]
        size = prod(self.whole.shape)
        for source in dict.fromkeys(t for t in reads if prod(t.shape) == size):
            readers = [r.tensor for r in s.readers(source) if s.reaches(r, s[self.products])]
            near = s[s.cache_read(source, "shared", [*readers])]
            near.compute_at(*place)
            fetch(near, WARP * warps, width, lanes=WARP)
        for stage in (largest, *self.behind):
            end = place if stage is largest else (root, thread)
            if not stage.op.reduce_axis:
                stage.set_scope("local")
            elif prod(stage.op.shape) == 1:  # each thread puts together what warps have found
                share_out(s, stage, width, warps, place)
                stage.set_scope("local")
            else:
                by_warps(s, stage, width, warps)
                stage.set_scope("shared")
                end = place
            stage.compute_at(*end)
        digits, whole, scale = (s[t] for t in (self.digits, self.whole, self.scale))
        digits.set_scope("shared")
        digits.compute_at(*place)
        row, line, k = digits.op.axis
        skew, period = APART
        digits.storage_align(row, period, skew)
        outer, lane = digits.split(digits.fuse(line, k), factor=TOGETHER)
        digits.reorder(outer, row, lane)
        digits.vectorize(lane)
        own = deal(digits, outer, WARP * warps, WARP)
        digits.unroll(row)
        whole.set_scope("local")
        whole.compute_at(digits, own)
        whole.vectorize(whole.op.axis[-1])
        scale.set_scope("local")
        scale.compute_at(*place)
