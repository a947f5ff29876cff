"""LLVM IR of small programs written by hand, run and compared with numpy."""

from __future__ import annotations

import ctypes
import math
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import InternalError, LegalityError
from tilewright.base.target import Target
from tilewright.codegen.llvm import generate
from tilewright.ir import expr as e
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Store,
    Thread,
    load,
    seq,
)

binding = pytest.importorskip("llvmlite.binding")

TARGET = Target("llvm")
# Runs a parallel loop as three chunks, one of them empty.
_DECLARED = "declare void @tilewright_parallel(ptr, ptr, i64)"
_DEFINED = """
define internal void @tilewright_parallel(ptr %body, ptr %env, i64 %n) {
  %half = udiv i64 %n, 2
  call void %body(ptr %env, i64 %half, i64 %n)
  call void %body(ptr %env, i64 %half, i64 %half)
  call void %body(ptr %env, i64 0, i64 %half)
  ret void
}
"""


def machine():
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(),
        opt=2, reloc="pic", codemodel="small", jit=True,
    )  # fmt: skip


def optimised(text: str, target_machine):
    module = binding.parse_assembly(text.replace(_DECLARED, _DEFINED))
    module.verify()
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    builder = binding.create_pass_builder(target_machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def aligned(data: np.ndarray) -> np.ndarray:
    raw = np.zeros(data.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    out = raw[start : start + data.nbytes].view(data.dtype)
    out[:] = data.ravel()
    return out


def run(program: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run all kernels on 64-byte aligned copies; the outputs, flat."""
    source = generate(program, TARGET)
    target_machine = machine()
    module = optimised(source.text, target_machine)
    engine = binding.create_mcjit_compiler(module, target_machine)
    engine.finalize_object()
    given_inputs = iter(inputs)
    arrays = []
    for spec in source.buffers:
        if spec.role == "input":
            arrays.append(aligned(next(given_inputs).astype(spec.dtype)))
        else:
            arrays.append(aligned(np.zeros(spec.shape, spec.dtype)))
    for kernel in source.kernels:
        pointers = [arrays[i].ctypes.data for i in kernel.args]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))
        kind(engine.get_function_address(kernel.name))(*pointers)
    return [a for a, s in zip(arrays, source.buffers, strict=True) if s.role == "output"]


def program(body, inputs, outputs, workspaces=(), name="k") -> Program:
    args = (*inputs, *outputs)
    roles = ("input",) * len(inputs) + ("output",) * len(outputs)
    return Program(name, args, roles, (Kernel(name, (*args, *workspaces), body),), workspaces)


def text_of(body, inputs, outputs) -> str:
    return generate(program(body, inputs, outputs), TARGET).text


def lanes(base, n=16, stride=1):
    return e.ramp(e.convert(base), stride, n)


def buffers(size, *names, dtype="float32", scope="global"):
    return [Buffer(name, dtype, size, scope) for name in names]


def elementwise(function, x: np.ndarray, width: int = 16, out: str = "") -> np.ndarray:
    """`function` of every element, vectors of `width` lanes; the size must divide."""
    (a,) = buffers(x.size, "a", dtype=str(x.dtype))
    (b,) = buffers(x.size, "b", dtype=out or str(x.dtype))
    i = e.var("i")
    at = lanes(i * width, width)
    return run(program(For(i, x.size // width, Store(b, at, function(load(a, at)))), [a], [b]), x)[0]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- loops and buffers -----------------------------------------------------------------------------


def test_source_describes_buffers_and_kernels():
    a, b = buffers(12, "a", "b")
    shaped = Buffer("c", "float32", 12, "global", (3, 4))
    (w,) = buffers(4, "w")
    i = e.var("i")
    first = Kernel("first", (w, a), For(i, 4, Store(w, i, load(a, i))))
    second = Kernel("second", (shaped, w, b), For(i, 4, Store(shaped, i, load(w, i) + load(b, i))))
    p = Program("both", (a, b, shaped), ("input", "input", "output"), (first, second), (w,))
    source = generate(p, TARGET)
    assert [(s.name, s.role, s.shape) for s in source.buffers] == [
        ("a", "input", (12,)), ("b", "input", (12,)), ("c", "output", (3, 4)),
        ("w", "workspace", (4,)),
    ]  # fmt: skip
    assert [(k.name, k.args, k.grid) for k in source.kernels] == [
        ("first", (3, 0), (1, 1, 1)), ("second", (2, 3, 1), (1, 1, 1)),
    ]  # fmt: skip
    assert (source.target, source.entry_name) == (str(TARGET), "both")
    x, y = normal(2, 12)
    assert np.allclose(run(p, x, y)[0][:4], (x + y)[:4])


@pytest.mark.parametrize("size", [1, 5, 16, 37])
def test_elementwise_with_tail_guard(size):
    a, b, c = buffers(size, "a", "b", "c")
    o, i = e.var("o"), e.var("i")
    at = o * 16 + i
    body = If(at < size, Store(c, at, load(a, at) * 2.0 + load(b, at)))
    x, y = normal(2, size)
    (got,) = run(program(For(o, -(-size // 16), For(i, 16, body)), [a, b], [c]), x, y)
    assert np.allclose(got, x * 2 + y)


def test_vector_tail_guard_reads_and_writes_only_its_lanes():
    size = 37
    (a,) = buffers(size, "a")
    (c,) = buffers(64, "c")
    o = e.var("o")
    at = lanes(o * 16)
    body = If(at < size, Store(c, at, load(a, at) + 1.0), Store(c, at, e.const(-1.0)))
    (got,) = run(program(For(o, 4, body), [a], [c]), x := normal(size))
    assert np.allclose(got[:size], x + 1)
    assert (got[size:] == -1).all()


def test_matrix_product_keeps_its_tile_in_registers():
    m, n, k = 12, 64, 40
    a, b, c = Buffer("a", "float32", m * k), Buffer("b", "float32", k * n), Buffer("c", "float32", m * n)
    (acc,) = buffers(6 * 32, "acc", scope="local")
    io, jo, kk, i, j, i1, j1, i2, j2 = map(e.var, "io jo kk i j i1 j1 i2 j2".split())

    def tile(x, y, body):
        return For(x, 6, For(y, 2, body, "unrolled"), "unrolled")

    clear = tile(i, j, Store(acc, lanes(i * 32 + j * 16), e.const(0.0)))
    at = lanes(i1 * 32 + j1 * 16)
    product = load(a, (io * 6 + i1) * k + kk) * load(b, lanes(kk * n + jo * 32 + j1 * 16))
    reduce = For(kk, k, tile(i1, j1, Store(acc, at, load(acc, at) + product)))
    where = lanes((io * 6 + i2) * n + jo * 32 + j2 * 16)
    write = tile(i2, j2, Store(c, where, load(acc, lanes(i2 * 32 + j2 * 16))))
    body = For(io, 2, For(jo, 2, Allocate(acc, seq(clear, reduce, write))))
    p = program(body, [a, b], [c])
    x, y = normal(m, k), normal(k, n)
    assert np.allclose(run(p, x, y)[0].reshape(m, n), x @ y, rtol=1e-4, atol=1e-4)
    text = generate(p, TARGET).text
    assert text.count("@llvm.fmuladd.v16f32(") == 12 + 1  # twelve in the body and the declaration
    assert "alloca" not in str(optimised(text, machine()))


def test_parallel_loop_captures_pointers_and_variables():
    """serial -> parallel -> (local buffer, nested parallel): all of it reaches the loop's body."""
    a, b = buffers(3 * 8 * 4, "a", "b")
    (tmp,) = buffers(4, "tmp", scope="local")
    (outside,) = buffers(3, "outside", scope="local")
    s, u, p, q, r = map(e.var, "supqr")
    at = (s * 8 + p) * 4
    fill = For(q, 4, Store(tmp, q, load(a, at + q) * load(outside, s)), "parallel")
    write = For(r, 4, Store(b, at + r, load(tmp, 3 - r) + e.cast("float32", u)))
    inner = For(p, 8, Allocate(tmp, seq(fill, write)), "parallel")
    body = Allocate(
        outside,
        For(s, 3, Seq((Store(outside, s, e.cast("float32", s) + 1.0), For(u, 2, inner, "unrolled")))),
    )
    x = normal(3, 8, 4)
    (got,) = run(program(body, [a], [b]), x)
    assert np.allclose(got.reshape(3, 8, 4), (x * np.arange(1, 4)[:, None, None])[..., ::-1] + 1)
    text = text_of(body, [a], [b])
    assert text.count("call void @tilewright_parallel") == 2  # one per copy of the unrolled loop


@pytest.mark.parametrize("kind", ["serial", "unrolled", "parallel"])
def test_a_loop_of_one_iteration_is_no_loop(kind):
    (b,) = buffers(1, "b")
    i = e.var("i")
    body = For(i, 1, Store(b, i, e.cast("float32", i) + 3.0), kind)
    assert run(program(body, [], [b]))[0] == [3.0]
    assert "loop" not in text_of(body, [], [b])


def test_serial_loops_forbid_unrolling_and_vectorising():
    (b,) = buffers(8, "b")
    i = e.var("i")
    text = text_of(For(i, 8, Store(b, i, e.const(1.0))), [], [b])
    assert "!llvm.loop !2" in text and "!2 = distinct !{!2, !0, !1}" in text


def test_unrolled_bodies_address_by_constants():
    (a,), (b,) = buffers(4096, "a"), buffers(4096, "b")
    o, i, j = map(e.var, "oij")
    at = ((o * 8 + i) * 4 + j) * 16
    body = For(o, 8, For(i, 8, For(j, 4, Store(b, lanes(at), load(a, lanes(at))), "unrolled"), "unrolled"))
    text = text_of(body, [a], [b])
    assert text.count(" = mul ") == 1 and " = add nsw" not in text
    assert text.count("align 64") == 2 + 2 * 32  # two parameters, every load and store


def test_two_statements_on_one_buffer_keep_their_order():
    (a,) = buffers(8, "a")
    (b,) = buffers(1, "b")
    i = e.var("i")
    body = seq(
        Store(b, e.const(0), e.const(0.0)),
        For(i, 8, Store(b, e.const(0), load(b, e.const(0)) + load(a, i)), "unrolled"),
    )
    assert np.isclose(run(program(body, [a], [b]), x := normal(8))[0], x.sum(), atol=1e-5)


# -- vectors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stride", [-3, -1, 0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("width", [4, 8])
def test_vector_strides(stride, width):
    size, n = 128, 3
    (a,), (b,), (c,) = buffers(size, "a"), buffers(n * width, "b"), buffers(size, "c")
    o = e.var("o")
    base = o + (size - n if stride < 0 else 0)
    at = e.make("ramp", (base, e.const(stride)), None, "int32", width)
    read = Store(b, lanes(o * width, width), load(a, at))
    write = Store(c, at, load(a, at) * 2.0)
    x = normal(size)
    gathered, scattered = run(program(For(o, n, seq(read, write)), [a], [b, c]), x)
    where = (size - n if stride < 0 else 0) + np.arange(n)[:, None] + stride * np.arange(width)
    assert (gathered.reshape(n, width) == x[where]).all()
    expected = np.zeros(size, np.float32)
    expected[where] = x[where] * 2
    assert (scattered == expected).all()


def test_strided_read_at_the_end_of_a_buffer_stays_inside():
    """The last lane is the last element: no wide load fits."""
    (a,), (b,) = buffers(15, "a"), buffers(8, "b")
    body = Store(b, lanes(0, 8), load(a, lanes(0, 8, 2)))
    assert "<16 x float>" not in text_of(body, [a], [b])
    assert (run(program(body, [a], [b]), x := normal(15))[0] == x[::2]).all()


def test_vector_of_computed_indices_becomes_contiguous_or_a_gather():
    (a,), (b,) = buffers(64, "a"), buffers(64, "b")
    i = e.var("i")
    at = lanes(i * 16)
    half = load(a, at // 2)  # 0 0 1 1 2 2 ...
    same = load(a, (at % 64) + 0)  # provably `at`
    body = For(i, 4, Store(b, at, half + same))
    x = normal(64)
    assert np.allclose(run(program(body, [a], [b]), x)[0], x[np.arange(64) // 2] + x)


def test_gather_and_scatter_by_indices_from_memory():
    a, idx = Buffer("a", "float32", 40), Buffer("idx", "int32", 16)
    b, c = Buffer("b", "float32", 16), Buffer("c", "float32", 40)
    at = load(idx, lanes(0))
    body = seq(Store(b, lanes(0), load(a, at * 2 + 1)), Store(c, at, load(a, lanes(0))))
    x, where = normal(40), np.random.default_rng(1).permutation(19)[:16]
    got, scattered = run(program(body, [a, idx], [b, c]), x, where)
    assert (got == x[where * 2 + 1]).all()
    assert (scattered[where] == x[:16]).all()


# -- conditions --------------------------------------------------------------------------------------


def padded(x, pad=1):
    return np.pad(x.reshape(8, 16), pad)


@pytest.mark.parametrize("vector", [False, True])
def test_guarded_padding(vector):
    (a,), (b,) = buffers(8 * 16, "a"), buffers(10 * 18, "b")
    y, x = e.var("y"), e.var("x")
    width = 6 if vector else 1
    at = lanes(x * width, width)
    inside = e.all_of(y >= 1, y < 9, at >= 1, at < 17)
    value = e.if_then_else(inside, load(a, (y - 1) * 16 + at - 1), 0.0)
    body = For(y, 10, For(x, 18 // width, Store(b, y * 18 + at, value)))
    p = program(body, [a], [b])
    data = normal(8, 16)
    assert (run(p, data)[0].reshape(10, 18) == padded(data)).all()
    text = generate(p, TARGET).text
    assert ("llvm.masked.load" in text) == vector


@pytest.mark.parametrize("width", [1, 12])
@pytest.mark.parametrize("form", ["plain", "arithmetic", "strided", "other side", "nested"])
def test_guarded_reads_never_leave_the_buffer(width, form):
    """The buffer ends where a page that must not be read begins."""
    import mmap

    size, n, page = 16, 36, mmap.PAGESIZE
    (a,), (b,) = buffers(size, "a"), buffers(n, "b")
    i = e.var("i")
    at = lanes(i * width, width)
    far = at * 100000
    inside = at < size
    value, expected = {
        "plain": (e.if_then_else(inside, load(a, at), 5.0), lambda x: x),
        "arithmetic": (e.if_then_else(inside, load(a, at) * 2.0 + 1.0, 5.0), lambda x: x * 2 + 1),
        "strided": (
            e.if_then_else(far < 1, load(a, far), 5.0),
            lambda x: np.where(np.arange(size) < 1, x, 5),
        ),
        "other side": (e.if_then_else(at >= size, e.const(5.0), load(a, at)), lambda x: x),
        "nested": (
            e.if_then_else(inside, e.if_then_else(load(a, at) > 0.0, load(a, at), 0.0), 5.0),
            lambda x: np.maximum(x, 0),
        ),
    }[form]
    libc = ctypes.CDLL(None, use_errno=True)
    block = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    assert libc.mprotect(ctypes.c_void_p(start + page), page, 0) == 0
    address = start + page - 4 * size
    data = normal(size)
    ctypes.memmove(address, data.ctypes.data, 4 * size)
    out = aligned(np.zeros(n, np.float32))
    text = text_of(For(i, n // width, Store(b, at, value)), [a], [b])
    target_machine = machine()
    engine = binding.create_mcjit_compiler(optimised(text, target_machine), target_machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    kind(engine.get_function_address("k"))(address, out.ctypes.data)
    assert np.allclose(out, np.concatenate([expected(data), np.full(n - size, 5)]))


def test_second_condition_reads_only_where_the_first_holds():
    (a,), (b,) = buffers(8, "a"), buffers(16, "b")
    i = e.var("i")
    both = e.binary("and", i < 8, load(a, i) > 0.0)
    either = e.binary("or", i >= 8, load(a, i) > 0.0)
    value = e.select(both, 1.0, 0.0) + e.select(either, 2.0, 0.0)
    body = For(i, 16, Store(b, i, value))
    assert text_of(body, [a], [b]).count("br i1") == 2 + 1  # two guards and the loop
    x = normal(8)
    expected = np.concatenate([3.0 * (x > 0), np.full(8, 2.0)])
    assert (run(program(body, [a], [b]), x)[0] == expected).all()


def test_conditions_that_ranges_decide_leave_no_code():
    (a,), (b,) = buffers(64, "a"), buffers(64, "b")
    i, j = e.var("i"), e.var("j")
    at = i * 8 + j
    value = e.if_then_else(e.all_of(at >= 0, at < 64, (at - at) < 1), load(a, at), 0.0)
    body = For(i, 8, If(at < 64, For(j, 8, Store(b, at, value), "unrolled")))
    text = text_of(For(j, 1, body), [a], [b])
    assert "icmp s" not in text and "select" not in text and "phi float" not in text


def test_if_else_and_boolean_buffers():
    a, flags = Buffer("a", "float32", 16), Buffer("flags", "bool", 16)
    b, big = Buffer("b", "float32", 16), Buffer("big", "bool", 16)
    i = e.var("i")
    at = lanes(0)
    loop = For(i, 16, If(load(flags, i), Store(b, i, load(a, i)), Store(b, i, -load(a, i))))
    vector = Store(big, at, e.binary("or", load(a, at) > 1.0, ~load(flags, at)))
    x, f = normal(16), np.arange(16) % 3 == 0
    got, greater = run(program(seq(loop, vector), [a, flags], [b, big]), x, f)
    assert (got == np.where(f, x, -x)).all()
    assert greater.dtype == bool and (greater == ((x > 1) | ~f)).all()


# -- integers ----------------------------------------------------------------------------------------

OPS = {"floordiv": np.floor_divide, "floormod": np.mod, "min": np.minimum, "max": np.maximum}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("divisor", [1, 3, 8, -5])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_operations_of_indices_and_of_data(op, divisor, dtype):
    (a,) = buffers(48, "a", dtype=dtype)
    b, c, d = buffers(48, "b", "c", "d", dtype=dtype)
    i = e.var("i", dtype)
    by = e.const(divisor, dtype)
    index = For(i, 48, Store(b, i, e.make(op, (i * 3 - 50, by), None, dtype)))
    data = For(i, 48, Store(c, i, e.make(op, (load(a, i), by), None, dtype)))
    at = e.make("ramp", (e.const(0, dtype), e.const(1, dtype)), None, dtype, 16)
    wide = load(a, at)
    vector = Store(d, at, e.make(op, (wide, e.broadcast(by, 16)), None, dtype, 16))
    x = np.arange(-24, 24) * 7
    got = run(program(seq(index, data, vector), [a], [b, c, d]), x)
    assert (got[0] == OPS[op](np.arange(48) * 3 - 50, divisor)).all()
    assert (got[1] == OPS[op](x, divisor)).all()
    assert (got[2][:16] == OPS[op](x[:16], divisor)).all()


def test_division_by_what_is_not_constant():
    a, b = buffers(16, "a", "b", dtype="int32")
    c, d, f = buffers(16, "c", "d", "f", dtype="int32")
    i, at = e.var("i"), lanes(0)
    guarded = e.if_then_else(load(b, at).equal(0), e.const(-1), load(a, at) // load(b, at))
    body = seq(
        For(i, 16, Store(c, i, e.if_then_else(load(b, i) > 0, load(a, i) % load(b, i), -1))),
        Store(d, at, guarded),
        For(i, 16, Store(f, i, e.binary("floordiv", 40 - i * 5, i + 1))),
    )
    x, y = np.arange(16) * 9 - 70, np.arange(16) % 5 - 2
    scalar, vector, index = run(program(body, [a, b], [c, d, f]), x, y)
    safe = np.where(y == 0, 1, y)
    assert (scalar == np.where(y > 0, x % safe, -1)).all()
    assert (vector == np.where(y == 0, -1, x // safe)).all()
    assert (index == (40 - np.arange(16) * 5) // (np.arange(16) + 1)).all()


def test_data_wraps_at_its_own_width():
    (a,), (b,), (c,) = (buffers(4, n, dtype="int32") for n in "abc")
    i = e.var("i")
    body = For(i, 4, seq(Store(b, i, load(a, i) * 3 + i), Store(c, i, (load(a, i) + 1) // 2)))
    x = np.array([2**31 - 1, -(2**31), 7, -7], np.int32)
    got, halves = run(program(body, [a], [b, c]), x)
    with np.errstate(over="ignore"):
        assert (got == x * np.int32(3) + np.arange(4, dtype=np.int32)).all()
        assert (halves == (x + np.int32(1)) // 2).all()


_LEAVES = st.sampled_from(["i", "j", "k"]) | st.integers(-9, 9)


def _grow(children):
    return st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), children, children) | st.tuples(
        st.sampled_from(["//", "%"]), children, st.sampled_from([1, 2, 3, 4, 7, 16])
    )


_NAMES = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "floormod", "min": "min", "max": "max"}


@settings(max_examples=60, deadline=None)
@given(st.recursive(_LEAVES, _grow, max_leaves=8), st.sampled_from([1, 4]))
def test_index_arithmetic_agrees_with_numpy(tree, width):
    """One variable serial, one unrolled, one vectorised or serial."""
    variables = {name: e.var(name) for name in "ijk"}
    symbols = {**variables, "k": lanes(variables["k"] * width, width)}
    grids = dict(zip("ijk", np.meshgrid(*map(np.arange, (3, 2, 8)), indexing="ij"), strict=True))

    def build(t):
        if isinstance(t, tuple):
            return e.binary(_NAMES[t[0]], build(t[1]), build(t[2]))
        return symbols[t] if isinstance(t, str) else e.const(t)

    def value(t):
        if not isinstance(t, tuple):
            return grids[t] if isinstance(t, str) else np.int64(t)
        x, y = value(t[1]), value(t[2])
        return {
            "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
            "min": np.minimum, "max": np.maximum,
        }[t[0]](x, y)  # fmt: skip

    expected = np.broadcast_to(value(tree), (3, 2, 8)).ravel()
    if np.abs(expected).max() >= 2**31:
        return
    (b,) = buffers(48, "b", dtype="int32")
    i, j, k = variables.values()
    at = (i * 2 + j) * 8 + symbols["k"]
    body = For(i, 3, For(j, 2, For(k, 8 // width, Store(b, at, build(tree))), "unrolled"))
    assert (run(program(body, [], [b]))[0] == expected).all()


def test_casts():
    x = np.array([-2.5, -1.0, 0.0, 1.5, 3.9, 100.0, -7.0, 0.25], np.float32)
    for dtype in ("int32", "int64", "float64", "bool"):
        got = elementwise(lambda v, d=dtype: e.cast(d, v), x, 8, dtype)
        assert (got == x.astype(dtype)).all() and got.dtype == dtype
        back = elementwise(lambda v: e.cast("float32", v), x.astype(dtype), 8, "float32")
        assert (back == x.astype(dtype).astype("float32")).all()
    assert (elementwise(lambda v: e.cast("int64", v), np.arange(-4, 4, dtype=np.int32), 8, "int64")
            == np.arange(-4, 4)).all()  # fmt: skip


# -- floating point ------------------------------------------------------------------------------------


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the exact float32 result."""
    size = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / size))


def spread(low, high, n=4096):
    """Values over a range: evenly, and near zero in all magnitudes."""
    x = np.concatenate([np.linspace(low, high, n), np.geomspace(1e-30, 1, n // 2)])
    return x[: len(x) // 16 * 16].astype(np.float32)


SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 200.0, -200.0, 1.0] * 8)
_ERF = np.vectorize(math.erf)
ACCURACY = {
    "exp": (np.exp, spread(-103, 88.7), 1.5),
    "log": (np.log, np.geomspace(1e-44, 3e38, 8192), 1.5),
    "tanh": (np.tanh, np.concatenate([spread(-11, 11), -spread(0, 1)]), 2.5),
    "erf": (_ERF, np.concatenate([spread(-5, 5), -spread(0, 1)]), 3.0),
    "sin": (np.sin, spread(-20, 20), 1.0),
}


@pytest.mark.parametrize("name", ACCURACY)
def test_functions_are_accurate(name):
    reference, x, limit = ACCURACY[name]
    x = x.astype(np.float32)
    got = elementwise(lambda v: e.call(name, v), x)
    assert ulps(got, reference(x.astype(np.float64))) < limit
    assert (elementwise(lambda v: e.call(name, v), x[:64], 1) == got[:64]).all()


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sqrt", "abs", "floor", "ceil", "round"])
def test_functions_of_special_values(name):
    x = SPECIAL.astype(np.float32)
    references = {"erf": _ERF, "abs": np.abs, "round": np.rint}
    with np.errstate(all="ignore"):
        expected = references.get(name, getattr(np, name, None))(x.astype(np.float64))
        expected = expected.astype(np.float32)
    got = elementwise(lambda v: e.call(name, v), x)
    assert np.allclose(got, expected, rtol=1e-6, atol=0, equal_nan=True)


def test_sigmoid_and_softplus():
    x = spread(-90, 90)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    got = elementwise(lambda v: 1.0 / (1.0 + e.call("exp", -v)), x)
    assert np.allclose(got, exact, rtol=4e-7, atol=1e-38)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sqrt", "rsqrt", "sin", "cos"])
def test_double_precision_functions(name):
    x = np.linspace(0.1, 9, 16)
    reference = {"erf": _ERF, "rsqrt": lambda v: v**-0.5}.get(name, getattr(np, name, None))
    got = elementwise(lambda v: e.call(name, v), x, 8)
    assert np.allclose(got, reference(x), rtol=1e-14)


def test_power():
    x = np.linspace(0.1, 9, 16).astype(np.float32)
    got = elementwise(lambda v: e.call("pow", v, e.const(1.7)), x, 8)
    assert np.allclose(got, x.astype(np.float64) ** 1.7, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 8])
def test_minimum_and_maximum_propagate_nan(dtype, width):
    x = np.array([1, -1, np.nan, 0, np.inf, -np.inf, 3, np.nan], dtype)
    for op, reference in ((e.maximum, np.maximum), (e.minimum, np.minimum)):
        got = elementwise(lambda v, op=op: op(v, 0.5), x, width)
        assert np.array_equal(got, reference(x, 0.5), equal_nan=True)
        got = elementwise(lambda v, op=op: op(e.cast(dtype, 0.5), v), x, width)
        assert np.array_equal(got, reference(x, 0.5), equal_nan=True)


def test_floor_division_of_floats():
    x = np.array([7.5, -7.5, 2.0, -2.0, 0.0, 9.0, -9.0, 1e-3], np.float32)
    for by in (2.0, -2.0):
        assert (elementwise(lambda v, by=by: v // by, x, 8) == x // np.float32(by)).all()
        assert (elementwise(lambda v, by=by: v % by, x, 8) == x % np.float32(by)).all()


def test_products_are_fused_into_sums_without_reordering():
    a, b, c = buffers(16, "a", "b", "c")
    at = lanes(0)
    x, y, z = (load(v, at) for v in (a, b, c))
    for value, expected in (
        (z + x * y, lambda x, y, z: x * y + z),
        (x * y + z, lambda x, y, z: x * y + z),
        (z - x * y, lambda x, y, z: z - x * y),
        (x * y - z, lambda x, y, z: x * y - z),
        (x * y + y * z, lambda x, y, z: x * y + y * z),
    ):
        (d,) = buffers(16, "d")
        body = Store(d, at, value)
        text = text_of(body, [a, b, c], [d])
        assert "fmuladd" in text and "reassoc" not in text and "fast" not in text
        data = normal(3, 16)
        (got,) = run(program(body, [a, b, c], [d]), *data)
        assert np.allclose(got, expected(*data.astype(np.float64)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions(dtype):
    (a,) = buffers(6 * 32, "a", dtype=dtype)
    total, most = buffers(6, "total", "most", dtype=dtype)
    acc, top = buffers(8, "acc", dtype=dtype, scope="local"), buffers(1, "top", dtype=dtype, scope="local")
    r, k, k2, u = map(e.var, ("r", "k", "k2", "u"))
    (acc,), (top,) = acc, top
    at, zero = lanes(0, 8), e.const(0)
    body = For(r, 6, Allocate(acc, Allocate(top, seq(
        Store(acc, at, e.const(0.0, dtype)),
        Store(top, zero, e.const(float("-inf"), dtype)),
        For(k, 4, Store(acc, at, load(acc, at) + load(a, lanes(r * 32 + k * 8, 8)))),
        For(k2, 32, Store(top, zero, e.maximum(load(top, zero), load(a, r * 32 + k2)))),
        Store(total, r, e.const(0.0, dtype)),
        For(u, 8, Store(total, r, load(total, r) + load(acc, u)), "unrolled"),
        Store(most, r, load(top, zero)),
    ))), "parallel")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((6, 32)).astype(dtype)
    sums, maxima = run(program(body, [a], [total, most]), x)
    assert np.allclose(sums, x.sum(1), rtol=1e-5, atol=1e-6) and (maxima == x.max(1)).all()


# -- refusals ------------------------------------------------------------------------------------------


def one_store():
    (b,) = buffers(4, "b")
    return b, Store(b, e.const(0), e.const(1.0))


def test_refuses_barriers():
    b, store = one_store()
    with pytest.raises(InternalError, match="Barrier has no form on a CPU"):
        text_of(Seq((store, Barrier())), [], [b])


def test_refuses_threads():
    b, store = one_store()
    kernel = Kernel("k", (b,), store, (Thread("threadIdx.x", e.var("t"), 4),))
    with pytest.raises(InternalError, match="no launch threads"):
        generate(Program("k", (b,), ("output",), (kernel,)), TARGET)


@pytest.mark.parametrize("kind", ["vectorized", "vthread"])
def test_refuses_loops_that_lowering_must_remove(kind):
    b, store = one_store()
    with pytest.raises(InternalError, match=f"left a {kind} loop over i"):
        text_of(For(e.var("i"), 4, store, kind), [], [b])


def test_refuses_unknown_variables_and_buffers():
    b, _ = one_store()
    (other,) = buffers(4, "other")
    with pytest.raises(InternalError, match="outside its loop"):
        text_of(Store(b, e.var("i"), e.const(1.0)), [], [b])
    with pytest.raises(InternalError, match="neither a parameter nor allocated"):
        text_of(Store(b, e.const(0), load(other, e.const(0))), [], [b])


def test_refuses_more_stack_than_a_thread_has():
    b, store = one_store()
    (huge,) = buffers(1 << 20, "huge", scope="local")
    with pytest.raises(LegalityError, match="bytes of stack"):
        text_of(Allocate(huge, store), [], [b])


def test_refuses_what_a_vector_condition_cannot_guard():
    b, store = one_store()
    i = e.var("i")
    guard = lanes(i * 4, 4) < 6
    with pytest.raises(InternalError, match="scalar store"):
        text_of(For(i, 2, If(guard, store)), [], [b])
    with pytest.raises(InternalError, match="parallel loop"):
        text_of(For(i, 2, If(guard, For(e.var("j"), 4, store, "parallel"))), [], [b])


# -- a real kernel ---------------------------------------------------------------------------------------


def direct_convolution(tile: int = 14) -> Program:
    """relu(conv 3x3), 64 to 64 channels, 56x56, NCHW16c with a padded input; 126 FMAs unrolled."""
    blocks, size = 4, 56
    x = Buffer("x", "float32", blocks * 58 * 58 * 16)
    w = Buffer("w", "float32", blocks * blocks * 9 * 256)
    y = Buffer("y", "float32", blocks * size * size * 16)
    (acc,) = buffers(tile * 16, "acc", scope="local")
    p, o, ow, co, kh, kw, ci, o1, o2 = map(e.var, "p o ow co kh kw ci o1 o2".split())
    oc, oh = p // size, p % size
    clear = For(o1, tile, Store(acc, lanes(o1 * 16), e.const(0.0)), "unrolled")
    data = load(x, ((co * 58 + oh + kh) * 58 + o * tile + ow + kw) * 16 + ci)
    weight = load(w, lanes((((oc * blocks + co) * 9 + kh * 3 + kw) * 16 + ci) * 16))
    body = Store(acc, lanes(ow * 16), load(acc, lanes(ow * 16)) + e.broadcast(data, 16) * weight)
    for v, n in ((ow, tile), (kw, 3), (kh, 3)):
        body = For(v, n, body, "unrolled")
    result = e.maximum(load(acc, lanes(o2 * 16)), 0.0)
    write = Store(y, lanes(((oc * size + oh) * size + o * tile + o2) * 16), result)
    reduce = For(co, blocks, For(ci, 16, body))
    tiles = Allocate(acc, seq(clear, reduce, For(o2, tile, write, "unrolled")))
    nest = For(p, blocks * size, For(o, size // tile, tiles), "parallel")
    return program(nest, [x, w], [y], name="conv")


def test_convolution_kernel_is_right_and_clean():
    p = direct_convolution()
    rng = np.random.default_rng(0)
    x = np.zeros((4, 58, 58, 16), np.float32)
    x[:, 1:-1, 1:-1] = rng.standard_normal((4, 56, 56, 16))
    w = rng.standard_normal((4, 4, 3, 3, 16, 16)).astype(np.float32)
    (got,) = run(p, x, w)
    exact = np.zeros((4, 56, 56, 16))
    for i in range(3):
        for j in range(3):
            part = x[:, i : i + 56, j : j + 56].astype(np.float64)
            exact += np.einsum("chwi,dcio->dhwo", part, w[:, :, i, j])
    assert np.allclose(got.reshape(exact.shape), np.maximum(exact, 0), rtol=1e-4, atol=1e-3)
    features = binding.get_host_cpu_features()
    if not features.get("avx512f"):
        return
    target_machine = machine()
    text = target_machine.emit_assembly(optimised(generate(p, TARGET).text, target_machine))
    inner = max(re.split(r"\n(?=\.LBB)", text), key=lambda block: block.count("vfmadd"))
    inner = inner.partition("\n.LBB")[0]
    assert inner.count("vfmadd") == 126 and "%rsp" not in inner


def test_text_is_made_quickly():
    p = direct_convolution()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        generate(p, TARGET)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05  # about 4 ms on an idle core
