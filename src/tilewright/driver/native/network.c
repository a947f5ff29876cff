/* The functions of tilewright.h, for a CPU (cpu.c) or a GPU (cuda.c).
 *
 * Weights and code of GPUs are read from the file of the library itself, behind its machine code.
 * Records of networks stay in a list for ever, so that a pointer can be told to be one; what they
 * hold is freed when they are closed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define PUBLIC __attribute__((visibility("default")))
#define MAX_THREADS 1024
#define ALIGNMENT 256 /* of what lies in one block of memory: enough for kernels of either */

#ifdef __arm__ /* names that objects for ARM ask for, of a library that is not linked */
__attribute__((weak, visibility("hidden"))) void __aeabi_unwind_cpp_pr0(void) {}
__attribute__((weak, visibility("hidden"))) void __aeabi_unwind_cpp_pr1(void) {}
#endif

/* -- errors ---------------------------------------------------------------------------------- */

static __thread char error_text[1024];

static int fail(int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(error_text, sizeof error_text, format, args);
  va_end(args);
  return status;
}

/* -- memory and code on a device, shared by all networks that run there ------------------------ */

struct shared {
  struct shared *next;
  int device, users;
  Address block; /* of all constants */
  Address constants[COUNT(CONSTANT_BYTES)];
  struct device_shared *own;
};

struct instance { /* of a plan: its inputs; states are those of the first instance */
  Address block, copies;
  Address *inputs;
  Address slots[COUNT(SLOT_BYTES)];
};

