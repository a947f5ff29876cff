"""Bytes in words of registers as floats: which casts are, and that the bits add up."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.byte_floats import (
    BYTES_TEXT,
    FLOAT,
    HALVES,
    HALVES_TEXTS,
    WHOLE_TEXT,
    in_words,
    of_words,
)
from tilewright.ir import expr as E
from tilewright.ir import float8
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer

BYTES = Buffer("bytes", "int8", 16, "local")
INDEX = E.var("k")
BYTE = E.make("load", (INDEX,), BYTES, "int8")
HALF = E.var("h")
SIMPLIFY = Simplifier({INDEX: (0, 15), HALF: (0, 1)})


def shifted(by: Expr | int, mask: int) -> Expr:
    moved = E.binary("shl", E.cast("int32", BYTE), by)
    return E.cast("float32", E.binary("bitand", E.cast("int32", E.cast("int8", moved)), mask))


def found(value: Expr, buffers: frozenset[Buffer] = frozenset([BYTES])) -> Expr | None:
    made = of_words(value, buffers, SIMPLIFY)
    return made if made.op == FLOAT else None


def test_casts_of_bytes_that_stay_in_their_byte() -> None:
    plain = found(E.cast("float32", E.cast("int32", BYTE)))
    assert plain is not None and plain.attr == (BYTES, 0xFF)
    low = found(shifted(4 - HALF * 4, -16))
    assert low is not None and low.attr == (BYTES, 0xF0) and low.args[0] is INDEX
    eighth = found(E.cast("float32", float8.whole_number(E.cast("int32", BYTE))))
    assert eighth is not None and eighth.attr == (BYTES, None)


@pytest.mark.parametrize(
    "value",
    [
        shifted(4, -8),  # a bit of the byte below would come in
        shifted(5, -32),
        E.cast("float32", E.binary("shr", E.cast("int32", BYTE), 4)),
        E.cast("float32", E.cast("int32", BYTE) + 1),
        E.cast("float64", E.cast("int32", BYTE)),
    ],
)
def test_others_stay_as_they_are(value: Expr) -> None:
    assert of_words(value, frozenset([BYTES]), SIMPLIFY) is value


def test_only_words_of_registers_count() -> None:
    assert found(E.cast("float32", E.cast("int32", BYTE)), frozenset()) is None
    assert in_words(BYTES, 16) and not in_words(BYTES, 2)
    assert not in_words(Buffer("far", "int8", 16, "shared"), 16)
    assert not in_words(Buffer("odd", "int8", 6, "local"), 4)
    assert not in_words(Buffer("other", "uint8", 16, "local"), 16)


@pytest.mark.parametrize(("shift", "mask"), [(0, 0xFF), (4, 0xF0), (0, 0xF0)])
def test_the_words_of_the_text_are_the_numbers(shift: int, mask: int) -> None:
    """What `tw_byte` computes, step by step, of all bytes at all places of a word."""
    every = np.arange(256).astype("uint8").view("int8")
    for place in range(4):
        line = np.full((256, 4), 0xA5, "uint8")
        line[:, place] = every.view("uint8")
        word = line.view("<u4")[:, 0].astype("uint64")
        word = ((word << shift) & (mask * 0x01010101)) ^ 0x80808080
        byte = (word >> (8 * place)).astype("uint32") & 0xFF
        numbers = (byte | np.uint32(0x4B000000)).view("float32") - np.float32(8388736.0)
        wanted = (every.view("uint8").astype("int32") << shift & mask).astype("uint8").view("int8")
        np.testing.assert_array_equal(numbers, wanted.astype("float32"))


FMA = re.compile(
    r'asm\("fma.rn.(\w+)x2 .*: "=r"\((\w+)\) : "r"\((.*)\), "r"\((.*)\), "r"\((.*)\)\);'
)
HELD = re.compile(r'or.b32 %0, t, (0x\w+); .*"=r"\((\w+)\)')
ASSIGNED = re.compile(r"(?:const )?(?:unsigned int )?(\w+) = (.*);")
STORED = re.compile(r"to\[(\d)\] = \(unsigned short\)\(?(low|high)( >> 16\))?;")
TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def halves(bits: object, kind: str, count: int) -> np.ndarray:
    words = np.broadcast_to(np.asarray(bits, "<u4"), count).copy()
    return words.view(TYPES[kind]).reshape(-1, 2).astype("float64")


def run_text(text: str, word: np.ndarray, shift: int) -> np.ndarray:
    """The halves that the body of a function makes of each word, in float64: [words, 4]."""
    known = {"word": word, "shift": np.uint32(shift)}

    def value(expression: str) -> object:
        numbers = re.sub(r"(0x[0-9a-f]+|\d+)u?\b", r"uint32(\1)", expression)
        return eval(numbers, {"uint32": np.uint32}, known)

    kind, made = "", np.zeros((len(word), 4))
    for line in text.splitlines():
        if found := HELD.search(line):
            known[found[2]] = np.uint32(int(found[1], 16))
        elif found := FMA.search(line):
            kind, name, *factors = found.groups()
            factors[-1] = factors[-1].removesuffix(");")
            a, b, c = (halves(value(f), kind, len(word)) for f in factors)
            known[name] = (a * b + c).astype(TYPES[kind]).reshape(-1).view("<u4")
        elif found := STORED.search(line):
            made[:, int(found[1])] = halves(known[found[2]], kind, len(word))[
                :, int(bool(found[3]))
            ]
        elif found := ASSIGNED.search(line):
            known[found[1]] = value(found[2])
    return made


@pytest.mark.parametrize("key", [k for k in HALVES if k[0] != "int8"], ids=HALVES.get)
@pytest.mark.parametrize("shift", [0, 4])
def test_the_halves_of_the_text_are_the_numbers(key: tuple[str, int | None], shift: int) -> None:
    """Each line of the text, run by numpy, of all bytes at all places of a word."""
    mask = key[1]
    if shift and mask != 0xF0:
        return
    every = np.arange(256).astype("uint8")
    if mask is None:
        floats = every.view(ml_dtypes.float8_e4m3fn).astype("float64")
        wanted = np.where(np.isfinite(floats), floats, float8.NO_NUMBER) / float8.UNIT
    else:
        wanted = (every.astype("int32") << shift & mask).astype("uint8").view("int8")
    for place in range(4):
        line = np.full((256, 4), 0xA5, "uint8")
        line[:, place] = every
        made = run_text(HALVES_TEXTS[HALVES[key]], line.view("<u4")[:, 0], shift)
        np.testing.assert_array_equal(made[:, place], wanted)


def returned(text: str, **given: Any) -> Any:
    """What a function's text computes, each line run by numpy."""
    known: dict[str, Any] = {"__float_as_int": lambda x: x.view("<i4"), "__byte_perm": permuted}
    known |= given
    for line in text.splitlines():
        if found := re.match(r"  const unsigned int (\w+) = (.*);", line):
            known[found[1]] = eval(re.sub(r"(0x\w+?)u\b", r"\1", found[2]), known)
        elif found := re.match(r"  to\[(\d)\] = \(signed char\)(.*);", line):
            known["to"][int(found[1])] = (eval(found[2], known) & 255).astype("uint8").view("int8")
        elif found := re.match(r"  return (.*);", line):
            return eval(re.sub(r"(0x\w+?)u\b|([\d.]+)f\b", r"\1\2", found[1]), known)
    return known["to"]


