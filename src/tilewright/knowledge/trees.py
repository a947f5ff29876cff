"""`Trees`: a trained cost model as plain arrays, which may come from a stranger.

In: nodes of boosted regression trees.  Out: a file, and back.  Everything in a file is checked
before it is used: sizes, finite numbers, children behind their parents, features that exist.
Read next: `search/propose/prior.py`, which makes them and predicts with them.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import ModelError
from tilewright.base.output import FileKind, beginning, write

MAX_BYTES = 64 << 20
_LEAF = -1


@dataclass(frozen=True, eq=False)
class Trees:
    """Nodes of all trees, one array each of [nodes]; of every tree the root comes first.

    feature:   index into `features`; -1: a leaf
    threshold: rows below it go left
    left, right: nodes behind this one; 0 at leaves
    value:     of leaves, log seconds to add
    roots:     of the trees, ascending; base: what is added to their sum
    features:  names of what rows hold, in order
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    roots: np.ndarray
    base: float
    features: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """Of all that they hold."""
        arrays = [np.ascontiguousarray(getattr(self, n), k) for n, k in _KINDS.items()]
        told = repr((float(self.base), self.features, [len(a) for a in arrays])).encode()
        return hashlib.sha256(b"".join([told, *(a.tobytes() for a in arrays)])).hexdigest()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trees:
        """Read what `save` wrote.  Raises ModelError."""
        place = f"trees {os.fspath(path)!r}"
        try:
            if os.stat(path).st_size > MAX_BYTES:
                raise ModelError(place, f"it is larger than {MAX_BYTES >> 20} MiB", _WAY_OUT)
            data = msgspec.msgpack.decode(Path(path).read_bytes(), type=_File)
        except OSError as error:
            raise ModelError(place, error.strerror or str(error), _WAY_OUT) from None
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise ModelError(place, "these are no trees", _WAY_OUT) from None
        return cls._checked(data, place)

    @classmethod
    def _checked(cls, data: _File, place: str) -> Trees:
        arrays = {}
        for name, kind in _KINDS.items():
            raw = getattr(data, name)
            if len(raw) % kind.itemsize:
                raise ModelError(place, f"its {name} is cut off", _WAY_OUT)
            arrays[name] = np.frombuffer(raw, kind)
        made = cls(**arrays, base=data.base, features=data.features)
        reason = made._damage()
        if reason:
            raise ModelError(place, reason, _WAY_OUT)
        return made

    def _damage(self) -> str:
        """Why these are no trees; ""."""
        count = len(self.feature)
        if {len(getattr(self, n)) for n in _KINDS if n != "roots"} != {count} or not count:
            return "its arrays differ in length"
        if not (np.isfinite(self.value).all() and np.isfinite(self.base)):
            return "a value is not finite"
        inner = self.feature != _LEAF
        if np.isnan(self.threshold[inner]).any():
            return "a threshold is not a number"
        if ((self.feature[inner] < 0) | (self.feature[inner] >= len(self.features))).any():
            return "a node asks for a feature that it does not name"
        ends = np.append(self.roots[1:], count)
        if not len(self.roots) or self.roots[0] != 0 or (np.diff(ends) < 1).any():
            return "its roots are not in order"
        if (ends < 1).any() or (ends > count).any() or (self.roots >= ends).any():
            return "its roots are not in order"
        end = np.repeat(ends, np.diff(np.append(self.roots, count)))  # of each node's own tree
        for child in (self.left[inner], self.right[inner]):
            if ((child <= np.flatnonzero(inner)) | (child >= end[inner])).any():
                return "a child is not behind its parent"
        return ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file, which is replaced only when all is written.

        Raises ModelError, also where a file of another kind is there.
        """
        arrays = {n: np.ascontiguousarray(getattr(self, n), k) for n, k in _KINDS.items()}
        raw: dict[str, Any] = {name: array.tobytes() for name, array in arrays.items()}
        data = _File(**raw, base=float(self.base), features=self.features)
        place = f"trees {os.fspath(path)!r}"
        write(path, msgspec.msgpack.encode(data), _TREES, place, ModelError)


_TREES = FileKind("a file of trees", beginning(b"\x89\xa1v"))  # a map of nine, "v" first
_WAY_OUT = "Give a file that `tilewright records publish` wrote."
_KINDS = {
    "feature": np.dtype("<i4"), "threshold": np.dtype("<f4"), "left": np.dtype("<i4"),
    "right": np.dtype("<i4"), "value": np.dtype("<f4"), "roots": np.dtype("<i4"),
}  # fmt: skip


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    v: int = 1
    feature: bytes
    threshold: bytes
    left: bytes
    right: bytes
    value: bytes
    roots: bytes
    base: float
    features: tuple[str, ...]


assert {f.name for f in fields(Trees)} == {*_KINDS, "base", "features"}