struct TilewrightNetwork {
  struct TilewrightNetwork *next;
  pthread_mutex_t turn;
  int open, owned, plan;
  pthread_t owner;
  struct shared *shared;
  Address block; /* slots, counters behind them, and states */
  Address slots[COUNT(SLOT_BYTES)], counters, states[MOST_STATES + 1];
  struct instance instances[COUNT(PLANS)];
  struct device_network *own;
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static struct shared *all_shared;
static struct TilewrightNetwork *all_networks;

static size_t rounded(uint64_t bytes) {
  return (size_t)((bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static Address address(const struct TilewrightNetwork *net, struct operand at) {
  switch (at.kind) {
    case AT_INPUT: return net->instances[net->plan].inputs[at.index] + at.offset;
    case AT_CONSTANT: return net->shared->constants[at.index] + at.offset;
    case AT_SLOT: return net->instances[net->plan].slots[at.index] + at.offset;
    case AT_COPY: return net->instances[net->plan].copies + at.offset;
    default: return net->counters;
  }
}

/* What cpu.c and cuda.c define.  All return a status, with its text. */
static int device_open(struct shared *shared, FILE *file, const struct place *codes);
static void device_close(struct shared *shared);
static int device_allocate(struct shared *shared, size_t bytes, Address *made); /* zeros */
static void device_free(struct shared *shared, Address block);
static int device_fill(struct shared *shared, Address at, FILE *file, struct place place,
                       size_t bytes);
static int device_attach(struct TilewrightNetwork *net);
static void device_detach(struct TilewrightNetwork *net);
static int device_write(struct TilewrightNetwork *net, Address to, const void *from, size_t bytes);
static int device_read(struct TilewrightNetwork *net, void *to, Address from, size_t bytes);
/* Whether the host may read what a pointer names, and a copy of it where it may not. */
static int device_seen(struct TilewrightNetwork *net, const void *data, size_t bytes,
                       const void **seen, void **copy);
/* On the device: `from` null is zeros; on the stream of the network, or the one that is given. */
static int device_copy(struct TilewrightNetwork *net, Address to, Address from, size_t bytes,
                       void *stream);
static int device_run(struct TilewrightNetwork *net);
static int device_stream(struct TilewrightNetwork *net, void *stream);
static int device_synchronize(struct TilewrightNetwork *net);
static int device_threads(int threads);

static int read_place(FILE *file, struct place place, void *to, size_t bytes);
static int bring_forward(struct TilewrightNetwork *net, void *stream);
static int check_index(const char *call, int index, int count, const char *what);

#if TILEWRIGHT_CUDA
#include "cuda.c"
#else
#include "cpu.c"
#endif

/* -- the file ----------------------------------------------------------------------------------- */

static char *own_path;

/* When the library is loaded: later the process may be in another folder. */
__attribute__((constructor)) static void find_own_path(void) {
  Dl_info info;
  if (dladdr((void *)&find_own_path, &info) && info.dli_fname) {
    own_path = realpath(info.dli_fname, NULL);
    if (!own_path) own_path = strdup(info.dli_fname);
  }
}

static int damaged(const char *what) {
  return fail(TILEWRIGHT_FILE,
              "tilewright_open: %s: %s. Copy the library again, whole; programs that strip or "
              "pack it cut its weights off.", own_path, what);
}

static int seek(FILE *file, uint64_t offset) { return fseeko(file, (off_t)offset, SEEK_SET); }

/* What lies where: of each constant, then of each code of a GPU. */
static int find_places(FILE *file, struct place *places) {
  struct { char id[16]; uint64_t offset; char magic[8]; } tail;
  if (fseeko(file, -(off_t)sizeof tail, SEEK_END) || fread(&tail, sizeof tail, 1, file) != 1 ||
      memcmp(tail.magic, "TWPLACES", 8))
    return damaged("its end is missing");
  if (memcmp(tail.id, ID, 16)) return damaged("the file is another one than was loaded");
  if (seek(file, tail.offset) || fread(places, sizeof *places, N_PLACES, file) != N_PLACES)
    return damaged("it ends too soon");
  return TILEWRIGHT_OK;
}

/* Read `bytes` from there.  The sum is that of `runtime/network/library_file.py`. */
static int read_place(FILE *file, struct place place, void *to, size_t bytes) {
  if (seek(file, place.offset) || fread(to, 1, bytes, file) != bytes)
    return damaged("it ends too soon");
  uint64_t sum = 0, word = 0;
  size_t words = bytes / sizeof word;
  for (size_t k = 0; k < words; k++) {
    memcpy(&word, (char *)to + k * sizeof word, sizeof word);
    sum += word * (2 * (uint64_t)k + 1);
  }
  word = 0;
  memcpy(&word, (char *)to + words * sizeof word, bytes % sizeof word);
  sum += word * (2 * (uint64_t)words + 1);
  return sum == place.sum ? TILEWRIGHT_OK : damaged("a checksum differs");
}

static int load_constants(struct shared *shared, FILE *file, const struct place *places) {
  size_t total = 0, at = 0;
  for (int k = 0; k < N_CONSTANTS; k++) total += rounded(CONSTANT_BYTES[k]);
  int status = device_allocate(shared, total, &shared->block);
  for (int k = 0; k < N_CONSTANTS && !status; k++) {
    shared->constants[k] = shared->block + at;
    at += rounded(CONSTANT_BYTES[k]);
    if (!CONSTANT_BYTES[k]) continue;
    status = device_fill(shared, shared->constants[k], file, places[k], CONSTANT_BYTES[k]);
  }
  return status;
}

static int load_shared(int device, struct shared **found) {
  for (struct shared *s = all_shared; s; s = s->next)
    if (s->device == device) {
      s->users++;
      *found = s;
      return TILEWRIGHT_OK;
    }
  struct shared *made = calloc(1, sizeof *made);
  if (!made) return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  made->device = device;
  struct place places[N_PLACES + 1];
  FILE *file = own_path ? fopen(own_path, "rb") : NULL;
  int status = file ? find_places(file, places)
                    : fail(TILEWRIGHT_FILE, "tilewright_open: %s cannot be read. Keep the library "
                           "where it was loaded from.", own_path ? own_path : "its file");
  if (!status) status = device_open(made, file, places + N_CONSTANTS);
  if (!status) {
    status = load_constants(made, file, places);
    if (status) {
      if (made->block) device_free(made, made->block);
      device_close(made);
    }
  }
  if (file) fclose(file);
  if (status) {
    free(made);
    return status;
  }
  made->users = 1;
  made->next = all_shared;
  all_shared = made;
  *found = made;
  return TILEWRIGHT_OK;
}

static void drop_shared(struct shared *shared) {
  if (--shared->users) return;
  struct shared **place = &all_shared;
  while (*place != shared) place = &(*place)->next;
  *place = shared->next;
  device_free(shared, shared->block);
  device_close(shared);
  free(shared);
}

/* -- networks ----------------------------------------------------------------------------------- */

/* A record of a network, its lock held; null where there is none, with an error. */
static struct TilewrightNetwork *enter(TilewrightNetwork *given, const char *call, int *status) {
  struct TilewrightNetwork *net = __atomic_load_n(&all_networks, __ATOMIC_ACQUIRE);
  while (net && net != given) net = net->next;
  if (net) {
    pthread_mutex_lock(&net->turn);
    if (net->open) return net;
    pthread_mutex_unlock(&net->turn);
  }
  *status = fail(TILEWRIGHT_INVALID, "%s: the network is %s. tilewright_open gives one.", call,
                 !given ? "null" : net ? "closed" : "none of this library");
  return NULL;
}

static int leave(struct TilewrightNetwork *net, int status) {
  pthread_mutex_unlock(&net->turn);
  return status;
}

/* Whether this thread may use it; takes it where nobody has. */
static int own(struct TilewrightNetwork *net, const char *call, int take) {
  if (net->owned && !pthread_equal(net->owner, pthread_self()))
    return fail(TILEWRIGHT_WRONG_THREAD,
                "%s: another thread uses this network. Open one for each thread, share one with "
                "tilewright_call, or hand it over with tilewright_release.", call);
  if (take) {
    net->owned = 1;
    net->owner = pthread_self();
  }
  return TILEWRIGHT_OK;
}

static int make_instance(struct TilewrightNetwork *net, int plan) {
  struct instance *made = &net->instances[plan];
  const struct plan *p = &PLANS[plan];
  if (made->inputs) return TILEWRIGHT_OK;
  size_t total = rounded(p->copied_bytes), at = 0;
  for (int k = 0; k < p->n_given; k++) total += rounded(p->inputs[p->given[k]].bytes);
  int status = device_allocate(net->shared, total, &made->block);
  if (status) return status;
  made->inputs = calloc((size_t)p->n_inputs + 1, sizeof *made->inputs);
  if (!made->inputs) {
    device_free(net->shared, made->block);
    return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  }
  for (int k = 0; k < p->n_given; k++) {
    made->inputs[p->given[k]] = made->block + at;
    at += rounded(p->inputs[p->given[k]].bytes);
  }
  made->copies = made->block + at;
  for (int k = 0; k < p->n_states; k++) made->inputs[p->states[k].input] = net->states[k];
  memcpy(made->slots, net->slots, sizeof made->slots);
  for (int k = 0; k < p->n_over; k++) made->slots[p->over[k].slot] = made->inputs[p->over[k].input];
  return TILEWRIGHT_OK;
}

static int fill_network(struct TilewrightNetwork *net) {
  const struct plan *first = &PLANS[0]; /* all have the same states */
  size_t total = rounded(COUNTER_BYTES), at = 0;
  for (int k = 0; k < N_SLOTS; k++) total += rounded(SLOT_BYTES[k]);
  for (int k = 0; k < first->n_states; k++)
    total += rounded(first->inputs[first->states[k].input].bytes);
  int status = device_allocate(net->shared, total, &net->block);
  if (status) return status;
  for (int k = 0; k < N_SLOTS; k++) {
    net->slots[k] = net->block + at;
    at += rounded(SLOT_BYTES[k]);
  }
  net->counters = net->block + at;
  at += rounded(COUNTER_BYTES);
  for (int k = 0; k < first->n_states; k++) {
    net->states[k] = net->block + at;
    at += rounded(first->inputs[first->states[k].input].bytes);
  }
  net->plan = 0;
  status = make_instance(net, 0);
  return status ? status : device_attach(net);
}

static void empty_network(struct TilewrightNetwork *net) {
  device_detach(net);
  for (int k = 0; k < COUNT(PLANS); k++) {
    if (net->instances[k].inputs) device_free(net->shared, net->instances[k].block);
    free(net->instances[k].inputs);
    net->instances[k].inputs = NULL;
  }
  if (net->block) device_free(net->shared, net->block);
  net->block = NULL;
  net->open = net->owned = 0;
}

/* A record that is closed, its lock held, or a new one.  Whoever is inside one has it open. */
static struct TilewrightNetwork *free_record(void) {
  for (struct TilewrightNetwork *net = all_networks; net; net = net->next) {
    if (pthread_mutex_trylock(&net->turn)) continue;
    if (!net->open) return net;
    pthread_mutex_unlock(&net->turn);
  }
  struct TilewrightNetwork *net = calloc(1, sizeof *net);
  if (!net) return NULL;
  pthread_mutex_init(&net->turn, NULL);
  pthread_mutex_lock(&net->turn);
  net->next = all_networks;
  __atomic_store_n(&all_networks, net, __ATOMIC_RELEASE);
  return net;
}

#include "states.c"

/* A network that is ready to run.  Whoever calls it holds `loading`. */
static int open_network(int device, int threads, struct TilewrightNetwork **made) {
  struct shared *shared = NULL;
  int status = load_shared(device, &shared);
  if (!status) status = device_threads(threads);
  struct TilewrightNetwork *net = status ? NULL : free_record();
  if (!status && !net) status = fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there is no memory");
  if (net) {
    net->shared = shared;
    status = fill_network(net);
    if (!status) status = begin_anew(net);
    if (status) empty_network(net);
    net->open = !status;
    pthread_mutex_unlock(&net->turn);
  }
  if (status && shared) drop_shared(shared);
  if (!status) *made = net;
  return status;
}

PUBLIC int tilewright_open(int interface, const TilewrightOptions *options,
                           TilewrightNetwork **network) {
  if (interface != TILEWRIGHT_INTERFACE)
    return fail(TILEWRIGHT_WRONG_VERSION,
                "tilewright_open: the program was compiled with tilewright.h of interface %d, the "
                "library has interface %d (Tilewright " VERSION "). Compile it with the header "
                "that `tilewright compile --header` writes beside the library.",
                interface, TILEWRIGHT_INTERFACE);
  if (!network) return fail(TILEWRIGHT_INVALID, "tilewright_open: network is null. Pass &network.");
  *network = NULL;
  int threads = options ? options->threads : 0, device = options ? options->device : 0;
  if (threads < 0 || threads > MAX_THREADS || device < 0)
    return fail(TILEWRIGHT_INVALID,
                "tilewright_open: threads is %d and device %d. Use 0 to %d threads, 0 for as many "
                "as cores, and devices from 0.", threads, device, MAX_THREADS);
  pthread_mutex_lock(&loading);
  int status = open_network(device, threads, network);
  pthread_mutex_unlock(&loading);
  return status;
}

PUBLIC int tilewright_close(TilewrightNetwork *network) {
  int status = TILEWRIGHT_OK;
  if (!network) return TILEWRIGHT_OK;
  pthread_mutex_lock(&loading);
  struct TilewrightNetwork *net = enter(network, "tilewright_close", &status);
  if (net) {
    empty_network(net);
    drop_shared(net->shared);
    leave(net, TILEWRIGHT_OK);
  }
  pthread_mutex_unlock(&loading);
  return status;
}

/* -- what a network has ------------------------------------------------------------------------- */

static int counted(TilewrightNetwork *network, const char *call, int *count, int what) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, call, &status);
  if (!net) return status;
  if (!count)
    return leave(net, fail(TILEWRIGHT_INVALID, "%s: count is null. Pass &count.", call));
  const struct plan *plan = &PLANS[net->plan];
  const int counts[] = {plan->n_given, plan->n_outputs, COUNT(PLANS), plan->n_states};
  *count = counts[what];
  return leave(net, TILEWRIGHT_OK);
}

PUBLIC int tilewright_inputs(TilewrightNetwork *network, int *count) {
  return counted(network, "tilewright_inputs", count, 0);
}

PUBLIC int tilewright_outputs(TilewrightNetwork *network, int *count) {
  return counted(network, "tilewright_outputs", count, 1);
}

PUBLIC int tilewright_shapes(TilewrightNetwork *network, int *count) {
  return counted(network, "tilewright_shapes", count, 2);
}

PUBLIC int tilewright_states(TilewrightNetwork *network, int *count) {
  return counted(network, "tilewright_states", count, 3);
}

static int check_index(const char *call, int index, int count, const char *what) {
  if (index >= 0 && index < count) return TILEWRIGHT_OK;
  if (!count) return fail(TILEWRIGHT_INVALID, "%s(%d): the network has no %s", call, index, what);
  return fail(TILEWRIGHT_INVALID, "%s(%d): the network has %d %s. Use 0 to %d.", call, index, count,
              what, count - 1);
}

/* What the functions of inputs, of outputs and of states are about. */
enum what { INPUT, OUTPUT, STATE };
static const char *const WORDS[] = {"input", "output", "state"};
static const char *const LISTS[] = {"inputs", "outputs", "states"};

static int how_many(const struct plan *plan, enum what what) {
  return what == INPUT ? plan->n_given : what == OUTPUT ? plan->n_outputs : plan->n_states;
}

static const struct spec *spec_of(const struct plan *plan, enum what what, int index) {
  if (what == OUTPUT) return &plan->outputs[index].spec;
  return &plan->inputs[what == INPUT ? plan->given[index] : plan->states[index].input];
}

static Address where_is(const struct TilewrightNetwork *net, enum what what, int index) {
  const struct plan *plan = &PLANS[net->plan];
  if (what == OUTPUT) return address(net, plan->outputs[index].at);
  return net->instances[net->plan].inputs[what == INPUT ? plan->given[index]
                                                        : plan->states[index].input];
}

static int described(TilewrightNetwork *network, const char *call, int index,
                     TilewrightTensor *found, enum what what) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, call, &status);
  if (!net) return status;
  const struct plan *plan = &PLANS[net->plan];
  status = check_index(call, index, how_many(plan, what), LISTS[what]);
  if (!status && !found)
    status = fail(TILEWRIGHT_INVALID, "%s(%d): found is null. Pass &tensor.", call, index);
  if (status) return leave(net, status);
  const struct spec *spec = spec_of(plan, what, index);
  *found = (TilewrightTensor){spec->name, spec->type, spec->rank, spec->shape,
                              (size_t)spec->bytes, where_is(net, what, index)};
  return leave(net, TILEWRIGHT_OK);
}

