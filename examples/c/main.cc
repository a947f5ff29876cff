// Run networks that are named on the command line, each on ones, and time them.
//
//   c++ -I. main.cc -o main -ldl && ./main ./net.so ./other.so
#include <chrono>
#include <cstdio>
#include <vector>

#include "tilewright.h"

int main(int argc, char **argv) try {
  for (int k = 1; k < argc; k++) {
    tilewright::Network network(argv[k]);
    TilewrightTensor x = network.input(0), y = network.output(0);
    std::vector<float> given(x.bytes / sizeof(float), 1.0f), found(y.bytes / sizeof(float));
    network.set_input(0, given.data());
    const auto begin = std::chrono::steady_clock::now();
    network.run();
    network.get_output(0, found.data());
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %s[0] = %g, %.0f us\n", argv[k], y.name, found[0], spent.count());
  }
} catch (const tilewright::Error &error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
