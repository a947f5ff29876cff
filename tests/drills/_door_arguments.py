"""Arguments that public functions accept.

In: a function and what users call it.  Out: `good()`, by name, its arguments.  They come from the
tables below, else from a parameter's annotation.  Read next: `_doors.py`.
"""

from __future__ import annotations

import functools
import inspect
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import tilewright
from drills._door_graphs import GRAPHS
from drills._door_tensors import TENSOR_EXPRESSIONS
from tilewright import te, topi
from tilewright.measure.database import Database
from tilewright_tvm import auto_scheduler, autotvm, relay, tvmc

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Of:
    """A value of the kind that a function's room computes with: a tensor, a value of relay, ..."""

    shape: tuple[int, ...] = (1, 4, 8, 8)
    dtype: str = "float32"

    def of(self, room: str) -> Any:
        if room == "te":
            return te.var("n", self.dtype)
        return (image if room == "topi" else vector)(*self.shape, dtype=self.dtype)


def matmul() -> list[Any]:
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 8), name="B")
    r = te.reduce_axis((0, 6), "r")
    return [a, b, te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def image(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape or (1, 4, 8, 8), dtype, name="data")


def network() -> relay.IRModule:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    return relay.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))


def vector(*shape: int, dtype: str = "float32") -> relay.Var:
    return relay.var("v", shape=shape or (1, 4, 8, 8), dtype=dtype)


@functools.cache
def task() -> Any:
    return autotvm.task.create("drills.doors", (4, 8, 6), "llvm")


@functools.cache
def search_task() -> Any:
    return auto_scheduler.SearchTask(func=workload, args=(4, 8, 6), target="llvm")


