"""CUDA C: the table of the dialect, for NVRTC without any header.

In: a lowered `Program`.  Out: `Source`; shared memory is dynamic, each `KernelInfo` has its bytes.
Read next: `c_family.py`.

float16 and bfloat16 are converted by inline PTX, one element at a time: the assembler makes one
instruction of the two conversions that fill or read a register.
"""

from __future__ import annotations

import math
from collections import ChainMap
from dataclasses import replace

from tilewright.base.artifact import AWAIT_ONLY, LET_IN_FIRST, Source
from tilewright.base.dtype import DType
from tilewright.codegen import byte_floats, c_family, maxima
from tilewright.codegen.asked_first import asked_first
from tilewright.codegen.c_dialect import (
    FRESH,
    LAST,
    LET_IN,
    TENSOR_MAP,
    UNIFORM,
    Dialect,
    async_copy,
    bulk_copy,
    instruction,
    load_rows,
    multiply,
)
from tilewright.codegen.c_value import WORD_WHERE
from tilewright.codegen.cuda_groups import GroupInstructions
from tilewright.codegen.kept_in_place import kept_in_place
from tilewright.codegen.maxima import maxima_at_once
from tilewright.codegen.reads_ahead import reads_ahead
from tilewright.codegen.reads_first import reads_first
from tilewright.codegen.steady_first import steady_first
from tilewright.codegen.waiting import as_chain
from tilewright.ir.atoms import ATOMS, CROSSED, Atom, Fragment, Tile
from tilewright.ir.bulk import MOST_DIMENSIONS
from tilewright.ir.stmt import ASYNC_BYTES, Program
from tilewright.targets.target import Target

_WORDS = """
    threadIdx blockIdx blockDim gridDim warpSize clock clock64 dim3 atomicAdd surfaceReference
    textureReference cudaError atomicInc
"""
# Architectures before sm_80 round bfloat16 by hand: half an ulp, less a bit that makes ties even.
_CONVERSIONS = {
    ("float16", "float32"): """(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
""",
    ("float32", "float16"): """(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
""",
    ("bfloat16", "float32"): """(unsigned short x) {
  return __uint_as_float((unsigned int)x << 16);
}
""",
    ("float32", "bfloat16"): """(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const unsigned int y = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((y + 0x7fffu + (y >> 16 & 1u)) >> 16);
#endif
}
""",
    ("float64", "odd"): """(double x) {
  const float y = __double2float_rz(x);
  return (double)y == x ? y : __uint_as_float(__float_as_uint(y) | 1u);
}
""",
}


# Before sm_80 the copy is made where it would begin.  What is not wanted is not read either.
_COPY = """static __device__ __forceinline__ void {name}(void* to, const void* from, bool wanted) {{
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.{cache}.shared.global [%0], [%1], {bytes}, %2;"
      :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(from), "r"(wanted ? {bytes} : 0)
      : "memory");
#else
  for (int k = 0; k < {bytes} / 4; ++k) {{
    ((unsigned int*)to)[k] = wanted ? ((const unsigned int*)from)[k] : 0u;
  }}
#endif
}}
"""
_MMA = """static __device__ __forceinline__
void {name}({sums}* d, const {left}* a, const {right}* b) {{
{split}  asm volatile({text}
      : "+{r}"(d[0]), "+{r}"(d[1]), "+{r}"(d[2]), "+{r}"(d[3])
      : {words});
}}
"""
# The larger part is rounded in integers, which compilers see through: what several atoms read is
# taken apart once.  Of the rest the unit cuts the last digit; that, and the product of the smaller
# parts, count for less than what a sum of float32 may be off by.  Small products come first.
_SPLIT = """  unsigned int a0[4], a1[4], b0[2], b1[2];
  for (int k = 0; k < 4; ++k) {
    a0[k] = (__float_as_uint(a[k]) + 0x1000u) & 0xffffe000u;
    a1[k] = __float_as_uint(a[k] - __uint_as_float(a0[k]));
  }
  for (int k = 0; k < 2; ++k) {
    b0[k] = (__float_as_uint(b[k]) + 0x1000u) & 0xffffe000u;
    b1[k] = __float_as_uint(b[k] - __uint_as_float(b0[k]));
  }
"""
_ROWS = """static __device__ __forceinline__ void {name}({kind}* to, const void* row) {{
  unsigned int {words};
  asm volatile(
      "{{ .reg .u64 place; .reg .u32 near;"
      " cvta.to.shared.u64 place, {row}; cvt.u32.u64 near, place;"
      " ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{places}}}, [near]; }}"
      : {outputs} : "l"(row) : "memory");
{stored}}}
"""
_CODES = {  # of operands: by an atom's name where that says it, else by their types
    "float16": "f16", "bfloat16": "bf16", "tf32": "tf32", "3xtf32": "tf32", "int8": "s8",
    "uint8": "u8",
}  # fmt: skip


