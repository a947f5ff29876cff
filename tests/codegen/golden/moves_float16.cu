extern "C" __global__ void __launch_bounds__(8) moves(const unsigned short* __restrict__ a, unsigned short* __restrict__ turned, unsigned short* __restrict__ padded, unsigned short* __restrict__ chosen, unsigned short* __restrict__ filled) {
  const int t = (int)threadIdx.x;
  extern __shared__ __align__(16) unsigned char tw_shared[];
  unsigned short* const tile = reinterpret_cast<unsigned short*>(tw_shared + 0);
  unsigned short held[8];
  *reinterpret_cast<uint4*>(tile + t * 8) = *reinterpret_cast<const uint4*>(a + t * 8);
  __syncthreads();
  const uint4 v = *reinterpret_cast<const uint4*>(tile + (7 - t) * 8);
  held[0] = (unsigned short)v.x;
  held[1] = (unsigned short)(v.x >> 16);
  held[2] = (unsigned short)v.y;
  held[3] = (unsigned short)(v.y >> 16);
  held[4] = (unsigned short)v.z;
  held[5] = (unsigned short)(v.z >> 16);
  held[6] = (unsigned short)v.w;
  held[7] = (unsigned short)(v.w >> 16);
  *reinterpret_cast<uint4*>(turned + t * 8) = make_uint4(held[0] | (unsigned int)held[1] << 16, held[2] | (unsigned int)held[3] << 16, held[4] | (unsigned int)held[5] << 16, held[6] | (unsigned int)held[7] << 16);
  *reinterpret_cast<uint4*>(padded + t * 8) = t >= 1 ? *reinterpret_cast<const uint4*>(a + (t * 8 - 8)) : make_uint4(0x00000000u, 0x00000000u, 0x00000000u, 0x00000000u);
  *reinterpret_cast<uint4*>(chosen + t * 8) = make_uint4(a[t * 8] | (unsigned int)0x3c00 << 16, 0x3c00 | (unsigned int)a[t * 8 + 3] << 16, 0x3c003c00u, a[t * 8 + 6] | (unsigned int)0x3c00 << 16);
  *reinterpret_cast<uint4*>(filled + t * 8) = make_uint4(0x42004200u, 0x42004200u, 0x42004200u, 0x42004200u);
}
