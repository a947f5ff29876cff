"""What the templates of convolutions for CPUs begin with where no record is known, as in AutoTVM.

In: a configuration, and a workload of `topi/nn/workloads.py`.  Out: the configuration with the
knobs that `conv2d_NCHWc.x86` and `depthwise_conv2d_NCHWc.x86` read.  Other names of these files of
TVM are those of `topi.x86`.  Read next: `topi/templates/cpu_conv.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base import context
from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.entities import OtherOptionEntity, SplitEntity
from tilewright.targets.target import Target
from tilewright_tvm.topi import by_target
from tilewright_tvm.topi.nn.workloads import Workload

MOST_COLUMNS = 31  # of a tile: so many sums are in registers
LANE_BYTES = 4


@door(SpaceError, "topi.x86.fallback_schedule")
def fallback_schedule(cfg: Any, wkl: Workload) -> None:
    """Set `tile_ic`, `tile_oc`, `tile_ow` and `unroll_kw` of `cfg`.

    Blocks of channels are the widest divisor that a vector of the target in force holds, columns
    the most, below 32, that divide a row of the result.
    """
    target = Target(context.current("target", "llvm"))
    lanes = max(target.limits.vector_bytes // LANE_BYTES, 1)
    out_block = _divisor(wkl.out_filter, lanes)
    in_block = _divisor(wkl.in_filter, out_block)
    reach = (wkl.kernel_w - 1) * wkl.dilation_w + 1
    columns = (wkl.width + wkl.padl + wkl.padr - reach) // wkl.stride_w + 1
    tile = _divisor(columns, MOST_COLUMNS)
    cfg["tile_ic"] = SplitEntity([wkl.in_filter // in_block, in_block])
    cfg["tile_oc"] = SplitEntity([wkl.out_filter // out_block, out_block])
    cfg["tile_ow"] = SplitEntity([columns // tile, tile])
    cfg["unroll_kw"] = OtherOptionEntity(False)


def _divisor(extent: int, most: int) -> int:
    """The greatest divisor of `extent` that is at most `most`."""
    return next(n for n in range(min(extent, most), 0, -1) if extent % n == 0)


_fallback_schedule = fallback_schedule  # its name in TVM


def __getattr__(name: str) -> Any:
    return by_target.find("x86", name)
