extern "C" __global__ void __launch_bounds__(2) tanh_1(const float* __restrict__ kernel, const float* __restrict__ float4_1, const float* __restrict__ max_1, const float* __restrict__ max_2, const float* __restrict__ threadIdx_1, const float* __restrict__ v1st_input, const float* __restrict__ exp_1, const float* __restrict__ gr__e, float* __restrict__ void_1) {
  const int for_1 = (int)threadIdx.x;
  for (int for_2 = 0; for_2 < 4; ++for_2) {
    void_1[for_1 * 4 + for_2] = fmaxf(kernel[for_1 * 4 + for_2], float4_1[for_1 * 4 + for_2]) + expf(max_1[for_1 * 4 + for_2]) + expf(max_2[for_1 * 4 + for_2]) + expf(threadIdx_1[for_1 * 4 + for_2]) + expf(v1st_input[for_1 * 4 + for_2]) + expf(exp_1[for_1 * 4 + for_2]) + expf(gr__e[for_1 * 4 + for_2]);
  }
}
