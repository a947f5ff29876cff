"""What travels between text generation, compilers and devices: buffers, kernels, source, artefact.

All of it is plain data (picklable, no handles), so a build job or a compiled kernel can cross a
process or a wire.  `codegen` makes `Source`, `driver` turns it into `Artifact`, `runtime` loads it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BufferSpec:
    """One global buffer: row-major, `shape` in elements of `dtype`.

    role: "input", "output" or "workspace" (allocated by whoever runs the program).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str


@dataclass(frozen=True)
class KernelInfo:
    """How to launch one kernel.

    args:         index of each argument in `Source.buffers`, in the order of the kernel's parameters
    grid, block:  threads in x, y, z order; all ones on a CPU
    shared_bytes: bytes of dynamic shared (OpenCL: local) memory
    """

    name: str
    args: tuple[int, ...]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0


@dataclass(frozen=True)
class Source:
    """Generated text with everything a compiler and a launcher need to know of it.

    buffers: the caller's arguments in order (inputs and outputs), then the workspaces
    kernels: launched in this order, each after the one before it has finished
    """

    target: str
    text: str
    entry_name: str
    buffers: tuple[BufferSpec, ...]
    kernels: tuple[KernelInfo, ...]


@dataclass(frozen=True)
class Artifact:
    """Compiled `source`.  binary: object file (llvm), cubin (cuda), device binary or b"" (opencl).

    resources: per kernel name what the compiler reported (registers, spill_bytes, shared_bytes).
    """

    source: Source
    binary: bytes
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
