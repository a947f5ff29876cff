"""`contrib.cc`: linking by the system's C compiler, for scripts that do it by hand.

In: object files, such as `Module.save("f.o")` writes.  Out: a shared object, which `load_module`
takes where one module is among them.
Read next: `runtime/artifact_file.py`; `driver/linking.py`, which links networks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import CompileError, TargetError, absent
from tilewright.base.output import FileKind, beginning, replacing
from tilewright.runtime import artifact_file

_SHARED = FileKind("a shared object", beginning(artifact_file.OBJECT))

__all__ = ["create_shared", "get_cc"]


def get_cc() -> str | None:
    """The path of the compiler that CXX or CC names, else of c++, g++, clang++, cc or gcc; None
    where there is none."""
    named = (os.environ.get(name) for name in ("CXX", "CC"))
    known = (*(n for n in named if n), "c++", "g++", "clang++", "cc", "gcc")
    return next((found for n in known if (found := shutil.which(n))), None)


@door(CompileError, "contrib.cc.create_shared")
def create_shared(
    output: str | os.PathLike[str],
    objects: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> None:
    """Links object files to one that the system loads.

    options: for the compiler, `cc`; default of that: `get_cc()`
    Raises TargetError where there is none, CompileError for what it says, and where a file of
    another kind is there.
    """
    place = f"contrib.cc.create_shared({os.fspath(output)!r})"
    listed = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
    compiler = cc or get_cc()
    if compiler is None:
        raise TargetError(place, "there is no C compiler", "Install one, or set CC.")
    with replacing(output, _SHARED, place, CompileError) as made:
        command = [compiler, "-shared", "-fPIC", "-o", made, *listed, *(options or ())]
        said = subprocess.run(command, capture_output=True, text=True)
        if said.returncode:
            raise CompileError(place, said.stderr.strip() or "the compiler failed")
        held = [x for p in listed if (x := artifact_file.from_object(Path(p).read_bytes(), place))]
        if len(held) == 1:
            with open(made, "ab") as file:
                file.write(artifact_file.behind_object(held[0])[len(held[0].binary) :])


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = dict.fromkeys(
    ("create_executable", "create_staticlib", "cross_compiler", "build_create_shared_func"),
    "Use func.save or lib.export_library: the target says what to link for.",
)


def __getattr__(name: str) -> Any:
    raise absent("contrib.cc", name, _ELSEWHERE)
