"""Operators of detectors under TVM's names: `topi.vision.roi_align_nchw`, `ssd.multibox_prior`.

In: `te` tensors.  Out: `te` tensors.  `ssd` and `rcnn` are this module again, as TVM has some of
the names there.  What keeps some boxes of many has -1 behind them: how many depends on the data.
Read next: `topi/sampling.py`, `topi/boxes.py`.
"""

import sys
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi.boxes import roi_pool_nchw
from tilewright_tvm.topi import of_networks as later
from tilewright_tvm.topi.boxes import multibox_prior, reorg, roi_align_nchw

__all__ = ["multibox_prior", "reorg", "roi_align_nchw", "roi_pool_nchw"]
open_doors(globals(), __all__, ExpressionError)
ssd = rcnn = sys.modules[__name__]

__all__ += later.NAMES["topi.vision"]

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    return later.find("topi.vision", name)
