"""What all tests share: a kernel cache of their own, reproducible hypothesis, `--update-golden`."""

from __future__ import annotations

from tests import one_thread as _one_thread  # noqa: F401  # before anything imports numpy

# isort: split

import contextlib
import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import brief, tiers, times, workers


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files that differ"
    )
    parser.addoption("--long", action="store_true", help="every case and drill, with fresh seeds")
    parser.addoption("--times", type=Path, help="a file that shall hold what each file took")


def pytest_configure(config: pytest.Config) -> None:
    tiers.begin(config.option.long)
    if config.getoption("dist", "no") == "load":  # what a file makes for its tests is made once
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False  # the dearest first, not the fullest
    if config.option.long and hasattr(config.option, "timeout") and config.option.timeout is None:
        config.option.timeout = 3000
    cache = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["TILEWRIGHT_CACHE"] = cache.name  # worker processes inherit it
    if config.option.times:
        config.pluginmanager.register(times.Times(config.option.times))
    os.environ["TILEWRIGHT_KNOWLEDGE"] = "off"  # what is untuned is untuned, whatever ships


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For `-n auto`: half of the cores more, as many tests wait for processes of their own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) * 3 // 2


def pytest_collection_finish(session: pytest.Session) -> None:
    """Whatever is there now stays: collecting garbage need not look at 12,000 tests each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=times.last_taken, reverse=True)
    if config.option.long or any("::" in arg for arg in config.args):
        return
    out = tiers.left_out(items)
    config.hook.pytest_deselected(items=[item for item in items if item in out])
    items[:] = [item for item in items if item not in out]


@pytest.fixture(autouse=True)
def kept_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pools of most tests begin with processes of earlier ones."""
    own = request.path.parent.name in workers.OWN or "own_workers" in request.keywords
    with contextlib.nullcontext() if own else workers.keep():
        yield


@pytest.fixture(autouse=True)
def brief_timing(request: pytest.FixtureRequest) -> Iterator[None]:
    """What most tests time is timed briefly."""
    own = request.path.parent.name in workers.OWN or request.config.option.long
    with contextlib.nullcontext() if own else brief.keep():
        yield


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
