"""Local memory, barriers and 3-d grids on the devices that have them."""

import numpy as np

from tilewright.base.artifact import BufferSpec, KernelInfo, Source
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import Device, Module, array, empty

DYNAMIC_FLOATS = 16 << 10  # 64 KiB: more than CUDA grants without being asked

OPENCL = """
__kernel __attribute__((reqd_work_group_size(16, 4, 1)))
void transpose(__global const float* restrict a, __global float* restrict b) {
  __local float tile[4][17];
  int x = get_group_id(0) * 16 + get_local_id(0), y = get_group_id(1) * 4 + get_local_id(1);
  int z = get_group_id(2);
  tile[get_local_id(1)][get_local_id(0)] = a[(z * 8 + y) * 32 + x];
  barrier(CLK_LOCAL_MEM_FENCE);
  int t = get_local_id(1) * 16 + get_local_id(0);
  int i = t / 4, j = t % 4;
  b[(z * 32 + get_group_id(0) * 16 + i) * 8 + get_group_id(1) * 4 + j] = tile[j][i];
}"""

CUDA = """
extern "C" __global__ void __launch_bounds__(64)
transpose(const float* __restrict__ a, float* __restrict__ b) {
  extern __shared__ float tile[];
  int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 4 + threadIdx.y, z = blockIdx.z;
  tile[threadIdx.y * 4000 + threadIdx.x] = a[(z * 8 + y) * 32 + x];
  __syncthreads();
  int t = threadIdx.y * 16 + threadIdx.x, i = t / 4, j = t % 4;
  b[(z * 32 + blockIdx.x * 16 + i) * 8 + blockIdx.y * 4 + j] = tile[j * 4000 + i];
}"""


def test_transpose_through_local_memory(gpu: Device) -> None:
    text, dynamic = (CUDA, DYNAMIC_FLOATS * 4) if gpu.kind == "cuda" else (OPENCL, 0)
    specs = (
        BufferSpec("a", "float32", (3, 8, 32), "input"),
        BufferSpec("b", "float32", (3, 32, 8), "output"),
    )
    kernel = KernelInfo("transpose", (0, 1), (2, 2, 3), (16, 4, 1), dynamic)
    source = Source(gpu.target.kind, text, "transpose", specs, (kernel,))
    module = Module(compile_source(source, gpu.target, Cache(None)), gpu)
    x = np.random.default_rng(0).normal(size=(3, 8, 32)).astype(np.float32)
    out = empty((3, 32, 8), "float32", gpu)
    module(array(x, gpu), out)
    np.testing.assert_array_equal(out.numpy(), x.transpose(0, 2, 1))


def test_limits_name_real_fields(gpu: Device) -> None:
    limits = gpu.target.limits
    assert limits.max_threads_per_block >= 64 and limits.cores >= 1
    assert limits.shared_bytes_per_block >= 16 << 10 and min(limits.max_block) >= 1
    if gpu.kind == "cuda":
        assert gpu.arch.startswith("sm_") and gpu.target.arch == gpu.arch
        assert limits.registers_per_block >= 32768 and limits.l2_bytes > 0
