"""Element types in LLVM IR: every conversion bit for bit against numpy, memory, unsigned integers.

On this machine's processor, and on the first x86-64, which has no instructions for float16.
"""

from __future__ import annotations

import platform

import ml_dtypes  # noqa: F401  (its types have numpy names)
import numpy as np
import pytest

from tests.codegen.llvm_programs import TARGET, buffers, lanes, program, run_on, text_of
from tilewright.base.dtype import FLOAT32, TYPES, DType
from tilewright.base.errors import InternalError
from tilewright.codegen.llvm import generate
from tilewright.driver import llvm
from tilewright.ir import expr as e
from tilewright.ir.stmt import Buffer, For, If, Store, load, seq
from tilewright.targets.target import Target

X86 = platform.machine() in ("x86_64", "AMD64")
TARGETS = [TARGET, pytest.param(
    Target("llvm -mcpu=x86-64"), marks=pytest.mark.skipif(not X86, reason="another architecture")
)]  # fmt: skip
on_both = pytest.mark.parametrize("target", TARGETS, ids=str)
WIDTH = 8
MEMORY_ONLY = [t for t in map(DType, TYPES) if t.compute is not t]


# -- numbers ---------------------------------------------------------------------------------------


def every_value(dtype: DType) -> np.ndarray:
    bits = np.arange(1 << dtype.bits, dtype=np.uint32).astype(f"uint{dtype.bits}")
    return bits.view(dtype.storage)


def near_every_half(dtype: DType) -> np.ndarray:
    """All numbers of float16 and bfloat16, what lies in the middle of two, and its neighbours."""
    with np.errstate(all="ignore"):
        exact = np.concatenate(
            [np.sort(every_value(DType(t)).astype(dtype.storage)) for t in ("float16", "bfloat16")]
        )
        exact = exact[np.isfinite(exact)]
        middle = exact[:-1] / 2 + exact[1:] / 2
        up = [np.nextafter(middle, np.array(s * np.inf, dtype.storage)) for s in (1, -1)]
        return np.concatenate([exact, middle, *up])


def numbers(dtype: DType) -> np.ndarray:
    """Edges and random values; all values of a narrow type."""
    if dtype.kind == "bool":
        return np.array([False, True] * 8)
    if dtype.bits <= 16:
        return every_value(dtype)
    rng = np.random.default_rng(0)
    some = rng.integers(0, 1 << 32, 1 << 14, np.uint32)
    bits = rng.integers(0, 1 << 64, 1 << 14, np.uint64) if dtype.bits == 64 else some
    random = bits.view(dtype.storage)
    if not dtype.is_float:
        powers = [s * 2**k + d for k in range(dtype.bits) for d in (-1, 0, 1) for s in (1, -1)]
        powers += [2**24 + 1, 65519, 65520, 65504, 2**30 + 2**22 + 1]
        inside = [v for v in powers if dtype.least <= v <= dtype.greatest]
        return np.concatenate([np.array(inside, dtype.storage), random, random >> 13])
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 65504, 65519.99, 65520, dtype.smallest, 1e-310,
               1 + 2**-11 + 2**-40, dtype.greatest, 2.0**31, 2.0**32 - 256, -(2.0**31)]  # fmt: skip
    plain = rng.standard_normal(1 << 12) * 10.0 ** rng.integers(-9, 9, 1 << 12)
    with np.errstate(all="ignore"):
        given = np.array([*special, *plain]).astype(dtype.storage)
    return np.concatenate([given, random, near_every_half(dtype)])


def converted(x: np.ndarray, source: DType, target: DType) -> tuple[np.ndarray, np.ndarray]:
    """What numpy makes of `x`, and where that is defined."""
    with np.errstate(all="ignore"):
        if not (source.is_float and target.is_int):
            return x.astype(target.storage), np.ones(x.shape, bool)
        whole = np.trunc(x.astype(np.float64))
        wraps = DType("int32") if target.bits < 32 else target
        known = (whole >= wraps.least) & (whole < float(wraps.greatest) + 1)
        widest = np.uint64 if target == "uint64" else np.int64
        return np.where(known, whole, 0).astype(widest).astype(target.storage), known


