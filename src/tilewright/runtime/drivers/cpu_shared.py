"""CPU kernels in a shared object, loaded without LLVM.

In: a file that `driver/linking.py` made: kernels, and the native code that a process needs to run
them.  Out: kernels, by the system's loader.  Code that several such files bring runs on one pool of
threads.  Read next: `cpu_native.py`.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import once
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import Kernel, cpu_features, cpu_host
from tilewright.runtime.drivers.cpu_native import join_pool
from tilewright.targets import processors

_ELF_TYPE, _DYNAMIC = 16, (b"\x03\x00", b"\x00\x03")
# Of glibc, then of Android, whose loader looks nowhere else for what a file does not name.
_LIBRARIES = ("libm.so.6", "libpthread.so.0", "libgcc_s.so.1", "libc.so", "libm.so")


def open_shared(path: str, artifacts: Sequence[Artifact]) -> SharedCode:
    """The code in a shared object, loaded once a process: this runs what the file says.

    artifacts: what it holds.  Raises DeviceError where one is for another processor, before
    anything is loaded, and for a file that is no such object
    """
    for artifact in artifacts:
        _check(artifact, f"load({path!r})")
    try:
        file = os.stat(path)
    except OSError as error:
        raise DeviceError(f"load({path!r})", error.strerror or "", "Keep the file.") from None
    return _opened(path, file.st_ino, file.st_mtime_ns)


def is_shared(binary: bytes) -> bool:
    """Tell whether an artefact's binary is a shared object, not an object file."""
    return binary[:4] == b"\x7fELF" and binary[_ELF_TYPE : _ELF_TYPE + 2] in _DYNAMIC


def load_bytes(artifact: Artifact) -> tuple[Kernel, ...]:
    """The kernels of an artefact whose binary is a shared object; unloaded with the last of them.
    Raises DeviceError."""
    place = f"load({artifact.source.entry_name})"
    _check(artifact, place)
    try:
        with tempfile.NamedTemporaryFile(prefix="tilewright-", suffix=".so") as file:
            file.write(artifact.binary)
            file.flush()
            code = SharedCode(file.name)
    except OSError as error:
        raise DeviceError(
            place, f"its code cannot be written to a file ({error.strerror})",
            "Make room in the folder for temporary files, or name another with TMPDIR.",
        ) from None  # fmt: skip
    code.unload_unused()
    return code.load(artifact)


def _check(artifact: Artifact, place: str) -> None:
    if why := cpu_features.refusal(artifact.meta):
        raise DeviceError(
            place, why, "Build it for this machine: Target('llvm -mtriple=... -mcpu=...'), here "
            f"-mtriple={cpu_host.triple()}.",
        )  # fmt: skip


_NAMES: set[str] = set()  # that the loader has seen


@once
def _opened(path: str, inode: int, changed: int) -> SharedCode:
    """A file in the place of one that was loaded is loaded beside it.  The loader takes files of
    one name for one, so that it is given another name."""
    name = os.path.realpath(path)
    if name not in _NAMES:
        _NAMES.add(name)
        return SharedCode(path)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        other = os.path.join(folder, os.path.basename(name))
        os.symlink(name, other)
        return SharedCode(other)


@once
def _provide_libraries() -> None:
    """What kernels call of the C library: the files name none, as they are linked without it."""
    for name in _LIBRARIES if processors.on_linux() else ():
        with suppress(OSError):  # a system without it may have its functions elsewhere
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)


@once
def _dlclose() -> Callable[[int], object]:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (ctypes.c_void_p,)
    function: Callable[[int], object] = close
    return function


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
        self._stays = join_pool(self.address)

    def unload_unused(self) -> None:
        """Unload it when nothing refers to it any more, unless others run on what it brought."""
        if not self._stays:
            weakref.finalize(self, _dlclose(), self._file._handle)

    def address(self, name: str) -> int:
        """Find the address of a function or variable; 0 where there is none."""
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
