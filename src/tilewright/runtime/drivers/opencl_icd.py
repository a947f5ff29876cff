"""Finding OpenCL devices that the system did not register: Intel's from pip, NVIDIA's.

In: nothing.  Out: `OCL_ICD_VENDORS` set for this process, unless the user set it.  Call it before
the first OpenCL call.  Read next: `opencl.py`.

The .icd file in the `intel-opencl-rt` wheel names a path that exists on no user's machine, and
containers often mount NVIDIA's driver without registering it; a folder of our own with right paths
solves both.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

_SYSTEM = Path("/etc/OpenCL/vendors")
_NVIDIA = "libnvidia-opencl.so.1"
_NVIDIA_FOLDERS = (
    "/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64", "/usr/lib/wsl/lib",
)  # fmt: skip


def register() -> None:
    """Point OCL_ICD_VENDORS at a folder naming the system's, Intel's and NVIDIA's libraries."""
    if "OCL_ICD_VENDORS" in os.environ or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError):  # nowhere to write: what the system registered remains
        files = _found()
        if files:
            os.environ["OCL_ICD_VENDORS"] = str(_write(files))


def _found() -> dict[str, str]:
    """File name -> library, for a vendors folder; empty when there is nothing to add."""
    system = {p.name: p.read_text().strip() for p in sorted(_SYSTEM.glob("*.icd"))}
    known = " ".join(system.values())
    added = {}
    for name, library in (("intel-cpu.icd", _intel()), ("nvidia.icd", _nvidia())):
        if library and Path(library).name.split(".so")[0] not in known:
            added[name] = library
    return {**system, **added} if added else {}


def _intel() -> str:
    try:
        files = metadata.files("intel-opencl-rt") or []
    except metadata.PackageNotFoundError:
        return ""
    for file in files:
        path = Path(str(file.locate())).resolve() if file.name == "libintelocl.so" else None
        if path is not None and path.exists():
            return str(path)
    return ""


def _nvidia() -> str:
    for folder in _NVIDIA_FOLDERS:
        path = Path(folder) / _NVIDIA
        if path.exists():
            return str(path)
    try:
        ctypes.CDLL(_NVIDIA)
    except OSError:
        return ""
    return _NVIDIA


def _write(files: dict[str, str]) -> Path:
    """A folder with these files, the same one for the same contents, owned by this user."""
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"tilewright-icd-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():  # somebody else's: they could make us load anything
        folder = Path(tempfile.mkdtemp(prefix="tilewright-icd-"))
    for name, library in files.items():
        handle, temporary = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as f:
            f.write(library + "\n")
        os.replace(temporary, folder / name)
    return folder
