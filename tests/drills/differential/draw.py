"""Random shapes, attributes and elements: mostly plain, now and then at an edge.

In: a generator.  Out: extents of 0 and 1, negative and impossible axes, data far from zero, with
infinities, NaN, zeros of both signs.  Read next: `case.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Array = np.ndarray[Any, Any]
T = TypeVar("T")

SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0)
STYLES = ("plain", "plain", "far", "special", "whole", "small")
FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTEGERS = ("int64", "int32", "int8", "uint8")


class Draw:
    """small: extents of at most 2, for a shorter case of the same kind"""

    def __init__(self, seed: Sequence[int], small: bool = False) -> None:
        self.rng, self.small = np.random.default_rng(seed), small

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, items: Sequence[T]) -> T:
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low: int, high: int) -> int:
        """low to high, both possible."""
        return int(self.rng.integers(low, high + 1))

    def extent(self, least: int = 0, most: int = 5) -> int:
        if least == 0 and self.chance(0.06):
            return 0
        if least <= 1 and self.chance(0.25):
            return 1
        return self.integer(max(least, 1), max(least, 2 if self.small else most))

    def shape(self, low: int = 0, high: int = 4, least: int = 0) -> tuple[int, ...]:
        return tuple(self.extent(least) for _ in range(self.integer(low, high)))

    def axis(self, rank: int) -> int:
        """Counted from either side; one in twenty is outside."""
        if self.chance(0.05):
            return self.pick([rank, -rank - 1, rank + 2])
        return self.integer(-rank, rank - 1) if rank else self.pick([0, -1])

    def axes(self, rank: int, least: int = 0) -> list[int]:
        count = self.integer(min(least, rank), rank)
        made = [int(a) for a in self.rng.permutation(rank)[:count]]
        made = [a - rank if self.chance(0.3) else a for a in made]
        if made and self.chance(0.04):
            made[0] = self.axis(rank)
        return made

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that usually stretches to `shape`, or is stretched by it."""
        made = [1 if self.chance(0.3) else n for n in shape]
        made = made[self.integer(0, len(made)) :] if self.chance(0.3) else made
        if made and self.chance(0.03):
            made[0] += 1
        return tuple(made)

    def floats(self, shape: Sequence[int], dtype: str = "float32", style: str = "") -> Array:
        style = style or self.pick(STYLES)
        made = np.asarray(self.rng.normal(size=tuple(shape)) * 2)
        if style == "far":
            made = made * self.pick([0.01, 1.0]) + self.pick([100.0, -1000.0])
        elif style == "whole":
            made = np.round(made)
        elif style == "small":
            made = made * 1e-3
        elif style == "special":
            at = self.rng.random(made.shape) < 0.2
            made = np.where(at, self.rng.choice(SPECIAL, made.shape), made)
        with np.errstate(over="ignore"):
            return np.asarray(made, dtype)

    def integers(self, shape: Sequence[int], dtype: str, low: int = -5, high: int = 9) -> Array:
        low = max(low, 0) if dtype.startswith("u") else low
        return np.asarray(self.rng.integers(low, high + 1, tuple(shape)), dtype)

    def array(self, shape: Sequence[int], dtype: str) -> Array:
        if dtype == "bool":
            return np.asarray(self.rng.integers(0, 2, tuple(shape)), bool)
        if dtype.startswith(("int", "uint")):
            return self.integers(shape, dtype)
        return self.floats(shape, dtype)
