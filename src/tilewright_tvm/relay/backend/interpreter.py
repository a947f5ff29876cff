"""`relay.backend.interpreter`: values of functional networks, where TVM has them.

Read next: `../functional/values.py`, `../executor.py`.
"""

from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.relay.functional.values import ConstructorValue, RefValue

__all__ = ["ConstructorValue", "RefValue"]

_ELSEWHERE = {"Interpreter": 'Use relay.create_executor("debug").'}


def __getattr__(name: str) -> Any:
    raise absent("relay.backend.interpreter", name, _ELSEWHERE)
