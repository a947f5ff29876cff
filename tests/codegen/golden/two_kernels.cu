#if __CUDA_ARCH__ >= 900
#define tw_let_next_in() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#else
#define tw_let_next_in()
#endif

#if __CUDA_ARCH__ >= 900
#define tw_await_kernel_only() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define tw_await_kernel_only()
#endif

#if __CUDA_ARCH__ >= 900
template <typename T> static __device__ __forceinline__ T* tw_fresh(T* p) {
  size_t place = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(place) :: "memory");
  return (T*)__cvta_global_to_generic(place);
}
#else
#define tw_fresh(p) (p)
#endif

extern "C" __global__ void __launch_bounds__(4) sums(const float* __restrict__ a, float* __restrict__ w) {
  tw_let_next_in();
  const int t = (int)threadIdx.x;
  w[t] = 0.0f;
  for (int k = 0; k < 8; ++k) {
    w[t] += a[t * 8 + k];
  }
}

extern "C" __global__ void __launch_bounds__(8) divide(const float* __restrict__ w, const float* __restrict__ a, float* __restrict__ b) {
  const int y = (int)blockIdx.y;
  const int x = (int)threadIdx.x;
  tw_await_kernel_only();
  w = tw_fresh(w);
  b[y * 8 + x] = a[y * 8 + x] / w[y];
}
