"""`Rotary`: by which angles positions turn queries and keys, from what a config tells of them.

In: the numbers of a config's rope_parameters (rope_scaling in older ones).  Out: a `Rotary`, plain
numbers in double precision.  A kind that is not known is left to `config.py`, which names it.

Two kinds depend on how long a text is.  `longrope` has one set of frequencies for texts of up to
as many positions as the model was first trained with, and one for longer ones.  Keys lie in a cache
as they were turned, so a text that grows beyond that number would have to go through the model
again.  The set is chosen by the length of the caches, once: for all texts that short caches hold,
and for all long texts, it is what models of transformers take; a short text in long caches is
turned as a long one.  `dynamic` changes its base beyond what the model was made for, where caches
are refused, and until then is the plain turn.  Read next: `graph.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Told = Mapping[str, Any]


@dataclass(frozen=True)
class Rotary:
    """frequencies: one for each pair of the first 2 * len(frequencies) elements of a head, in
    radians a position; factor: of sine and cosine; long: the frequencies where caches have more
    than `short` positions, none: the same ones"""

    frequencies: tuple[float, ...]
    factor: float = 1.0
    long: tuple[float, ...] = ()
    short: int = 0

    def over(self, length: int) -> tuple[float, ...]:
        """The frequencies for caches of a length."""
        return self.long if self.long and length > self.short else self.frequencies


def positive(told: Told, name: str) -> float:
    """Raises KeyError for a number that is not there, ValueError for one that cannot be."""
    value = float(told[name])
    if not 0 < value < math.inf:
        raise ValueError(f"{name} is {value}")
    return value


def _or(told: Told, name: str, usual: float) -> float:
    """Also where it is null or 0."""
    return positive(told, name) if told.get(name) else usual


def _plain(plain: np.ndarray, told: Told) -> Rotary:
    return Rotary(_numbers(plain))


def _linear(plain: np.ndarray, told: Told) -> Rotary:
    return Rotary(_numbers(plain / positive(told, "factor")))


def _llama3(plain: np.ndarray, told: Told) -> Rotary:
    """Long waves slower by a factor, short ones as they are, and between them a mean of both."""
    factor, low, high = (
        positive(told, k) for k in ("factor", "low_freq_factor", "high_freq_factor")
    )
    if low >= high:
        raise ValueError(f"low_freq_factor {low} is not below high_freq_factor {high}")
    turns = positive(told, "original_max_position_embeddings") * plain / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return Rotary(_numbers((1 - share) * plain / factor + share * plain))


def _yarn(plain: np.ndarray, told: Told) -> Rotary:
    """Slower by a factor from the pair on that turns `beta_slow` times over the first training's
    length, as they are up to the one that turns `beta_fast` times, and between them a mean that
    goes by the number of the pair."""
    length = positive(told, "original_max_position_embeddings")
    factor = _factor(told, told["factor"])
    size, base = 2 * len(plain), positive(told, "rope_theta")

    def pair(times: float) -> float:
        return size * math.log(length / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(_or(told, "beta_fast", 32)), pair(_or(told, "beta_slow", 1))
    if told.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    slow = np.clip((np.arange(len(plain)) - low) / ((high - low) or 0.001), 0, 1)

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    if told.get("attention_factor") is not None:
        waves = positive(told, "attention_factor")
    elif told.get("mscale") and told.get("mscale_all_dim"):
        waves = scale(positive(told, "mscale")) / scale(positive(told, "mscale_all_dim"))
    else:
        waves = scale(1.0)
    return Rotary(_numbers(slow * plain / factor + (1 - slow) * plain), waves)


def _longrope(plain: np.ndarray, told: Told) -> Rotary:
    """A factor for each pair, in two sets."""
    length = positive(told, "original_max_position_embeddings")
    factor = _factor(told, told.get("factor"))
    if told.get("attention_factor") is not None:
        waves = positive(told, "attention_factor")
    else:
        waves = math.sqrt(1 + math.log(factor) / math.log(length)) if factor > 1 else 1.0
    short, long = (
        _numbers(plain / _each(told, name, len(plain))) for name in ("short_factor", "long_factor")
    )
    return Rotary(short, waves, long, int(length))


def _factor(told: Told, factor: Any) -> float:
    """How many times as many positions as in its first training; null: by both numbers."""
    if factor is not None:
        return positive(told, "factor")
    return positive(told, "max_position_embeddings") / positive(
        told, "original_max_position_embeddings"
    )


def _each(told: Told, name: str, count: int) -> np.ndarray:
    found = told[name]
    if not isinstance(found, list) or len(found) != count:
        raise ValueError(f"{name} is not a list of {count} numbers")
    made = np.asarray([float(n) for n in found])
    if not (np.isfinite(made) & (made > 0)).all():
        raise ValueError(f"{name} has {made.min()}")
    return made


def _numbers(frequencies: np.ndarray) -> tuple[float, ...]:
    return tuple(map(float, frequencies))


KINDS: dict[str | None, Callable[[np.ndarray, Told], Rotary]] = {
    None: _plain, "default": _plain, "linear": _linear, "dynamic": _plain, "llama3": _llama3,
    "yarn": _yarn, "longrope": _longrope,
}  # fmt: skip


def rotary_of(kind: str | None, size: int, told: Told) -> Rotary:
    """The turn of the first `size` elements of each head.

    kind: a key of `KINDS`
    told: rope_parameters with rope_theta, max_position_embeddings and, where the kind has one,
          original_max_position_embeddings
    Raises KeyError for a number that is missing, ValueError for one that cannot be.
    """
    base = positive(told, "rope_theta")
    return KINDS[kind](base ** (-np.arange(0, size, 2, dtype=np.float64) / size), told)
