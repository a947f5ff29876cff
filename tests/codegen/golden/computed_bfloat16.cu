static __device__ __forceinline__ float tw_bfloat16_to_float32(unsigned short x) {
  return __uint_as_float((unsigned int)x << 16);
}

static __device__ __forceinline__ unsigned short tw_float32_to_bfloat16(float x) {
#if __CUDA_ARCH__ >= 800
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  const unsigned int y = __float_as_uint(x);
  return x != x ? 0x7fff : (unsigned short)((y + 0x7fffu + (y >> 16 & 1u)) >> 16);
#endif
}

extern "C" __global__ void __launch_bounds__(8) computed(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b, unsigned short* __restrict__ out, float* __restrict__ wide) {
  const int t = (int)threadIdx.x;
  const uint4 v = *reinterpret_cast<const uint4*>(a + t * 8);
  const uint4 v_1 = *reinterpret_cast<const uint4*>(b + t * 8);
  *reinterpret_cast<uint4*>(out + t * 8) = make_uint4(tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)v.x) * tw_bfloat16_to_float32((unsigned short)v_1.x)) | (unsigned int)tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)(v.x >> 16)) * tw_bfloat16_to_float32((unsigned short)(v_1.x >> 16))) << 16, tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)v.y) * tw_bfloat16_to_float32((unsigned short)v_1.y)) | (unsigned int)tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)(v.y >> 16)) * tw_bfloat16_to_float32((unsigned short)(v_1.y >> 16))) << 16, tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)v.z) * tw_bfloat16_to_float32((unsigned short)v_1.z)) | (unsigned int)tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)(v.z >> 16)) * tw_bfloat16_to_float32((unsigned short)(v_1.z >> 16))) << 16, tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)v.w) * tw_bfloat16_to_float32((unsigned short)v_1.w)) | (unsigned int)tw_float32_to_bfloat16(tw_bfloat16_to_float32((unsigned short)(v.w >> 16)) * tw_bfloat16_to_float32((unsigned short)(v_1.w >> 16))) << 16);
  const uint2 v_2 = *reinterpret_cast<const uint2*>(a + t * 8);
  const uint2 v_3 = *reinterpret_cast<const uint2*>(b + t * 8);
  *reinterpret_cast<float4*>(wide + t * 8) = make_float4(tw_bfloat16_to_float32((unsigned short)v_2.x) - tw_bfloat16_to_float32((unsigned short)v_3.x), tw_bfloat16_to_float32((unsigned short)(v_2.x >> 16)) - tw_bfloat16_to_float32((unsigned short)(v_3.x >> 16)), tw_bfloat16_to_float32((unsigned short)v_2.y) - tw_bfloat16_to_float32((unsigned short)v_3.y), tw_bfloat16_to_float32((unsigned short)(v_2.y >> 16)) - tw_bfloat16_to_float32((unsigned short)(v_3.y >> 16)));
}
