"""Attention: PyTorch's one function for it, and the fused layers that modules call in inference."""

from __future__ import annotations

import math

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.attention import attention
from tilewright.graph.functions.normalize import standardize
from tilewright.models.torch.node import Converter, Node, first_of_several
from tilewright.models.torch.ops.linear import linear
from tilewright.models.torch.ops.movement import part, reshaped
from tilewright.models.torch.ops.normalize import affine


def _attention(n: Node) -> Expr:
    """Of any leading axes, which `attention` has two of."""
    n.require(not n.get("dropout_p", 0.0), "it drops at random", "Export the module after .eval().")
    given = [n[name] for name in ("query", "key", "value")]
    lead = given[0].shape[:-2]
    n.require(len(lead) <= 2 or n.args.get("attn_mask") is None, "its mask has more than four axes",
              "Reshape the tensors to [batch, heads, length, size].")  # fmt: skip
    query, key, value = (reshaped(t, _four_axes(t.shape)) for t in given)
    scale = n.args.get("scale")
    made = attention(
        query, key, value, n.optional("attn_mask"), None if scale is None else float(scale),
        bool(n.get("is_causal", False)),
    )  # fmt: skip
    return reshaped(made, n.shape)


def _four_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    heads = shape[-3] if len(shape) > 2 else 1
    return (math.prod(shape[:-3]), heads, *shape[-2:])


def _self_attention(n: Node, data: Expr, heads: int) -> Expr:
    """The projections of nn.MultiheadAttention around attention of `data` to itself."""
    n.require(n.args.get("mask") is None, "it has a mask", "Call the module in training form: "
              "torch.backends.mha.set_fastpath_enabled(False).")  # fmt: skip
    batch, length, size = data.shape
    joint = linear(data, n["qkv_weight"], n["qkv_bias"])  # query, key and value side by side
    wide = tensor.as_shape(joint, (batch, length, 3, heads, size // heads))
    parts = tensor.transpose(wide, (2, 0, 3, 1, 4))
    query, key, value = (reshaped(part(parts, 0, k, k + 1), parts.shape[1:]) for k in range(3))
    made = tensor.transpose(attention(query, key, value), (0, 2, 1, 3))
    return linear(tensor.as_shape(made, data.shape), n["proj_weight"], n["proj_bias"])


def _native(n: Node) -> list[Expr | None]:
    same = n["query"] is n["key"] and n["key"] is n["value"]
    n.require(same, "its query, key and value differ",
              "Call torch.backends.mha.set_fastpath_enabled(False) first.")  # fmt: skip
    n.require(not n.get("need_weights", True), "its weights are asked for",
              "Call the module with need_weights=False.")  # fmt: skip
    return [_self_attention(n, n["query"], n.integer("num_head")), None]


def _encoder_layer(n: Node) -> Expr:
    """nn.TransformerEncoderLayer: attention and two linear layers, each with a residual."""
    data, eps, first = n["src"], float(n.args["eps"]), bool(n.args["norm_first"])

    def norm(value: Expr, k: int) -> Expr:
        return affine(standardize(value, -1, eps), n[f"norm_weight_{k}"], n[f"norm_bias_{k}"])

    def feed(value: Expr) -> Expr:
        inner = linear(value, n["ffn_weight_1"], n["ffn_bias_1"])
        bent = nn.gelu(inner) if n.args["use_gelu"] else nn.relu(inner)
        return linear(bent, n["ffn_weight_2"], n["ffn_bias_2"])

    heads = n.integer("num_heads")
    if first:
        data = tensor.add(data, _self_attention(n, norm(data, 1), heads))
        return tensor.add(data, feed(norm(data, 2)))
    data = norm(tensor.add(data, _self_attention(n, data, heads)), 1)
    return norm(tensor.add(data, feed(data)), 2)


CONVERTERS: dict[str, Converter] = {
    "scaled_dot_product_attention.default": _attention,
    "_scaled_dot_product_flash_attention_for_cpu.default": first_of_several(_attention),
    "_native_multi_head_attention.default": _native,
    "_transformer_encoder_layer_fwd.default": _encoder_layer,
}
