"""A network as a file: export it, load it without a compiler, give it inputs without a copy.

python examples/deploy_network.py
python examples/deploy_network.py --target cuda --batch 8
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

import tilewright
from tilewright_tvm import nd, relay, runtime, transform
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
parser.add_argument("--batch", type=int, default=2, help="images at once")
parser.add_argument("--image", type=int, default=32, help="height and width of the images")
options = parser.parse_args()

target = Target(options.target)
shape = (options.batch, 3, options.image, options.image)
mod, params = relay.testing.mobilenet.get_workload(
    batch_size=options.batch, image_shape=shape[1:], num_classes=10
)
with transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=target, params=params)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "net.tar"
    lib.export_library(path)
    weights = runtime.save_param_dict(params)
    print(f"{path.stat().st_size:,} bytes with weights, which alone are {len(weights):,}")
    loaded = runtime.load_module(path)
assert runtime.load_param_dict(weights).keys() == params.keys()

dev = tilewright.device(str(target), 0)
data = np.random.default_rng(0).standard_normal(shape).astype("float32")

# Functions by name, each with the state of the network on this device.
opened = loaded["default"](dev)
opened["set_input"]("data", data)
opened["run"]()
first = opened["get_output"](0).numpy()

# The same network with an input that stays where it is: runs read what it holds then.
module = graph_executor.GraphModule(loaded["default"](dev))
print("inputs:", module.get_input_info()[0])
own = nd.array(data, dev)
module.set_input_zero_copy("data", own)
module.run()
assert np.array_equal(module.get_output(0).numpy(), first)
own.copyfrom(data[::-1])
module.run()
assert np.allclose(module.get_output(0).numpy(), first[::-1], rtol=1e-4, atol=1e-6)
print(module.benchmark(dev, number=3, repeat=3))

# A batch of any size: an extent that is open until it is called.
x = relay.var("x", shape=(relay.Any(), 16))
w = relay.const(np.random.default_rng(1).standard_normal((4, 16)).astype("float32"))
machine = runtime.vm.VirtualMachine(
    relay.vm.compile(relay.Function([x], relay.nn.softmax(relay.nn.dense(x, w))), target), dev
)
for batch in (1, 5):
    result = machine.invoke("main", np.ones((batch, 16), "float32"))
    print("batch", batch, "gives", result.shape)
