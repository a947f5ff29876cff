"""Sessions by the names of TVM's `rpc`: this machine as if it were another one, and a tracker's.

In: nothing, or where a tracker listens.  Out: sessions with `upload`, `load_module` and devices.
Read next: `session.py`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.farm import address
from tilewright.farm.client import summary
from tilewright.farm.command import table
from tilewright.farm.network import check_installed, soon
from tilewright.farm.session import RemoteSession, request_remote
from tilewright.farm.session_calls import plain_name
from tilewright.runtime.device import Device, device
from tilewright.runtime.load import load_module


class LocalSession:
    """A session on this machine: a script for boards is tried with it before there is one.

    Files are copied to a folder of its own, which goes when the session is closed or nobody holds
    it any more; devices are those of this process.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-")

    def cpu(self, index: int = 0) -> Device:
        return self.device("cpu", index)

    def cl(self, index: int = 0) -> Device:
        return self.device("opencl", index)

    opencl = cl

    def cuda(self, index: int = 0) -> Device:
        return self.device("cuda", index)

    def device(self, kind: str, index: int = 0) -> Device:
        return device(kind, index)

    context = device  # its name before TVM 0.8

    @door(DeviceError)
    def upload(self, data: str | os.PathLike[str] | bytes, target: str | None = None) -> None:
        """Copy a file, or bytes under the name `target`; default: the file's own name."""
        if isinstance(data, bytes):
            (self._root / plain_name(target or "")).write_bytes(data)
            return
        name = plain_name(target or Path(data).name)
        try:
            shutil.copyfile(data, self._root / name)
        except OSError as error:
            raise DeviceError(
                f"upload({os.fspath(data)!r})", f"it cannot be read ({error.strerror})",
                "Name a file that lib.export_library wrote.",
            ) from None  # fmt: skip

    def listdir(self) -> list[str]:
        """Names of the session's files."""
        return sorted(os.listdir(self._root))

    @door(DeviceError)
    def remove(self, path: str) -> None:
        (self._root / plain_name(path)).unlink(missing_ok=True)

    @door(DeviceError)
    def load_module(self, path: str) -> Any:
        """What an uploaded file holds: a network or one computation."""
        return load_module(self._root / plain_name(path))

    def close(self) -> None:
        self._folder.cleanup()

    def __enter__(self) -> LocalSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _root(self) -> Path:
        return Path(self._folder.name)


@dataclass(frozen=True)
class TrackerSession:
    """A tracker that lends devices by key."""

    host: str
    port: int
    certificates: str | None = None

    @door(DeviceError)
    def request(
        self, key: str, priority: int = 1, session_timeout: float = 0, max_retry: int = 5
    ) -> RemoteSession:
        """A session on a device of `key`.  Raises DeviceError where there is none.

        priority:        who has a higher one gets devices first
        session_timeout: seconds for one call, and to wait for a device; 0: a minute
        max_retry:       accepted and not needed: one request waits in the queue
        """
        seconds = session_timeout or 60.0
        return request_remote(
            key, self.host, self.port, priority, seconds, certificates=self.certificates
        )

    def text_summary(self) -> str:
        """The devices there are, and how many of each key are free."""
        return table(soon(summary(self.host, self.port, self.certificates)).result())


@door(DeviceError)
def connect_tracker(
    url: str, port: int | None = None, *, certificates: str | None = None
) -> TrackerSession:
    """The tracker at url:port.  Raises DeviceError where none answers."""
    check_installed()
    found = TrackerSession(*address.tracker_address(url, port), certificates)
    found.text_summary()
    return found
