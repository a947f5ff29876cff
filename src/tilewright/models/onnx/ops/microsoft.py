"""What onnxruntime writes into files that it has optimised: fused layers, and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.attention import Mask, between, probabilities, scores, weighted
from tilewright.graph.functions.indexing import split, take
from tilewright.graph.functions.linear import product
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node
from tilewright.models.onnx.ops.attention import in_heads, rotated
from tilewright.models.onnx.ops.indexing import CONVERTERS as INDEXING
from tilewright.models.onnx.ops.linear import gemm
from tilewright.models.onnx.ops.movement import CONVERTERS as MOVEMENT
from tilewright.models.onnx.ops.normalize import layer_norm, rms_norm
from tilewright.models.onnx.ops.sampling import grid_sample
from tilewright.models.onnx.ops.window import biased, convolution

# by the names of ONNX: a function of the data and of numbers that belong to it
_ACTIVATIONS: dict[str, tuple[Callable[..., Expr], tuple[float, ...]]] = {
    "Clip": (lambda x, low, high: tensor.clip(x, low, high), (-np.inf, np.inf)),
    "HardSigmoid": (nn.hard_sigmoid, (0.2, 0.5)),
    "LeakyRelu": (nn.leaky_relu, (0.01,)),
    "Relu": (nn.relu, ()),
    "Sigmoid": (tensor.sigmoid, ()),
    "Tanh": (tensor.tanh, ()),
}


def _activated(n: Node, data: Expr, given: Sequence[float]) -> Expr:
    name = n.attr("activation", "")
    if not name:
        return data
    n.require(name in _ACTIVATIONS, f"activation={name}", f"Use {', '.join(_ACTIVATIONS)}.")
    function, usual = _ACTIVATIONS[name]
    return function(data, *(float(v) for v in (*given, *usual[len(given) :])[: len(usual)]))


def _fused_conv(n: Node) -> Expr:
    made = biased(n, convolution(n, n[0], n[1]))
    made = tensor.add(made, n[3]) if n.has(3) else made
    return _activated(n, made, n.attr("activation_params") or ())


def _fused_gemm(n: Node) -> Expr:
    given = [n.attr(f"activation_{k}") for k in ("alpha", "beta", "gamma")]
    return _activated(n, gemm(n), [v for v in given if v is not None])


def _fused_matmul(n: Node) -> Expr:
    made = product(*(_turned(n, n[k], "AB"[k]) for k in range(2)))
    alpha = float(n.attr("alpha", 1.0))
    return made if alpha == 1 else made * alpha


def _turned(n: Node, data: Expr, which: str) -> Expr:
    """Operand A or B as the product takes it: the axis behind the batch may be its first."""
    order = list(range(len(data.shape)))
    if n.flag(f"transBatch{which}"):
        n.require(len(order) > 2, f"{which} has no batch", "Leave transBatch out.")
        order = [*order[1:-1], 0, order[-1]]
    if n.flag(f"trans{which}") and len(order) > 1:
        order[-2:] = order[:-3:-1]
    return data if order == sorted(order) else tensor.transpose(data, order)


def _fast_gelu(n: Node) -> Expr:
    return nn.gelu(tensor.add(n[0], n[1]) if n.has(1) else n[0], "tanh")


def _quick_gelu(n: Node) -> Expr:
    data = n[0]
    return tensor.multiply(data, tensor.sigmoid(data * float(n.attr("alpha", 1.702))))


# -- norms -----------------------------------------------------------------------------------------


def _skip_norm(n: Node) -> list[Expr]:
    total = tensor.add(n[0], n[1])
    total = tensor.add(total, n[4]) if n.has(4) else total
    bias = n[3] if n.has(3) else None
    return [*layer_norm(n, total, n[2], bias, n.attr("epsilon", 1e-12)), total]


def _skip_rms_norm(n: Node) -> list[Expr]:
    total = tensor.add(n[0], n[1])
    total = tensor.add(total, n[3]) if n.has(3) else total
    made, inverse = rms_norm(n, total, n[2], n.attr("epsilon", 1e-12))
    return [made, tensor.mean(total, axis=-1, keepdims=True), inverse, total]


def _embed(n: Node) -> list[Expr]:
    """Three embeddings, added up and normalised; and how many words of each row count."""
    words = n.of_rank(0, 2)
    length = words.shape[1]
    n.attr("mask_index_type")
    at = n[8] if n.has(8) else const(np.arange(length, dtype="int32").reshape(1, -1))
    total = tensor.add(take(n[2], words, 0), take(n[3], at, 0))
    if n.has(1):
        total = tensor.add(total, take(n[4], n[1], 0))
    made = layer_norm(n, total, n[5], n[6], n.attr("epsilon", 1e-12))[0]
    counts: Expr = const(np.zeros(words.shape[0], "int32"))
    if n.has(7):
        counts = tensor.cast(tensor.sum(n[7], axis=1), "int32")
    return [made, counts, total]


def _group_norm(n: Node) -> Expr:
    last, activation = n.flag("channels_last", True), n.attr("activation")
    n.require(activation in (0, 1), f"activation={activation}", "Use 0, or 1 for SiLU.")
    groups, data, scale, bias = int(n.attr("groups")), n[0], n[1], n[2]
    axis = len(data.shape) - 1 if last else 1
    made = nn.group_norm(
        tensor.cast(data, scale.dtype), scale, bias, groups, axis=axis,
        epsilon=n.attr("epsilon", 1e-5),
    )  # fmt: skip
    made = tensor.multiply(made, tensor.sigmoid(made)) if activation else made
    return tensor.cast(made, data.dtype)


# -- attention -------------------------------------------------------------------------------------


def _padding(n: Node, mask: Expr, batch: int, queries: int, keys: int) -> Expr:
    """What a mask of words adds to the scores: 0, or a large negative number."""
    outside = const(float(n.attr("mask_filter_value", -10000.0)), "float32")
    places = const(np.arange(keys, dtype="int32").reshape(1, -1))
    if mask.shape in ((batch,), (2 * batch,)):  # ends, and starts
        bounds = tensor.cast(mask, "int32")
        rows = [tensor.expand_dims(v, 1) for v in split(bounds, mask.shape[0] // batch, 0).fields]
        kept = tensor.less(places, rows[0])
        if len(rows) > 1:
            started = tensor.greater_equal(places, rows[1])
            kept = tensor.where(started, kept, const(False))
    else:
        n.require(
            mask.shape in ((batch, keys), (1, keys), (batch, queries, keys)),
            f"its mask has shape {mask.shape}",
            f"Give {(batch,)}, {(batch, keys)} or {(batch, queries, keys)}.",
        )
        kept = tensor.not_equal(mask, const(0, mask.dtype))
    axes = (1, 2) if len(kept.shape) == 2 else (1,)
    for axis in axes:
        kept = tensor.expand_dims(kept, axis)
    return tensor.where(kept, const(0.0, "float32"), outside)


def _attended(
    n: Node, query: Expr, key: Expr, value: Expr, mask: Expr | None, bias: Expr | None
) -> tuple[Expr, Expr]:
    """The result [B, S, H * E], and the probabilities."""
    batch, _, queries, _ = query.shape
    keys = key.shape[2]
    added = bias
    if mask is not None:
        padding = tensor.cast(_padding(n, mask, batch, queries, keys), query.dtype)
        added = padding if added is None else tensor.add(padding, added)
    causal = None
    if n.flag("unidirectional"):
        causal = between(queries, keys, None, 0, keys - queries)
    n.attr("mask_filter_value")
    scale = n.attr("scale")
    score = scores(query, key, float(scale) if scale else None)
    probability = probabilities(score, Mask(causal, added))
    made = tensor.transpose(weighted(probability, value), (0, 2, 1, 3))
    return tensor.as_shape(made, (batch, queries, -1)), probability


def packed_attention(
    n: Node, projected: Expr, mask: Expr | None, past: Expr | None, bias: Expr | None
) -> list[Expr]:
    """Attention on [B, S, queries | keys | values]."""
    n.require(
        not n.flag("do_rotary") and not n.flag("past_present_share_buffer"),
        "it turns its keys, or writes into its past", "Export it without do_rotary and sharing.",
    )  # fmt: skip
    n.attr("rotary_embedding_dim")
    whole, heads = projected.shape[2], int(n.attr("num_heads"))
    sizes = [int(v) for v in n.attr("qkv_hidden_sizes") or [whole // 3] * 3]
    n.require(
        len(sizes) == 3 and sum(sizes) == whole and min(sizes) > 0,
        f"qkv_hidden_sizes {sizes} are not those of {whole} columns", "Give three numbers.",
    )  # fmt: skip
    parts = split(projected, [sizes[0], sizes[0] + sizes[1]], 2).fields
    query, key, value = (in_heads(n, part, heads) for part in parts)
    if past is not None:
        n.require(len(past.shape) == 5, f"its past has shape {past.shape}", "Give five axes.")
        held = [tensor.squeeze(p, (0,)) for p in split(past, 2, 0).fields]
        key, value = (
            tensor.concatenate([old, new], axis=2)
            for old, new in zip(held, (key, value), strict=True)
        )
    made, _ = _attended(n, query, key, value, mask, bias)
    if len(n.outputs) < 2:
        return [made]
    return [made, tensor.concatenate([tensor.expand_dims(v, 0) for v in (key, value)], axis=0)]


def _optional(n: Node, index: int) -> Expr | None:
    return n[index] if n.has(index) else None


def _attention(n: Node) -> list[Expr]:
    n.require(not n.has(6), "its past is shared", "Export it without past_sequence_length.")
    projected = product(n.of_rank(0, 3), n.of_rank(1, 2))
    projected = tensor.add(projected, n[2]) if n.has(2) else projected
    return packed_attention(n, projected, _optional(n, 3), _optional(n, 4), _optional(n, 5))


def _multi_head(n: Node) -> list[Expr]:
    heads, query = int(n.attr("num_heads")), n[0]
    n.require(
        n.has(1) and n.has(2) and len(query.shape) == 3 and not n.has(8) and not n.has(9),
        "its keys are packed with its queries, or its past is shared",
        "Give query, key and value, each [batch, length, size].",
    )
    parts: list[Expr] = [query, n[1], n[2]]
    if n.has(3):
        ends = np.cumsum([p.shape[-1] if len(p.shape) == 3 else 0 for p in parts]).tolist()
        n.require(
            n[3].shape == (ends[-1],), f"its bias has shape {n[3].shape}", f"Give {(ends[-1],)}."
        )
        biases = split(n[3], ends[:2], 0).fields
        parts = [tensor.add(p, b) for p, b in zip(parts, biases, strict=True)]
    query, key, value = (in_heads(n, p, heads) for p in parts)
    if n.has(6):
        n.require(n.has(7), "it has past keys without past values", "Give both, or none.")
        key, value = (tensor.concatenate([n[k], new], axis=2) for k, new in ((6, key), (7, value)))
    made, probability = _attended(n, query, key, value, _optional(n, 4), _optional(n, 5))
    return [made, key, value, probability]


def _rotary(n: Node) -> Expr:
    """A single position is that of the first word of each row."""
    scale = float(n.attr("scale", 1.0))
    n.require(
        scale == 1 and not n.flag("is_packed_batching"), f"scale={scale}, or ragged batches",
        "Only scale=1 and even batches are supported.",
    )  # fmt: skip
    positions, length = n[1], n.of_rank(0, 3, 4).shape[-2]
    if positions.shape == (1,):
        steps = const(np.arange(length).reshape(1, -1), positions.dtype)
        positions = tensor.add(tensor.as_shape(positions, (1, 1)), steps)
    return rotated(n, n[2], n[3], positions)


# -- weights of a few bits -------------------------------------------------------------------------


def _matmul_nbits(n: Node) -> Expr:
    """Weights [N, K] in blocks along K, several to a byte, the first in its lowest bits."""
    for name in ("accuracy_level", "weight_prepacked"):
        n.attr(name)
    bits, size = int(n.attr("bits", 4)), int(n.attr("block_size"))
    rows, inner = int(n.attr("N")), int(n.attr("K"))
    n.require(
        bits in (2, 4, 8) and size >= 8 and rows >= 1 and inner >= 1,
        f"bits={bits}, block_size={size}, N={rows}, K={inner}", "Use 2, 4 or 8 bits.",
    )  # fmt: skip
    n.require(not n.has(4), "it has g_idx", "Export it without reordered groups.")
    blocks = -(-inner // size)
    packed = _constant(n, 1, "its weights", rows * blocks * size * bits // 8)
    scale = _constant(n, 2, "its scales", rows * blocks).reshape(rows, blocks, 1)
    n.room(rows * blocks * size * 8)
    steps = _unpacked(packed.reshape(rows, blocks, -1), bits).astype(np.float32)
    zero: Any = float(1 << (bits - 1))
    if n.has(3):
        given = n.static(3, "its zero points")
        assert given is not None
        if given.dtype == np.uint8:
            width = -(-blocks * bits // 8)
            n.require(given.size == rows * width, f"{given.size} bytes of zero points", "Check N.")
            given = _unpacked(given.reshape(rows, width), bits)[:, :blocks]
        n.require(given.size == rows * blocks, f"{given.size} zero points", "Give one a block.")
        zero = given.astype(np.float32).reshape(rows, blocks, 1)
    weights = ((steps - zero) * scale.astype(np.float32)).reshape(rows, -1)[:, :inner]
    made = product(n[0], tensor.transpose(const(weights.astype(n[0].dtype.storage))))
    return tensor.add(made, n[5]) if n.has(5) else made


def _constant(n: Node, index: int, what: str, count: int) -> Any:
    found = n.static(index, what)
    n.require(
        found is not None and found.size == count,
        f"{what} have {0 if found is None else found.size} elements", f"{count} are needed.",
    )  # fmt: skip
    return found


def _unpacked(data: Any, bits: int) -> Any:
    """The numbers of `bits` bits in each byte of the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    parts = (data[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*data.shape[:-1], -1)


CONVERTERS: dict[str, Converter] = {
    "Attention": _attention,
    "BiasGelu": lambda n: nn.gelu(tensor.add(n[0], n[1])),
    "EmbedLayerNormalization": _embed,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "GatherND": INDEXING["GatherND"],
    "Gelu": lambda n: nn.gelu(n[0]),
    "GridSample": grid_sample,
    "GroupNorm": _group_norm,
    "MatMulNBits": _matmul_nbits,
    "MultiHeadAttention": _multi_head,
    "Pad": MOVEMENT["Pad"],
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": _rotary,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "TransposeMatMul": _fused_matmul,
    "Trilu": MOVEMENT["Trilu"],
}
