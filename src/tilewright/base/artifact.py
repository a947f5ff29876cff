"""What travels between text generation, compilers and devices: buffers, kernels, source, artefact.

All of it is plain data (picklable, no handles), so a build job or a compiled kernel can cross a
process or a wire.  `codegen` makes `Source`, `driver` turns it into `Artifact`, `runtime` loads it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType

AWAIT = "tw_await_kernel"  # what a kernel calls to wait for the one before it, in `Source.text`


@dataclass(frozen=True)
class Packing:
    """The blocked, permuted layout of a constant: see `schedule.steps.Pack`.

    shape: of the constant as users know it; blocks: per dimension; order: of outer dimensions
    0..n-1 and blocks n..2n-1 (of the dimensions that are split)
    """

    shape: tuple[int, ...]
    blocks: tuple[int, ...]
    order: tuple[int, ...]

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """`array` of `shape` in the packed layout; what fills up the last blocks is zero."""
        n = len(self.shape)
        outer = [-(-d // b) for d, b in zip(self.shape, self.blocks, strict=True)]
        rest = [(0, o * b - d) for o, b, d in zip(outer, self.blocks, self.shape, strict=True)]
        split = [x for pair in zip(outer, self.blocks, strict=True) for x in pair]
        whole = array.reshape(self.shape)
        blocked = (np.pad(whole, rest) if any(more for _, more in rest) else whole).reshape(split)
        axes = [2 * k if k < n else 2 * (k - n) + 1 for k in self.order]
        axes += [2 * d + 1 for d in range(n) if n + d not in self.order]  # blocks of one element
        packed = blocked.transpose(axes)
        return np.ascontiguousarray(packed.reshape(packed.shape[: len(self.order)]))


@dataclass(frozen=True)
class BufferSpec:
    """One global buffer: row-major, `shape` in elements of `dtype`.

    role:    "input", "output", "workspace" (allocated by whoever runs the program), or "extent"
             (an integer that whoever runs it finds in the shapes of the arguments)
    packing: of a constant input that kernels read in another layout; `shape` is then the packed one
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: str
    packing: Packing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype))  # read from a file it is a plain name

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """The shape that users pass."""
        return self.shape if self.packing is None else self.packing.shape


@dataclass(frozen=True)
class KernelInfo:
    """How to launch one kernel.

    args:         index of each argument in `Source.buffers`, in the order of the parameters
    grid, block:  threads in x, y, z order; all ones on a CPU
    shared_bytes: bytes of dynamic shared (OpenCL: local) memory
    """

    name: str
    args: tuple[int, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0


@dataclass(frozen=True)
class HostCall:
    """A call of a Python function between kernels.

    before: how many kernels run before it
    args:   of each its kind and what it is: ("array", index in `Source.buffers`, shape),
            ("extent", an `extent.Extent`), ("value", a number or text)
    """

    before: int
    name: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class OpenExtents:
    """What each call gives a value: variables of extents, and integers that kernels read.

    symbols: their names
    places:  of each, the index in `Source.buffers` of the one element that kernels read it from
    shapes:  of each buffer (`extent.Extent`s); `BufferSpec.shape` has 0 where that is no number
    grids:   of each kernel, likewise
    loops:   extents that must be numbers from 1 to 2^31 - 1
    """

    symbols: tuple[str, ...]
    places: tuple[int, ...]
    shapes: tuple[Any, ...]
    grids: tuple[Any, ...]
    loops: tuple[Any, ...]


@dataclass(frozen=True)
class Source:
    """Generated text with everything a compiler and a launcher need to know of it.

    buffers: the caller's arguments in order (inputs and outputs), then the workspaces
    kernels: launched in this order, each after the one before it has finished, or (`waits`) so that
             it waits for that itself
    open:    None where all extents are numbers
    calls:   of Python functions, in order
    """

    target: str
    text: str
    entry_name: str
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelInfo, ...]
    open: OpenExtents | None = None
    calls: tuple[HostCall, ...] = ()

    def arguments(self, kernel: KernelInfo) -> tuple[BufferSpec, ...]:
        """The buffers that a kernel takes, in the order of its parameters."""
        return tuple(self.buffers[i] for i in kernel.args)

    @property
    def waits(self) -> bool:
        """Whether each kernel itself waits for the one before it, in all its threads, before it
        touches what others write or still read: only such a one may begin before that has ended."""
        return f"{AWAIT}();" in self.text

    def digest(self) -> str:
        """Equal for equal programs, across processes."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Artifact:
    """Compiled `source`.  binary: object file (llvm), cubin (cuda), device binary or b"" (opencl).

    resources: per kernel name what the compiler reported (registers, spill_bytes, shared_bytes).
    """

    source: Source
    binary: bytes
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
