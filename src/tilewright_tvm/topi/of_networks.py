"""Names of `topi` whose computation is made of a network's operators, and so lives in a later room.

In: a folder of `topi` and a name.  Out: the function, found when it is asked for.
Read next: `relay/on_tensors.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright_tvm import elsewhere

NAMES: dict[str, tuple[str, ...]] = {
    "topi": (
        "adv_index", "argsort", "einsum", "fixed_point_multiply", "flip", "invert_permutation",
        "matrix_set_diag", "meshgrid", "ndarray_size", "one_hot", "repeat", "reverse_sequence",
        "roll", "searchsorted", "sequence_mask", "shape", "sliding_window", "sparse_to_dense",
        "stft", "tile", "topk", "trilu", "unravel_index",
    ),
    "topi.nn": (
        "batch_to_space_nd", "depth_to_space", "dilate", "fifo_buffer", "group_norm",
        "instance_norm", "l2_normalize", "layer_norm", "lrn", "nll_loss", "prelu", "rms_norm",
        "space_to_batch_nd", "space_to_depth", "upsampling", "upsampling3d",
    ),
    "topi.image": ("resize1d", "resize2d", "resize3d"),
    "topi.vision": (
        "all_class_non_max_suppression", "get_valid_counts", "multibox_detection",
        "multibox_transform_loc", "non_max_suppression", "proposal",
    ),
}  # fmt: skip
_CONSTANT = "relay.build transforms and packs constant weights itself."
_NNPACK = f"NNPACK is not called: use topi.nn.conv2d_winograd_nchw. {_CONSTANT}"
_BITS = "Bits are not packed: cast to int8 and use topi.nn.conv2d_nhwc or topi.nn.dense."
# Names of TVM that are not there: what to use instead.
_ELSEWHERE = {
    "conv2d_gemm_weight_transform": f"Use topi.nn.conv2d_nhwc. {_CONSTANT}",
    "conv2d_winograd_nnpack_weight_transform": _NNPACK,
    "conv2d_winograd_nnpack_without_weight_transform": _NNPACK,
    "conv3d_winograd_weight_transform": "Use topi.nn.conv3d: no transform is of three axes.",
    "bitpack": _BITS,
    **dict.fromkeys(
        ("simulated_dequantize", "simulated_quantize"),
        "Use the function of this name of relay.qnn.op, in a network.",
    ),
    "sparse_transpose": "Transpose the matrix before it is given, as scipy does.",
    "dynamic_strided_slice": "Give strided_slice its begin and end as numbers.",
    "nms": "Use topi.vision.non_max_suppression.",
}


def find(folder: str, name: str) -> Any:
    """`FOLDER.NAME`.  Raises AttributeError for names that are not there."""
    if name not in NAMES[folder]:
        return elsewhere.find(f"tilewright_tvm.{folder}", name, _ELSEWHERE)
    return import_module("tilewright_tvm.relay.on_tensors").find(folder, name)