PUBLIC int tilewright_input(TilewrightNetwork *network, int index, TilewrightTensor *found) {
  return described(network, "tilewright_input", index, found, INPUT);
}

PUBLIC int tilewright_output(TilewrightNetwork *network, int index, TilewrightTensor *found) {
  return described(network, "tilewright_output", index, found, OUTPUT);
}

PUBLIC int tilewright_state(TilewrightNetwork *network, int index, TilewrightTensor *found) {
  return described(network, "tilewright_state", index, found, STATE);
}

static int numbered(TilewrightNetwork *network, const char *call, const char *name, int *index,
                    enum what what) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, call, &status);
  if (!net) return status;
  if (!name || !index)
    return leave(net, fail(TILEWRIGHT_INVALID, "%s: %s is null", call, name ? "index" : "name"));
  const struct plan *plan = &PLANS[net->plan];
  enum what other = what == INPUT ? STATE : INPUT;
  for (int k = 0; k < how_many(plan, what); k++)
    if (!strcmp(spec_of(plan, what, k)->name, name)) {
      *index = k;
      return leave(net, TILEWRIGHT_OK);
    }
  for (int k = 0; k < how_many(plan, other); k++)
    if (!strcmp(spec_of(plan, other, k)->name, name))
      return leave(net, fail(TILEWRIGHT_INVALID, "%s(\"%.200s\"): that is an %s of the network. "
                             "Write tilewright_%s_index.", call, name,
                             other == STATE ? "own state" : "input", WORDS[other]));
  return leave(net, fail(TILEWRIGHT_INVALID, "%s(\"%.200s\"): the network has no such %s. "
                         "tilewright_%s tells the names of its %d.", call, name, WORDS[what],
                         WORDS[what], how_many(plan, what)));
}

