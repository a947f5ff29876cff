extern "C" __global__ void __launch_bounds__(2) overlap(const float* __restrict__ a, float* __restrict__ b) {
  const int t = (int)threadIdx.x;
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
  *reinterpret_cast<float4*>(b + t * 8) = make_float4(tmp[0], tmp[1], tmp[2], tmp[3]);
  *reinterpret_cast<float4*>(b + (t * 8 + 4)) = make_float4(tmp[4], tmp[5], tmp[6], tmp[7]);
}
