"""Inputs and outputs of a network in files of numpy's, and inputs that nobody gave.

In: the path of an archive, the inputs that a library has.  Out: arrays by name; an archive.
Read next: `library.py`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base import output
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.runtime.network.plan import Array, TensorSpec

_NUMPY, _ZIP = b"\x93NUMPY", b"PK"
FILLS = ("random", "zeros", "ones")


def filled(shape: Sequence[int], dtype: str, fill: str) -> Array:
    """An input that nobody gave.

    fill: "random": from the standard normal distribution, of integers zeros; "zeros"; "ones"
    """
    if fill == "ones":
        return np.ones(shape, dtype)
    if fill == "random" and DType(dtype).is_float:
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype)


def complete(
    given: Mapping[str, Any], specs: Sequence[TensorSpec], fill: str, place: str
) -> dict[str, Any]:
    """`given`, and for the other inputs what `filled` makes.

    Raises ModelError for the name of no input.
    """
    names = [spec.name for spec in specs]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ModelError(
            place, f"the network has no input {unknown[0]!r}",
            f"It has {', '.join(map(str, names)) or 'none'}.",
        )  # fmt: skip
    return {
        s.name: given[s.name] if s.name in given else filled(s.shape, s.dtype, fill) for s in specs
    }


def read_arrays(path: str | os.PathLike[str], place: str) -> dict[str, Array]:
    """The arrays of a file of numpy's, which is no program.  Raises ModelError."""
    arrays: dict[str, Array] = {}
    try:
        with open(path, "rb") as file:
            if not file.read(len(_NUMPY)).startswith((_NUMPY, _ZIP)):
                raise ValueError("it is no file of numpy")
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ValueError("it is one array without a name")
        with found:
            for name in found.files:
                arrays[name] = _numbers(found, name)
    except Exception as error:  # a damaged archive raises many kinds
        reason = error.strerror if isinstance(error, OSError) else ""
        raise ModelError(
            place, f"it cannot be read ({reason or error})", "Write it with numpy.savez."
        ) from None
    return arrays


def _numbers(archive: Any, name: str) -> Array:
    """An array of an archive.  Raises ValueError for a damaged one, and for objects of Python."""
    try:
        array: Array = archive[name]
    except ValueError:  # numpy's way out is to run them
        raise ValueError(f"{name} is damaged, or holds no numbers") from None
    return array


def check_output(path: str | os.PathLike[str], place: str) -> None:
    """Raises ModelError where `write_arrays` would not replace what is there."""
    output.check(path, _ARRAYS, place, ModelError)


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, Any], place: str) -> None:
    """Write an archive as numpy.savez does, under the name that was given.

    Raises ModelError where it cannot be written, or a file of another kind is there.
    """
    with output.replacing(path, _ARRAYS, place, ModelError) as made, open(made, "wb") as file:
        np.savez(file, **arrays)


def _has_arrays(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False


_ARRAYS = output.FileKind("a file of numpy.savez", _has_arrays)
