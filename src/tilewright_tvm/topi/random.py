"""Random numbers that are a function of a key: `topi.random`, in statements.

In: a key of ten words of 64 bits, from `relay.random.threefry_key`.  Out: the next key, and numbers
that are the same on every target, and TVM's: of Threefry 4x64 with 20 rounds, without the addition
of the key that ends the published cipher.  Words of a key: 0 to 3 the cipher's key; 4 and 5 the
path, a bit for each split; 6 and 7 the counter; 8 and 9 a single bit, where the path goes on, and
none where it is full.  Read next: `relay/random.py`, which makes them of a network's operators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError, absent
from tilewright.driver.build import build
from tilewright.ir.expr import Expr
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.opaque import Body
from tilewright.te.tensor import Tensor
from tilewright.topi.broadcast import add, multiply, subtract
from tilewright.topi.stage import Indices, call_text, check_tensors, require, stage
from tilewright_tvm import nd
from tilewright_tvm.te import ir_builder
from tilewright_tvm.te.extern import extern
from tilewright_tvm.te.ir_builder import BufferVar, IRBuilder

WORDS = 10  # of a key
ROTATIONS = ((14, 16), (52, 57), (23, 40), (5, 37), (25, 33), (46, 12), (58, 22), (32, 32))
PARITY = 0x1BD11BDAA9FC1A22
ROUNDS = 20
FULL = (1 << 64) - 1
FRACTION = {"float32": 23, "float64": 52}  # bits of a number that a fraction is made of


def threefry_generate(gen: Tensor, out_shape: Sequence[int]) -> list[Tensor]:
    """[the next key, uint64 numbers of `out_shape`].  A key that was used is not used again."""
    place = call_text("threefry_generate", gen=gen, out_shape=list(out_shape))
    _check_key(gen, place)
    count = math.prod(out_shape)
    blocks, left = divmod(count, 4)

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Body:
        ib = ir_builder.create()
        key, new, numbers = (ib.buffer_ptr(b) for b in (ins[0], outs[0], outs[1]))
        with ib.if_scope(key[7] < _word(FULL - count)):
            for k in range(WORDS):
                new[k] = key[k]
        with ib.else_scope():
            with ib.if_scope(_is_full(key)):
                _renewed(ib, key, [_word(FULL)] * 4, new, 0, 1 << 63)
            with ib.else_scope():
                _descended(ib, key, new, right=True, counted=False)
        if blocks:
            with ib.for_range(0, blocks, name="block") as block:
                step = te.cast("uint64", block)
                made = _enciphered(ib, new, [new[4 + k] + step for k in range(4)])
                for k in range(4):
                    numbers[block * 4 + k] = made[k]
        if left:
            counter = [*(new[k] for k in (4, 5, 6)), new[7] + _word(4 * blocks)]
            made = _enciphered(ib, new, counter)
            for k in range(left):
                numbers[4 * blocks + k] = made[k]
        new[6] = _word(0)
        new[7] = new[7] + _word(4 * blocks + (4 if left else 0))
        return ib.get()

    shapes = [(WORDS,), tuple(out_shape)]
    made: Any = extern(shapes, [gen], body, name="threefry_generate", dtype=["uint64", "uint64"])
    return list(made)


def threefry_split(gen: Tensor) -> list[Tensor]:
    """Two keys with nothing in common, for parts that draw independently of each other."""
    _check_key(gen, call_text("threefry_split", gen=gen))

    def body(ins: Sequence[Any], outs: Sequence[Any]) -> Body:
        ib = ir_builder.create()
        key, left, right = (ib.buffer_ptr(b) for b in (ins[0], *outs))
        with ib.if_scope(_is_full(key)):
            _renewed(ib, key, [key[4 + k] for k in range(4)], left, 0, 1 << 62)
            for k in range(WORDS):
                right[k] = _word(1 << 63) if k == 4 else left[k]
        with ib.else_scope():
            _descended(ib, key, left, right=False, counted=True)
            _descended(ib, key, right, right=True, counted=True)
        return ib.get()

    made: Any = extern(
        [(WORDS,)] * 2, [gen], body, name="threefry_split", dtype=["uint64", "uint64"]
    )
    return list(made)


def threefry_test_wrapping(target: TargetLike, device: Any) -> bool:
    """Test whether 2**64 - 1 and 1 of uint64 are 0 on a device, which the cipher needs."""
    numbers = te.placeholder((1,), "uint64", name="numbers")
    total = te.compute((1,), lambda i: numbers[i] + te.const(1, "uint64"), name="total")
    schedule = default_schedule(ComputeDAG([numbers, total]), Target(target))
    found = nd.empty((1,), "uint64", device)
    build(schedule, [numbers, total], target)(nd.array(np.array([FULL], np.uint64), device), found)
    return bool(found.numpy()[0] == 0)


def uniform(
    gen: Tensor, low: Any, high: Any, out_shape: Sequence[int], out_dtype: str = "float32"
) -> list[Tensor]:
    """[the next key, numbers from `low` on and below `high`].

    low, high: numbers, or tensors that broadcast to `out_shape`; out_dtype: float32 or float64
    """
    place = call_text("uniform", gen=gen, out_shape=list(out_shape), out_dtype=out_dtype)
    known = str(out_dtype) in FRACTION
    require(known, place, "it is neither float32 nor float64", "Convert with topi.cast.")
    following, bits = threefry_generate(gen, out_shape)
    digits = FRACTION[str(out_dtype)]

    def share(i: Indices) -> Expr:
        return te.cast(out_dtype, bits[i] >> _word(64 - digits)) * te.const(2.0**-digits, out_dtype)

    shares = stage(tuple(out_shape), share, "T_shares", "elemwise")
    return [following, add(multiply(shares, _less(high, low)), low)]


def normal(
    gen: Tensor, mean: Any, scale: Any, out_shape: Sequence[int], out_dtype: str = "float32"
) -> list[Tensor]:
    """[the next key, normally distributed numbers], by the method of Box and Muller.

    mean, scale: numbers, or tensors that broadcast to `out_shape`; out_dtype: float32 or float64
    """
    following, shares = uniform(gen, 0.0, 1.0, (2, *out_shape), out_dtype)

    def drawn(i: Indices) -> Expr:
        radius = te.sqrt(te.log(1.0 - shares[(te.const(0), *i)]) * -2.0)
        return radius * te.sin(shares[(te.const(1), *i)] * (2 * math.pi))

    made = stage(tuple(out_shape), drawn, "T_normal", "elemwise")
    return [following, add(multiply(made, scale), mean)]


def _less(high: Any, low: Any) -> Any:
    if isinstance(high, Tensor) or isinstance(low, Tensor):
        return subtract(high, low)
    return high - low


def _word(value: int) -> Expr:
    return te.const(value, "uint64")


def _is_full(key: BufferVar) -> Expr:
    """Whether no step is left for the path of a key."""
    return te.all(key[8].equal(_word(0)), key[9].equal(_word(0)))


def _renewed(
    ib: IRBuilder, key: BufferVar, text: Sequence[Expr], new: BufferVar, path: int, step: int
) -> None:
    """Write a key of its own, which is what `text` becomes under `key`."""
    made = _enciphered(ib, key, text)
    for k in range(4):
        new[k] = made[k]
    for k, value in enumerate((path, 0, 0, 0, step, 0), 4):
        new[k] = _word(value)


def _descended(ib: IRBuilder, key: BufferVar, new: BufferVar, right: bool, counted: bool) -> None:
    """Write `key` with one step more in its path; counted: with its counter."""
    for k in range(4):
        new[k] = key[k]
    for k in (4, 5):
        new[k] = key[k] | key[k + 4] if right else key[k]
    for k in (6, 7):
        new[k] = key[k] if counted else _word(0)
    last = key[8].equal(_word(1))
    moved = te.select(last, _word(1 << 63), key[9] >> _word(1))
    new[9] = te.select(te.any(last, key[8].equal(_word(0))), moved, _word(0))
    new[8] = key[8] >> _word(1)


def _enciphered(ib: IRBuilder, key: BufferVar, text: Sequence[Expr]) -> BufferVar:
    """What four words become under words 0 to 3 of a key."""
    keys, x = (ib.allocate("uint64", n, name=name) for n, name in ((5, "keys"), (4, "words")))
    for k in range(4):
        keys[k] = key[k]
    keys[4] = _word(PARITY) ^ key[0] ^ key[1] ^ key[2] ^ key[3]
    for k, word in enumerate(text):
        x[k] = word
    for done in range(ROUNDS):
        if done % 4 == 0:
            step = done // 4
            for k in range(4):
                more = keys[(step + k) % 5]
                x[k] = x[k] + (more + _word(step) if k == 3 else more)
        partners = (1, 3) if done % 2 == 0 else (3, 1)
        for even, odd, turn in zip((0, 2), partners, ROTATIONS[done % 8], strict=True):
            x[even] = x[even] + x[odd]
            x[odd] = ((x[odd] << _word(turn)) | (x[odd] >> _word(64 - turn))) ^ x[even]
    return x


def _check_key(gen: Tensor, place: str) -> None:
    check_tensors(place, gen=gen)
    require(
        gen.shape == (WORDS,) and gen.dtype == "uint64", place,
        f"a key is {WORDS} words of uint64", "Make one with relay.random.threefry_key(seed).",
    )  # fmt: skip


__all__ = ["normal", "threefry_generate", "threefry_split", "threefry_test_wrapping", "uniform"]
open_doors(globals(), __all__, ExpressionError)

_ELSEWHERE = {"multinomial": "Draw with numpy, and give the places as inputs."}


def __getattr__(name: str) -> Any:
    raise absent("topi.random", name, _ELSEWHERE)
