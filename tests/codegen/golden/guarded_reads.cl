#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void padded(const __global float* restrict a, __global float* restrict left, __global float* restrict lanes, __global float* restrict whole, __global float* restrict scaled) {
  const int t = (int)get_local_id(0);
  for (int i = 0; i < 32; ++i) {
    if (i / 4 == t) {
      left[i] = i >= 1 && i < 29 ? a[i - 1] + a[i + 3] : 0.0f;
    }
  }
  *(__global float4*)(lanes + t * 4) = (float4)(t * 4 - 2 >= 0 ? a[t * 4 - 2] : -1.0f, t * 4 - 1 >= 0 ? a[t * 4 - 1] : -1.0f, t * 4 >= 0 ? a[t * 4] : -1.0f, t * 4 + 1 >= 0 ? a[t * 4 + 1] : -1.0f);
  *(__global float4*)(whole + t * 4) = t >= 1 && t < 8 ? *(const __global float4*)(a + (t * 4 - 4)) : (float4)(0.0f, 0.0f, 0.0f, 0.0f);
  const float4 v = t >= 1 && t < 8 ? (t >= 1 && t < 8 ? *(const __global float4*)(a + (t * 4 - 4)) : (float4)(0.0f, 0.0f, 0.0f, 0.0f)) : (float4)(1.0f, 1.0f, 1.0f, 1.0f);
  *(__global float4*)(scaled + t * 4) = (float4)(v.x * 0.5f + a[t], v.y * 0.5f + a[t], v.z * 0.5f + a[t], v.w * 0.5f + a[t]);
}
