"""The thread pool that CPU kernels run their parallel loops on, as LLVM IR text.

In: a triple.  Out: LLVM IR for `cpu_native.py` to compile once a process.  Read next:
`cpu_native.py`.

How the pool works.  `tilewright_pool_run(body, env, n)` fills a free job, rings the bell, takes
chunks until none is left, and waits for those that others began; a worker that gets no core costs
nothing, for its chunks are run by the rest.  A job's iterations are dealt to shards, one for each
thread: a thread begins with its own, where its caches are warm, then helps with the others.  A
chunk is taken by one atomic subtraction from its shard.  Whoever took one keeps the job from ending
until he reports it in `pending`; so he may read the job's fields, and who took none touches
nothing.  Chunks are published by a release store to the shard and taken with acquire; results are
published by the subtraction from `pending`.

An idle worker polls the bell for a while, then sleeps on `asleep`, as a waiting caller does on
`waiting`: set the word, look again, sleep while it is set; who has news clears it and wakes.  All
four accesses are sequentially consistent, so one of the two sees the other.  Whoever polls looks at
the clock as well: a step in it means that the core was given to another thread.  For some time
after that threads poll for less, and callers wake sleepers only now and then.

A nested call, and one that finds all jobs taken, runs its loop alone.  `tilewright_pool_reset` is
called first of all, and in a child after `fork`, where the workers do not exist.
"""

from __future__ import annotations

from tilewright.targets import processors

MAX_THREADS = 1024
SPIN_NS = 500_000  # that a thread polls before it sleeps, unless told otherwise
_NUMBERS = {
    "MAX_THREADS": MAX_THREADS,
    "SPIN_NS": SPIN_NS,
    "JOBS": 4,  # parallel loops at a time
    "SHARDS": 16,  # of a job, at most: a thread that finds no work looks at each of them
    "CHUNKS": 4,  # per thread
    "POLLS": 32,  # between two looks at the clock, about a microsecond
    "GAP_NS": 100_000,  # a longer one means that the thread had no core
    "BUSY_NS": 20_000_000,  # for which the machine counts as busy after that
    "BUSY_SPIN_NS": 50_000,  # that a thread polls on a busy machine: the gaps inside a network
    "ROUSE_NS": 1_000_000,  # between two times that sleepers are woken on a busy machine
    "STACK_BYTES": 8 << 20,  # of a worker, as main threads commonly have
}
_FUTEX_CALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_X86_PAUSE = ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()")
_ARM_PAUSE = ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)")
_PAUSE = {"x86_64": _X86_PAUSE, "aarch64": _ARM_PAUSE, "riscv64": ("", "")}


def supports_threads(triple: str) -> bool:
    """Tell whether the pool has a form for this triple; else parallel loops run on one thread."""
    known = any(system in triple for system in ("linux", "darwin", "apple"))
    return known and processors.architecture(triple) in _PAUSE


def pool_ir(triple: str) -> str:
    """LLVM IR defining `tilewright_pool_run`, `_pool_limit`, `_pool_spin` and `_pool_reset`.

    It calls `tilewright_now` of `cpu_calls.replay_ir`.
    """
    if not supports_threads(triple):
        return _SERIAL
    machine = processors.architecture(triple)
    declare, pause = _PAUSE[machine]
    futex = _FUTEX_CALL.get(machine, 0) if "linux" in triple else 0
    text = _POOL.replace("DECLARE_PAUSE", declare).replace("PAUSE", pause)
    text += _FUTEX.replace("FUTEX", str(futex)) if futex else _CONDITION
    for name in sorted(_NUMBERS, key=len, reverse=True):  # no name is replaced inside another
        text = text.replace(name, str(_NUMBERS[name]))
    return text


