#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void reuse(const __global float* restrict a, __global float* restrict b) {
  const int t = (int)get_local_id(0);
  __local uchar tw_shared[532] __attribute__((aligned(16)));
  __local float* const keep = (__local float*)(tw_shared + 0);
  __local float* const first = (__local float*)(tw_shared + 272);
  __local float* const second = (__local float*)(tw_shared + 272);
  float acc[1];
  keep[t] = a[t] * 2.0f;
  acc[0] = 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  first[t] = a[t];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = 0; k < 4; ++k) {
    acc[0] += first[(t + k) % 64];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  second[t] = acc[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  b[t] = second[63 - t] + keep[(t + 1) % 64];
}