PUBLIC int tilewright_input_index(TilewrightNetwork *network, const char *name, int *index) {
  return numbered(network, "tilewright_input_index", name, index, INPUT);
}

PUBLIC int tilewright_state_index(TilewrightNetwork *network, const char *name, int *index) {
  return numbered(network, "tilewright_state_index", name, index, STATE);
}

PUBLIC int tilewright_use_shapes(TilewrightNetwork *network, int index) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_use_shapes", &status);
  if (!net) return status;
  status = check_index("tilewright_use_shapes", index, COUNT(PLANS), "sets of shapes");
  if (!status) status = own(net, "tilewright_use_shapes", 1);
  if (!status) status = make_instance(net, index);
  if (!status) net->plan = index;
  return leave(net, status);
}

/* -- runs --------------------------------------------------------------------------------------- */

static const char *const TYPE_NAMES[] = {
    "", "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool"};

PUBLIC const char *tilewright_type_name(int type) {
  return type > 0 && type < COUNT(TYPE_NAMES) ? TYPE_NAMES[type] : "";
}

/* "float32[1, 3]", cut off where it is too long. */
static void tell(char *text, size_t size, int type, int rank, const int64_t *shape) {
  const char *name = tilewright_type_name(type);
  size_t at = (size_t)snprintf(text, size, "%s[", *name ? name : "no type");
  for (int k = 0; k < rank && at < size; k++)
    at += (size_t)snprintf(text + at, size - at, "%s%lld", k ? ", " : "", (long long)shape[k]);
  if (at < size) snprintf(text + at, size - at, "]");
}

