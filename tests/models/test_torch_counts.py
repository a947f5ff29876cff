"""Whole numbers of Python's that vary from call to call, in torch.compile: read as data where they
only enter arithmetic."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest

from models import torch_compiled
from models.torch_compiled import compiled
from models.torch_networks import torch
from tilewright.models.torch.counts import as_data
from tilewright.models.torch.told import TilewrightWarning

fresh, built = torch_compiled.fresh, torch_compiled.built  # fixtures


class Held:
    """Counts for itself, as caches of transformers do."""

    def __init__(self) -> None:
        self.length, self.other = 3, 10

    def step(self, x: Any) -> Any:
        begin = max(self.length - 5, 0)
        smaller = min(2 * self.length, self.other)
        self.length += 1
        self.other += 2
        made = torch.where(torch.arange(8) + begin < self.length, x * smaller, -x)
        return made + begin, self.other


def agree(run: Any, wanted: Any, calls: list[Any]) -> None:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", TilewrightWarning)
        for given in calls:
            torch.testing.assert_close(run(*given), wanted(*given))


@pytest.mark.slow
def test_numbers_that_an_object_counts_are_compiled_once(built: Any) -> None:
    held = Held()
    twin = copy.copy(held)
    run = compiled(lambda x: held.step(x), cache=False)
    agree(run, twin.step, [(torch.randn(2, 8),) for _ in range(9)])
    assert (held.length, held.other) == (twin.length, twin.other) == (12, 28)
    assert len(built) == 2  # for the numbers of the first call, and for all others


@pytest.mark.slow
def test_arguments_that_are_numbers(built: Any) -> None:
    def plain(x: Any, n: int, m: int) -> Any:
        return (x + n) * (n - m), n * m, x.int() == m, m

    run = compiled(plain, cache=False)
    x = torch.randn(3, 4)
    agree(run, plain, [(x, 2, 3), *((x, n, 7 * n) for n in (5, -4, 1 << 20, 2))])
    assert len(built) == 2


@pytest.mark.slow
def test_a_number_that_decides_an_extent_is_a_size(built: Any) -> None:
    def plain(x: Any, n: int, m: int) -> Any:
        return x[:, :n] * m + n

    run = compiled(plain, cache=False)
    agree(run, plain, [(torch.randn(3, 9), n, n + 5) for n in (3, 4, 5)])
    assert len(built) == 3
    agree(run, plain, [(torch.randn(3, 9), 5, m) for m in (30, 31, 32)])
    assert len(built) == 3  # the other one is data


def traced(function: Any, *calls: Any) -> list[Any]:
    """Which of the numbers of the graph of each call are data."""
    found: list[Any] = []

    def look(gm: Any, args: Any) -> Any:
        made = as_data(torch, gm)
        found.append(None if made is None else made[1].positions)
        return gm.forward

    run = torch.compile(function, backend=look)
    for given in calls:
        run(*given)
    return found


@pytest.mark.slow
def test_what_would_be_another_type_stays_a_number() -> None:
    """A number takes the type of the tensor that it meets; a tensor of int64 may not."""
    n, m = torch.tensor(3, dtype=torch.int32), torch.ones(4, dtype=torch.int32)
    flags = torch.ones(4, dtype=torch.bool)
    assert traced(lambda x, k: x + k, (n, 5), (n, 6)) == [None, None]
    torch._dynamo.reset()
    assert traced(lambda x, k: x + k, (flags, 5), (flags, 6)) == [None, None]
    torch._dynamo.reset()
    assert traced(lambda x, k: x + k, (m, 5), (m, 6))[1] is not None
    torch._dynamo.reset()
    assert traced(lambda x, k: x // k, (m, 5), (m, 6)) == [None, None]
    torch._dynamo.reset()
    assert traced(lambda x, k: torch.full((k,), 2) + x.sum(), (m, 5), (m, 6)) == [None, None]
    torch._dynamo.reset()
    assert traced(lambda x: torch.relu(x) * x.shape[0], (m,), (m[:3],)) == [None, None]
