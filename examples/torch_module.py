"""A module of PyTorch: loaded by an example of its input, tuned, called with tensors, compared.

python examples/torch_module.py
python examples/torch_module.py --target cuda --minutes 2
"""

import argparse
import time

import torch
from torch import nn

import tilewright as tw

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="cuda or llvm, with options")
parser.add_argument("--minutes", type=float, default=1, help="to tune for")
parser.add_argument("--trials", type=int, default=None, help="candidates to measure, at most")
parser.add_argument("--log", default="torch_module.jsonl", help="file of results, appended to")
options = parser.parse_args()


class Network(nn.Module):
    """A small classifier of images."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.classes = nn.Linear(32, 10)

    def forward(self, image):
        features = self.features(image)
        return torch.softmax(self.classes(features), -1), features


torch.manual_seed(0)
where = "cuda" if options.target.startswith("cuda") else "cpu"
module = Network().eval().to(where)
image = torch.randn(1, 3, 32, 32, device=where)

net = tw.load(module, image)
print(net)
print(tw.tune(net, options.target, minutes=options.minutes, trials=options.trials, log=options.log))
run = tw.compile(net, options.target, log=options.log)

scores, features = run(image)  # tensors on the device of `image`, which is read where it is
with torch.inference_mode():
    want, _ = module(image)
    began = time.perf_counter()
    for _ in range(20):
        module(image)
    if where == "cuda":
        torch.cuda.synchronize()
    print(f"PyTorch:    {(time.perf_counter() - began) / 20 * 1e3:.3f} ms a call")
print(f"Tilewright: {run.time() * 1e3:.3f} ms a run")
print(f"largest difference: {(scores - want).abs().max():.1e}")
