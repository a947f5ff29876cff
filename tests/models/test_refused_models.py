"""What `tw.load` says of models that it cannot take: to people who know their model, not graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import TilewrightError


def test_what_pytorch_refuses_is_one_error_and_nothing_is_logged(
    capfd: pytest.CaptureFixture[str],
) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TilewrightError, match="torch.export refuses .* same reduction dim"):
        tw.load(torch.nn.Linear(3, 3), (1, 4))
    assert not "".join(capfd.readouterr())


def test_words_are_those_of_a_model_not_of_a_graph() -> None:
    """Who loads a model calls no function of relay: none is a way out."""
    torch = pytest.importorskip("torch")
    data = torch.zeros(1, 3, dtype=torch.float64)
    calls: list[Callable[[], Any]] = [
        lambda: tw.load(torch.nn.Linear(3, 3), data),
        lambda: tw.load("mlp", batch=(10**12,)),
        lambda: tw.load(torch.nn.Conv2d(3, 4, 3), data.reshape(1, 3, 1, 1).expand(1, 3, 4, 4)),
    ]
    for call in calls:
        with pytest.raises(TilewrightError) as refused:
            call()
        assert "relay." not in str(refused.value), str(refused.value)
