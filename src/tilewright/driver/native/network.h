/* What the generated part of a network's library says of it.  `c_interface.py` writes the tables,
 * includes this before them, and network.c behind them. */
#include <stddef.h>
#include <stdint.h>

#include "tilewright.h"

typedef unsigned char *Address; /* of a host's memory, or a device's */

/* An input or output as users see it. */
struct spec {
  const char *name;
  int type, rank;
  const int64_t *shape;
  uint64_t bytes;
};

/* Where an argument of a kernel lies: see `runtime/network/plan.py`. */
enum { AT_INPUT, AT_CONSTANT, AT_SLOT, AT_COUNTERS };
struct operand {
  int kind, index;
  uint64_t offset;
};

struct result {
  struct spec spec;
  struct operand at;
};

/* CUDA: a run of a kernel, and what the kernel takes beside its arguments. */
struct launch {
  int kernel, n_args;
  const struct operand *args;
};

/* How a copy engine sees an argument; innermost dimension first, strides in bytes. */
struct tensor_map {
  int argument, type, rank, swizzle;
  uint64_t shape[5], strides[5];
  uint32_t box[5], steps[5];
};

struct kernel {
  int code;
  const char *name;
  unsigned grid[3], block[3], shared_bytes;
  int n_maps;
  const struct tensor_map *maps;
};

/* The network for one set of shapes.  run: on a CPU, calls its kernels in order */
struct plan {
  int n_inputs, n_outputs;
  const struct spec *inputs;
  const struct result *outputs;
  void (*run)(Address const *inputs, Address const *constants, Address const *slots,
              Address counters);
  int n_launches;
  const struct launch *launches;
};

/* Where in the library's file something begins, and a sum of its words. */
struct place {
  uint64_t offset, sum;
};

/* What code needs of the processor.  bit: of the capabilities that Linux tells, or -1; then flags:
 * of /proc/cpuinfo, without marks, parted and ended by blanks */
struct need {
  const char *name;
  int bit;
  const char *flags;
};
