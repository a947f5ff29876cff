"""The kernel cache on disk: artefacts by the hash of everything they depend on.

In: a `Source` and what its compiler calls its identity.  Out: the artefact, or None.  A damaged
entry is a miss; a directory that cannot be written is no cache.  Read next: `compilers.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.base import environment
from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import DeviceError
from tilewright.runtime import artifact_file

_FORMAT = 1  # raise it when the meaning of an entry changes
_MAX_BYTES = 2 << 30
_LOOKS = "00"  # keys that begin so make `put` look at the size: one in 256, in whatever process


def default_cache() -> Cache:
    """The cache in TILEWRIGHT_CACHE ("off": none), or else in the platform's cache directory."""
    value = environment.cache()
    if value.lower() in ("off", "0", "no"):
        return Cache(None)
    try:
        return Cache(Path(value).expanduser() if value else _platform_directory() / "tilewright")
    except RuntimeError:  # this user has no home
        return Cache(None)


def _platform_directory() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


class Cache:
    """Artefacts in `directory/ab/abcdef...`; `directory` None means that nothing is kept.

    Entries are written to a temporary file and renamed, so processes can share a directory.
    """

    def __init__(self, directory: Path | None, max_bytes: int = _MAX_BYTES) -> None:
        self.directory = directory
        self.max_bytes = max_bytes

    def key(self, source: Source, identity: dict[str, str]) -> str:
        text = json.dumps([_FORMAT, source.digest(), identity], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, key: str) -> Artifact | None:
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            artifact = artifact_file.from_bytes(path.read_bytes(), str(path))
        except (OSError, DeviceError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # entries used last are pruned last
        return artifact

    def put(self, key: str, artifact: Artifact) -> None:
        if self.directory is None:
            return
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as f:
                    f.write(artifact_file.to_bytes(artifact))
                os.replace(temporary, path)
            except BaseException:  # Ctrl-C too
                os.unlink(temporary)
                raise
        if key.startswith(_LOOKS):
            self.prune()

    def prune(self) -> None:
        """Delete the entries used longest ago until at most `max_bytes` are left.

        What a killed process left half written counts as an entry and goes the same way.
        """
        entries = sorted(self._entries(), reverse=True)
        total = 0
        for _, size, path in entries:
            total += size
            if total > self.max_bytes:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        if self.directory is None:
            return
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / key[:2] / key
