"""Which kernels this installation has verified: signed statements in its cache, never in a log.

In: an artefact whose results were compared with the reference of a `claim` on a device.  Out:
whether that was done here before, and how long the kernel took.  A statement holds for one device,
one state of Tilewright's own code, one compiler and one generated text; what a log says counts for
nothing.  Read next: `calls.py`, which signs what it verified, and `driver/cache.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from tilewright.base.artifact import Artifact, Source
from tilewright.driver.cache import default_cache
from tilewright.targets.precision import FLOAT32

_PACKAGE = Path(__file__).parents[1]
_VOLATILE = ("compile_seconds", "cached", "log")  # the rest of `Artifact.meta` is the compiler
_NAME = "\0"  # no text has it


def claim(dag: str, precision: str) -> str:
    """What is signed as verified: a computation, within the bound of a precision."""
    return dag if precision == FLOAT32 else f"{dag} {precision}"


def sign(artifact: Artifact, dag: str, fingerprint: str, seconds: float) -> None:
    """Remember that `artifact` was verified here as the computation with hash `dag`.

    fingerprint: of the device that ran it; seconds: of one call.  Nothing is kept where the device
    is not known or the cache cannot be written.
    """
    if fingerprint:
        default_cache().sign(_statement(artifact, dag, fingerprint), repr(seconds))


def signed(artifact: Artifact, dag: str, fingerprint: str) -> float | None:
    """Seconds of one call, as timed when `artifact` was verified here; None where it was not."""
    note = default_cache().signed(_statement(artifact, dag, fingerprint)) if fingerprint else None
    with contextlib.suppress(ValueError):
        if note is not None and isfinite(seconds := float(note)):
            return seconds
    return None


def _statement(artifact: Artifact, dag: str, fingerprint: str) -> str:
    compiler = {k: v for k, v in artifact.meta.items() if k not in _VOLATILE}
    parts = ["verified", dag, fingerprint, code_digest(), compiler, _nameless(artifact.source)]
    return json.dumps(parts, sort_keys=True, default=str)


def _nameless(source: Source) -> str:
    """Digest of a program whatever its kernels are called: tuning and networks name them apart."""
    text = json.dumps(asdict(source), sort_keys=True).replace(source.entry_name, _NAME)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def code_digest() -> str:
    """Of all Python files of the package: an edit of any of them ends what was signed before."""
    total = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        total.update(f"{path.relative_to(_PACKAGE)}\0".encode())
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def code_key(*parts: Any) -> str:
    """Key in the cache of what this state of the code makes of `parts`."""
    text = json.dumps([code_digest(), *parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
