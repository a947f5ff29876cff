"""A network from an ONNX file, compiled, run and compared, without tuning.

What relay gives besides `relay.build`: executors that are functions of Python, passes by their
names, a walk of one's own over the graph.

    python examples/compile_network.py
    python examples/compile_network.py --model net.onnx --target opencl
"""

import argparse

import numpy as np

import tilewright
from tilewright_tvm import relay, transform
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--model", default=None, help="an ONNX file; default: a small ResNet")
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
options = parser.parse_args()


class Counter(relay.ExprVisitor):
    """How many elements the results of each operator have."""

    def __init__(self):
        super().__init__()
        self.elements = {}

    def visit_call(self, call):
        super().visit_call(call)
        if isinstance(call.checked_type, relay.TensorType):
            name = call.op.name
            self.elements[name] = self.elements.get(name, 0) + call.checked_type.size


model = options.model
if model is None:  # the file that a framework would write
    net, weights = relay.testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    model = relay.to_onnx(relay.bind_params(net, weights))
mod, params = relay.frontend.from_onnx(model)

counter = Counter()
counter.visit(mod["main"])
for name, count in sorted(counter.elements.items(), key=lambda item: -item[1])[:5]:
    print(f"{name:>24}: {count:9,} elements")
print(f"{relay.analysis.get_total_mac_number(mod['main']):,} multiplications")

target = Target(options.target)
dev = tilewright.device(str(target), 0)
inputs = [p for p in mod["main"].params if p.name_hint not in params]
rng = np.random.default_rng(0)
data = [rng.standard_normal(p.shape).astype(p.dtype) for p in inputs]

with transform.PassContext(opt_level=3):
    run = relay.create_executor("graph", mod, dev, target, params).evaluate()
with transform.PassContext(opt_level=3, disabled_pass=["FuseOps"]):
    apart = relay.create_executor("graph", mod, dev, target, params).evaluate()
reference = relay.create_executor("debug", mod, tilewright.cpu(), params=params).evaluate()

found, unfused, want = (f(*data).numpy() for f in (run, apart, reference))
print(f"largest difference to numpy: {np.abs(found - want).max():.2e}")
print(f"largest difference without fusion: {np.abs(unfused - want).max():.2e}")
