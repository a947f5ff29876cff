"""Kernels with gates and bulk copies, their warps one after the other.

In: the body of such a kernel as CUDA C, what its tensor maps say.  Out: the same with gates and
copies in software, and what decides which warp runs.  One warp runs at a time: until it waits for a
gate that is closed, meets a barrier or ends, and in one of both orders of warps also when it has
arrived at a gate.  The first of the others then goes on that waits for nothing still to come.
Copies are made where they begin or, late, when no warp can go on, one after the other.  Where none
can even then, all go on as if gates were open, and what they compute shows that something is wrong.
The four warps of a group that multiplies have one turn: its instructions want them all.
Read next: `serial_threads.py`.
"""

from __future__ import annotations

import re

from tilewright.base.artifact import KernelInfo, TensorMap

GATED = "tw_await_gate("  # of a text with gates
SOFT = "tw_soft_copy("  # of one in which this module made its copies
_CALLS = {
    r"\btw_make_gates\(": "tw_soft_make(",
    r"\btw_(fence|show)\(\);": "",
    r"\btw_expect\(": "tw_soft_expect(tw_soft, ",
    r"\btw_arrive\(": "tw_soft_arrive(tw_soft, ",
    r"\btw_await_gate\(": "tw_soft_await(tw_soft, ",
}
_COPY = re.compile(r"\btw_bulk_\d\((.*), (\w+), (&[^&]*?), ([^&]*)\);")