static int fits(const struct spec *spec, const TilewrightTensor *value) {
  if (value->type != spec->type || value->rank != spec->rank) return 0;
  for (int k = 0; k < spec->rank; k++)
    if (value->shape[k] != spec->shape[k]) return 0;
  return 1;
}

/* Whether a tensor can be copied to an input, or from an output. */
static int check(struct TilewrightNetwork *net, const char *call, int index, enum what kind,
                 const TilewrightTensor *value) {
  const struct plan *plan = &PLANS[net->plan];
  const struct spec *spec = spec_of(plan, kind, index);
  const char *what = WORDS[kind];
  if (!value) return fail(TILEWRIGHT_INVALID, "%s(%d): the tensor is null", call, index);
  if (value->rank < 0 || (value->rank && !value->shape))
    return fail(TILEWRIGHT_INVALID, "%s(%d): the tensor has no shape. tilewright_%s tells it.",
                call, index, what);
  if (!fits(spec, value)) {
    char given[200], wanted[200];
    int other = 0, found = -1;
    tell(given, sizeof given, value->type, value->rank, value->shape);
    tell(wanted, sizeof wanted, spec->type, spec->rank, spec->shape);
    for (; kind == INPUT && other < COUNT(PLANS); other++)
      if (fits(spec_of(&PLANS[other], INPUT, index), value)) found = other;
    if (found >= 0)
      return fail(TILEWRIGHT_INVALID,
                  "%s(%d): the tensor is %s, and the shapes in use have %s %.200s: %s. Write "
                  "tilewright_use_shapes(network, %d) first.",
                  call, index, given, what, spec->name, wanted, found);
    return fail(TILEWRIGHT_INVALID,
                "%s(%d): the tensor is %s, %s %.200s is %s. Give it that shape and type, or build "
                "the network for those.", call, index, given, what, spec->name, wanted);
  }
  if (value->bytes != spec->bytes)
    return fail(TILEWRIGHT_INVALID, "%s(%d): bytes is %llu, %s %.200s has %llu", call, index,
                (unsigned long long)value->bytes, what, spec->name,
                (unsigned long long)spec->bytes);
  if (!value->data && spec->bytes)
    return fail(TILEWRIGHT_INVALID, "%s(%d): data is null", call, index);
  return kind == INPUT ? check_bounds(net, call, plan->given[index], value->data) : TILEWRIGHT_OK;
}

