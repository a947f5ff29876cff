"""Calls that overlap: each has workspaces of its own, and an idle module keeps few of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tilewright.base import context
from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import once
from tilewright.runtime import Device, LaunchSequence, Module, array, cpu, empty
from tilewright.runtime import module as module_of_module
from tilewright.targets.target import Target

Build = Callable[..., Artifact]
SIZE = 1000
TWO_STEPS = [(3, 0, "+", 1), (2, 3, "*", 2.0)]


def test_calls_that_overlap_share_no_workspace(
    elementwise: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Module(elementwise(cpu(), TWO_STEPS, "iiow"), cpu())
    outs = [empty(SIZE) for _ in range(2)]
    x = array(np.ones(SIZE, np.float32))
    module(x, x, outs[0])
    plan_class = type(cpu().driver.plan(()))
    run, used = plan_class.run, []

    def run_with_another_call_inside(plan) -> None:
        used.append({launch.buffers[3].pointer for launch in plan._launches})
        if len(used) == 1:
            module(x, x, outs[1])
        run(plan)

    monkeypatch.setattr(plan_class, "run", run_with_another_call_inside)
    module(x, x, outs[0])
    assert len(used) == 2 and used[0].isdisjoint(used[1])
    np.testing.assert_array_equal(outs[1].numpy(), 4)


def test_many_threads_on_one_module(device: Device, elementwise: Build) -> None:
    module = Module(elementwise(device, TWO_STEPS, "iiow"), device)
    begin = threading.Barrier(8)

    def calls(k: int) -> bool:
        x = array(np.full(SIZE, k, np.float32), device)
        out = empty(SIZE, "float32", device)
        begin.wait()
        for _ in range(50):
            module(x, x, out)
            if not (out.numpy() == 4 * k).all():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(calls, range(8)))


def test_workspaces_are_taken_over_and_few_are_kept(elementwise: Build) -> None:
    module = Module(elementwise(cpu(), TWO_STEPS, "iiow"), cpu())
    x, outs = array(np.ones(SIZE, np.float32)), [empty(SIZE) for _ in range(3)]
    for out in outs:
        module(x, x, out)
    assert len(module._idle) == 1
    taken = [module._take((x, x, outs[0])) for _ in range(module_of_module._KEPT + 5)]
    for ready in taken:
        module._give(ready)
    assert len(module._idle) == module_of_module._KEPT


def test_sequences_of_one_module_share_no_workspace(elementwise: Build) -> None:
    module = Module(elementwise(cpu(), TWO_STEPS, "iiow"), cpu())
    x, out = array(np.ones(SIZE, np.float32)), empty(SIZE)
    first, second = (LaunchSequence(cpu(), module.launches(x, x, out)) for _ in range(2))
    assert first.calls[0][1][3].memory is not second.calls[0][1][3].memory
    assert first.calls[0][1][3].memory is first.calls[1][1][3].memory


def test_what_is_entered_in_one_thread_is_not_current_in_another() -> None:
    inside, seen = threading.Event(), threading.Event()

    def other() -> Target | None:
        with Target("llvm -num-cores=3"):
            inside.set()
            seen.wait(10)
            return Target.current()

    with ThreadPoolExecutor(1) as pool, Target("cuda") as mine:
        found = pool.submit(other)
        assert inside.wait(10) and Target.current() is mine
        seen.set()
        assert str(found.result()) == "llvm -num-cores=3"
    assert context.every("target") == ()


def test_once_makes_one_for_all_threads() -> None:
    made: list[int] = []

    @once
    def slow(key: int) -> object:
        made.append(key)
        threading.Event().wait(0.05)
        return object()

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: slow(1), range(8)))
    assert made == [1] and len(found) == 1