# A gate is 8 bytes: bytes and arrivals that it waits for, arrivals of a phase, its parity.
HELPERS = """
#define TW_BOXES 16
struct tw_gate { int bytes; unsigned short left, all; };
struct tw_view {
  long long shape[5], stride[5];
  int box[5], step[5], bytes, swizzle, rounded;
};
struct tw_box {
  unsigned char* to;
  const unsigned char* from;
  long long* gate;
  const tw_view* view;
  int at[5];
};
struct tw_board {
  tw_uint running, stuck, begin, end, warps, backwards, late, x, y, grouped, lost, met[8];
  tw_uint state[32], parity[32];
  const long long* gate[32];
  tw_box held[TW_BOXES];
};
enum { TW_READY, TW_WAITS, TW_MET, TW_ENDED };
static __device__ __noinline__ bool tw_soft_open(const long long* of, tw_uint parity) {
  const tw_uint all = ((const volatile tw_gate*)of)->all;
  return (all & 0x7fff) > 32 || (all >> 15) != parity;  // what was never made keeps nobody
}
static __device__ __noinline__ void tw_soft_settle(volatile tw_gate* gate) {
  if (gate->left == 0 && gate->bytes == 0) {
    gate->all = gate->all ^ 0x8000;
    gate->left = gate->all & 0x7fff;
  }
}
static __device__ __noinline__ void tw_soft_make(long long* gates, int count, tw_uint arrivals) {
  for (int k = 0; k < count; ++k) {
    volatile tw_gate* gate = (volatile tw_gate*)(gates + k);
    gate->bytes = 0;
    gate->left = gate->all = (unsigned short)arrivals;
  }
}
static __device__ __noinline__ void tw_soft_land(const tw_box* one) {
  const tw_view* v = one->view;
  int at[5] = {0, 0, 0, 0, 0}, offset = 0;
  for (bool more = true; more; ) {
    long long place = 0;
    bool inside = true;
    for (int d = 0; d < 5; ++d) {
      const long long k = one->at[d] + (long long)at[d] * v->step[d];
      inside = inside && k >= 0 && k < v->shape[d];
      place += k * v->stride[d];
    }
    const int turned = offset ^ ((offset >> 7 & (v->swizzle / 16 - (v->swizzle > 0))) << 4);
    for (int k = 0; k < v->bytes; ++k) {
      one->to[turned + k] = inside ? one->from[place * v->bytes + k] : 0;
    }
    if (v->rounded) {
      const float x = *(const float*)(one->to + turned);
      tw_uint y = __float_as_uint(x);
      y = fabsf(x) < __int_as_float(0x7f800000) ? (y + 0x1000u) & 0xffffe000u : y;
      *(tw_uint*)(one->to + turned) = y;
    }
    offset += v->bytes;
    more = false;
    for (int d = 0; d < 5 && !more; ++d) {
      more = ++at[d] < v->box[d];
      if (!more) at[d] = 0;
    }
  }
  tw_soft_show();
  volatile tw_gate* gate = (volatile tw_gate*)one->gate;
  gate->bytes = gate->bytes - offset;
  tw_soft_settle(gate);
}
static __device__ __noinline__ void tw_soft_next(volatile tw_board* b, tw_uint last) {
  while (true) {
    bool met = false, waits = false;
    for (tw_uint k = 0; k <= b->warps; ++k) {  // the one that ran last comes behind all others
      const tw_uint w = k == b->warps ? last : b->backwards ? b->warps - 1 - k : k;
      const tw_uint state = b->state[w];
      if (w == last && k < b->warps) continue;
      if (state == TW_READY || (state == TW_WAITS && tw_soft_open(b->gate[w], b->parity[w]))) {
        b->state[w] = TW_READY;
        TW_FENCE;
        b->running = w + 1;
        return;
      }
      met = met || state == TW_MET;
      waits = waits || state == TW_WAITS;
    }
    if (b->begin != b->end) {
      tw_soft_land((const tw_box*)&b->held[b->begin % TW_BOXES]);
      b->begin = b->begin + 1;
      continue;
    }
    if (!met && !waits) {
      b->running = 0;
      return;
    }
    b->stuck = b->stuck || waits;
    for (tw_uint w = 0; w < b->warps; ++w) if (b->state[w] != TW_ENDED) b->state[w] = TW_READY;
  }
}
static __device__ __noinline__ tw_uint tw_soft_thread(volatile tw_board* b) {
  return threadIdx.x + b->x * (threadIdx.y + b->y * threadIdx.z);
}
// The first warp of those that have one turn; whether a thread is the first of them.
static __device__ __noinline__ tw_uint tw_soft_unit(volatile tw_board* b) {
  const tw_uint me = tw_soft_thread(b);
  return me < b->grouped ? me / 128 * 4 : me / 32;
}
static __device__ __noinline__ bool tw_soft_first(volatile tw_board* b) {
  return tw_soft_thread(b) == 32 * tw_soft_unit(b);
}
// What some of them did before is done.  Where a warp never comes, all go on after a time.
static __device__ __noinline__ void tw_soft_sync(volatile tw_board* b) {
  const tw_uint me = tw_soft_thread(b);
  __syncwarp();
  if (me < b->grouped) {
    if (me % 32 == 0) {
      TW_FENCE;
      const tw_uint until = tw_soft_add(&b->met[me / 128]) / 4 * 4 + 4;
      for (int k = 0; (int)(b->met[me / 128] - until) < 0 && !b->lost; ++k) {
        tw_pause();
        if (k == 1 << 16) b->lost = b->stuck = 1;
      }
      TW_FENCE;
    }
    __syncwarp();
  }
}
static __device__ __noinline__ void tw_soft_turn(volatile tw_board* b) {
  if (tw_soft_thread(b) % 32 == 0) {
    while (b->running != tw_soft_unit(b) + 1 && !b->lost) tw_pause();
    TW_FENCE;
  }
  tw_soft_sync(b);
}
static __device__ __noinline__ void tw_soft_yield(volatile tw_board* b, tw_uint state) {
  if (tw_soft_first(b)) b->running = 0;  // so that its group waits for as long as copies take
  tw_soft_sync(b);
  if (tw_soft_first(b)) {
    TW_FENCE;
    b->state[tw_soft_unit(b)] = state;
    tw_soft_next(b, tw_soft_unit(b));
  }
}
static __device__ __noinline__ void tw_soft_meet(volatile tw_board* b) {
  tw_soft_yield(b, TW_MET);
  tw_soft_turn(b);
}
static __device__ __noinline__
void tw_soft_await(volatile tw_board* b, const long long* gate, tw_uint parity) {
  tw_soft_sync(b);
  const bool open = b->stuck || tw_soft_open(gate, parity);
  tw_soft_sync(b);
  if (open) return;
  if (tw_soft_first(b)) {
    b->gate[tw_soft_unit(b)] = gate;
    b->parity[tw_soft_unit(b)] = parity;
  }
  tw_soft_yield(b, TW_WAITS);
  tw_soft_turn(b);
}
static __device__ __noinline__ void tw_soft_arrived(long long* of, int bytes) {
  volatile tw_gate* gate = (volatile tw_gate*)of;
  gate->bytes = gate->bytes + bytes;
  gate->left = gate->left - 1;
  tw_soft_settle(gate);
}
static __device__ __noinline__
void tw_soft_expect(volatile tw_board* b, long long* gate, int bytes) {
  tw_soft_arrived(gate, bytes);
}
static __device__ __noinline__ void tw_soft_arrive(volatile tw_board* b, long long* gate) {
  tw_soft_sync(b);
  if (tw_soft_first(b)) {
    const int warps = tw_soft_thread(b) < b->grouped ? 4 : 1;
    for (int k = 0; k < warps; ++k) tw_soft_arrived(gate, 0);
  }
  if (b->backwards) {
    tw_soft_yield(b, TW_READY);
    tw_soft_turn(b);
  }
  tw_soft_sync(b);
}
static __device__ __noinline__
void tw_soft_copy(volatile tw_board* b, void* to, const void* from, long long* gate,
    const tw_view* view, int c0, int c1, int c2, int c3, int c4) {
  const tw_box one = {(unsigned char*)to, (const unsigned char*)from, gate, view,
      {c0, c1, c2, c3, c4}};
  if (!b->late) {
    tw_soft_land(&one);
    return;
  }
  if (b->end - b->begin == TW_BOXES) {
    tw_soft_land((const tw_box*)&b->held[b->begin % TW_BOXES]);
    b->begin = b->begin + 1;
  }
  *(tw_box*)&b->held[b->end % TW_BOXES] = one;
  b->end = b->end + 1;
}
"""
PAUSE = """static __device__ __forceinline__ void tw_pause() { asm volatile("nanosleep.u32 40;"); }
static __device__ __forceinline__ tw_uint tw_soft_add(volatile tw_uint* to) {
  return atomicAdd((tw_uint*)to, 1u);
}
static __device__ __forceinline__ void tw_soft_show() {  // to groups that multiply, what is copied
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
"""
BODY = """{views}{function} void {name}_body({takes}) {{
  tw_soft_turn(tw_soft);{begin}
{body}
  tw_soft_yield(tw_soft, TW_ENDED);
}}
{head} {{
{declared}
  __shared__ tw_board tw_soft;
  const tw_uint me = {linear};
{poison}
  if (me == 0) {{
    tw_soft.stuck = tw_soft.lost = tw_soft.begin = tw_soft.end = 0;
    tw_soft.running = (tw_soft.backwards = tw_order[0]) ? {warps} : 1;
    tw_soft.warps = {warps};
    tw_soft.late = tw_order[4];
    tw_soft.x = {x};
    tw_soft.y = {y};
    tw_soft.grouped = {grouped};
    for (int k = 0; k < 8; ++k) tw_soft.met[k] = 0;
    for (int k = 0; k < {warps}; ++k) {{
      tw_soft.state[k] = 32 * k < {grouped} && k % 4 ? TW_ENDED : TW_READY;
    }}
  }}
  {barrier}
  tw_rest(tw_now() + (tw_ulong)tw_order[3] * (tw_order[0] ? {blocks} - 1 - ({block}) : {block}));
  {call}
}}
"""


