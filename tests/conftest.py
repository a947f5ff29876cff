"""What all tests share: a kernel cache of their own, reproducible hypothesis, `--update-golden`."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "tilewright", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tilewright")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files that differ"
    )


def pytest_configure(config: pytest.Config) -> None:
    cache = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    config.add_cleanup(cache.cleanup)
    os.environ["TILEWRIGHT_CACHE"] = cache.name  # worker processes inherit it
    os.environ["TILEWRIGHT_KNOWLEDGE"] = "off"  # what is untuned is untuned, whatever ships


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
