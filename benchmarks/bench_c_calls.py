"""What calls of a network from C cost beside its kernels: CPU time of the smallest network.

`python benchmarks/bench_c_calls.py` prints nanoseconds a run (`tilewright_run`), a call that checks
and copies (`tilewright_call`), and its kernel alone.  It needs a C compiler.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from tilewright.driver.c_interface import HEADER
from tilewright_tvm import relay

PROGRAM = r"""
#include <stdio.h>
#include <time.h>
#include "tilewright.h"
#define RUNS 2000000
#define TIMED(ns, call) \
  { double t = now(); for (int k = 0; k < RUNS; k++) call; ns = (now() - t) / RUNS; }
extern void KERNEL(const void *, void *);
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}
int main(void) {
  TilewrightNetwork *network; TilewrightTensor x, y; TilewrightOptions options = {1, 0};
  if (tilewright_open(TILEWRIGHT_INTERFACE, &options, &network) ||
      tilewright_input(network, 0, &x) || tilewright_output(network, 0, &y))
    return puts(tilewright_error()), 1;
  float in[3] = {1, 2, 3}, out[3]; TilewrightTensor given = x, found = y;
  given.data = in, found.data = out;
  for (int round = 0; round < 3; round++) {
    double run, call, kernel;
    TIMED(run, tilewright_run(network))
    TIMED(call, tilewright_call(network, &given, 1, &found, 1))
    TIMED(kernel, KERNEL(x.data, y.data))
    printf("run %.1f ns, call %.1f ns, kernel %.1f ns\n", run, call, kernel);
  }
  return out[2] != 6;
}
"""


def main() -> None:
    x = relay.var("x", shape=(3,))
    library = relay.build(relay.Function([x], x + x), "llvm")
    kernel = library.kernels[0].source.kernels[0].name
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        library.export_library(at / "net.so")
        (at / "main.c").write_text(PROGRAM)
        command = ["cc", "-O2", f"-DKERNEL={kernel}", f"-I{HEADER.parent}", at / "main.c"]
        subprocess.run([*command, at / "net.so", "-o", at / "main"], check=True)
        subprocess.run([at / "main"], check=True)


if __name__ == "__main__":
    main()
