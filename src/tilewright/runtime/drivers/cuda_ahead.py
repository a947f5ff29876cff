"""Weights asked for ahead: on their way into the second-level cache while kernels before run.

In: the launches of a plan that replays as a graph, with what of their memory nobody writes.  Out:
which bytes to ask for beside which launch, and the kernel that asks.  At batch one a network reads
its weights once a run; where they are more than the cache holds, each kernel would begin by waiting
for memory that stood still while the kernels before it computed.  The asking kernels stand beside
the others in the graph: nothing waits for them, and they write nothing.  Read next: `cuda.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tilewright.runtime.drivers import Launch

Region = tuple[int, int]  # address, bytes

CAPABILITY = 9  # the first whose threads ask for whole pieces
HELD = 0.5  # of the cache: weights that are no more stay there from run to run
LEAST = 64 << 10  # bytes that are asked for together: a node of a graph is not free
SMALLEST = 16 << 10  # of a tensor that is asked for
MOST = 0.25  # of the cache, for one launch: what comes must not drive out what came
_PIECE, _THREADS = 4096, 32
_TEXT = f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry tw_ask(.param .u64 place, .param .u64 bytes)
{{
  .reg .pred %p;
  .reg .b32 %r<5>;
  .reg .b64 %d<5>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  mul.wide.u32 %d1, %r1, {_PIECE};
  ld.param.u64 %d2, [bytes];
  setp.ge.u64 %p, %d1, %d2;
  @%p ret;
  sub.u64 %d3, %d2, %d1;
  min.u64 %d3, %d3, {_PIECE};
  cvt.u32.u64 %r4, %d3;
  ld.param.u64 %d4, [place];
  add.u64 %d4, %d4, %d1;
  cvta.to.global.u64 %d4, %d4;
  cp.async.bulk.prefetch.L2.global [%d4], %r4;
  ret;
}}
"""


def asked(launches: Sequence[Launch], cache_bytes: int) -> dict[int, list[Region]]:
    """What to ask for when a launch begins, by its position.

    cache_bytes: of the second-level cache
    The weights of launches that follow each other count together up to `LEAST` bytes, and are
    asked for as the ones before them begin.  Nothing, where all weights stay in the cache, or
    kernels begin early and ask themselves: two who ask are in each other's way.
    """
    if any(launch.kernel.source.lets_in for launch in launches):
        return {}
    own = [
        [(m.pointer, m.nbytes & -16) for m in dict.fromkeys(launch.weights) if m.nbytes >= SMALLEST]
        for launch in launches
    ]
    if sum(n for _, n in {r for regions in own for r in regions}) <= HELD * cache_bytes:
        return {}
    parts: list[tuple[int, list[Region]]] = []  # the first launch, what it and those behind read
    for k, regions in enumerate(own):
        if not regions:
            continue
        if not parts or sum(n for _, n in parts[-1][1]) >= LEAST:
            parts.append((k, []))
        parts[-1][1].extend(r for r in regions if r not in parts[-1][1])
    most = int(MOST * cache_bytes)
    return {before[0]: _limited(regions, most) for before, (_, regions) in pairwise(parts)}


def _limited(regions: Sequence[Region], most: int) -> list[Region]:
    """The first `most` bytes of them."""
    found: list[Region] = []
    for place, nbytes in regions:
        take = min(nbytes, most) & -_PIECE if nbytes > most else nbytes
        if take:
            found.append((place, take))
        most -= take
    return found


class Asker:
    """The kernel that asks, loaded on one device.  ask: of `cuda.py`, which reports errors."""

    def __init__(self, cu: Any, ask: Callable[[str, tuple[Any, ...]], Any]) -> None:
        self._cu, self._ask = cu, ask
        module = ask("load", cu.cuModuleLoadData(_TEXT.encode() + b"\0"))
        self._function = ask("load", cu.cuModuleGetFunction(module, b"tw_ask"))

    def enqueue(self, region: Region, stream: Any) -> None:
        values = (ctypes.c_uint64 * 2)(*region)
        first = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * 2)(first, first + ctypes.sizeof(ctypes.c_uint64))
        blocks = -(-region[1] // (_PIECE * _THREADS))
        size = (blocks, 1, 1, _THREADS, 1, 1, 0)
        launched = self._cu.cuLaunchKernel(
            self._function, *size, stream, ctypes.addressof(pointers), 0
        )
        self._ask("ask for weights", (*launched, None))


Asked = Mapping[int, Sequence[Region]]
