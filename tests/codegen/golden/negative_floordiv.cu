static __device__ __forceinline__ int tw_floordiv_int32(int a, int b) {
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

static __device__ __forceinline__ int tw_floormod_int32(int a, int b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;
}

static __device__ __forceinline__ long long tw_floordiv_int64(long long a, long long b) {
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

static __device__ __forceinline__ long long tw_floormod_int64(long long a, long long b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;
}

extern "C" __global__ void __launch_bounds__(24) floors(const int* __restrict__ a, const int* __restrict__ b, int* __restrict__ plain, int* __restrict__ moved, int* __restrict__ rest, int* __restrict__ div_1, int* __restrict__ mod, long long* __restrict__ wide) {
  const int i = (int)threadIdx.x;
  plain[i] = i / 5 * 10 + i % 5;
  moved[i] = (i + 4) / 5 - 3;
  rest[i] = (i + 4) % 5;
  div_1[i] = tw_floordiv_int32(a[i], b[i]);
  mod[i] = tw_floormod_int32(a[i], b[i]);
  wide[i] = tw_floordiv_int64((long long)a[i], (long long)b[i]) * 1099511627776LL + tw_floormod_int64((long long)a[i], (long long)b[i]);
}
