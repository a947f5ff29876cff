"""One farm for the tests that break nothing: a tracker, three devices, two keys; who builds for it,
and what its kernels should give."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("distributed")

from farm.processes import Farm, farm
from measure.kernels import reference
from tilewright.measure.local import LocalBuilder
from tilewright.measure.reference import Reference, ReferenceStore

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
