"""`topi.sparse.utils.random_bsr_matrix`, by the name that TVM's scripts import.

Read next: `topi/testing/sparse.py`.
"""

from __future__ import annotations

from tilewright_tvm.topi.testing.sparse import random_bsr_matrix

__all__ = ["random_bsr_matrix"]