def grouped(body: str) -> int:
    """Threads of groups that multiply, which are the first of a block; those behind them only load.

    Each of their warps arrives at the gates of what was read.
    """
    return 32 * max(map(int, re.findall(r"\btw_make_gates\(.*, (\d+)\);", body)))


def in_software(body: str, kernel: KernelInfo, barrier: str) -> str:
    """The body with gates, copies and barriers that a board, `tw_soft`, keeps."""
    for pattern, instead in _CALLS.items():
        body = re.sub(pattern, instead, body)
    return _COPY.sub(lambda m: _copied(m, kernel), body).replace(barrier, "tw_soft_meet(tw_soft);")


def _copied(found: re.Match[str], kernel: KernelInfo) -> str:
    to, view, gate, corner = found.groups()
    numbers = [n.strip() for n in _split(corner)]
    numbers += ["0"] * (5 - len(numbers))
    source = f"tw_source_{view}"
    return f"{SOFT}tw_soft, {to}, {source}, {gate}, &tw_view_{kernel.name}_{view}, " + (
        f"{', '.join(numbers)});"
    )


def _split(text: str) -> list[str]:
    """Arguments of a call, at commas that no parentheses hold."""
    parts, depth = [""], 0
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def views(kernel: KernelInfo, names: list[str]) -> str:
    """What each tensor map says, as a constant; names: of the parameters, in order."""
    lines = []
    for view, name in zip(kernel.maps, names, strict=True):
        lines.append(f"static __device__ const tw_view tw_view_{kernel.name}_{name} = {_of(view)};")
    return "".join(f"{line}\n" for line in lines)


def _of(view: TensorMap) -> str:
    box = tuple((n - 1) // s + 1 for n, s in zip(view.box, view.steps, strict=True))
    rows = [
        (*reversed(numbers), *(fill,) * (5 - len(numbers)))
        for numbers, fill in (
            (view.shape, 1), (view.strides, 0), (box, 1), (view.steps, 1)
        )
    ]  # fmt: skip
    inner = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in rows)
    return "{" + f"{inner}, {view.dtype.bytes}, {view.swizzle}, {int(view.rounded)}" + "}"


def sources(kernel: KernelInfo, names: list[str], arguments: list[str]) -> list[str]:
    """Lines that name what each map sees; arguments: names of the kernel's parameters."""
    pairs = zip(kernel.maps, names, strict=True)
    return [f"const void* const tw_source_{n} = {arguments[v.argument]};" for v, n in pairs]
