"""Programs written by hand, compiled by llvmlite and run on numpy arrays: for tests of LLVM IR."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.codegen.llvm import generate
from tilewright.driver.compilers import compile_source
from tilewright.ir import expr as e
from tilewright.ir.stmt import Buffer, For, Kernel, Program, Store, load
from tilewright.runtime.device import device
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import array
from tilewright.targets.target import Target

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
            arrays.append(aligned(next(given_inputs).astype(spec.dtype.storage)))
        else:
            arrays.append(aligned(np.zeros(spec.shape, spec.dtype.storage)))
    for kernel in source.kernels:
        pointers = [arrays[i].ctypes.data for i in kernel.args]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(pointers))
        kind(engine.get_function_address(kernel.name))(*pointers)
    return [a for a, s in zip(arrays, source.buffers, strict=True) if s.role == "output"]


def run_on(target: Target, p: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    """The same by the package's own compiler and driver, for any target that this machine runs."""
    module = Module(compile_source(generate(p, target), target), device("llvm"))
    given_inputs = iter(inputs)
    arrays = [
        array(next(given_inputs) if s.role == "input" else np.zeros(s.shape, s.dtype.storage))
        for s in module.parameters
    ]
    module(*arrays)
    roles = [s.role for s in module.parameters]
    return [a.numpy() for a, role in zip(arrays, roles, strict=True) if role == "output"]


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
    return run(program(For(i, x.size // width, Store(b, at, function(load(a, at)))), [a], [b]), x)[
        0
    ]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
