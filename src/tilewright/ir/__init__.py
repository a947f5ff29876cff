"""The program representation: expressions, statements, affine analysis, printer, interpreter.

Everything before text lives in these nodes.  Read in this order: expr, stmt, affine, interpreter.
"""

from typing import Any

from tilewright.base import forward
from tilewright.ir import printer as printer  # which writes what the others hold


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
