"""Few rows of floats as digits in shared memory: what matrix units multiply narrow weights by.

In: an anchor of `topi.nn.dense_narrow` whose weights are whole numbers of a byte.  Out: the stages
of `s.digits`, and the schedule of those that a block makes of its rows: the largest element by
warps whose lanes exchange it, then all digits by all threads, in vectors.
Read next: `gpu_narrow_few.py`, `schedule/steps/digits.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.ir.atoms import Fragment, WARP
from tilewright.base.dtype import DType
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.thread_loops import deal
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.templates.gpu_rows import by_warps, first_of, share_out

COUNT = 3  # digits of an element: of those of float32 all but two, of the largest in its row
TOGETHER = 4  # elements of a thread at a time, whose digits are words
ATOM = "m16n8k32.int8"
BYTES = Fragment(DType("int8"), "mk", "k2 k3 m0 m1 m2", "k0 k1 m3")  # of weights, 16 by 16


@dataclass(frozen=True)
class Cut:
    """What `s.digits` makes: see `schedule.Schedule.digits`."""

    sums: Tensor
    products: Tensor
    numbers: Tensor
    largest: Tensor
    scale: Tensor
    whole: Tensor
    digits: Tensor

    @staticmethod
    def made(s: Schedule, anchor: Tensor) -> Cut:
        return Cut(*s.digits(anchor, COUNT))

    def stages(self, s: Schedule) -> tuple[Stage, ...]:
        """Those that are computed inside the kernel."""
        own = (self.sums, self.largest, self.scale, self.whole, self.digits)
        return tuple(s[tensor] for tensor in own)

    def schedule(
        self, s: Schedule, width: int, place: tuple[Stage, IterVar], warps: Any
    ) -> None:
        """By all warps of a block, in vectors of `width` elements."""
        largest, digits, whole, scale = (
            s[t] for t in (self.largest, self.digits, self.whole, self.scale)
        )
        if prod(largest.op.shape) == 1:  # then each thread puts together what warps have found
            share_out(s, largest, width, warps, place)
            largest.set_scope("local")
        else:
            largest.set_scope("shared")
            by_warps(s, largest, width, warps)
        largest.compute_at(*place)
        digits.set_scope("shared")
        digits.compute_at(*place)
        digits.storage_align(digits.op.axis[0], 128, 16)
        r, l, k = digits.op.axis
        outer, lane = digits.split(digits.fuse(l, k), factor=TOGETHER)
        digits.reorder(outer, r, lane)
        digits.vectorize(lane)
        thread = deal(digits, outer, WARP * warps, WARP)
        digits.unroll(r)
        whole.set_scope("local")
        whole.compute_at(digits, thread)
        whole.vectorize(whole.op.axis[-1])
        scale.set_scope("local")
        scale.compute_at(*place)
