"""CUDA C and OpenCL C: golden text, every kernel through NVRTC, results on the devices here."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen import c_family_programs
from tests.codegen.c_family_programs import Case, glob, program
from tests.codegen.c_family_types import SHOWN, TYPED
from tilewright.base.artifact import Source
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.codegen.c_dialect import Dialect, Names, float_literal
from tilewright.codegen.c_family import COPIES_IN_FLIGHT
from tilewright.codegen.c_shared import plan_shared
from tilewright.codegen.cuda import DIALECT as CUDA
from tilewright.codegen.opencl import DIALECT as OPENCL
from tilewright.driver import nvrtc, opencl
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)
from tilewright.runtime import Module, array, device, empty
from tilewright.targets.target import Target

CASES = c_family_programs.CASES | TYPED
TEXTS = [*c_family_programs.CASES, *SHOWN]
GOLDEN = Path(__file__).parent / "golden"
SUFFIXES = {"cuda": ".cu", "opencl": ".cl"}
COMPILERS = {"cuda": nvrtc, "opencl": opencl}
SM90 = Target("cuda -arch=sm_90")


def text_of(body: Stmt, *params: Buffer, threads: tuple[Thread, ...] = ()) -> str:
    return generate(program(Kernel("k", params, body, threads), 0), Target("cuda")).text


@pytest.mark.parametrize("kind", SUFFIXES)
@pytest.mark.parametrize("name", TEXTS)
def test_text(name: str, kind: str, update_golden: bool) -> None:
    text = generate(CASES[name].program, Target(kind)).text
    path = GOLDEN / f"{name}{SUFFIXES[kind]}"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text(), f"--update-golden accepts the new text of {path.name}"


@pytest.mark.sampled(16)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name, arch",
    [(name, "sm_90") for name in CASES]
    + [(name, arch) for name in TYPED for arch in ("sm_61", "sm_75", "sm_80")],
)
def test_nvrtc_accepts(name: str, arch: str) -> None:
    if arch not in nvrtc.supported_archs():
        pytest.skip(f"NVRTC {nvrtc.version()} does not compile for {arch}")
    target = Target(f"cuda -arch={arch}")
    source = generate(CASES[name].program, target)
    made = nvrtc.build(source, target)
    assert made.binary[:4] == b"\x7fELF"
    assert "warning" not in made.meta["log"], made.meta["log"]
    assert all(kernel["spill_bytes"] == 0 for kernel in made.resources.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", SUFFIXES)
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, kind: str) -> None:
    gpu = device(kind)
    if not gpu.exist:
        pytest.skip(f"no {kind} device")
    check(CASES[name], generate(CASES[name].program, gpu.target), kind)


def check(case: Case, source: Source, kind: str) -> None:
    gpu = device(kind)
    module = Module(COMPILERS[kind].build(source, gpu.target), gpu)
    specs = [b for b in source.buffers if b.role == "output"]
    outputs = [empty(b.shape, b.dtype, gpu) for b in specs]
    for b, out in zip(specs, outputs, strict=True):
        poison = np.nan if b.dtype.is_float else 1
        out.copyfrom(np.full(b.shape, poison, b.dtype.storage))
    module(*(array(x, gpu) for x in case.inputs), *outputs)
    for out, want in zip(outputs, case.expected, strict=True):
        got = out.numpy()
        want = np.asarray(want, got.dtype).reshape(got.shape)
        if case.tolerance:
            scale = np.abs(want).max()
            np.testing.assert_allclose(got, want, case.tolerance, case.tolerance * scale)
        else:
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


# -- single rules --------------------------------------------------------------------------------

A = glob("a", "float32", 8)
SOURCE = glob("source", "float32", 256)
I = E.var("i")  # noqa: E741
ZERO = E.const(0.0)


def test_source_tells_how_to_launch() -> None:
    source = generate(CASES["two_kernels"].program, Target("opencl -device=0"))
    assert source.target == "opencl -device=0" and source.entry_name == "sums"
    assert [(b.name, b.shape, b.role) for b in source.buffers] == [
        ("a", (4, 8), "input"), ("b", (4, 8), "output"), ("w", (4,), "workspace"),
    ]  # fmt: skip
    sums, divide = source.kernels
    assert (sums.name, sums.args, sums.grid, sums.block) == ("sums", (0, 2), (1, 1, 1), (4, 1, 1))
    assert (divide.args, divide.grid, divide.block) == ((2, 0, 1), (1, 4, 1), (8, 1, 1))


def test_padded_buffers_are_flat() -> None:
    buffer = Buffer("a", "float32", 16, "global", (3, 5))
    kernel = Kernel("k", (buffer,), Store(buffer, E.const(0), ZERO))
    made = Program("k", (buffer,), ("output",), (kernel,))
    assert generate(made, Target("cuda")).buffers[0].shape == (16,)


@pytest.mark.parametrize("kind", SUFFIXES)
def test_shared_bytes(kind: str) -> None:
    """The second pair of buffers takes the place of the first; every buffer starts at 16 bytes."""
    for name, nbytes in (("shared_reuse", 272 + 260), ("matmul", 2 * 2048)):
        (kernel,) = generate(CASES[name].program, Target(kind)).kernels
        assert kernel.shared_bytes == nbytes


def shared(name: str, size: int = 4) -> Buffer:
    return Buffer(name, "float32", size, "shared")


def use(buffer: Buffer) -> Stmt:
    return Allocate(buffer, Seq((Store(buffer, E.const(0), ZERO), Barrier(), touch(buffer))))


def touch(buffer: Buffer) -> Stmt:
    return Store(A, E.const(0), load(buffer, E.const(0)))


def test_no_reuse_inside_a_loop() -> None:
    """The next iteration's first buffer would meet the last readers of this one's second."""
    loop = For(I, 4, Seq((use(shared("x")), use(shared("y")))))
    plan = plan_shared(Seq((loop, use(shared("z")))))
    assert list(plan.offsets.values()) == [0, 16, 0] and plan.total == 32
    assert len(plan.fenced) == 1  # z, behind the loop


def test_a_barrier_is_not_doubled() -> None:
    z = shared("z")
    fenced = Allocate(z, Seq((Barrier(), touch(z))))
    plan = plan_shared(Seq((use(shared("x")), fenced)))
    assert plan.reused and not plan.fenced
    plan = plan_shared(Seq((use(shared("x")), Barrier(), use(z))))
    assert plan.reused and not plan.fenced


def test_no_fence_inside_a_branch() -> None:
    """Not every thread may pass there."""
    x, y, z = map(shared, "xyz")
    branch = If(I < 2, Seq((use(y), use(z))))
    plan = plan_shared(Seq((use(x), branch)))
    assert plan.fenced == {id(branch)} and plan.offsets == {x: 0, y: 0, z: 16}


def test_a_buffer_allocated_twice_has_one_place() -> None:
    x, y = shared("x"), shared("y", 8)
    plan = plan_shared(Seq((use(y), use(x), use(x))))
    assert plan.offsets == {x: 0, y: 16} and plan.total == 48 and not plan.reused
    local = Buffer("r", "float32", 1, "local")
    once = Allocate(local, Seq((Store(local, E.const(0), ZERO), touch(local))))
    text = text_of(Seq((once, once)), A)
    assert text.count("float r[1];") == 2 and "  {\n    float r[1];" in text
    nvrtc.build(generate(program(Kernel("k", (A,), Seq((once, once))), 0), SM90), SM90)


def test_loops_of_one_step_are_constants() -> None:
    nest = For(I, 1, Store(A, I + 3, load(A, I)))
    assert "a[3] = a[0];" in text_of(nest, A) and "for" not in text_of(nest, A)


def test_a_variable_of_two_loops_keeps_its_larger_range() -> None:
    other = For(I, 1, Store(A, I, ZERO))
    text = text_of(Seq((For(I, 4, Store(A, I, ZERO)), other)), A)
    assert text.count("for (int i = 0; i < ") == 2 and text.count("a[i] = 0.0f;") == 2


def test_large_buffers_are_indexed_with_64_bits() -> None:
    big, ids = glob("big", "bool", 1 << 17, 1 << 16), glob("ids", "int32", 1 << 16)
    row = load(ids, I) * (1 << 16) + I
    body = seq(Store(big, row, load(A, I) > 0.0), Store(A, I, ZERO))
    threads = (Thread("threadIdx.x", I, 8),)
    text = text_of(body, big, ids, A, threads=threads)
    assert "big[(long long)ids[(long long)i] * 65536LL + (long long)i] = a[i] > 0.0f;" in text
    assert "a[i] = 0.0f;" in text
    whole = glob("whole", "float32", 1 << 31)
    copy = Store(A, E.ramp(I * 4, 1, 4), load(whole, E.ramp(I * 4, 1, 4)))
    assert "float4*>(whole + (long long)i * 4LL)" in text_of(copy, whole, A, threads=threads)


def test_halves_that_registers_take_as_floats_are_read_at_once() -> None:
    halves = glob("halves", "float16", 64)
    held = Buffer("held", "float32", 8, "local")
    lanes = E.cast("float32", load(halves, E.ramp(I * 8, 1, 8)))
    text = text_of(Allocate(held, Store(held, E.ramp(E.const(0), 1, 8), lanes)), halves,
                   threads=(Thread("threadIdx.x", I, 8),))  # fmt: skip
    assert text.count("const uint4 v = ") == 1 and "uint2" not in text
    assert "held[7] = tw_float16_to_float32((unsigned short)(v.w >> 16));" in text


def test_stored_parameters_are_not_const() -> None:
    text = text_of(Store(A, E.const(0), load(A, E.const(0))), A, glob("b", "float32", 1))
    assert "(float* __restrict__ a, const float* __restrict__ b)" in text


def test_unrolling_is_asked_for_only_where_lowering_wants_it() -> None:
    inner = For(E.var("j"), 2, Store(A, I, ZERO), "unrolled")
    lines = text_of(For(I, 4, inner), A).splitlines()
    assert lines.index("    #pragma unroll") == lines.index("  for (int i = 0; i < 4; ++i) {") + 1
    assert sum("pragma" in line for line in lines) == 1


@pytest.mark.parametrize("kind", SUFFIXES)
def test_copies_into_shared_memory_wait_together(kind: str) -> None:
    """The loop of the fetch is written out in part; those outside and behind it are not."""
    tile, t, out = shared("tile", 256), E.var("t"), glob("b", "float32", 256)
    fetch = Store(tile, I * 8 + t, load(SOURCE, I * 8 + t))
    step = For(I, 32, fetch)
    drain = For(E.var("j"), 32, Store(out, t, load(out, t) + load(tile, t)))
    outer = For(E.var("k"), 4, Seq((Barrier(), step, Barrier(), drain)))
    threads = (Thread("threadIdx.x", t, 8),)
    made = program(Kernel("k", (SOURCE, out), Allocate(tile, outer), threads), 1)
    lines = [line.strip() for line in generate(made, Target(kind)).text.splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("for (int i = 0; i < 32;"))
    assert lines[at - 1] == f"#pragma unroll {COPIES_IN_FLIGHT}"
    assert sum("pragma unroll" in line for line in lines) == 1


def test_float_division_rounds_down() -> None:
    x = load(A, I)
    body = seq(Store(A, I, x // E.const(2.0)), Store(A, I, x % E.const(2.0)))
    text = text_of(body, A, threads=(Thread("threadIdx.x", I, 8),))
    assert "a[i] = tw_floordiv_float32(a[i], 2.0f);" in text
    assert text.count("float tw_floordiv_float32(float a, float b) {") == 1
    rest = "fmodf(a[i], 2.0f)"
    assert f"a[i] = {rest} < 0.0f ? {rest} + 2.0f : {rest};" in text


def test_division_by_what_may_be_negative_takes_the_helper() -> None:
    n = glob("n", "int32", 1)
    threads = (Thread("threadIdx.x", I, 8),)
    text = text_of(Store(A, I // load(n, E.const(0)), ZERO), A, n, threads=threads)
    assert "a[tw_floordiv_int32(i, n[0])]" in text and text.count("int tw_floordiv_int32") == 1


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [CUDA, OPENCL], ids=["cuda", "opencl"])
@given(value=st.floats(allow_nan=False, allow_infinity=False, width=32))
def test_float_literals_read_back(dialect: Dialect, value: float) -> None:
    text = float_literal(value, FLOAT32, dialect)
    assert np.float32(text.removesuffix("f")).tobytes() == np.float32(value).tobytes()
    assert "." in text or "e" in text


AWKWARD = ["int", "a", "a_1", "for", "float3", "x.y", "x_y"]


@pytest.mark.slow
@given(st.lists(st.text(max_size=6) | st.sampled_from(AWKWARD)))
def test_names_are_unique_identifiers(wanted: list[str]) -> None:
    names = Names(OPENCL, ["a"])
    got = [names.claim(w) for w in wanted]
    assert len(set(got)) == len(got) and not set(got) & {"a", "int", "for", "float3", "kernel"}
    assert all(name.isascii() and name.isidentifier() and name[0] != "_" for name in got)


# -- refusals ------------------------------------------------------------------------------------


class Foreign(Stmt):
    """What no printer knows."""


B = Buffer("b", "float32", 8, "local")
HALVES = glob("halves", "float16", 8)
X8 = Thread("threadIdx.x", I, 8)
REFUSED: dict[str, tuple[Stmt, tuple[Thread, ...], str]] = {
    "vthread": (For(I, 2, Store(A, I, ZERO), "vthread"), (), "a vthread loop over i"),
    "vectorized": (For(I, 2, Store(A, I, ZERO), "vectorized"), (), "a vectorized loop over i"),
    "parallel": (For(I, 2, Store(A, I, ZERO), "parallel"), (), "a parallel loop over i"),
    "unbound": (Store(A, I, ZERO), (), "i is used outside the loop that binds it"),
    "unknown": (Store(B, E.const(0), ZERO), (), "b is neither a parameter nor allocated"),
    "scope": (Allocate(A, Store(A, E.const(0), ZERO)), (), "neither shared nor local"),
    "tag": (Store(A, I, ZERO), (Thread("warp", I, 8),), "no launch dimension 'warp'"),
    "extents": (
        Store(A, I, ZERO), (X8, Thread("threadIdx.x", E.var("j"), 4)), "extents 8 and 4",
    ),
    "lanes": (
        Store(A, E.const(0), load(A, E.ramp(I, 1, 4))), (X8,), "4 lanes go to 1 elements of a",
    ),
    "branch": (
        If(E.ramp(I, 1, 4) < 4, Store(A, I, ZERO)), (X8,), "differs between lanes",
    ),
    "read": (Store(A, I, E.make("read", (I,), A, "float32")), (X8,), "a read expression"),
    "narrow": (
        Store(A, I, E.cast("float32", load(HALVES, I) + load(HALVES, I))), (X8,),
        "computes in float16, which is a format of memory",
    ),
    "comparison": (
        If(load(HALVES, I) < load(HALVES, I), Store(A, I, ZERO)), (X8,), "computes in float16",
    ),
    "type": (Store(A, I, load(HALVES, I)), (X8,), "a float16 is stored in a: float32[8] global"),
    "function": (
        Store(A, I, E.make("call", (load(A, I),), "gamma", "float32")), (X8,),
        "there is no gamma of float32",
    ),
    "statement": (Foreign(), (X8,), "Foreign is no statement"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    body, threads, reason = REFUSED[name]
    with pytest.raises(InternalError, match=re.escape(reason)):
        text_of(body, A, HALVES, threads=threads)


def test_the_plan_of_shared_memory_refuses_an_unknown_statement() -> None:
    with pytest.raises(InternalError, match="Foreign is no statement"):
        plan_shared(Allocate(shared("x"), Foreign()))


def test_parameters_belong_to_the_program() -> None:
    kernel = Kernel("k", (A,), Store(A, E.const(0), ZERO))
    with pytest.raises(InternalError, match="k takes a, which the program lacks"):
        generate(Program("p", (), (), (kernel,)), Target("cuda"))


@pytest.mark.parametrize("op", ["select", "if_then_else"])
def test_inlined_chains_are_printed_once(op: str) -> None:
    """Forty links, each using the one before it twice: 2**40 nodes, written out as a tree."""
    value: E.Expr = load(A, I)
    for k in range(40):
        value = getattr(E, op)(value > float(k), value * 0.5, load(A, E.const(k % 8)))
    text = text_of(Store(A, I, value), A, threads=(Thread("threadIdx.x", I, 8),))
    assert len(text) < 50_000
