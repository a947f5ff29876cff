"""`relay.random`: random numbers that are a function of a key, under TVM's names.

In: a key, ten words of 64 bits.  Out: a new key and numbers, made of integer operators, so that
equal keys give equal numbers on every target, and TVM's.  With a constant key they are constants of
the network.  What the words of a key mean: `topi/random.py`.  Read next:
`graph/functions/indexing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Constant, Expr, Tuple, check_dtype, static_shape
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import stack, strided_slice
from tilewright.graph.leaves import const
from tilewright_tvm.relay.functional.later import defer
from tilewright_tvm.topi.random import FRACTION, FULL, PARITY, ROTATIONS, ROUNDS, WORDS


def threefry_key(seed: int) -> Constant:
    """The key of a seed of at most 256 bits, a constant."""
    if not 0 <= seed < 1 << 256:
        raise ModelError(
            f"relay.random.threefry_key({seed})", "it is no number of 256 bits", "Use 0 or more."
        )
    words = [seed >> 64 * k & FULL for k in range(4)]
    return const(np.array([*words, 0, 0, 0, 0, 1 << 63, 0], np.uint64))


def threefry_generate(key: Expr, shape: Sequence[int]) -> Tuple:
    """(the next key, uint64 numbers of `shape`).  A key that was used is not used again."""
    words = _words(key, "threefry_generate")
    extents = static_shape(shape, "relay.random.threefry_generate")
    count = math.prod(extents)
    fresh = _enciphered(words, [_word(FULL)] * 4) + [_word(n) for n in (0, 0, 0, 0, 1 << 63, 0)]
    further = [*_descended(words, True)[:6], _word(0), _word(0), *_step(words)]
    fits = tensor.less(words[7], _word(FULL - count))
    full = _is_full(words)
    new = [
        tensor.where(fits, word, tensor.where(full, a, b))
        for word, a, b in zip(words, fresh, further, strict=True)
    ]
    whole, left = divmod(count, 4)
    blocks = np.arange(whole + (left > 0 or not count), dtype=np.uint64)
    last = blocks * np.uint64(1)
    if left:  # the words of a last block that is not used up count otherwise
        blocks[-1], last[-1] = 0, 4 * whole
    text = [tensor.add(new[4 + k], const(last if k == 3 else blocks)) for k in range(4)]
    flat = tensor.as_shape(stack(_enciphered(new, text), axis=1), (-1,))
    numbers = tensor.as_shape(strided_slice(flat, [0], [count]), extents)
    counted = tensor.add(new[7], _word(4 * whole + (4 if left else 0)))
    following = [*new[:6], _word(0), counted, *new[8:]]
    return Tuple([tensor.concatenate(following, 0), numbers])


def threefry_split(key: Expr) -> Tuple:
    """Two keys with nothing in common, for parts that draw independently of each other."""
    words = _words(key, "threefry_split")
    made, full = _enciphered(words, words[4:8]), _is_full(words)
    halves = []
    for right in (False, True):
        fresh = made + [_word(n) for n in (right << 63, 0, 0, 0, 1 << 62, 0)]
        further = [*_descended(words, right), *_step(words)]
        both = zip(fresh, further, strict=True)
        halves.append(tensor.concatenate([tensor.where(full, a, b) for a, b in both], 0))
    return Tuple(halves)


def _words(key: Expr, name: str) -> list[Expr]:
    _check(key, name)
    return [strided_slice(key, [k], [k + 1]) for k in range(WORDS)]


def _is_full(words: Sequence[Expr]) -> Expr:
    """Whether no step is left for the path of a key."""
    return tensor.logical_and(*(tensor.equal(words[k], _word(0)) for k in (8, 9)))


def _descended(words: Sequence[Expr], right: bool) -> list[Expr]:
    """Words 0 to 7 of a key with one step more in its path."""
    path = [tensor.bitwise_or(words[k], words[k + 4]) if right else words[k] for k in (4, 5)]
    return [*words[:4], *path, *words[6:8]]


def _step(words: Sequence[Expr]) -> list[Expr]:
    """Words 8 and 9, whose bit moves by one place."""
    last = tensor.equal(words[8], _word(1))
    none = tensor.equal(words[8], _word(0))
    moved = tensor.where(last, _word(1 << 63), tensor.right_shift(words[9], _word(1)))
    second = tensor.where(tensor.logical_or(last, none), moved, _word(0))
    return [tensor.right_shift(words[8], _word(1)), second]


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
        tensor.as_shape(strided_slice(fractions, [k], [k + 1]), extents) for k in (0, 1)
    )
    radius = tensor.sqrt(tensor.log(_as(1.0, kind) - first) * _as(-2.0, kind))
    drawn = radius * tensor.sin(second * _as(2 * math.pi, kind))
    return Tuple([following, drawn * _as(scale, kind) + _as(mean, kind)])


def _enciphered(key: Sequence[Expr], text: Sequence[Expr]) -> list[Expr]:
    """What each four words become under words 0 to 3 of a key."""
    parity: Expr = _word(PARITY)
    for word in key[:4]:
        parity = tensor.bitwise_xor(parity, word)
    words, state = [*key[:4], parity], list(text)
    for done in range(ROUNDS):
        if done % 4 == 0:
            state = _injected(state, words, done // 4)
        partners = (1, 3) if done % 2 == 0 else (3, 1)
        for even, odd, turn in zip((0, 2), partners, ROTATIONS[done % 8], strict=True):
            state[even] = tensor.add(state[even], state[odd])
            state[odd] = tensor.bitwise_xor(_rotated(state[odd], turn), state[even])
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
    digits = FRACTION[str(kind)]
    kept = tensor.right_shift(bits, const(np.array(64 - digits, np.uint64)))
    return tensor.cast(kept, kind) * _as(2.0**-digits, kind)


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
defer(globals(), __all__)

_ELSEWHERE = {"multinomial": "Draw with numpy, and give the places as inputs."}


def __getattr__(name: str) -> Any:
    raise absent("relay.random", name, _ELSEWHERE)
