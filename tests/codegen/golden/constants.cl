#pragma OPENCL FP_CONTRACT ON
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void constants(__global float* restrict float32_out, __global double* restrict float64_out, __global int* restrict int32_out, __global long* restrict int64_out) {
  float32_out[0] = 0.1f;
  float32_out[1] = -0.0f;
  float32_out[2] = 1.0f;
  float32_out[3] = 1e+30f;
  float32_out[4] = -1e-30f;
  float32_out[5] = 1.6777216e+07f;
  float32_out[6] = INFINITY;
  float32_out[7] = -INFINITY;
  float32_out[8] = NAN;
  float32_out[9] = 0.33333334f;
  float64_out[0] = 0.1;
  float64_out[1] = -0.0;
  float64_out[2] = 1.0;
  float64_out[3] = 1e+30;
  float64_out[4] = -1e-30;
  float64_out[5] = 16777217.0;
  float64_out[6] = (double)INFINITY;
  float64_out[7] = -(double)INFINITY;
  float64_out[8] = (double)NAN;
  float64_out[9] = 0.3333333333333333;
  int32_out[0] = (-2147483647 - 1);
  int32_out[1] = 2147483647;
  int32_out[2] = -1;
  int64_out[0] = (-9223372036854775807L - 1);
  int64_out[1] = 9223372036854775807L;
  int64_out[2] = 1099511627776L;
}
