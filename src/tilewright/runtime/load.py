"""`load_module`: whatever Tilewright compiled and saved, by the name that TVM has for it.

In: a path.  Out: the `Module` of one computation, or the `Library` of a network.
Read next: `module.py`, `network/library.py`.
"""

from __future__ import annotations

import os

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime import artifact_file
from tilewright.runtime.device import Device, device
from tilewright.runtime.module import Module
from tilewright.runtime.network import library


@door(DeviceError)
def load_module(path: str | os.PathLike[str], on: Device | None = None) -> Module | library.Library:
    """Load what `Module.save` or `Library.export_library` wrote.

    on: where a `Module` is loaded; default: the device of its kind with index 0
    Raises DeviceError for a file that cannot be read, ModelError for a damaged network.
    """
    place = f"load_module({os.fspath(path)!r})"
    try:
        with open(path, "rb") as file:
            data = file.read(len(artifact_file.MAGIC))
            begins = data.startswith((artifact_file.MAGIC, artifact_file.OBJECT))
            if not begins:
                return library.load(path)
            data += file.read()
    except OSError as error:
        raise DeviceError(
            place, f"the file cannot be read ({error.strerror})",
            "Name a file that Module.save or lib.export_library wrote.",
        ) from None  # fmt: skip
    if data.startswith(artifact_file.MAGIC):
        artifact = artifact_file.from_bytes(data, place)
    elif (found := artifact_file.from_object(data, place)) is None:
        return library.load(path)
    else:
        artifact = found
    return Module(artifact, on or device(artifact.source.target))
