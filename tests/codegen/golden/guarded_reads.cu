extern "C" __global__ void __launch_bounds__(8) padded(const float* __restrict__ a, float* __restrict__ left, float* __restrict__ lanes, float* __restrict__ whole, float* __restrict__ scaled) {
  const int t = (int)threadIdx.x;
  for (int i = 0; i < 32; ++i) {
    if (i / 4 == t) {
      left[i] = i >= 1 && i < 29 ? a[i - 1] + a[i + 3] : 0.0f;
    }
  }
  *reinterpret_cast<float4*>(lanes + t * 4) = make_float4(t * 4 - 2 >= 0 ? a[t * 4 - 2] : -1.0f, t * 4 - 1 >= 0 ? a[t * 4 - 1] : -1.0f, t * 4 >= 0 ? a[t * 4] : -1.0f, t * 4 + 1 >= 0 ? a[t * 4 + 1] : -1.0f);
  *reinterpret_cast<float4*>(whole + t * 4) = t >= 1 && t < 8 ? *reinterpret_cast<const float4*>(a + (t * 4 - 4)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  const float4 v = t >= 1 && t < 8 ? (t >= 1 && t < 8 ? *reinterpret_cast<const float4*>(a + (t * 4 - 4)) : make_float4(0.0f, 0.0f, 0.0f, 0.0f)) : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
  *reinterpret_cast<float4*>(scaled + t * 4) = make_float4(v.x * 0.5f + a[t], v.y * 0.5f + a[t], v.z * 0.5f + a[t], v.w * 0.5f + a[t]);
}
