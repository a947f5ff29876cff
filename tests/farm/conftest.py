"""One farm for the tests that break nothing: a tracker, three devices, two keys; who builds for it,
and what its kernels should give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from farm.processes import Farm, farm
from measure.kernels import reference
from tilewright.measure.local import LocalBuilder
from tilewright.measure.reference import Reference, ReferenceStore

HERE = Path(__file__).parent
# Their tests start servers, or wait for answers that do not come.
SERVERS = {
    "bad_input", "builder", "cluster", "commands", "differing", "faults", "machines", "runner",
    "security", "session", "tutorial",
}  # fmt: skip
BUILD = "tilewright.measure.calls:build_source"


@pytest.fixture(scope="session")
def shared_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("farm"), ["1080ti", "1080ti", "titanx"]) as made:
        yield made


@pytest.fixture(scope="module")
def builder() -> Iterator[LocalBuilder]:
    with LocalBuilder(build_func=BUILD, n_parallel=1, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> Iterator[Reference]:
    with ReferenceStore() as store:
        yield reference(store)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem.removeprefix("test_") in SERVERS:
            item.add_marker(pytest.mark.slow)
