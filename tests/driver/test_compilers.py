"""The compilers: what they make, what they say, and how they refuse.  Needs no device."""

import platform
from dataclasses import replace

import numpy as np
import pytest

from tilewright.base.artifact import BufferSpec, KernelInfo, Source
from tilewright.base.errors import CompileError, DeviceError, TargetError
from tilewright.driver import compile_source, llvm, nvrtc
from tilewright.driver.cache import Cache
from tilewright.runtime import Module, array, cpu, empty
from tilewright.targets.target import Target

OFF = Cache(None)

DAXPY = """
define void @scale(ptr noalias %a, ptr noalias %b) {
  %x = load <8 x float>, ptr %a, align 32
  %y = fmul contract <8 x float> %x, splat (float 3.0)
  %z = fadd contract <8 x float> %y, splat (float 1.0)
  store <8 x float> %z, ptr %b, align 32
  ret void
}
"""

CUDA = """
extern "C" __global__ void __launch_bounds__(64)
scale(const float* __restrict__ a, float* __restrict__ b) {
  __shared__ float tile[64];
  tile[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  b[threadIdx.x] = tile[63 - threadIdx.x] * 3.0f;
}
extern "C" __global__ void __launch_bounds__(1024, 2)
spill(const float* __restrict__ a, float* __restrict__ b) {
  float r[80];
  #pragma unroll
  for (int i = 0; i < 80; ++i) r[i] = a[threadIdx.x + 1024 * i];
  #pragma unroll
  for (int i = 0; i < 80; ++i)
    #pragma unroll
    for (int j = 0; j < 80; ++j) r[i] = r[i] * r[j] + 1.0f;
  #pragma unroll
  for (int i = 0; i < 80; ++i) b[threadIdx.x + 1024 * i] = r[i];
}
"""

OPENCL = """
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void scale(__global const float* restrict a, __global float* restrict b) {
  b[get_global_id(0)] = a[get_global_id(0)] * 3.0f;
}
"""


def source(kind: str, text: str, size: int = 8) -> Source:
    roles = {"a": "input", "b": "output"}
    specs = tuple(BufferSpec(name, "float32", (size,), role) for name, role in roles.items())
    kernel = KernelInfo("scale", (0, 1), (1, 1, 1), (1 if kind == "llvm" else size, 1, 1))
    return Source(kind, text, "scale", specs, (kernel,))


def test_llvm_object_runs_and_contracts_only_where_asked() -> None:
    made = compile_source(source("llvm", DAXPY), "llvm", OFF)
    x, out = np.arange(8, dtype=np.float32), empty(8)
    Module(made, cpu())(array(x), out)
    np.testing.assert_array_equal(out.numpy(), x * 3 + 1)
    assert made.binary[:4] == b"\x7fELF" and made.meta["compile_seconds"] > 0
    assert not made.meta["cached"] and made.meta["cpu"]


def test_llvm_for_another_machine() -> None:
    target = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    made = compile_source(source("llvm", DAXPY), target, OFF)
    assert int.from_bytes(made.binary[18:20], "little") == 183  # EM_AARCH64
    if platform.machine() != "aarch64":
        with pytest.raises(DeviceError, match="compiled for aarch64"):
            Module(made, cpu())


def test_llvm_refusals() -> None:
    with pytest.raises(CompileError, match=r"(?s)compile scale for llvm.*expected type"):
        compile_source(source("llvm", "define void @scale(nonsense %a) { ret void }"), "llvm", OFF)
    unknown = "declare void @nobody() define void @scale() { call void @nobody() ret void }"
    with pytest.raises(CompileError, match="calls nobody, which neither"):
        compile_source(source("llvm", unknown), "llvm", OFF)
    with pytest.raises(TargetError, match="no target 'pdp11'"):
        compile_source(source("llvm", DAXPY), "llvm -mtriple=pdp11", OFF)
    with pytest.raises(CompileError, match="generated for 'llvm', not for 'cuda'"):
        compile_source(source("llvm", DAXPY), "cuda", OFF)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cubin_without_gpu_or_driver(arch: str) -> None:
    made = compile_source(source("cuda", CUDA, 64), f"cuda -arch={arch}", OFF)
    assert made.binary[:4] == b"\x7fELF" and made.meta["arch"] == arch
    scale, spill = made.resources["scale"], made.resources["spill"]
    assert 4 <= scale["registers"] <= 32 and scale["spill_bytes"] == 0
    assert 256 <= scale["shared_bytes"] <= 256 + 1024  # newer architectures reserve some
    assert spill["registers"] == 32 and spill["spill_bytes"] > 0


def test_texts_that_need_all_of_the_language() -> None:
    """Ours are compiled without textures; a text that has one is compiled with them."""
    text = """extern "C" __global__ void scale(cudaTextureObject_t x, float* y) {
  y[threadIdx.x] = tex1Dfetch<float>(x, threadIdx.x);
}"""
    assert compile_source(source("cuda", text), "cuda -arch=sm_90", OFF).binary[:4] == b"\x7fELF"


def test_cuda_refusals() -> None:
    with pytest.raises(CompileError, match=r'(?s)NVRTC refused the text.*identifier "nonsense"'):
        text = 'extern "C" __global__ void scale() { nonsense; }'
        compile_source(source("cuda", text), "cuda", OFF)
    with pytest.raises(TargetError, match=r"does not compile for sm_999.*It knows sm_"):
        compile_source(source("cuda", CUDA), "cuda -arch=sm_999", OFF)


def test_resource_log() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas info    : Function properties for one
    88 bytes stack frame, 40 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 88 bytes 16384 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Used 10 registers, used 0 barriers"""
    assert nvrtc.parse_resources(log) == {
        "one": dict(registers=255, shared_bytes=16384, barriers=1, stack_bytes=88, spill_bytes=64),
        "two": dict(registers=10, shared_bytes=0, barriers=0, stack_bytes=0, spill_bytes=0),
    }


def test_opencl() -> None:
    made = compile_source(source("opencl", OPENCL), "opencl", OFF)
    assert bool(made.binary) == (made.meta["device"] != "none")
    if made.binary:
        with pytest.raises(CompileError, match=r"(?s)OpenCL compiler refused the text.*nonsense"):
            compile_source(source("opencl", "__kernel void scale() { nonsense; }"), "opencl", OFF)


def test_one_target_machine_serves_all_kernels() -> None:
    """Each holds memory of LLVM's as long as the process lives."""
    first = source("llvm", DAXPY)
    compile_source(first, "llvm", OFF)
    known = llvm.target_machine.cache_info().currsize
    other = replace(first, text=DAXPY.replace("@scale", "@other"), entry_name="other")
    compile_source(other, "llvm", OFF)
    assert llvm.target_machine.cache_info().currsize == known
