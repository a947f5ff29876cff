"""`topi.cuda.conv3d_winograd`: which tiles TVM takes for Winograd's convolutions of volumes.

In: data and a kernel, or whatever has their shapes.  Out: a tile size, for
`relay.nn.contrib_conv3d_winograd_weight_transform`.  Read next: `topi/nn/winograd.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.topi.nn.winograd import tile_size_for


def _infer_tile_size(data: Any, kernel: Any) -> int:
    """That for data [N, C, D, H, W], which the rows decide."""
    return tile_size_for(int(data.shape[3]))


_ELSEWHERE = {
    "winograd_cuda": "Use topi.nn.conv3d: no transform is of three axes.",
}


def __getattr__(name: str) -> Any:
    raise absent("topi.cuda.conv3d_winograd", name, _ELSEWHERE)
