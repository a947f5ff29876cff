/* A driver of NVIDIA's without a GPU: its memory is the host's, kernels and their parameters are
 * told, and whatever is still open when the context is given back is counted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int things, capturing, pushed;
static struct graph { int launches; } *captured;

static int make(void **made, size_t bytes) {
  *made = calloc(1, bytes ? bytes : 1);
  things++;
  return 0;
}

static int drop(void *thing) {
  free(thing);
  things--;
  return 0;
}

int cuInit(unsigned flags) { return flags; }
int cuGetErrorName(int code, const char **text) { return *text = "CUDA_ERROR_FAKE", 0 * code; }
int cuGetErrorString(int code, const char **text) { return *text = "fake", 0 * code; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDeviceGetName(char *name, int size, int device) { return *name = 0, 0 * size * device; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &things, device; }
int cuDevicePrimaryCtxRelease_v2(int device) {
  printf("left open: %d, contexts: %d\n", things, pushed);
  return device;
}
int cuCtxPushCurrent_v2(void *context) {
  __atomic_add_fetch(&pushed, 1, __ATOMIC_SEQ_CST);
  return context != &things;
}
int cuCtxPopCurrent_v2(void **context) {
  __atomic_sub_fetch(&pushed, 1, __ATOMIC_SEQ_CST);
  return *context = NULL, 0;
}
int cuCtxSynchronize(void) { return 0; }
int cuModuleLoadData(void **module, const char *data) {
  return memcmp(data, "\177ELF", 4) ? 200 : make(module, 1); /* a cubin is an ELF file */
}
int cuModuleUnload(void *module) { return drop(module); }
int cuModuleGetFunction(void **function, void *module, char *name) {
  return *function = name, !module;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  return printf("%s may use %d bytes of shared memory\n", (char *)function, value), attribute != 8;
}
int cuMemAlloc_v2(void **memory, size_t bytes) { return make(memory, bytes); }
int cuMemFree_v2(void *memory) { return drop(memory); }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t n) { return memcpy(to, from, n), 0; }
int cuMemcpyAsync(void *to, void *from, size_t n, void *stream) {
  return memcpy(to, from, n), !stream;
}
int cuMemsetD8_v2(void *to, unsigned char value, size_t n) { return memset(to, value, n), 0; }
int cuMemsetD8Async(void *to, unsigned char value, size_t n, void *stream) {
  return memset(to, value, n), !stream;
}
int cuPointerGetAttribute(unsigned *found, int what, void *at) { return *found = what, !!at; }
int cuStreamCreate(void **stream, unsigned flags) { return make(stream, 1 + flags); }
int cuStreamDestroy_v2(void *stream) { return drop(stream); }
int cuStreamSynchronize(void *stream) { return !stream; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return !stream || !event || flags;
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
  capturing = 1;
  return make((void **)&captured, sizeof *captured) || !stream || mode != 2;
}
int cuStreamEndCapture(void *stream, void **graph) {
  capturing = 0;
  return *graph = captured, !stream;
}
int cuEventCreate(void **event, unsigned flags) { return make(event, 1 + flags); }
int cuEventRecord(void *event, void *stream) { return !event || !stream; }
int cuEventDestroy_v2(void *event) { return drop(event); }
int cuGraphInstantiateWithFlags(void **made, struct graph *graph, unsigned long long flags) {
  make(made, sizeof *graph);
  memcpy(*made, graph, sizeof *graph);
  return flags != 0;
}
int cuGraphDestroy(void *graph) { return drop(graph); }
int cuGraphExecDestroy(void *graph) { return drop(graph); }
int cuGraphUpload(void *graph, void *stream) { return !graph || !stream; }
int cuGraphLaunch(struct graph *graph, void *stream) {
  return printf("run of %d kernels\n", graph->launches), !stream;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
  captured->launches++;
  printf("%s<%u %u %u, %u %u %u, %u>\n", (char *)function, gx, gy, gz, bx, by, bz, shared);
  return !capturing || !stream || !*(void **)params[0] || extra;
}
int cuTensorMapEncodeTiled(char *map, int type, unsigned rank, void *at, const uint64_t *shape,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int promotion, int fill) {
  printf("map %d of", type);
  for (unsigned k = 0; k < rank; k++)
    printf(" %llu/%u/%u", (unsigned long long)shape[k], box[k], steps[k]);
  printf(" strides");
  for (unsigned k = 0; k + 1 < rank; k++) printf(" %llu", (unsigned long long)strides[k]);
  printf(" swizzle %d\n", swizzle);
  return (uintptr_t)map % 64 || !at || interleave || promotion != 2 || fill;
}
