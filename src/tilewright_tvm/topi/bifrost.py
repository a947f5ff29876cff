"""Names of TVM's `topi.bifrost`: see `by_target.py`."""

from typing import Any

from tilewright_tvm.topi import by_target

__path__: list[str] = []  # files of it are imported, too: see by_target.FILES


def __getattr__(name: str) -> Any:
    return by_target.find("bifrost", name)
