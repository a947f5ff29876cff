"""Independent numpy references of the operators, under TVM's names.

In: arrays of any element type.  Out: arrays, computed in float64 (integers in int64) and returned
in the input's type, or the one that `topi` gives: int32 for products of narrower integers.
Read next: `conv2d.py`.
"""

from tilewright.topi.references.boxes import (
    multibox_prior_python,
    reorg_python,
    roi_pool_nchw_python,
)
from tilewright.topi.references.crops import (
    correlation_nchw_python,
    crop_and_resize_python,
    dilation2d_nchw_python,
)
from tilewright.topi.references.sampling import grid_sample_python
from tilewright_tvm.topi.testing.common import (
    compare_numpy_tvm,
    dispatch,
    get_broadcast_schedule,
    get_conv2d_nchw_implement,
    get_elemwise_schedule,
    get_injective_schedule,
    get_reduce_schedule,
)
from tilewright_tvm.topi.testing.conv2d import (
    conv1d_ncw_python,
    conv2d_backward_weight_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv2d_transpose_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    conv_python,
    conv_transpose_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nchwc,
    depthwise_conv2d_python_nhwc,
    dilate_python,
    group_conv1d_ncw_python,
)
from tilewright_tvm.topi.testing.crops import (
    affine_grid_python,
    deformable_conv2d_nchw_python,
    deformable_conv2d_nhwc_python,
    roi_align_nchw_python,
    roi_align_nhwc_python,
)
from tilewright_tvm.topi.testing.dense import batch_matmul, dense, matmul
from tilewright_tvm.topi.testing.indexing import (
    cumulative_python,
    gather_nd_python,
    gather_python,
    scatter_elements_python,
    scatter_nd_python,
    topk_python,
)
from tilewright_tvm.topi.testing.normalization import (
    batch_norm,
    group_norm_python,
    instance_norm_python,
    l2_normalize_python,
    layer_norm_python,
    log_softmax_python,
    lrn_python,
    rms_norm_python,
    scale_shift_nchw_python,
    scale_shift_nhwc_python,
    softmax_python,
    standardize_python,
)
from tilewright_tvm.topi.testing.pooling import (
    adaptive_pool,
    max_pool_indices_python,
    pool2d_python,
    pool_grad_nchw,
    poolnd_python,
    upsampling_python,
)
from tilewright_tvm.topi.testing.sampling import (
    resize1d_python,
    resize2d_python,
    resize3d_python,
    roi_align_python,
)
from tilewright_tvm.topi.testing.sequence import lstm_python, nll_loss, searchsorted_ref
from tilewright_tvm.topi.testing.sparse import random_bsr_matrix, sparse_dense_python
from tilewright_tvm.topi.testing.transform import (
    batch_to_space_nd_python,
    depth_to_space_python,
    layout_transform_python,
    matrix_set_diag,
    one_hot,
    sequence_mask,
    space_to_batch_nd_python,
    space_to_depth_python,
    strided_set_python,
    strided_slice_python,
)

conv1d_transpose_ncw_python = conv2d_transpose_nchw_python = conv_transpose_python
conv3d_transpose_ncdhw_python = conv_transpose_python
grid_sample_nchw_python = grid_sample_python

__all__ = [
    "adaptive_pool",
    "affine_grid_python",
    "batch_matmul",
    "batch_norm",
    "batch_to_space_nd_python",
    "compare_numpy_tvm",
    "conv1d_ncw_python",
    "conv1d_transpose_ncw_python",
    "conv2d_backward_weight_python",
    "conv2d_hwcn_python",
    "conv2d_nchw_python",
    "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python",
    "conv2d_transpose_nhwc_python",
    "conv3d_ncdhw_python",
    "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python",
    "conv_python",
    "conv_transpose_python",
    "correlation_nchw_python",
    "crop_and_resize_python",
    "cumulative_python",
    "deformable_conv2d_nchw_python",
    "deformable_conv2d_nhwc_python",
    "dense",
    "depth_to_space_python",
    "depthwise_conv2d_python_nchw",
    "depthwise_conv2d_python_nchwc",
    "depthwise_conv2d_python_nhwc",
    "dilate_python",
    "dilation2d_nchw_python",
    "dispatch",
    "gather_nd_python",
    "gather_python",
    "get_broadcast_schedule",
    "get_conv2d_nchw_implement",
    "get_elemwise_schedule",
    "get_injective_schedule",
    "get_reduce_schedule",
    "grid_sample_nchw_python",
    "grid_sample_python",
    "group_conv1d_ncw_python",
    "group_norm_python",
    "instance_norm_python",
    "l2_normalize_python",
    "layer_norm_python",
    "layout_transform_python",
    "log_softmax_python",
    "lrn_python",
    "lstm_python",
    "matmul",
    "matrix_set_diag",
    "max_pool_indices_python",
    "multibox_prior_python",
    "nll_loss",
    "one_hot",
    "pool2d_python",
    "pool_grad_nchw",
    "poolnd_python",
    "random_bsr_matrix",
    "reorg_python",
    "resize1d_python",
    "resize2d_python",
    "resize3d_python",
    "rms_norm_python",
    "roi_align_nchw_python",
    "roi_align_nhwc_python",
    "roi_align_python",
    "roi_pool_nchw_python",
    "scale_shift_nchw_python",
    "scale_shift_nhwc_python",
    "scatter_elements_python",
    "scatter_nd_python",
    "searchsorted_ref",
    "sequence_mask",
    "softmax_python",
    "space_to_batch_nd_python",
    "space_to_depth_python",
    "sparse_dense_python",
    "standardize_python",
    "strided_set_python",
    "strided_slice_python",
    "topk_python",
    "upsampling_python",
]  # fmt: skip
