"""CPU kernels in a shared object, loaded without LLVM.

In: a file that `driver/linking.py` made: kernels, and the native code that a process needs to run
them.  Out: kernels, by the system's loader.  Code that several such files bring runs on one pool of
threads.  Read next: `cpu.py`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import once
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import Kernel, cpu, cpu_features, cpu_host

_LIBRARIES = ("libm.so.6", "libpthread.so.0", "libgcc_s.so.1")


def open_shared(path: str, artifacts: Sequence[Artifact]) -> SharedCode:
    """The code in a shared object, loaded once a process: this runs what the file says.

    artifacts: what it holds.  Raises DeviceError where one is for another processor, before
    anything is loaded, and for a file that is no such object
    """
    for artifact in artifacts:
        if why := cpu_features.refusal(artifact.meta):
            raise DeviceError(
                f"load({path!r})", why, "Build it for this machine: Target('llvm -mtriple=... "
                f"-mcpu=...'), here -mtriple={cpu_host.triple()}.",
            )  # fmt: skip
    try:
        file = os.stat(path)
    except OSError as error:
        raise DeviceError(f"load({path!r})", error.strerror or "", "Keep the file.") from None
    return _opened(path, file.st_ino, file.st_mtime_ns)


@once
def _opened(path: str, inode: int, changed: int) -> SharedCode:
    return SharedCode(path)  # a file in its place has another inode, and is loaded beside it


@once
def _provide_libraries() -> None:
    """What kernels call of the C library: the files name none, as they are linked without it."""
    for name in _LIBRARIES if sys.platform.startswith("linux") else ():
        with suppress(OSError):  # a system without it may have its functions elsewhere
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


class SharedCode:
    """A shared object that was linked of kernels.  Raises DeviceError for another."""

    def __init__(self, path: str) -> None:
        self.path = path
        _provide_libraries()
        try:
            self._file = ctypes.CDLL(path)
        except OSError as error:
            raise DeviceError(
                f"load({path!r})", f"the system's loader refuses it ({error})",
                "Export it on a machine like this one, or with -mtriple of this one.",
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
        made: list[Kernel] = []
        for info in artifact.source.kernels:
            if not (address := self.address(info.name)):
                raise DeviceError(
                    place, f"{self.path} has no kernel {info.name}", "Export the library again."
                )
            made.append(Kernel(info, address, self, artifact.source))
        return tuple(made)
