"""`python -m tilewright_tvm script.py ARGS` runs a script for TVM as it is: in that process `tvm`
and `topi` are this package and its `topi`.

What ends a script is told with its own lines: of one that uses what is not here, the last of them
and one sentence."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import tilewright
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.base.terminal import say
from tilewright_tvm import alias, elsewhere

_HERE = str(Path(elsewhere.__file__).parent / "__main__.py")
_HOMES = tuple(str(Path(m.__file__ or "").parent) + os.sep for m in (elsewhere, tilewright))
_USAGE = "Usage: python -m tilewright_tvm SCRIPT.py [ARGS]... (or: -m MODULE [ARGS]...)"


def main() -> None:
    """Run the script or module that `sys.argv` names, with the arguments behind it."""
    given = sys.argv[1:]
    module = given[:1] == ["-m"]
    given = given[module:]
    if not given or given[0] in ("-h", "--help"):
        print(_USAGE)
        sys.exit(0 if given else 2)
    sys.argv[:] = given
    alias.install()
    alias.hand_on()
    try:
        if module:
            runpy.run_module(given[0], run_name="__main__", alter_sys=True)
            return
        if not os.path.exists(given[0]):
            sys.exit(f"python -m tilewright_tvm: there is no file {given[0]!r}. {_USAGE}")
        sys.path[:1] = [os.path.dirname(os.path.abspath(given[0]))]  # as Python does for a script
        runpy.run_path(given[0], run_name="__main__")
    except Exception as error:
        _tell(error)
        sys.exit(1)


def _tell(error: Exception) -> None:
    """Show what ended the script, without the calls that ran it; of a refusal, which says what to
    do, only what the script called.  What it asks of Python's ints, which TVM has IntImm for, says
    what to write."""
    asked = error.name if isinstance(error, AttributeError) and type(error.obj) is int else ""
    if asked in ("value", "dtype"):
        error.add_note(
            f"Extents and attributes are ints here: leave .{asked} out, or write int(n), "
            "which TVM reads, too."
        )
    calls: list[TracebackType] = []
    at = error.__traceback__
    while at is not None:
        calls.append(at)
        at = at.tb_next
    files = [call.tb_frame.f_code.co_filename for call in calls]
    begin = next((k for k, file in enumerate(files) if k and not _runs(file)), len(calls))
    kept = calls[begin:]
    refusal = isinstance(error, TilewrightError) and not isinstance(error, InternalError)
    if refusal or (isinstance(error, ImportError | AttributeError) and _tells_of_names(calls)):
        ours = zip(kept, files[begin:], strict=True)
        kept = [call for call, file in ours if not (_runs(file) or file.startswith(_HOMES))]
        error.__suppress_context__ = refusal or error.__suppress_context__
    if not kept and isinstance(error, ImportError):  # there is no such module, or no file to run
        say(f"python -m tilewright_tvm: {error}. {_USAGE}", stream=sys.stderr)
        return
    for call, following in zip(kept, [*kept[1:], None], strict=False):
        call.tb_next = following
    shown = kept[0] if kept else None
    sys.excepthook(type(error), error.with_traceback(shown), shown)


def _tells_of_names(calls: Sequence[TracebackType]) -> bool:
    """Whether the last of them say of a name that it is not here; else the fault may be ours."""
    for call in reversed(calls):
        code = call.tb_frame.f_code
        if code.co_name == "__getattr__" or code.co_filename == elsewhere.__file__:
            return True
        if not (_runs(code.co_filename) or code.co_filename.startswith(_HOMES)):
            break
    return False


def _runs(file: str) -> bool:
    """Whether it is a part of what runs scripts and imports modules."""
    return file.startswith("<frozen ") or file in (_HERE, runpy.__file__, importlib.__file__)


if __name__ == "__main__":
    main()
