"""The same kernels with the threads of a block one after the other: what hardware hides shows.

In: CUDA C or OpenCL C as `c_family.py` writes it.  Out: a `Source` whose kernels compute the same
where they are right, and hardly where they are not: where a barrier is missing, threads race, or
shared memory is read before it is written.  For devices with warps of 32 threads that make progress
each for itself, as NVIDIA's do since sm_70.  Read next: `measure/thread_order.py`, which runs them.

Between two barriers a thread runs when those before it have arrived at the second, in an order and
in groups that one more argument gives; blocks begin some time after each other, in that order, too.
Threads of a warp run in step whatever they wait for, so where each takes its own turn, each calls
the body from a place of its own.  What a warp does together needs all its lanes: such kernels take
turns by warps, or by groups of four where these multiply, and the order of lanes is not tried.
Asynchronous copies are made by the thread
itself, as soon or as late as can be: where they begin, or where they are waited for.  Only time
depends on all this: who has waited too long goes on, and nothing that is right becomes wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import prod

from tilewright.base.artifact import AWAIT_ONLY, LET_IN_FIRST, BufferSpec, KernelInfo, Source
from tilewright.base.dtype import DType
from tilewright.codegen import cuda, opencl, serial_gates
from tilewright.codegen.c_dialect import LAST, LET_IN, Dialect

WARP, GROUP = 32, 128
_ORDER = BufferSpec("tw_order", DType("int32"), (5,), "input")
_LOCAL = re.compile(r"^  (__local (\w+) (\w+)\[\d+\] __attribute__\(\(aligned\(16\)\)\);)\n", re.M)
_ARENA = re.compile(r"extern __shared__ .*;")
_UNFIT = re.compile(r"\b(return|goto|asm|\w*(shfl|syncwarp|activemask|ballot)\w*)\b")
_MAP = re.compile(r"^const __grid_constant__ tw_map (\w+)$")
_BY_GROUP = "tw_mma_m64"  # with which names of what a group of warps does begin
_TOGETHER = ("tw_mma_", "tw_rows_", "tw_exchange")  # names of what a warp does together begin so
_COPIES = "tw_begin("  # of a text with asynchronous copies
_KEPT = "tw_copies"  # of one that waits for any, though it may have none
_BEGUN = {  # what is called for asynchronous copies and to wait for a kernel, and what instead
    r"\btw_copy_(\d+)\(": rf"{_COPIES}&tw_copies, \1, ",
    r"\btw_commit\(\)": "++tw_copies.commits",
    r"\btw_wait_copies\(": "tw_settle(&tw_copies, ",
    # These kernels are launched when the one before has ended.
    rf"\b({AWAIT_ONLY}|{LET_IN_FIRST}|{LET_IN})\(\);": "",
}

# Both know PTX.  What is in the places `tw_apart` keeps the compiler from joining them again.
_COMMON = """
#define tw_apart(k) asm volatile("nanosleep.u32 " #k ";")
TW_INLINE tw_ulong tw_now(void) {
  tw_ulong now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
TW_INLINE void tw_rest(tw_ulong until) {
  while (tw_now() < until) asm volatile("nanosleep.u32 200;");
}
TW_INLINE void tw_wait(TW_TURN turn, tw_uint at, tw_ulong until) {
  while ((int)(*turn - at) < 0 && tw_now() < until) asm volatile("nanosleep.u32 40;");
  TW_FENCE;
}
TW_INLINE void tw_pass(TW_TURN turn) {
  TW_FENCE;
  TW_COUNT(turn);
}
TW_INLINE tw_uint tw_meet(TW_TURN turn, tw_uint at, tw_uint threads, tw_ulong until) {
  tw_pass(turn);
  asm volatile("barrier.sync 0;" ::: "memory");
  tw_wait(turn, at + threads, until);
  return at + threads;
}
"""
# A copy that is the TW_HELD-th to wait is made before its wait: no more are held.
_LATE = """#define TW_HELD 64
struct tw_flight { void* to; const void* from; tw_uint bytes, group; bool wanted; };
struct tw_flights { tw_flight held[TW_HELD]; tw_uint begin, end, commits, late; };
static __device__ __noinline__ void tw_land(const tw_flight* f) {
  for (tw_uint k = 0; k < f->bytes / 4; ++k) {
    ((tw_uint*)f->to)[k] = f->wanted ? ((const tw_uint*)f->from)[k] : 0u;
  }
}
static __device__ __noinline__
void tw_begin(tw_flights* f, tw_uint bytes, void* to, const void* from, bool wanted) {
  const tw_flight one = {to, from, bytes, f->commits, wanted};
  if (!f->late) {
    tw_land(&one);
    return;
  }
  if (f->end - f->begin == TW_HELD) tw_land(&f->held[f->begin++ % TW_HELD]);
  f->held[f->end++ % TW_HELD] = one;
}
static __device__ __noinline__ void tw_settle(tw_flights* f, tw_uint pending) {
  while (f->begin != f->end && f->held[f->begin % TW_HELD].group + pending < f->commits) {
    tw_land(&f->held[f->begin++ % TW_HELD]);
  }
}
"""
# The first thread counts the block in its turn; all others are told behind a barrier.
_COUNT = """static __device__ __noinline__
bool tw_count(tw_uint* at, TW_TURN turn, tw_ulong until, tw_uint threads, volatile tw_uint* told,
    bool first, int* counter, tw_uint last) {
  if (first) {
    __threadfence();
    *told = atomicInc((tw_uint*)counter, last) == last;
    __threadfence();
  }
  *at = tw_meet(turn, *at, threads, until);
  return *told;
}
"""
_COUNTED = re.compile(rf"\b{LAST}\((.*), (\d+u)\)\) \{{")
_TOLD = "tw_told"
_FLIGHTS = """
  tw_flights tw_copies;
  tw_copies.begin = tw_copies.end = tw_copies.commits = 0;
  tw_copies.late = tw_late;"""
_CUDA = """typedef unsigned int tw_uint;
typedef unsigned long long tw_ulong;
#define TW_INLINE static __device__ __forceinline__
#define TW_TURN volatile tw_uint*
#define TW_FENCE __threadfence_block()
#define TW_COUNT(turn) atomicAdd((tw_uint*)(turn), 1u)
"""
_OPENCL = """typedef uint tw_uint;
typedef ulong tw_ulong;
#define TW_INLINE static inline
#define TW_TURN volatile __local tw_uint*
#define TW_FENCE mem_fence(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define TW_COUNT(turn) atomic_inc(turn)
"""
_BODY = """{function} void {name}_body({takes}) {{
  tw_wait(tw_turn, tw_at, tw_until);{begin}
{body}
  tw_pass(tw_turn);
}}
{head} {{
{declared}
  const tw_uint me = {linear};
{poison}
  if (me == 0) tw_turn = 0;
  {barrier}
  const tw_uint group = {group}, first = me / group * group;
  const tw_uint end = first + group < {threads} ? first + group : {threads};
  const tw_uint at = tw_order[0] ? {threads} - end : first;
  tw_rest(tw_now() + (tw_ulong)tw_order[3] * (tw_order[0] ? {blocks} - 1 - ({block}) : {block}));
  const tw_ulong until = tw_now() + 1000 * (tw_ulong)tw_order[2];
{turns}
}}
"""
_SINGLY = """  if (group > 1) {{
    {call}
    return;
  }}
  switch (me % {warp}) {{
{calls}
  }}"""
# NaN in every type of floats and the largest int32, then large numbers, which a maximum shows.
_POISON = """  for (tw_uint k = me; k < {nbytes}; k += {threads})
    (({space}unsigned char*){name})[k] = tw_order[0] || k % 4 == 3 ? 0x7f : 0xff;"""


@dataclass(frozen=True)
class _Words:
    """What differs between the dialects.

    prelude:  what `_COMMON` and the kernels use
    function: what stands before a function that is called, never inlined
    turn:     the declaration of the count in a kernel
    order:    the last parameter of a kernel
    """

    dialect: Dialect
    prelude: str
    function: str
    turn: str
    order: str


_WORDS = {
    "cuda": _Words(
        cuda.DIALECT, _CUDA, "static __device__ __noinline__", "__shared__ tw_uint tw_turn;",
        "const int* tw_order",
    ),
    "opencl": _Words(
        opencl.DIALECT, _OPENCL, "static __attribute__((noinline))", "__local tw_uint tw_turn;",
        "__global const int* tw_order",
    ),
}  # fmt: skip


def order(
    *, backwards: bool, group: int, seconds: float, apart: float = 0.0, late: bool = False
) -> tuple[int, ...]:
    """The value of the last input, int32[5].

    group:   so many neighbours have one turn: 1, or whole warps; never less than a warp where one
             does something together
    seconds: after which the threads of a block run as they like
    apart:   seconds from the begin of one block to that of the next, if all fit on the device
    late:    whether asynchronous copies are made at their wait
    """
    return int(backwards), group, max(1, int(seconds * 1e6)), int(apart * 1e9), int(late)


def copies(source: Source) -> bool:
    """Whether what `serialized` gave has asynchronous copies, to be tried early and late."""
    return _COPIES in source.text or serial_gates.SOFT in source.text


def serialized(source: Source) -> Source | str | None:
    """`source` with threads that take turns, and one more input; where they cannot, why not.

    None where there is nothing to show: one thread in all, or a kind without such threads
    """
    words = _WORDS.get(source.target.partition(" ")[0])
    if words is None or all(prod(k.grid + k.block) == 1 for k in source.kernels):
        return None
    text = source.text
    for kernel in source.kernels:
        changed = _changed(text, kernel, words)
        if isinstance(changed, _Unfit):
            return changed.why
        text = changed
    last = len(source.buffers)
    late = _LATE if _KEPT in text else ""
    if serial_gates.SOFT in text:
        late += serial_gates.PAUSE + serial_gates.HELPERS
    late += _COUNT if _TOLD in text else ""
    return replace(
        source, text=f"{words.prelude}{_COMMON}{late}{text}", buffers=(*source.buffers, _ORDER),
        kernels=tuple(replace(k, args=(*k.args, last), maps=()) for k in source.kernels),
    )  # fmt: skip


def _turns(body: str) -> str:
    """How many threads have one turn: whole warps, or whole groups, that do something together."""
    if _BY_GROUP in body:
        return f"(tw_order[1] + {GROUP - 1}) / {GROUP} * {GROUP}"
    together = any(name in body for name in _TOGETHER)
    return f"tw_order[1] < {WARP} ? {WARP} : tw_order[1]" if together else "tw_order[1]"


def _poisoned(arrays: list[tuple[str, str, int | str]], threads: int, dialect: Dialect) -> str:
    space = dialect.spaces["shared"]
    return "\n".join(
        _POISON.format(nbytes=size, threads=threads, name=n, space=space) for _, n, size in arrays
    )


@dataclass(frozen=True)
class _Unfit:
    why: str


def _changed(text: str, kernel: KernelInfo, words: _Words) -> str | _Unfit:
    dialect, (x, y, z), name = words.dialect, kernel.block, kernel.name
    threads = x * y * z
    head = dialect.head.format(name=name, params="\0", threads=threads, x=x, y=y, z=z)
    before, opens, rest = text.partition(head.partition("\0")[0])
    params, found, rest = rest.partition(") {\n")
    body, closes, after = rest.partition("\n}\n")
    if not (opens and found and closes):
        return _Unfit("its text is not as it is generated")
    if (unfit := _UNFIT.search(body)) is not None:
        return _Unfit(f"its text has {unfit.group()}")
    arrays: list[tuple[str, str, int | str]] = []  # declaration, name, bytes
    handed: list[tuple[str, str]] = []  # type, name: OpenCL declares local memory in kernels only
    if not dialect.array:
        arena = _ARENA.search(body)
        line = arena.group().replace("tw_shared", "tw_memory") if arena else ""  # the same memory
        arrays = [(line, "tw_memory", kernel.shared_bytes)] if kernel.shared_bytes else []
    else:
        for line, kind, array in _LOCAL.findall(f"{body}\n"):
            arrays.append((line, array, f"sizeof({array})"))
            handed.append((f"__local {kind}*", array))
        body = _LOCAL.sub("", f"{body}\n")
    for pattern, instead in _BEGUN.items():
        body = re.sub(pattern, instead, body)
    copied, together = _KEPT in body, any(name in body for name in _TOGETHER)
    body, joins = _COUNTED.subn(
        f"tw_count(&tw_at, tw_turn, tw_until, {threads}, {_TOLD}, tw_first, \\1, \\2)) {{"
        + (" __syncwarp();" if together else ""),
        body,
    )
    own = [p.strip() for p in params.split(",") if p.strip()]
    maps = [view.group(1) for p in own if (view := _MAP.match(p)) is not None]
    own = [p for p in own if _MAP.match(p) is None]
    gated = serial_gates.GATED in body
    grouped = serial_gates.grouped(body) if gated and _BY_GROUP in body else 0
    if grouped >= threads:  # a warp of a group would wait while the others have no turn
        return _Unfit("groups of warps wait for gates of copies that one of their warps begins")
    if gated and joins:
        return _Unfit("blocks that wait for gates are counted")
    given = [re.findall(r"\w+$", p)[0] for p in own] + [n for _, n in handed]
    takes = own + [f"{kind} {n}" for kind, n in handed]
    begin = ("\n  __syncwarp();" if together else "") + (_FLIGHTS if copied else "")
    late = ["tw_order[4]"] if copied else []
    counted = [f"&{_TOLD}", "me == 0"] if joins else []
    if gated:
        names = [re.findall(r"\w+$", p)[0] for p in own]
        begin += "".join(f"\n  {s}" for s in serial_gates.sources(kernel, maps, names))
        body = serial_gates.in_software(body, kernel, dialect.barrier)
    call = f"{name}_body({', '.join([*given, '&tw_turn', 'at', 'until', *late, *counted])});"
    calls = "\n".join(
        f"    case {k}: tw_apart({k}); {call} tw_apart({k}); break;"
        for k in range(min(WARP, threads))
    )
    met = f"tw_at = tw_meet(tw_turn, tw_at, {threads}, tw_until);"
    tx, ty, tz, bx, by, bz = (
        dialect.threads[f"{kind}Idx.{d}"] for kind in ("thread", "block") for d in "xyz"
    )
    gx, gy, _ = kernel.grid
    if gated:
        return before + serial_gates.BODY.format(
            views=serial_gates.views(kernel, maps), function=words.function, name=name, begin=begin,
            takes=", ".join([*own, "tw_board* tw_soft", *(["tw_uint tw_late"] if copied else [])]),
            body=body, head=head.replace("\0", ", ".join([*own, words.order])),
            declared="\n".join(f"  {d}" for d, *_ in arrays), x=x, y=y, warps=threads // WARP,
            grouped=grouped,
            linear=f"{tx} + {x} * ({ty} + {y} * {tz})", blocks=f"{prod(kernel.grid)}u",
            block=f"(tw_uint)({bx} + {gx} * ({by} + {gy} * {bz}))", barrier=dialect.barrier,
            poison=_poisoned(arrays, threads, dialect),
            call=f"{name}_body({', '.join([*given, '&tw_soft', *late])});",
        ) + after  # fmt: skip
    changed = _BODY.format(
        function=words.function, name=name, threads=threads, begin=begin,
        takes=", ".join([
            *takes, "TW_TURN tw_turn", "tw_uint tw_at", "tw_ulong tw_until",
            *(["tw_uint tw_late"] if copied else []),
            *([f"volatile tw_uint* {_TOLD}", "bool tw_first"] if joins else []),
        ]),
        body=body.replace(dialect.barrier, met + (" __syncwarp();" if together else "")),
        head=head.replace("\0", ", ".join([*own, words.order])),
        declared="\n".join(f"  {line}" for line in [
            *(d for d, *_ in arrays), words.turn,
            *([f"__shared__ tw_uint {_TOLD};"] if joins else []),
        ]),
        linear=f"{tx} + {x} * ({ty} + {y} * {tz})", blocks=f"{prod(kernel.grid)}u",
        block=f"(tw_uint)({bx} + {gx} * ({by} + {gy} * {bz}))",
        poison=_poisoned(arrays, threads, dialect),
        barrier=dialect.barrier,
        group=_turns(body),
        turns=f"  {call}" if together else _SINGLY.format(call=call, calls=calls, warp=WARP),
    )  # fmt: skip
    return f"{before}{changed}{after}"
