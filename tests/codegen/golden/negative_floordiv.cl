#pragma OPENCL FP_CONTRACT ON
static inline int tw_floordiv_int32(int a, int b) {
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

static inline int tw_floormod_int32(int a, int b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;
}

static inline long tw_floordiv_int64(long a, long b) {
  return a / b - ((a % b != 0) & ((a % b < 0) != (b < 0)));
}

static inline long tw_floormod_int64(long a, long b) {
  return a % b + ((a % b != 0) & ((a % b < 0) != (b < 0))) * b;
}

__kernel __attribute__((reqd_work_group_size(24, 1, 1)))
void floors(const __global int* restrict a, const __global int* restrict b, __global int* restrict plain, __global int* restrict moved, __global int* restrict rest, __global int* restrict div_1, __global int* restrict mod, __global long* restrict wide) {
  const int i = (int)get_local_id(0);
  plain[i] = i / 5 * 10 + i % 5;
  moved[i] = (i + 4) / 5 - 3;
  rest[i] = (i + 4) % 5;
  div_1[i] = tw_floordiv_int32(a[i], b[i]);
  mod[i] = tw_floormod_int32(a[i], b[i]);
  wide[i] = tw_floordiv_int64((long)a[i], (long)b[i]) * 1099511627776L + tw_floormod_int64((long)a[i], (long)b[i]);
}
