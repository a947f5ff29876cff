"""OpenCL C: the table of the dialect, for OpenCL 1.2 and newer.

In: a lowered `Program`.  Out: `Source`; local memory is declared in the kernels.
Read next: `c_family.py`.
"""

from __future__ import annotations

import math

from tilewright.base.artifact import Source
from tilewright.base.dtype import DType
from tilewright.codegen import c_family
from tilewright.codegen.c_dialect import Dialect
from tilewright.ir.stmt import Program
from tilewright.targets.target import Target

_WORDS = """
    global local constant private generic kernel pipe event image1d image2d image3d sampler
    read_only write_only read_write barrier mem_fence get_local_id get_group_id get_global_id
    select step smoothstep mix clamp dot cross distance length normalize any all shuffle convert
    prefetch async_work_group_copy upsample rotate popcount clz mad mad24 mul24 sign degrees
    radians maxmag minmag powr pown rootn fract nan vec_step as_int as_float
"""

# Every OpenCL converts a half in memory; chars may be read as anything.
_CONVERSIONS = {
    ("float16", "float32"): """(ushort x) {
  const uchar2 y = as_uchar2(x);
  return vload_half(0, (const __private half*)&y);
}
""",
    ("float32", "float16"): """(float x) {
  uchar2 y;
  vstore_half_rte(x, 0, (__private half*)&y);
  return as_ushort(y);
}
""",
    ("bfloat16", "float32"): """(ushort x) {
  return as_float((uint)x << 16);
}
""",
    ("float32", "bfloat16"): """(float x) {
  const uint y = as_uint(x);
  return x != x ? (ushort)0x7fff : (ushort)((y + 0x7fffu + (y >> 16 & 1u)) >> 16);
}
""",
    ("float64", "odd"): """(double x) {
  const float y = convert_float_rtz(x);
  return (double)y == x ? y : as_float(as_uint(y) | 1u);
}
""",
}


def _special(value: float, dtype: DType) -> str:
    name = "NAN" if math.isnan(value) else "INFINITY"
    return name if dtype.bits == 32 else f"({dtype.spelling.opencl}){name}"


def _vector(dtype: DType, lanes: int) -> str:
    return f"{DIALECT.storage(dtype)}{lanes}"


DIALECT = Dialect(
    language="opencl",
    stored={"bool": "uchar"},  # a bool has no size that the host knows
    suffixes={"int64": "L", "uint64": "UL"},
    special=_special,
    float_function="{name}",
    product=lambda _: "#pragma OPENCL FP_CONTRACT OFF\n  return a * b;",
    conversions=_CONVERSIONS,
    vector=_vector,
    packs=False,
    spaces={"global": "__global ", "shared": "__local "},
    threads={
        f"{kind}Idx.{d}": f"get_{name}_id({i})"
        for kind, name in (("block", "group"), ("thread", "local"))
        for i, d in enumerate("xyz")
    },
    head="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))\nvoid {name}({params})",
    literal="({type})({values})",
    pointer="({type}*)({value})",
    arena="__local uchar tw_shared[{bytes}] __attribute__((aligned({alignment})));",
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
