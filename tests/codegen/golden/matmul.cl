#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(16, 8, 1)))
void matmul(const __global float* restrict A, const __global float* restrict B, __global float* restrict C) {
  const int bx = (int)get_group_id(0);
  const int by = (int)get_group_id(1);
  const int tx = (int)get_local_id(0);
  const int ty = (int)get_local_id(1);
  __local float A_shared[512] __attribute__((aligned(16)));
  __local float B_shared[512] __attribute__((aligned(16)));
  float C_local[8];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      C_local[i * 2 + j] = 0.0f;
    }
  }
  for (int k_outer = 0; k_outer < 4; ++k_outer) {
    barrier(CLK_LOCAL_MEM_FENCE);
    *(__local float4*)(A_shared + (ty * 16 + tx) * 4) = *(const __global float4*)(A + ((by * 32 + (ty * 16 + tx) * 4 / 16) * 64 + k_outer * 16 + (ty * 16 + tx) * 4 % 16));
    *(__local float4*)(B_shared + (ty * 16 + tx) * 4) = *(const __global float4*)(B + ((k_outer * 16 + (ty * 16 + tx) * 4 / 32) * 64 + bx * 32 + (ty * 16 + tx) * 4 % 32));
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int k_inner = 0; k_inner < 16; ++k_inner) {
      #pragma unroll
      for (int i_1 = 0; i_1 < 4; ++i_1) {
        #pragma unroll
        for (int j_1 = 0; j_1 < 2; ++j_1) {
          C_local[i_1 * 2 + j_1] += A_shared[(ty * 4 + i_1) * 16 + k_inner] * B_shared[k_inner * 32 + tx * 2 + j_1];
        }
      }
    }
  }
  #pragma unroll
  for (int i_2 = 0; i_2 < 4; ++i_2) {
    #pragma unroll
    for (int j_2 = 0; j_2 < 2; ++j_2) {
      C[(by * 32 + ty * 4 + i_2) * 64 + bx * 32 + tx * 2 + j_2] = fmax(C_local[i_2 * 2 + j_2], 0.0f);
    }
  }
}
