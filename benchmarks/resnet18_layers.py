"""ResNet-18's convolutions + bias + ReLU, batch 1, float32, weights constant.

In: nothing.  Out: `LAYERS`, and the computation of one.  Used by `bench_cpu_conv.py` and
`h200/kernels.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright import te, topi
from tilewright.te.dag import ComputeDAG


@dataclass(frozen=True)
class Layer:
    ci: int
    size: int
    co: int
    kernel: int
    stride: int
    count: int  # how often ResNet-18 has it

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def mflop(self) -> float:
        """Of the convolution alone."""
        out = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        return 2e-6 * self.co * out * out * self.ci * self.kernel**2

    def __str__(self) -> str:
        size, kernel = f"{self.size}x{self.size}", f"{self.kernel}x{self.kernel}"
        return f"{self.ci}x{size}->{self.co} {kernel}/{self.stride}"


LAYERS = (
    Layer(3, 224, 64, 7, 2, 1), Layer(64, 56, 64, 3, 1, 4), Layer(64, 56, 128, 3, 2, 1),
    Layer(64, 56, 128, 1, 2, 1), Layer(128, 28, 128, 3, 1, 3), Layer(128, 28, 256, 3, 2, 1),
    Layer(128, 28, 256, 1, 2, 1), Layer(256, 14, 256, 3, 1, 3), Layer(256, 14, 512, 3, 2, 1),
    Layer(256, 14, 512, 1, 2, 1), Layer(512, 7, 512, 3, 1, 3),
)  # fmt: skip


def dag_of(layer: Layer) -> ComputeDAG:
    """Arguments: data, weight, bias, output."""
    data = te.placeholder((1, layer.ci, layer.size, layer.size), name="data")
    shape = (layer.co, layer.ci, layer.kernel, layer.kernel)
    weight = te.placeholder(shape, name="weight", constant=True)
    bias = te.placeholder((1, layer.co, 1, 1), name="bias", constant=True)
    conv = topi.nn.conv2d_nchw(data, weight, layer.stride, layer.padding)
    return ComputeDAG([data, weight, bias, topi.nn.relu(topi.add(conv, bias))])
