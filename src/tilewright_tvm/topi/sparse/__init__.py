"""`topi.sparse`: products with matrices of few elements, where TVM's scripts look for them.

Read next: `products.py`, `topi/nn/sparse.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.topi.sparse import utils
from tilewright_tvm.topi.sparse.products import csrmm, csrmv, dense

__all__ = ["csrmm", "csrmv", "dense", "utils"]


def __getattr__(name: str) -> Any:
    raise absent("topi.sparse", name, {})
