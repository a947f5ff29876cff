#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(4, 1, 1)))
void sums(const __global float* restrict a, __global float* restrict w) {
  const int t = (int)get_local_id(0);
  w[t] = 0.0f;
  for (int k = 0; k < 8; ++k) {
    w[t] += a[t * 8 + k];
  }
}

__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void divide(const __global float* restrict w, const __global float* restrict a, __global float* restrict b) {
  const int y = (int)get_group_id(1);
  const int x = (int)get_local_id(0);
  b[y * 8 + x] = a[y * 8 + x] / w[y];
}
