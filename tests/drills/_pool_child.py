"""Parallel loops in a process of their own; prints how often each thing happened, as JSON.

In: one argument, a setting of `pool.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np

from tilewright.runtime.drivers import cpu_native, cpu_pool

SIZE = 4096  # iterations, at most

# env: counts, threads, inner, naps, base.  `run` makes `times` loops of n iterations, each of which
# makes one of `inner`; one of those adds 1 to its count, writes down its thread, and sleeps for a
# microsecond where its number has no bit of `naps`, so that threads change inside of chunks.
TEXT = """
declare void @tilewright_parallel(ptr, ptr, i64)
declare i64 @pthread_self()
declare i32 @usleep(i32)

define internal void @inner(ptr %env, i64 %begin, i64 %end) {
entry:
  %threads_p = getelementptr i64, ptr %env, i64 1
  %naps_p = getelementptr i64, ptr %env, i64 3
  %base_p = getelementptr i64, ptr %env, i64 4
  %counts = load ptr, ptr %env
  %threads = load ptr, ptr %threads_p
  %naps = load i64, ptr %naps_p
  %base = load i64, ptr %base_p
  %self = call i64 @pthread_self()
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %add ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %start, label %done
start:
  %place = add i64 %base, %i
  %bits = and i64 %place, %naps
  %sleeps = icmp eq i64 %bits, 0
  br i1 %sleeps, label %nap, label %add
nap:
  %r = call i32 @usleep(i32 1)
  br label %add
add:
  %count = getelementptr i32, ptr %counts, i64 %place
  %thread = getelementptr i64, ptr %threads, i64 %place
  %old = atomicrmw add ptr %count, i32 1 monotonic
  store i64 %self, ptr %thread
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}

define internal void @outer(ptr %env, i64 %begin, i64 %end) {
entry:
  %mine = alloca [5 x i64], align 8
  %given = load [5 x i64], ptr %env
  store [5 x i64] %given, ptr %mine
  %inner = extractvalue [5 x i64] %given, 2
  %base_p = getelementptr i64, ptr %mine, i64 4
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %base = mul i64 %i, %inner
  store i64 %base, ptr %base_p
  call void @tilewright_parallel(ptr @inner, ptr %mine, i64 %inner)
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}

define void @run(ptr %env, i64 %n, i64 %times) {
entry:
  br label %check
check:
  %k = phi i64 [ 0, %entry ], [ %next, %step ]
  %more = icmp slt i64 %k, %times
  br i1 %more, label %step, label %done
step:
  call void @tilewright_parallel(ptr @outer, ptr %env, i64 %n)
  %next = add i64 %k, 1
  br label %check
done:
  ret void
}
"""


# Sleeps for a microsecond in one of 32 calls.
STRETCH = """
@drawn = internal global i32 1
declare i32 @usleep(i32)
define internal void @stretch() nounwind noinline {
  %old = atomicrmw add ptr @drawn, i32 1640531527 monotonic
  %high = lshr i32 %old, 27
  %sleeps = icmp eq i32 %high, 0
  br i1 %sleeps, label %nap, label %done
nap:
  %r = call i32 @usleep(i32 1)
  br label %done
done:
  ret void
}
"""


def stretched(pool: str) -> str:
    """The pool with a possible sleep after each atomic instruction, where threads then change."""
    wide = re.sub(
        r"(?m)^  .*\b(?:atomic|atomicrmw|cmpxchg) .*$", r"\g<0>\n  call void @stretch()", pool
    )
    return wide + STRETCH


def run_loops(
    run: Callable[..., None], rng: random.Random, loops: int, setting: dict[str, int]
) -> Counter[str]:
    """Make `loops` loops, some of them back to back, and look at the counts after those."""
    found = Counter[str]()
    counts, threads = np.zeros(SIZE, np.int32), np.zeros(SIZE, np.int64)
    while found.total() < loops:
        n = rng.choice([0, 1, 2, rng.randrange(12), rng.randrange(100), rng.randrange(SIZE)])
        inner = rng.choice([1, 1, rng.randint(1, max(SIZE // max(n, 1), 1))])
        naps = rng.choice([0, 3, 15, -1]) if n * inner < 100 else -1
        times = min(rng.choice([1, 50 if naps < 0 else 5]), loops - found.total())
        if rng.random() < 0.02:
            cpu_native.set_num_threads(rng.randint(1, setting["threads"]), setting["spin_ns"])
        counts[:] = 0
        env = np.array([counts.ctypes.data, threads.ctypes.data, inner, naps, 0])
        run(env.ctypes.data, n, times)
        right = (counts == times * (np.arange(SIZE) < n * inner)).all()
        shared = len(set(threads[: n * inner])) > 1
        found[("once, by several threads" if shared else "once") if right else "wrong"] += times
    return found


def main() -> None:
    setting = json.loads(sys.argv[1])
    faulthandler.dump_traceback_later(setting["seconds"], exit=True)
    if not setting["futex"]:
        cpu_pool._FUTEX_CALL.clear()
    if setting["stretch"]:
        plain = cpu_pool.pool_ir
        cpu_pool.pool_ir = lambda triple: stretched(plain(triple))
    cpu_native.set_num_threads(setting["threads"], setting["spin_ns"])
    engine = cpu_native.engine(TEXT)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        engine.get_function_address("run")
    )
    callers, found = setting["callers"], list[Counter[str]]()

    def call(number: int) -> None:
        loops = (setting["loops"] + number) // callers
        found.append(run_loops(run, random.Random(setting["seed"] + number), loops, setting))

    if setting["fork"]:
        call(0)  # now there are workers, which the forked process does not have
        found.clear()
        faulthandler.cancel_dump_traceback_later()  # its thread would be missing as well
        if forked := os.fork():
            _, status = os.waitpid(forked, 0)
            sys.exit(int(status != 0))
        faulthandler.dump_traceback_later(setting["seconds"], exit=True)
    with contextlib.ExitStack() as stack:
        for number in range(callers):
            thread = threading.Thread(target=call, args=(number,))
            thread.start()
            stack.callback(thread.join)
    print(json.dumps(sum(found, Counter())), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
