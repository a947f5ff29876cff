"""Names of TVM's `topi.cuda`: see `by_target.py`."""

from typing import Any

from tilewright.topi import by_target

__path__: list[str] = []  # TVM's is a folder: `conv3d_winograd` is found by base/elsewhere.py


def __getattr__(name: str) -> Any:
    return by_target.find("cuda", name)
