"""The code that every CPU kernel runs on, as LLVM IR text: pool, replay loop, call thunks.

In: the machine's name and a kernel's argument count.  Out: LLVM IR for `drivers/cpu.py` to compile
once a process.  Read next: `cpu.py`.

How the pool works.  `tilewright_parallel(body, env, n)` takes the lock, writes the job, raises the
`ticket` of each worker it needs, runs the first chunk itself and waits until `pending` is zero.
A worker spins on its ticket for `spin` pauses, then sleeps in a futex on it.  Only the workers
of a job are signalled and each one answers, so nobody can read a job half written.  Who finds the
lock taken and is the owner or a worker is in a nested call and runs it inline; any other thread
waits its turn.  `tilewright_pool_reset` is called in a child after `fork`, where the workers do not
exist.
"""

from __future__ import annotations

import sys
import time

MAX_THREADS = 1024
SPIN = 20000  # pauses that an idle worker waits through before it sleeps, unless told otherwise

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "riscv64": ("", ""),
}


def supports_threads(machine: str) -> bool:
    """Whether the pool has a form for this machine; elsewhere parallel loops run on one thread."""
    return sys.platform.startswith("linux") and machine in _FUTEX_CALL


def pool_ir(machine: str) -> str:
    """LLVM IR defining `tilewright_parallel`, `_pool_limit`, `_pool_spin` and `_pool_reset`."""
    if not supports_threads(machine):
        return _SERIAL
    declare, pause = _PAUSE[machine]
    text = _POOL.replace("DECLARE_PAUSE", declare).replace("PAUSE", pause)
    text = text.replace("FUTEX", str(_FUTEX_CALL[machine]))
    return text.replace("MAX_THREADS", str(MAX_THREADS)).replace("SPIN", str(SPIN))


def replay_ir() -> str:
    """LLVM IR of `i64 tilewright_replay(ptr table, i64 count, i64 number)`.

    Calls the `count` entries of `table` in order, `number` times over; an entry is three pointers:
    thunk, kernel, the kernel's arguments.  Returns the nanoseconds it took, read from the monotonic
    clock.
    """
    return _REPLAY.replace("CLOCK", str(int(time.CLOCK_MONOTONIC)))


def thunk_ir(arity: int) -> str:
    """LLVM IR of `tilewright_call_<arity>(ptr kernel, ptr args)`: unpack the arguments and call."""
    loads, names = [], []
    for i in range(arity):
        loads.append(f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}")
        loads.append(f"  %a{i} = load ptr, ptr %p{i}")
        names.append(f"ptr %a{i}")
    body = "\n".join([*loads, f"  call void %kernel({', '.join(names)})", "  ret void"])
    return f"define void @tilewright_call_{arity}(ptr %kernel, ptr %args) nounwind {{\n{body}\n}}\n"


_REPLAY = """
declare i32 @clock_gettime(i32, ptr)

define i64 @tilewright_now() nounwind {
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 CLOCK, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %ns = mul i64 %s, 1000000000
  %sum = add i64 %ns, %n
  ret i64 %sum
}

define i64 @tilewright_replay(ptr %table, i64 %count, i64 %number) nounwind {
entry:
  %begin = call i64 @tilewright_now()
  br label %pass
pass:
  %k = phi i64 [ 0, %entry ], [ %k1, %passed ]
  %more = icmp slt i64 %k, %number
  br i1 %more, label %launch, label %done
launch:
  %i = phi i64 [ 0, %pass ], [ %i1, %call ]
  %go = icmp slt i64 %i, %count
  br i1 %go, label %call, label %passed
call:
  %entry_ptr = getelementptr [3 x ptr], ptr %table, i64 %i
  %kernel_ptr = getelementptr ptr, ptr %entry_ptr, i64 1
  %args_ptr = getelementptr ptr, ptr %entry_ptr, i64 2
  %thunk = load ptr, ptr %entry_ptr
  %kernel = load ptr, ptr %kernel_ptr
  %args = load ptr, ptr %args_ptr
  call void %thunk(ptr %kernel, ptr %args)
  %i1 = add i64 %i, 1
  br label %launch
passed:
  %k1 = add i64 %k, 1
  br label %pass
done:
  %end = call i64 @tilewright_now()
  %elapsed = sub i64 %end, %begin
  ret i64 %elapsed
}
"""

