"""A small task, measuring without hardware, and a log made with both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay import NullBuilder, ReplayRunner
from tests.tvm.auto_scheduler.workloads import CPU, invented, product
from tilewright_tvm import auto_scheduler


@pytest.fixture
def task() -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=product, args=(12, 16, 8), target=CPU)


@pytest.fixture
def options() -> Iterator[Any]:
    """A function that makes `TuningOptions` whose results are invented."""
    builder, runner = NullBuilder(2), ReplayRunner(invented)

    def make(trials: int, *callbacks: Any, **more: Any) -> auto_scheduler.TuningOptions:
        more = {"verbose": 0, "builder": builder, "runner": runner} | more
        return auto_scheduler.TuningOptions(trials, measure_callbacks=callbacks, **more)

    yield make
    builder.close()
    runner.close()


@pytest.fixture
def log(task: auto_scheduler.SearchTask, options: Any, tmp_path: Path) -> str:
    """A log of `task` for CPU."""
    path = tmp_path / "log.json"
    task.tune(options(3, auto_scheduler.RecordToFile(path)))
    return str(path)
