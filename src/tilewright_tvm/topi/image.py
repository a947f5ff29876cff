"""Operators of images under TVM's names: `topi.image.resize2d`, `topi.image.grid_sample`.

In: `te` tensors.  Out: `te` tensors.  Read next: `topi/resize.py`, `topi/sampling.py`,
`topi/crops.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi.sampling import grid_sample
from tilewright_tvm.topi import of_networks as later
from tilewright_tvm.topi.crops import affine_grid, crop_and_resize
from tilewright_tvm.topi.dilation import dilation2d_nchw, dilation2d_nhwc

__all__ = ["affine_grid", "crop_and_resize", "dilation2d_nchw", "dilation2d_nhwc", "grid_sample"]
open_doors(globals(), __all__, ExpressionError)
__all__ += later.NAMES["topi.image"]

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    return later.find("topi.image", name)
