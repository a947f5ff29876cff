#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void tail(const __global float* restrict a, __global float* restrict b) {
  const int bx = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  if (bx * 16 + tx < 50) {
    if ((bx * 16 + tx) % 2 < 1) {
      b[bx * 16 + tx] = a[bx * 16 + tx];
    } else {
      b[bx * 16 + tx] = a[bx * 16 + tx] * a[bx * 16 + tx];
    }
  }
}
