"""One kernel for every extent: what a call's arrays say its variables are, and the launches then.

In: a `Source` with open extents, the arguments of a call.  Out: the values of its variables, and
buffers and kernels with numbers.  Read next: `module.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.artifact import BufferSpec, KernelInfo, OpenExtents, Source
from tilewright.base.errors import DeviceError
from tilewright.base.extent import text_of, value_of
from tilewright.runtime.ndarray import NDArray

_MOST = 2**31 - 1  # of an extent and of the elements of an array: kernels count in 32 bits


def values_of(source: Source, given: Sequence[Any]) -> dict[str, int]:
    """The value of every variable.  given: the arguments, without the extents that callers leave.

    Raises DeviceError where two shapes disagree, or a loop would have no iteration or too many.
    """
    known = source.open
    assert known is not None
    place = f"{source.entry_name}()"
    values: dict[str, int] = {}
    origin: dict[str, str] = {}
    for name, at in zip(known.symbols, known.places, strict=True):
        if 0 <= at < len(given) and source.buffers[at].role == "input":
            values[name], origin[name] = _number(given[at], place, name), "the argument"
    for at, value in enumerate(given):
        if not isinstance(value, NDArray):
            continue
        for name, extent in zip(known.shapes[at], value.shape, strict=False):
            if not isinstance(name, str):
                continue
            who = f"{source.buffers[at].name} of shape {list(value.shape)}"
            if values.setdefault(name, extent) != extent:
                raise DeviceError(
                    f"{place}: {name}", f"{origin[name]} makes it {values[name]}, {who} {extent}",
                    "Pass arrays whose shapes agree.",
                )  # fmt: skip
            origin.setdefault(name, who)
    missing = [name for name in known.symbols if name not in values]
    if missing:
        raise DeviceError(f"{place}: {missing[0]}", "no array says what it is")
    _check(place, known, values)
    return values


def _number(value: Any, place: str, name: str) -> int:
    number = value.numpy() if isinstance(value, NDArray) else value
    try:
        return int(number)
    except (TypeError, ValueError):
        raise DeviceError(
            f"{place}: {name}", f"it is a {type(value).__name__}, not an integer", "Give one."
        ) from None


def _check(place: str, known: OpenExtents, values: Mapping[str, int]) -> None:
    for extent in known.loops:
        count = value_of(extent, values)
        if not 1 <= count <= _MOST:
            raise DeviceError(
                f"{place}: {text_of(extent)}", f"it is {count}, and must be 1 to {_MOST}",
                "Use other extents, or build the kernel with numbers for them.",
            )  # fmt: skip


def with_numbers(
    source: Source, values: Mapping[str, int]
) -> tuple[tuple[BufferSpec, ...], tuple[KernelInfo, ...]]:
    """The buffers and kernels of `source` for these values of its variables."""
    known = source.open
    assert known is not None
    buffers = tuple(
        replace(spec, shape=tuple(value_of(n, values) for n in shape))
        for spec, shape in zip(source.buffers, known.shapes, strict=True)
    )
    for spec in buffers:
        if spec.size > _MOST:
            raise DeviceError(
                f"{source.entry_name}(): {spec.name}", f"{spec.size} elements are too many",
                f"At most {_MOST}; build the kernel with numbers for its extents.",
            )  # fmt: skip
    kernels = []
    for info, grid in zip(source.kernels, known.grids, strict=True):
        x, y, z = (value_of(n, values) for n in grid)
        kernels.append(replace(info, grid=(x, y, z)))
    return buffers, tuple(kernels)
