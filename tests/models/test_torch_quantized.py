"""Networks that PyTorch quantised: the same results, and products of bytes where there are such."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.network.tune import tasks_of
from tilewright.targets.target import Target

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")
Q = torch.ops.quantized_decomposed


class Quantized(torch.nn.Module):
    """A convolution by channels, one number for a tensor in three spellings, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.Generator().manual_seed(0)

        def bytes_(*shape: int) -> Any:
            return torch.randint(-127, 128, shape, dtype=torch.int8, generator=drawn)

        self.register_buffer("kernel", bytes_(16, 8, 3, 3))
        self.register_buffer("scales", torch.rand(16, generator=drawn) * 0.01 + 0.001)
        self.register_buffer("zeros", torch.zeros(16, dtype=torch.int64))
        self.register_buffer("weight", bytes_(5, 16))

    def forward(self, x: Any) -> Any:
        x = self.rounded(x, 0.02, 3)
        kernel = Q.dequantize_per_channel(
            self.kernel, self.scales, self.zeros, 0, -127, 127, torch.int8
        )
        x = torch.relu(torch.nn.functional.conv2d(x, kernel, padding=1))
        x = self.rounded(x, 0.05, -128)
        x = self.rounded(x.mean((2, 3)), torch.tensor(0.03), torch.tensor(2))
        weight = Q.dequantize_per_tensor(self.weight, 0.01, 0, -127, 127, torch.int8)
        return torch.nn.functional.linear(x, weight)

    def rounded(self, x: Any, *how: Any) -> Any:
        steps = Q.quantize_per_tensor(x, *how, -128, 127, torch.int8)
        return Q.dequantize_per_tensor(steps, *how, -128, 127, torch.int8)


@pytest.fixture
def given() -> Any:
    return torch.randn(2, 8, 9, 9, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
def test_results_are_those_of_pytorch(given: Any) -> None:
    net = Quantized().eval()
    found = tw.compile(tw.load(net, (given,)), "llvm")(given.numpy())
    wanted = net(given).numpy()
    # A value between two integers may go either way: a step of a scale, times some weights.
    assert abs(found - wanted).max() < 0.05 * abs(wanted).max()


@pytest.mark.slow
def test_products_are_of_bytes(given: Any) -> None:
    net = tw.load(Quantized().eval(), (given,))
    tasks = tasks_of(net.modules, net.params, Target("cuda -arch=sm_90"))
    products = [t for t in tasks if t.name.startswith(("conv2d", "dense"))]
    assert len(products) == 2
    for task in products:
        assert [str(t.dtype) for t in task.dag.args[:2]] == ["int8", "int8"]
        assert any(s.origin.endswith(".tensor") for s in task.sketches)


@pytest.mark.slow
@pytest.mark.parametrize("zeros", [True, False])
def test_channels_of_any_axis(zeros: bool) -> None:
    class Channels(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            scales, points = torch.tensor([0.1, 0.2, 0.4]), torch.tensor([3, 0, -5])
            how = scales, points if zeros else torch.zeros_like(points), 1, -100, 100, torch.int8
            steps = Q.quantize_per_channel(x, *how)
            whole = points if zeros else None
            return steps, Q.dequantize_per_channel(steps, scales, whole, 1, -100, 100, torch.int8)

    x = torch.randn(2, 3, 4) * 20
    found = tw.compile(tw.load(Channels(), (x,)), "llvm")(x.numpy())
    for mine, theirs in zip(found, Channels()(x), strict=True):
        assert (mine == theirs.numpy()).all()
