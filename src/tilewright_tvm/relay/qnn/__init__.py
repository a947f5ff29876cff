"""Quantised tensors: `relay.qnn.op.quantize`, `relay.qnn.op.conv2d`, ...; also `relay.qnn.conv2d`.

Read next: `op.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright_tvm.relay.qnn import op, transform

__all__ = ["op", "transform"]
open_doors(globals(), __all__, ModelError)


def __getattr__(name: str) -> Any:
    """What `op` has, as TVM has it in both places."""
    return getattr(op, name)
