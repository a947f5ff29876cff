"""Schedules and computations under the names of TVM's folders by target: `topi.cuda.schedule_pool`.

In: the outputs of computations.  Out: the schedule that an untuned build would use, for the target
in force, or the folder's own where there is none.  One `default_schedule` serves all operators, so
the names differ in nothing else; a computation is the same for every target, and so is `topi.nn`'s.
Read next: `schedule/default.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from tilewright.base import context
from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError, absent
from tilewright.driver.build import resolve_target
from tilewright.schedule.default import default_schedule, schedule_stage
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright_tvm import topi

TARGETS = {
    "generic": "llvm",
    "x86": "llvm",
    "arm_cpu": "llvm",
    "cuda": "cuda",
    "gpu": "cuda",
    "rocm": "opencl",
    "mali": "opencl -device=mali",
    "bifrost": "opencl -device=mali",
    "intel_graphics": "opencl",
    "hls": "llvm",
}

# What TVM's folders have a function schedule_NAME for, and a computation of that name here.
_NAMES = """
    adaptive_pool argsort argwhere batch_matmul batch_matmul_int8 batch_norm binarize_pack
    binary_dense bitserial_conv2d_nchw bitserial_conv2d_nhwc bitserial_dense broadcast concatenate
    conv1d_ncw conv1d_nwc conv1d_transpose_ncw conv2d conv2d_hwcn conv2d_nchw conv2d_nchw_int8
    conv2d_nchw_spatial_pack conv2d_nchw_winograd conv2d_NCHWc conv2d_nhwc conv2d_nhwc_spatial_pack
    conv2d_nhwc_winograd_direct conv2d_transpose_nchw conv3d_ncdhw conv3d_ndhwc
    conv3d_transpose_ncdhw correlation_nchw cumprod cumsum deformable_conv2d_nchw
    deformable_conv2d_nhwc dense dense_int8 dense_large_batch dense_nopack dense_pack
    dense_small_batch depth_to_space depthwise_conv2d depthwise_conv2d_backward_input_nhwc
    depthwise_conv2d_backward_weight_nhwc depthwise_conv2d_nchw depthwise_conv2d_nchw_spatial_pack
    depthwise_conv2d_NCHWc depthwise_conv2d_nhwc dilation2d_nchw dilation2d_nhwc einsum elemwise
    extern fifo_buffer gather get_valid_counts global_pool group_conv1d_ncw group_conv1d_nwc
    group_conv1d_transpose_ncw group_conv2d_nchw group_conv2d_nhwc group_conv2d_transpose_nchw
    group_norm injective instance_norm l2_normalize layer_norm log_softmax lrn lstm matmul
    multibox_detection multibox_prior nms non_max_suppression pool pool_grad proposal reduce reorg
    resize roi_align roi_pool scan scatter scatter_nd searchsorted softmax sort sparse_dense
    sparse_reshape sparse_transpose stft take topk transpose unique upsampling
"""
OPERATORS = frozenset(_NAMES.split())

_COMPUTED_BY = {
    "batch_matmul_int8": "batch_matmul",
    "compute_depthwise_conv2d_nhwc": "depthwise_conv2d_nhwc",
    "conv2d_nchw_int8": "conv2d_nchw",
    "conv2d_nchw_spatial_pack": "conv2d_nchw",
    "conv2d_nchw_winograd": "conv2d_winograd_nchw",
    "conv2d_nhwc_spatial_pack": "conv2d_nhwc",
    "conv2d_nhwc_winograd_direct": "conv2d_winograd_nhwc",
    "dense_int8": "dense",
    "dense_large_batch": "dense",
    "dense_nopack": "dense",
    "dense_pack": "dense",
    "dense_small_batch": "dense",
    "depthwise_conv2d_nchw_spatial_pack": "depthwise_conv2d_nchw",
}
# Files of TVM's folders, whose names are the folder's here.
FILES = frozenset({"conv2d", "depthwise_conv2d"})

Outputs = Tensor | Sequence[Tensor]


@cache
def find(folder: str, name: str) -> Any:
    """`topi.FOLDER.NAME`.  Raises AttributeError for names that TVM does not have there."""
    operator = name.removeprefix("schedule_")
    if name in FILES:
        return import_module(f"tilewright_tvm.topi.{folder}")
    if operator == "injective_from_existing":
        return _injective_from_existing(folder)
    if operator != name and operator in OPERATORS:
        return scheduling(None, TARGETS[folder], f"topi.{folder}.{name}")
    computed = _COMPUTED_BY.get(name, name)
    for room in (topi.nn, topi.vision, topi):
        if operator == name and computed in room.__all__:
            return getattr(room, computed)
    raise absent(f"topi.{folder}", name, {})


def scheduling(
    target: TargetLike | None, otherwise: TargetLike, place: str
) -> Callable[..., Schedule]:
    """A function from outputs to their default schedule.

    target:    default: that in force where the function is called, and `otherwise` where none is
    """

    @door(ExpressionError, place)
    def schedule(outs: Outputs, layout: str | None = None) -> Schedule:
        # layout: TVM asks for that of pooling, which the computation says here
        tensors = [outs] if isinstance(outs, Tensor) else list(outs)
        return default_schedule(ComputeDAG(tensors), _target(target, otherwise))

    schedule.__name__ = place.rpartition(".")[2]
    return schedule


def _injective_from_existing(folder: str) -> Callable[[Schedule, Tensor], Schedule]:
    @door(ExpressionError, f"topi.{folder}.schedule_injective_from_existing")
    def schedule(sch: Schedule, out: Tensor) -> Schedule:
        """Schedule the stage of `out` as if it were alone."""
        schedule_stage(sch, sch[out], _target(None, TARGETS[folder]))
        return sch

    return schedule


def _target(target: TargetLike | None, otherwise: TargetLike) -> Target:
    chosen = target if target is not None else context.current("target", otherwise)
    return resolve_target(chosen)
