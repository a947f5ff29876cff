"""What travels between text generation, compilers and devices: buffers, kernels, source, artefact.

All of it is plain data (picklable, no handles), so a build job or a compiled kernel can cross a
process or a wire.  `codegen` makes `Source`, `driver` turns it into `Artifact`, `runtime` loads it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import in_threads
from tilewright.base.dtype import DType

_LARGE = 1 << 20  # bytes that are worth a thread
TENSOR_MAP_BYTES = 128  # of a parameter that says how an argument is seen; aligned to 64
# What a kernel calls in `Source.text`: to wait for the one before it, and, first of all, to let in
# the one behind it, in a network whose kernels begin early.
AWAIT_ONLY, LET_IN_FIRST = "tw_await_kernel_only", "tw_let_next_in_first"


@dataclass(frozen=True)
class Packing:
    """The layout of a constant that is stored in another one: see `schedule.steps.Pack`.

    Every dimension is split into an outer part and its block, zeros filling up the last one, blocks
    perhaps into several parts; parts are permuted, and neighbours made one dimension.

    shape:  of the constant as users know it; blocks: per dimension the size of its block
    order:  of the parts: the outer one of dimension d is d, its block n + d (of blocks of more than
            one element), of a block in several parts the second 2n + d, and so on
    within: per dimension the parts of its block, (): the block is one; of no dimension: ()
    joined: the shape afterwards, where neighbours become one; (): as it is
    then:   what is done to the result
    rounded: whether numbers of float32 are rounded to 11 digits, as matrix units want them
    """

    shape: tuple[int, ...]
    blocks: tuple[int, ...]
    order: tuple[int, ...]
    within: tuple[tuple[int, ...], ...] = ()
    joined: tuple[int, ...] = ()
    then: Packing | None = None
    rounded: bool = False

    def __repr__(self) -> str:
        """The fields that are not as they are by default."""
        told = [(f.name, getattr(self, f.name), f.default) for f in fields(self)]
        return f"Packing({', '.join(f'{n}={v!r}' for n, v, default in told if v != default)})"

    @property
    def packed_shape(self) -> tuple[int, ...]:
        """Of what `apply` gives."""
        if self.then is not None:
            return self.then.packed_shape
        sizes = dict(self._sizes())
        return self.joined or tuple(sizes[k] for k in self.order)

    @property
    def gives_rounded(self) -> bool:
        """Whether what `apply` gives is rounded: moved elements and zeros stay so."""
        return self.rounded or (self.then is not None and self.then.gives_rounded)

    def followed_by(self, other: Packing) -> Packing:
        """This, then the other of its result."""
        then = other if self.then is None else self.then.followed_by(other)
        return replace(self, then=then)

    def apply(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """`array` of `shape` in the packed layout."""
        parts = self._sizes()
        whole = array.reshape(self.shape)
        rest = [(0, -d % b) for d, b in zip(self.shape, self.blocks, strict=True)]
        split = (np.pad(whole, rest) if any(more for _, more in rest) else whole).reshape(
            [size for _, size in parts]
        )
        place = {number: axis for axis, (number, _) in enumerate(parts)}
        words = _as_words(split, self.order[-1] == parts[-1][0])
        packed = _copied(words.transpose([place[k] for k in self.order]))
        packed = packed.view(array.dtype).reshape(
            self.joined or [dict(parts)[k] for k in self.order]
        )
        packed = _rounded(packed) if self.rounded else packed
        return packed if self.then is None else self.then.apply(packed)

    def _sizes(self) -> list[tuple[int, int]]:
        """Parts of all dimensions from the outermost to the innermost: number and size."""
        n = len(self.shape)
        sizes: list[tuple[int, int]] = []
        for d, (extent, block) in enumerate(zip(self.shape, self.blocks, strict=True)):
            inner = (self.within[d] if self.within else ()) or ((block,) if block > 1 else ())
            factors = (-(-extent // block), *inner)
            sizes += [(d + n * part, size) for part, size in enumerate(factors)]
        return sizes


def _as_words(array: npt.NDArray[Any], together: bool) -> npt.NDArray[Any]:
    """An array as unsigned integers, which numpy copies fast and in several threads.

    together: whether what lies along the last axis may be one of them
    """
    plain = array.view(f"u{array.itemsize}")
    nbytes = plain.itemsize * plain.shape[-1] if together and plain.flags.c_contiguous else 0
    return plain.view(f"u{nbytes}") if nbytes in (2, 4, 8) else plain


def _copied(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array, dense: a large one by several threads."""
    if array.ndim < 2 or array.nbytes < _LARGE:
        return np.ascontiguousarray(array)
    made = np.empty(array.shape, array.dtype)
    step = max(1, len(array) * _LARGE // array.nbytes)

    def copy(first: int) -> None:
        made[first : first + step] = array[first : first + step]

    in_threads(copy, range(0, len(array), step))
    return made


def _rounded(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers of float32 to 11 digits, halves away from zero; what is no number stays as it is."""
    words = np.ascontiguousarray(array, np.float32).view(np.uint32)
    found: npt.NDArray[Any] = np.where(
        np.isfinite(array), (words + np.uint32(0x1000)) & np.uint32(0xFFFFE000), words
    ).view(np.float32)
    return found


@dataclass(frozen=True)
class BufferSpec:
    """One global buffer: row-major, `shape` in elements of `dtype`.

    role:    "input", "output", "workspace" (allocated by whoever runs the program), "counters" (a
             workspace that is zero before the first run, after which runs leave it so; runs that
             may go on at the same time have one each), or "extent" (an integer that whoever runs it
             finds in the shapes of the arguments)
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
class TensorMap:
    """How a copy engine sees an argument of a kernel: what is encoded, for the address that the
    argument has at a launch, into a parameter of `TENSOR_MAP_BYTES` (see `ir.bulk.Box`).

    argument: its place among `KernelInfo.args`
    shape, strides: of the tensor, in elements of `dtype`, outermost dimension first
    box:      elements along each dimension from the first to the last one copied; steps: between
    swizzle:  bytes within which pieces of 16 bytes change places in shared memory, 0: none do
    rounded:  whether numbers of float32 come with 11 digits
    """

    argument: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    rounded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype))  # read from a file it is a plain name


@dataclass(frozen=True)
class KernelInfo:
    """How to launch one kernel.

    args:         index of each argument in `Source.buffers`, in the order of the parameters
    grid, block:  threads in x, y, z order; all ones on a CPU
    shared_bytes: bytes of dynamic shared (OpenCL: local) memory
    maps:         further parameters, behind the arguments
    """

    name: str
    args: tuple[int, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    maps: tuple[TensorMap, ...] = ()


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
        return self._waiting == len(self.kernels) > 0

    @property
    def waits_inside(self) -> bool:
        """Whether all kernels but the first do so, for that one and what they themselves write."""
        return self._waiting > 0

    @property
    def _waiting(self) -> int:
        return self.text.count(f"{AWAIT_ONLY}();")

    @property
    def lets_in(self) -> bool:
        """Whether kernels behind may begin, and ask for their weights, while these run."""
        return f"{LET_IN_FIRST}();" in self.text

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
