extern "C" __global__ void __launch_bounds__(16) functions(const double* __restrict__ x, const double* __restrict__ y, double* __restrict__ exp_out, double* __restrict__ log_out, double* __restrict__ sqrt_out, double* __restrict__ rsqrt_out, double* __restrict__ tanh_out, double* __restrict__ erf_out, double* __restrict__ abs_out, double* __restrict__ floor_out, double* __restrict__ ceil_out, double* __restrict__ round_out, double* __restrict__ sin_out, double* __restrict__ cos_out, double* __restrict__ pow_out, double* __restrict__ least_out, double* __restrict__ most_out, double* __restrict__ ratio_out) {
  const int i = (int)threadIdx.x;
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
  pow_out[i] = pow(x[i], y[i]);
  least_out[i] = fmin(x[i], y[i]);
  most_out[i] = fmax(x[i], y[i]);
  ratio_out[i] = (x[i] - y[i]) / (x[i] + 4.0);
}
