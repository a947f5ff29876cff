"""LLVM IR of small programs: loops, buffers, vectors, conditions, refusals, one real kernel."""

from __future__ import annotations

import ctypes
import math
import re
import time

import numpy as np
import pytest

from tests.codegen.llvm_programs import (
    TARGET,
    aligned,
    binding,
    buffers,
    lanes,
    machine,
    normal,
    optimised,
    program,
    run,
    text_of,
)
from tilewright.base.errors import InternalError, LegalityError
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


def test_kernels_get_symbols_of_their_own():
    """Names that are no identifier, that repeat, or that the C library has."""
    kernels, outputs = [], buffers(1, *"abcdef", dtype="float64")
    for name, out in zip(["tanh", "memset", "x.y z", "x.y z", "2nd", "fine"], outputs, strict=True):
        value = e.call("tanh", e.const(0.5, "float64"))
        kernels.append(Kernel(name, (out,), Store(out, e.const(0), value)))
    p = Program("p", tuple(outputs), ("output",) * 6, tuple(kernels))
    names = [k.name for k in generate(p, TARGET).kernels]
    assert names == ["k_tanh", "k_memset", "x_y_z", "x_y_z_3", "k_2nd", "fine"]
    assert np.allclose(run(p), math.tanh(0.5))


def test_a_name_made_unique_may_be_taken_too():
    out = buffers(1, *"abc")
    kernels = tuple(
        Kernel(name, (b,), Store(b, e.const(0), e.const(1.0)))
        for name, b in zip(["x_2", "x", "x"], out, strict=True)
    )
    p = Program("p", tuple(out), ("output",) * 3, kernels)
    assert [k.name for k in generate(p, TARGET).kernels] == ["x_2", "x", "x_3"]


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
    a, b, c = (
        Buffer("a", "float32", m * k),
        Buffer("b", "float32", k * n),
        Buffer("c", "float32", m * n),
    )
    (acc,) = buffers(6 * 32, "acc", scope="local")
    io, jo, kk, i, j = map(e.var, ["io", "jo", "kk", "i", "j"])
    i1, j1, i2, j2 = map(e.var, ["i1", "j1", "i2", "j2"])

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
        For(
            s, 3, Seq((Store(outside, s, e.cast("float32", s) + 1.0), For(u, 2, inner, "unrolled")))
        ),
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
    body = For(
        o, 8, For(i, 8, For(j, 4, Store(b, lanes(at), load(a, lanes(at))), "unrolled"), "unrolled")
    )
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


# -- vectors ---------------------------------------------------------------------------------------


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


# -- conditions ------------------------------------------------------------------------------------


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


def test_guarded_vector_of_a_local_array_has_the_other_value_elsewhere():
    """The array may be read whole; its elements are not what the excluded lanes take."""
    (a,), (b,) = buffers(16, "a"), buffers(32, "b")
    (own,) = buffers(16, "own", scope="local")
    o, at = e.var("o"), lanes(0)
    value = e.if_then_else(o * 16 + at < 21, load(own, at), -1.0)
    copy = seq(Store(own, at, load(a, at)), Store(b, lanes(o * 16), value))
    (got,) = run(program(For(o, 2, Allocate(own, copy)), [a], [b]), x := normal(16))
    assert (got == np.where(np.arange(32) < 21, np.tile(x, 2), -1)).all()


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


# -- refusals --------------------------------------------------------------------------------------


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
    for kind in ("serial", "unrolled", "parallel"):
        i = e.var("i")
        store = Store(b, i, e.const(1.0))
        with pytest.raises(InternalError, match="outside its loop"):
            text_of(seq(For(i, 4, store, kind), store), [], [b])
    inner = Store(b, e.var("nowhere"), e.const(1.0))
    with pytest.raises(InternalError, match="outside its loop"):
        text_of(For(e.var("i"), 4, inner, "parallel"), [], [b])
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


# -- a real kernel ---------------------------------------------------------------------------------


def direct_convolution(tile: int = 14) -> Program:
    """relu(conv 3x3), 64 to 64 channels, 56x56, NCHW16c with a padded input; 126 FMAs unrolled."""
    blocks, size = 4, 56
    x = Buffer("x", "float32", blocks * 58 * 58 * 16)
    w = Buffer("w", "float32", blocks * blocks * 9 * 256)
    y = Buffer("y", "float32", blocks * size * size * 16)
    (acc,) = buffers(tile * 16, "acc", scope="local")
    p, o, ow, co, kh, kw = map(e.var, ["p", "o", "ow", "co", "kh", "kw"])
    ci, o1, o2 = map(e.var, ["ci", "o1", "o2"])
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


@pytest.mark.slow
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
