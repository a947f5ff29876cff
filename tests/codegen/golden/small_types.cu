extern "C" __global__ void __launch_bounds__(16) types(const bool* __restrict__ m, const int* __restrict__ i, const float* __restrict__ f, bool* __restrict__ o0, bool* __restrict__ o1, int* __restrict__ o2, long long* __restrict__ o3, double* __restrict__ o4, int* __restrict__ o5, float* __restrict__ o6, int* __restrict__ o7, int* __restrict__ o8, int* __restrict__ o9, int* __restrict__ o10, int* __restrict__ o11) {
  const int i_1 = (int)threadIdx.x;
  o0[i_1] = (m[i_1] && i[i_1] > 0) || (!m[i_1] && f[i_1] < 0.5f);
  o1[i_1] = i[i_1] != 0;
  o2[i_1] = (int)m[i_1] + i[i_1];
  o3[i_1] = min((long long)i[i_1], 3LL) * 8589934592LL;
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
