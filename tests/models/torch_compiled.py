"""Modules under `torch.compile` in tests: each alone, builds counted.  Skipped without PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

from models.torch_networks import torch
from tilewright.models.torch import compile as torch_compile
from tilewright.models.torch import told
from tilewright.network.build import build


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    """Nothing that was compiled or told before counts."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    told._told.clear()
    torch_compile.register()


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="tilewright", options=options or None)


@pytest.fixture
def built(monkeypatch) -> list[Any]:
    """The networks that are built, as they come."""
    found: list[Any] = []
    monkeypatch.setattr(
        torch_compile, "build", lambda *a, **k: found.append(a[0]) or build(*a, **k)
    )
    return found
