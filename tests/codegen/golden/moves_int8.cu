extern "C" __global__ void __launch_bounds__(8) moves(const signed char* __restrict__ a, signed char* __restrict__ turned, signed char* __restrict__ padded, signed char* __restrict__ chosen, signed char* __restrict__ filled) {
  const int t = (int)threadIdx.x;
  extern __shared__ __align__(16) unsigned char tw_shared[];
  signed char* const tile = reinterpret_cast<signed char*>(tw_shared + 0);
  signed char held[16];
  *reinterpret_cast<uint4*>(tile + t * 16) = *reinterpret_cast<const uint4*>(a + t * 16);
  __syncthreads();
  const uint4 v = *reinterpret_cast<const uint4*>(tile + (7 - t) * 16);
  held[0] = (signed char)v.x;
  held[1] = (signed char)(v.x >> 8);
  held[2] = (signed char)(v.x >> 16);
  held[3] = (signed char)(v.x >> 24);
  held[4] = (signed char)v.y;
  held[5] = (signed char)(v.y >> 8);
  held[6] = (signed char)(v.y >> 16);
  held[7] = (signed char)(v.y >> 24);
  held[8] = (signed char)v.z;
  held[9] = (signed char)(v.z >> 8);
  held[10] = (signed char)(v.z >> 16);
  held[11] = (signed char)(v.z >> 24);
  held[12] = (signed char)v.w;
  held[13] = (signed char)(v.w >> 8);
  held[14] = (signed char)(v.w >> 16);
  held[15] = (signed char)(v.w >> 24);
  *reinterpret_cast<uint4*>(turned + t * 16) = make_uint4((held[0] & 255) | (unsigned int)(held[1] & 255) << 8 | (unsigned int)(held[2] & 255) << 16 | (unsigned int)(held[3] & 255) << 24, (held[4] & 255) | (unsigned int)(held[5] & 255) << 8 | (unsigned int)(held[6] & 255) << 16 | (unsigned int)(held[7] & 255) << 24, (held[8] & 255) | (unsigned int)(held[9] & 255) << 8 | (unsigned int)(held[10] & 255) << 16 | (unsigned int)(held[11] & 255) << 24, (held[12] & 255) | (unsigned int)(held[13] & 255) << 8 | (unsigned int)(held[14] & 255) << 16 | (unsigned int)(held[15] & 255) << 24);
  *reinterpret_cast<uint4*>(padded + t * 16) = t >= 1 ? *reinterpret_cast<const uint4*>(a + (t * 16 - 16)) : make_uint4(0x00000000u, 0x00000000u, 0x00000000u, 0x00000000u);
  *reinterpret_cast<uint4*>(chosen + t * 16) = make_uint4((a[t * 16] & 255) | (unsigned int)(1 & 255) << 8 | (unsigned int)(1 & 255) << 16 | (unsigned int)(a[t * 16 + 3] & 255) << 24, (1 & 255) | (unsigned int)(1 & 255) << 8 | (unsigned int)(a[t * 16 + 6] & 255) << 16 | (unsigned int)(1 & 255) << 24, (1 & 255) | (unsigned int)(a[t * 16 + 9] & 255) << 8 | (unsigned int)(1 & 255) << 16 | (unsigned int)(1 & 255) << 24, (a[t * 16 + 12] & 255) | (unsigned int)(1 & 255) << 8 | (unsigned int)(1 & 255) << 16 | (unsigned int)(a[t * 16 + 15] & 255) << 24);
  *reinterpret_cast<uint4*>(filled + t * 16) = make_uint4(0x03030303u, 0x03030303u, 0x03030303u, 0x03030303u);
}
