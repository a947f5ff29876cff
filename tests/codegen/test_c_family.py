"""CUDA C and OpenCL C: golden text, compilation of everything by NVRTC, results on the devices here."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from c_family_programs import CASES, Case, elementwise, glob, program
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.artifact import Source
from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.codegen import generate
from tilewright.codegen.c_dialect import Names, float_literal
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
)
from tilewright.runtime import Module, array, device, empty

GOLDEN = Path(__file__).parent / "golden"
SUFFIXES = {"cuda": ".cu", "opencl": ".cl"}
COMPILERS = {"cuda": nvrtc, "opencl": opencl}
SM90 = Target("cuda -arch=sm_90")


def text_of(body: Stmt, *params: Buffer, threads: tuple[Thread, ...] = (), kind: str = "cuda") -> str:
    return generate(program(Kernel("k", params, body, threads), 0), Target(kind)).text


@pytest.mark.parametrize("kind", SUFFIXES)
@pytest.mark.parametrize("name", CASES)
def test_text(name: str, kind: str) -> None:
    text = generate(CASES[name].program, Target(kind)).text
    path = GOLDEN / f"{name}{SUFFIXES[kind]}"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"set UPDATE_GOLDEN=1 to accept the new text of {path.name}"


@pytest.mark.parametrize("name", CASES)
def test_nvrtc_accepts(name: str) -> None:
    source = generate(CASES[name].program, SM90)
    made = nvrtc.build(source, SM90)
    assert made.binary[:4] == b"\x7fELF"
    assert "warning" not in made.meta["log"], made.meta["log"]
    assert all(kernel["stack_bytes"] == 0 for kernel in made.resources.values())


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
        poison = np.nan if b.dtype.startswith("float") else 1
        out.copyfrom(np.full(b.shape, poison, b.dtype))
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
