"""The fork-join pool: every iteration runs exactly once, whoever calls, however, and after fork."""

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.errors import DeviceError
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import Module, array, cpu
from tilewright.runtime.drivers.cpu import default_threads, set_num_threads

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


@pytest.fixture(params=[(1, 20000), (2, 20000), (2, 0), (7, 100)], ids=str)
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
