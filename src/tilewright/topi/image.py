"""Operators of images under TVM's names: `topi.image.resize2d`, `topi.image.grid_sample`.

In: `te` tensors.  Out: `te` tensors.  Read next: `resize.py`, `sampling.py`, `crops.py`.
"""

from typing import Any

from tilewright.topi import later
from tilewright.topi.sampling import grid_sample

__all__ = ["grid_sample"]
__all__ += later.NAMES["topi.image"]


def __getattr__(name: str) -> Any:
    return later.find("topi.image", name)
