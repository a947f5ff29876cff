"""Threads that take turns, on a machine without a GPU: CUDA text compiled as C++, a thread each."""

from __future__ import annotations

import ctypes
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drills._kernels import Kernel, tiles
from drills._mutations import MUTATIONS, harmful
from lowering import split_sums
from lowering.split_sums import Sums, ordered
from tests.ir import products, rings
from tests.ir.products import Product
from tests.ir.rings import Ring
from tilewright import te
from tilewright.base.artifact import Source
from tilewright.codegen import generate, opencl, serial_threads
from tilewright.codegen.serial_threads import copies, order
from tilewright.driver import compile_source, nvrtc
from tilewright.ir.stmt import AsyncCopy, If, Program, Stmt, Store, load, map_children, seq
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime import device
from tilewright.runtime.trial import check
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te.cases import whole_numbers
from tilewright.te.dag import ComputeDAG

COMPILER = shutil.which("g++")
BARRIER = opencl.DIALECT.barrier.removesuffix(";")
CUDA = Target("cuda -arch=sm_90")

# What CUDA has and C++ has not: a block at a time, a thread of the host for each of its threads.
_HOST = """
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>
typedef unsigned int tw_uint;
typedef unsigned long long tw_ulong;
struct Dim { int x, y, z; };
static thread_local Dim threadIdx, blockIdx;
static pthread_barrier_t met;
alignas(1024) static unsigned char tw_memory[1 << 18];
static unsigned char* const tw_shared = tw_memory;
#define __device__
#define __global__
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline
#define __launch_bounds__(n)
#define __shared__ static
#define __align__(n)
#define __restrict__
#define TW_TURN volatile tw_uint*
#define TW_FENCE __sync_synchronize()
#define tw_apart(k)
static void __syncthreads() { pthread_barrier_wait(&met); }
static bool __syncthreads_or(bool x) { return x; }  // of what turns replace
static void __threadfence() { __sync_synchronize(); }
static tw_uint atomicInc(tw_uint* at, tw_uint last) {  // blocks run one after the other
  const tw_uint found = *at;
  *at = found >= last ? 0 : found + 1;
  return found;
}
static tw_ulong tw_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static void tw_wait(TW_TURN turn, tw_uint at, tw_ulong until) {
  while ((int)(*turn - at) < 0 && tw_now() < until) sched_yield();
  TW_FENCE;
}
static void tw_rest(tw_ulong until) { while (tw_now() < until) sched_yield(); }
static void tw_pass(TW_TURN turn) { __sync_fetch_and_add((tw_uint*)turn, 1u); }
static tw_uint tw_meet(TW_TURN turn, tw_uint at, tw_uint threads, tw_ulong until) {
  tw_pass(turn);
  __syncthreads();
  tw_wait(turn, at + threads, until);
  return at + threads;
}
"""
_FUNCTION = "static __device__ __noinline__"
_MAIN = """
struct Start {{ void** a; Dim block, thread; }};
static void* one(void* of) {{
  Start* s = (Start*)of;
  blockIdx = s->block;
  threadIdx = s->thread;
  {name}({arguments});
  return nullptr;
}}
extern "C" void grid_{name}(void** a) {{
  static pthread_t threads[{threads}];
  static Start starts[{threads}];
  pthread_barrier_init(&met, nullptr, {threads});
  for (int b = 0; b < {blocks}; ++b) {{
    for (int t = 0; t < {threads}; ++t) {{
      starts[t] = {{a, {{b % {gx}, b / {gx} % {gy}, b / {gx} / {gy}}},
                   {{t % {x}, t / {x} % {y}, t / {x} / {y}}}}};
      pthread_create(&threads[t], nullptr, one, &starts[t]);
    }}
    for (int t = 0; t < {threads}; ++t) pthread_join(threads[t], nullptr);
  }}
}}
"""


def on_host(source: Source, folder: Path) -> Callable[[list[np.ndarray]], None]:
    """Runs the one kernel of `source` on arrays, one per buffer."""
    (kernel,) = source.kernels
    text = source.text[source.text.index("#define TW_HELD" if copies(source) else _FUNCTION) :]
    text = re.sub(r"  extern __shared__ .*\n", "", text)
    (x, y, z), (gx, gy, gz) = kernel.block, kernel.grid
    types = [f"({source.buffers[i].dtype.spelling.cuda}*)s->a[{n}]"
             for n, i in enumerate(kernel.args)]  # fmt: skip
    main = _MAIN.format(
        name=kernel.name, arguments=", ".join(types), threads=x * y * z, blocks=gx * gy * gz,
        gx=gx, gy=gy, x=x, y=y,
    )  # fmt: skip
    path, made = folder / "kernel.cpp", folder / f"{random.random()}.so"
    path.write_text(_HOST + text + main)
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", "-pthread", str(path), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    function = getattr(ctypes.CDLL(str(made)), f"grid_{kernel.name}")

    def run(arrays: list[np.ndarray]) -> None:
        given = (arrays[i].ctypes.data for i in kernel.args)
        function((ctypes.c_void_p * len(kernel.args))(*given))

    return run