static int write_to(struct TilewrightNetwork *net, enum what what, int index,
                    const TilewrightTensor *value) {
  Address to = where_is(net, what, index);
  return (void *)to == value->data ? TILEWRIGHT_OK
                                   : device_write(net, to, value->data, value->bytes);
}

static int read_from(struct TilewrightNetwork *net, enum what what, int index,
                     const TilewrightTensor *value) {
  return device_read(net, value->data, where_is(net, what, index), value->bytes);
}

/* Copy a value in or out, by the thread that has the network. */
static int moved(TilewrightNetwork *network, const char *call, int index, enum what what,
                 const TilewrightTensor *value,
                 int (*move)(struct TilewrightNetwork *, enum what, int,
                             const TilewrightTensor *)) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, call, &status);
  if (!net) return status;
  status = check_index(call, index, how_many(&PLANS[net->plan], what), LISTS[what]);
  if (!status) status = check(net, call, index, what, value);
  if (!status) status = own(net, call, 1);
  return leave(net, status ? status : move(net, what, index, value));
}

PUBLIC int tilewright_set_input(TilewrightNetwork *network, int index,
                                const TilewrightTensor *value) {
  return moved(network, "tilewright_set_input", index, INPUT, value, write_to);
}

PUBLIC int tilewright_get_output(TilewrightNetwork *network, int index,
                                 const TilewrightTensor *value) {
  return moved(network, "tilewright_get_output", index, OUTPUT, value, read_from);
}

