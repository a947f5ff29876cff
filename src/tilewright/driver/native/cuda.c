/* A network on an NVIDIA GPU, by the driver's library, which is found when a network is opened.
 * A run is one graph.  Numbers are those of cuda.h; handles are pointers. */

typedef void *Handle;

static struct {
  int (*Init)(unsigned);
  int (*GetErrorName)(int, const char **);
  int (*GetErrorString)(int, const char **);
  int (*DeviceGetCount)(int *);
  int (*DeviceGet)(int *, int);
  int (*DeviceGetName)(char *, int, int);
  int (*DevicePrimaryCtxRetain)(Handle *, int);
  int (*DevicePrimaryCtxRelease)(int);
  int (*CtxPushCurrent)(Handle);
  int (*CtxPopCurrent)(Handle *);
  int (*CtxSynchronize)(void);
  int (*ModuleLoadData)(Handle *, const void *);
  int (*ModuleUnload)(Handle);
  int (*ModuleGetFunction)(Handle *, Handle, const char *);
  int (*FuncSetAttribute)(Handle, int, int);
  int (*MemAlloc)(Address *, size_t);
  int (*MemFree)(Address);
  int (*MemcpyHtoD)(Address, const void *, size_t);
  int (*MemcpyAsync)(Address, Address, size_t, Handle);
  int (*MemsetD8)(Address, unsigned char, size_t);
  int (*MemsetD8Async)(Address, unsigned char, size_t, Handle);
  int (*PointerGetAttribute)(void *, int, Address);
  int (*StreamCreate)(Handle *, unsigned);
  int (*StreamDestroy)(Handle);
  int (*StreamSynchronize)(Handle);
  int (*StreamWaitEvent)(Handle, Handle, unsigned);
  int (*StreamBeginCapture)(Handle, int);
  int (*StreamEndCapture)(Handle, Handle *);
  int (*EventCreate)(Handle *, unsigned);
  int (*EventRecord)(Handle, Handle);
  int (*EventDestroy)(Handle);
  int (*GraphInstantiate)(Handle *, Handle, unsigned long long);
  int (*GraphDestroy)(Handle);
  int (*GraphExecDestroy)(Handle);
  int (*GraphUpload)(Handle, Handle);
  int (*GraphLaunch)(Handle, Handle);
  int (*LaunchKernel)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      Handle, void **, void **);
  int (*TensorMapEncodeTiled)(void *, int, uint32_t, Address, const uint64_t *, const uint64_t *,
                              const uint32_t *, const uint32_t *, int, int, int, int);
} cu;

/* In the order of `cu`. */
static const char *const NAMES[] = {
    "cuInit", "cuGetErrorName", "cuGetErrorString", "cuDeviceGetCount", "cuDeviceGet",
    "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSynchronize", "cuModuleLoadData",
    "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuMemFree_v2",
    "cuMemcpyHtoD_v2", "cuMemcpyAsync", "cuMemsetD8_v2", "cuMemsetD8Async",
    "cuPointerGetAttribute", "cuStreamCreate",
    "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamBeginCapture_v2",
    "cuStreamEndCapture", "cuEventCreate", "cuEventRecord", "cuEventDestroy_v2",
    "cuGraphInstantiateWithFlags", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphUpload",
    "cuGraphLaunch", "cuLaunchKernel", "cuTensorMapEncodeTiled"};
_Static_assert(sizeof cu == sizeof NAMES, "each function has a name");

enum {
  MAX_DYNAMIC_SHARED = 8,   /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
  STATIC_LIMIT = 48 << 10,  /* more of it must be asked for */
  MEMORY_TYPE = 2,          /* CU_POINTER_ATTRIBUTE_MEMORY_TYPE */
  MEMORY_OF_DEVICE = 2,     /* CU_MEMORYTYPE_DEVICE */
  NO_TIMING = 2,            /* CU_EVENT_DISABLE_TIMING */
  NON_BLOCKING = 1,         /* CU_STREAM_NON_BLOCKING */
  RELAXED = 2,              /* CU_STREAM_CAPTURE_MODE_RELAXED */
  OUT_OF_MEMORY = 2,        /* CUDA_ERROR_OUT_OF_MEMORY */
  PROMOTION_128B = 2,       /* CU_TENSOR_MAP_L2_PROMOTION_L2_128B */
  MAP_BYTES = 128
};

struct device_shared {
  Handle context, modules[COUNT(CODE_BYTES)], functions[COUNT(KERNELS)];
  int device;
};

