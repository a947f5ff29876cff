"""Kernels compiled here and run on another machine: a file, a session, arrays that live there.

With --key a device of the farm at --host runs them; without one, a session of this machine does.

    python examples/cross_compile.py
    python examples/cross_compile.py --key rpi3b --host 10.0.0.1 \\
        --target "llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon"
    python examples/cross_compile.py --key rk3399 --host 10.0.0.1 --target "opencl -device=mali"
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import nd, rpc
from tilewright_tvm.contrib import utils
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="of the other machine")
parser.add_argument("--key", default="", help="of the device, as the tracker knows it")
parser.add_argument("--host", default="127.0.0.1", help="of the tracker")
parser.add_argument("--port", type=int, default=9190, help="of the tracker")
options = parser.parse_args()

n = 1024
A = te.placeholder((n,), name="A")
B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
s = te.create_schedule(B.op)
target = Target(options.target)
if target.has_threads:
    block, thread = s[B].split(B.op.axis[0], factor=32)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
func = tilewright.build(s, [A, B], target, name="add_one")

folder = utils.tempdir()
path = folder.relpath("add_one.tar")
func.export_library(path)

if options.key:
    remote = rpc.connect_tracker(options.host, options.port).request(options.key)
else:
    remote = rpc.LocalSession()
remote.upload(path)
loaded = remote.load_module("add_one.tar")
print(remote.listdir(), loaded)

dev = remote.device(target.kind)
a = nd.array(np.random.uniform(size=n).astype("float32"), dev)
b = nd.array(np.zeros(n, "float32"), dev)
loaded(a, b)
np.testing.assert_equal(b.numpy(), a.numpy() + 1)
seconds = loaded.time_evaluator(loaded.entry_name, dev, number=10)
print(f"{seconds(a, b).mean * 1e6:.3f} us there")
