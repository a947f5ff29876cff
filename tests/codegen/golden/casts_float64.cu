static __device__ __forceinline__ float tw_float64_to_odd(double x) {
  const float y = __double2float_rz(x);
  return (double)y == x ? y : __uint_as_float(__float_as_uint(y) | 1u);
}

static __device__ __forceinline__ unsigned short tw_float32_to_float16(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
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

extern "C" __global__ void __launch_bounds__(16) casts(const double* __restrict__ a, bool* __restrict__ to_bool, signed char* __restrict__ to_int8, unsigned char* __restrict__ to_uint8, short* __restrict__ to_int16, unsigned short* __restrict__ to_uint16, int* __restrict__ to_int32, unsigned int* __restrict__ to_uint32, long long* __restrict__ to_int64, unsigned short* __restrict__ to_float16, unsigned short* __restrict__ to_bfloat16, float* __restrict__ to_float32) {
  const int i = (int)threadIdx.x;
  to_bool[i] = a[i] != 0;
  to_int8[i] = (signed char)(int)a[i];
  to_uint8[i] = (unsigned char)(int)a[i];
  to_int16[i] = (short)(int)a[i];
  to_uint16[i] = (unsigned short)(int)a[i];
  to_int32[i] = (int)a[i];
  to_uint32[i] = (unsigned int)(long long)a[i];
  to_int64[i] = (long long)a[i];
  to_float16[i] = tw_float32_to_float16(tw_float64_to_odd(a[i]));
  to_bfloat16[i] = tw_float32_to_bfloat16(tw_float64_to_odd(a[i]));
  to_float32[i] = (float)a[i];
}
