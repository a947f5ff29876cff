"""CUDA C: the table of the dialect, for NVRTC without any header.

In: a lowered `Program`.  Out: `Source`; shared memory is dynamic, each `KernelInfo` has its bytes.
Read next: `c_family.py`.
"""

from __future__ import annotations

from tilewright.base.artifact import Source
from tilewright.codegen import c_family
from tilewright.codegen.c_dialect import (
    FLOAT_FUNCTIONS,
    INT_FUNCTIONS,
    SUFFIXES,
    VALUE_TYPES,
    VECTORS,
    Dialect,
)
from tilewright.ir.stmt import Program
from tilewright.targets.target import Target

_TYPES = {**VALUE_TYPES, "int64": "long long"}
_WORDS = """
    threadIdx blockIdx blockDim gridDim warpSize clock clock64 dim3 atomicAdd surfaceReference
    textureReference cudaError
"""

DIALECT = Dialect(
    types=_TYPES,
    storage=_TYPES,
    suffixes={**SUFFIXES, "int64": "LL"},
    specials={
        ("float32", "inf"): "__int_as_float(0x7f800000)",
        ("float32", "nan"): "__int_as_float(0x7fc00000)",
        ("float64", "inf"): "__longlong_as_double(0x7ff0000000000000LL)",
        ("float64", "nan"): "__longlong_as_double(0x7ff8000000000000LL)",
    },
    functions={
        **{(name, "float32"): f"{c}f" for name, c in FLOAT_FUNCTIONS.items()},
        **{(name, "float64"): c for name, c in FLOAT_FUNCTIONS.items()},
        **INT_FUNCTIONS,
    },
    vectors={**VECTORS, ("int64", 2): "longlong2"},
    spaces={"global": "", "shared": ""},
    threads={f"{kind}Idx.{d}": f"{kind}Idx.{d}" for kind in ("block", "thread") for d in "xyz"},
    head='extern "C" __global__ void __launch_bounds__({threads}) {name}({params})',
    literal="make_{type}({values})",
    pointer="reinterpret_cast<{type}*>({value})",
    arena="extern __shared__ __align__(16) unsigned char tw_shared[];",
    array="",
    restrict="__restrict__",
    barrier="__syncthreads();",
    unroll="#pragma unroll",
    inline="static __device__ __forceinline__",
    preamble={},
    words=_WORDS,
)  # fmt: skip


def generate(program: Program, target: Target) -> Source:
    """CUDA C for `program`.  Raises InternalError for what lowering must have removed."""
    return c_family.generate(program, target, DIALECT)