def right(kernel: Kernel, folder: Path, **how: object) -> bool:
    """Whether the kernel computes what it must with its threads in turns."""
    source = serial_threads.serialized(generate(kernel.program, CUDA))
    assert isinstance(source, Source)
    case = whole_numbers(kernel.dag, 0)
    given = iter([*case.inputs, np.array(serial_threads.order(seconds=5.0, **how), np.int32)])  # type: ignore[arg-type]
    arrays = [
        np.ascontiguousarray(next(given)) if b.role == "input" else np.full(b.shape, np.nan, "f4")
        for b in source.buffers
    ]
    on_host(source, folder)(arrays)
    outputs = [a for a, b in zip(arrays, source.buffers, strict=True) if b.role == "output"]
    return all(np.array_equal(o, e) for o, e in zip(outputs, case.expected, strict=True))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("group", [1, 32])
def test_a_right_kernel_stays_right_and_a_missing_barrier_shows(tmp_path: Path, group: int) -> None:
    rng = random.Random(group)
    for backwards in (False, True):
        assert right(tiles(rng, "cuda"), tmp_path, backwards=backwards, group=group)
    wrong = None
    while wrong is None or not harmful(wrong, 5, races=True):
        wrong = MUTATIONS["missing barrier"](tiles(rng, "cuda"), rng)
    found = [not right(wrong, tmp_path, backwards=b, group=group) for b in (False, True)]
    assert any(found)


def ring_is_right(fault: str, folder: Path) -> list[bool]:
    """Forwards and backwards, with copies as early and as late as can be."""
    ring = Ring(slots=3, tiles=6, fault=fault)
    source = serial_threads.serialized(generate(rings.program(ring), CUDA))
    assert isinstance(source, Source) and copies(source)
    run, found = on_host(source, folder), []
    for late in (False, True):
        for backwards in (False, True):
            turns = order(backwards=backwards, group=1, seconds=5.0, late=late)
            given, result = rings.arrays(ring)
            run([given, result, np.array(turns, np.int32)])
            found.append(bool(np.array_equal(result, rings.expected(ring))))
    return found


SHOWN = [f for f in rings.FAULTS if f not in ("own slot refilled", "copies never waited for")]


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
def test_a_ring_is_right_however_late_its_copies_come(tmp_path: Path) -> None:
    assert all(ring_is_right("", tmp_path))


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("fault", SHOWN)
def test_copies_used_wrongly_show(tmp_path: Path, fault: str) -> None:
    assert not all(ring_is_right(fault, tmp_path))


def test_what_a_warp_does_together_takes_turns_by_warps() -> None:
    source = serial_threads.serialized(generate(products.program(Product()), CUDA))
    assert isinstance(source, Source) and not copies(source)
    kernel = source.text[source.text.index("__global__") :]
    assert "group = tw_order[1] < 32 ? 32 : tw_order[1]" in kernel
    assert "switch" not in kernel and kernel.count("mm_body(") == 1
    alone = serial_threads.serialized(generate(rings.program(Ring()), CUDA))
    assert isinstance(alone, Source) and copies(alone)
    assert alone.text.count("ring_body(") == 1 + 1 + 8  # itself, by groups, by threads


def test_what_is_not_our_text_has_no_turns() -> None:
    source = generate(tiles(random.Random(0), "cuda").program, CUDA)
    assert isinstance(serial_threads.serialized(source), Source)
    early = source.text.replace("  for (", "  if (thread_x) return;\n  for (", 1)
    assert serial_threads.serialized(replace(source, text=early)) == "its text has return"
    for word in ("asm", "__shfl_down_sync", "__syncwarp", "__ballot_sync"):
        inside = source.text.replace("  for (", f"  {word}(0);\n  for (", 1)
        assert serial_threads.serialized(replace(source, text=inside)) == f"its text has {word}"
    other = serial_threads.serialized(replace(source, text=source.text.replace("main", "other")))
    assert other == "its text is not as it is generated"
    assert serial_threads.serialized(replace(source, target="llvm")) is None
    alone = tuple(replace(k, grid=(1, 1, 1), block=(1, 1, 1)) for k in source.kernels)
    assert serial_threads.serialized(replace(source, kernels=alone)) is None


