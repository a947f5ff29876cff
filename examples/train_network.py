"""A small network trained from nothing: its gradient is a network, too, built like any other.

One step of stochastic gradient descent, with the new weights, is one function of relay: what
`relay.transform.gradient` gives is called in it.  Here it learns to tell noisy 8x8 pictures apart.

    python examples/train_network.py
    python examples/train_network.py --target cuda --steps 300
"""

import argparse

import numpy as np

import tilewright
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--rate", type=float, default=0.2, help="how far a step goes")
options = parser.parse_args()

CLASSES, BATCH, SIZE = 6, 32, 8
SHAPES = {"conv": (8, 1, 3, 3), "bias": (8,), "dense": (CLASSES, 8 * (SIZE // 2) ** 2)}


def scores(images, weights):
    """What the network says of each picture: logarithms of probabilities [N, CLASSES]."""
    y = nn.bias_add(nn.conv2d(images, weights["conv"], padding=1), weights["bias"])
    y = nn.batch_flatten(nn.max_pool2d(nn.relu(y), 2, 2))
    return nn.log_softmax(nn.dense(y, weights["dense"]))


images = relay.var("images", shape=(BATCH, 1, SIZE, SIZE))
labels = relay.var("labels", shape=(BATCH,), dtype="int32")
weights = {name: relay.var(name, shape=shape) for name, shape in SHAPES.items()}
params = [images, labels, *weights.values()]

right = relay.one_hot(labels, 1.0, 0.0, CLASSES)
loss = nn.cross_entropy_with_logits(scores(images, weights), right)
with_gradient = relay.transform.gradient(relay.Function(params, loss))

# One step: the loss, and weights that went down its slope.
found, slopes = with_gradient(*params)
moved = [w - slopes[2 + k] * options.rate for k, w in enumerate(weights.values())]
step = relay.IRModule.from_expr(relay.Function(params, relay.Tuple([found, *moved])))

target = Target(options.target)
dev = tilewright.device(str(target), 0)
train = graph_executor.GraphModule(relay.build(step, target=target)["default"](dev))

rng = np.random.default_rng(0)
patterns = rng.standard_normal((CLASSES, 1, SIZE, SIZE))


def drawn():
    """A batch of noisy pictures, and which they are."""
    which = rng.integers(0, CLASSES, BATCH)
    noisy = patterns[which] + 0.7 * rng.standard_normal((BATCH, 1, SIZE, SIZE))
    return noisy.astype("float32"), which.astype("int32")


now = {name: (0.2 * rng.standard_normal(s)).astype("float32") for name, s in SHAPES.items()}
train.set_input(**now)
for k in range(options.steps):
    pictures, which = drawn()
    train.set_input(images=pictures, labels=which)
    train.run()
    for i, name in enumerate(SHAPES):  # the new weights, on the device
        train.set_input(name, train.get_output(1 + i))
    if k % 10 == 0 or k == options.steps - 1:
        print(f"step {k:3}: loss {train.get_output(0).numpy():.4f}")

trained = {name: train.get_output(1 + i).numpy() for i, name in enumerate(SHAPES)}
network = relay.Function([images, *weights.values()], scores(images, weights))
run = relay.create_executor(
    "graph", relay.IRModule.from_expr(network), dev, target, trained
).evaluate()
pictures, which = drawn()
share = np.mean(run(pictures).numpy().argmax(1) == which)
print(f"{share:.0%} of new pictures are told right")
