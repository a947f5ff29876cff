/* The C and C++ interface of a compiled network (`tilewright compile NET -o net.so`).
 *
 * A library is one network.  Link a program with it (`cc main.c net.so`), or load several with
 * dlopen and ask each for its functions (`tilewright_functions`; `tilewright::Network` does so).
 * No Python and no compiler is needed where it runs.
 *
 * Functions return TILEWRIGHT_OK or another status, and then `tilewright_error()` says why.  No
 * argument makes them crash, but for pointers to memory that is not there.
 *
 * Threads.  A network belongs to the thread that first sets an input, runs or reads an output of
 * it; other threads get TILEWRIGHT_WRONG_THREAD until `tilewright_release`.  `tilewright_call` does
 * all three at once and belongs to nobody: threads that share a network so take turns.  Networks
 * that were opened apart run at the same time, and share code and weights.
 *
 * States, such as caches and a position, stay with a network from run to run.  They are neither
 * inputs nor outputs; a network that has them belongs to one thread with `tilewright_call`, too.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

/* Of what this header says.  A library refuses a program that was compiled with another one. */
#define TILEWRIGHT_INTERFACE 2

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TILEWRIGHT_OK = 0,
  TILEWRIGHT_INVALID = 1,       /* an argument is null, out of range, of another shape or type */
  TILEWRIGHT_WRONG_VERSION = 2, /* header and library are of different interfaces */
  TILEWRIGHT_WRONG_THREAD = 3,  /* another thread uses the network */
  TILEWRIGHT_NO_MEMORY = 4,
  TILEWRIGHT_FILE = 5,  /* the file of the library cannot be read, or is damaged */
  TILEWRIGHT_DEVICE = 6 /* the device is not there, or failed, or cannot run this code */
};

/* Element types.  float16 and bfloat16 are 2 bytes of memory, bool is one. */
enum {
  TILEWRIGHT_FLOAT32 = 1,
  TILEWRIGHT_FLOAT64 = 2,
  TILEWRIGHT_FLOAT16 = 3,
  TILEWRIGHT_BFLOAT16 = 4,
  TILEWRIGHT_INT8 = 5,
  TILEWRIGHT_INT16 = 6,
  TILEWRIGHT_INT32 = 7,
  TILEWRIGHT_INT64 = 8,
  TILEWRIGHT_UINT8 = 9,
  TILEWRIGHT_UINT16 = 10,
  TILEWRIGHT_UINT32 = 11,
  TILEWRIGHT_UINT64 = 12,
  TILEWRIGHT_BOOL = 13
};

typedef struct TilewrightNetwork TilewrightNetwork;

/* An input or an output: row-major, dense, on a host or a device.
 *
 * What `tilewright_input` and `tilewright_output` fill in may be handed back with another `data`.
 * Their `data` is the network's own memory (a device's address where the network runs on one):
 * what is written there need not be set, what is read there need not be got.  It stays where it is
 * until the network is closed. */
typedef struct TilewrightTensor {
  const char *name; /* UTF-8; of no interest to functions that take a tensor */
  int type;
  int rank;
  const int64_t *shape;
  size_t bytes; /* at `data` */
  void *data;
} TilewrightTensor;

/* threads: of parallel loops on a CPU, for all networks of this library; 0: as many as cores
 * device:  number of the GPU */
typedef struct TilewrightOptions {
  int threads;
  int device;
} TilewrightOptions;

const char *tilewright_version(void);  /* of the Tilewright that wrote the library */
int tilewright_interface(void);        /* of the library: TILEWRIGHT_INTERFACE of its header */
const char *tilewright_target(void);   /* what the network was built for */
const char *tilewright_error(void);    /* of this thread's last call that failed; never null */
const char *tilewright_type_name(int type); /* "float32", ...; "" for what is no type */

/* Read the weights and make a network ready to run; its inputs are zeros.
 * interface: TILEWRIGHT_INTERFACE; options: may be null */
int tilewright_open(int interface, const TilewrightOptions *options, TilewrightNetwork **network);
int tilewright_close(TilewrightNetwork *network); /* null is nothing to close */

