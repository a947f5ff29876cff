"""CUDA C for groups of warps that multiply: `wgmma` of sm_90a, its batches, its fences.

In: names of atoms.  Out: the texts of functions that kernels call, made when one is asked for.
Read next: `cuda.py`.

A tile of shared memory is told by a descriptor: address, bytes from eight rows to the next eight,
and the swizzle, which the unit undoes.  Sums are in flight between two statements: compilers know
nothing of that, so both ends say that they touch each sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.codegen.c_dialect import MMA_BEGIN, MMA_END, SHOW, UNIFORM, multiply
from tilewright.ir.atoms import GROUP_ATOMS, Atom
from tilewright.ir.swizzle import PIECE

SUFFIX = "a"  # of the architecture that has them: code for it runs on no other
_FORMS = {128: 1, 64: 2, 32: 3}  # swizzle -> what descriptors call it
_CODES = {"float16": "f16", "bfloat16": "bf16", "tf32": "tf32"}
_MMA = """#define TW_TILE_{shape}(p, form, step) \\
  ((unsigned long long)((__cvta_generic_to_shared(p) & 0x3ffff) >> 4) | 1ull << 16 \\
  | (unsigned long long)(step) << 32 | (unsigned long long)(form) << 62)
template <int A, int B> static __device__ __forceinline__
void {name}(float* d, const void* a, const void* b) {{
  const unsigned long long left = TW_TILE_{shape}(a, A & 3, A >> 2);
  const unsigned long long right = TW_TILE_{shape}(b, B & 3, B >> 2);
  asm volatile("wgmma.mma_async.sync.aligned.{shape}.f32.{code}.{code} "
      "{{{places}}}, %{left}, %{right}, 1, 1, 1{order};"
      : {outputs}
      : "l"(left), "l"(right));
}}
"""
# Nothing is made of the statement on a sum: it keeps the compiler from moving or copying it.
_HELD = """  #pragma unroll
  for (int k = 0; k < N; ++k) asm volatile("" : "+f"(d[k]) :: "memory");
"""
_TEXTS = {
    MMA_BEGIN: f"""template <int N> static __device__ __forceinline__ void {MMA_BEGIN}(float* d) {{
{_HELD}  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}}
""",
    MMA_END: f"""template <int N, int P> static __device__ __forceinline__
void {MMA_END}(float* d) {{
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(P) : "memory");
{_HELD}}}
""",
    UNIFORM: f"""static __device__ __forceinline__ bool {UNIFORM}(bool test) {{
  return __shfl_sync(0xffffffffu, (int)test, 0) != 0;
}}
""",
    SHOW: f"""static __device__ __forceinline__ void {SHOW}() {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}}
""",
}


def form(swizzle: int) -> int:
    """How the template of an atom is told the swizzle of a tile: bits 0 and 1 of a descriptor's
    bits 62 and 63, above them those of the way to the next eight rows."""
    return swizzle * 8 // PIECE << 2 | _FORMS[swizzle]


def _multiply(atom: Atom) -> str:
    shape, _, code = atom.name.partition(".")
    count = atom.sum.elements
    return _MMA.format(
        name=multiply(atom.name), shape=shape, code=_CODES[code],
        places=", ".join(f"%{k}" for k in range(count)), left=count, right=count + 1,
        order=", 0, 0" if code != "tf32" else "",
        outputs=", ".join(f'"+f"(d[{k}])' for k in range(count)),
    )  # fmt: skip


class GroupInstructions(Mapping[str, str]):
    """The texts by the names of their functions."""

    def __init__(self) -> None:
        self._atoms = {multiply(name): atom for name, atom in GROUP_ATOMS.items()}

    def __getitem__(self, name: str) -> str:
        return _TEXTS[name] if name in _TEXTS else _multiply(self._atoms[name])

    def __contains__(self, name: object) -> bool:
        return name in _TEXTS or name in self._atoms

    def __iter__(self) -> Iterator[str]:
        return iter((*_TEXTS, *self._atoms))

    def __len__(self) -> int:
        return len(_TEXTS) + len(self._atoms)
