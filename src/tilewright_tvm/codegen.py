"""What scripts ask of TVM's `codegen`: kernels as text."""

from typing import Any

from tilewright.codegen import generate
from tilewright_tvm.elsewhere import find

__all__ = ["generate"]


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
