/* Run a network on a file of raw numbers.
 *
 *   tilewright compile mlp -o net.so --header
 *   cc -I. main.c ./net.so -o main && ./main input.raw output.raw
 */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

#define CHECK(call) \
  if ((call) != TILEWRIGHT_OK) return fprintf(stderr, "%s\n", tilewright_error()), 1

int main(int argc, char **argv) {
  TilewrightNetwork *network;
  TilewrightTensor x, y;
  if (argc != 3) return fprintf(stderr, "usage: main INPUT OUTPUT\n"), 2;
  CHECK(tilewright_open(TILEWRIGHT_INTERFACE, NULL, &network));
  CHECK(tilewright_input(network, 0, &x));
  CHECK(tilewright_output(network, 0, &y));
  x.data = malloc(x.bytes), y.data = malloc(y.bytes);
  FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
  if (!in || !out || fread(x.data, 1, x.bytes, in) != x.bytes)
    return fprintf(stderr, "input %s is %zu bytes of %s\n", x.name, x.bytes,
                   tilewright_type_name(x.type)), 2;
  CHECK(tilewright_call(network, &x, 1, &y, 1));
  fwrite(y.data, 1, y.bytes, out);
  return fclose(out) | tilewright_close(network);
}
