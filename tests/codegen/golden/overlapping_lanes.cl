#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(2, 1, 1)))
void overlap(const __global float* restrict a, __global float* restrict b) {
  const int t = (int)get_local_id(0);
  float tmp[9];
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    tmp[i] = a[t * 8 + i];
  }
  const float v = tmp[0] * 2.0f;
  const float v_1 = tmp[1] * 2.0f;
  const float v_2 = tmp[2] * 2.0f;
  const float v_3 = tmp[3] * 2.0f;
  const float v_4 = tmp[4] * 2.0f;
  const float v_5 = tmp[5] * 2.0f;
  const float v_6 = tmp[6] * 2.0f;
  const float v_7 = tmp[7] * 2.0f;
  tmp[1] = v;
  tmp[2] = v_1;
  tmp[3] = v_2;
  tmp[4] = v_3;
  tmp[5] = v_4;
  tmp[6] = v_5;
  tmp[7] = v_6;
  tmp[8] = v_7;
  *(__global float4*)(b + t * 8) = (float4)(tmp[0], tmp[1], tmp[2], tmp[3]);
  *(__global float4*)(b + (t * 8 + 4)) = (float4)(tmp[4], tmp[5], tmp[6], tmp[7]);
}