struct device_network {
  Handle stream, own_stream, event, graphs[COUNT(PLANS)];
};

/* Status of a call of the driver; 0 is what went well. */
static int ask(const char *what, int code) {
  const char *name = "CUDA_ERROR", *text = "";
  if (!code) return TILEWRIGHT_OK;
  if (cu.GetErrorName) cu.GetErrorName(code, &name);
  if (cu.GetErrorString) cu.GetErrorString(code, &text);
  int memory = code == OUT_OF_MEMORY;
  return fail(memory ? TILEWRIGHT_NO_MEMORY : TILEWRIGHT_DEVICE,
              "%s: the NVIDIA driver says %s (%s). The network was built for %s.", what,
              name ? name : "", text ? text : "", TARGET);
}

#define ASK(what, call) do { int code_ = ask(what, call); if (code_) return code_; } while (0)

static int load_driver(void) {
  static int loaded;
  if (loaded) return TILEWRIGHT_OK;
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(TILEWRIGHT_DEVICE, "tilewright_open: NVIDIA's driver library cannot be loaded "
                "(%.300s). Install the NVIDIA driver.", dlerror());
  for (int k = 0; k < COUNT(NAMES); k++) {
    void *found = dlsym(library, NAMES[k]);
    int optional = !strcmp(NAMES[k], "cuTensorMapEncodeTiled");
    if (!found && !optional)
      return fail(TILEWRIGHT_DEVICE, "tilewright_open: NVIDIA's driver has no %s. Update it.",
                  NAMES[k]);
    memcpy((char *)&cu + (size_t)k * sizeof found, &found, sizeof found);
  }
  ASK("tilewright_open", cu.Init(0));
  loaded = 1;
  return TILEWRIGHT_OK;
}

/* Make the device's context that of this thread, which has its own back after `quit`. */
static int begin(const struct shared *shared, const char *what) {
  return ask(what, cu.CtxPushCurrent(shared->own->context));
}

static int quit(int status) {
  Handle popped;
  cu.CtxPopCurrent(&popped);
  return status;
}

static int load_code(struct shared *shared, FILE *file, const struct place *codes) {
  struct device_shared *own = shared->own;
  for (int k = 0; k < N_CODES; k++) {
    char *code = malloc((size_t)CODE_BYTES[k] + 1);
    if (!code) return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
    int status = read_place(file, codes[k], code, (size_t)CODE_BYTES[k]);
    if (!status)
      status = ask("tilewright_open: its code", cu.ModuleLoadData(&own->modules[k], code));
    free(code);
    if (status) return status;
  }
  for (int k = 0; k < N_KERNELS; k++) {
    const struct kernel *kernel = &KERNELS[k];
    Handle *function = &own->functions[k];
    ASK(kernel->name, cu.ModuleGetFunction(function, own->modules[kernel->code], kernel->name));
    if (kernel->shared_bytes > STATIC_LIMIT)
      ASK(kernel->name,
          cu.FuncSetAttribute(*function, MAX_DYNAMIC_SHARED, (int)kernel->shared_bytes));
  }
  return TILEWRIGHT_OK;
}

static int device_open(struct shared *shared, FILE *file, const struct place *codes) {
  int status = load_driver(), count = 0;
  if (status) return status;
  ASK("tilewright_open", cu.DeviceGetCount(&count));
  if (shared->device >= count)
    return fail(TILEWRIGHT_DEVICE, "tilewright_open: device is %d, and there are %d. Use a smaller "
                "number, or check CUDA_VISIBLE_DEVICES.", shared->device, count);
  struct device_shared *own = shared->own = calloc(1, sizeof *own);
  if (!own) return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  status = ask("tilewright_open", cu.DeviceGet(&own->device, shared->device));
  if (!status)
    status = ask("tilewright_open", cu.DevicePrimaryCtxRetain(&own->context, own->device));
  if (status) {
    free(own);
    return status;
  }
  status = begin(shared, "tilewright_open");
  if (!status) status = quit(load_code(shared, file, codes));
  if (status) device_close(shared);
  return status;
}

static void device_close(struct shared *shared) {
  struct device_shared *own = shared->own;
  if (!begin(shared, "tilewright_close")) {
    for (int k = 0; k < N_CODES; k++)
      if (own->modules[k]) cu.ModuleUnload(own->modules[k]);
    quit(TILEWRIGHT_OK);
  }
  cu.DevicePrimaryCtxRelease(own->device);
  free(own);
}

