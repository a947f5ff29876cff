extern "C" __global__ void __launch_bounds__(1) constants(float* __restrict__ float32_out, double* __restrict__ float64_out, int* __restrict__ int32_out, long long* __restrict__ int64_out) {
  float32_out[0] = 0.1f;
  float32_out[1] = -0.0f;
  float32_out[2] = 1.0f;
  float32_out[3] = 1e+30f;
  float32_out[4] = -1e-30f;
  float32_out[5] = 1.6777216e+07f;
  float32_out[6] = __int_as_float(0x7f800000);
  float32_out[7] = -__int_as_float(0x7f800000);
  float32_out[8] = __int_as_float(0x7fc00000);
  float32_out[9] = 0.33333334f;
  float64_out[0] = 0.1;
  float64_out[1] = -0.0;
  float64_out[2] = 1.0;
  float64_out[3] = 1e+30;
  float64_out[4] = -1e-30;
  float64_out[5] = 16777217.0;
  float64_out[6] = __longlong_as_double(0x7ff0000000000000LL);
  float64_out[7] = -__longlong_as_double(0x7ff0000000000000LL);
  float64_out[8] = __longlong_as_double(0x7ff8000000000000LL);
  float64_out[9] = 0.3333333333333333;
  int32_out[0] = (-2147483647 - 1);
  int32_out[1] = 2147483647;
  int32_out[2] = -1;
  int64_out[0] = (-9223372036854775807LL - 1);
  int64_out[1] = 9223372036854775807LL;
  int64_out[2] = 1099511627776LL;
}
