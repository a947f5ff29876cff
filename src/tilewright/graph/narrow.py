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
from tilewright.graph.floats import AT_A_TIME, largest, widened
from tilewright.graph.types import Array
from tilewright.ir import float8
from tilewright.topi.nn.narrow import KINDS, LINE

GROUPS = (32, 64, 128)  # weights along the depth that have a scale
USUAL_GROUP = {"int8": 128, "int4": 32, "float8": 128}
HEAD = "head="
AS_IT_IS = "none"  # of a head: its weights stay floats
SCALES = np.dtype(ml_dtypes.bfloat16)
_LEAST_SCALE = np.finfo(np.float32).tiny  # below it devices may have zero


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
    head:  the kind of layers whose results no other multiplies, of another kind in its own groups;
           None: they stay floats
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

    def group_of(self, depth: int, kind: str) -> int:
        """Weights of a layer that share a scale: a whole number of groups; 0: it has none."""
        most = self.group if kind == self.kind else USUAL_GROUP[kind]
        return max((g for g in GROUPS if g <= most and depth % g == 0), default=0)

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


def can_hold(matrix: Array, kind: str) -> bool:
    """Whether bytes can hold the floats, whatever the group: not where they are not finite, or all
    are smaller than scales can be.  A group of the largest of them tells."""
    group = np.full((1, LINE * KINDS[kind].halves), largest(matrix), np.float32)
    return packed(group, kind, group.shape[1]).error < 1


def packed(matrix: Array, kind: str, group: int) -> Packed:
    """Pack [N, K] floats, some rows at a time: symmetric, each to the nearest."""
    columns, depth = matrix.shape
    lines = depth // KINDS[kind].line
    weight = np.empty((columns, lines, LINE), np.int8)
    scale = np.empty((columns, depth // group), SCALES)
    rows = max(1, AT_A_TIME // depth)

    def pack(first: int) -> tuple[float, float]:
        part = slice(first, first + rows)
        with np.errstate(over="ignore", invalid="ignore"):
            return pack_rows(part)

    def pack_rows(part: slice) -> tuple[float, float]:
        given = widened(np.ascontiguousarray(matrix[part])).reshape(-1, group)
        factor = _factor(given, kind)
        numbers = _over(given, factor[:, None], kind)
        scale[part] = (factor * KINDS[kind].unit).astype(SCALES).reshape(-1, depth // group)
        weight[part] = _bytes(numbers.reshape(-1, depth), kind).reshape(-1, lines, LINE)
        numbers *= factor[:, None]
        numbers -= given
        return _square(numbers), _square(given)

    squares = in_threads(pack, range(0, columns, rows))
    off, size = (sum(part) for part in zip(*squares, strict=True))
    return Packed(weight, scale, float(np.sqrt(off / size)) if size else 0.0)


def _square(numbers: Array) -> float:
    """The sum of squares; in double precision where floats cannot hold it."""
    flat = numbers.reshape(-1)
    found = float(np.einsum("k,k->", flat, flat))  # without BLAS, see `floats.py`
    if 1e-25 < found < 1e37:
        return found
    wide = flat.astype(np.float64)
    return float(np.einsum("k,k->", wide, wide))


def _factor(given: Array, kind: str) -> Array:
    """Scales of groups [n, group], as bfloat16 holds them."""
    turned = np.ascontiguousarray(given.T)  # numpy's loops are long then
    most, high, low = KINDS[kind].most, turned.max(0), turned.min(0)
    if kind != "int4":
        return _held(np.maximum(high, -low) / most, kind)
    # The largest number is 7, or -8, of which there is no positive one: whichever is nearer.
    ends = np.where(high > -low, high, low)
    factor, other = (_held(ends / n, kind) for n in (-(most + 1), most))
    off, off_other = (_off(turned, f, kind) for f in (factor, other))
    return np.where(off_other < off, other, factor)


def _held(factor: Array, kind: str) -> Array:
    """What bfloat16 holds of scales; 0 for what is too small."""
    factor = factor.astype(SCALES).astype(np.float32)
    held = np.abs(factor) * np.float32(KINDS[kind].unit) >= _LEAST_SCALE
    return np.where(held, factor, np.float32(0))


def _off(turned: Array, factor: Array, kind: str) -> Array:
    """How far each group [group, n] is from what a scale makes of it, squared."""
    numbers = _over(turned, factor, kind)
    numbers *= factor
    numbers -= turned
    found: Array = np.einsum("kn,kn->n", numbers, numbers)
    return found


def _over(given: Array, factor: Array, kind: str) -> Array:
    """The numbers that are nearest to the floats over their scales."""
    inverse = np.divide(1.0, factor, out=np.zeros_like(factor), where=factor != 0)
    scaled = given * inverse  # the largest may be a little beyond
    most = KINDS[kind].most
    if kind == "float8":
        return np.take(_FLOATS, _eighths(scaled))
    np.rint(scaled, out=scaled)
    return np.clip(scaled, -most - (kind == "int4"), most, out=scaled)


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


def halves(weight: Array, scale: Array, kind: str) -> list[Array]:
    """The floats that bytes and scales stand for, in float32: of each half of a byte those of all
    lines side by side, [N, lines * 16]."""
    narrow, (columns, groups) = KINDS[kind], scale.shape
    bits = weight.view(np.uint8)
    if kind == "float8":
        numbers = [np.take(_FLOATS, bits)]
    elif narrow.halves == 1:
        numbers = [weight.astype(np.float32)]
    else:
        both = ((bits << 4).view(np.int8), (bits & 0xF0).view(np.int8))
        numbers = [half.astype(np.float32) for half in both]
    factor = np.asarray(scale, np.float32)[..., None] / np.float32(narrow.unit)
    if narrow.halves > 1:
        factor /= 16  # numbers are the upper halves of bytes
    for part in numbers:
        shaped = part.reshape(columns, groups, -1)
        shaped *= factor
    return [part.reshape(columns, -1) for part in numbers]


def unpacked(weight: Array, scale: Array, kind: str) -> Array:
    """The floats [N, K], in float32, that bytes and scales stand for."""
    columns, lines, _ = weight.shape
    parts = [part.reshape(columns, lines, LINE) for part in halves(weight, scale, kind)]
    return np.stack(parts, axis=2).reshape(columns, -1)
