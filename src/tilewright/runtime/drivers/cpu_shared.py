"""CPU kernels in a shared object: made with the system's linker, loaded without LLVM.

In: artefacts whose binaries are object files.  Out: a shared object with their code and the native
code that a process needs to run it; kernels of one, by the system's loader.  Code that several such
files bring runs on one pool of threads.  Read next: `cpu.py`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import once
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime.drivers import Kernel, cpu, cpu_features
from tilewright.runtime.drivers.cpu_llvm import llvm_library

_SECONDS = 120.0


def link(artifacts: Sequence[Artifact], path: str, cc: str = "cc") -> None:
    """Write the shared object.  Raises ModelError without the compiler, or where it refuses."""
    place = f"export_library({os.path.basename(path)!r})"
    arity = max([cpu.COMMON_ARITY, *(len(k.args) for a in artifacts for k in a.source.kernels)])
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        objects = [_native_object(arity), *dict.fromkeys(a.binary for a in artifacts)]
        names = []
        for k, binary in enumerate(objects):
            names.append(os.path.join(folder, f"{k}.o"))
            Path(names[-1]).write_bytes(binary)
        command = [cc, "-shared", "-o", path, *names, "-lm", "-lpthread"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ModelError(
                place, f"a shared object needs a C compiler, and {cc!r} does not run ({error})",
                "Install one, name another with cc=, or name a file that ends in .tar.",
            ) from None  # fmt: skip
    if done.returncode:
        raise ModelError(
            place, f"{cc} could not link it: {done.stderr.strip()[-1000:]}",
            "Name a file that ends in .tar instead.",
        )  # fmt: skip


@once
def _native_object(arity: int) -> bytes:
    """`cpu.native_ir` for any processor of this architecture, as an object file."""
    llvm = llvm_library()
    module = llvm.parse_assembly(cpu.native_ir(arity))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    return bytes(machine.emit_object(module))


def open_shared(path: str) -> SharedCode:
    """The code in a shared object, loaded once a process: this runs what the file says."""
    try:
        file = os.stat(path)
    except OSError as error:
        raise DeviceError(f"load({path!r})", error.strerror or "", "Keep the file.") from None
    return _opened(path, file.st_ino, file.st_mtime_ns)


@once
def _opened(path: str, inode: int, changed: int) -> SharedCode:
    return SharedCode(path)  # a file in its place has another inode, and is loaded beside it


class SharedCode:
    """A shared object that `link` made.  Raises DeviceError for another."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._file = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(
                f"load({path!r})", f"the system's loader refuses it ({error})",
                "Export it on a machine like this one.",
            ) from None  # fmt: skip
        cpu.join_pool(self.address)

    def address(self, name: str) -> int:
        """Of a function or variable; 0 where there is none."""
        try:
            return int(ctypes.cast(getattr(self._file, name), ctypes.c_void_p).value or 0)
        except AttributeError:
            return 0

    def load(self, artifact: Artifact) -> tuple[Kernel, ...]:
        """The kernels of an artefact, as `CpuDriver.load` gives them."""
        place = f"load({artifact.source.entry_name})"
        if lacks := cpu_features.missing_here(artifact.meta):
            raise DeviceError(
                place, f"it was compiled for a processor with {', '.join(lacks)}, which this one "
                "lacks", "Compile it on this machine, or with -mcpu of an older one.",
            )  # fmt: skip
        made: list[Kernel] = []
        for info in artifact.source.kernels:
            if not (address := self.address(info.name)):
                raise DeviceError(
                    place, f"{self.path} has no kernel {info.name}", "Export the library again."
                )
            made.append(Kernel(info, address, self, artifact.source))
        return tuple(made)
