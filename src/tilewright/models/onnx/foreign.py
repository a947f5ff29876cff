"""Schemas of operators that onnx does not know: those of onnxruntime, which its files contain.

In: a domain and a name.  Out: a `Schema`.  Read next: `ops/microsoft.py`, what they become.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from tilewright.models.onnx.schema import Schema

FLOAT, INT, STRING, FLOATS, INTS = 1, 2, 3, 6, 7  # as AttributeProto numbers types
MANY = 1 << 30
MICROSOFT = "com.microsoft"
WINDOW = {"pads": INTS, "strides": INTS, "dilations": INTS, "kernel_shape": INTS,
          "auto_pad": STRING}  # fmt: skip
ACTIVATION = {"activation": STRING, "activation_params": FLOATS}
GEMM = {"transA": INT, "transB": INT, "alpha": FLOAT}
MATMUL = {**GEMM, "transBatchA": INT, "transBatchB": INT}
NORM = {"epsilon": FLOAT}
LAYER = {**NORM, "axis": INT, "stash_type": INT}
HEADS = {"scale": FLOAT, "mask_filter_value": FLOAT, "unidirectional": INT}
PACKED = {**HEADS, "do_rotary": INT, "past_present_share_buffer": INT}
BINARY = "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?"
UNARY = "X X_scale X_zero_point? Y_scale Y_zero_point?"
MEAN = "X x_scale x_zero_point y_scale y_zero_point"
SOFTMAX = "X X_scale x_zero_point? y_scale y_zero_point"


@dataclass(frozen=True)
class Row:
    """inputs: names; `?` marks one that may be left out, `*` any number; outputs: at most
    attrs: types by name; those in `needed` cannot be left out
    """

    inputs: str
    outputs: int = 1
    attrs: dict[str, int] = field(default_factory=dict)
    needed: tuple[str, ...] = ()


# onnxruntime also writes operators of its own into ONNX's domain
_ONNX: dict[str, Row] = {
    "LayerNormalization": Row("X Scale B?", 3, LAYER),
    "SimplifiedLayerNormalization": Row("X scale", 2, LAYER),
}
_MICROSOFT: dict[str, Row] = {
    "Attention": Row(
        "input weights bias? mask_index? past? attention_bias? past_sequence_length?", 2,
        {**PACKED, "num_heads": INT, "qkv_hidden_sizes": INTS, "rotary_embedding_dim": INT},
        ("num_heads",),
    ),
    "BiasGelu": Row("A B"),
    "DequantizeLinear": Row("x x_scale x_zero_point?", 1, {"axis": INT}),
    "DynamicQuantizeMatMul": Row("A B b_scale b_zero_point? bias?"),
    "EmbedLayerNormalization": Row(
        "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta "
        "mask? position_ids?", 3, {**NORM, "mask_index_type": INT},
    ),
    "FastGelu": Row("X bias?"),
    "FusedConv": Row("X W B? Z?", 1, {**WINDOW, **ACTIVATION, "group": INT}),
    "FusedGemm": Row("A B C?", 1, {
        **GEMM, "beta": FLOAT, "activation": STRING, "activation_alpha": FLOAT,
        "activation_beta": FLOAT, "activation_gamma": FLOAT,
    }),
    "FusedMatMul": Row("A B", 1, MATMUL),
    "GatherND": Row("data indices"),
    "Gelu": Row("X"),
    "GridSample": Row("X Grid", 1, {"align_corners": INT, "padding_mode": STRING, "mode": STRING}),
    "GroupNorm": Row(
        "X gamma beta", 1, {**NORM, "channels_last": INT, "activation": INT, "groups": INT},
        ("activation", "groups"),
    ),
    "MatMulIntegerToFloat": Row("A B a_scale b_scale a_zero_point? b_zero_point? bias?"),
    "MatMulNBits": Row(
        "A B scales zero_points? g_idx? bias?", 1,
        {"K": INT, "N": INT, "bits": INT, "block_size": INT, "accuracy_level": INT,
         "weight_prepacked": INT},
        ("K", "N", "block_size"),
    ),
    "MultiHeadAttention": Row(
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? "
        "past_sequence_length? cache_indirection?", 4, {**HEADS, "num_heads": INT}, ("num_heads",),
    ),
    "NhwcMaxPool": Row("x", 1, {**WINDOW, "ceil_mode": INT}, ("kernel_shape",)),
    "Pad": Row("data pads value?", 1, {"mode": STRING}),
    "QAttention": Row(
        "input weight bias input_scale weight_scale mask_index? input_zero_point? "
        "weight_zero_point? past?", 2, {**PACKED, "num_heads": INT}, ("num_heads",),
    ),
    "QGemm": Row(
        "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?", 1, GEMM
    ),
    "QLinearAdd": Row(BINARY),
    "QLinearAveragePool": Row(UNARY, 1, {
        **WINDOW, "ceil_mode": INT, "channels_last": INT, "count_include_pad": INT,
    }, ("kernel_shape",)),
    "QLinearConcat": Row("Y_scale Y_zero_point inputs*", 1, {"axis": INT}, ("axis",)),
    "QLinearConv": Row(
        "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?", 1,
        {**WINDOW, "group": INT, "channels_last": INT},
    ),
    "QLinearGlobalAveragePool": Row(MEAN, 1, {"channels_last": INT}),
    "QLinearLeakyRelu": Row(UNARY, 1, {"alpha": FLOAT}),
    "QLinearMul": Row(BINARY),
    "QLinearReduceMean": Row(UNARY, 1, {"axes": INTS, "keepdims": INT}, ("axes", "keepdims")),
    "QLinearSigmoid": Row(UNARY),
    "QLinearSoftmax": Row(SOFTMAX, 1, {"axis": INT, "opset": INT}, ("opset",)),
    "QLinearWhere": Row(
        "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point"
    ),
    "QuantizeLinear": Row("x y_scale y_zero_point?", 1, {"axis": INT}),
    "QuickGelu": Row("X", 1, {"alpha": FLOAT}),
    "RotaryEmbedding": Row("input position_ids cos_cache sin_cache", 1, {
        "num_heads": INT, "rotary_embedding_dim": INT, "interleaved": INT, "scale": FLOAT,
        "is_packed_batching": INT,
    }),
    "SkipLayerNormalization": Row("input skip gamma beta? bias?", 4, NORM),
    "SkipSimplifiedLayerNormalization": Row("input skip gamma bias?", 4, NORM),
    "TransposeMatMul": Row("A B", 1, GEMM),
    "Trilu": Row("X k?", 1, {"upper": INT}),
}  # fmt: skip
ROWS = {"": _ONNX, MICROSOFT: _MICROSOFT}


@cache
def foreign_schema(op: str, domain: str) -> Schema | None:
    """None for what is not there; any element type is accepted, converters refuse theirs."""
    row = ROWS.get(domain, {}).get(op)
    if row is None:
        return None
    names = row.inputs.split()
    needed = tuple(name[-1] not in "?*" for name in names)
    least = max((k + 1 for k, needs in enumerate(needed) if needs), default=0)
    most = MANY if names[-1].endswith("*") else len(names)
    return Schema(row.attrs, row.needed, (least, most), (1, row.outputs), needed, ())
