"""The fork-join pool: every iteration runs exactly once, whoever calls, however, and after fork."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from llvmlite import binding

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.errors import DeviceError
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import Module, array, cpu
from tilewright.runtime.drivers import cpu_pool
from tilewright.runtime.drivers.cpu_native import default_threads, native_ir, set_num_threads

OUTER, INNER = 37, 11

NESTED = f"""
declare void @tilewright_parallel(ptr, ptr, i64)

define internal void @inner(ptr %row, i64 %begin, i64 %end) {{
entry:
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %p = getelementptr i32, ptr %row, i64 %i
  %old = atomicrmw add ptr %p, i32 1 monotonic
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}}

define internal void @outer(ptr %counts, i64 %begin, i64 %end) {{
entry:
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %step, label %done
step:
  %row = getelementptr [{INNER} x i32], ptr %counts, i64 %i
  call void @tilewright_parallel(ptr @inner, ptr %row, i64 {INNER})
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}}

define void @count(ptr noalias %counts) {{
  call void @tilewright_parallel(ptr @outer, ptr %counts, i64 0)
  call void @tilewright_parallel(ptr @outer, ptr %counts, i64 {OUTER})
  ret void
}}
"""


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    spec = BufferSpec("counts", "int32", (OUTER, INNER), "output")
    source = Source("llvm", NESTED, "count", (spec,), (KernelInfo("count", (0,)),))
    return compile_source(source, "llvm", Cache(None))


@pytest.fixture(params=[(1, 500_000), (2, 500_000), (2, 0), (7, 10_000)], ids=str)
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    set_num_threads(*request.param)
    yield request.param[0]
    set_num_threads(default_threads())


def count(artifact: Artifact, times: int) -> np.ndarray:
    counts = array(np.zeros((OUTER, INNER), np.int32))
    module = Module(artifact, cpu())
    for _ in range(times):
        module(counts)
    return counts.numpy()


def test_every_iteration_runs_once(artifact: Artifact, threads: int) -> None:
    np.testing.assert_array_equal(count(artifact, 50), 50)


def test_concurrent_callers(artifact: Artifact) -> None:
    found: list[np.ndarray] = []
    callers = [
        threading.Thread(target=lambda: found.append(count(artifact, 100))) for _ in range(4)
    ]
    for c in callers:
        c.start()
    for c in callers:
        c.join(timeout=30)
    assert len(found) == 4 and all((f == 100).all() for f in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_child_gets_its_own_workers(artifact: Artifact) -> None:
    set_num_threads(2)
    module, counts = Module(artifact, cpu()), array(np.zeros((OUTER, INNER), np.int32))
    module(counts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            module(counts)
            os._exit(0 if (counts.numpy() == 2).all() else 3)
        os._exit(4)
    deadline, status = time.monotonic() + 10, None
    while status is None and time.monotonic() < deadline:
        pid, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if pid else time.sleep(0.01)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    set_num_threads(default_threads())
    assert status == 0


# Loops whose first iteration waits for something, run by a child that is killed when it takes long.
# `stuck` waits until `flags[0]` is set, after it has set `flags[1]`; `uneven` waits for iteration
# 40 of 64; all others add 1 to `flags[2]`.
WAITING = """
declare void @tilewright_parallel(ptr, ptr, i64)
define internal void @stuck_body(ptr %flags, i64 %begin, i64 %end) {
entry:
  %here = getelementptr i64, ptr %flags, i64 1
  store atomic i64 1, ptr %here seq_cst, align 8
  br label %wait
wait:
  %go = load atomic i64, ptr %flags seq_cst, align 8
  %stay = icmp eq i64 %go, 0
  br i1 %stay, label %wait, label %done
done:
  ret void
}
define internal void @uneven_body(ptr %flags, i64 %begin, i64 %end) {
entry:
  %count = getelementptr i64, ptr %flags, i64 2
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %add ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %which, label %done
which:
  %first = icmp eq i64 %i, 0
  br i1 %first, label %wait, label %look
wait:
  %go = load atomic i64, ptr %flags seq_cst, align 8
  %stay = icmp eq i64 %go, 0
  br i1 %stay, label %wait, label %add
look:
  %awaited = icmp eq i64 %i, AWAITED
  br i1 %awaited, label %set, label %add
set:
  store atomic i64 1, ptr %flags seq_cst, align 8
  br label %add
add:
  %old = atomicrmw add ptr %count, i64 1 monotonic
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}
define void @stuck(ptr %flags) {
  call void @tilewright_parallel(ptr @stuck_body, ptr %flags, i64 2)
  ret void
}
define void @uneven(ptr %flags) {
  call void @tilewright_parallel(ptr @uneven_body, ptr %flags, i64 64)
  ret void
}
"""


def child(script: str) -> subprocess.CompletedProcess[str]:
    """Run `script` in a child that has `kernel(name)` of WAITING and `flags`, for at most 30 s."""
    head = f"""
