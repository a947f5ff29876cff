"""Convolutions on GPUs: `conv2d_nchw.gpu` and `conv2d_nhwc.gpu`, with and without groups.

In: anchors of `topi.nn.conv2d`, any stride, padding and dilation.  Out: schedules by `gpu.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.gpu import Roles, schedule_contraction

KINDS = ("cuda", "opencl")


@anchor_template("conv2d_nchw.gpu", kinds=KINDS, tags=["conv2d_nchw", "group_conv2d_nchw"])
def conv2d_nchw(cfg: Any, a: Anchored) -> None:
    """[N, C, H, W]: threads side by side along columns, then rows, then channels."""
    schedule_contraction(cfg, a, Roles(channel=1, rows=2, columns=3, depth=0, group=group_size(a)))


@anchor_template("conv2d_nhwc.gpu", kinds=KINDS, tags=["conv2d_nhwc", "group_conv2d_nhwc"])
def conv2d_nhwc(cfg: Any, a: Anchored) -> None:
    """[N, H, W, C]."""
    schedule_contraction(cfg, a, Roles(channel=3, rows=1, columns=2, depth=2, group=group_size(a)))


def group_size(a: Anchored) -> int:
    """Output channels per group of a grouped convolution, 0 where all share their inputs."""
    op = a.anchor.op
    assert isinstance(op, ComputeOp)
    if not op.tag.startswith("group"):
        return 0
    name, _, kernel, *_, groups, _ = op.attrs["workload"]
    outputs = kernel[1][0 if name.endswith("nchw") else 3]
    return int(outputs) // int(groups)
