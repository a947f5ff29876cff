"""What calls of a network from C cost beside its kernels.

`python benchmarks/bench_c_calls.py` prints nanoseconds of CPU time for the smallest network there
is: a run (`tilewright_run`), a call that checks and copies (`tilewright_call`), and its kernel
alone.  With `--network mlp --target cuda` it prints microseconds of runs back to back, and of runs
each of which is waited for, beside the sum of the kernels as `profile` has it.  It needs `cc`.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import tilewright as tw
from tilewright.driver.c_interface import HEADER
from tilewright_tvm import relay

_SECONDS = 0.2  # of each measurement
COMMON = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "tilewright.h"
#define TIMED(ns, runs, call) \
  { double t = now(); for (int k = 0; k < runs; k++) { call; } end; ns = (now() - t) / runs; }
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(void) {
  TilewrightNetwork *network; TilewrightTensor x, y; TilewrightOptions options = {THREADS, 0};
  if (tilewright_open(TILEWRIGHT_INTERFACE, &options, &network) ||
      tilewright_input(network, 0, &x) || tilewright_output(network, 0, &y))
    return puts(tilewright_error()), 1;
  TilewrightTensor given = x, found = y;
  given.data = calloc(1, x.bytes), found.data = calloc(1, y.bytes);
  if (tilewright_call(network, &given, 1, &found, 1)) return puts(tilewright_error()), 1;
"""
SMALLEST = r"""
#define CLOCK CLOCK_PROCESS_CPUTIME_ID
#define THREADS 1
#define end
extern void KERNEL(const void *, void *);
COMMON
  for (int round = 0; round < 3; round++) {
    double run, call, kernel;
    TIMED(run, 2000000, tilewright_run(network))
    TIMED(call, 2000000, tilewright_call(network, &given, 1, &found, 1))
    TIMED(kernel, 2000000, KERNEL(x.data, y.data))
    printf("run %.1f ns, call %.1f ns, kernel %.1f ns\n", run, call, kernel);
  }
}
"""
NETWORK = r"""
#define CLOCK CLOCK_MONOTONIC
#define THREADS 0 /* one for each core */
#define end tilewright_synchronize(network)
COMMON
  for (int round = 0; round < 3; round++) {
    double many, each, call;
    TIMED(many, RUNS, tilewright_run(network))
    TIMED(each, RUNS, tilewright_run(network); tilewright_synchronize(network))
    TIMED(call, RUNS, tilewright_call(network, &given, 1, &found, 1))
    printf("back to back %.2f us, waited for %.2f us, with copies of the host's memory %.2f us\n",
           many * 1e-3, each * 1e-3, call * 1e-3);
  }
}
"""


def run(program: str, folder: Path, *options: str) -> None:
    """Compile a program with the network of the folder, and run it."""
    (folder / "main.c").write_text(program.replace("COMMON", COMMON))
    command = ["cc", "-O2", *options, f"-I{HEADER.parent}", folder / "main.c", folder / "net.so"]
    subprocess.run([*command, "-o", folder / "main"], check=True)
    subprocess.run([folder / "main"], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--network", help="default: three numbers plus three")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--target", default="llvm")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if args.network is None:
            x = relay.var("x", shape=(3,))
            library = relay.build(relay.Function([x], x + x), "llvm")
            library.export_library(folder / "net.so")
            run(SMALLEST, folder, f"-DKERNEL={library.kernels[0].source.kernels[0].name}")
            return
        network = tw.compile(tw.load(args.network, dtype=args.dtype), target=args.target)
        network.save(folder / "net.so")
        told = network.profile()
        print(f"{len(told)} launches: sum {told.kernel_seconds * 1e6:.2f} us, "
              f"a run {told.seconds * 1e6:.2f} us, in Python", flush=True)  # fmt: skip
        runs = max(2, min(5000, int(_SECONDS / told.seconds)))
        run(NETWORK, folder, f"-DRUNS={runs}")


if __name__ == "__main__":
    main()
