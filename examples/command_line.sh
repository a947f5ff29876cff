#!/bin/sh
# A network with commands alone: compile, run, tune, compile again, compare.  After TVM's tutorial of
# its command line.
#
#     examples/command_line.sh resnet50-v2-7.onnx
#     TRIALS=24 examples/command_line.sh resnet-18
set -eu
model=${1:-resnet-18}
name=$(basename "$model" .onnx)
tilewright=${TILEWRIGHT:-tilewright}
set -x

$tilewright compile "$model" --target llvm -o "$name.tar"
$tilewright run "$name.tar" --fill ones --outputs before.npz --repeat 10

$tilewright tune "$model" --target llvm --trials "${TRIALS:-1000}" -o "$name.jsonl"
$tilewright records "$name.jsonl"

$tilewright compile "$model" --target llvm --log "$name.jsonl" -o "$name-tuned.tar"
$tilewright run "$name-tuned.tar" --fill ones --outputs after.npz --repeat 10

python3 - <<'PYTHON'
import numpy as np

before, after = (np.load(file)["output_0"] for file in ("before.npz", "after.npz"))
print(f"largest difference: {np.abs(before - after).max():.2e}")
assert np.allclose(before, after, rtol=1e-3, atol=1e-5)
PYTHON
