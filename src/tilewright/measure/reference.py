"""`Reference`: what the kernels of a task are verified with, in files that workers read once.

In: arrays.  Out: a small value with a path, which crosses processes.  The files live as long as
their `ReferenceStore`.  Read next: `local.py`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.case import Case
from tilewright.base.dtype import DType
from tilewright.base.errors import Unavailable
from tilewright.measure.run_folder import RunFolder

Array = npt.NDArray[Any]
# Of a large machine more, so that the tasks of a decoder need not be read again and again.
_MACHINE_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
_CACHE_BYTES = min(max(1 << 30, _MACHINE_BYTES // 16), 4 << 30)


@dataclass(frozen=True)
class Reference:
    """Where the arrays of one task lie; equal for equal tasks of one store.

    inputs, outputs: how many there are
    also: how many further cases there are
    constants: which inputs are known when a network is built
    given: digest of the inputs that were not drawn at random; "" where all were
    """

    directory: str
    inputs: int
    outputs: int
    also: int = 0
    constants: tuple[int, ...] = ()
    given: str = ""


@dataclass(frozen=True)
class ReferenceArrays(Case):
    """The case that is timed, and others: see `runtime.trial`."""

    also: tuple[Case, ...] = ()

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(case.nbytes for case in self.also)


class ReferenceStore:
    """The references of all tasks of a run, in a `RunFolder`, which goes with the store."""

    def __init__(self) -> None:
        try:
            self._folder = RunFolder()
        except OSError as error:
            raise _full("references", tempfile.gettempdir(), error) from None
        self.directory = str(self._folder.path)
        self._known: dict[str, Reference] = {}

    def get(self, name: str) -> Reference | None:
        return self._known.get(name)

    def put(
        self,
        name: str,
        inputs: Sequence[Array],
        expected: Sequence[Array],
        tolerance: Sequence[Array | float],
        also: Sequence[Case] = (),
        constants: Sequence[int] = (),
        given: str = "",
    ) -> Reference:
        """Store the arrays of task `name` (such as its DAG's hash).

        expected, tolerance: one per output buffer; a tolerance broadcasts to its output.
        also: further cases of the same task; constants, given: see `Reference`.
        Raises Unavailable when the temporary directory is full; what was written of it is removed.
        """
        case = Case.of(inputs, expected, tolerance)
        return self.note(name, write(self.directory, name, (case, *also), constants, given))

    def note(self, name: str, reference: Reference) -> Reference:
        """Keep what was written into the store's directory, by whatever process."""
        self._known[name] = reference
        return reference

    def close(self) -> None:
        self._folder.close()

    def __enter__(self) -> ReferenceStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write(
    directory: str, name: str, cases: Sequence[Case], constants: Sequence[int], given: str
) -> Reference:
    """Write the arrays of a task into a folder of their own.

    cases: the one that is timed first; constants, given: see `Reference`
    Raises Unavailable when there is no space; what was written is removed.
    """
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(dir=directory))
        for number, case in enumerate(cases):
            _write(folder, number, case)
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise _full(f"reference of {name}", directory, error) from None
    timed, *also = cases
    return Reference(
        str(folder), len(timed.inputs), len(timed.expected), len(also), tuple(constants), given
    )


def digest(inputs: Mapping[str, Array]) -> str:
    """Of arrays by name; "" for none."""
    if not inputs:
        return ""
    total = hashlib.sha256()
    for name, value in sorted(inputs.items()):
        total.update(f"{name} {value.dtype} {value.shape}\0".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()


_cache: OrderedDict[Reference, ReferenceArrays] = OrderedDict()


def load(reference: Reference) -> ReferenceArrays:
    """The arrays, read once a process; those used longest ago are dropped beyond some gigabytes."""
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
    array.flags.writeable = False
    # numpy's files have no name for bfloat16, the only type that they hold as plain bytes
    return array.view(DType("bfloat16").storage) if array.dtype.kind == "V" else array


def _full(place: str, directory: str, error: OSError) -> Unavailable:
    return Unavailable(
        place, f"{directory} cannot be written ({error.strerror or error})",
        "Free some space there, or set TMPDIR to a larger directory.",
    )  # fmt: skip