static int device_allocate(struct shared *shared, size_t bytes, Address *made) {
  size_t size = bytes ? bytes : 1;
  Address found = NULL;
  int status = begin(shared, "tilewright_open");
  if (status) return status;
  status = ask("tilewright_open: memory", cu.MemAlloc(&found, size));
  if (!status) status = ask("tilewright_open: memory", cu.MemsetD8(found, 0, size));
  if (!status) status = ask("tilewright_open: memory", cu.CtxSynchronize());
  if (status && found) cu.MemFree(found);
  if (!status) *made = found;
  return quit(status);
}

static void device_free(struct shared *shared, Address block) {
  if (begin(shared, "tilewright_close")) return;
  cu.MemFree(block);
  quit(TILEWRIGHT_OK);
}

static int device_fill(struct shared *shared, Address at, FILE *file, struct place place,
                       size_t bytes) {
  char *data = malloc(bytes);
  if (!data) return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  int status = read_place(file, place, data, bytes);
  if (!status) status = begin(shared, "tilewright_open");
  if (!status) status = quit(ask("tilewright_open: weights", cu.MemcpyHtoD(at, data, bytes)));
  free(data);
  return status;
}

/* Enqueue one kernel on a stream that is being captured; a graph keeps a copy of its arguments. */
static int enqueue(struct TilewrightNetwork *net, const struct launch *launch, Handle stream) {
  const struct kernel *kernel = &KERNELS[launch->kernel];
  Address args[MAX_ARGS + 1];
  struct { _Alignas(64) char bytes[MAP_BYTES]; } maps[MAX_MAPS + 1];
  void *params[MAX_ARGS + MAX_MAPS + 1];
  int n = 0;
  for (int k = 0; k < launch->n_args; k++) {
    args[k] = address(net, launch->args[k]);
    params[n++] = &args[k];
  }
  for (int k = 0; k < kernel->n_maps; k++) {
    const struct tensor_map *map = &kernel->maps[k];
    if (!cu.TensorMapEncodeTiled)
      return fail(TILEWRIGHT_DEVICE, "%s: NVIDIA's driver knows no tensor maps. Update it.",
                  kernel->name);
    ASK(kernel->name,
        cu.TensorMapEncodeTiled(maps[k].bytes, map->type, (uint32_t)map->rank, args[map->argument],
                                map->shape, map->strides, map->box, map->steps, 0, map->swizzle,
                                PROMOTION_128B, 0));
    params[n++] = maps[k].bytes;
  }
  const unsigned *g = kernel->grid, *b = kernel->block;
  return ask(kernel->name, cu.LaunchKernel(net->shared->own->functions[launch->kernel], g[0], g[1],
                                           g[2], b[0], b[1], b[2], kernel->shared_bytes, stream,
                                           params, NULL));
}

static int captured(struct TilewrightNetwork *net, Handle stream, Handle *graph) {
  const struct plan *plan = &PLANS[net->plan];
  int status = TILEWRIGHT_OK;
  ASK("tilewright_run: capture", cu.StreamBeginCapture(stream, RELAXED));
  for (int k = 0; k < plan->n_launches && !status; k++)
    status = enqueue(net, &plan->launches[k], stream);
  if (!status) status = bring_forward(net, stream);
  int ended = cu.StreamEndCapture(stream, graph);
  return status ? status : ask("tilewright_run: capture", ended);
}

static int make_graph(struct TilewrightNetwork *net) {
  Handle *made = &net->own->graphs[net->plan], graph = NULL, stream;
  const struct plan *plan = &PLANS[net->plan];
  if (*made || !(plan->n_launches + plan->n_states)) return TILEWRIGHT_OK;
  ASK("tilewright_run: stream", cu.StreamCreate(&stream, NON_BLOCKING));
  int status = captured(net, stream, &graph);
  if (!status) status = ask("tilewright_run: graph", cu.GraphInstantiate(made, graph, 0));
  if (graph) cu.GraphDestroy(graph);
  if (!status) status = ask("tilewright_run: graph", cu.GraphUpload(*made, net->own->own_stream));
  cu.StreamDestroy(stream);
  return status;
}

static int device_attach(struct TilewrightNetwork *net) {
  net->own = calloc(1, sizeof *net->own);
  if (!net->own) return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  int status = begin(net->shared, "tilewright_open");
  if (status) return status;
  status = ask("tilewright_open: stream", cu.StreamCreate(&net->own->own_stream, 0));
  net->own->stream = net->own->own_stream;
  if (!status) status = ask("tilewright_open: event", cu.EventCreate(&net->own->event, NO_TIMING));
  if (!status) status = make_graph(net);
  return quit(status);
}

