extern "C" __global__ void __launch_bounds__(16) tail(const float* __restrict__ a, float* __restrict__ b) {
  const int bx = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  if (bx * 16 + tx < 50) {
    if ((bx * 16 + tx) % 2 < 1) {
      b[bx * 16 + tx] = a[bx * 16 + tx];
    } else {
      b[bx * 16 + tx] = a[bx * 16 + tx] * a[bx * 16 + tx];
    }
  }
}