def _multiply(atom: Atom) -> str:
    """The function for an atom: one instruction, or one for each product of parts."""
    shape, _, code = atom.name.partition(".")
    codes = [_CODES.get(code) or _CODES[of.dtype] for of in (atom.a, atom.b)]
    floats = atom.sum.dtype.is_float
    forms: tuple[tuple[tuple[int, int], tuple[int, int]], ...]  # operands a and b of each
    if atom.split:
        words = [f'"r"({x}{part}[{k}])' for x, n in (("a", 4), ("b", 2)) for part in "01"
                 for k in range(n)]  # fmt: skip
        forms = ((8, 4), (12, 2)), ((4, 4), (14, 2)), ((4, 4), (12, 2))
    else:
        words = [
            _word(name, k, of)
            for name, n, of in (("a", 4, atom.a), ("b", 2, atom.b)) for k in range(n)
        ]  # fmt: skip
        forms = (((4, 4), (8, 2)),)
    total = "f32" if floats else "s32"
    head = f"mma.sync.aligned.{shape}.row.col.{total}.{'.'.join(codes)}.{total}"
    sums = "{%0, %1, %2, %3}"
    lines = [f'"{head}"\n      " {sums}, {_places(a)}, {_places(b)}, {sums};"' for a, b in forms]
    left, right, kind = (of.dtype.spelling.cuda for of in (atom.a, atom.b, atom.sum))
    return _MMA.format(
        name=multiply(atom.name), sums=kind, left=left, right=right, r="f" if floats else "r",
        text="\n      ".join(lines), split=_SPLIT if atom.split else "", words=", ".join(words),
    )  # fmt: skip


def _places(part: tuple[int, int]) -> str:
    """Operands of an instruction: the first of them and how many."""
    first, count = part
    return f"{{{', '.join(f'%{k}' for k in range(first, first + count))}}}"


def _word(name: str, k: int, of: Fragment | Tile) -> str:
    """Of 32 bits, with neighbouring elements where they are smaller."""
    if of.dtype.bits == 32:
        return f'"r"(__float_as_uint({name}[{k}]))'
    if of.dtype.bits == 16:
        first, second = (_place(of, 2 * k + half) for half in range(2))
        return f'"r"((unsigned int){name}[{first}] | (unsigned int){name}[{second}] << 16)'
    parts = (f"(unsigned int)(unsigned char){name}[{4 * k + j}] << {8 * j}" for j in range(4))
    return f'"r"({" | ".join(parts)})'


def _place(of: Fragment | Tile, half: int) -> int:
    """Among the elements of a lane, of a half of the words: first those along k, then rows."""
    assert isinstance(of, Fragment)
    bits = of.element.split()
    along, across = ([n for n, bit in enumerate(bits) if (bit[0] == "k") is is_k]
                     for is_k in (True, False))  # fmt: skip
    order = [along[0], *across, *along[1:]]
    return sum((half >> n & 1) << bit for n, bit in enumerate(order))


def _load_rows(matrices: int, bits: int, transposed: bool) -> str:
    words = [f"w{k}" for k in range(matrices)]
    places = ", ".join(f"%{k}" for k in range(matrices))
    outputs = ", ".join(f'"=r"({w})' for w in words)
    stored, kind = [], {32: "float", 16: "unsigned short"}.get(bits, "T")
    for k, w in enumerate(words):
        if bits == 32:
            stored.append(f"  to[{k}] = __uint_as_float({w});\n")
        elif bits == 16:
            stored.append(f"  to[{2 * k}] = {w}; to[{2 * k + 1}] = {w} >> 16;\n")
        else:
            stored += [f"  to[{4 * k + j}] = (T)({w} >> {8 * j});\n" for j in range(4)]
    text = _ROWS.format(
        name=load_rows(matrices, bits, transposed), count=matrices, words=", ".join(words),
        kind=kind, trans=".trans" if transposed else "", places=places, outputs=outputs,
        row=f"%{matrices}", stored="".join(stored),
    )  # fmt: skip
    return f"template <typename T> {text}" if kind == "T" else text


_BULK = """static __device__ __forceinline__
void {name}(void* to, const tw_map& map, void* gate, {corner}) {{
  asm volatile("cp.async.bulk.tensor.{n}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {{{places}}}], [%2];"
      :: "r"((unsigned int)__cvta_generic_to_shared(to)), "l"(&map),
         "r"((unsigned int)__cvta_generic_to_shared(gate)), {values} : "memory");
}}
"""


