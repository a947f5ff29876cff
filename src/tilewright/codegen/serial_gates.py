"""Kernels with gates and bulk copies, their warps one after the other.

In: the body of such a kernel as CUDA C, what its tensor maps say.  Out: the same with gates and
copies in software, and what decides which warp runs.  One warp runs at a time: until it waits for a
gate that is closed, meets a barrier or ends, and in one of both orders of warps also when it has
arrived at a gate.  The first of the others then goes on that waits for nothing still to come.
Copies are made where they begin or, late, when no warp can go on, one after the other.  Where none
can even then, all go on as if gates were open, and what they compute shows that something is wrong.
Read next: `serial_threads.py`.
"""

from __future__ import annotations

import re

from tilewright.base.artifact import KernelInfo, TensorMap

GATED = "tw_await_gate("  # of a text with gates
SOFT = "tw_soft_copy("  # of one in which this module made its copies
_CALLS = {
    r"\btw_make_gates\(": "tw_soft_make(",
    r"\btw_fence\(\);": "",
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
  tw_uint running, stuck, begin, end, warps, backwards, late, x, y;
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
static __device__ __noinline__ void tw_soft_turn(volatile tw_board* b) {
  const tw_uint me = tw_soft_thread(b);
  if (me % 32 == 0) {
    while (b->running != me / 32 + 1) tw_pause();
    TW_FENCE;
  }
  __syncwarp();
}
static __device__ __noinline__ void tw_soft_yield(volatile tw_board* b, tw_uint state) {
  const tw_uint me = tw_soft_thread(b);
  __syncwarp();
  if (me % 32 == 0) {
    TW_FENCE;
    b->state[me / 32] = state;
    tw_soft_next(b, me / 32);
  }
}
static __device__ __noinline__ void tw_soft_meet(volatile tw_board* b) {
  tw_soft_yield(b, TW_MET);
  tw_soft_turn(b);
}
static __device__ __noinline__
void tw_soft_await(volatile tw_board* b, const long long* gate, tw_uint parity) {
  __syncwarp();  // what some of its lanes did before is done
  const bool open = b->stuck || tw_soft_open(gate, parity);
  __syncwarp();
  if (open) return;
  const tw_uint me = tw_soft_thread(b);
  if (me % 32 == 0) {
    b->gate[me / 32] = gate;
    b->parity[me / 32] = parity;
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
  __syncwarp();
  if (tw_soft_thread(b) % 32 == 0) tw_soft_arrived(gate, 0);
  if (b->backwards) {
    tw_soft_yield(b, TW_READY);
    tw_soft_turn(b);
  }
  __syncwarp();
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
    tw_soft.stuck = tw_soft.begin = tw_soft.end = 0;
    tw_soft.running = (tw_soft.backwards = tw_order[0]) ? {warps} : 1;
    tw_soft.warps = {warps};
    tw_soft.late = tw_order[4];
    tw_soft.x = {x};
    tw_soft.y = {y};
    for (int k = 0; k < {warps}; ++k) tw_soft.state[k] = TW_READY;
  }}
  {barrier}
  tw_rest(tw_now() + (tw_ulong)tw_order[3] * (tw_order[0] ? {blocks} - 1 - ({block}) : {block}));
  {call}
}}
"""


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
