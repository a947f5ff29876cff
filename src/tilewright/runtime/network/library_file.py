"""Files of libraries: a shared object, a tar or a zip archive with the same members.

In: `Contents`, what a library is made of.  Out: a file, and the same contents from it.  A member
says which others there are; types, digests and sizes are checked before anything is used.  Machine
code of a shared object stays in it: reading one runs nothing.
Read next: `library.py`, `../drivers/cpu_shared.py`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tilewright.base import output, plain
from tilewright.base.artifact import Artifact
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.runtime import artifact_file
from tilewright.runtime.network.plan import Array, Plan
from tilewright.runtime.network.report import BuildReport
from tilewright.runtime.own_files import HEADER, LIBRARY
from tilewright.targets.kind import kind, resolve

_FORMAT = "tilewright network 3"
_DIGESTS = "sha256"
_PLACES = b"TWPLACES"  # what a file ends with that C reads, too
_USTAR_AT = 257  # of its magic in the first block of a tar
_Read = Callable[[str], bytes]


@dataclass(frozen=True)
class Contents:
    """shared: the shared object that holds the code of `kernels`; None: their binaries do."""

    plans: tuple[Plan, ...]
    report: BuildReport
    kernels: tuple[Artifact, ...]
    constants: tuple[Array, ...]
    shared: str | None = None


@dataclass(frozen=True)
class Code:
    """What a linker makes.  binary: a shared object, b"" for none; digest: 16 bytes by which its
    functions for C know their file; b"": it has none."""

    binary: bytes
    digest: bytes = b""


@dataclass(frozen=True)
class _Header:
    """code_bytes, code_sha256: of the machine code in front of the archive."""

    format: str
    plans: tuple[Plan, ...]
    report: BuildReport
    kernels: int
    constants: int
    constant_types: tuple[str, ...] = ()
    code_bytes: int = 0
    code_sha256: str = ""


def write(contents: Contents, path: str | os.PathLike[str], cc: str | None = None) -> None:
    """The end of the name says what kind of file: `.so`, `.tar`, else a zip.

    Raises ModelError, also where a file of another kind is there.
    """
    name = os.fspath(path)
    place = f"export_library({name!r})"
    with output.replacing(path, LIBRARY, place, ModelError) as made:  # what is loaded stays whole
        if name.endswith(".so"):
            _write_shared(contents, made, cc, place)
        elif contents.shared is not None:
            raise ModelError(
                place, "the code of this library is in a shared object",
                "Name a file that ends in .so, or export it where it is built.",
            )  # fmt: skip
        elif name.endswith(".tar"):
            _write_tar(contents, made)
        else:
            with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
                for member, data in _members(contents):
                    archive.writestr(member, data)


def read(path: str | os.PathLike[str]) -> Contents:
    """Read what `write` wrote.  Raises ModelError for a missing or damaged file."""
    place = f"load({os.fspath(path)!r})"
    try:
        with _archive(path) as member:
            return _read(member, path, place)
    except OSError as error:
        raise ModelError(place, error.strerror or str(error), "Check the path.") from None
    except (
        zipfile.BadZipFile, tarfile.TarError, KeyError, EOFError, ValueError, OverflowError,
        MemoryError, NotImplementedError, RuntimeError, TypeError, TilewrightError,
    ) as error:  # fmt: skip
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            place, f"it is no compiled network, or damaged ({_told(error)})",
            "Compiled.save and lib.export_library write one.",
            command="`tilewright compile` writes one.",
        ) from None  # fmt: skip


def _told(error: Exception) -> str:
    """What a library's error says; that of a missing key is its bare name."""
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)


# -- members ---------------------------------------------------------------------------------------


def _members(contents: Contents, code: bytes = b"") -> Iterator[tuple[str, bytes]]:
    """code: what lies in front of the archive."""
    types = tuple(DType(c.dtype) for c in contents.constants)
    digest = hashlib.sha256(code).hexdigest() if code else ""
    header = _Header(
        _FORMAT, contents.plans, contents.report, len(contents.kernels), len(types), types,
        len(code), digest,
    )  # fmt: skip
    yield HEADER, json.dumps(asdict(header), separators=(",", ":")).encode()
    for k, artifact in enumerate(contents.kernels):
        yield f"kernel{k}", artifact_file.to_bytes(artifact)
    for k, value in enumerate(contents.constants):
        out = io.BytesIO()
        dense = np.asarray(value, order="C")  # C reads it as it is
        np.save(out, dense.view(_stored(dense.dtype)), allow_pickle=False)
        yield f"constant{k}.npy", out.getvalue()


