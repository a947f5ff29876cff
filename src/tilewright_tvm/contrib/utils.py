"""`contrib.utils.tempdir`, where scripts of TVM put what they upload.

In: nothing.  Out: a folder that goes when nobody holds it any more.
"""

import os
import tempfile
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, absent

__all__ = ["TempDirectory", "tempdir"]


class TempDirectory:
    """A new folder; temp_dir: its path."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-")
        self.temp_dir = self._folder.name

    @door(DeviceError)
    def relpath(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.temp_dir, name)

    def listdir(self) -> list[str]:
        return sorted(os.listdir(self.temp_dir))

    def remove(self) -> None:
        """Remove it with what is in it."""
        self._folder.cleanup()


def tempdir() -> TempDirectory:
    return TempDirectory()


def __getattr__(name: str) -> Any:
    raise absent("contrib.utils", name, {})
