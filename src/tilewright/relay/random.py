"""`relay.random`: random numbers that are a function of a key, under TVM's names.

In: a key, ten words of 64 bits.  Out: a new key and numbers, made of integer operators, so that
equal keys give equal numbers on every target.  The numbers are those of Threefry 4x64 with 20
rounds; which of them a key stands for is our own, so values are not TVM's.  With a constant key
they are constants of the network.  Read next: `indexing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay import tensor
from tilewright.relay.graph.expr import Constant, Expr, Tuple, check_dtype, static_shape
from tilewright.relay.graph.leaves import const
from tilewright.relay.indexing import stack, strided_slice

WORDS, COUNTER = 10, 8  # of a key: words 0 to 3 are the cipher's key, word 8 counts its uses
_ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
_PARITY = 0x1BD11BDAA9FC1A22
_ROUNDS = 20
_GENERATE, _SPLIT = 0, 1  # the third word of what is enciphered: neither meets the other's numbers


def threefry_key(seed: int) -> Constant:
    """The key of a seed of at most 256 bits, a constant."""
    if not 0 <= seed < 1 << 256:
        raise ModelError(
            f"relay.random.threefry_key({seed})", "it is no number of 256 bits", "Use 0 or more."
        )
    words = [seed >> 64 * k & (1 << 64) - 1 for k in range(4)]
    return const(np.array(words + [0] * (WORDS - 4), np.uint64))


def threefry_generate(key: Expr, shape: Sequence[int]) -> Tuple:
    """(the next key, uint64 numbers of `shape`).  A key that was used is not used again."""
    _check(key, "threefry_generate")
    extents = static_shape(shape, "relay.random.threefry_generate")
    count = math.prod(extents)
    blocks = np.arange(max(-(-count // 4), 1), dtype=np.uint64)
    words = stack(_enciphered(key, const(blocks), _GENERATE), axis=1)
    flat = tensor.reshape(words, (-1,))
    numbers = tensor.reshape(strided_slice(flat, [0], [count]), extents)
    step = np.zeros(WORDS, np.uint64)
    step[COUNTER] = 1
    return Tuple([tensor.add(key, const(step)), numbers])


def threefry_split(key: Expr) -> Tuple:
    """Two keys with nothing in common, for parts that draw independently of each other."""
    _check(key, "threefry_split")
    both = stack(_enciphered(key, const(np.arange(2, dtype=np.uint64)), _SPLIT), axis=1)
    rest = const(np.zeros(WORDS - 4, np.uint64))
    halves = [tensor.reshape(strided_slice(both, [k, 0], [k + 1, 4]), (4,)) for k in (0, 1)]
    return Tuple([tensor.concatenate([half, rest], 0) for half in halves])


def uniform(
    key: Expr,
    shape: Sequence[int],
    dtype: str = "float32",
    low: float | Expr = 0.0,
    high: float | Expr = 1.0,
) -> Tuple:
    """(the next key, numbers from `low` on and below `high`).  dtype: float32 or float64"""
    kind = _kind(dtype, "uniform")
    following, bits = threefry_generate(key, shape)
    return Tuple([following, _fraction(bits, kind) * _as(high, kind, low) + _as(low, kind)])


def normal(
    key: Expr,
    shape: Sequence[int],
    dtype: str = "float32",
    mean: float | Expr = 0.0,
    scale: float | Expr = 1.0,
) -> Tuple:
    """(the next key, normally distributed numbers), by the method of Box and Muller."""
    kind = _kind(dtype, "normal")
    extents = static_shape(shape, "relay.random.normal")
    following, bits = threefry_generate(key, (2, *extents))
    fractions = _fraction(bits, kind)
    first, second = (
        tensor.reshape(strided_slice(fractions, [k], [k + 1]), extents) for k in (0, 1)
    )
    radius = tensor.sqrt(tensor.log(_as(1.0, kind) - first) * _as(-2.0, kind))
    drawn = radius * tensor.cos(second * _as(2 * math.pi, kind))
    return Tuple([following, drawn * _as(scale, kind) + _as(mean, kind)])


def _enciphered(key: Expr, blocks: Expr, purpose: int) -> list[Expr]:
    """The four words of each block."""
    zero = const(np.zeros(1, np.uint64))
    words: list[Expr] = [strided_slice(key, [k], [k + 1]) for k in range(4)]
    counter = strided_slice(key, [COUNTER], [COUNTER + 1])
    parity: Expr = _word(_PARITY)
    for word in words:
        parity = tensor.bitwise_xor(parity, word)
    words = [*words, parity]
    state = [blocks, counter, _word(purpose), zero]
    for done in range(_ROUNDS):
        if done % 4 == 0:
            state = _injected(state, words, done // 4)
        partners = (1, 3) if done % 2 == 0 else (3, 1)
        for even, odd, turn in zip((0, 2), partners, _ROTATIONS[done % 8], strict=True):
            state[even] = tensor.add(state[even], state[odd])
            state[odd] = tensor.bitwise_xor(_rotated(state[odd], turn), state[even])
    state = _injected(state, words, _ROUNDS // 4)
    return state


def _injected(state: Sequence[Expr], words: Sequence[Expr], step: int) -> list[Expr]:
    added = [tensor.add(x, words[(step + k) % 5]) for k, x in enumerate(state)]
    return [*added[:3], tensor.add(added[3], _word(step))]


def _rotated(x: Expr, turn: int) -> Expr:
    left, right = tensor.left_shift(x, _word(turn)), tensor.right_shift(x, _word(64 - turn))
    return tensor.bitwise_or(left, right)


def _word(value: int) -> Constant:
    return const(np.array([value], np.uint64))


def _fraction(bits: Expr, kind: Any) -> Expr:
    """Numbers of [0, 1) in steps that the type holds exactly."""
    kept = tensor.right_shift(bits, const(np.array(64 - kind.digits, np.uint64)))
    return tensor.cast(kept, kind) * _as(2.0**-kind.digits, kind)


def _as(value: Any, kind: Any, less: Any = 0.0) -> Expr:
    """`value - less` in an element type."""
    if isinstance(value, Expr) or isinstance(less, Expr):
        return tensor.cast(_held(value) - _held(less), kind)
    return const(value - less, kind)


def _held(value: Any) -> Expr:
    return tensor.cast(value if isinstance(value, Expr) else const(float(value)), "float64")


def _kind(dtype: str, name: str) -> Any:
    kind = check_dtype(dtype, f"relay.random.{name}")
    if kind not in ("float32", "float64"):
        raise ModelError(
            f"relay.random.{name}(dtype={dtype!r})", "it is neither float32 nor float64",
            "Convert the numbers with relay.cast.",
        )  # fmt: skip
    return kind


def _check(key: Expr, name: str) -> None:
    kind = key.tensor_type
    if kind.shape != (WORDS,) or kind.dtype != "uint64":
        raise ModelError(
            f"relay.random.{name}(key={kind})", f"a key is {WORDS} words of uint64",
            "Make one with relay.random.threefry_key(seed).",
        )  # fmt: skip


__all__ = ["normal", "threefry_generate", "threefry_key", "threefry_split", "uniform"]
open_doors(globals(), __all__, ModelError)

_ELSEWHERE = {"multinomial": "Draw with numpy, and give the places as inputs."}


def __getattr__(name: str) -> Any:
    raise absent("relay.random", name, _ELSEWHERE)
