"""One farm for the tests that break nothing: a tracker, three devices, two keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("distributed")

from farm.processes import Farm, farm


@pytest.fixture(scope="session")
def shared_farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    with farm(tmp_path_factory.mktemp("farm"), ["1080ti", "1080ti", "titanx"]) as made:
        yield made
