#pragma OPENCL FP_CONTRACT ON
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void types(const __global uchar* restrict m, const __global int* restrict i, const __global float* restrict f, __global uchar* restrict o0, __global uchar* restrict o1, __global int* restrict o2, __global long* restrict o3, __global double* restrict o4, __global int* restrict o5, __global float* restrict o6, __global int* restrict o7, __global int* restrict o8, __global int* restrict o9, __global int* restrict o10, __global int* restrict o11) {
  const int i_1 = (int)get_local_id(0);
  o0[i_1] = (m[i_1] && i[i_1] > 0) || (!m[i_1] && f[i_1] < 0.5f);
  o1[i_1] = i[i_1] != 0;
  o2[i_1] = (int)m[i_1] + i[i_1];
  o3[i_1] = min((long)i[i_1], 3L) * 8589934592L;
  o4[i_1] = (double)m[i_1] + (double)i[i_1];
  o5[i_1] = (int)f[i_1];
  const bool v = m[i_1] == (i[i_1] > 1);
  const int v_1 = i[i_1];
  const float v_2 = f[i_1];
  o6[i_1] = v ? (float)v_1 : v_2;
  o7[i_1] = ((i[i_1] + 1) & 3) + 1;
  o8[i_1] = ((i[i_1] + 1) | 3) + 1;
  o9[i_1] = ((i[i_1] + 1) ^ 3) + 1;
  o10[i_1] = ((i[i_1] + 1) << 3) + 1;
  o11[i_1] = ((i[i_1] + 1) >> 3) + 1;
}