static void device_detach(struct TilewrightNetwork *net) {
  struct device_network *own = net->own;
  net->own = NULL;
  if (!own) return;
  if (!begin(net->shared, "tilewright_close")) {
    cu.CtxSynchronize();
    for (int k = 0; k < COUNT(PLANS); k++)
      if (own->graphs[k]) cu.GraphExecDestroy(own->graphs[k]);
    if (own->event) cu.EventDestroy(own->event);
    if (own->own_stream) cu.StreamDestroy(own->own_stream);
    quit(TILEWRIGHT_OK);
  }
  free(own);
}

/* Whether it is memory that the host may read only when the stream has come there. */
static int is_device(const void *pointer) {
  unsigned type = 0;
  return !cu.PointerGetAttribute(&type, MEMORY_TYPE, (Address)(uintptr_t)pointer) &&
         type == MEMORY_OF_DEVICE;
}

static int device_write(struct TilewrightNetwork *net, Address to, const void *from,
                        size_t bytes) {
  if (!bytes) return TILEWRIGHT_OK;
  int status = begin(net->shared, "tilewright_set_input");
  if (status) return status;
  return quit(ask("tilewright_set_input", cu.MemcpyAsync(to, (Address)(uintptr_t)from, bytes,
                                                         net->own->stream)));
}

static int device_seen(struct TilewrightNetwork *net, const void *data, size_t bytes,
                       const void **seen, void **copy) {
  *seen = data;
  int status = begin(net->shared, "tilewright_set_input");
  if (status) return status;
  if (is_device(data)) {
    *seen = *copy = malloc(bytes ? bytes : 1);
    if (!*copy) return quit(fail(TILEWRIGHT_NO_MEMORY, "tilewright_set_input: there is no memory"));
    status = ask("tilewright_set_input", cu.MemcpyAsync(*copy, (Address)(uintptr_t)data, bytes,
                                                        net->own->stream));
    if (!status) status = ask("tilewright_set_input", cu.StreamSynchronize(net->own->stream));
  }
  return quit(status);
}

static int device_copy(struct TilewrightNetwork *net, Address to, Address from, size_t bytes,
                       void *stream) {
  Handle on = stream ? stream : net->own->stream;
  if (!bytes) return TILEWRIGHT_OK;
  int status = begin(net->shared, "tilewright_run: states");
  if (status) return status;
  return quit(ask("tilewright_run: states", from ? cu.MemcpyAsync(to, from, bytes, on)
                                                 : cu.MemsetD8Async(to, 0, bytes, on)));
}

static int device_read(struct TilewrightNetwork *net, void *to, Address from, size_t bytes) {
  if (!bytes || to == (void *)from) return TILEWRIGHT_OK;
  int status = begin(net->shared, "tilewright_get_output");
  if (status) return status;
  Handle stream = net->own->stream;
  status = ask("tilewright_get_output", cu.MemcpyAsync(to, from, bytes, stream));
  if (!status && !is_device(to))
    status = ask("tilewright_get_output", cu.StreamSynchronize(stream));
  return quit(status);
}

static int device_run(struct TilewrightNetwork *net) {
  int status = begin(net->shared, "tilewright_run");
  if (status) return status;
  status = make_graph(net); /* of shapes that are used for the first time */
  Handle graph = net->own->graphs[net->plan];
  if (!status && graph) status = ask("tilewright_run", cu.GraphLaunch(graph, net->own->stream));
  return quit(status);
}

static int device_stream(struct TilewrightNetwork *net, void *stream) {
  struct device_network *own = net->own;
  Handle next = stream ? stream : own->own_stream;
  if (next == own->stream) return TILEWRIGHT_OK;
  int status = begin(net->shared, "tilewright_set_stream");
  if (status) return status;
  status = ask("tilewright_set_stream", cu.EventRecord(own->event, own->stream));
  if (!status)
    status = ask("tilewright_set_stream", cu.StreamWaitEvent(next, own->event, 0));
  if (!status) own->stream = next;
  return quit(status);
}

static int device_synchronize(struct TilewrightNetwork *net) {
  int status = begin(net->shared, "tilewright_synchronize");
  if (status) return status;
  return quit(ask("tilewright_synchronize", cu.StreamSynchronize(net->own->stream)));
}

static int device_threads(int threads) {
  (void)threads; /* kernels have their own */
  return TILEWRIGHT_OK;
}
