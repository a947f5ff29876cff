static __device__ __forceinline__ float tw_float16_to_float32(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}

static __device__ __forceinline__ unsigned short tw_float32_to_float16(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

extern "C" __global__ void __launch_bounds__(8) computed(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b, unsigned short* __restrict__ out, float* __restrict__ wide) {
  const int t = (int)threadIdx.x;
  const uint4 v = *reinterpret_cast<const uint4*>(a + t * 8);
  const uint4 v_1 = *reinterpret_cast<const uint4*>(b + t * 8);
  *reinterpret_cast<uint4*>(out + t * 8) = make_uint4(tw_float32_to_float16(tw_float16_to_float32((unsigned short)v.x) * tw_float16_to_float32((unsigned short)v_1.x)) | (unsigned int)tw_float32_to_float16(tw_float16_to_float32((unsigned short)(v.x >> 16)) * tw_float16_to_float32((unsigned short)(v_1.x >> 16))) << 16, tw_float32_to_float16(tw_float16_to_float32((unsigned short)v.y) * tw_float16_to_float32((unsigned short)v_1.y)) | (unsigned int)tw_float32_to_float16(tw_float16_to_float32((unsigned short)(v.y >> 16)) * tw_float16_to_float32((unsigned short)(v_1.y >> 16))) << 16, tw_float32_to_float16(tw_float16_to_float32((unsigned short)v.z) * tw_float16_to_float32((unsigned short)v_1.z)) | (unsigned int)tw_float32_to_float16(tw_float16_to_float32((unsigned short)(v.z >> 16)) * tw_float16_to_float32((unsigned short)(v_1.z >> 16))) << 16, tw_float32_to_float16(tw_float16_to_float32((unsigned short)v.w) * tw_float16_to_float32((unsigned short)v_1.w)) | (unsigned int)tw_float32_to_float16(tw_float16_to_float32((unsigned short)(v.w >> 16)) * tw_float16_to_float32((unsigned short)(v_1.w >> 16))) << 16);
  const uint2 v_2 = *reinterpret_cast<const uint2*>(a + t * 8);
  const uint2 v_3 = *reinterpret_cast<const uint2*>(b + t * 8);
  *reinterpret_cast<float4*>(wide + t * 8) = make_float4(tw_float16_to_float32((unsigned short)v_2.x) - tw_float16_to_float32((unsigned short)v_3.x), tw_float16_to_float32((unsigned short)(v_2.x >> 16)) - tw_float16_to_float32((unsigned short)(v_3.x >> 16)), tw_float16_to_float32((unsigned short)v_2.y) - tw_float16_to_float32((unsigned short)v_3.y), tw_float16_to_float32((unsigned short)(v_2.y >> 16)) - tw_float16_to_float32((unsigned short)(v_3.y >> 16)));
}
