"""How CPU kernels are called without Python in the loop, as LLVM IR text: thunks, replay, clock.

In: a kernel's argument count.  Out: LLVM IR for `cpu_native.py` to compile.  Read next: `cpu.py`.
"""

from __future__ import annotations

import time


def replay_ir(bits: int) -> str:
    """LLVM IR of `i64 tilewright_replay(ptr table, i64 count, i64 number)`, `i64 tilewright_now()`.

    Calls the `count` entries of `table` in order, `number` times over; an entry is three pointers:
    thunk, kernel, the kernel's arguments.  Returns the nanoseconds it took, by the monotonic clock,
    which the second one reads.

    bits: of the machine's addresses, and so of the system's time
    """
    text = _REPLAY.replace("CLOCK", str(int(time.CLOCK_MONOTONIC)))
    return text.replace("TIME", _TIME if bits == 64 else _TIME_32)


def thunk_ir(arity: int) -> str:
    """LLVM IR of `tilewright_call_<arity>(ptr kernel, ptr args)`: unpack the arguments and call."""
    loads, names = [], []
    for i in range(arity):
        loads.append(f"  %p{i} = getelementptr ptr, ptr %args, i64 {i}")
        loads.append(f"  %a{i} = load ptr, ptr %p{i}")
        names.append(f"ptr %a{i}")
    body = "\n".join([*loads, f"  call void %kernel({', '.join(names)})", "  ret void"])
    return f"define void @tilewright_call_{arity}(ptr %kernel, ptr %args) nounwind {{\n{body}\n}}\n"


_TIME = """
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np"""
_TIME_32 = """
  %s32 = load i32, ptr %t
  %np = getelementptr i32, ptr %t, i64 1
  %n32 = load i32, ptr %np
  %s = sext i32 %s32 to i64
  %n = sext i32 %n32 to i64"""
_REPLAY = """
declare i32 @clock_gettime(i32, ptr)

define i64 @tilewright_now() nounwind {
  %t = alloca [2 x i64], align 8
  %r = call i32 @clock_gettime(i32 CLOCK, ptr %t)TIME
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
