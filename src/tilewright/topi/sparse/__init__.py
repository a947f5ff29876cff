"""`topi.sparse`: where TVM's scripts look for matrices with few elements; see `utils`.

Read next: `topi/nn/sparse.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import absent
from tilewright.topi.sparse import utils

__all__ = ["utils"]

_ELSEWHERE = dict.fromkeys(("csrmv", "csrmm", "dense"), "Use topi.nn.sparse_dense.")


def __getattr__(name: str) -> Any:
    raise absent("topi.sparse", name, _ELSEWHERE)
