#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void unsigned_1(const __global uint* restrict a, const __global uint* restrict b, __global uint* restrict sum, __global uint* restrict less, __global uint* restrict product, __global uint* restrict ratio, __global uint* restrict rest, __global uint* restrict least, __global uint* restrict most, __global float* restrict float_1, __global uchar* restrict large) {
  const int i = (int)get_local_id(0);
  sum[i] = a[i] + b[i];
  less[i] = a[i] - b[i];
  product[i] = a[i] * b[i];
  ratio[i] = a[i] / b[i];
  rest[i] = a[i] % b[i];
  least[i] = min(a[i], 2147483653u);
  most[i] = max(a[i], b[i]);
  float_1[i] = (float)a[i];
  large[i] = a[i] > 2147483653u;
}