def same(got: np.ndarray, expected: np.ndarray, where: np.ndarray) -> bool:
    """Bit for bit, but for the bits of NaN."""
    kind = f"uint{8 * expected.itemsize}"
    equal = got.view(kind) == expected.view(kind)
    if expected.dtype.kind not in "iub":
        with np.errstate(invalid="ignore"):
            equal |= np.isnan(got) & np.isnan(expected)
    return bool((equal | ~where).all())


def padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, x[: -len(x) % WIDTH]]) if len(x) % WIDTH else x


# -- conversions -----------------------------------------------------------------------------------


@pytest.mark.sampled(12)
@pytest.mark.slow
@on_both
@pytest.mark.parametrize("name", TYPES)
def test_every_conversion_is_numpys(name: str, target: Target) -> None:
    """From one type to all, a scalar and a vector at a time."""
    source, x = DType(name), padded(numbers(DType(name)))
    (a,) = buffers(x.size, "a", dtype=name)
    i, j = e.var("i"), e.var("j")
    at = lanes(i * WIDTH, WIDTH)
    single = [Buffer(f"s_{t}", t, x.size) for t in TYPES]
    wide = [Buffer(f"v_{t}", t, x.size) for t in TYPES]
    body = seq(
        For(j, x.size, seq(*(Store(b, j, e.cast(b.dtype, load(a, j))) for b in single))),
        For(i, x.size // WIDTH, seq(*(Store(b, at, e.cast(b.dtype, load(a, at))) for b in wide))),
    )
    outputs = run_on(target, program(body, [a], [*single, *wide]), x)
    for b, got in zip([*single, *wide], outputs, strict=True):
        expected, known = converted(x, source, b.dtype)
        assert known.any() and same(got, expected, known), f"{name} to {b.name}"


@on_both
def test_nan_stays_nan_and_becomes_quiet(target: Target) -> None:
    signalling = np.array([0x7F800001, 0xFF800001, 0x7F80FFFF, 0x7FC12345] * 2, np.uint32)
    for name, least in (("float16", 0x7E00), ("bfloat16", 0x7FC0)):
        a, b = Buffer("a", "float32", 8), Buffer("b", name, 8)
        p = program(Store(b, lanes(0, 8), e.cast(name, load(a, lanes(0, 8)))), [a], [b])
        (got,) = run_on(target, p, signalling.view(np.float32))
        assert (got.view(np.uint16) & least == least).all()
        assert (np.signbit(got.astype(np.float32)) == (signalling >> 31 == 1)).all()


def test_a_float_out_of_range_is_frozen() -> None:
    """LLVM may not conclude that anything computed from it is never used."""
    a, b = Buffer("a", "float32", 8), Buffer("b", "int32", 8)
    text = text_of(Store(b, lanes(0, 8), e.cast("int32", load(a, lanes(0, 8)))), [a], [b])
    assert "freeze <8 x i32>" in text
    nan = e.cast("int32", e.const(float("nan")))
    body = Store(b, e.const(0), e.select(nan >= 0, e.const(1), e.const(-1)))
    assert run_on(TARGET, program(body, [], [b]))[0][0] in (-1, 1)


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("dtype", MEMORY_ONLY)
@pytest.mark.parametrize("stride", [-1, 0, 1, 2, 3, 7])
def test_strided_reads_and_writes(dtype: DType, stride: int, target: Target) -> None:
    n = 64
    a, b, c = (Buffer(name, dtype, n) for name in "abc")
    at = e.make("ramp", (e.const(n - 1 if stride < 0 else 0), e.const(stride)), None, "int32", 8)
    own = lanes(0, 8)
    body = seq(Store(b, own, load(a, at)), Store(c, at, load(a, own)) if stride else None)
    x = numbers(dtype)[5 : 5 + n]
    got, written = run_on(target, program(body, [a], [b, c]), x)
    where = (n - 1 if stride < 0 else 0) + stride * np.arange(8)
    assert (got[:8] == x[where]).all()
    assert not stride or (written[where] == x[:8]).all()


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("dtype", MEMORY_ONLY)
def test_masked_reads_writes_gathers_and_scatters(dtype: DType, target: Target) -> None:
    size, n = 13, 16
    a, where = Buffer("a", dtype, size), Buffer("where", "int32", n)
    b, c, d, f = (Buffer(name, dtype, 2 * n) for name in "bcdf")
    at = lanes(0, n)
    other = e.broadcast(e.const(3, dtype), n)
    index = load(where, at)
    body = seq(
        Store(b, at, e.if_then_else(at < size, load(a, at), other)),
        Store(c, at, e.if_then_else(index < size, load(a, index), other)),
        If(at < size, Store(d, at, load(a, at))),
        If(index < size, Store(f, index, other)),
    )
    x, i = numbers(dtype)[9 : 9 + size], np.arange(n, dtype=np.int32)[::-1] * 2
    p = program(body, [a, where], [b, c, d, f])
    got, gathered, written, scattered = run_on(target, p, x, i)
    three = np.array(3, dtype.storage)
    assert (got[:size] == x).all() and (got[size:n] == three).all()
    inside = i < size
    assert (gathered[:n] == np.where(inside, x[np.where(inside, i, 0)], three)).all()
    assert (written[:size] == x).all() and not written[size:].any()
    assert (scattered[i[inside]] == three).all() and np.count_nonzero(scattered) == inside.sum()


@pytest.mark.slow
@on_both
@pytest.mark.parametrize("dtype", MEMORY_ONLY)
@pytest.mark.parametrize("width", [1, 8])
def test_choices_and_constants(dtype: DType, width: int, target: Target) -> None:
    a, flags, b = Buffer("a", dtype, 8), Buffer("flags", "bool", 8), Buffer("b", dtype, 8)
    i = e.var("i")
    at = lanes(i * width, width)
    value = e.select(load(flags, at), load(a, at), e.const(5, dtype))
    p = program(For(i, 8 // width, Store(b, at, value)), [a, flags], [b])
    x, chosen = numbers(dtype)[40:48], np.arange(8) % 3 == 0
    (got,) = run_on(target, p, x, chosen)
    assert (got == np.where(chosen, x, np.array(5, dtype.storage))).all()


@pytest.mark.parametrize("dtype", [t for t in TYPES if t.is_float])
def test_constants_bit_for_bit(dtype: DType) -> None:
    given = [0.0, -0.0, 1.0, -dtype.smallest, dtype.greatest, np.inf, -np.inf, np.nan, 1 / 3]
    b, c = Buffer("b", dtype, len(given)), Buffer("c", dtype, 4 * len(given))
    values = [e.const(v, dtype) for v in given]
    single = [Store(b, e.const(k), v) for k, v in enumerate(values)]
    wide = [Store(c, lanes(4 * k, 4), e.broadcast(v, 4)) for k, v in enumerate(values)]
    got, vectors = run_on(TARGET, program(seq(*single, *wide), [], [b, c]))
    expected = np.array(given, dtype.storage)
    assert same(got, expected, np.True_) and same(vectors, expected.repeat(4), np.True_)


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint32", "int64"])
def test_indices_of_every_integer_type(index: str) -> None:
    a, at, b = Buffer("a", "float32", 256), Buffer("at", index, 16), Buffer("b", "float32", 16)
    i, j = e.var("i"), e.var("j")
    scalar = For(i, 8, Store(b, i, load(a, load(at, i))))
    vector = Store(b, lanes(8, 8), load(a, load(at, lanes(8, 8))))
    cast = For(j, 8, Store(b, j, load(a, e.cast("int32", load(at, j)))))
    where = np.array([0, 1, 100, 127, 5, 5, 90, 3] * 2)
    if index == "uint8":
        where[:4] = 128, 255, 200, 130
    x = np.arange(256, dtype=np.float32)
    for body in (seq(scalar, vector), seq(cast, vector)):
        (got,) = run_on(TARGET, program(body, [a, at], [b]), x, where.astype(index))
        assert (got == where).all()


@pytest.mark.parametrize("width", [1, 8])
def test_indices_of_unsigned_integers_wrap(width: int) -> None:
    a, at, b = Buffer("a", "float32", 64), Buffer("at", "uint32", 8), Buffer("b", "float32", 8)
    i = e.var("i")
    own = lanes(i * width, width)
    index = (load(at, own) + (2**32 - 3)) * (2**31 + 1)  # of odd numbers less 3
    p = program(For(i, 8 // width, Store(b, own, load(a, index))), [a, at], [b])
    where = np.arange(8, dtype=np.uint32) * 2 + 3
    (got,) = run_on(TARGET, p, np.arange(64, dtype=np.float32), where)
    assert (got == where - 3).all()


# -- arithmetic ------------------------------------------------------------------------------------

UNSIGNED = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
TESTS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("width", [1, 8])
def test_unsigned_integers_wrap_divide_and_compare(width: int) -> None:
    edges = np.array([0, 1, 7, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 7, 12345], np.uint32)
    x, y = (g.ravel() for g in np.meshgrid(edges, edges))
    divisor = np.maximum(y, 1)
    a, b, d = (Buffer(n, "uint32", 64) for n in "abd")
    i = e.var("i")
    at = lanes(i * width, width)
    made = [Buffer(op, "uint32", 64) for op in UNSIGNED]
    tests = [Buffer(op, "bool", 64) for op in TESTS]
    by_seven, guarded = Buffer("by_seven", "uint32", 64), Buffer("guarded", "uint32", 64)
    left, right = load(a, at), load(b, at)
    seven = e.broadcast(e.const(7, "uint32"), width)
    stores = [
        Store(o, at, e.binary(o.name, left, load(d, at) if "floor" in o.name else right))
        for o in made
    ]
    stores += [Store(o, at, e.binary(o.name, left, right)) for o in tests]
    stores += [
        Store(by_seven, at, left % seven),
        Store(guarded, at, e.if_then_else(right > 0, left // right, seven)),
    ]
    loop = For(i, 64 // width, seq(*stores))
    p = program(loop, [a, b, d], [*made, *tests, by_seven, guarded])
    outputs = run_on(TARGET, p, x, y, divisor)
    for o, got in zip([*made, *tests], outputs, strict=False):
        rule = {**UNSIGNED, **TESTS}[o.name]
        assert (got == rule(x, divisor if "floor" in o.name else y)).all(), o.name
    assert (outputs[-2] == x % 7).all()
    assert (outputs[-1] == np.where(y > 0, x // divisor, 7)).all()


def test_unsigned_division_happens_only_where_it_is_wanted() -> None:
    """Without any load, which would be a reason of its own to branch."""
    (b,) = buffers(8, "b", dtype="uint32")
    i = e.var("i")
    quotient = e.const(40, "uint32") // e.cast("uint32", i)
    body = For(i, 8, Store(b, i, e.if_then_else(i > 0, quotient, e.const(9, "uint32"))))
    text = text_of(body, [], [b])
    assert text.index("br i1") < text.index("udiv")
    assert run_on(TARGET, program(body, [], [b]))[0].tolist() == [
        9,
        *(40 // k for k in range(1, 8)),
    ]


@on_both
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 8])
def test_computing_in_float32_between_loads_and_stores(
    dtype: str, width: int, target: Target
) -> None:
    a, b, c = (Buffer(n, dtype, 4096) for n in "abc")
    i = e.var("i")
    at = lanes(i * width, width)
    x, y = (e.cast("float32", load(v, at)) for v in (a, b))
    value = e.cast(dtype, e.call("exp", x) * y)
    p = program(For(i, 4096 // width, Store(c, at, value), "parallel"), [a, b], [c])
    kind = DType(dtype).storage
    left, right = np.random.default_rng(0).standard_normal((2, 4096)).astype(kind)
    (got,) = run_on(target, p, left, right)
    exact = np.exp(left.astype(np.float64)) * right.astype(np.float64)
    error = np.abs(got.astype(np.float64) - exact)
    assert (error <= 0.501 * DType(dtype).eps * np.abs(exact) + DType(dtype).smallest).all()


# -- text, and what is refused ---------------------------------------------------------------------


def extended(target: str) -> tuple[str, bytes]:
    a, b = Buffer("a", "float16", 8), Buffer("b", "float32", 8)
    p = program(Store(b, lanes(0, 8), e.cast("float32", load(a, lanes(0, 8)))), [a], [b])
    source = generate(p, Target(target))
    return source.text, llvm.build(source, Target(target)).binary


def test_the_text_is_the_same_for_all_processors() -> None:
    """The driver, which knows the processor, replaces the conversions that it lacks."""
    targets = "llvm", "llvm -mcpu=x86-64", "llvm -mtriple=aarch64-linux-gnu"
    texts = {extended(t)[0] for t in targets}
    assert len(texts) == 1 and "fpext <8 x half>" in texts.pop()


@pytest.mark.parametrize(
    "target", ["llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64",
               "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
               "llvm -mtriple=aarch64-linux-gnu"],
)  # fmt: skip
def test_no_object_calls_a_conversion_of_compiler_rt(target: str) -> None:
    binary = extended(target)[1]
    assert b"hfsf2" not in binary and b"tilewright.convert" not in binary


@pytest.mark.parametrize("dtype", MEMORY_ONLY)
def test_refuses_arithmetic_in_types_of_memory(dtype: DType) -> None:
    a, b = Buffer("a", dtype, 4), Buffer("b", "bool", 4)
    x = load(a, e.const(0))
    for op in ("add", "mul", "min", "floordiv"):
        with pytest.raises(InternalError, match=f"LLVM printer.*{dtype} must happen in"):
            text_of(Store(a, e.const(0), e.make(op, (x, x), None, dtype)), [a], [])
    with pytest.raises(InternalError, match=f"LLVM printer.*{dtype} must happen in"):
        text_of(Store(b, e.const(0), e.make("lt", (x, x), None, "bool")), [a], [b])
    with pytest.raises(InternalError, match="LLVM printer.*must happen in"):
        text_of(Store(a, e.const(0), e.make("call", (x,), "exp", dtype)), [a], [])


@pytest.mark.parametrize("dtype", ["float32", "uint32", "int8"])
def test_refuses_ramps_of_what_is_no_index(dtype: str) -> None:
    b = Buffer("b", dtype, 4)
    ramp = e.make("ramp", (e.const(0, dtype), e.const(1, dtype)), None, dtype, 4)
    with pytest.raises(InternalError, match="LLVM printer.*a ramp must be of indices"):
        text_of(Store(b, lanes(0, 4), ramp), [], [b])


def test_refuses_expressions_it_does_not_know() -> None:
    (b,) = buffers(4, "b")
    flags = Buffer("flags", "bool", 4)
    for dtype, out in ((FLOAT32, b), (DType("bool"), flags)):
        foreign = e.make("shuffle", (e.const(1),), None, dtype)
        with pytest.raises(InternalError, match="LLVM printer.*'shuffle'"):
            text_of(Store(out, e.const(0), foreign), [], [out])
    with pytest.raises(InternalError, match="LLVM printer.*'sinc' is unknown"):
        value = e.make("call", (load(b, e.const(0)),), "sinc", FLOAT32)
        text_of(Store(b, e.const(0), value), [b], [])
