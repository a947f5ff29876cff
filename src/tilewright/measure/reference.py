"""`Reference`: what the kernels of a task are verified with, in files that workers read once.

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

from tilewright.base.case import Case
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
    also: how many further cases there are
    """

    directory: str
    inputs: int
    outputs: int
    also: int = 0


@dataclass(frozen=True)
class ReferenceArrays(Case):
    """The case that is timed, and others: see `runtime.trial`."""

    also: tuple[Case, ...] = ()

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(case.nbytes for case in self.also)


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
        also: Sequence[Case] = (),
    ) -> Reference:
        """Store the arrays of task `name` (such as its DAG's hash).

        expected, tolerance: one per output buffer; a tolerance broadcasts to its output.
        also: further cases of the same task.
        Raises DeviceError when the temporary directory is full.
        """
        try:
            folder = Path(tempfile.mkdtemp(dir=self._directory))
            for number, case in enumerate((Case.of(inputs, expected, tolerance), *also)):
                _write(folder, number, case)
        except OSError as error:
            raise DeviceError(
                f"reference of {name}",
                f"{self._directory} cannot be written ({error.strerror or error})",
                "Free some space there, or set TMPDIR to a larger directory.",
            ) from None  # fmt: skip
        self._known[name] = Reference(str(folder), len(inputs), len(expected), len(also))
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


def _write(folder: Path, number: int, case: Case) -> None:
    groups = {"input": case.inputs, "expected": case.expected, "tolerance": case.tolerance}
    for kind, arrays in groups.items():
        for i, array in enumerate(arrays):
            np.save(folder / f"{number}-{kind}{i}.npy", np.asarray(array, order="C"))


def _read(reference: Reference) -> ReferenceArrays:
    folder = Path(reference.directory)

    def arrays(number: int, kind: str, count: int) -> tuple[Array, ...]:
        return tuple(_load(folder / f"{number}-{kind}{i}.npy") for i in range(count))

    def case(number: int) -> Case:
        return Case(
            arrays(number, "input", reference.inputs),
            arrays(number, "expected", reference.outputs),
            arrays(number, "tolerance", reference.outputs),
        )

    first, *also = (case(number) for number in range(1 + reference.also))
    return ReferenceArrays(first.inputs, first.expected, first.tolerance, tuple(also))


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
