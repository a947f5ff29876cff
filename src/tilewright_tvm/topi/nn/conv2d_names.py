"""`topi.nn.conv2d` as a module, which TVM has: functions of both packages.

Read next: `tilewright/topi/nn/conv2d.py`, `workloads.py`.
"""

from tilewright.topi.nn.conv2d import conv2d as conv2d
from tilewright.topi.nn.conv2d import conv2d_nchw as conv2d_nchw
from tilewright.topi.nn.conv2d import conv2d_NCHWc as conv2d_NCHWc
from tilewright.topi.nn.conv2d import conv2d_nhwc as conv2d_nhwc
from tilewright_tvm.topi.nn.by_layout import conv2d_hwcn as conv2d_hwcn
from tilewright_tvm.topi.nn.by_layout import group_conv2d_nchw as group_conv2d_nchw
from tilewright_tvm.topi.nn.by_layout import group_conv2d_nhwc as group_conv2d_nhwc
from tilewright_tvm.topi.nn.workloads import conv2d_workload as _get_workload  # noqa: F401