PUBLIC int tilewright_set_state(TilewrightNetwork *network, int index,
                                const TilewrightTensor *value) {
  return moved(network, "tilewright_set_state", index, STATE, value, write_to);
}

PUBLIC int tilewright_get_state(TilewrightNetwork *network, int index,
                                const TilewrightTensor *value) {
  return moved(network, "tilewright_get_state", index, STATE, value, read_from);
}

PUBLIC int tilewright_run(TilewrightNetwork *network) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_run", &status);
  if (!net) return status;
  status = own(net, "tilewright_run", 1);
  if (!status) status = check_inputs(net);
  return leave(net, status ? status : device_run(net));
}

PUBLIC int tilewright_call(TilewrightNetwork *network, const TilewrightTensor *inputs,
                           int n_inputs, const TilewrightTensor *outputs, int n_outputs) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_call", &status);
  if (!net) return status;
  const struct plan *plan = &PLANS[net->plan];
  if (n_inputs != plan->n_given || n_outputs != plan->n_outputs)
    status = fail(TILEWRIGHT_INVALID,
                  "tilewright_call: %d inputs and %d outputs are given, the network has %d and %d",
                  n_inputs, n_outputs, plan->n_given, plan->n_outputs);
  else if ((n_inputs && !inputs) || (n_outputs && !outputs))
    status = fail(TILEWRIGHT_INVALID, "tilewright_call: %s is null",
                  n_inputs && !inputs ? "inputs" : "outputs");
  for (int k = 0; k < n_inputs && !status; k++)
    status = check(net, "tilewright_call: input", k, INPUT, &inputs[k]);
  for (int k = 0; k < n_outputs && !status; k++)
    status = check(net, "tilewright_call: output", k, OUTPUT, &outputs[k]);
  if (!status) status = own(net, "tilewright_call", plan->n_states > 0);
  for (int k = 0; k < n_inputs && !status; k++) status = write_to(net, INPUT, k, &inputs[k]);
  if (!status) status = device_run(net);
  for (int k = 0; k < n_outputs && !status; k++) status = read_from(net, OUTPUT, k, &outputs[k]);
  return leave(net, status);
}

