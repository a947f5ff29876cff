extern "C" __global__ void __launch_bounds__(128) matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C) {
  const int bx = (int)blockIdx.x;
  const int by = (int)blockIdx.y;
  const int tx = (int)threadIdx.x;
  const int ty = (int)threadIdx.y;
  extern __shared__ __align__(16) unsigned char tw_shared[];
  float* const A_shared = reinterpret_cast<float*>(tw_shared + 0);
  float* const B_shared = reinterpret_cast<float*>(tw_shared + 2048);
  float C_local[8];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      C_local[i * 2 + j] = 0.0f;
    }
  }
  for (int k_outer = 0; k_outer < 4; ++k_outer) {
    __syncthreads();
    *reinterpret_cast<float4*>(A_shared + (ty * 16 + tx) * 4) = *reinterpret_cast<const float4*>(A + ((by * 32 + (ty * 16 + tx) * 4 / 16) * 64 + k_outer * 16 + (ty * 16 + tx) * 4 % 16));
    *reinterpret_cast<float4*>(B_shared + (ty * 16 + tx) * 4) = *reinterpret_cast<const float4*>(B + ((k_outer * 16 + (ty * 16 + tx) * 4 / 32) * 64 + bx * 32 + (ty * 16 + tx) * 4 % 32));
    __syncthreads();
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
      C[(by * 32 + ty * 4 + i_2) * 64 + bx * 32 + tx * 2 + j_2] = fmaxf(C_local[i_2 * 2 + j_2], 0.0f);
    }
  }
}
