extern "C" __global__ void __launch_bounds__(16) functions(const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ exp_out, float* __restrict__ log_out, float* __restrict__ sqrt_out, float* __restrict__ rsqrt_out, float* __restrict__ tanh_out, float* __restrict__ erf_out, float* __restrict__ abs_out, float* __restrict__ floor_out, float* __restrict__ ceil_out, float* __restrict__ round_out, float* __restrict__ sin_out, float* __restrict__ cos_out, float* __restrict__ pow_out, float* __restrict__ least_out, float* __restrict__ most_out, float* __restrict__ ratio_out) {
  const int i = (int)threadIdx.x;
  exp_out[i] = expf(x[i]);
  log_out[i] = logf(x[i]);
  sqrt_out[i] = sqrtf(x[i]);
  rsqrt_out[i] = rsqrtf(x[i]);
  tanh_out[i] = tanhf(y[i]);
  erf_out[i] = erff(y[i]);
  abs_out[i] = fabsf(y[i]);
  floor_out[i] = floorf(y[i]);
  ceil_out[i] = ceilf(y[i]);
  round_out[i] = rintf(y[i]);
  sin_out[i] = sinf(y[i]);
  cos_out[i] = cosf(y[i]);
  pow_out[i] = powf(x[i], y[i]);
  least_out[i] = fminf(x[i], y[i]);
  most_out[i] = fmaxf(x[i], y[i]);
  ratio_out[i] = (x[i] - y[i]) / (x[i] + 4.0f);
}