def permuted(a: Any, b: Any, choice: int) -> Any:
    """Bytes of two words by their numbers, one in each four bits of `choice`."""
    both = np.stack([a, b], axis=-1).astype("uint32").view("uint8")
    places = [choice >> 4 * k & 7 for k in range(4)]
    return np.ascontiguousarray(both[..., places]).view("uint32")[..., 0]


@pytest.mark.parametrize("shift", [0, 4])
def test_bytes_of_halves_of_bytes(shift: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, 1000, dtype="uint32")
    made = returned(HALVES_TEXTS["tw_int8_of_int4"], word=words, shift=shift, to=[None] * 4)
    every = words.view("uint8").reshape(-1, 4)
    wanted = (every.astype("int32") << shift & 0xF0).astype("uint8").view("int8")
    np.testing.assert_array_equal(np.stack(made, -1), wanted)


@pytest.mark.parametrize("which", range(4))
def test_the_same_byte_of_four_words(which: int) -> None:
    words = np.random.default_rng(0).integers(0, 1 << 32, (100, 4), dtype="uint32")
    given = dict(zip("abcd", words.T, strict=True))
    made = returned(BYTES_TEXT, **given, shift=8 * which)
    wanted = words.view("uint8").reshape(100, 4, 4)[:, :, which]
    np.testing.assert_array_equal(made.view("uint8").reshape(100, 4), wanted)


def test_the_nearest_whole_number() -> None:
    edges = np.array([0, 0.5, 1.5, 2.5, 0.49999997, 4194303.5, 4194304], "float32")
    drawn = np.random.default_rng(0).uniform(-(2**22), 2**22, 10000).astype("float32")
    every = np.concatenate([edges, -edges, drawn])
    made = returned(WHOLE_TEXT, x=every)
    np.testing.assert_array_equal(made, np.rint(every).astype("int32"))
