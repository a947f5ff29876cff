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

/* Where an argument of a kernel lies: see `runtime/network/plan.py`; or a copy that is made after a
 * run, before states go on. */
enum { AT_INPUT, AT_CONSTANT, AT_SLOT, AT_COUNTERS, AT_COPY };
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

/* A state: an input that no caller gives.  next: what a run made of it, where that does not lie in
 * its own memory; initial: the constant that it begins as, -1: zeros */
struct state {
  int input, initial, is_in_place;
  struct operand next;
};

/* Bytes that are copied behind the kernels; to: within the copies of a plan. */
struct copied {
  struct operand from;
  uint64_t to, bytes;
};

/* A slot that is the memory of a state. */
struct over {
  int slot, input;
};

/* What whole numbers of an input may be. */
struct bound {
  int input;
  int64_t least, most;
};

/* The network for one set of shapes.  given: the inputs that are no states; outputs: without those
 * that states become; run: on a CPU, calls its kernels in order */
struct plan {
  int n_inputs, n_given, n_outputs, n_states, n_copied, n_over, n_bounds;
  const struct spec *inputs;
  const int *given;
  const struct result *outputs;
  const struct state *states;
  const struct copied *copied;
  const struct over *over;
  const struct bound *bounds;
  uint64_t copied_bytes;
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