@autotvm.template("drills.doors")
def template(n: int, m: int, k: int) -> Any:
    a, b, c = matmul()
    s = te.create_schedule(c.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", s[c].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, c, s[c].op.axis[0])
    return s, [a, b, c]


@auto_scheduler.register_workload("drills.doors")
def workload(n: int, m: int, k: int) -> list[Any]:
    return matmul()


@functools.cache
def library() -> Any:
    return relay.build(network(), target="llvm", verify=False)


@functools.cache
def kernel() -> Any:
    s = te.create_schedule(matmul()[-1].op)
    return tilewright.build(s, target="llvm")


def tvmc_model() -> Any:
    return tvmc.TVMCModel(network(), {})


def trial() -> Any:
    return autotvm.MeasureInput(task().target, task(), task().config_space.get(0))


def measured() -> Any:
    return autotvm.MeasureResult((1e-3,), 0, 1.0, 1.0)


def row() -> str:
    return autotvm.record.encode(trial(), measured())


# What a parameter of this name takes wherever the tables after it do not say otherwise.
_SHARED: dict[str, Any] = {
    "a_max": 1.0, "a_min": 0.0, "acc_dtype": None, "alpha": 0.1, "args": (4, 8, 6), "axes": None,
    "axis": 1, "builder": "local", "dilation": 1, "dtype": "float32", "fill_value": 1.0,
    "filename": "log.json", "groups": 1, "index": 0, "layout": "NCHW", "log_file": "log.json",
    "mod": network, "name": "drills.doors", "output_size": 1, "padding": 1, "params": None,
    "pool_type": "max", "prefix": "", "reps": 2, "runner": "local", "shape": (2, 3), "stride": 1,
    "strides": 1, "target": "llvm", "task": task, "task_name": "drills.doors",
    "tasks": lambda: [search_task()],
    "tensors": matmul, "total": 10, "value": 1.0,
}  # fmt: skip
# The same for operators of `topi` and `relay`.
_PARAMETERS: dict[str, Any] = {
    **dict.fromkeys(("x", "y", "a", "b", "lhs", "rhs", "array", "ary", "expr"), Of()),
    "begin": (0, 0, 0, 0), "block_size": 2, "depth": 4, "end": (1, 2, 3, 4),
    "indices": Of(dtype="int32"), "indices_or_sections": 2, "kernel": 2, "newshape": (4, 64),
    "num_groups": 2, "off_value": 0.0, "on_value": 1.0, "pad_before": (0, 0, 1, 1),
    "pad_width": ((0, 0), (0, 0), (1, 1), (1, 1)), "pool_size": 2, "shift": 1, "size": 4,
    "start": 0.0, "stop": 4.0,
}  # fmt: skip
_KEY = '["drills.doors", 4, 8, 6]'  # of a workload
_OPERANDS = ("condition", "data", "lhs", "rhs", "x", "y")
_CHANNELS = dict.fromkeys(("gamma", "beta", "moving_mean", "moving_var", "bias"), Of((4,)))
_SCALE_SHIFT = dict.fromkeys(("scale", "shift"), Of((4,)))
# What operators take that `topi` and `relay` have alike, by the last part of their names.
_OPERATORS: dict[str, dict[str, Any]] = {
    "all any": {"data": Of((2, 3), "bool"), "axis": 1},
    "affine_grid": {"data": Of((1, 2, 3)), "target_shape": (4, 4)},
    "attention": dict.fromkeys(("query", "key", "value"), Of((2, 2, 4, 4))),
    "adv_index": {"inputs": [Of(), Of((3,), "int32")]},
    "batch_to_space_nd": {
        "data": Of((4, 2, 2, 3)), "block_shape": [2, 2], "crops": [[0, 0], [0, 0]],
    },
    "broadcast_to_like": {"broadcast_type": Of((2, 4, 8, 8))},
    "cast_like": {"dtype_like": Of(dtype="int8")},
    "collapse_sum_like": {"collapse_type": Of((1, 8))},
    "collapse_sum_to": {"shape": (1, 8)},
    "cross_entropy cross_entropy_with_logits": dict.fromkeys(
        ("predictions", "targets"), Of((2, 3))
    ),
    "dilate": {"strides": (1, 1, 2, 2)},
    "fifo_buffer": {"buffer": Of((1, 4, 8, 9)), "axis": 3},
    "fixed_point_multiply": {"data": Of(dtype="int32"), "multiplier": 1 << 30, "shift": 0},
    "invert_permutation": {"data": Of((4,), "int32")},
    "matrix_set_diag": {"diagonal": Of((1, 4, 8))},
    "reshape_like": {"shape_like": Of((4, 64))},
    "reverse_reshape": {"newshape": (4, 64)},
    "searchsorted": {"sorted_sequence": Of((5,)), "values": Of((2, 3))},
    "sequence_mask": {"valid_length": Of((4,), "int32")},
    "space_to_batch_nd": {
        "data": Of((1, 4, 4, 3)), "block_shape": [2, 2], "paddings": [[0, 0], [0, 0]],
    },
    "sparse_to_dense": {
        "sparse_indices": Of((3, 2), "int32"), "output_shape": (4, 5), "sparse_values": Of((3,)),
    },
    "unravel_index": {"indices": Of((3,), "int32"), "shape": (3, 4)},
    "batch_matmul": dict.fromkeys(("tensor_a", "tensor_b"), Of((2, 4, 4))),
    "batch_norm bias_add group_norm instance_norm": _CHANNELS,
    "bitwise_and bitwise_not bitwise_or bitwise_xor left_shift right_shift trunc_divide":
        dict.fromkeys(_OPERANDS, Of(dtype="int32")),
    "broadcast_to": {"shape": (2, 4, 8, 8)},
    "concatenate stack elemwise_sum": {
        n: [Of(), Of()] for n in ("a_tuple", "tensors", "data", "xs")
    },
    "conv2d_NCHWc": {"data": Of((1, 1, 8, 8, 4)), "kernel": Of((1, 1, 3, 3, 4, 4))},
    "contrib_conv2d_nchwc": {
        "data": Of((1, 1, 8, 8, 4)), "kernel": Of((1, 1, 3, 3, 4, 4)), "data_layout": "NCHW4c",
    },
    "contrib_depthwise_conv2d_nchwc": {
        "data": Of((1, 1, 8, 8, 4)), "kernel": Of((1, 1, 3, 3, 1, 4)), "data_layout": "NCHW4c",
    },
    "contrib_conv2d_winograd_weight_transform": {"weight": Of((4, 4, 3, 3)), "tile_size": 2},
    "contrib_conv3d_winograd_weight_transform": {"weight": Of((4, 4, 3, 3, 3)), "tile_size": 2},
    "contrib_conv2d_winograd_without_weight_transform": {
        "data": Of((1, 4, 8, 8)), "weight": Of((4, 4, 4, 4)), "tile_size": 2,
    },
    "contrib_conv3d_winograd_without_weight_transform": {
        "data": Of((1, 4, 6, 6, 6)), "weight": Of((4, 4, 4, 4, 4)), "tile_size": 2,
    },
    "conv2d_nhwc": {"data": Of((1, 8, 8, 4)), "kernel": Of((3, 3, 4, 4))},
    "conv2d_hwcn": {"data": Of((8, 8, 4, 1)), "kernel": Of((3, 3, 4, 4))},
    "conv2d_winograd_nchw": {"weight": Of((4, 4, 3, 3))},
    "conv2d_winograd_nchw_without_weight_transform": {"weight": Of((6, 6, 4, 4))},
    "conv2d_winograd_nhwc": {"data": Of((1, 8, 8, 4)), "weight": Of((3, 3, 4, 4))},
    "conv2d_winograd_nhwc_without_weight_transform": {
        "data": Of((1, 8, 8, 4)), "weight": Of((6, 6, 4, 4)),
    },
    "conv2d_winograd_weight_transform": {"kernel": Of((4, 4, 3, 3)), "tile_size": 4},
    "correlation": {
        "data1": Of((1, 2, 6, 6)), "data2": Of((1, 2, 6, 6)), "kernel_size": 1,
        "max_displacement": 1, "stride1": 1, "stride2": 1, "padding": 1, "is_multiply": True,
    },
    "crop_and_resize": {
        "data": Of((1, 2, 4, 4)), "boxes": Of((3, 4)), "box_indices": Of((3,), "int32"),
        "crop_size": (2, 2),
    },
    "all_class_non_max_suppression": {"boxes": Of((1, 5, 4)), "scores": Of((1, 2, 5))},
    "dft": dict.fromkeys(("re_data", "im_data"), Of((2, 4))),
    "dilation2d": {"data": Of((1, 2, 6, 6)), "weight": Of((2, 3, 3))},
    "get_valid_counts": {"data": Of((1, 5, 6)), "score_threshold": 0.5},
    "multibox_transform_loc multibox_detection": {
        "cls_prob": Of((1, 3, 5)), "loc_pred": Of((1, 20)), "anchor": Of((1, 5, 4)),
    },
    "non_max_suppression": {
        "data": Of((1, 5, 6)), "valid_count": Of((1,), "int32"), "indices": Of((1, 5), "int32"),
    },
    "proposal": {
        "cls_prob": Of((1, 2, 2, 3)), "bbox_pred": Of((1, 4, 2, 3)), "im_info": Of((1, 3)),
        "scales": (0.5,), "ratios": (0.5,), "feature_stride": 16, "threshold": 0.7,
        "rpn_pre_nms_top_n": 4, "rpn_post_nms_top_n": 2, "rpn_min_size": 16, "iou_loss": False,
    },
    "roi_pool": {
        "data": Of((1, 2, 4, 4)), "rois": Of((3, 5)), "pooled_size": 2, "spatial_scale": 1.0,
    },
    "segment_sum": {"data": Of((4, 3)), "segment_ids": Of((4,), "int32"), "num_segments": 2},
    "sliding_window": {"window_shape": (2, 3, 3), "strides": (1, 2, 2)},
    "stft": {
        "data": Of((1, 8)), "n_fft": 4, "hop_length": 2, "win_length": 4, "window": Of((4,)),
        "normalized": False, "onesided": True,
    },
    "dense": {"data": Of((2, 4)), "weight": Of((3, 4))},
    "depthwise_conv depthwise_conv2d_nchw": {"kernel": Of((4, 1, 3, 3))},
    "depthwise_conv2d_NCHWc": {"data": Of((1, 1, 8, 8, 4)), "kernel": Of((1, 1, 3, 3, 1, 4))},
    "depthwise_conv2d_nhwc": {"data": Of((1, 8, 8, 4)), "kernel": Of((3, 3, 4, 1))},
    "deformable_conv2d": {
        "data": Of((1, 2, 4, 4)), "offset": Of((1, 18, 2, 2)), "weight": Of((3, 2, 3, 3)),
    },
    "einsum": {"data": [Of((2, 3)), Of((3, 4))], "equation": "ij,jk->ik"},
    "gather_nd scatter_nd": {"indices": Of((4, 8), "int32"), "updates": Of((8,))},
    "get_pad_tuple": {"kernel": (3, 3)},
    "grid_sample": {"data": Of((1, 2, 4, 4)), "grid": Of((1, 2, 3, 3))},
    "group_conv2d_nchw": {"kernel": Of((4, 2, 3, 3)), "groups": 2},
    "winograd_transform_matrices": {"tile_size": 4, "kernel_size": 3},
    "group_conv2d_nhwc": {
        "data": Of((1, 8, 8, 4)), "kernel": Of((3, 3, 2, 4)), "groups": 2,
    },
    "layer_norm rms_norm": dict.fromkeys(("gamma", "beta", "weight"), Of((8,))),
    "layout_transform": {"src_layout": "NCHW", "dst_layout": "NCHW4c"},
    "logical_and logical_not logical_or logical_xor where": dict.fromkeys(
        _OPERANDS, Of((4,), "bool")
    ),
    "matmul": dict.fromkeys(("a", "b", "tensor_a", "tensor_b"), Of((4, 4))),
    "nll_loss": {"predictions": Of((2, 4)), "targets": Of((2,), "int32")},
    "prelu": {"alpha": Of((4,))},
    "resize": {"axes": (2, 3), "sizes": (4, 4)},
    "reverse_sequence": {"seq_lengths": Of((1,), "int32"), "seq_axis": 1},
    "roi_align": {
        "data": Of((1, 2, 4, 4)), "rois": Of((3, 5)), "pooled_size": 2, "spatial_scale": 1.0,
        "sample_ratio": 2,
    },
    "scale_shift_nchw": _SCALE_SHIFT,
    "scale_shift_nhwc": {"data": Of((1, 4, 4, 4)), **_SCALE_SHIFT},
    "scatter scatter_elements": {"updates": Of()},
    "split": {"axis": 1},
    "squeeze": {"axis": 0},
    "strided_set": {"v": Of((1, 2, 3, 4)), "end": (1, 2, 3, 4)},
    "upsampling": {"scale_h": 2, "scale_w": 2},
}  # fmt: skip
_QUANTISED: dict[str, Any] = {
    f"{of}{what}": (lambda: relay.const(1.0)) if what == "scale" else (lambda: relay.const(0))
    for of in ("lhs_", "rhs_", "input_", "output_", "kernel_", "x_", "y_")
    for what in ("scale", "zero_point")
}
# What one function takes, by its whole name.
_SPECIAL: dict[str, dict[str, Any]] = {
    **TENSOR_EXPRESSIONS,
    **GRAPHS,
    "te.clz te.popcount": {"x": Of(dtype="int32")},
    "topi.nn.sparse_dense": {
        "dense_data": Of((3, 8)), "sparse_data": Of((5,)), "sparse_indices": Of((5,), "int32"),
        "sparse_indptr": Of((4,), "int32"),
    },
    "topi.testing.random_bsr_matrix": {"M": 4, "N": 4, "BS_R": 2, "BS_C": 2, "density": 0.5},
    "topi.Resizing": {"size": 4, "scale": Fraction(1, 2)},
    "topi.adv_index": {"data": Of(), "indices": [Of((3,), "int32")]},
    "topi.arange": {"start": 4.0},
    "topi.einsum": {"subscripts": "ij,jk->ik", "operand": [Of((2, 3)), Of((3, 4))]},
    "topi.expand_like": {"a": Of((4,)), "shape_like": Of((4, 3)), "axis": 1},
    "topi.nn.batch_to_space_nd": {"crop_begin_list": [0, 0], "crop_end_list": [0, 0]},
    "topi.nn.conv1d_nwc": {"data": Of((1, 8, 4)), "kernel": Of((3, 4, 4))},
    "topi.nn.conv3d_ndhwc": {"data": Of((1, 8, 8, 8, 4)), "kernel": Of((3, 3, 3, 4, 4))},
    "topi.nn.group_norm": {"channel_axis": 1, "axes": [2, 3]},
    "topi.nn.instance_norm": {"axis": [2, 3]},
    "topi.nn.prelu": {"x": Of(), "slope": Of((4,))},
    "topi.tensordot": {"a": Of((2, 3)), "b": Of((3, 4)), "axes": 1},
    "topi.image.affine_grid": {"data": Of((1, 2, 3)), "target_shape": (4, 4)},
    "topi.image.dilation2d_nchw": {
        "input": Of((1, 2, 6, 6)), "filter": Of((2, 3, 3)), "dilations": 1,
    },
    "topi.image.dilation2d_nhwc": {
        "input": Of((1, 6, 6, 2)), "filter": Of((3, 3, 2)), "dilations": 1,
    },
    "topi.nn.adaptive_pool1d": {"data": Of((1, 2, 8)), "output_size": 2},
    "topi.nn.adaptive_pool3d": {"data": Of((1, 2, 4, 4, 4)), "output_size": 2},
    "topi.nn.correlation_nchw": {
        "data1": Of((1, 2, 6, 6)), "data2": Of((1, 2, 6, 6)), "kernel_size": 1,
        "max_displacement": 1, "stride1": 1, "stride2": 1, "padding": 1, "is_multiply": True,
    },
    "topi.nn.deformable_conv2d_nchw": {
        "data": Of((1, 2, 4, 4)), "offset": Of((1, 18, 2, 2)), "kernel": Of((3, 2, 3, 3)),
        "padding": 0, "dilation": 1, "deformable_groups": 1, "groups": 1,
    },
    "topi.nn.depthwise_conv2d_backward_input_nhwc": {
        "Filter": Of((3, 3, 2, 1)), "Out_grad": Of((1, 4, 4, 2)), "oshape": [1, 4, 4, 2],
        "ishape": [1, 6, 6, 2], "padding": 0,
    },
    "topi.nn.depthwise_conv2d_backward_weight_nhwc": {
        "Input": Of((1, 6, 6, 2)), "Out_grad": Of((1, 4, 4, 2)), "oshape": [1, 4, 4, 2],
        "fshape": [3, 3, 2, 1], "padding": 0,
    },
    "topi.nn.group_conv1d_transpose_ncw": {
        "data": Of((1, 4, 8)), "kernel": Of((4, 2, 3)), "groups": 2,
    },
    "topi.nn.group_conv2d_transpose_nchw": {"kernel": Of((4, 2, 3, 3)), "groups": 2},
    "topi.nn.lstm": {
        "Xs": Of((2, 1, 3)), "Wi": Of((8, 3)), "Wh": Of((8, 2)), "weight_layout": "IFGO",
    },
    "topi.nn.pool_grad": {
        "grads": Of((1, 2, 4, 4)), "data": Of((1, 2, 8, 8)), "kernel": 2, "stride": 2,
        "padding": 0,
    },
    "topi.nn.space_to_batch_nd": {"pad_before": [0, 0], "pad_after": [0, 0]},
    "topi.resize": {"how": lambda: [topi.Resizing(4, Fraction(1, 2))] * 2},
    "relay.Call": {"op": lambda: network()["main"], "args": lambda: [vector(1, 4), vector(3, 4)]},
    "relay.Constant": {"data": lambda: np.zeros(3, "float32")},
    "relay.Function": {"params": lambda: [], "body": lambda: relay.const(1.0)},
    "relay.IRModule": {"functions": lambda: {"main": network()["main"]}},
    "relay.Tuple": {"fields": lambda: [vector()]},
    "relay.TupleGetItem": {"tuple_value": lambda: relay.Tuple([vector()])},
    "relay.TupleType": {"fields": lambda: (relay.TensorType((2, 3)),)},
    "relay.Var relay.var": {"name_hint": "x"},
    "relay.analysis.post_order": {"root": lambda: network()["main"]},
    "relay.analysis.count_layers": {"valid_ops": ["nn.dense"]},
    "relay.analysis.extract_intermdeiate_expr": {"expr_id": 0},
    "relay.analysis.post_order_visit": {"fvisit": lambda: lambda node: None},
    "relay.analysis.structural_equal relay.analysis.assert_structural_equal": dict.fromkeys(
        ("lhs", "rhs"), lambda: network()["main"]
    ),
    "relay.analysis.structural_hash": {"node": lambda: network()["main"]},
    "relay.backend.Executor": {"name": "graph"},
    "relay.backend.Runtime": {"name": "cpp"},
    "relay.bind": {"expr": lambda: network()["main"], "binds": dict},
    "relay.bind_params relay.build_module.optimize": {"params": dict},
    "relay.build_module.bind_params_by_name": {
        "func": lambda: network()["main"], "params": dict,
    },
    "relay.build_module.build relay.vm.compile relay.vm.Executable": {"target": "llvm"},
    "relay.create_executor relay.build_module.create_executor": {"kind": "debug"},
    "relay.FuncType": {
        "arg_types": lambda: (relay.TensorType((2, 3)),), "ret_type": lambda: relay.TensorType(()),
    },
    "relay.transform.ChangeBatch": {"data": dict},
    "relay.random.normal relay.random.uniform relay.random.threefry_generate "
    "relay.random.threefry_split": {"key": lambda: relay.random.threefry_key(0)},
    "relay.GlobalVar": {"name_hint": "main"},
    "relay.Let": {
        "variable": lambda: vector(), "value": lambda: vector(), "body": lambda: vector(),
    },
    "relay.loops.while_loop": {"cond": lambda: bool, "loop_vars": [], "loop_bodies": lambda: list},
    "relay.load_param_dict": {"param_bytes": lambda: relay.save_param_dict({})},
    "relay.save_param_dict": {"params": dict},
    "relay.qnn.op.add relay.qnn.op.subtract relay.qnn.op.mul": {
        **dict.fromkeys(("lhs", "rhs"), Of(dtype="int8")), **_QUANTISED,
    },
    " ".join(
        f"relay.qnn.op.{name}"
        for name in (
            "abs", "erf", "exp", "hardswish", "log", "rsqrt", "sigmoid", "softmax", "sqrt", "tanh"
        )
    ): {"x": Of(dtype="int8"), "scale": lambda: relay.const(1.0), **_QUANTISED},
    "relay.qnn.op.batch_matmul": {**dict.fromkeys("xy", Of((2, 4, 4), "int8")), **_QUANTISED},
    "relay.qnn.op.concatenate": {
        "data": [Of(dtype="int8")], "input_scales": lambda: [relay.const(1.0)],
        "input_zero_points": lambda: [relay.const(0)], **_QUANTISED,
    },
    "relay.qnn.op.conv2d": {
        "data": Of(dtype="int8"), "kernel": Of((4, 4, 3, 3), "int8"), "kernel_size": (3, 3),
        "channels": 4, **_QUANTISED,
    },
    "relay.qnn.op.conv2d_transpose": {
        "data": Of(dtype="int8"), "weight": Of((4, 4, 3, 3), "int8"), **_QUANTISED,
    },
    "relay.qnn.op.leaky_relu": {"x": Of(dtype="int8"), "alpha": 0.5, **_QUANTISED},
    "relay.qnn.op.avg_pool2d": {"data": Of(dtype="int8"), "pool_size": (2, 2), **_QUANTISED},
    "relay.qnn.op.register_qnn_legalize": {
        "op_name": "qnn.abs", "legal_op": lambda: lambda attrs, inputs, types: None,
    },
    "relay.qnn.op.simulated_quantize relay.qnn.op.simulated_dequantize": {
        "data": Of(dtype="float32"), **_QUANTISED,
    },
    "relay.qnn.op.dense": {
        "data": Of((2, 4), "int8"), "weight": Of((3, 4), "int8"), **_QUANTISED,
    },
    "relay.qnn.op.requantize": {"data": Of(dtype="int32"), **_QUANTISED},
    "load_param_dict_from_file": {"path": "weights.params"},
    "save_param_dict_to_file": {"params": dict, "path": "saved.params"},
    "VirtualMachine": {"exe": library, "device": tilewright.cpu},
    "relay.evaluate": {"graph": lambda: relay.const(1.0)},
    "relay.frontend.from_onnx": {"model": "model.onnx"},
    "relay.frontend.from_exported_program": {"exported_program": object},
    "relay.frontend.from_pytorch": {"script_module": object, "input_infos": [("x", (1, 4))]},
    "load_module relay.load": {"path": "library.so"},
    "relay.optimize": {"params": dict},
    "autotvm.graph_tuner.DPTuner autotvm.graph_tuner.PBQPTuner": {
        "graph": lambda: relay.IRModule.from_expr(
            relay.nn.conv2d(relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(4, 4, 3, 3)))
        ),
        "input_shapes": lambda: {"x": (1, 4, 8, 8)}, "records": "log.json",
        "target_ops": lambda: ["nn.conv2d"], "target": "llvm", "verbose": False,
        "log_file": None,
    },
    "relay.transform.FunctionPass relay.transform.ModulePass": {
        "info": lambda: relay.transform.PassInfo("own"), "change": lambda: lambda mod: mod,
    },
    "relay.transform.ConvertLayout": {"desired_layouts": lambda: {"nn.conv2d": ["NHWC"]}},
    "relay.TupleWrapper": {
        "tuple_value": lambda: relay.Tuple([relay.const(1.0), relay.const(2.0)]), "size": 2,
    },
    "relay.with_sizes": {"sizes": dict},
    "nd.array": {"source": lambda: np.zeros((2, 3))},
    "nd.from_dlpack": {"tensor": lambda: np.zeros((2, 3))},
    "autotvm.ApplyHistoryBest autotvm.apply_history_best auto_scheduler.ApplyHistoryBest": {
        "records": "log.json"
    },
    "autotvm.task.clear_fallback_cache": {"target": "llvm", "workload": lambda: ("two", 1)},
    "autotvm.ApplyConfig autotvm.task.ApplyConfig": {"config": lambda: task().config_space.get(0)},
    "autotvm.ApplyFixedConfig autotvm.task.ApplyFixedConfig autotvm.apply_fixed_config": {
        "tasks": lambda: [task()], "schedule_names": "dense.mali"},
    "autotvm.ApplyGraphBest autotvm.apply_graph_best autotvm.task.ApplyGraphBest": {
        "records": "log.json"
    },
    "autotvm.callback.log_to_file": {"file_out": "out.json"},
    "autotvm.callback.log_to_database": {"db": Database},
    "autotvm.register_topi_compute autotvm.register_topi_schedule "
    "autotvm.task.register_topi_compute autotvm.task.register_topi_schedule": {
        "task_name": "drills.doors.two", "func": lambda: print,
    },
    "autotvm.task.get_workload": {"outs": lambda: [matmul()[-1]], "task_name": "drills.doors.two"},
    "autotvm.record.encode autotvm.record.measure_str_key": {"inp": trial, "result": measured},
    "autotvm.feature.get_itervar_feature_flatten autotvm.feature.get_buffer_curve_sample_flatten "
    "autotvm.feature.get_itervar_feature": {"sch": lambda: te.create_schedule(matmul()[-1].op)},
    "autotvm.feature.flatten_itervar_feature autotvm.feature.get_flatten_name": {
        "fea": lambda: autotvm.feature.get_itervar_feature(te.create_schedule(matmul()[-1].op))
    },
    "autotvm.record.decode": {"row": row},
    "autotvm.record.load_from_buffer": {"file": lambda: io.StringIO(row())},
    "autotvm.record.split_workload": {"in_file": "log.json"},
    "autotvm.task.extract_from_multiple_program": {"mods": lambda: [network()], "target": "llvm"},
    "autotvm.record.pick_best": {"source": "log.json", "target": "best.json"},
    "autotvm.task.register": {"name": "drills.other"},  # a wrong function may take a name over
    "autotvm.template autotvm.task.template": {"task_name": "drills.other"},
    "autotvm.task.create": {"args": (4, 8, 6)},
    "autotvm.RPCRunner auto_scheduler.RPCRunner": {"key": "k", "host": "127.0.0.1", "port": 1},
    "autotvm.task.extract_from_program auto_scheduler.extract_tasks relay.build": {
        "target": "llvm"
    },
    "auto_scheduler.ComputeDAG": {"compute": matmul},
    "auto_scheduler.EmptyPolicy auto_scheduler.SketchPolicy": {"task": search_task},
    "auto_scheduler.PreloadCustomSketchRule": dict.fromkeys(
        ("meet_condition_func", "apply_func"), lambda: len
    ),
    "auto_scheduler.MeasureInput": {
        "task": search_task, "state": lambda: search_task().compute_dag.init_state,
    },
    "auto_scheduler.MeasureResult": {
        "costs": (1e-3,), "error_no": 0, "error_msg": "", "all_cost": 0.2, "timestamp": 1.0,
    },
    "auto_scheduler.create_task": {"func": lambda: workload, "args": (4, 8, 6), "target": "llvm"},
    "auto_scheduler.auto_schedule": {
        "task": search_task,
        "tuning_options": lambda: auto_scheduler.TuningOptions(
            1, verbose=0
        ),
    },
    "auto_scheduler.SearchTask": {"func": lambda: workload, "args": (4, 8, 6), "target": "llvm"},
    "auto_scheduler.TuningOptions": {"num_measure_trials": 2},
    "auto_scheduler.distill_record_file": {"in_file": "log.json", "out_file": "best.json"},
    "auto_scheduler.make_workload_key": {"func": lambda: workload},
    "auto_scheduler.register_workload": {
        "func_name": "drills.other", "f": lambda: workload, "override": True,
    },
    "auto_scheduler.register_workload_tensors": {"workload_key": _KEY, "override": True},
    "auto_scheduler.get_task_input_buffer auto_scheduler.register_task_input_buffer": {
        "workload_key": "default", "input_name": "drills.doors", "overwrite": True,
        "input_data": lambda: np.zeros(3, "float32"),
    },
    "auto_scheduler.prepare_input_map": {"args": matmul},
    "auto_scheduler.register_task_input_check_func": {
        "func_name": "drills.doors", "f": lambda: lambda args: {}, "override": True,
    },
    "auto_scheduler.save_records": {"inputs": list, "results": list},
    "auto_scheduler.workload_key_to_tensors": {"workload_key": _KEY},
    "lower build": {"schedule": lambda: te.create_schedule(matmul()[-1].op), "target": "llvm"},
    "Target target.create": {"text": "llvm -num-cores=2"}, "device nd.device": {"kind": "cpu"},
    "te.create_schedule": {"ops": lambda: matmul()[-1].op},
    "PassContext": {"opt_level": 3},
    "IRModule.from_expr": {"expr": lambda: network()["main"]},
    "graph_executor.create debug_executor.create": {
        "graph_json_str": lambda: library().get_graph_json(), "libmod": library,
        "device": tilewright.cpu,
    },
    "GraphModule": {"module": lambda: library()["default"](tilewright.cpu())},
    "tvmc.load tvmc.frontends.guess_frontend": {"path": "model.onnx", "kwargs": dict},
    "tvmc.compile": {"tvmc_model": tvmc_model, "package_path": "made.tar"},
    "tvmc.run": {
        "tvmc_package": lambda: tvmc.TVMCPackage("library.so"), "repeat": 1, "number": 1,
    },
    "tvmc.TVMCModel": {"mod": network},
    "tvmc.TVMCPackage": {"package_path": "library.so"},
    "tvmc.TVMCResult": {"outputs": dict},
    "tvmc.frontends.get_frontend_by_name": {"name": "onnx"},
    "tvmc.autotuner.autotvm_get_tuning_tasks tvmc.autotuner.autoscheduler_get_tuning_tasks": {
        "params": dict,
    },
    "tvmc.common.parse_shape_string": {"inputs_string": "x:[1,4]"},
    "tvmc.result_utils.get_top_results": {
        "result": lambda: tvmc.TVMCResult({"output_0": np.ones((1, 4))}), "max_results": 2,
    },
    "tvmc.runner.generate_tensor_data": {"fill_mode": "ones"},
    "tvmc.transform.convert_graph_layout": {"desired_layout": "NHWC"},
}  # fmt: skip
# What a parameter takes that no table names.
_KINDS: dict[str, Any] = {
    "Tensor": Of(), "Expr": Of(), "Value": Of(), "int": 1, "float": 0.5, "bool": True,
    "int | Sequence[int]": 1, "Sequence[int]": (1,), "Sequence[Expr]": [Of(), Of()],
}  # fmt: skip
_RANKS = {"1d": 1, "3d": 3}