int tilewright_inputs(TilewrightNetwork *network, int *count);
int tilewright_outputs(TilewrightNetwork *network, int *count);
int tilewright_input(TilewrightNetwork *network, int index, TilewrightTensor *found);
int tilewright_output(TilewrightNetwork *network, int index, TilewrightTensor *found);
int tilewright_input_index(TilewrightNetwork *network, const char *name, int *index);
/* The least and the greatest whole number that an input may hold, such as positions of a cache;
 * INT64_MIN and INT64_MAX where there are no such.  Others are refused before anything is written
 * or run; but what a program writes to the memory of a network on a GPU by itself is not looked
 * at. */
int tilewright_bounds(TilewrightNetwork *network, int index, int64_t *least, int64_t *most);

/* A library for several sets of shapes (`--batch 1,8`) runs the first until another is used.
 * Each has inputs and outputs of its own. */
int tilewright_shapes(TilewrightNetwork *network, int *count);
int tilewright_use_shapes(TilewrightNetwork *network, int index);

/* Copy an input in.  With CUDA `data` may be memory of the host or of the device, and the copy is
 * enqueued on the stream: memory that was pinned stays as it is until the stream has come there. */
int tilewright_set_input(TilewrightNetwork *network, int index, const TilewrightTensor *value);
/* Compute the outputs.  With CUDA this enqueues on the stream, as one graph. */
int tilewright_run(TilewrightNetwork *network);
/* Copy an output out.  It is there on return, unless `data` is a device's: then it is enqueued. */
int tilewright_get_output(TilewrightNetwork *network, int index, const TilewrightTensor *value);

/* Set all inputs, run, get all outputs; threads may share a network so.
 * inputs, outputs: as many as the network has */
int tilewright_call(TilewrightNetwork *network, const TilewrightTensor *inputs, int n_inputs,
                    const TilewrightTensor *outputs, int n_outputs);

/* States: all sets of shapes have the same ones.  `data` of `tilewright_state` is the network's own
 * memory, as of an input.  Saving them is to get each, going on from there to set each. */
int tilewright_states(TilewrightNetwork *network, int *count);
int tilewright_state(TilewrightNetwork *network, int index, TilewrightTensor *found);
int tilewright_state_index(TilewrightNetwork *network, const char *name, int *index);
int tilewright_set_state(TilewrightNetwork *network, int index, const TilewrightTensor *value);
int tilewright_get_state(TilewrightNetwork *network, int index, const TilewrightTensor *value);
int tilewright_reset(TilewrightNetwork *network); /* let all states begin anew */
/* Another network with the same code and weights, which goes on from the same states by itself. */
int tilewright_fork(TilewrightNetwork *network, TilewrightNetwork **other);

/* CUDA: enqueue on this cudaStream_t (CUstream) from now on, behind what is on the one before,
 * which must still exist; null: a stream of the network's own.  A CPU has none. */
int tilewright_set_stream(TilewrightNetwork *network, void *stream);
int tilewright_synchronize(TilewrightNetwork *network); /* wait for all that was enqueued */
int tilewright_set_threads(int threads);                /* as of TilewrightOptions */
int tilewright_release(TilewrightNetwork *network);     /* the next thread that uses it owns it */

/* The same functions, for programs that load several libraries.  Null, with an error, for another
 * interface. */
typedef struct TilewrightFunctions {
  const char *(*version)(void);
  const char *(*target)(void);
  const char *(*error)(void);
  const char *(*type_name)(int);
  int (*open)(int, const TilewrightOptions *, TilewrightNetwork **);
  int (*close)(TilewrightNetwork *);
  int (*inputs)(TilewrightNetwork *, int *);
  int (*outputs)(TilewrightNetwork *, int *);
  int (*input)(TilewrightNetwork *, int, TilewrightTensor *);
  int (*output)(TilewrightNetwork *, int, TilewrightTensor *);
  int (*input_index)(TilewrightNetwork *, const char *, int *);
  int (*shapes)(TilewrightNetwork *, int *);
  int (*use_shapes)(TilewrightNetwork *, int);
  int (*set_input)(TilewrightNetwork *, int, const TilewrightTensor *);
  int (*run)(TilewrightNetwork *);
  int (*get_output)(TilewrightNetwork *, int, const TilewrightTensor *);
  int (*call)(TilewrightNetwork *, const TilewrightTensor *, int, const TilewrightTensor *, int);
  int (*set_stream)(TilewrightNetwork *, void *);
  int (*synchronize)(TilewrightNetwork *);
  int (*set_threads)(int);
  int (*release)(TilewrightNetwork *);
  int (*bounds)(TilewrightNetwork *, int, int64_t *, int64_t *);
  int (*states)(TilewrightNetwork *, int *);
  int (*state)(TilewrightNetwork *, int, TilewrightTensor *);
  int (*state_index)(TilewrightNetwork *, const char *, int *);
  int (*set_state)(TilewrightNetwork *, int, const TilewrightTensor *);
  int (*get_state)(TilewrightNetwork *, int, const TilewrightTensor *);
  int (*reset)(TilewrightNetwork *);
  int (*fork)(TilewrightNetwork *, TilewrightNetwork **);
} TilewrightFunctions;

