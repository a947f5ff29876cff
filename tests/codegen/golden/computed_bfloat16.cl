#pragma OPENCL FP_CONTRACT ON
static inline float tw_bfloat16_to_float32(ushort x) {
  return as_float((uint)x << 16);
}

static inline ushort tw_float32_to_bfloat16(float x) {
  const uint y = as_uint(x);
  return x != x ? (ushort)0x7fff : (ushort)((y + 0x7fffu + (y >> 16 & 1u)) >> 16);
}

__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void computed(const __global ushort* restrict a, const __global ushort* restrict b, __global ushort* restrict out, __global float* restrict wide) {
  const int t = (int)get_local_id(0);
  const ushort8 v = *(const __global ushort8*)(a + t * 8);
  const ushort8 v_1 = *(const __global ushort8*)(b + t * 8);
  *(__global ushort8*)(out + t * 8) = (ushort8)(tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s0) * tw_bfloat16_to_float32(v_1.s0)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s1) * tw_bfloat16_to_float32(v_1.s1)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s2) * tw_bfloat16_to_float32(v_1.s2)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s3) * tw_bfloat16_to_float32(v_1.s3)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s4) * tw_bfloat16_to_float32(v_1.s4)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s5) * tw_bfloat16_to_float32(v_1.s5)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s6) * tw_bfloat16_to_float32(v_1.s6)), tw_float32_to_bfloat16(tw_bfloat16_to_float32(v.s7) * tw_bfloat16_to_float32(v_1.s7)));
  const ushort4 v_2 = *(const __global ushort4*)(a + t * 8);
  const ushort4 v_3 = *(const __global ushort4*)(b + t * 8);
  *(__global float4*)(wide + t * 8) = (float4)(tw_bfloat16_to_float32(v_2.x) - tw_bfloat16_to_float32(v_3.x), tw_bfloat16_to_float32(v_2.y) - tw_bfloat16_to_float32(v_3.y), tw_bfloat16_to_float32(v_2.z) - tw_bfloat16_to_float32(v_3.z), tw_bfloat16_to_float32(v_2.w) - tw_bfloat16_to_float32(v_3.w));
}