_SERIAL = """
define void @tilewright_pool_limit(i32 %threads) nounwind { ret void }
define void @tilewright_pool_spin(i32 %pauses) nounwind { ret void }
define void @tilewright_pool_reset() nounwind { ret void }
define void @tilewright_parallel(ptr %body, ptr %env, i64 %n) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %body(ptr %env, i64 0, i64 %n)
  br label %done
done:
  ret void
}
"""

_POOL = """
; A slot is 128 bytes, so that no two workers share a cache line (or a pair of them):
; i32 ticket, i32 asleep, i64 thread.
@slots = internal global [MAX_THREADS x [16 x i64]] zeroinitializer, align 128
@lock = internal global i32 0, align 128
@owner = internal global i64 0
@limit = internal global i32 1
@spin = internal global i32 SPIN
@started = internal global i32 0
@job_body = internal global ptr null, align 128
@job_env = internal global ptr null
@job_n = internal global i64 0
@job_team = internal global i64 0
@pending = internal global i64 0, align 128

declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @sched_yield()
declare i64 @syscall(i64, ...)
DECLARE_PAUSE

define void @tilewright_pool_limit(i32 %threads) nounwind {
  store atomic i32 %threads, ptr @limit release, align 4
  ret void
}

define void @tilewright_pool_spin(i32 %pauses) nounwind {
  store atomic i32 %pauses, ptr @spin release, align 4
  ret void
}

define void @tilewright_pool_reset() nounwind {
entry:
  store i32 0, ptr @lock
  store i64 0, ptr @owner
  store i32 0, ptr @started
  store i64 0, ptr @pending
  br label %clear
clear:
  %w = phi i64 [ 0, %entry ], [ %w1, %clear ]
  %slot = getelementptr [16 x i64], ptr @slots, i64 %w
  %thread = getelementptr i64, ptr %slot, i64 1
  store i64 0, ptr %slot
  store i64 0, ptr %thread
  %w1 = add i64 %w, 1
  %more = icmp slt i64 %w1, MAX_THREADS
  br i1 %more, label %clear, label %done
done:
  ret void
}

define internal ptr @worker(ptr %arg) nounwind {
entry:
  %w = ptrtoint ptr %arg to i64
  %w1 = add i64 %w, 1
  %slot = getelementptr [16 x i64], ptr @slots, i64 %w
  %asleep = getelementptr i32, ptr %slot, i64 1
  %thread = getelementptr i64, ptr %slot, i64 1
  %self = call i64 @pthread_self()
  store atomic i64 %self, ptr %thread release, align 8
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %ticket, %run ]
  %pauses = load atomic i32, ptr @spin monotonic, align 4
  br label %look
look:
  %k = phi i32 [ 0, %wait ], [ %k1, %again ]
  %t1 = load atomic i32, ptr %slot acquire, align 4
  %new1 = icmp ne i32 %t1, %seen
  br i1 %new1, label %run, label %again
again:
  PAUSE
  %k1 = add i32 %k, 1
  %hot = icmp slt i32 %k1, %pauses
  br i1 %hot, label %look, label %doze
doze:
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %t2 = load atomic i32, ptr %slot seq_cst, align 4
  %new2 = icmp ne i32 %t2, %seen
  br i1 %new2, label %up, label %sleep
sleep:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %slot, i32 128, i32 %seen, ptr null, ptr null,
  i32 0) br label %doze
up:
  store atomic i32 0, ptr %asleep seq_cst, align 4
  br label %run
run:
  %ticket = phi i32 [ %t1, %look ], [ %t2, %up ]
  %team = load i64, ptr @job_team
  %n = load i64, ptr @job_n
  %body = load ptr, ptr @job_body
  %env = load ptr, ptr @job_env
  %lo = mul i64 %n, %w
  %begin = sdiv i64 %lo, %team
  %hi = mul i64 %n, %w1
  %end = sdiv i64 %hi, %team
  call void %body(ptr %env, i64 %begin, i64 %end)
  %old = atomicrmw sub ptr @pending, i64 1 release
  br label %wait
}

; Start workers until there are as many threads as the limit; returns the number of threads.
define internal i32 @start_workers(i32 %limit) nounwind {
entry:
  %id = alloca i64, align 8
  %first = load i32, ptr @started
  br label %check
check:
  %have = phi i32 [ %first, %entry ], [ %next, %made ]
  %next = add i32 %have, 1
  %enough = icmp sge i32 %next, %limit
  br i1 %enough, label %done, label %make
make:
  %w = sext i32 %next to i64
  %arg = inttoptr i64 %w to ptr
  %r = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %made, label %done
made:
  %tid = load i64, ptr %id
  %d = call i32 @pthread_detach(i64 %tid)
  store i32 %next, ptr @started
  br label %check
done:
  ret i32 %next
}

define internal i1 @inside(i64 %self) nounwind {
entry:
  %owner = load atomic i64, ptr @owner monotonic, align 8
  %mine = icmp eq i64 %owner, %self
  br i1 %mine, label %yes, label %scan
scan:
  %count = load atomic i32, ptr @started monotonic, align 4
  %last = sext i32 %count to i64
  br label %check
check:
  %w = phi i64 [ 1, %scan ], [ %w1, %next ]
  %more = icmp sle i64 %w, %last
  br i1 %more, label %next, label %no
next:
  %slot = getelementptr [16 x i64], ptr @slots, i64 %w
  %thread = getelementptr i64, ptr %slot, i64 1
  %id = load atomic i64, ptr %thread acquire, align 8
  %same = icmp eq i64 %id, %self
  %w1 = add i64 %w, 1
  br i1 %same, label %yes, label %check
yes:
  ret i1 true
no:
  ret i1 false
}

define void @tilewright_parallel(ptr %body, ptr %env, i64 %n) nounwind {
entry:
  %limit = load atomic i32, ptr @limit acquire, align 4
  %limit64 = sext i32 %limit to i64
  %want = call i64 @llvm.smin.i64(i64 %limit64, i64 %n)
  %alone = icmp slt i64 %want, 2
  br i1 %alone, label %inline, label %try
inline:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %whole, label %out
whole:
  call void %body(ptr %env, i64 0, i64 %n)
  br label %out
out:
  ret void
try:
  %pair = cmpxchg ptr @lock, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %mine, label %busy
busy:
  %me = call i64 @pthread_self()
  %nested = call i1 @inside(i64 %me)
  br i1 %nested, label %inline, label %yield
yield:
  %y = call i32 @sched_yield()
  br label %try
mine:
  %self = call i64 @pthread_self()
  store atomic i64 %self, ptr @owner monotonic, align 8
  %threads = call i32 @start_workers(i32 %limit)
  %threads64 = sext i32 %threads to i64
  %team = call i64 @llvm.smin.i64(i64 %want, i64 %threads64)
  %others = sub i64 %team, 1
  store ptr %body, ptr @job_body
  store ptr %env, ptr @job_env
  store i64 %n, ptr @job_n
  store i64 %team, ptr @job_team
  store atomic i64 %others, ptr @pending release, align 8
  br label %signal
signal:
  %w = phi i64 [ 1, %mine ], [ %w1, %signalled ]
  %all = icmp sge i64 %w, %team
  br i1 %all, label %work, label %ring
ring:
  %slot = getelementptr [16 x i64], ptr @slots, i64 %w
  %asleep = getelementptr i32, ptr %slot, i64 1
  %old = load i32, ptr %slot
  %new = add i32 %old, 1
  store atomic i32 %new, ptr %slot seq_cst, align 4
  %a = load atomic i32, ptr %asleep seq_cst, align 4
  %dozing = icmp ne i32 %a, 0
  br i1 %dozing, label %wake, label %signalled
wake:
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %slot, i32 129, i32 1, ptr null, ptr null, i32 0)
  br label %signalled
signalled:
  %w1 = add i64 %w, 1
  br label %signal
work:
  %end = sdiv i64 %n, %team
  call void %body(ptr %env, i64 0, i64 %end)
  %pauses = load atomic i32, ptr @spin monotonic, align 4
  br label %join
join:
  %k = phi i32 [ 0, %work ], [ %k1, %again ], [ %k, %rest ]
  %left = load atomic i64, ptr @pending acquire, align 8
  %joined = icmp eq i64 %left, 0
  br i1 %joined, label %leave, label %still
still:
  %hot = icmp slt i32 %k, %pauses
  br i1 %hot, label %again, label %rest
again:
  PAUSE
  %k1 = add i32 %k, 1
  br label %join
rest:
  %y2 = call i32 @sched_yield()
  br label %join
leave:
  store atomic i64 0, ptr @owner monotonic, align 8
  store atomic i32 0, ptr @lock release, align 4
  br label %out
}
declare i64 @llvm.smin.i64(i64, i64)
"""