def _bulk_copy(n: int) -> str:
    corner = [f"c{k}" for k in range(n)]
    return _BULK.format(
        name=bulk_copy(n), n=n, corner=", ".join(f"int {c}" for c in corner),
        places=", ".join(f"%{3 + k}" for k in range(n)),
        values=", ".join(f'"r"({c})' for c in corner),
    )  # fmt: skip


# What waits for a gate that never opens ends with an error, after a time in which all else has.
# Who arrives says that it has read what the engine writes next.  Its loads may still be under way
# then (the assembler waits for none of them), unless it has shown them: `tw_show` stands before.
_GATES = {
    # Groups of warps multiply one batch after the other where a branch seems to part their lanes.
    UNIFORM: """static __device__ __forceinline__ int tw_uniform(int index) {
  return __shfl_sync(0xffffffffu, index, 0);
}
""",
    TENSOR_MAP: "struct alignas(64) tw_map { unsigned long long words[16]; };\n",
    **{bulk_copy(n): _bulk_copy(n) for n in range(1, MOST_DIMENSIONS + 1)},
    "tw_make_gates": """static __device__ __forceinline__
void tw_make_gates(long long* gates, int count, unsigned int arrivals) {
  for (int k = 0; k < count; ++k) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"((unsigned int)__cvta_generic_to_shared(gates + k)), "r"(arrivals) : "memory");
  }
}
""",
    "tw_fence": """static __device__ __forceinline__ void tw_fence() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
""",
    "tw_expect": """static __device__ __forceinline__
void tw_expect(long long* gate, unsigned int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
      :: "r"((unsigned int)__cvta_generic_to_shared(gate)), "r"(bytes) : "memory");
}
""",
    "tw_arrive": """static __device__ __forceinline__ void tw_arrive(long long* gate) {
  __syncwarp();
  if ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32 == 0) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
        :: "r"((unsigned int)__cvta_generic_to_shared(gate)) : "memory");
  }
}
""",
    "tw_await_gate": """static __device__ __forceinline__
bool tw_is_open(unsigned int gate, unsigned int parity) {
  unsigned int open;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
      " selp.u32 %0, 1, 0, p; }" : "=r"(open) : "r"(gate), "r"(parity) : "memory");
  return open != 0;
}
static __device__ __forceinline__ void tw_await_gate(const long long* gate, unsigned int parity) {
  const unsigned int near = (unsigned int)__cvta_generic_to_shared(gate);
  if (tw_is_open(near, parity)) return;
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  while (!tw_is_open(near, parity)) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin > 8000000000ull) __trap();
  }
}
""",
}
DEPENDENT_ARCH = 90  # the first on which a kernel can wait for the one before it
_INSTRUCTIONS = {
    **{
        load_rows(*form): _load_rows(*form)
        for n in (1, 2, 4)
        for form in ((n, 8, False), (n, 16, False), (n, 16, True), (n, 32, False))
    },
    **{multiply(a.name): _multiply(a) for a in (*ATOMS.values(), *CROSSED.values())},
    **{
        async_copy(n): _COPY.format(name=async_copy(n), bytes=n, cache="cg" if n == 16 else "ca")
        for n in ASYNC_BYTES
    },
    **_GATES,
    byte_floats.BYTE: byte_floats.TEXT,
    byte_floats.BYTE8: byte_floats.TEXT8,
    **byte_floats.HALVES_TEXTS,
    instruction(byte_floats.BYTES): byte_floats.BYTES_TEXT,
    instruction(byte_floats.WHOLE): byte_floats.WHOLE_TEXT,
    maxima.MAXIMUM: maxima.TEXT,
    # Compilers branch around loads whose conditions differ from one to the next.
    instruction(WORD_WHERE): f"""static __device__ __forceinline__
unsigned int tw_{WORD_WHERE}(const void* from, bool wanted) {{
  unsigned int word;
  asm volatile("{{ .reg .pred p; setp.ne.u32 p, %2, 0; mov.u32 %0, 0;"
      " @p ld.shared.u32 %0, [%1]; }}"
      : "=&r"(word)
      : "r"((unsigned int)__cvta_generic_to_shared(from)), "r"((unsigned int)wanted)
      : "memory");
  return word;
}}
""",
    instruction("tf32"): """static __device__ __forceinline__ float tw_tf32(float x) {
  unsigned int y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}
""",
    # Of equal powers compilers keep one if this is a function to them, not PTX.
    instruction("two_to"): """static __device__ __forceinline__ float tw_two_to(float x) {
  return __nvvm_ex2_approx_ftz_f(x);
}
""",
    # What a pointer is after the wait must not be known to be what it was before: compilers read
    # `const __restrict__` arguments by ld.global.nc, which the assembler moves across
    # griddepcontrol.wait.  The detour by the address in global memory keeps ld.global.
    FRESH: f"""#if __CUDA_ARCH__ >= {DEPENDENT_ARCH}0
template <typename T> static __device__ __forceinline__ T* {FRESH}(T* p) {{
  size_t place = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(place) :: "memory");
  return (T*)__cvta_global_to_generic(place);
}}
#else
#define {FRESH}(p) (p)
#endif
""",
    # Blocks of a kernel behind that come while all of this one's run are dealt to the cores that
    # have room for them then, several to one: those of a join come when shares are done, and find
    # the last blocks at work.
    AWAIT_ONLY: f"""#if __CUDA_ARCH__ >= {DEPENDENT_ARCH}0
#define {AWAIT_ONLY}() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define {AWAIT_ONLY}()
#endif
""",
    **{
        name: f"""#if __CUDA_ARCH__ >= {DEPENDENT_ARCH}0
#define {name}() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define {name}()
#endif
"""
        for name in (LET_IN, LET_IN_FIRST)
    },
    # The first thread hands on what barriers put before to whoever finds its count (release), takes
    # what others handed on so (acquire), and the barrier shows it to all threads of its block.
    # A counter that was full begins at 0 again.
    LAST: f"""static __device__ __forceinline__ bool {LAST}(int* counter, unsigned int last) {{
  unsigned int found = 0;
  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {{
#if __CUDA_ARCH__ >= 700
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
        : "=r"(found) : "l"(__cvta_generic_to_global(counter)), "r"(last) : "memory");
#else
    __threadfence();
    found = atomicInc((unsigned int*)counter, last);
    __threadfence();
#endif
    found = found == last;
  }}
  return __syncthreads_or(found);
}}
""",
    "tw_exchange": """template <typename T> static __device__ __forceinline__
void tw_exchange(T* to, const T* from, int apart) {
  *to = (T)__shfl_xor_sync(0xffffffffu, *from, apart);
}
""",
    # One lane asks for a line: what others want of it costs as much, and brings nothing.
    "tw_prefetch": """static __device__ __forceinline__ void tw_prefetch(const void* from) {
  const size_t place = __cvta_generic_to_global(from);
  if (place % 128 == 0) asm volatile("prefetch.global.L2 [%0];" :: "l"(place));
}
""",
    "tw_commit": """static __device__ __forceinline__ void tw_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
""",
    "tw_wait_copies": """#if __CUDA_ARCH__ >= 800
#define tw_wait_copies(n) asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory")
#else
#define tw_wait_copies(n)
#endif
""",
}


