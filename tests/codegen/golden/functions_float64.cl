#pragma OPENCL FP_CONTRACT ON
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
__kernel __attribute__((reqd_work_group_size(16, 1, 1)))
void functions(const __global double* restrict x, const __global double* restrict y, __global double* restrict exp_out, __global double* restrict log_out, __global double* restrict sqrt_out, __global double* restrict rsqrt_out, __global double* restrict tanh_out, __global double* restrict erf_out, __global double* restrict abs_out, __global double* restrict floor_out, __global double* restrict ceil_out, __global double* restrict round_out, __global double* restrict sin_out, __global double* restrict cos_out, __global double* restrict tan_out, __global double* restrict atan_out, __global double* restrict sinh_out, __global double* restrict cosh_out, __global double* restrict asinh_out, __global double* restrict acosh_out, __global double* restrict asin_out, __global double* restrict acos_out, __global double* restrict atanh_out, __global double* restrict pow_out, __global double* restrict rest_out, __global double* restrict least_out, __global double* restrict most_out, __global double* restrict ratio_out) {
  const int i = (int)get_local_id(0);
  exp_out[i] = exp(x[i]);
  log_out[i] = log(x[i]);
  sqrt_out[i] = sqrt(x[i]);
  rsqrt_out[i] = rsqrt(x[i]);
  tanh_out[i] = tanh(y[i]);
  erf_out[i] = erf(y[i]);
  abs_out[i] = fabs(y[i]);
  floor_out[i] = floor(y[i]);
  ceil_out[i] = ceil(y[i]);
  round_out[i] = rint(y[i]);
  sin_out[i] = sin(y[i]);
  cos_out[i] = cos(y[i]);
  tan_out[i] = tan(x[i]);
  atan_out[i] = atan(y[i]);
  sinh_out[i] = sinh(y[i]);
  cosh_out[i] = cosh(x[i]);
  asinh_out[i] = asinh(y[i]);
  acosh_out[i] = acosh(1.0 + 1.0 * x[i]);
  asin_out[i] = asin(0.0 + 0.25 * x[i]);
  acos_out[i] = acos(0.0 + 0.25 * x[i]);
  atanh_out[i] = atanh(0.0 + 0.25 * x[i]);
  pow_out[i] = pow(x[i], y[i]);
  rest_out[i] = fmod(y[i], x[i]);
  least_out[i] = fmin(x[i], y[i]);
  most_out[i] = fmax(x[i], y[i]);
  ratio_out[i] = (x[i] - y[i]) / (x[i] + 4.0);
}
