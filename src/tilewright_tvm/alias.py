"""`tvm` and `topi` as names of this package, in a process that runs a script for TVM; there
PyTorch's backend "tvm" is ours, too.

In: nothing.  Out: a finder of modules in `sys.meta_path`, here and in processes that
`multiprocessing` starts anew.  Read next: `__main__.py`, `elsewhere.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing import spawn
from types import ModuleType
from typing import Any

from tilewright_tvm.elsewhere import Same

_REAL = {"tvm": "tilewright_tvm", "topi": "tilewright_tvm.topi"}
_TORCH = {"torch._dynamo.backends.tvm": "tilewright_tvm.torch_backend"}


class _Tvm(MetaPathFinder):
    """Asked before all others, so that an installed TVM is not taken."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _TORCH:
            return ModuleSpec(fullname, Same(_TORCH[fullname]))
        root, dot, rest = fullname.partition(".")
        if root not in _REAL:
            return None
        same = Same(_REAL[root] + dot + rest)
        return ModuleSpec(fullname, same, is_package=same.is_package(fullname))


def install() -> None:
    """Make `tvm` and `topi` these names in this process; a second time changes nothing."""
    if not any(isinstance(finder, _Tvm) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Tvm())


class _Installs:
    """Installs the names where it is read: a new process reads it before it runs the script."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return install, ()


def hand_on() -> None:
    """Have processes that are spawned, or come from a fork server, install the names, too."""
    given = spawn.get_preparation_data

    def more(name: str) -> dict[str, Any]:
        return {**given(name), "tvm": _Installs()}

    spawn.get_preparation_data = more