def test_a_single_thread_that_reads_what_it_did_not_write_finds_garbage() -> None:
    """Shared memory is filled whatever the number of threads."""
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="B")
    schedule = Schedule(ComputeDAG([a, b]))
    copy = schedule.cache_read(a, "shared", [b])
    outer, _ = schedule[b].split(schedule[b].op.axis[0], factor=2)
    schedule[b].bind(outer, "blockIdx.x")
    schedule[copy].compute_at(schedule[b], outer)
    source = generate(lower_schedule(schedule, CUDA), CUDA)
    changed = serial_threads.serialized(source)
    assert source.kernels[0].block == (1, 1, 1) and isinstance(changed, Source)
    assert "tw_memory)[k] =" in changed.text


@pytest.mark.skipif(not device("opencl").exist, reason="there is no OpenCL device")
def test_opencl_text_is_right_without_its_instructions(tmp_path: Path) -> None:
    on = device("opencl")
    kernel = tiles(random.Random(0), "opencl")
    source = serial_threads.serialized(generate(kernel.program, on.target))
    assert isinstance(source, Source)
    text = source.text.replace('asm volatile("barrier.sync 0;" ::: "memory")', BARRIER)
    plain = replace(source, text=re.sub(r"asm volatile\(.*\)", "", text))
    one = np.array(serial_threads.order(backwards=True, group=1024, seconds=0), np.int32)
    case = whole_numbers(kernel.dag, 0)
    case = replace(case, inputs=(*case.inputs, one))
    assert check(compile_source(plain, on.target), on, [case]).error is None


def plainly() -> Program:
    """A ring whose tiles are loaded and stored: what cannot be copied asynchronously is."""

    def stored(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, AsyncCopy):
            return map_children(stmt, stored)
        to, source = stmt.to, stmt.source
        pairs = (
            Store(to.buffer, to.index + k, load(source.buffer, source.index + k))
            for k in range(to.count)
        )
        return If(stmt.condition, seq(*pairs))

    whole = rings.program(Ring(missing=0))
    return replace(whole, kernels=tuple(replace(k, body=stored(k.body)) for k in whole.kernels))


@pytest.mark.parametrize(
    "whole", [rings.program(Ring()), products.program(Product()), plainly()],
    ids=["ring", "product", "ring without copies"],
)  # fmt: skip
@pytest.mark.slow
def test_nvrtc_accepts_turns_of_copies_and_of_warps(whole: Program) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = serial_threads.serialized(generate(whole, CUDA))
    assert isinstance(source, Source)
    log = nvrtc.build(source, CUDA).meta["log"]
    warned = [line for line in log.splitlines() if "warning #" in line]
    assert all("never referenced" in line for line in warned)


@pytest.mark.slow
def test_nvrtc_accepts() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = serial_threads.serialized(generate(tiles(random.Random(0), "cuda").program, CUDA))
    assert isinstance(source, Source)
    made = nvrtc.build(source, CUDA)
    assert "warning" not in made.meta["log"]
    plain = nvrtc.build(generate(tiles(random.Random(0), "cuda").program, CUDA), CUDA)
    assert len(made.binary) > len(plain.binary) + 32 * 64  # 32 calls, which nothing has joined


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
def test_blocks_that_join_take_turns(tmp_path: Path) -> None:
    """A block is counted in its first thread's turn, and all others are told; twice, as counters
    begin anew.  Blocks of the host come one after the other: what a missing barrier does is seen by
    interpreters, and on devices."""
    r = Sums(n=10, k=24, batch=1, blocks=3, tile=5, threads=4)
    source = serial_threads.serialized(generate(ordered(split_sums.program(r)), CUDA))
    assert isinstance(source, Source)
    run, counters = on_host(source, tmp_path), np.zeros(2, np.int32)
    for backwards in (False, True):
        (a, out), expected = split_sums.arrays(r)
        partial = np.full((2, 3, 1, 5), np.nan, np.float32)
        turns = np.array(order(backwards=backwards, group=1, seconds=5.0), np.int32)
        run([a, out, partial, counters, turns])
        np.testing.assert_array_equal(out, expected)
        assert not counters.any()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 64])
def test_nvrtc_accepts_joins_and_their_turns(threads: int) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    source = generate(split_sums.program(Sums(threads=threads)), CUDA)
    turned = serial_threads.serialized(source)
    assert isinstance(turned, Source) and "tw_count(&tw_at" in turned.text
    for each in (source, turned):
        assert nvrtc.build(each, CUDA).binary
