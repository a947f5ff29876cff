"""Convolutions on GPUs: `conv2d_nchw.gpu` and `conv2d_nhwc.gpu`, with and without groups.

In: anchors of `topi.nn.conv2d`, any stride, padding and dilation.  Out: schedules by `gpu.py`.
Read next: `gpu_dense.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.gpu import (
    KINDS,
    Roles,
    fastest_contraction,
    op_of,
    schedule_contraction,
)


def roles_of(a: Anchored) -> Roles:
    op = op_of(a.schedule, a.anchor)
    if op.tag.endswith("nchw"):
        return Roles(channel=1, rows=2, columns=3, depth=0, group=group_size(op))
    return Roles(channel=3, rows=1, columns=2, depth=2, group=group_size(op))


def group_size(op: ComputeOp) -> int:
    """Output channels per group of a grouped convolution, 0 where all share their inputs."""
    if not op.tag.startswith("group"):
        return 0
    name, _, kernel, *_, groups, _ = op.attrs["workload"]
    outputs = kernel[1][0 if name.endswith("nchw") else 3]
    return int(outputs) // int(groups)


def schedule_conv2d(cfg: Any, a: Anchored) -> None:
    schedule_contraction(cfg, a, roles_of(a))


def fallback(sketch: Sketch, a: Anchored) -> int:
    return fastest_contraction(sketch, op_of(a.schedule, a.anchor))


for _layout in ("nchw", "nhwc"):
    anchor_template(
        f"conv2d_{_layout}.gpu", kinds=KINDS, fallback=fallback,
        tags=[f"conv2d_{_layout}", f"group_conv2d_{_layout}"],
    )(schedule_conv2d)  # fmt: skip
