"""Modules of PyTorch for tests, and whether values are PyTorch's.  Skipped without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Block(nn.Module):
    """A little of everything that convolutional networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8, stride=2, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.hardswish(self.norm(self.conv(x)))
        z = self.depthwise(nn.functional.max_pool2d(y, 2, ceil_mode=True))
        return self.head(z.mean((2, 3))), y.flatten(1)


class Encoder(nn.Module):
    """Attention and layer norm, as encoders have them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Waves(nn.Module):
    """Complex numbers inside: spectra, of frames, too, and positions as angles."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(5.0), torch.rand(8))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.window = torch.hann_window(16)

    def forward(self, x: Any) -> tuple[Any, ...]:
        pairs = torch.view_as_complex(x.reshape(2, 5, 8, 2))
        turned = torch.view_as_real(pairs * self.turns).flatten(2)
        smooth = torch.fft.irfft(torch.fft.rfft(x, dim=1)[:, :2], n=5, dim=1)
        frames = torch.stft(x.flatten(1), 16, 4, window=self.window, return_complex=True)
        back = torch.istft(frames * 2, 16, 4, window=self.window, length=80)
        return torch.fft.fftn(x, dim=(1, 2)).real, turned, smooth, frames.abs(), back


class Memory(nn.Module):
    """Reads the memory of a view, by whatever `view` gives."""

    def __init__(self, view: Any) -> None:
        super().__init__()
        self.view = view

    def forward(self, x: Any) -> Any:
        return torch.as_strided(self.view(x), (2, 3), (3, 1)) + 0


VIEWS = [lambda x: x.permute(1, 0), lambda x: (x * 2)[:, 1:3], lambda x: x.permute(1, 0) * 2]
IMAGE, TOKENS = (2, 3, 9, 11), (2, 5, 16)
NETWORKS = {"block": (Block, IMAGE), "encoder": (Encoder, TOKENS), "waves": (Waves, TOKENS)}


def network(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    made, shape = NETWORKS[name]
    module = made().eval()
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return module, torch.randn(shape)


def leaves(value: Any) -> list[np.ndarray]:
    found = value if isinstance(value, (tuple, list)) else [value]
    return [t.detach().numpy() for t in found]


def close(found: Any, wanted: Any) -> None:
    found = found if isinstance(found, (tuple, list)) else [found]
    for a, b in zip(found, leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=1e-5)
