#pragma OPENCL FP_CONTRACT ON
__kernel __attribute__((reqd_work_group_size(8, 1, 1)))
void moves(const __global ushort* restrict a, __global ushort* restrict turned, __global ushort* restrict padded, __global ushort* restrict chosen, __global ushort* restrict filled) {
  const int t = (int)get_local_id(0);
  __local ushort tile[64] __attribute__((aligned(16)));
  ushort held[8];
  *(__local ushort8*)(tile + t * 8) = *(const __global ushort8*)(a + t * 8);
  barrier(CLK_LOCAL_MEM_FENCE);
  const ushort8 v = *(const __local ushort8*)(tile + (7 - t) * 8);
  held[0] = v.s0;
  held[1] = v.s1;
  held[2] = v.s2;
  held[3] = v.s3;
  held[4] = v.s4;
  held[5] = v.s5;
  held[6] = v.s6;
  held[7] = v.s7;
  *(__global ushort8*)(turned + t * 8) = (ushort8)(held[0], held[1], held[2], held[3], held[4], held[5], held[6], held[7]);
  *(__global ushort8*)(padded + t * 8) = t >= 1 ? *(const __global ushort8*)(a + (t * 8 - 8)) : (ushort8)(0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000);
  *(__global ushort8*)(chosen + t * 8) = (ushort8)(a[t * 8], 0x3c00, 0x3c00, a[t * 8 + 3], 0x3c00, 0x3c00, a[t * 8 + 6], 0x3c00);
  *(__global ushort8*)(filled + t * 8) = (ushort8)(0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200, 0x4200);
}
