"""Names of TVM that are asked of `tilewright`: they live in the package `tilewright_tvm`.

Those of `PACKAGES` go on working here, as attributes and as imports; of any other the error says
where it is.  This is the one place of the compiler that knows of that package.
In: a name.  Out: the module, or an AttributeError or ImportError.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

HOME = "tilewright_tvm"
PACKAGES = {
    "_ffi", "arith", "auto_scheduler", "autotvm", "contrib", "error", "exec", "instrument", "nd",
    "parser", "relay", "rpc", "target", "testing", "tir", "transform", "tvmc",
}  # fmt: skip
_COMMAND = "driver.tvmc"  # which TVM has in its `driver`


def find(room: str, name: str) -> Any:
    """`ROOM.NAME` for the `__getattr__` of a package of ours, which lacks it."""
    if (room == "tilewright" and name in PACKAGES) or f"{room}.{name}" == f"tilewright.{_COMMAND}":
        return import_module(f"{room}.{name}".replace("tilewright", HOME, 1))
    if PathFinder.find_spec(f"{room}.{name}", sys.modules[room].__path__) is not None:
        return import_module(f"{room}.{name}")
    told = _told(room, name)
    raise AttributeError(f"module {room!r} has no attribute {name!r}{told}", name=name)


def _told(room: str, name: str) -> str:
    theirs = room.replace("tilewright", HOME, 1)
    if name.startswith("_"):  # what Python asks of every module
        return ""
    try:
        getattr(import_module(theirs), name)
    except ImportError:
        return ""
    except AttributeError as error:  # what TVM had, and is nowhere here, says what to use
        told = str(error).partition("does not exist here. ")[2]
        return f". {told}" if told else ""
    return f". It is a name of TVM: {theirs}.{name} (import {HOME} as tvm)."


class _Forward:
    """Gives TVM's packages; asked last, too, to say where other modules of TVM are."""

    def __init__(self, last: bool) -> None:
        self.last = last

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, _, rest = fullname.partition(".")
        if root != "tilewright":
            return None
        if rest.partition(".")[0] in PACKAGES or f"{rest}.".startswith(f"{_COMMAND}."):
            same = import_module(f"{HOME}.elsewhere").Same(f"{HOME}.{rest}")
            return ModuleSpec(fullname, same, is_package=same.is_package(fullname))
        if self.last:
            owner, _, name = fullname.rpartition(".")
            told = _told(owner, name)
            # `from OWNER import NAME` says nothing of a module that is not found, but passes on
            # any other error.
            error = ImportError if told else ModuleNotFoundError
            raise error(f"No module named {fullname!r}{told}", name=fullname)
        return None


def install() -> None:
    """From now on; called once, when the package is imported."""
    if not any(isinstance(finder, _Forward) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Forward(last=False))
        sys.meta_path.append(_Forward(last=True))
