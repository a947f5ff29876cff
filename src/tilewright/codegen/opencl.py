"""OpenCL C: the table of the dialect, for OpenCL 1.2 and newer.

In: a lowered `Program`.  Out: `Source`; local memory is declared in the kernels.
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

_TYPES = {**VALUE_TYPES, "int64": "long"}
_WORDS = """
    global local constant private generic kernel pipe event image1d image2d image3d sampler
    read_only write_only read_write barrier mem_fence get_local_id get_group_id get_global_id
    select step smoothstep mix clamp dot cross distance length normalize any all shuffle convert
    prefetch async_work_group_copy upsample rotate popcount clz mad mad24 mul24 sign degrees
    radians maxmag minmag powr pown rootn fract nan vec_step as_int as_float
"""

DIALECT = Dialect(
    types=_TYPES,
    storage={**_TYPES, "bool": "uchar"},  # a bool has no size that the host knows
    suffixes={**SUFFIXES, "int64": "L"},
    specials={
        ("float32", "inf"): "INFINITY",
        ("float32", "nan"): "NAN",
        ("float64", "inf"): "(double)INFINITY",
        ("float64", "nan"): "(double)NAN",
    },
    functions={
        **{(n, t): c for n, c in FLOAT_FUNCTIONS.items() for t in ("float32", "float64")},
        **INT_FUNCTIONS,
    },
    vectors={**VECTORS, ("int64", 2): "long2"},
    spaces={"global": "__global ", "shared": "__local "},
    threads={
        f"{kind}Idx.{d}": f"get_{name}_id({i})"
        for kind, name in (("block", "group"), ("thread", "local"))
        for i, d in enumerate("xyz")
    },
    head="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({params})",
    literal="({type})({values})",
    pointer="({type}*)({value})",
    arena="__local uchar tw_shared[{bytes}] __attribute__((aligned(16)));",
    array="__local {type} {name}[{size}] __attribute__((aligned(16)));",
    restrict="restrict",
    barrier="barrier(CLK_LOCAL_MEM_FENCE);",
    unroll="#pragma unroll",
    inline="static inline",
    preamble={
        "": "#pragma OPENCL FP_CONTRACT ON",
        "float64": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable",
    },
    words=_WORDS,
)  # fmt: skip


def generate(program: Program, target: Target) -> Source:
    """OpenCL C for `program`.  Raises InternalError for what lowering must have removed."""
    return c_family.generate(program, target, DIALECT)
