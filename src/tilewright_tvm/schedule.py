"""TVM 0.6's `schedule`: names that `te.schedule` has now."""

from typing import Any

from tilewright_tvm.elsewhere import find


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
