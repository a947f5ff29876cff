"""Artefacts as bytes and files: a JSON header, the binary, and a checksum; no pickle.

In and out: `base.artifact.Artifact`.  Used by `Module.save` and the kernel cache.
Read next: `module.py`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import asdict
from typing import Any

from tilewright.base import plain
from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import DeviceError

MAGIC = b"TILEWRIGHT1\n"
OBJECT = b"\x7fELF"  # what object files begin with
_DIGEST = hashlib.sha256().digest_size


def to_bytes(artifact: Artifact) -> bytes:
    """`from_bytes` gives an equal artefact back."""
    header = json.dumps(
        {
            "source": asdict(artifact.source),
            "resources": artifact.resources,
            "meta": artifact.meta,
        },
        separators=(",", ":"),
    ).encode()
    body = struct.pack("<Q", len(header)) + header + artifact.binary
    return MAGIC + hashlib.sha256(body).digest() + body


def behind_object(artifact: Artifact) -> bytes:
    """An object file that linkers take, which has the artefact behind its own end."""
    held = to_bytes(artifact)
    return artifact.binary + held + struct.pack("<Q", len(held)) + MAGIC


def from_object(data: bytes, place: str) -> Artifact | None:
    """Read what `behind_object` put there; None where nothing is."""
    foot = len(MAGIC) + 8
    if data[-len(MAGIC) :] != MAGIC or len(data) < foot:
        return None
    (size,) = struct.unpack("<Q", data[-foot : -len(MAGIC)])
    return from_bytes(data[-foot - size : -foot], place)


def from_bytes(data: bytes, place: str = "from_bytes") -> Artifact:
    """Raises DeviceError when `data` is no artefact, a damaged one, or another version's."""
    start = len(MAGIC) + _DIGEST
    body = data[start:]
    if data[: len(MAGIC)] != MAGIC:
        raise DeviceError(place, "it is not a Tilewright artefact", "Write one with Module.save.")
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise DeviceError(place, "it is damaged (its checksum differs)", "Write it again.")
    try:
        (size,) = struct.unpack_from("<Q", body)
        fields = json.loads(body[8 : 8 + size])
        return Artifact(
            source=plain.read(Source, fields["source"]), binary=body[8 + size :],
            resources=plain.read(dict[str, dict[str, int]], fields["resources"]),
            meta=plain.read(dict[str, Any], fields["meta"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, struct.error) as error:
        raise DeviceError(
            place, f"another version of Tilewright wrote it ({error!r})", "Write it again."
        ) from None