const TilewrightFunctions *tilewright_functions(int interface);

#ifdef __cplusplus
}
#endif

#if defined(__cplusplus) && !defined(TILEWRIGHT_ONLY_C)
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace tilewright {

struct Error : std::runtime_error {
  int status;
  Error(int status, const std::string &text) : std::runtime_error(text), status(status) {}
};

/* A network of a library that is loaded by its path, so that a program may have several.  Functions
 * throw Error.  Members of `functions` that have no method here are called with `get()`. */
class Network {
 public:
  explicit Network(const std::string &path, const TilewrightOptions &options = TilewrightOptions())
      : functions(loaded(path)), network_(nullptr) {
    check(functions->open(TILEWRIGHT_INTERFACE, &options, &network_));
  }
  ~Network() {
    if (network_) functions->close(network_);
  }
  Network(Network &&other) noexcept : functions(other.functions), network_(other.network_) {
    other.network_ = nullptr;
  }
  Network(const Network &) = delete;
  Network &operator=(const Network &) = delete;

  int inputs() const { return counted(functions->inputs); }
  int outputs() const { return counted(functions->outputs); }
  TilewrightTensor input(int index) const { return told(functions->input, index); }
  TilewrightTensor output(int index) const { return told(functions->output, index); }
  void use_shapes(int index) { check(functions->use_shapes(network_, index)); }
  /* data: of the shape and type that `input(index)` tells */
  void set_input(int index, const void *data) {
    TilewrightTensor value = input(index);
    value.data = const_cast<void *>(data);
    check(functions->set_input(network_, index, &value));
  }
  void get_output(int index, void *data) {
    TilewrightTensor value = output(index);
    value.data = data;
    check(functions->get_output(network_, index, &value));
  }
  int states() const { return counted(functions->states); }
  TilewrightTensor state(int index) const { return told(functions->state, index); }
  void set_state(int index, const void *data) {
    TilewrightTensor value = state(index);
    value.data = const_cast<void *>(data);
    check(functions->set_state(network_, index, &value));
  }
  void get_state(int index, void *data) {
    TilewrightTensor value = state(index);
    value.data = data;
    check(functions->get_state(network_, index, &value));
  }
  void reset() { check(functions->reset(network_)); }
  Network fork() {
    Network other(functions);
    check(functions->fork(network_, &other.network_));
    return other;
  }
  void run() { check(functions->run(network_)); }
  void set_stream(void *stream) { check(functions->set_stream(network_, stream)); }
  void synchronize() { check(functions->synchronize(network_)); }
  TilewrightNetwork *get() const { return network_; }

  void check(int status) const {
    if (status != TILEWRIGHT_OK) throw Error(status, functions->error());
  }

  const TilewrightFunctions *const functions;

 private:
  explicit Network(const TilewrightFunctions *same) : functions(same), network_(nullptr) {}
  static const TilewrightFunctions *loaded(const std::string &path) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "tilewright_functions") : nullptr;
    if (!found) {
      const char *why = dlerror();
      throw Error(TILEWRIGHT_FILE, why ? why : path + ": no library of a network");
    }
    auto ask = reinterpret_cast<const TilewrightFunctions *(*)(int)>(found);
    if (const TilewrightFunctions *functions = ask(TILEWRIGHT_INTERFACE)) return functions;
    auto why = reinterpret_cast<const char *(*)()>(dlsym(library, "tilewright_error"));
    throw Error(TILEWRIGHT_WRONG_VERSION, why ? why() : "another interface");
  }
  int counted(int (*ask)(TilewrightNetwork *, int *)) const {
    int count = 0;
    check(ask(network_, &count));
    return count;
  }
  TilewrightTensor told(int (*ask)(TilewrightNetwork *, int, TilewrightTensor *), int k) const {
    TilewrightTensor found;
    check(ask(network_, k, &found));
    return found;
  }

  TilewrightNetwork *network_;
};

} /* namespace tilewright */
#endif

#endif
