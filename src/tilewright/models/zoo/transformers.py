"""Small transformers: blocks of attention and two dense layers around sums.

Examples of what can be built and tuned, of no published size; weights are random.

In: batch, sizes.  Out: `(mod, params)` with seeded weights.  Read next: `layers.py`.
"""

from __future__ import annotations

import math

from tilewright.graph.expr import Expr, Function, Var
from tilewright.graph.functions import indexing, nn, tensor
from tilewright.graph.leaves import const, var
from tilewright.models.zoo.layers import conv2d, image, network, workload_of


def _linear(data: Expr, name: str, units: int) -> Expr:
    """A dense layer with bias over the last axis of three."""
    batch, length, width = data.shape
    x = nn.dense(tensor.reshape(data, (-1, width)), var(f"{name}_weight", dtype=data.dtype), units)
    x = nn.bias_add(x, var(f"{name}_bias", dtype=data.dtype), axis=-1)
    return tensor.reshape(x, (batch, length, units))


def _norm(data: Expr, name: str) -> Expr:
    shape = data.shape[-1:]
    gamma, beta = (var(f"{name}_{k}", shape=shape, dtype=data.dtype) for k in ("gamma", "beta"))
    return nn.layer_norm(data, gamma, beta)


def _gelu(data: Expr) -> Expr:
    half, root = const(0.5, data.dtype), const(1 / math.sqrt(2), data.dtype)
    erf = tensor.erf(tensor.multiply(data, root))
    return tensor.multiply(
        tensor.multiply(data, half), tensor.add(erf, const(1.0, data.dtype))
    )  # fmt: skip


def self_attention(data: Expr, name: str, heads: int, causal: bool) -> Expr:
    """Of (batch, length, width); causal: a position sees none behind it."""
    batch, length, width = data.shape

    def split(x: Expr) -> Expr:
        parts = tensor.reshape(x, (batch, length, heads, width // heads))
        return tensor.transpose(parts, (0, 2, 1, 3))

    q, k, v = (split(_linear(data, f"{name}_{part}", width)) for part in "qkv")
    mixed = tensor.transpose(nn.attention(q, k, v, is_causal=causal), (0, 2, 1, 3))
    return _linear(tensor.reshape(mixed, (batch, length, width)), f"{name}_out", width)


def block(data: Expr, name: str, heads: int, causal: bool = False, first: bool = True) -> Expr:
    """A layer of a transformer; first: normalised before each part, else after each sum."""
    width = data.shape[-1]

    def part(x: Expr, which: str) -> Expr:
        if which == "attention":
            return self_attention(x, f"{name}_attention", heads, causal)
        return _linear(_gelu(_linear(x, f"{name}_wide", 4 * width)), f"{name}_narrow", width)

    x = data
    for which in ("attention", "dense"):
        norm = f"{name}_{which}_norm"
        if first:
            x = tensor.add(x, part(_norm(x, norm), which))
        else:
            x = _norm(tensor.add(x, part(x, which)), norm)
    return x


def _positions(data: Expr, name: str) -> Expr:
    shape = (1, *data.shape[1:])
    return tensor.add(data, var(f"{name}_bias", shape=shape, dtype=data.dtype))


def get_vit(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    patch: int = 16,
    width: int = 192,
    depth: int = 12,
    heads: int = 3,
    dtype: str = "float32",
) -> Function:
    """A vision transformer that averages its patches, of patch x patch: data -> logits."""
    data = image(batch_size, image_shape, "NCHW", dtype, "relay.testing.transformers")
    x = conv2d(data, "patches", width, patch, patch)
    x = tensor.reshape(x, (batch_size, width, x.shape[2] * x.shape[3]))
    x = _positions(tensor.transpose(x, (0, 2, 1)), "positions")
    for k in range(depth):
        x = block(x, f"layer{k}", heads)
    x = tensor.mean(_norm(x, "norm"), axis=(1,))
    x = nn.dense(x, var("head_weight", dtype=dtype), units=num_classes)
    return network(data, nn.bias_add(x, var("head_bias", dtype=dtype), axis=-1))


vit = workload_of(get_vit, "batch_size", "num_classes", "image_shape", "dtype", "depth")


def _tokens(batch_size: int, length: int, vocabulary: int, width: int, dtype: str) -> tuple[
    Var, Var, Expr
]:  # fmt: skip
    """The input of token numbers, the table of their vectors, the vectors with positions."""
    data = var("data", shape=(batch_size, length), dtype="int32")
    table = var("embedding_weight", shape=(vocabulary, width), dtype=dtype)
    return data, table, _positions(indexing.take(table, data, axis=0), "positions")


def get_bert(
    batch_size: int = 1,
    length: int = 128,
    vocabulary: int = 30522,
    width: int = 128,
    depth: int = 2,
    heads: int = 2,
    dtype: str = "float32",
) -> Function:
    """An encoder: data (token numbers) -> a vector for each of them."""
    data, _, x = _tokens(batch_size, length, vocabulary, width, dtype)
    x = _norm(x, "norm")
    for k in range(depth):
        x = block(x, f"layer{k}", heads, first=False)
    return network(data, x)


def get_gpt2(
    batch_size: int = 1,
    length: int = 64,
    vocabulary: int = 50257,
    width: int = 128,
    depth: int = 4,
    heads: int = 4,
    dtype: str = "float32",
) -> Function:
    """A decoder: data (token numbers) -> logits of the token that follows each of them."""
    data, table, x = _tokens(batch_size, length, vocabulary, width, dtype)
    for k in range(depth):
        x = block(x, f"layer{k}", heads, causal=True)
    x = tensor.reshape(_norm(x, "norm"), (-1, width))
    return network(data, tensor.reshape(nn.dense(x, table), (batch_size, length, vocabulary)))


bert = workload_of(get_bert, "seed")
gpt2 = workload_of(get_gpt2, "seed")
