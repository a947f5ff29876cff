"""A model file from beginning to end in four calls: load, compile, run, tune.

After TVM's tutorial of `tvmc` in Python; `command_line.sh` does the same with commands.

    python examples/tune_model_tvmc.py --model resnet50-v2-7.onnx
    python examples/tune_model_tvmc.py --trials 2
"""

import argparse
from pathlib import Path

import numpy as np

from tilewright.driver import tvmc
from tilewright_tvm import relay

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--model", default=None, help="an ONNX file; default: a small perceptron")
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda, with options")
parser.add_argument("--trials", type=int, default=64, help="candidates for each task")
parser.add_argument("--log", default="records.jsonl", help="file of records, appended to")
options = parser.parse_args()

path = options.model
if path is None:  # the file that a framework would write
    path = "my_model.onnx"
    net, weights = relay.testing.mlp.get_workload(1)
    Path(path).write_bytes(relay.to_onnx(net, weights).SerializeToString())

model = tvmc.load(path)
model.summary()

package = tvmc.compile(model, target=options.target)
untuned = tvmc.run(package, fill_mode="ones")
print(untuned)

# Later runs with the same log go on from what it holds.
log = tvmc.tune(model, target=options.target, trials=options.trials, tuning_records=options.log)
package = tvmc.compile(model, options.target, tuning_records=log, package_path="package.tar")
print(package)

# The package runs without the compiler, also in another process.
tuned = tvmc.run(tvmc.TVMCPackage(package_path="package.tar"), fill_mode="ones")
print(tuned)
before, after = untuned.get_output("output_0"), tuned.get_output("output_0")
print(f"largest difference: {np.abs(before - after).max():.2e}")
assert np.allclose(before, after, rtol=1e-3, atol=1e-5)

# Rules instead of templates tune every kernel; what they find goes to a log beside the model.
found = tvmc.tune(model, target=options.target, trials=options.trials, enable_autoscheduler=True)
tvmc.compile(model, target=options.target, tuning_records=found)

# The network, its log and its package in one file.
model.save("model.tar")
again = tvmc.TVMCModel(model_path="model.tar")
print(tvmc.run(tvmc.TVMCPackage(again.default_package_path()), fill_mode="ones"))
