"""Hand-written CPU kernels, sound and faulty, as jobs for the pipeline; and build functions."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.errors import CompileError
from tilewright.measure.calls import build_source
from tilewright.measure.jobs import Job
from tilewright.measure.record import TaskId
from tilewright.measure.reference import Reference, ReferenceStore
from tilewright.targets.target import Target

SIZE = 256
TASK = TaskId("twice", [SIZE], "d" * 32, "llvm")

_LOOP = """
define void @twice(ptr noalias %a, ptr noalias %b) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %from
  {body}
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""

_HEAD = "define void @twice(ptr noalias %a, ptr noalias %b) {"

KERNELS = {
    "good": _LOOP.format(body="%y = fadd float %x, %x", count=SIZE),
    "wrong": _LOOP.format(body="%y = fadd float %x, 1.0", count=SIZE),
    "unwritten": _LOOP.format(body="%y = fadd float %x, %x", count=SIZE - 1),
    "overrun": _LOOP.format(body="%y = fadd float %x, %x", count=SIZE + 16),
    "segfault": _HEAD + "\n  store volatile i32 0, ptr null\n  ret void\n}",
    "trap": _HEAD + "\n  call void @llvm.trap()\n  ret void\n}\ndeclare void @llvm.trap()",
    "endless": _HEAD + "\n  br label %l\nl:\n  store volatile i32 0, ptr %b\n  br label %l\n}",
    "refused": _HEAD + "\n  ret i32 %a\n}",
    "memory": _LOOP.format(body="%y = fadd float %x, %x", count=SIZE),
    "abort": _HEAD + "\n  call void @abort()\n  ret void\n}\ndeclare void @abort()",
    # a frame larger than any stack, written from end to end
    "stack": _HEAD
    + """
  %big = alloca [2000000000 x i8]
  call void @llvm.memset.p0.i64(ptr %big, i8 1, i64 2000000000, i1 true)
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)""",
    "output": _HEAD
    + """
  br label %l
l:
  %n = call i64 @write(i32 1, ptr %a, i64 1024)
  br label %l
}
declare i64 @write(i32, ptr, i64)""",
}


def source(kind: str, comment: object = "") -> Source:
    """comment: sources that differ in it are different programs to the pipeline"""
    roles = {"a": "input", "b": "output"}
    specs = [BufferSpec(name, "float32", (SIZE,), role) for name, role in roles.items()]
    if kind == "memory":
        specs.append(BufferSpec("w", "float32", (1 << 42,), "workspace"))
    text = f"; {comment}\n{KERNELS[kind]}"
    return Source("llvm", text, "twice", tuple(specs), (KernelInfo("twice", (0, 1)),))


def reference(store: ReferenceStore) -> Reference:
    a = np.linspace(-3, 3, SIZE, dtype=np.float32)
    return store.put("twice", [a], [2.0 * a.astype(np.float64)], [np.float64(1e-6)])


def job(kind: str, stored: Reference | None, trial: int = 0) -> Job:
    return Job(
        TASK, {"source": source(kind, trial)}, stored, origin="template:test",
        decisions={"kernel": kind, "trial": trial}, steps=[["Note", kind]], seed=7, trial=trial,
        dag={"ops": ["twice"]},
    )  # fmt: skip


def build_as_told(payload: dict[str, Any], target: Target) -> Artifact:
    """`payload["do"]` says what befalls the build process; "once" is a file: that it is over."""
    do, once = payload["do"], payload.get("once")
    if once is not None and os.path.exists(once):
        do = "build"
    elif once is not None:
        open(once, "w").close()
    if do == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if do == "no space":
        raise CompileError("compile", "ptxas failed") from OSError(28, "No space left on device")
    if do == "sleep":
        time.sleep(60)
    while do == "compute":
        pass
    if do == "exit":
        os.write(2, b"LLVM ERROR: out of registers\n")
        os._exit(134)
    if do == "memory":
        bytearray(1 << 45)
    if do == "bug":
        raise KeyError("no such stage")
    return build_source({"source": source("good")}, target)
