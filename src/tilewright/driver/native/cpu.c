/* A network on the CPU: its plan calls kernels, which run their loops on the library's threads. */
#ifdef __linux__
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#endif
#include <unistd.h>

#define LARGE (4u << 20)      /* memory from this size on has large pages, where there are any */
#define LARGE_PAGE (2u << 20)

extern void tilewright_pool_limit(int32_t threads); /* `runtime/drivers/cpu_pool.py` */

/* Whether the processor has an instruction, as Linux tells; yes where it tells nothing. */
static int has(const struct need *need, const char *flags) {
#ifdef __linux__
  if (need->bit >= 0) {
    uint64_t told = (uint64_t)getauxval(16) | (uint64_t)getauxval(26) << 32;
    return !told || told >> need->bit & 1;
  }
#endif
  for (const char *flag = need->flags; *flags && *flag;) {
    char word[66] = " ";
    size_t n = strcspn(flag, " ");
    snprintf(word, sizeof word, " %.*s ", (int)n, flag);
    if (!strstr(flags, word)) return 0;
    flag += n + (flag[n] == ' ');
  }
  return 1;
}

/* The first line of flags, each between blanks and without marks; "" where there is none. */
static void read_flags(char *flags, size_t size) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  *flags = 0;
  while (file && fgets(flags, (int)size - 1, file) && strncmp(flags, "flags", 5)) *flags = 0;
  if (file) fclose(file);
  char *to = flags;
  for (const char *from = flags; *from; from++)
    if (!strchr("._-", *from)) *to++ = *from == '\n' || *from == '\t' ? ' ' : *from;
  *to = 0;
}

static int check_processor(void) {
  char flags[16384], lacks[400] = "";
  read_flags(flags, sizeof flags);
  for (int k = 0; k < N_NEEDS; k++)
    if (!has(&NEEDS[k], flags) && strlen(lacks) + strlen(NEEDS[k].name) + 3 < sizeof lacks)
      strcat(strcat(lacks, *lacks ? ", " : ""), NEEDS[k].name);
  if (!*lacks) return TILEWRIGHT_OK;
  return fail(TILEWRIGHT_DEVICE,
              "tilewright_open: the library was compiled for a processor with %s, which this one "
              "lacks. Compile the network for this one: -mcpu of its target.", lacks);
}

static int device_open(struct shared *shared, FILE *file, const struct place *codes) {
  (void)file, (void)codes;
  if (shared->device)
    return fail(TILEWRIGHT_INVALID, "tilewright_open: device is %d, and all cores are one. Use 0.",
                shared->device);
  return check_processor();
}

static void device_close(struct shared *shared) { (void)shared; }

static int device_allocate(struct shared *shared, size_t bytes, Address *made) {
  void *found = NULL;
  (void)shared;
  size_t size = bytes ? bytes : 1;
  if (posix_memalign(&found, bytes >= LARGE ? LARGE_PAGE : ALIGNMENT, size))
    return fail(TILEWRIGHT_NO_MEMORY, "tilewright_open: there are no %llu bytes of memory",
                (unsigned long long)bytes);
#ifdef MADV_HUGEPAGE
  if (bytes >= LARGE) madvise(found, size, MADV_HUGEPAGE);
#endif
  memset(found, 0, size);
  *made = found;
  return TILEWRIGHT_OK;
}

static void device_free(struct shared *shared, Address block) {
  (void)shared;
  free(block);
}

static int device_fill(struct shared *shared, Address at, FILE *file, struct place place,
                       size_t bytes) {
  (void)shared;
  return read_place(file, place, at, bytes);
}

static int device_attach(struct TilewrightNetwork *net) {
  (void)net;
  return TILEWRIGHT_OK;
}

static void device_detach(struct TilewrightNetwork *net) { (void)net; }

static int device_write(struct TilewrightNetwork *net, Address to, const void *from,
                        size_t bytes) {
  (void)net;
  memmove(to, from, bytes);
  return TILEWRIGHT_OK;
}

static int device_read(struct TilewrightNetwork *net, void *to, Address from, size_t bytes) {
  (void)net;
  memmove(to, from, bytes);
  return TILEWRIGHT_OK;
}

static int device_seen(struct TilewrightNetwork *net, const void *data, size_t bytes,
                       const void **seen, void **copy) {
  (void)net, (void)bytes, (void)copy;
  *seen = data;
  return TILEWRIGHT_OK;
}

static int device_copy(struct TilewrightNetwork *net, Address to, Address from, size_t bytes,
                       void *stream) {
  (void)net, (void)stream;
  if (from) memmove(to, from, bytes);
  else memset(to, 0, bytes);
  return TILEWRIGHT_OK;
}

static int device_run(struct TilewrightNetwork *net) {
  const struct instance *held = &net->instances[net->plan];
  PLANS[net->plan].run(held->inputs, net->shared->constants, held->slots, net->counters);
  return bring_forward(net, NULL);
}

static int device_stream(struct TilewrightNetwork *net, void *stream) {
  (void)net;
  if (!stream) return TILEWRIGHT_OK;
  return fail(TILEWRIGHT_INVALID, "tilewright_set_stream: the network runs on the CPU, which has "
              "no streams. Leave the call out.");
}

static int device_synchronize(struct TilewrightNetwork *net) {
  (void)net;
  return TILEWRIGHT_OK;
}

static int cores(void) {
#ifdef CPU_COUNT
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

/* threads: 0: what was said before, else -1, as many as cores */
static int device_threads(int threads) {
  static int said;
  if (!threads && said) return TILEWRIGHT_OK;
  said = 1;
  int limit = threads > 0 ? threads : cores();
  tilewright_pool_limit(limit < MAX_THREADS ? limit : MAX_THREADS);
  return TILEWRIGHT_OK;
}
