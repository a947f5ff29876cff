#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(2, 1, 1)))
void tanh_1(const __global float* restrict kernel_1, const __global float* restrict float4_1, const __global float* restrict max_1, const __global float* restrict max_2, const __global float* restrict threadIdx, const __global float* restrict v1st_input, const __global float* restrict exp_1, const __global float* restrict gr__e, __global float* restrict void_1) {
  const int for_1 = (int)get_local_id(0);
  for (int for_2 = 0; for_2 < 4; ++for_2) {
    void_1[for_1 * 4 + for_2] = fmax(kernel_1[for_1 * 4 + for_2], float4_1[for_1 * 4 + for_2]) + exp(max_1[for_1 * 4 + for_2]) + exp(max_2[for_1 * 4 + for_2]) + exp(threadIdx[for_1 * 4 + for_2]) + exp(v1st_input[for_1 * 4 + for_2]) + exp(exp_1[for_1 * 4 + for_2]) + exp(gr__e[for_1 * 4 + for_2]);
  }
}