_SERIAL = """
define void @tilewright_pool_limit(i32 %threads) nounwind { ret void }
define void @tilewright_pool_spin(i64 %ns) nounwind { ret void }
define void @tilewright_pool_reset() nounwind { ret void }
define void @tilewright_pool_run(ptr %body, ptr %env, i64 %n) {
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
; A worker: i32 asleep, i64 thread.  It has 128 bytes, so that no two share a cache line (or a pair
; of them).
%worker = type { i32, i32, i64, [14 x i64] }
; A job: i32 state (0: free, 1: being filled, 2: open), i32 waiting, i64 owner, ptr body, ptr env,
; i64 iterations of a chunk, i64 shards, i64 pending: the iterations that did not end.  After that
; 128 bytes for each shard: the iterations that nobody took, and where the shard ends.
%job = type { i32, i32, i64, ptr, ptr, i64, i64, i64, [9 x i64], [SHARDS x [16 x i64]] }
@workers = internal global [MAX_THREADS x %worker] zeroinitializer, align 128
@jobs = internal global [JOBS x %job] zeroinitializer, align 128
@bell = internal global i64 0, align 128
@limit = internal global i32 1, align 128
@spin = internal global i64 SPIN_NS
@started = internal global i32 0
@starting = internal global i32 0
@busy_until = internal global i64 0
@next_rouse = internal global i64 0

declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
DECLARE_PAUSE

define void @tilewright_pool_limit(i32 %threads) nounwind {
  store atomic i32 %threads, ptr @limit seq_cst, align 4
  call void @unsleep(ptr @limit, i32 MAX_THREADS)
  ret void
}

define void @tilewright_pool_spin(i64 %ns) nounwind {
  store atomic i64 %ns, ptr @spin monotonic, align 8
  ret void
}

define void @tilewright_pool_reset() nounwind {
  %worker_bytes = ptrtoint ptr getelementptr (%worker, ptr null, i64 MAX_THREADS) to i64
  %job_bytes = ptrtoint ptr getelementptr (%job, ptr null, i64 JOBS) to i64
  call void @llvm.memset.p0.i64(ptr @workers, i8 0, i64 %worker_bytes, i1 false)
  call void @llvm.memset.p0.i64(ptr @jobs, i8 0, i64 %job_bytes, i1 false)
  store i32 0, ptr @started
  store i32 0, ptr @starting
  call void @prepare()
  ret void
}

; Wake the thread that set the word before it sleeps, if there is one.
define internal void @wake(ptr %word) nounwind {
entry:
  %sleeps = load atomic i32, ptr %word seq_cst, align 4
  %dozing = icmp ne i32 %sleeps, 0
  br i1 %dozing, label %shake, label %done
shake:
  %was = atomicrmw xchg ptr %word, i32 0 seq_cst
  %first = icmp ne i32 %was, 0
  br i1 %first, label %call, label %done
call:
  call void @unsleep(ptr %word, i32 1)
  br label %done
done:
  ret void
}

; Poll the word until it is not `seen`, for about `ns` nanoseconds at most, on a busy machine for
; less; returns whether it changed.  Time that is missing between two looks at the clock was given
; to another thread: then the machine is busy, for some time from now on.
define internal i1 @changed(ptr %word, i64 %seen, i64 %ns) nounwind {
entry:
  %some = icmp sgt i64 %ns, 0
  br i1 %some, label %round, label %no
round:
  %first = phi i64 [ 0, %entry ], [ %start, %going ]
  %last = phi i64 [ 0, %entry ], [ %now, %going ]
  br label %look
look:
  %k = phi i32 [ 0, %round ], [ %k1, %pause ]
  %value = load atomic i64, ptr %word acquire, align 8
  %new = icmp ne i64 %value, %seen
  br i1 %new, label %yes, label %pause
pause:
  PAUSE
  %k1 = add i32 %k, 1
  %again = icmp slt i32 %k1, POLLS
  br i1 %again, label %look, label %clock
clock:
  %now = call i64 @tilewright_now()
  %started = icmp ne i64 %first, 0
  %start = select i1 %started, i64 %first, i64 %now
  %step = sub i64 %now, %last
  %long = icmp sgt i64 %step, GAP_NS
  %gap = and i1 %long, %started
  br i1 %gap, label %away, label %here
away:
  %until1 = add i64 %now, BUSY_NS
  store atomic i64 %until1, ptr @busy_until monotonic, align 8
  br label %here
here:
  %until = load atomic i64, ptr @busy_until monotonic, align 8
  %busy = icmp slt i64 %now, %until
  %short = call i64 @llvm.smin.i64(i64 %ns, i64 BUSY_SPIN_NS)
  %bound = select i1 %busy, i64 %short, i64 %ns
  %spent = sub i64 %now, %start
  %over = icmp sge i64 %spent, %bound
  br i1 %over, label %no, label %going
going:
  br label %round
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether sleeping workers are to be woken: always, but on a busy machine only now and then, since
; they get no core and take the caller's.
define internal i1 @rouses() nounwind {
entry:
  %until = load atomic i64, ptr @busy_until monotonic, align 8
  %free = icmp eq i64 %until, 0
  br i1 %free, label %yes, label %ask
ask:
  %now = call i64 @tilewright_now()
  %over = icmp sge i64 %now, %until
  br i1 %over, label %forget, label %busy
forget:
  store atomic i64 0, ptr @busy_until monotonic, align 8
  br label %yes
busy:
  %next = load atomic i64, ptr @next_rouse monotonic, align 8
  %due = icmp sge i64 %now, %next
  br i1 %due, label %once, label %no
once:
  %later = add i64 %now, ROUSE_NS
  store atomic i64 %later, ptr @next_rouse monotonic, align 8
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Take chunks of the job and run them until none is left; returns how many iterations that were.
; Whoever took a chunk keeps the job from ending, so its fields are read after that.
define internal i64 @help(ptr %job, i64 %home) nounwind {
entry:
  %body_p = getelementptr %job, ptr %job, i64 0, i32 3
  %env_p = getelementptr %job, ptr %job, i64 0, i32 4
  %size_p = getelementptr %job, ptr %job, i64 0, i32 5
  %shards_p = getelementptr %job, ptr %job, i64 0, i32 6
  %size = load atomic i64, ptr %size_p monotonic, align 8
  %shards = load atomic i64, ptr %shards_p monotonic, align 8
  %first = urem i64 %home, %shards
  br label %visit
visit:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %s = phi i64 [ %first, %entry ], [ %after, %next ]
  %ran = phi i64 [ 0, %entry ], [ %ran1, %next ]
  %left_p = getelementptr %job, ptr %job, i64 0, i32 9, i64 %s
  %stop_p = getelementptr i64, ptr %left_p, i64 1
  %own = icmp eq i64 %k, 0
  br i1 %own, label %take, label %look
look:
  %ran3 = phi i64 [ %ran, %visit ], [ %ran2, %run ]
  %left = load atomic i64, ptr %left_p monotonic, align 8
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %take, label %next
take:
  %ran4 = phi i64 [ %ran, %visit ], [ %ran3, %look ]
  %old = atomicrmw sub ptr %left_p, i64 %size acquire
  %got = icmp sgt i64 %old, 0
  br i1 %got, label %run, label %next
run:
  %stop = load i64, ptr %stop_p
  %body = load ptr, ptr %body_p
  %env = load ptr, ptr %env_p
  %count = call i64 @llvm.smin.i64(i64 %size, i64 %old)
  %begin = sub i64 %stop, %old
  %end = add i64 %begin, %count
  call void %body(ptr %env, i64 %begin, i64 %end)
  %ran2 = add i64 %ran4, %count
  br label %look
next:
  %ran1 = phi i64 [ %ran3, %look ], [ %ran4, %take ]
  %k1 = add i64 %k, 1
  %s1 = add i64 %s, 1
  %wraps = icmp eq i64 %s1, %shards
  %after = select i1 %wraps, i64 0, i64 %s1
  %more = icmp slt i64 %k1, %shards
  br i1 %more, label %visit, label %done
done:
  ret i64 %ran1
}

define internal ptr @worker(ptr %arg) nounwind {
entry:
  %w = ptrtoint ptr %arg to i64
  %asleep = getelementptr %worker, ptr @workers, i64 %w
  %thread = getelementptr %worker, ptr @workers, i64 %w, i32 2
  %self = call i64 @pthread_self()
  store atomic i64 %self, ptr %thread release, align 8
  br label %wait
wait:
  %limit = load atomic i32, ptr @limit acquire, align 4
  %limit64 = sext i32 %limit to i64
  %retired = icmp sge i64 %w, %limit64
  br i1 %retired, label %park, label %serve
park:
  call void @sleep(ptr @limit, i32 %limit)
  br label %wait
serve:
  %seen = load atomic i64, ptr @bell seq_cst, align 8
  br label %visit
visit:
  %j = phi i64 [ 0, %serve ], [ %j1, %next ]
  %job = getelementptr %job, ptr @jobs, i64 %j
  %j1 = add i64 %j, 1
  %all = icmp eq i64 %j, JOBS
  br i1 %all, label %idle, label %check
check:
  %state = load atomic i32, ptr %job acquire, align 4
  %open = icmp eq i32 %state, 2
  br i1 %open, label %help, label %next
help:
  %ran = call i64 @help(ptr %job, i64 %w)
  %some = icmp sgt i64 %ran, 0
  br i1 %some, label %report, label %next
report:
  %pending = getelementptr %job, ptr %job, i64 0, i32 7
  %old = atomicrmw sub ptr %pending, i64 %ran seq_cst
  %last = icmp eq i64 %old, %ran
  br i1 %last, label %tell, label %next
tell:
  %waiting = getelementptr %job, ptr %job, i64 0, i32 1
  call void @wake(ptr %waiting)
  br label %next
next:
  br label %visit
idle:
  %ns = load atomic i64, ptr @spin monotonic, align 8
  %rung = call i1 @changed(ptr @bell, i64 %seen, i64 %ns)
  br i1 %rung, label %wait, label %doze
doze:
  store atomic i32 1, ptr %asleep seq_cst, align 4
  %now = load atomic i64, ptr @bell seq_cst, align 8
  %missed = icmp ne i64 %now, %seen
  br i1 %missed, label %up, label %bed
bed:
  call void @sleep(ptr %asleep, i32 1)
  %still = load atomic i32, ptr %asleep acquire, align 4
  %spurious = icmp ne i32 %still, 0
  br i1 %spurious, label %bed, label %wait
up:
  store atomic i32 0, ptr %asleep monotonic, align 4
  br label %wait
}

; Start workers until there are as many threads as the limit; returns the number of threads.
define internal i64 @start_workers(i32 %limit) nounwind {
entry:
  %id = alloca i64, align 8
  %attr = alloca [16 x i64], align 16
  %first = load atomic i32, ptr @started acquire, align 4
  %last = sub i32 %limit, 1
  %enough = icmp sge i32 %first, %last
  br i1 %enough, label %done, label %try
try:
  %pair = cmpxchg ptr @starting, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %begin, label %done
begin:
  %from = load atomic i32, ptr @started acquire, align 4
  %r1 = call i32 @pthread_attr_init(ptr %attr)
  %r2 = call i32 @pthread_attr_setstacksize(ptr %attr, i64 STACK_BYTES)
  br label %check
check:
  %have = phi i32 [ %from, %begin ], [ %next, %made ]
  %all = icmp sge i32 %have, %last
  br i1 %all, label %ready, label %make
make:
  %next = add i32 %have, 1
  %w = sext i32 %next to i64
  %arg = inttoptr i64 %w to ptr
  %r = call i32 @pthread_create(ptr %id, ptr %attr, ptr @worker, ptr %arg)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %made, label %ready
made:
  %tid = load i64, ptr %id
  %d = call i32 @pthread_detach(i64 %tid)
  store atomic i32 %next, ptr @started release, align 4
  br label %check
ready:
  %r3 = call i32 @pthread_attr_destroy(ptr %attr)
  store atomic i32 0, ptr @starting release, align 4
  br label %done
done:
  %number = load atomic i32, ptr @started acquire, align 4
  %threads = add i32 %number, 1
  %threads64 = sext i32 %threads to i64
  ret i64 %threads64
}

; Whether the calling thread is in a parallel loop already: a worker, or the owner of a job.
define internal i1 @inside(i64 %self) nounwind {
entry:
  %count = load atomic i32, ptr @started acquire, align 4
  %last = sext i32 %count to i64
  br label %owner
owner:
  %j = phi i64 [ 0, %entry ], [ %j1, %other ]
  %jobs = icmp slt i64 %j, JOBS
  br i1 %jobs, label %other, label %check
other:
  %owner_p = getelementptr %job, ptr @jobs, i64 %j, i32 2
  %owner_id = load atomic i64, ptr %owner_p monotonic, align 8
  %mine = icmp eq i64 %owner_id, %self
  %j1 = add i64 %j, 1
  br i1 %mine, label %yes, label %owner
check:
  %w = phi i64 [ 1, %owner ], [ %w1, %next ]
  %more = icmp sle i64 %w, %last
  br i1 %more, label %next, label %no
next:
  %thread = getelementptr %worker, ptr @workers, i64 %w, i32 2
  %id = load atomic i64, ptr %thread acquire, align 8
  %same = icmp eq i64 %id, %self
  %w1 = add i64 %w, 1
  br i1 %same, label %yes, label %check
yes:
  ret i1 true
no:
  ret i1 false
}

define void @tilewright_pool_run(ptr %body, ptr %env, i64 %n) nounwind {
entry:
  %limit = load atomic i32, ptr @limit acquire, align 4
  %limit64 = sext i32 %limit to i64
  %want = call i64 @llvm.smin.i64(i64 %limit64, i64 %n)
  %alone = icmp slt i64 %want, 2
  br i1 %alone, label %inline, label %enter
inline:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %whole, label %out
whole:
  call void %body(ptr %env, i64 0, i64 %n)
  br label %out
out:
  ret void
enter:
  %self = call i64 @pthread_self()
  br label %seek
seek:
  %j = phi i64 [ 0, %enter ], [ %j1, %taken ]
  %job = getelementptr %job, ptr @jobs, i64 %j
  %pair = cmpxchg ptr %job, i32 0, i32 1 acquire monotonic
  %got = extractvalue { i32, i1 } %pair, 1
  br i1 %got, label %mine, label %refused
refused:
  %j1 = add i64 %j, 1
  %others = icmp slt i64 %j1, JOBS
  br i1 %others, label %nested, label %inline
nested:
  %in = call i1 @inside(i64 %self)
  br i1 %in, label %inline, label %taken
taken:
  br label %seek
mine:
  %waiting = getelementptr %job, ptr %job, i64 0, i32 1
  %owner = getelementptr %job, ptr %job, i64 0, i32 2
  %body_p = getelementptr %job, ptr %job, i64 0, i32 3
  %env_p = getelementptr %job, ptr %job, i64 0, i32 4
  %size_p = getelementptr %job, ptr %job, i64 0, i32 5
  %shards_p = getelementptr %job, ptr %job, i64 0, i32 6
  %pending = getelementptr %job, ptr %job, i64 0, i32 7
  store atomic i64 %self, ptr %owner monotonic, align 8
  %threads = call i64 @start_workers(i32 %limit)
  %team = call i64 @llvm.smin.i64(i64 %want, i64 %threads)
  %shards = call i64 @llvm.smin.i64(i64 %team, i64 SHARDS)
  %chunks = mul i64 %team, CHUNKS
  %n1 = sub i64 %n, 1
  %size1 = udiv i64 %n1, %chunks
  %size = add i64 %size1, 1
  store ptr %body, ptr %body_p
  store ptr %env, ptr %env_p
  store atomic i64 %size, ptr %size_p monotonic, align 8
  store atomic i64 %shards, ptr %shards_p monotonic, align 8
  store atomic i64 %n, ptr %pending monotonic, align 8
  br label %fill
fill:
  %s = phi i64 [ 0, %mine ], [ %s1, %fill ]
  %from = phi i64 [ 0, %mine ], [ %to, %fill ]
  %s1 = add i64 %s, 1
  %product = mul i64 %n, %s1
  %to = udiv i64 %product, %shards
  %count = sub i64 %to, %from
  %left_p = getelementptr %job, ptr %job, i64 0, i32 9, i64 %s
  %stop_p = getelementptr i64, ptr %left_p, i64 1
  store i64 %to, ptr %stop_p
  store atomic i64 %count, ptr %left_p release, align 8
  %filled = icmp eq i64 %s1, %shards
  br i1 %filled, label %ring, label %fill
ring:
  store atomic i32 2, ptr %job release, align 4
  %rung = atomicrmw add ptr @bell, i64 1 seq_cst
  %rouses = call i1 @rouses()
  br i1 %rouses, label %rouse, label %work
rouse:
  %w = phi i64 [ 1, %ring ], [ %w1, %next ]
  %all = icmp sge i64 %w, %team
  br i1 %all, label %work, label %next
next:
  %asleep = getelementptr %worker, ptr @workers, i64 %w
  call void @wake(ptr %asleep)
  %w1 = add i64 %w, 1
  br label %rouse
work:
  %ran = call i64 @help(ptr %job, i64 0)
  %old = atomicrmw sub ptr %pending, i64 %ran acq_rel
  %ns = load atomic i64, ptr @spin monotonic, align 8
  br label %join
join:
  %open = load atomic i64, ptr %pending acquire, align 8
  %joined = icmp eq i64 %open, 0
  br i1 %joined, label %leave, label %poll
poll:
  %progress = call i1 @changed(ptr %pending, i64 %open, i64 %ns)
  br i1 %progress, label %join, label %doze
doze:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  %now = load atomic i64, ptr %pending seq_cst, align 8
  %done = icmp eq i64 %now, 0
  br i1 %done, label %up, label %bed
bed:
  call void @sleep(ptr %waiting, i32 1)
  br label %doze
up:
  store atomic i32 0, ptr %waiting monotonic, align 4
  br label %leave
leave:
  store atomic i64 0, ptr %owner monotonic, align 8
  store atomic i32 0, ptr %job release, align 4
  br label %out
}
"""

