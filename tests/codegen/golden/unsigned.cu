extern "C" __global__ void __launch_bounds__(16) unsigned_1(const unsigned int* __restrict__ a, const unsigned int* __restrict__ b, unsigned int* __restrict__ sum, unsigned int* __restrict__ less, unsigned int* __restrict__ product, unsigned int* __restrict__ ratio, unsigned int* __restrict__ rest, unsigned int* __restrict__ least, unsigned int* __restrict__ most, float* __restrict__ float_1, bool* __restrict__ large) {
  const int i = (int)threadIdx.x;
  sum[i] = a[i] + b[i];
  less[i] = a[i] - b[i];
  product[i] = a[i] * b[i];
  ratio[i] = a[i] / b[i];
  rest[i] = a[i] % b[i];
  least[i] = min(a[i], 2147483653u);
  most[i] = max(a[i], b[i]);
  float_1[i] = (float)a[i];
  large[i] = a[i] > 2147483653u;
}
