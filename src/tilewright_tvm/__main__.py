"""`python -m tilewright_tvm script.py ARGS` runs a script for TVM as it is: in that process `tvm`
and `topi` are this package and its `topi`."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from tilewright_tvm.elsewhere import Same

_REAL = {"tvm": "tilewright_tvm", "topi": "tilewright_tvm.topi"}
_USAGE = "Usage: python -m tilewright_tvm SCRIPT.py [ARGS]... (or: -m MODULE [ARGS]...)"


class _Tvm(MetaPathFinder):
    """Asked before all others, so that an installed TVM is not taken."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, dot, rest = fullname.partition(".")
        if root not in _REAL:
            return None
        same = Same(_REAL[root] + dot + rest)
        return ModuleSpec(fullname, same, is_package=same.is_package(fullname))


def main() -> None:
    """Run the script or module that `sys.argv` names, with the arguments behind it."""
    given = sys.argv[1:]
    module = given[:1] == ["-m"]
    given = given[module:]
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE)
        sys.exit(0 if given else 2)
    sys.argv[:] = given
    sys.meta_path.insert(0, _Tvm())
    if module:
        runpy.run_module(given[0], run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(given[0]):
        sys.exit(f"python -m tilewright_tvm: there is no file {given[0]!r}. {_USAGE}")
    sys.path[:1] = [os.path.dirname(os.path.abspath(given[0]))]  # as Python does for a script
    _run(given[0])


def _run(script: str) -> None:
    """A script; what it asks of Python's ints, which TVM has IntImm for, says what to write."""
    try:
        runpy.run_path(script, run_name="__main__")
    except AttributeError as error:
        if isinstance(error.obj, int) and error.name in ("value", "dtype"):
            error.add_note(
                f"Extents and attributes are ints here: leave .{error.name} out, or write int(n), "
                "which TVM reads, too."
            )
        raise


if __name__ == "__main__":
    main()
