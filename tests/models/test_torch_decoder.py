"""A step of a decoder with a cache of fixed size, as transformers has it, in torch.compile."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from models import torch_compiled
from models.torch_compiled import compiled
from models.torch_networks import nn, torch
from tilewright.base.errors import DeviceError
from tilewright.runtime.network import torch_calls

fresh, built = torch_compiled.fresh, torch_compiled.built  # fixtures

HEADS, SHARED, SIZE, LENGTH, WORDS = 8, 2, 16, 32, 24
WIDTH = HEADS * SIZE


class Cache:
    """Keys and values of one layer, and how many positions they hold."""

    def __init__(self) -> None:
        self.keys = torch.zeros(1, SHARED, LENGTH, SIZE)
        self.values = torch.zeros(1, SHARED, LENGTH, SIZE)
        self.length = torch.tensor([0])

    def update(self, keys: Any, values: Any) -> None:
        at = self.length + torch.arange(keys.shape[2])
        self.length.add_(keys.shape[2])
        self.keys.index_copy_(2, at, keys)
        self.values.index_copy_(2, at, values)


def turned(x: Any) -> Any:
    first, second = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return torch.cat((-second, first), dim=-1)


def repeated(x: Any) -> Any:
    wide = x[:, :, None].expand(1, SHARED, HEADS // SHARED, LENGTH, SIZE)
    return wide.reshape(1, HEADS, LENGTH, SIZE)


class Layer(nn.Module):
    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in "qo")
        self.k, self.v = (nn.Linear(WIDTH, SHARED * SIZE, bias=False) for _ in "kv")
        self.norm, self.spelling = nn.Parameter(torch.rand(WIDTH)), spelling

    def forward(self, x: Any, position: Any, cos: Any, sin: Any, cache: Cache) -> Any:
        wide = x.float()
        small = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        normed = self.norm * small.to(x.dtype)
        q, k, v = (p(normed).view(1, 1, -1, SIZE).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (h * cos + turned(h) * sin for h in (q, k))
        cache.update(k, v)
        mask = (torch.arange(LENGTH) <= position)[None, None, None]
        keys, values = repeated(cache.keys), repeated(cache.values)
        if self.spelling == "one function":
            made = nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        else:
            scores = q @ keys.transpose(2, 3) * SIZE**-0.5
            scores = scores + torch.where(mask, 0.0, -1e9)
            made = nn.functional.softmax(scores, dim=-1, dtype=torch.float32) @ values
        return x + self.o(made.transpose(1, 2).reshape(1, 1, WIDTH))


class Decoder(nn.Module):
    def __init__(self, spelling: str, layers: int = 1) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer(spelling) for _ in range(layers)])
        self.caches = [Cache() for _ in self.layers]

    def forward(self, word: Any, position: Any) -> Any:
        x = self.table(word)
        angle = position.float() / torch.arange(1.0, SIZE + 1)
        for layer, cache in zip(self.layers, self.caches, strict=True):
            x = layer(x, position, angle.cos(), angle.sin(), cache)
        return x @ self.table.weight.T


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["one function", "apart"])
def test_a_cache_is_written_where_it_is(spelling, monkeypatch, built):
    torch.manual_seed(0)
    model = Decoder(spelling, layers=2).eval()
    twin = copy.deepcopy(model)
    run, written = compiled(model), []
    count = torch_calls._count_write
    monkeypatch.setattr(
        torch_calls, "_count_write", lambda t: written.append(t.data_ptr()) or count(t)
    )
    caches = [t for c in model.caches for t in (c.keys, c.values)]
    versions = [t._version for t in caches]
    with torch.no_grad():
        for k in range(3):
            word, position = torch.tensor([[3 * k]]), torch.tensor([k])
            torch.testing.assert_close(run(word, position), twin(word, position))
            assert sorted(written) == sorted(t.data_ptr() for t in caches)
            written.clear()
    for mine, its in zip(model.caches, twin.caches, strict=True):
        torch.testing.assert_close((mine.keys, mine.values), (its.keys, its.values))
        assert mine.length == its.length == 3
    assert all(t._version > v for t, v in zip(caches, versions, strict=True))
    assert len(built) == 1


@pytest.mark.slow
def test_two_caches_in_one_memory_are_written_as_pytorch_does():
    """Then it is not the only one that reads that memory."""
    model = Decoder("one function").eval()
    for cache in model.caches:
        cache.values = cache.keys
    twin = copy.deepcopy(model)
    run = compiled(model)
    with torch.no_grad():
        for k in range(2):
            word, position = torch.tensor([[k]]), torch.tensor([k])
            torch.testing.assert_close(run(word, position), twin(word, position))
    for mine, its in zip(model.caches, twin.caches, strict=True):
        torch.testing.assert_close(mine.keys, its.keys)


@pytest.mark.slow
def test_a_cache_that_is_no_whole_tensor_is_copied():
    """Its memory has gaps, which kernels do not know."""
    model = Decoder("one function").eval()
    for cache in model.caches:
        cache.keys = torch.zeros(1, SHARED, LENGTH, 2 * SIZE)[..., :SIZE]
    twin = copy.deepcopy(model)
    run = compiled(model)
    with torch.no_grad():
        for k in range(2):
            word, position = torch.tensor([[k]]), torch.tensor([k])
            torch.testing.assert_close(run(word, position), twin(word, position))
    for mine, its in zip(model.caches, twin.caches, strict=True):
        torch.testing.assert_close((mine.keys, mine.values), (its.keys, its.values))


class Rows(nn.Module):
    """Two rows of a cache are new in each step."""

    def __init__(self, spelling: str) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4))
        self.spelling = spelling

    def forward(self, x: Any, position: Any) -> Any:
        at = position + torch.arange(2)
        if self.spelling == "index_copy":
            self.cache.index_copy_(0, at, x)
        elif self.spelling == "index":
            self.cache[at] = x
        else:
            self.cache.scatter_(0, at[:, None].expand(2, 4), x)
        return torch.tanh(self.cache)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", ["index_copy", "index", "scatter"])
def test_positions_beyond_a_cache_are_refused_and_nothing_is_written(spelling):
    x, at = torch.randn(2, 4), torch.tensor([4])
    step = torch.export.export(Rows(spelling), (x, at))
    net = tw.compile(tw.load(step), "llvm", verify=False)
    module = Rows(spelling)
    run = compiled(module, cache=False, verify=False)
    with torch.no_grad():
        made = run(x, at)
    np.testing.assert_allclose(net(x.numpy(), at.numpy()), made.numpy(), rtol=1e-5)
    before = module.cache.clone()
    for wrong in (5, -7):
        with pytest.raises(DeviceError, match=rf"'position': {wrong} is not from -6 to 4"):
            net(x.numpy(), np.array([wrong]))
        words = rf"{wrong} is not from -6 to 4, the places"
        with torch.no_grad(), pytest.raises(DeviceError, match=words):
            run(x, torch.tensor([wrong]))
    assert torch.equal(module.cache, before)
    np.testing.assert_array_equal(net.state()["b_cache"], before.numpy())
