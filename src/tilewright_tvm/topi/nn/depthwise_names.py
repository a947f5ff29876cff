"""`topi.nn.depthwise_conv2d` as a module, which TVM has.

Read next: `tilewright/topi/nn/depthwise.py`, `workloads.py`.
"""

from tilewright.topi.nn.depthwise import depthwise_conv2d_nchw as depthwise_conv2d_nchw
from tilewright.topi.nn.depthwise import depthwise_conv2d_NCHWc as depthwise_conv2d_NCHWc
from tilewright.topi.nn.depthwise import depthwise_conv2d_nhwc as depthwise_conv2d_nhwc
from tilewright_tvm.topi.nn.workloads import depthwise_workload as _get_workload  # noqa: F401
