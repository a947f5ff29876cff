"""`python as_tvm.py SCRIPT`: runs a script for TVM in a process where `tvm` and `topi` are this
package and its `topi`: modules have another name, and nothing else is done."""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

REAL = {"tvm": "tilewright", "topi": "tilewright.topi"}


class Same(Loader):
    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(self.real)

    def exec_module(self, module: ModuleType) -> None:
        pass


class Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, dot, rest = fullname.partition(".")
        if root not in REAL:
            return None
        return ModuleSpec(fullname, Same(REAL[root] + dot + rest), is_package=True)


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    runpy.run_path(sys.argv[1], run_name="__main__")
