"""Instructions by which a thread alone adds up products: what they compute, and where they are."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowering.thread_products import Dots, dots
from tests import interpreter
from tests.codegen.test_turns import on_host
from tilewright import te
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.codegen import generate, serial_threads
from tilewright.driver import nvrtc
from tilewright.driver.build import build
from tilewright.ir.atoms import THREAD_ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Mma, Program, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.ndarray import array
from tilewright.schedule.tree.legality import check
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

GPU = Target("cuda -arch=sm_61")
CPU = Target("llvm -mcpu=icelake-server -mtriple=x86_64-linux-gnu")
COMPILER = shutil.which("g++")
BYTES = ("m1n1k4.int8", "m1n1k4.uint8", "m1n1k4.int8.uint8", "m1n1k4.uint8.int8")
PRODUCTS = {
    "uneven": Dots(),
    "whole": Dots(m=16, n=32, k=32),
    "two atoms": Dots(m=2, n=2, k=4, each=(1, 1)),
    "less than an atom": Dots(m=3, n=2, k=3, each=(1, 1)),
    "by shared memory": Dots(shared=8),
    **{name: Dots(atom=name, m=9, n=18) for name in BYTES[1:]},
}
VECTORS = {
    "uneven": Dots(atom="m1n16k4.uint8.int8"),
    "packed": Dots(atom="m1n16k4.uint8.int8", m=8, n=64, k=32, packed=True, each=(4, 2)),
    "packed, uneven": Dots(atom="m1n8k4.uint8.int8", packed=True),
    "narrow": Dots(atom="m1n4k4.uint8.int8", m=5, n=7, k=9, each=(1, 1)),
}


def lowered(p: Dots, target: Target) -> tuple[Program, list[te.Tensor]]:
    schedule, args = dots(p, target.has_threads)
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    check(Resources(bounds, target), "test")
    program = lower_schedule(schedule, target, args=args, tree=tree, bounds=bounds)
    verify(program)
    assert any(isinstance(s, Mma) for k in program.kernels for s in statements(k.body))
    return program, args


def drawn(args: list[te.Tensor]) -> tuple[list[np.ndarray], np.ndarray]:
    """All bytes, the extremes often; and what comes out."""
    rng = np.random.default_rng(1)
    given = []
    for t in args[:2]:
        least, greatest = int(t.dtype.least), int(t.dtype.greatest)
        x = rng.integers(least, greatest, t.shape, endpoint=True)
        given.append(np.where(rng.random(t.shape) < 0.3, least, x).astype(t.dtype.storage))
    a, b = (x.astype(np.int64) for x in given)
    return given, (a @ b.T + 1).astype(np.int32)


def agrees(program: Program, args: list[te.Tensor], *runs) -> None:
    given, expected = drawn(args)
    packed = [
        x if b.packing is None else b.packing.apply(x)
        for x, b in zip(given, program.args, strict=False)
    ]
    for run in runs:
        out = np.zeros_like(expected)
        run(program, [*packed, out])
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("p", PRODUCTS.values(), ids=PRODUCTS)
def test_threads_of_a_gpu_multiply_bytes(p: Dots) -> None:
    agrees(*lowered(p, GPU), run_fast, interpreter.run)


@pytest.mark.parametrize("p", VECTORS.values(), ids=VECTORS)
def test_vectors_of_a_cpu_multiply_bytes(p: Dots) -> None:
    agrees(*lowered(p, CPU), run_fast, interpreter.run)


@pytest.mark.parametrize("p", VECTORS.values(), ids=VECTORS)
def test_a_cpu_that_has_them_computes_the_same(p: Dots) -> None:
    target = Target("llvm").native()
    if not target.has(p.atom):
        pytest.skip("this processor has no such instruction")
    schedule, args = dots(p, gpu=False)
    (a, b), expected = drawn(args)
    arrays = [array(x) for x in (a, b, np.zeros_like(expected))]
    build(schedule, args, target=target)(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), expected)


@pytest.mark.parametrize("atom", BYTES)
def test_nvrtc_makes_one_instruction_of_four_products(atom: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    target = Target("cuda -arch=sm_75")
    program, _ = lowered(Dots(atom=atom, shared=8), target)
    source = generate(program, target)
    body = source.text[source.text.index("__global__") :]
    assert f"tw_dot_{atom.replace('.', '_')}(&C[" in body and "asm" not in body
    assert "warning" not in nvrtc.build(source, target).meta["log"]


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("backwards", [False, True])
def test_threads_that_multiply_alone_take_turns_alone(tmp_path: Path, backwards: bool) -> None:
    """No warp is asked for: lanes are tried one after the other, as those of plain kernels are."""
    program, args = lowered(Dots(shared=8), GPU)
    source = serial_threads.serialized(generate(program, GPU))
    assert not isinstance(source, str) and source is not None
    assert "switch (me % 32)" in source.text and "__syncwarp" not in source.text
    dots4 = "for (int k = 0; k < 4; ++k) d[0] += a[k] * b[k];"
    helper = re.search(r"[^\n]*void tw_dot_.*?\n\}\n", source.text, re.S)
    assert helper is not None
    function = re.sub(r"\{.*\}", f"{{ {dots4} }}", helper.group(), flags=re.S)
    text = source.text.replace(helper.group(), "")
    start = text.index("static __device__ __noinline__")
    none = "static __device__ __noinline__ void tw_none() {}"  # where the host's part begins
    text = f"{text[:start]}{none}\n{function}{text[start:]}"
    (a, b), expected = drawn(args)
    out = np.zeros_like(expected)
    turns = serial_threads.order(backwards=backwards, group=1, seconds=5.0)
    on_host(replace(source, text=text), tmp_path)([a, b, out, np.array(turns, np.int32)])
    np.testing.assert_array_equal(out, expected)


# -- refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cuda -arch=sm_53", "opencl", "llvm -mcpu=haswell"])
def test_a_device_without_the_instruction(target: str) -> None:
    chosen = Target(target)
    p = PRODUCTS["whole"] if chosen.has_threads else VECTORS["packed"]
    schedule, _ = dots(p, chosen.has_threads)
    with pytest.raises(LegalityError, match=r"\(atom\)"):
        check(Resources(LoopTree(schedule).bounds(), chosen), "test")
    with pytest.raises(LoweringError, match="has no such instruction"):
        lower_schedule(schedule, chosen)


def test_which_devices_have_them() -> None:
    have = {
        arch: Target(f"cuda -arch={arch}").has("m1n1k4.int8")
        for arch in ("sm_53", "sm_61", "sm_70", "sm_75", "sm_90")
    }
    assert have == {"sm_53": False, "sm_61": True, "sm_70": True, "sm_75": True, "sm_90": True}
    rates = [Target(f"cuda -arch={a}").atom("m1n1k4.int8").rate for a in ("sm_61", "sm_75")]
    assert rates == pytest.approx([4 * 11.3e12, 4 * 8.1e12])
    cpus = ("haswell", "skylake-avx512", "alderlake", "icelake-server")
    wide = [n for n in cpus if Target(f"llvm -mcpu={n} -mtriple=x86_64-linux-gnu").has(
        "m1n16k4.uint8.int8")]  # fmt: skip
    narrow = [n for n in cpus if Target(f"llvm -mcpu={n} -mtriple=x86_64-linux-gnu").has(
        "m1n8k4.uint8.int8")]  # fmt: skip
    assert wide == ["icelake-server"] and narrow == ["alderlake", "icelake-server"]


def test_scopes_of_a_thread() -> None:
    """Sums and operands are a thread's own; an atom of a warp wants those of its warp."""
    a, b = (te.placeholder((8, 8), "int8", name) for name in "AB")
    r = te.reduce_axis((0, 8), "r")
    c = te.compute((8, 8), lambda i, j: te.sum(
        a[i, r].astype("int32") * b[j, r].astype("int32"), axis=r), "C")  # fmt: skip
    d = te.compute((8, 8), lambda i, j: c[i, j] + 1, "D")
    s = te.create_schedule(d.op)
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    _, k = s[c].split(k, factor=4)
    _, i = s[c].split(i, factor=1)
    _, j = s[c].split(j, factor=1)
    s[c].reorder(*(ax for ax in s[c].leaf_iter_vars if ax not in (i, j, k)), i, j, k)
    with pytest.raises(ScheduleError, match="its thread holds the sums, but the scope is ''"):
        s[c].tensorize(i, "m1n1k4.int8")
    s[c].set_scope("local")
    s[c].tensorize(i, "m1n1k4.int8")
    with pytest.raises(ScheduleError, match="registers of a thread. Leave it in scope local"):
        s[c].set_scope("fragment")
    s[c].compute_at(s[d], s[d].op.axis[1])
    with pytest.raises(ScheduleError, match='what its thread holds.*s.cache_read.A, "local"'):
        LoopTree(s)


def test_one_row_is_no_matrix() -> None:
    schedule, _ = dots(Dots(m=1, n=4, k=8, each=(1, 1)), gpu=True)
    with pytest.raises(ScheduleError, match="depends on k of m, n, k.*each longer than 1"):
        LoopTree(schedule)


def test_names_say_their_extents() -> None:
    for name, atom in THREAD_ATOMS.items():
        shape = "".join(f"{axis}{size}" for axis, size in atom.extents.items())
        assert name.startswith(f"{shape}.") and atom.by_thread and atom.texts