def _read(member: _Read, path: str | os.PathLike[str], place: str) -> Contents:
    found = json.loads(member(HEADER))
    if not isinstance(found, Mapping) or found.get("format") != _FORMAT:
        said = found.get("format") if isinstance(found, Mapping) else None
        raise ModelError(
            place, f"its format is {said!r}, not {_FORMAT!r}",
            "Build and save it with this version.",
        )  # fmt: skip
    header = plain.read(_Header, found)
    if not header.plans:
        raise ValueError("it has no plan")
    shared = None
    if header.code_bytes:
        with open(path, "rb") as file:
            code = file.read(header.code_bytes)
        if hashlib.sha256(code).hexdigest() != header.code_sha256:
            raise ValueError("the digest of its code differs")
    kernels = [artifact_file.from_bytes(member(f"kernel{k}"), place) for k in range(header.kernels)]
    if header.code_bytes and not any(kernel.binary for kernel in kernels):
        shared = os.path.abspath(path)
    constants = [
        np.load(io.BytesIO(member(f"constant{k}.npy")), allow_pickle=False)
        for k in range(header.constants)
    ]
    for k, name in enumerate(header.constant_types):
        constants[k] = constants[k].view(DType(name).storage)
    return Contents(header.plans, header.report, tuple(kernels), tuple(constants), shared)


def _stored(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type under which a file of numpy keeps elements of `kind`: it knows no bfloat16."""
    return np.dtype(f"u{kind.itemsize}") if kind.isbuiltin != 1 else kind


# -- archives --------------------------------------------------------------------------------------


@contextmanager
def _archive(path: str | os.PathLike[str]) -> Iterator[_Read]:
    """Its members by name, each with its checksum compared."""
    with open(path, "rb") as file:
        head = file.read(tarfile.BLOCKSIZE)
    if head[_USTAR_AT:].startswith(b"ustar"):
        with tarfile.open(path, "r:") as tar:
            yield _tar_member(tar)
        return
    with zipfile.ZipFile(path) as archive:
        yield archive.read


def _tar_member(tar: tarfile.TarFile) -> _Read:
    """A tar has no checksums of its members, so one of them lists those of the others."""
    places = {info.name: info for info in tar}

    def raw(name: str) -> bytes:
        if name not in places:
            raise ValueError(f"it holds no {name}")
        file = tar.extractfile(places[name]) if places[name].isreg() else None
        if file is None:
            raise ValueError(f"{name} is no file")
        return file.read()

    listed = dict(line.split("  ")[::-1] for line in raw(_DIGESTS).decode().splitlines())

    def member(name: str) -> bytes:
        data = raw(name)
        if name not in listed:
            raise ValueError(f"{_DIGESTS} does not list {name}")
        if hashlib.sha256(data).hexdigest() != listed[name]:
            raise ValueError(f"the digest of {name} differs")
        return data

    return member


def _write_tar(contents: Contents, path: str) -> None:
    digests = []
    with tarfile.open(path, "w") as tar:
        for name, data in _members(contents):
            digests.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
            _add(tar, name, data)
        _add(tar, _DIGESTS, "".join(digests).encode())  # as `sha256sum -c` reads it


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _write_shared(contents: Contents, path: str, cc: str | None, place: str) -> None:
    """A shared object, and behind it a zip with all that is not in its code.

    The zip alone where code is data to the host and nothing has functions for C.
    """
    if contents.shared is not None:
        shutil.copyfile(contents.shared, path)
        return
    target = kind(contents.plans[0].target.partition(" ")[0])
    made = resolve(target.linker)(contents, place, cc) if target.linker else Code(b"")
    if target.loader:
        bare = tuple(replace(k, binary=b"") for k in contents.kernels)
        contents = replace(contents, kernels=bare)
    with open(path, "wb") as file:
        file.write(made.binary)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            ends = {}
            for name, data in _members(contents, made.binary):
                archive.writestr(name, data)
                ends[name] = file.tell()
            if made.digest:
                _say_where(archive, contents, ends, made.digest)


def _say_where(
    archive: zipfile.ZipFile, contents: Contents, ends: Mapping[str, int], digest: bytes
) -> None:
    """For `driver/native/network.c`: where constants and code of GPUs begin in the file, with a sum
    of each, as a member; and where that begins, as the last bytes of the file."""
    held = [(f"constant{k}.npy", np.asarray(c, order="C").reshape(-1).view(np.uint8))
            for k, c in enumerate(contents.constants)]  # fmt: skip
    held += [(f"kernel{k}", np.frombuffer(a.binary, np.uint8))
             for k, a in enumerate(contents.kernels) if a.binary]  # fmt: skip
    places = [n for name, data in held for n in (ends[name] - data.nbytes, _sum(data))]
    data = struct.pack(f"<{len(places)}Q", *places)
    archive.writestr("places", data)
    assert archive.fp is not None
    end = archive.fp.tell()
    archive.comment = digest + struct.pack("<Q", end - len(data)) + _PLACES


def _sum(data: np.ndarray) -> int:
    """Of words of 8 bytes, the last one filled up with zeros, each times another odd number."""
    words = np.pad(data, (0, -data.nbytes % 8)).view("<u8")
    return int((words * np.arange(1, 2 * len(words), 2, dtype=np.uint64)).sum(dtype=np.uint64))
