"""Tables are as wide as without a terminal, whatever runs the tests says of one."""

import pytest


@pytest.fixture(autouse=True)
def no_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