def good(name: str, call: Callable[..., Any]) -> Arguments:
    """Right arguments for all parameters without a default, and those with one that have to differ.

    Raises LookupError where neither the tables nor the annotation know one.
    """
    room, known = name.partition(".")[0], _known(name)
    found: dict[str, Any] = {}
    for p in inspect.signature(call).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name.startswith("_"):
            continue  # passed on, and not looked at
        if p.name in known:
            found[p.name] = _made(known[p.name], room)
        elif p.default is not p.empty:
            found[p.name] = p.default
        else:
            found[p.name] = _made(_usual(name, p), room)
    return found


def _known(name: str) -> dict[str, Any]:
    """What the tables say of this function."""
    room, _, operator_name = name.partition(".")
    found: dict[str, Any] = {}
    if room in ("topi", "relay"):
        found |= _rows(_OPERATORS, operator_name.rpartition(".")[2])
    return found | _rows(_SPECIAL, name)


def _rows(table: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for names, row in table.items():
        if name in names.split():
            found |= row
    return found


def _usual(name: str, p: inspect.Parameter) -> Any:
    """For a parameter without a default, of which the function's own rows say nothing."""
    room, rank = name.partition(".")[0], next((n for d, n in _RANKS.items() if d in name), 2)
    if room in ("topi", "relay"):
        if p.annotation in ("Tensor", "Expr") and p.name == "data":
            return Of((1, 4) + (8,) * rank)
        if p.annotation in ("Tensor", "Expr") and p.name in ("kernel", "weight"):
            return Of((4, 4) + (3,) * rank)
        if p.name in _PARAMETERS:
            return _PARAMETERS[p.name]
    for table, key in ((_SHARED, p.name), (_KINDS, p.annotation)):
        if key in table:
            return table[key]
    raise LookupError(f"{name}: nothing is known that {p.name} takes")


def _made(value: Any, room: str) -> Any:
    """A fresh object where a function or a class makes it."""
    if isinstance(value, list):
        return [_made(v, room) for v in value]
    if isinstance(value, Of):
        return value.of(room)
    return value() if callable(value) else value
