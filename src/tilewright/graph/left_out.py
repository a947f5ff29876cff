"""Which attributes the text of a call leaves out.

In: a row's name and attributes.  Out: attributes with what a text without them means.  A text names
what differs from that.  Texts are keys of logs and files, so nothing here may change.
Read next: `printer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Attributes that are never left out, of several operators each: row and function of users have
# different defaults, as a pool's window, or the function has none.
_SHOWN = (
    ("a_min a_max",
     "clip"),
    ("dtype",
     "cast"),
    ("newshape",
     "reshape"),
    ("axis",
     "expand_dims nn.standardize argmax argmin take gather"),
    ("axes",
     "transpose"),
    ("shape",
     "broadcast_to"),
    ("pad_width",
     "nn.pad"),
    ("pad_width mode",
     "nn.mirror_pad"),
    ("begin strides",
     "strided_slice strided_set"),
    ("strides padding dilation",
     "nn.conv1d"),
    ("padding",
     "nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d "
     "nn.conv3d_transpose"),
    ("pool_size padding",
     "nn.max_pool1d nn.avg_pool1d nn.max_pool2d nn.max_pool2d_grad nn.avg_pool2d "
     "nn.max_pool3d nn.avg_pool3d"),
    ("output_size",
     "nn.adaptive_avg_pool1d nn.adaptive_max_pool1d nn.adaptive_avg_pool2d "
     "nn.adaptive_max_pool2d nn.adaptive_avg_pool3d nn.adaptive_max_pool3d"),
    ("axis exclusive",
     "cumsum cumprod"),
    ("axes sizes",
     "image.resize"),
    ("pooled_size spatial_scale sample_ratio",
     "vision.roi_align"),
    ("crop_size layout",
     "image.crop_and_resize"),
    ("padding out_dtype",
     "image.dilation2d"),
    ("kernel_size max_displacement stride1 stride2 padding is_multiply",
     "nn.correlation"),
    ("pooled_size spatial_scale",
     "vision.roi_pool"),
    ("stride",
     "vision.yolo_reorg"),
)  # fmt: skip
_ALWAYS = {name: shown.split() for shown, names in _SHOWN for name in names.split()}
# What text that leaves an attribute out means, where TVM's functions have another default.
LEFT_OUT: Mapping[str, Mapping[str, Any]] = {
    "nn.batch_matmul": {"transpose_a": False, "transpose_b": False},
    "nn.matmul": {"transpose_a": False, "transpose_b": False},
    "nn.leaky_relu": {"alpha": 0.25},
}


def left_out(operator: str, attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the attributes of an operator as text means them that leaves them out.

    attrs: of its row
    """
    shown = _ALWAYS.get(operator, ())
    usual = {k: v for k, v in attrs.items() if k not in shown}
    return {**usual, **LEFT_OUT.get(operator, {})}
