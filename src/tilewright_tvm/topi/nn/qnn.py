"""What a value holds that says which integers are meant, under TVM's name `topi.nn.qnn`.

Read next: `relay/qnn/simulated.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# "disable" leaves the data alone.
SQNN_DTYPE_TO_CODE: Mapping[str, int] = MappingProxyType(
    {"disable": 0, "uint8": 1, "int8": 2, "int32": 3}
)

__all__ = ["SQNN_DTYPE_TO_CODE"]
