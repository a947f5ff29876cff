"""C text as a module of LLVM, by the clang that is installed.  Read next: `te/tensor_intrin.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.doors import door
from tilewright.base.errors import CompileError
from tilewright.base.output import FileKind, beginning, write

_FILES = "input0"


def find_clang(required: bool = True) -> list[str]:
    """List clangs in the order in which they are tried: that of CLANG first.

    Raises CompileError where one is required and there is none.
    """
    names = (os.environ.get("CLANG", ""), "clang", *(f"clang-{n}" for n in range(21, 13, -1)))
    found = [path for name in names if name and (path := shutil.which(name))]
    if required and not found:
        raise CompileError(
            "contrib.clang", "there is no clang", "Install it, or let CLANG name it; a text of LLVM"
            " from elsewhere serves as well.",
        )  # fmt: skip
    return found


@door(CompileError, "contrib.clang.create_llvm")
def create_llvm(
    inputs: str | Sequence[str],
    output: str | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """Compile C++ to the text of a module of LLVM, for `s[C].pragma(axis, "import_llvm", text)`.

    inputs: texts, or names of files; output: a file that also gets it; options: of clang
    Raises CompileError with what clang said.
    """
    listed = [inputs] if isinstance(inputs, str) else list(inputs)
    command = [cc or find_clang()[0], "-O3", "-emit-llvm", "-S", *(options or ())]
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for k, text in enumerate(listed):
            if "\n" not in text and Path(text).is_file():
                files.append(text)
                continue
            path = Path(folder) / f"{_FILES}{k}.cc"
            path.write_text(text)
            files.append(str(path))
        to = Path(folder) / "output.ll"
        run = subprocess.run(
            [*command, "-o", str(to), *files], capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise CompileError("contrib.clang.create_llvm", run.stderr.strip()[-2000:], "Mend it.")
        made = to.read_text()
    if output is not None:
        kind = FileKind("a module of LLVM", beginning(b"; ModuleID"))
        write(output, made.encode(), kind, f"create_llvm({output!r})", CompileError)
    return made
