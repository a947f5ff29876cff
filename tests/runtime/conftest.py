"""Fixtures: every device that this machine has, and small kernels for each kind of target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Packing, Source
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import Device, cpu, cuda, opencl

EXISTING = [d for d in (cpu(), opencl(), cuda()) if d.exist]
SIZE = 1000
BLOCK = 64


@pytest.fixture(params=EXISTING, ids=str)
def device(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.fixture(params=[d for d in EXISTING if d.kind != "cpu"], ids=str)
def gpu(request: pytest.FixtureRequest) -> Device:
    return request.param


@pytest.fixture
def elementwise() -> Callable[..., Artifact]:
    """`elementwise(device, [(to, x, op, y, shift, count), ...], roles)`, see `Step`."""
    return compile_steps


@dataclass(frozen=True)
class Step:
    """One kernel: `to[i + shift] = x[i] op y` for i < count; to, x, y: buffers, or y a float."""

    to: int
    x: int
    op: str
    y: int | float
    shift: int = 0
    count: int = SIZE


def compile_steps(
    device: Device, given: list[tuple], roles: str = "iio", packing: Packing | None = None
) -> Artifact:
    """A compiled artefact over float32[SIZE] buffers; roles: a letter per buffer (i, o, w, c).

    packing: of buffer 1
    """
    steps = [Step(*fields) for fields in given]
    names = {"i": "input", "o": "output", "w": "workspace", "c": "counters"}
    specs = tuple(BufferSpec(f"b{n}", "float32", (SIZE,), names[r]) for n, r in enumerate(roles))
    if packing is not None:
        shape = packing.apply(np.empty(packing.shape)).shape
        specs = (specs[0], replace(specs[1], shape=shape, packing=packing), *specs[2:])
    everything = tuple(range(len(specs)))
    grid, block = ((1, 1, 1), (1, 1, 1))
    if device.kind != "cpu":
        grid, block = ((-(-SIZE // BLOCK), 1, 1), (BLOCK, 1, 1))
    kernels = tuple(KernelInfo(f"k{n}", everything, grid, block) for n in range(len(steps)))
    text = "\n".join(_TEXTS[device.kind](f"k{n}", step, len(specs)) for n, step in enumerate(steps))
    if device.kind == "cpu":
        text = "declare void @tilewright_parallel(ptr, ptr, i64)\n" + text
    kind = device.target.kind
    source = Source(kind, text, "elementwise", specs, kernels)
    return compile_source(source, device.target, Cache(None))


def _llvm(name: str, step: Step, arity: int) -> str:
    op = {"+": "fadd", "*": "fmul"}[step.op]
    params = ", ".join(f"ptr noalias %a{i}" for i in range(arity))
    second = f"%y{name}" if isinstance(step.y, int) else f"{float(step.y):e}"
    load = f"""
  %qy = getelementptr ptr, ptr %env, i64 {step.y}
  %py = load ptr, ptr %qy
  %ey = getelementptr float, ptr %py, i64 %i
  %y{name} = load float, ptr %ey""" if isinstance(step.y, int) else ""  # fmt: skip
    stores = "\n".join(
        f"  %e{i} = getelementptr ptr, ptr %env, i64 {i}\n  store ptr %a{i}, ptr %e{i}"
        for i in range(arity)
    )
    return f"""
define internal void @{name}_body(ptr %env, i64 %begin, i64 %end) {{
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %qx = getelementptr ptr, ptr %env, i64 {step.x}
  %px = load ptr, ptr %qx
  %ex = getelementptr float, ptr %px, i64 %i
  %x = load float, ptr %ex{load}
  %z = {op} float %x, {second}
  %qt = getelementptr ptr, ptr %env, i64 {step.to}
  %pt = load ptr, ptr %qt
  %at = add i64 %i, {step.shift}
  %et = getelementptr float, ptr %pt, i64 %at
  store float %z, ptr %et
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
define void @{name}({params}) {{
  %env = alloca [{arity} x ptr]
{stores}
  call void @tilewright_parallel(ptr @{name}_body, ptr %env, i64 {step.count})
  ret void
}}"""


def _statement(step: Step) -> str:
    y = f"a{step.y}[i]" if isinstance(step.y, int) else f"{step.y}f"
    return f"if (i < {step.count}) a{step.to}[i + {step.shift}] = a{step.x}[i] {step.op} {y};"


def _cuda(name: str, step: Step, arity: int) -> str:
    params = ", ".join(f"float* a{i}" for i in range(arity))
    return f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) {name}({params}) {{
  int i = blockIdx.x * {BLOCK} + threadIdx.x;
  {_statement(step)}
}}"""


def _opencl(name: str, step: Step, arity: int) -> str:
    params = ", ".join(f"__global float* a{i}" for i in range(arity))
    return f"""
__kernel __attribute__((reqd_work_group_size({BLOCK}, 1, 1))) void {name}({params}) {{
  int i = get_global_id(0);
  {_statement(step)}
}}"""


_TEXTS = {"cpu": _llvm, "cuda": _cuda, "opencl": _opencl}