def _special(value: float, dtype: DType) -> str:
    if dtype.bits == 32:
        return f"__int_as_float(0x{'7fc00000' if math.isnan(value) else '7f800000'})"
    return f"__longlong_as_double(0x{'7ff8' if math.isnan(value) else '7ff0'}{0:012x}LL)"


def _vector(dtype: DType, lanes: int) -> str:
    """CUDA's vectors have at most four lanes: smaller elements share words."""
    if dtype.bytes < 4:
        return f"uint{lanes * dtype.bytes // 4}"
    return f"{dtype.spelling.cuda.replace('unsigned ', 'u').replace(' ', '')}{lanes}"


DIALECT = Dialect(
    language="cuda",
    stored={},
    suffixes={},
    special=_special,
    float_function="{name}{suffix}",
    product=lambda dtype: f"return __{'f' if dtype.bits == 32 else 'd'}mul_rn(a, b);",
    conversions=_CONVERSIONS,
    vector=_vector,
    packs=True,
    spaces={"global": "", "shared": ""},
    threads={f"{kind}Idx.{d}": f"{kind}Idx.{d}" for kind in ("block", "thread") for d in "xyz"},
    head='extern "C" __global__ void __launch_bounds__({threads}) {name}({params})',
    literal="make_{type}({values})",
    pointer="reinterpret_cast<{type}*>({value})",
    arena="extern __shared__ __align__({alignment}) unsigned char tw_shared[];",
    array="",
    restrict="__restrict__",
    barrier="__syncthreads();",
    unroll="#pragma unroll",
    inline="static __device__ __forceinline__",
    preamble={},
    words=_WORDS,
    instructions=ChainMap(_INSTRUCTIONS, GroupInstructions()),  # type: ignore[arg-type]
)  # fmt: skip


def generate(program: Program, target: Target) -> Source:
    """CUDA C for `program`.  Raises InternalError for what lowering must have removed."""
    if not target.waits:
        program = replace(program, steady=None)
    program = kept_in_place(program)
    if target.waits and program.steady is None:
        program = as_chain(program)
    if program.lets_in:
        program = asked_first(steady_first(program, target.limits.shared_bytes_per_block))
        program = reads_ahead(program)
    return c_family.generate(maxima_at_once(reads_first(program)), target, DIALECT)
