#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void moves(const __global char* restrict a, __global char* restrict turned, __global char* restrict padded, __global char* restrict chosen, __global char* restrict filled) {
  const int t = (int)get_local_id(0);
  __local char tile[128] __attribute__((aligned(16)));
  char held[16];
  *(__local char16*)(tile + t * 16) = *(const __global char16*)(a + t * 16);
  barrier(CLK_LOCAL_MEM_FENCE);
  const char16 v = *(const __local char16*)(tile + (7 - t) * 16);
  held[0] = v.s0;
  held[1] = v.s1;
  held[2] = v.s2;
  held[3] = v.s3;
  held[4] = v.s4;
  held[5] = v.s5;
  held[6] = v.s6;
  held[7] = v.s7;
  held[8] = v.s8;
  held[9] = v.s9;
  held[10] = v.sa;
  held[11] = v.sb;
  held[12] = v.sc;
  held[13] = v.sd;
  held[14] = v.se;
  held[15] = v.sf;
  *(__global char16*)(turned + t * 16) = (char16)(held[0], held[1], held[2], held[3], held[4], held[5], held[6], held[7], held[8], held[9], held[10], held[11], held[12], held[13], held[14], held[15]);
  *(__global char16*)(padded + t * 16) = t >= 1 ? *(const __global char16*)(a + (t * 16 - 16)) : (char16)(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  *(__global char16*)(chosen + t * 16) = (char16)(a[t * 16], 1, 1, a[t * 16 + 3], 1, 1, a[t * 16 + 6], 1, 1, a[t * 16 + 9], 1, 1, a[t * 16 + 12], 1, 1, a[t * 16 + 15]);
  *(__global char16*)(filled + t * 16) = (char16)(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3);
}
