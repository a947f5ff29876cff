"""Parallel loops taken apart: what races gives another result, always; what does not, the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.driver import compile_source
from tilewright.driver.cache import Cache
from tilewright.runtime import cpu
from tilewright.runtime.drivers import Launch
from tilewright.runtime.trial import trial

SIZE = 64
X = np.arange(1, SIZE + 1, dtype=np.float32)

# sum[0] = x[0] + ... : one element for all iterations of a parallel loop
_SUM = """
declare void @tilewright_parallel(ptr, ptr, i64)
define internal void @body(ptr %env, i64 %begin, i64 %end) {
entry:
  %to = getelementptr ptr, ptr %env, i64 1
  %x = load ptr, ptr %env
  %sum = load ptr, ptr %to
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %at = getelementptr float, ptr %x, i64 %i
  %term = load float, ptr %at
  %old = load float, ptr %sum
  %new = fadd float %old, %term
  store float %new, ptr %sum
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @total(ptr %a0, ptr %a1) {
  %env = alloca [2 x ptr]
  %second = getelementptr ptr, ptr %env, i64 1
  store ptr %a0, ptr %env
  store ptr %a1, ptr %second
  store float 0.0, ptr %a1
  call void @tilewright_parallel(ptr @body, ptr %env, i64 64)
  ret void
}"""


def racing() -> Artifact:
    specs = (BufferSpec("x", "float32", (SIZE,), "input"),
             BufferSpec("sum", "float32", (1,), "output"))  # fmt: skip
    source = Source("llvm", _SUM, "total", specs, (KernelInfo("total", (0, 1)),))
    return compile_source(source, "llvm", Cache(None))


@pytest.mark.parametrize("again", range(5))
def test_a_race_is_found_every_time(again: int) -> None:
    result = trial(racing(), cpu(), [X], [[X.sum()]])
    assert result.error == "wrong" and "instead of" in result.message


def test_a_loop_without_races_gives_the_same(elementwise: Callable[..., Artifact]) -> None:
    driver = cpu().driver
    artifact = elementwise(cpu(), [(2, 0, "+", 1), (2, 2, "*", 2.0)])
    memory = [driver.allocate(4000) for _ in range(3)]
    for one, value in zip(memory, (1.5, 2.0, np.nan), strict=True):
        driver.write(one, np.full(1000, value, np.float32).view(np.uint8))
    (kernel, second) = driver.load(artifact)
    plan = driver.plan((Launch(kernel, tuple(memory)), Launch(second, tuple(memory))))
    assert plan.run_apart(memory[2:], 1.0)
    assert (memory[2].view.view(np.float32) == 7.0).all()  # type: ignore[attr-defined]
    assert not plan.run_apart(memory[2:], 0.0)  # no time: nothing is promised
    plan.run()
    assert (memory[2].view.view(np.float32) == 7.0).all()  # type: ignore[attr-defined]
