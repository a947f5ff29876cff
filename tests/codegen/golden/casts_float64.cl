#pragma OPENCL FP_CONTRACT ON
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
static inline float tw_float64_to_odd(double x) {
  const float y = convert_float_rtz(x);
  return (double)y == x ? y : as_float(as_uint(y) | 1u);
}

static inline ushort tw_float32_to_float16(float x) {
  uchar2 y;
  vstore_half_rte(x, 0, (__private half*)&y);
  return as_ushort(y);
}

static inline ushort tw_float32_to_bfloat16(float x) {
  const uint y = as_uint(x);
  return x != x ? (ushort)0x7fff : (ushort)((y + 0x7fffu + (y >> 16 & 1u)) >> 16);
}

__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void casts(const __global double* restrict a, __global uchar* restrict to_bool, __global char* restrict to_int8, __global uchar* restrict to_uint8, __global short* restrict to_int16, __global ushort* restrict to_uint16, __global int* restrict to_int32, __global uint* restrict to_uint32, __global long* restrict to_int64, __global ushort* restrict to_float16, __global ushort* restrict to_bfloat16, __global float* restrict to_float32) {
  const int i = (int)get_local_id(0);
  to_bool[i] = a[i] != 0;
  to_int8[i] = (char)(int)a[i];
  to_uint8[i] = (uchar)(int)a[i];
  to_int16[i] = (short)(int)a[i];
  to_uint16[i] = (ushort)(int)a[i];
  to_int32[i] = (int)a[i];
  to_uint32[i] = (uint)(long)a[i];
  to_int64[i] = (long)a[i];
  to_float16[i] = tw_float32_to_float16(tw_float64_to_odd(a[i]));
  to_bfloat16[i] = tw_float32_to_bfloat16(tw_float64_to_odd(a[i]));
  to_float32[i] = (float)a[i];
}
