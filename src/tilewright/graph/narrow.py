"""Weights of a byte or less: how a network asks for them, and how they are packed.

In: what a user asks for, "int8", "int4:64", "float8"; matrices of floats.  Out: bytes and scales as
`topi/nn/narrow.py` says, and how far they are from what they stand for.
Read next: `passes/narrow.py`, which packs the weights of a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.base.concurrency import in_threads
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array
from tilewright.ir import float8
from tilewright.topi.nn.narrow import KINDS, LINE

GROUPS = (32, 64, 128)  # weights along the depth that have a scale
USUAL_GROUP = {"int8": 128, "int4": 32, "float8": 128}
HEAD = "head="
AS_IT_IS = "none"  # of a head: its weights stay floats
SCALES = np.dtype(ml_dtypes.bfloat16)
_LEAST_SCALE = np.finfo(np.float32).tiny  # below it devices may have zero
_AT_A_TIME = 1 << 16  # weights, which stay in a cache


def _floats() -> Array:
    """Of each byte the e4m3 float, as kernels have it."""
    bits = np.arange(256, dtype=np.uint8)
    found: Array = bits.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    found[[0x7F, 0xFF]] = float8.NO_NUMBER
    return found


def _nearest() -> Array:
    """Of the upper half of each float32, its lowest bit set where the lower half is not zero, the
    nearest e4m3 float as a byte; all are below the greatest."""
    bits = np.arange(1 << 16, dtype=np.uint32) << 16
    most = KINDS["float8"].most
    with np.errstate(invalid="ignore"):
        numbers = np.clip(bits.view(np.float32), -most, most)
        found: Array = numbers.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    return found


_FLOATS = _floats()
_NEAREST = _nearest()  # a conversion by ml_dtypes takes ten times as long


@dataclass(frozen=True)
class NarrowWeights:
    """What the weights of dense layers become.

    kind:  of `KINDS`
    group: weights along the depth that share a scale, at most
    head:  the kind of layers whose results no other multiplies; None: they stay floats
    """

    kind: str
    group: int
    head: str | None

    @staticmethod
    def parsed(text: Any, place: str = "weights") -> NarrowWeights:
        """Read KIND[:GROUP][:head=KIND], such as "int4:64:head=none".  Heads of four bits have
        eight unless it is said.  Raises ModelError."""
        kind, *more = str(text).split(":")
        group, head = USUAL_GROUP.get(kind, 0), "int8" if kind == "int4" else kind
        said = [part.startswith(HEAD) for part in more]  # each at most once
        fits = kind in KINDS and len(set(said)) == len(said)
        for part in more:
            if part.startswith(HEAD):
                head = part.removeprefix(HEAD)
                fits = fits and head in (*KINDS, AS_IT_IS)
            else:
                fits = fits and part in map(str, GROUPS)
                group = int(part) if part.isascii() and part.isdigit() else 0
        if not fits:
            raise ModelError(
                f"{place}={text!r:.80}", "there are no such weights",
                f"Use {', '.join(KINDS)}, with a group of {', '.join(map(str, GROUPS))} and with "
                "the kind of the last layer where it matters: int4:64:head=int8, int4:head=none.",
            )  # fmt: skip
        return NarrowWeights(kind, group, None if head == AS_IT_IS else head)

    def group_of(self, depth: int) -> int:
        """Weights of a layer that share a scale: a whole number of groups; 0: it has none."""
        return max((g for g in GROUPS if g <= self.group and depth % g == 0), default=0)

    def __str__(self) -> str:
        return f"{self.kind}:{self.group}:{HEAD}{self.head or AS_IT_IS}"


@dataclass(frozen=True)
class Packed:
    """weight: int8 [N, lines, 16]; scale [N, groups]; error: the distance from the floats, by the
    size of these (Euclid's, over the whole matrix); not less than 1: bytes cannot hold them, as
    where they are not finite, or smaller than scales can be"""

    weight: Array
    scale: Array
    error: float


def packed(matrix: Array, kind: str, group: int) -> Packed:
    """Pack [N, K] floats, some rows at a time: symmetric, each to the nearest."""
    columns, depth = matrix.shape
    lines = depth // KINDS[kind].line
    weight = np.empty((columns, lines, LINE), np.int8)
    scale = np.empty((columns, depth // group), SCALES)
    rows = max(1, _AT_A_TIME // depth)

    def pack(first: int) -> tuple[float, float]:
        part = slice(first, first + rows)
        with np.errstate(over="ignore", invalid="ignore"):
            return pack_rows(part)

    def pack_rows(part: slice) -> tuple[float, float]:
        given = np.asarray(matrix[part], np.float32).reshape(-1, depth // group, group)
        factor, numbers = _numbers(given, kind)
        scale[part] = (factor * KINDS[kind].unit).astype(SCALES)
        weight[part] = _bytes(numbers.reshape(-1, depth), kind).reshape(-1, lines, LINE)
        numbers *= factor[..., None]
        numbers -= given
        return _square(numbers), _square(given)

    squares = in_threads(pack, range(0, columns, rows))
    off, size = (sum(part) for part in zip(*squares, strict=True))
    return Packed(weight, scale, float(np.sqrt(off / size)) if size else 0.0)


def _square(numbers: Array) -> float:
    """The sum of squares; in double precision where floats cannot hold it."""
    found = float(np.vdot(numbers, numbers))
    if 1e-25 < found < 1e37:
        return found
    return float(np.vdot(wide := numbers.astype(np.float64), wide))


def _numbers(given: Array, kind: str) -> tuple[Array, Array]:
    """Scales of groups, as bfloat16 holds them, and what is left of the floats over these."""
    turned = np.ascontiguousarray(np.moveaxis(given, -1, 0))  # numpy's loops are long then
    most, high, low = KINDS[kind].most, turned.max(0), turned.min(0)
    ends = np.maximum(high, -low)
    if kind != "int4":
        return _over(given, ends / most, kind)
    # The largest number is 7, or -8, of which there is no positive one: whichever is nearer.
    ends = np.where(high > -low, high, low)
    (factor, numbers), (other, others) = (_over(given, ends / n, kind) for n in (-(most + 1), most))
    off, off_other = (
        np.einsum("rgk,rgk->rg", d, d)
        for d in (n * f[..., None] - given for n, f in ((numbers, factor), (others, other)))
    )
    nearer = off_other < off
    return np.where(nearer, other, factor), np.where(nearer[..., None], others, numbers)


def _over(given: Array, factor: Array, kind: str) -> tuple[Array, Array]:
    """Scales as bfloat16 holds them, and the numbers that are nearest to the floats over these."""
    factor = factor.astype(SCALES).astype(np.float32)
    held = np.abs(factor) * np.float32(KINDS[kind].unit) >= _LEAST_SCALE
    factor = np.where(held, factor, np.float32(0))
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=held)
    scaled = given * inverse[..., None]  # the largest may be a little beyond
    most = KINDS[kind].most
    if kind == "float8":
        return factor, np.take(_FLOATS, _eighths(scaled))
    np.rint(scaled, out=scaled)
    return factor, np.clip(scaled, -most - (kind == "int4"), most, out=scaled)


def _eighths(numbers: Array) -> Array:
    """The nearest floats of eight bits, as bytes."""
    bits = numbers.view(np.uint32)
    key = bits >> 16
    key |= (bits & 0xFFFF) != 0
    return np.take(_NEAREST, key)


def _bytes(numbers: Array, kind: str) -> Array:
    """[rows, depth] numbers as bytes, in lines."""
    if kind == "float8":
        return _eighths(numbers).view(np.int8)
    whole = numbers.astype(np.int8)
    if KINDS[kind].halves == 1:
        return whole
    first, second = np.moveaxis(whole.reshape(len(whole), -1, 2, LINE), 2, 0)
    return (first & 15) | (second << 4)


def unpacked(weight: Array, scale: Array, kind: str) -> Array:
    """The floats [N, K], in float32, that bytes and scales stand for."""
    narrow = KINDS[kind]
    columns, groups = scale.shape
    if kind == "float8":
        numbers = _FLOATS[weight.view(np.uint8)]
    elif narrow.halves == 1:
        numbers = weight.astype(np.float32)
    else:
        bits = weight.view(np.uint8)
        halves = np.stack([bits << 4, bits & 0xF0], axis=2).view(np.int8)
        numbers = halves.astype(np.float32) / 16
    factor = np.asarray(scale, np.float32) / np.float32(narrow.unit)
    made = numbers.reshape(columns, groups, -1) * factor[..., None]
    return np.asarray(made.reshape(columns, -1))
