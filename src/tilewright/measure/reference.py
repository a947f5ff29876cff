"""`Reference`: a task's inputs, expected outputs and tolerances, in files that workers read once.

In: arrays.  Out: a small value with a path, which crosses processes.  The files live as long as
their `ReferenceStore`.  Read next: `local.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError

Array = npt.NDArray[Any]
_PREFIX = "tilewright-reference-"
_CACHE_BYTES = 1 << 30
BFLOAT16 = DType("bfloat16")


@dataclass(frozen=True)
class Reference:
    """Where the arrays of one task lie; equal for equal tasks of one store.

    inputs, outputs: how many there are
    """

    directory: str
    inputs: int
    outputs: int


@dataclass(frozen=True)
class ReferenceArrays:
    """inputs, then per output what is expected and how far from it is still right."""

    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    tolerance: tuple[Array, ...]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self.inputs, *self.expected, *self.tolerance))


class ReferenceStore:
    """A temporary directory with the references of all tasks of a run.

    Deleted by `close`, with the object, or at exit; what a killed process left is deleted by the
    next store on this machine.
    """

    def __init__(self) -> None:
        _sweep(Path(tempfile.gettempdir()))
        self._directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._known: dict[str, Reference] = {}
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._directory, True)

    def get(self, name: str) -> Reference | None:
        return self._known.get(name)

    def put(
        self,
        name: str,
        inputs: Sequence[Array],
        expected: Sequence[Array],
        tolerance: Sequence[Array | float],
    ) -> Reference:
        """Store the arrays of task `name` (such as its DAG's hash).

        expected, tolerance: one per output buffer; a tolerance broadcasts to its output.
        Raises DeviceError when the temporary directory is full.
        """
        groups = {"input": inputs, "expected": expected, "tolerance": tolerance}
        try:
            folder = Path(tempfile.mkdtemp(dir=self._directory))
            for kind, arrays in groups.items():
                for i, array in enumerate(arrays):
                    np.save(folder / f"{kind}{i}.npy", np.asarray(array, order="C"))
        except OSError as error:
            raise DeviceError(
                f"reference of {name}",
                f"{self._directory} cannot be written ({error.strerror or error})",
                "Free some space there, or set TMPDIR to a larger directory.",
            ) from None  # fmt: skip
        self._known[name] = Reference(str(folder), len(inputs), len(expected))
        return self._known[name]

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> ReferenceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_cache: OrderedDict[Reference, ReferenceArrays] = OrderedDict()


def load(reference: Reference) -> ReferenceArrays:
    """The arrays, read once a process; those used longest ago are dropped beyond a gigabyte."""
    found = _cache.pop(reference, None) or _read(reference)
    _cache[reference] = found
    while len(_cache) > 1 and sum(a.nbytes for a in _cache.values()) > _CACHE_BYTES:
        _cache.popitem(last=False)
    return found


def _read(reference: Reference) -> ReferenceArrays:
    folder = Path(reference.directory)

    def arrays(kind: str, count: int) -> tuple[Array, ...]:
        return tuple(_load(folder / f"{kind}{i}.npy") for i in range(count))

    return ReferenceArrays(
        arrays("input", reference.inputs),
        arrays("expected", reference.outputs),
        arrays("tolerance", reference.outputs),
    )


def _load(path: Path) -> Array:
    array: Array = np.load(path)
    # numpy's files have no name for bfloat16, the only type that they hold as plain bytes
    return array.view(BFLOAT16.storage) if array.dtype.kind == "V" else array


def _sweep(parent: Path) -> None:
    """Delete the directories of processes that are no more."""
    for folder in parent.glob(f"{_PREFIX}*"):
        match = re.match(rf"{_PREFIX}(\d+)-", folder.name)
        if match and not _runs(int(match[1])):
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
