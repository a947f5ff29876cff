"""`LocalExecutor`: calls in processes of their own, with a deadline."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.measure.local import LocalRunner
from tilewright_tvm.autotvm.measure import LocalExecutor, TimeoutError
from tilewright_tvm.autotvm.measure.executor import ExecutionError


@pytest.mark.slow
def test_calls_run_side_by_side_and_give_what_they_return() -> None:
    ready = LocalExecutor().submit(lambda a, b: a + b, 3, b=4)
    slow = LocalExecutor().submit(lambda: (time.sleep(0.5), os.getpid())[1])
    assert ready.get() == 7 and not slow.done()
    with pytest.raises(TimeoutError, match="no result after"):
        slow.get(timeout=0.01)
    assert slow.get() not in (None, os.getpid()) and slow.done()


@pytest.mark.slow
def test_what_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    mark = tmp_path / "children"

    def started() -> None:
        child = os.fork()
        if not child:
            time.sleep(60)
        mark.write_text(str(child))
        time.sleep(60)

    future = LocalExecutor(timeout=0.5).submit(started)
    assert isinstance(future.get(), TimeoutError) and future.done()
    child = int(mark.read_text())
    for _ in range(100):  # whoever adopted it has to take note
        if not Path(f"/proc/{child}").exists() or "Z" in state_of(child):
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the child goes on")


def state_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_what_fails_is_the_result() -> None:
    def raises() -> None:
        raise ValueError("no")

    assert isinstance(LocalExecutor().submit(raises).get(), ValueError)
    assert isinstance(LocalExecutor().submit(os._exit, 3).get(), ExecutionError)
    unsendable = LocalExecutor().submit(lambda: lambda: 0).get()
    assert isinstance(unsendable, ExecutionError) and "cannot be sent" in str(unsendable)
    assert LocalExecutor(do_fork=False).submit(os.getpid).get() == os.getpid()
    with pytest.raises(DeviceError, match="must be positive"):
        LocalExecutor(timeout=0)


def test_a_runner_takes_no_inputs() -> None:
    runner = LocalRunner()
    runner.ref_input = None
    with pytest.raises(DeviceError, match="task_inputs"):
        runner.ref_input = [np.zeros(3)]
