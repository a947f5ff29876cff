"""A network from beginning to end: load, compile, tune, compile again, compare, save, open.

python examples/first_network.py resnet-18-v1 --target llvm --minutes 5
python examples/first_network.py net.onnx --target cuda --minutes 2
"""

import argparse

import numpy as np

import tilewright as tw

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("model", nargs="?", default="mlp", help="an .onnx file, or a network's name")
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
parser.add_argument("--minutes", type=float, default=1, help="to tune for")
parser.add_argument("--trials", type=int, default=None, help="candidates to measure, at most")
parser.add_argument("--log", default="first_network.jsonl", help="file of results, appended to")
options = parser.parse_args()

net = tw.load(options.model)
print(net)
rng = np.random.default_rng(0)
data = [rng.standard_normal(spec.shape).astype(spec.dtype) for spec in net.inputs]

untuned = tw.compile(net, options.target)
before = untuned(*data)

tuned = tw.tune(
    net, options.target, minutes=options.minutes, trials=options.trials, log=options.log
)
print(tuned)

run = tw.compile(net, options.target, log=options.log)
print(run.report)
after = run(*data)
np.testing.assert_allclose(after, before, rtol=1e-3, atol=1e-5)
print(f"untuned: {untuned.time() * 1e3:.3f} ms")
print(f"tuned:   {run.time() * 1e3:.3f} ms")

run.save("first_network.tar")  # one file, which needs no compiler
again = tw.open("first_network.tar")
assert np.array_equal(again(*data), after)
print(again)
