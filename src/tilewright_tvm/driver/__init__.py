"""TVM's `driver`: `build`, `lower`, and `tvmc` by its second name.

Read next: `../tvmc/__init__.py`.
"""

from typing import Any

from tilewright.driver.build import build, lower
from tilewright.driver.compilers import compile_source
from tilewright_tvm.elsewhere import find

__all__ = ["build", "compile_source", "lower"]


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