_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @prepare() nounwind { ret void }

; Sleep while the word is `seen`, or not at all.
define internal void @sleep(ptr %word, i32 %seen) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %seen, ptr null, ptr null,
  i32 0)
  ret void
}

; Wake `count` of the threads that sleep on the word, which has changed.
define internal void @unsleep(ptr %word, i32 %count) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null,
  i32 0)
  ret void
}
"""

# The same by one condition variable for all words; 128 bytes are enough for either of the two.
_CONDITION = """
@mutex = internal global [16 x i64] zeroinitializer, align 128
@condition = internal global [16 x i64] zeroinitializer, align 128

declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @prepare() nounwind {
  %r1 = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %r2 = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

define internal void @sleep(ptr %word, i32 %seen) nounwind {
entry:
  %r1 = call i32 @pthread_mutex_lock(ptr @mutex)
  %value = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %value, %seen
  br i1 %same, label %wait, label %done
wait:
  %r2 = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %done
done:
  %r3 = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}

define internal void @unsleep(ptr %word, i32 %count) nounwind {
  %r1 = call i32 @pthread_mutex_lock(ptr @mutex)
  %r2 = call i32 @pthread_cond_broadcast(ptr @condition)
  %r3 = call i32 @pthread_mutex_unlock(ptr @mutex)
  ret void
}
"""
