"""The runtime alone as one file, for boards: what loads a compiled network, with its imports.

In: this installation.  Out: a zip that Python imports from and runs, of the same version as the
compiler that fills its libraries; it needs numpy and nothing to install.  With a farm's server in
it a board needs Dask as well, and still no compiler.
Read next: `runtime/board.py`, which runs where the file is run.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilewright.base import output
from tilewright.base.doors import door
from tilewright.base.errors import ModelError

ROOMS = ("base", "targets", "runtime")
# What a device of a farm needs, too; kernels are printed anew there, for threads that take turns.
SERVER_ROOMS = ("ir", "te", "codegen", "driver", "measure", "farm")
# What scripts on a board call by TVM's names.
_TVM = (
    "__init__.py", "absent_names.py", "elsewhere.py", "old_names.py", "plugin.py", "nd.py",
    "error.py", "target.py", "runtime/*.py", "contrib/**/*.py", "exec/*.py",
)  # fmt: skip
_MAIN = "from tilewright.runtime.board import main\n\nmain()\n"
_SHEBANG = b"#!/usr/bin/env python3\n"
_ARCHIVE = output.FileKind("such an archive", output.beginning(_SHEBANG + b"PK"))
_DATE = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal sources make equal files


@door(ModelError)
def write_runtime(path: str | os.PathLike[str], server: bool = False) -> int:
    """Write the file; gives its bytes.

    server: with what `python -m tilewright_tvm.exec.rpc_server` needs; that takes Dask and
        msgspec, too
    Raises ModelError where it cannot be written, or a file of another kind is there.
    """
    rooms = (*ROOMS, *SERVER_ROOMS) if server else ROOMS
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _members(rooms):
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    data = _SHEBANG + made.getvalue()
    output.write(path, data, _ARCHIVE, f"write_runtime({os.fspath(path)!r})", ModelError)
    return len(data)


def _members(rooms: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    package = Path(__file__).parents[1]
    tvm = package.with_name("tilewright_tvm")
    found = [package / "__init__.py"]
    found += sorted(p for room in rooms for p in (package / room).rglob("*.py"))
    found += sorted(p for names in _TVM for p in tvm.glob(names))
    for file in found:
        yield file.relative_to(package.parent).as_posix(), file.read_bytes()
    yield "__main__.py", _MAIN.encode()
