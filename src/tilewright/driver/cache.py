"""The cache on disk: artefacts by the hash of everything they depend on, and signed notes.

In: a `Source` and what its compiler calls its identity.  Out: the artefact, or None.  A damaged
entry is a miss, and so is one of another key or of another user; a directory that cannot be written
is no cache.  Read next: `compilers.py`, `measure/signatures.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tilewright.base import environment
from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import DeviceError
from tilewright.runtime import artifact_file

_FORMAT = 2  # raise it when the meaning of an entry changes
_MAX_BYTES = 2 << 30
_OTHERS_MAY = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_SECRET = "secret"
_SECRET_BYTES = 32
_DIGEST_BYTES = hashlib.sha256().digest_size
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

    Entries are written to a temporary file and renamed, so processes can share a directory.  Only
    files that this user owns, and nobody else may write, are read; an entry begins with a digest of
    its key and of what follows.
    """

    def __init__(self, directory: Path | None, max_bytes: int = _MAX_BYTES) -> None:
        self.directory = directory
        self.max_bytes = max_bytes

    def key(self, source: Source, identity: dict[str, str]) -> str:
        text = json.dumps([_FORMAT, source.digest(), identity], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def get(self, key: str) -> Artifact | None:
        data = self._get(key)
        if data is None:
            return None
        try:
            return artifact_file.from_bytes(data, str(self._path(key)))
        except DeviceError:
            return None

    def put(self, key: str, artifact: Artifact) -> None:
        self._put(key, lambda: artifact_file.to_bytes(artifact))

    # -- other data, by a digest of all that it depends on -----------------------------------------
    def keep(self, key: str, data: bytes) -> None:
        self._put(key, lambda: data)

    def kept(self, key: str) -> bytes | None:
        return self._get(key)

    # -- notes that only this installation can have written ----------------------------------------
    def sign(self, statement: str, note: str) -> None:
        """Keep `note` under a statement, such as that something was verified, until it is pruned.

        The key of its entry is the statement's HMAC by a secret of this cache: whoever does not
        know it can neither write nor forge one.
        """
        secret = self._secret(create=True)
        if secret is not None:
            self._put(_mac(secret, statement), lambda: note.encode())

    def signed(self, statement: str) -> str | None:
        """The note under a statement that was signed here; None where it was not."""
        secret = self._secret(create=False)
        data = None if secret is None else self._get(_mac(secret, statement))
        return None if data is None else data.decode(errors="replace")

    def _secret(self, *, create: bool) -> bytes | None:
        """Random bytes that only this user may read; None without them.

        Whatever lies in their place and is not that is replaced, so what was signed with it counts
        no more.
        """
        if self.directory is None:
            return None
        path = self.directory / _SECRET
        found = _read(path, _OTHERS_MAY)
        if found is not None and len(found) == _SECRET_BYTES:
            return found
        if create:
            _write(path, secrets.token_bytes(_SECRET_BYTES))
            return self._secret(create=False)  # of the process that was last to write it
        return None

    # -- files -------------------------------------------------------------------------------------
    def _get(self, key: str) -> bytes | None:
        if self.directory is None:
            return None
        path = self._path(key)
        entry = _read(path, _OTHERS_WRITE) or b""
        digest, data = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        if digest != _digest(key, data):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # entries used last are pruned last
        return data

    def _put(self, key: str, make: Callable[[], bytes]) -> None:
        if self.directory is None:
            return
        data = make()
        _write(self._path(key), _digest(key, data) + data)
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


def _digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + data).digest()


def _mac(secret: bytes, statement: str) -> str:
    return hmac.new(secret, statement.encode(), hashlib.sha256).hexdigest()


def _read(path: Path, forbidden: int) -> bytes | None:
    """The bytes of a plain file of this user; None where it is not one, or its mode has bits that
    are forbidden."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            return file.read() if own and not status.st_mode & forbidden else None
    except OSError:
        return None


def _write(path: Path, data: bytes) -> None:
    """Replace a file at once, readable by this user only; nothing where that cannot be."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(data)
            os.replace(temporary, path)
        except BaseException:  # Ctrl-C too
            os.unlink(temporary)
            raise
