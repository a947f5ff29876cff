#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void computed(const __global uchar* restrict a, const __global uchar* restrict b, __global uchar* restrict out, __global int* restrict wide) {
  const int t = (int)get_local_id(0);
  const uchar16 v = *(const __global uchar16*)(a + t * 16);
  const uchar16 v_1 = *(const __global uchar16*)(b + t * 16);
  *(__global uchar16*)(out + t * 16) = (uchar16)((uchar)((int)v.s0 * (int)v_1.s0), (uchar)((int)v.s1 * (int)v_1.s1), (uchar)((int)v.s2 * (int)v_1.s2), (uchar)((int)v.s3 * (int)v_1.s3), (uchar)((int)v.s4 * (int)v_1.s4), (uchar)((int)v.s5 * (int)v_1.s5), (uchar)((int)v.s6 * (int)v_1.s6), (uchar)((int)v.s7 * (int)v_1.s7), (uchar)((int)v.s8 * (int)v_1.s8), (uchar)((int)v.s9 * (int)v_1.s9), (uchar)((int)v.sa * (int)v_1.sa), (uchar)((int)v.sb * (int)v_1.sb), (uchar)((int)v.sc * (int)v_1.sc), (uchar)((int)v.sd * (int)v_1.sd), (uchar)((int)v.se * (int)v_1.se), (uchar)((int)v.sf * (int)v_1.sf));
  const uchar4 v_2 = *(const __global uchar4*)(a + t * 16);
  const uchar4 v_3 = *(const __global uchar4*)(b + t * 16);
  *(__global int4*)(wide + t * 16) = (int4)((int)v_2.x - (int)v_3.x, (int)v_2.y - (int)v_3.y, (int)v_2.z - (int)v_3.z, (int)v_2.w - (int)v_3.w);
}