import ctypes, threading
import numpy as np
from tilewright.runtime.drivers import cpu_native, cpu_pool
flags = np.zeros(3, np.int64)
def kernel(name):
    address = engine.get_function_address(name)
    return lambda: ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)(flags.ctypes.data)
def prepare(threads, awaited):
    global engine
    cpu_native.set_num_threads(threads)
    engine = cpu_native.engine({WAITING!r}.replace("AWAITED", str(awaited)))
"""
    return subprocess.run(
        [sys.executable, "-c", head + script], capture_output=True, text=True, timeout=30
    )


@pytest.mark.slow
def test_a_loop_ends_while_every_worker_is_held_up_elsewhere() -> None:
    """As on a machine where they have no core: nobody waits for a thread that has not begun."""
    done = child("""
prepare(2, 1)
held = threading.Thread(target=kernel("stuck"))
held.start()
while not flags[1]: pass
other = flags
flags = np.array([1, 0, 0])
kernel("uneven")()
assert flags[2] == 64
other[0] = 1
held.join()
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_who_is_done_takes_what_others_have_not_begun() -> None:
    """Iteration 20 of 64 is in the half of the thread that waits for it."""
    done = child("""
prepare(2, 20)
kernel("uneven")()
assert flags[2] == 64
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_sleeping_needs_no_futex() -> None:
    done = child("""
cpu_pool._FUTEX_CALL.clear()
prepare(2, 20)
cpu_native.set_num_threads(2, spin_ns=0)
for _ in range(200):
    flags[:] = 0
    kernel("uneven")()
    assert flags[2] == 64
""")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "arm64", "armv7l", "riscv64", "s390x"])
@pytest.mark.parametrize("system", ["linux-gnu", "apple-darwin", "pc-windows-msvc"])
def test_every_machine_gets_a_pool_that_llvm_takes(machine: str, system: str) -> None:
    triple = f"{machine}-{system}"
    text = native_ir(3, triple)
    binding.parse_assembly(text).verify()
    threads = machine not in ("s390x", "armv7l") and "windows" not in system
    assert ("@pthread_create" in text) == cpu_pool.supports_threads(triple) == threads


def test_math_library_is_resolved() -> None:
    names = ["expf", "tanhf", "erff", "logf", "sqrtf", "powf"]
    calls = "\n".join(
        f"  %r{i} = call float @{n}(float %x{', float 2.0' if n == 'powf' else ''})\n"
        f"  %p{i} = getelementptr float, ptr %o, i64 {i}\n  store float %r{i}, ptr %p{i}"
        for i, n in enumerate(names)
    )
    declared = "\n".join(
        f"declare float @{n}(float{', float' if n == 'powf' else ''})" for n in names
    )
    text = f"""{declared}
declare double @tanh(double)
define void @m(ptr noalias %i, ptr noalias %o) {{
  %x = load float, ptr %i
{calls}
  %d = fpext float %x to double
  %t = call double @tanh(double %d)
  %f = fptrunc double %t to float
  %p = getelementptr float, ptr %o, i64 {len(names)}
  store float %f, ptr %p
  ret void
}}"""
    specs = (
        BufferSpec("i", "float32", (1,), "input"),
        BufferSpec("o", "float32", (len(names) + 1,), "output"),
    )
    source = Source("llvm", text, "m", specs, (KernelInfo("m", (0, 1)),))
    made = compile_source(source, "llvm", Cache(None))
    out = array(np.zeros(len(names) + 1, np.float32))
    Module(made, cpu())(array(np.array([0.5], np.float32)), out)
    want = [np.exp(0.5), np.tanh(0.5), 0.5204999, np.log(0.5), np.sqrt(0.5), 0.25, np.tanh(0.5)]
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-6)


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "3")
    assert default_threads() == 3
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "many")
    with pytest.raises(DeviceError, match="positive integer"):
        default_threads()
    with pytest.raises(DeviceError, match=r"set_num_threads\(0\)"):
        set_num_threads(0)
