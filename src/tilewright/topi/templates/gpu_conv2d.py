"""Convolutions on GPUs: `conv2d_nchw.gpu`, `conv2d_nhwc.gpu` and those of other ranks, with and
without groups, and transposed ones.

In: anchors of `topi.nn.conv` and `conv_transpose`, any stride, padding and dilation.  Out:
schedules by `gpu.py`.  Read next: `gpu_dense.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.stage import groups_of
from tilewright.topi.templates.gpu import (
    KINDS,
    Roles,
    fastest_contraction,
    op_of,
    schedule_contraction,
)


def roles_of(a: Anchored) -> Roles:
    op = op_of(a.schedule, a.anchor)
    layout, last = op.tag.rpartition("_")[2], len(op.axis) - 1
    image = len(layout) - 2
    if layout.index("c") == 1:
        rows = last - 1 if image > 1 else None
        return Roles(channel=1, rows=rows, columns=last, depth=0, group=group_size(op, 1))
    rows = last - 2 if image > 1 else None
    group = group_size(op, last)
    return Roles(channel=last, rows=rows, columns=last - 1, depth=image, group=group)


def group_size(op: ComputeOp, channel: int) -> int:
    """Output channels per group of a grouped convolution, 0 where all share their inputs."""
    if not op.tag.startswith("group"):
        return 0
    return op.shape[channel] // groups_of(op, op.shape[channel])


def schedule_conv2d(cfg: Any, a: Anchored) -> None:
    schedule_contraction(cfg, a, roles_of(a))


def fallback(sketch: Sketch, a: Anchored) -> int:
    return fastest_contraction(sketch, op_of(a.schedule, a.anchor))


for _layout in ("ncw", "nwc", "nchw", "nhwc", "ncdhw", "ndhwc"):
    _name = f"conv{len(_layout) - 2}d"
    anchor_template(
        f"{_name}_{_layout}.gpu", kinds=KINDS, fallback=fallback,
        tags=[f"{_name}_{_layout}", f"group_{_name}_{_layout}"],
    )(schedule_conv2d)  # fmt: skip
    anchor_template(
        f"{_name}_transpose_{_layout}.gpu", kinds=KINDS, fallback=fallback,
        tags=[f"{_name}_transpose_{_layout}", f"group_{_name}_transpose_{_layout}"],
    )(schedule_conv2d)  # fmt: skip