PUBLIC int tilewright_set_stream(TilewrightNetwork *network, void *stream) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_set_stream", &status);
  if (!net) return status;
  status = own(net, "tilewright_set_stream", 1);
  return leave(net, status ? status : device_stream(net, stream));
}

PUBLIC int tilewright_synchronize(TilewrightNetwork *network) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_synchronize", &status);
  return net ? leave(net, device_synchronize(net)) : status;
}

PUBLIC int tilewright_release(TilewrightNetwork *network) {
  int status = TILEWRIGHT_OK;
  struct TilewrightNetwork *net = enter(network, "tilewright_release", &status);
  if (!net) return status;
  status = own(net, "tilewright_release", 0);
  if (!status) net->owned = 0;
  return leave(net, status);
}

/* A network with the same states, on the same device.  Whoever calls it holds `loading`. */
static int forked(struct TilewrightNetwork *net, TilewrightNetwork **other) {
  struct TilewrightNetwork *made = NULL;
  int status = open_network(net->shared->device, 0, &made);
  if (status) return status;
  pthread_mutex_lock(&made->turn);
  status = make_instance(made, net->plan);
  if (!status) made->plan = net->plan;
  if (!status) status = device_synchronize(net);
  for (int k = 0; k < PLANS[0].n_states && !status; k++)
    status = device_copy(made, made->states[k], net->states[k],
                         PLANS[0].inputs[PLANS[0].states[k].input].bytes, NULL);
  if (!status) status = device_synchronize(made);
  if (status) {
    empty_network(made);
    drop_shared(made->shared);
  } else {
    *other = made;
  }
  return leave(made, status);
}

PUBLIC int tilewright_fork(TilewrightNetwork *network, TilewrightNetwork **other) {
  int status = TILEWRIGHT_OK;
  if (!other) return fail(TILEWRIGHT_INVALID, "tilewright_fork: other is null. Pass &other.");
  *other = NULL;
  pthread_mutex_lock(&loading);
  struct TilewrightNetwork *net = enter(network, "tilewright_fork", &status);
  if (net) {
    status = own(net, "tilewright_fork", 0);
    status = leave(net, status ? status : forked(net, other));
  }
  pthread_mutex_unlock(&loading);
  return status;
}

PUBLIC int tilewright_set_threads(int threads) {
  if (threads >= 0 && threads <= MAX_THREADS) {
    pthread_mutex_lock(&loading);
    int status = device_threads(threads ? threads : -1);
    pthread_mutex_unlock(&loading);
    return status;
  }
  return fail(TILEWRIGHT_INVALID, "tilewright_set_threads(%d): use 1 to %d, or 0 for as many as "
              "cores", threads, MAX_THREADS);
}

PUBLIC const char *tilewright_version(void) { return VERSION; }
PUBLIC int tilewright_interface(void) { return TILEWRIGHT_INTERFACE; }
PUBLIC const char *tilewright_target(void) { return TARGET; }
PUBLIC const char *tilewright_error(void) { return error_text; }

static const TilewrightFunctions FUNCTIONS = {
    tilewright_version, tilewright_target, tilewright_error, tilewright_type_name,
    tilewright_open, tilewright_close, tilewright_inputs, tilewright_outputs,
    tilewright_input, tilewright_output, tilewright_input_index, tilewright_shapes,
    tilewright_use_shapes, tilewright_set_input, tilewright_run, tilewright_get_output,
    tilewright_call, tilewright_set_stream, tilewright_synchronize, tilewright_set_threads,
    tilewright_release, tilewright_bounds, tilewright_states, tilewright_state,
    tilewright_state_index, tilewright_set_state, tilewright_get_state, tilewright_reset,
    tilewright_fork};

PUBLIC const TilewrightFunctions *tilewright_functions(int interface) {
  if (interface == TILEWRIGHT_INTERFACE) return &FUNCTIONS;
  TilewrightNetwork *none;
  tilewright_open(interface, NULL, &none); /* says why not */
  return NULL;
}
