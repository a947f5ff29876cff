"""Calls of ATen operators, and what PyTorch says they give: `aten_expected.json`.

In: the list below; with PyTorch, `python tests/models/aten_cases.py` writes the file anew.  Out:
calls as plain data, so that the importer is tested where there is no PyTorch.
Read next: `test_torch_import.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).with_name("aten_expected.json")


@dataclass(frozen=True)
class T:
    """An argument: a tensor whose elements follow from its number, never random.

    low, high: the range of its elements; integers where dtype is one
    ordered:   they ascend
    definite:  its matrices are symmetric and positive definite
    """

    shape: tuple[int, ...]
    low: float = -2.0
    high: float = 2.0
    dtype: str = "float32"
    seed: int = 0
    ordered: bool = False
    definite: bool = False

    def array(self) -> np.ndarray:
        made = self._drawn()
        if self.definite:
            made = made @ made.swapaxes(-1, -2) + np.eye(made.shape[-1], dtype=made.dtype)
        return np.sort(made) if self.ordered else made

    def _drawn(self) -> np.ndarray:
        count = int(np.prod(self.shape))
        wave = np.sin(np.arange(1, count + 1) * 12.9898 + self.seed)
        unit = np.modf(np.abs(wave) * 43758.5453)[0]
        values = self.low + unit * (self.high - self.low)
        if self.dtype == "bool":
            return (unit > 0.5).reshape(self.shape)
        if self.dtype.startswith(("int", "uint")):
            return np.floor(values).astype(self.dtype).reshape(self.shape)
        return np.round(values, 3).astype(self.dtype).reshape(self.shape)


X, Y, POS = T((2, 3)), T((2, 3), seed=1), T((2, 3), 0.1, 3)
UNIT, ABOVE = T((2, 3), -0.9, 0.9), T((2, 3), 1.1, 3)
IMAGE, SEQ, VOLUME = T((1, 2, 6, 5)), T((1, 2, 7)), T((1, 2, 4, 4, 4))
BOOL, OTHER = T((2, 3), dtype="bool"), T((2, 3), dtype="bool", seed=4)
INT, SMALL = T((2, 3), -5, 6, "int64"), T((2, 3), 1, 4, "int64", 2)
CUBE = T((2, 3, 4))
AXES, TIES = T((1, 3), -1, 2, "int64", 3), T((3, 7), 0, 3, "int64")  # with zeros; with equals
NUMBER, ROWS, BOXES = T(()), T((3, 4)), T((1, 2, 8, 7), 0, 9)
EDGES, COUNT = T((4,), ordered=True), int(BOOL.array().sum())


def I(shape: tuple[int, ...], high: int, low: int = 0) -> T:  # noqa: E743
    return T(shape, low, high, "int64")


def each(names: str, **args: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(name, args) for name in names.split()]


VECTOR = {k: T((4,), 0.5, 2, seed=k) for k in range(4)}
NORM = {"input": T((2, 4, 3)), "weight": VECTOR[0], "bias": VECTOR[1]}
STATS = {**NORM, "running_mean": VECTOR[2], "running_var": VECTOR[3], "momentum": 0.1, "eps": 1e-5}

CASES: list[tuple[str, dict[str, Any]]] = [
    # element by element
    *each("exp sqrt log rsqrt reciprocal log1p log2 log10", self=POS),
    *each("tanh sigmoid erf sin cos tan sinh cosh atan asinh abs neg relu silu expm1 sign", self=X),
    *each("hardsigmoid hardswish relu6", self=T((2, 3), -5, 8)),
    *each("asin acos atanh", self=UNIT),
    *each("acosh", self=ABOVE),
    *each("floor ceil round trunc isnan isinf isfinite", self=X),
    *each("floor exp abs sign", self=INT),
    *each("add.Tensor sub.Tensor rsub.Tensor", self=X, other=T((3,)), alpha=2),
    *each("add.Tensor mul.Tensor sub.Tensor", self=INT, other=X),
    *each("add.Tensor mul.Tensor", self=X, other=T((), 2, 3, "float64")),
    *each("add.Tensor mul.Tensor", self=BOOL, other=OTHER),
    *each("add.Tensor", self=BOOL, other=OTHER, alpha=False),
    *each("add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar", self=X, other=3),
    *each("mul.Scalar div.Scalar add.Scalar", self=INT, other=2.5),
    *each("div.Tensor fmod.Tensor remainder.Tensor", self=X, other=POS),
    *each("div.Tensor floor_divide fmod.Tensor remainder.Tensor", self=INT, other=SMALL),
    *each("fmod.Scalar remainder.Scalar", self=X, other=0.75),
    *[("div.Tensor_mode", {"self": a, "other": b, "rounding_mode": m})
      for a, b in ((X, POS), (INT, SMALL)) for m in ("floor", "trunc")],
    *each("div.Scalar_mode", self=INT, other=2, rounding_mode="floor"),
    *each("maximum minimum", self=X, other=Y),
    *each("pow.Tensor_Scalar", self=POS, exponent=2.5),
    *[("pow.Tensor_Scalar", {"self": POS, "exponent": e}) for e in (1, 2, 3, 0.5, -0.5, -1)],
    *each("pow.Tensor_Tensor", self=POS, exponent=Y),
    *each("pow.Scalar", self=2.0, exponent=Y),
    *each("eq.Tensor ne.Tensor lt.Tensor gt.Tensor le.Tensor ge.Tensor", self=INT, other=SMALL),
    *each("eq.Scalar ne.Scalar lt.Scalar gt.Scalar le.Scalar ge.Scalar", self=INT, other=0.5),
    *each("logical_and logical_or logical_xor", self=BOOL, other=INT),
    *each("logical_not", self=INT),
    *each("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", self=INT, other=SMALL),
    *each("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor", self=BOOL, other=OTHER),
    *each("bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar", self=INT, other=3),
    *each("bitwise_not", self=INT),
    *each("bitwise_not", self=BOOL),
    *each("where.self", condition=BOOL, self=X, other=T((3,))),
    *each("where.ScalarOther", condition=BOOL, self=X, other=0.5),
    *each("where.ScalarSelf", condition=BOOL, self=0.5, other=X),
    *each("where.Scalar", condition=BOOL, self=0.5, other=1.5),
    *each("masked_fill.Scalar", self=X, mask=BOOL, value=-1),
    *each("masked_fill.Tensor", self=X, mask=BOOL, value=T((), 1, 2)),
    *each("clamp", self=X, min=-0.5, max=1),
    *each("clamp_min", self=X, min=0.5),
    *each("clamp_max", self=X, max=0.5),
    *each("clamp.Tensor", self=X, min=UNIT, max=ABOVE),
    *each("exp2 signbit angle", self=X),
    *each("signbit", self=INT),
    *each("copysign.Tensor hypot atan2 fmax fmin", self=X, other=Y),
    *each("copysign.Tensor atan2", self=AXES, other=T((3, 1), -1, 2, "int64", 5)),
    *each("fmax fmin", self=INT, other=SMALL),
    *each("copysign.Scalar", self=X, other=-0.0),
    *each("hypot", self=T((3,), 1e25, 9e25), other=T((2, 1), -9e25, 9e25)),
    *each("ldexp.Tensor", self=X, other=SMALL),
    *[("round.decimals", {"self": T((2, 3), -99, 99), "decimals": d}) for d in (1, -1)],
    *each("rrelu_with_noise_functional", self=X, noise=Y, training=False),
    *each("hardtanh", self=X, min_val=-0.5, max_val=0.5),
    *each("leaky_relu", self=X, negative_slope=0.2),
    *each("threshold", self=X, threshold=0.5, value=9),
    *each("gelu", self=X),
    *each("gelu", self=X, approximate="tanh"),
    *each("elu", self=X, alpha=1.5, scale=0.7, input_scale=0.9),
    *each("softplus", self=T((2, 3), -4, 30)),
    *each("_prelu_kernel", self=T((2, 3, 4)), weight=T((3, 1), 0.1, 0.5)),
    *each("prelu", self=T((2, 3, 4)), weight=T((3,), 0.1, 0.5)),
    *each("glu", self=T((2, 4, 3)), dim=1),
    *each("lerp.Scalar", self=X, end=Y, weight=0.3),
    *each("lerp.Tensor", self=X, end=Y, weight=POS),
    *each("addcmul addcdiv", self=X, tensor1=Y, tensor2=POS, value=0.5),
    *each("_to_copy", self=X, dtype="int32"),
    *each("_to_copy", self=INT, dtype="float32"),
    *each("clone alias detach lift_fresh_copy", self=X),
    *each("dropout", input=X, p=0.5, train=False),
    # reductions
    *each("mean.dim", self=CUBE, dim=[-1], keepdim=True),
    *each("mean sum prod max min any all", self=X),
    *each("sum.dim_IntList", self=CUBE, dim=[0, 2]),
    *each("sum.dim_IntList", self=INT, dim=[1]),
    *each("sum", self=BOOL),
    *each("prod.dim_int", self=CUBE, dim=1),
    *each("any.dim all.dim", self=INT, dim=1, keepdim=True),
    *each("any.dims all.dims", self=INT, dim=[0, 1]),
    *each("amax amin", self=CUBE, dim=[1, 2]),
    *each("max.dim min.dim", self=CUBE, dim=1),
    *each("argmax argmin", self=CUBE, dim=2, keepdim=True),
    *each("argmax argmin", self=CUBE),
    *each("var.correction std.correction", self=CUBE, dim=[1], correction=1),
    *each("var.dim std.dim", self=CUBE, dim=[1, 2], unbiased=False, keepdim=True),
    *each("var_mean.correction", self=CUBE, dim=[2], correction=0, keepdim=True),
    *[("linalg_vector_norm", {"self": CUBE, "ord": o, "dim": [1]})
      for o in (1, 2, 3, float("inf"), float("-inf"))],
    *each("logsumexp", self=CUBE, dim=[1]),
    *each("logsumexp", self=CUBE, dim=[1], keepdim=True),
    # made of nothing
    *each("full", size=[2, 3], fill_value=1.5),
    *each("full", size=[], fill_value=2.0),
    *each("full_like", self=X, fill_value=3),
    *each("zeros_like ones_like", self=INT),
    *each("zeros ones", size=[2, 2]),
    *each("new_zeros new_ones", self=X, size=[2]),
    *each("new_full", self=X, size=[2], fill_value=4),
    *each("scalar_tensor", s=2.5),
    *each("arange", end=5),
    *each("arange.start", start=2, end=5),
    *each("arange.start_step", start=1, end=4, step=0.5),
    *each("eye", n=3),
    *each("eye.m", n=2, m=3),
    # moving elements
    *each("view _unsafe_view", self=CUBE, size=[6, -1]),
    *each("view", self=T((1, 1)), size=[]),
    *each("reshape", self=CUBE, shape=[4, 6]),
    *each("permute", self=CUBE, dims=[2, 0, 1]),
    *each("t", self=X),
    *each("transpose.int", self=CUBE, dim0=-1, dim1=0),
    *each("expand", self=T((2, 1)), size=[3, -1, 4]),
    ("cat", {"tensors": [X, T((1, 3)), INT], "dim": 0}),
    ("cat", {"tensors": [X, Y], "dim": -1}),
    ("cat", {"tensors": [T((0,)), T((0,))], "dim": 0}),
    ("cat", {"tensors": [X, T((0,))], "dim": 1}),
    ("stack", {"tensors": [X, Y], "dim": 1}),
    *each("view", self=T((2, 0, 3)), size=[0, 6]),
    *each("roll", self=T((2, 0)), shifts=[1], dims=[1]),
    *each("slice.Tensor", self=CUBE, dim=1, start=1, end=9223372036854775807),
    *each("slice.Tensor", self=CUBE, dim=-1, start=-3, end=-1),
    *each("slice.Tensor", self=T((9,)), dim=0, start=1, end=8, step=3),
    *each("slice.Tensor", self=CUBE, dim=1, start=2, end=1),
    *each("select.int", self=CUBE, dim=1, index=-1),
    *each("slice_scatter", self=CUBE, src=T((2, 1, 4)), dim=1, start=1, end=2),
    *each("slice_scatter", self=T((9, 2)), src=T((3, 2)), dim=0, start=1, step=3),
    *each("slice_scatter", self=CUBE, src=T((2, 0, 4)), dim=1, start=1, end=1),
    *each("slice_scatter", self=CUBE, src=T((2, 3, 4), dtype="float64"), dim=1),
    *each("select_scatter", self=CUBE, src=T((2, 4)), dim=1, index=1),
    *each("split_with_sizes", self=CUBE, split_sizes=[1, 3], dim=2),
    *each("split_with_sizes", self=CUBE, split_sizes=[4, 0], dim=2),
    *each("split.Tensor", self=CUBE, split_size=2, dim=2),
    *each("unbind.int", self=CUBE, dim=1),
    *each("unsqueeze", self=X, dim=-1),
    *each("squeeze.dim", self=T((2, 1, 3)), dim=1),
    *each("squeeze.dims", self=T((1, 2, 1)), dim=[0, 2]),
    *each("squeeze", self=T((1, 1))),
    *each("constant_pad_nd", self=X, pad=[1, 2, 0, 1], value=5),
    *each("constant_pad_nd", self=CUBE, pad=[-1, 1, 0, -1]),
    *each("reflection_pad1d replication_pad1d", self=T((2, 3, 5)), padding=[2, 1]),
    *each("reflection_pad2d replication_pad2d", self=IMAGE, padding=[2, 1, 0, 3]),
    *each("reflection_pad3d replication_pad3d", self=VOLUME, padding=[1, 1, 0, 1, 2, 0]),
    *each("repeat", self=X, repeats=[2, 1, 3]),
    *each("repeat_interleave.self_int", self=X, repeats=2, dim=1),
    *each("repeat_interleave.self_int", self=X, repeats=2),
    *each("flip", self=CUBE, dims=[0, -1]),
    *each("roll", self=CUBE, shifts=[1, -2], dims=[1, 2]),
    *each("roll", self=X, shifts=[2], dims=[]),
    *each("as_strided", self=CUBE, size=[4, 2, 3], stride=[1, 12, 4]),
    *each("copy", self=X, src=T((3,), dtype="float64")),
    *each("pixel_shuffle", self=T((1, 8, 2, 3)), upscale_factor=2),
    *each("pixel_unshuffle", self=T((1, 2, 4, 6)), downscale_factor=2),
    *each("channel_shuffle", self=T((1, 4, 2, 2)), groups=2),
    *each("tril triu", self=T((2, 3, 3)), diagonal=1),
    *each("tril triu", self=T((3, 4)), diagonal=-1),
    # by index
    *each("embedding", weight=T((5, 3)), indices=I((2, 4), 5)),
    *each("unfold", self=CUBE, dimension=1, size=2, step=1),
    *each("unfold", self=T((2, 9)), dimension=-1, size=4, step=2),
    *each("unfold", self=T((9, 2)), dimension=0, size=2, step=3),
    *each("unfold_backward", grad_in=T((2, 3, 5, 4)), input_sizes=[2, 9, 5], dim=1, size=4,
          step=2),
    *each("index_select", self=CUBE, dim=1, index=I((4,), 3)),
    ("index.Tensor", {"self": CUBE, "indices": [I((2, 2), 2)]}),
    ("index.Tensor", {"self": CUBE, "indices": [None, I((2,), 3, -3)]}),
    ("index.Tensor", {"self": CUBE, "indices": [I((2, 1), 2), I((3,), 3, -3)]}),
    ("index.Tensor", {"self": CUBE, "indices": [I((2,), 2), None, I((2,), 4)]}),
    ("index.Tensor", {"self": CUBE, "indices": [None, I((2,), 3), I((3, 1), 4)]}),
    *each("gather", self=CUBE, dim=1, index=I((2, 2, 4), 3)),
    *each("scatter.src scatter_add", self=CUBE, dim=1, index=I((2, 1, 4), 3), src=T((2, 1, 4))),
    *each("scatter.src scatter_add", self=CUBE, dim=1, index=I((2, 1, 3), 3), src=T((2, 2, 4))),
    *each("scatter.value", self=CUBE, dim=2, index=I((2, 3, 1), 4), value=7),
    ("index_put", {"self": CUBE, "indices": [T((1,), 1, 2, "int64")], "values": T((1, 3, 4))}),
    ("index_put", {"self": X, "indices": [BOOL], "values": T((), 1, 2)}),
    ("index_put", {"self": CUBE, "indices": [None, I((1, 2), 3), I((2, 1), 4)],
                   "values": T((2, 2, 2)), "accumulate": True}),
    ("index_put", {"self": CUBE, "indices": [I((2,), 2), None, I((2,), 4)], "values": T((2, 3)),
                   "accumulate": True}),
    ("index_put", {"self": CUBE, "indices": [None, T((3,), 0, 1, "bool")], "values": T((1,))}),
    ("index_put", {"self": CUBE, "indices": [T((2,), 0, 1, "int64"), T((2,), 1, 2, "int64")],
                   "values": T((4,)), "accumulate": True}),
    *each("topk", self=T((2, 7)), k=3),
    *each("topk", self=T((2, 7)), k=2, largest=False),
    *each("sort", self=T((2, 5)), dim=1),
    *each("sort", self=T((2, 5)), dim=-1, descending=True),
    *each("cumsum", self=CUBE, dim=1),
    # products
    *each("mm", self=X, mat2=T((3, 4))),
    *each("addmm", self=T((4,)), mat1=X, mat2=T((3, 4)), beta=0.5, alpha=2),
    *each("linear", input=CUBE, weight=T((5, 4)), bias=T((5,))),
    *each("bmm", self=CUBE, mat2=T((2, 4, 5))),
    *each("baddbmm", self=T((2, 3, 5)), batch1=CUBE, batch2=T((2, 4, 5))),
    *each("matmul", self=CUBE, other=T((4, 5))),
    *each("matmul", self=T((2, 1, 3, 4)), other=T((3, 4, 2))),
    *each("matmul", self=CUBE, other=T((4,))),
    *each("mv", self=X, vec=T((3,))),
    *each("dot", self=T((5,)), tensor=T((5,), seed=3)),
    ("einsum", {"equation": "bij,bjk->bik", "tensors": [CUBE, T((2, 4, 2))]}),
    *each("_scaled_dot_product_flash_attention_for_cpu", query=T((1, 2, 3, 4)),
          key=T((1, 2, 5, 4), seed=1), value=T((1, 2, 5, 4), seed=2)),
    *each("scaled_dot_product_attention", query=T((3, 4)), key=T((5, 4), seed=1),
          value=T((5, 2), seed=2)),
    *each("scaled_dot_product_attention", query=T((1, 2, 3, 4)), key=T((1, 2, 3, 4), seed=1),
          value=T((1, 2, 3, 4), seed=2), attn_mask=T((3, 3), dtype="bool", seed=3)),
    *each("scaled_dot_product_attention", query=T((1, 2, 3, 4)), key=T((1, 2, 5, 4), seed=1),
          value=T((1, 2, 5, 4), seed=2)),
    *each("scaled_dot_product_attention", query=T((1, 2, 3, 4)), key=T((1, 2, 3, 4), seed=1),
          value=T((1, 2, 3, 4), seed=2), is_causal=True, scale=0.3),
    *each("scaled_dot_product_attention", query=T((1, 2, 3, 4)), key=T((1, 2, 5, 4), seed=1),
          value=T((1, 2, 5, 4), seed=2), attn_mask=T((3, 5))),
    *each("scaled_dot_product_attention", query=T((1, 4, 3, 4)), key=T((1, 2, 3, 4), seed=1),
          value=T((1, 2, 3, 4), seed=2), enable_gqa=True),
    *each("_native_multi_head_attention", query=T((2, 3, 4)), key=T((2, 3, 4)),
          value=T((2, 3, 4)), embed_dim=4, num_head=2, qkv_weight=T((12, 4), seed=1),
          qkv_bias=T((12,), seed=2), proj_weight=T((4, 4), seed=3), proj_bias=T((4,), seed=4),
          need_weights=False),
    *[("_transformer_encoder_layer_fwd", {
          "src": T((2, 3, 4)), "embed_dim": 4, "num_heads": 2, "qkv_weight": T((12, 4), seed=1),
          "qkv_bias": T((12,), seed=2), "proj_weight": T((4, 4), seed=3),
          "proj_bias": T((4,), seed=4), "use_gelu": first, "norm_first": first, "eps": 1e-5,
          "norm_weight_1": VECTOR[0], "norm_bias_1": VECTOR[1], "norm_weight_2": VECTOR[2],
          "norm_bias_2": VECTOR[3], "ffn_weight_1": T((6, 4), seed=5),
          "ffn_bias_1": T((6,), seed=6), "ffn_weight_2": T((4, 6), seed=7),
          "ffn_bias_2": T((4,), seed=8)}) for first in (False, True)],
    # normalisation
    *each("_native_batch_norm_legit_no_training", **STATS),
    *each("native_batch_norm", **STATS, training=False),
    *each("_native_batch_norm_legit.no_stats", input=STATS["input"], weight=STATS["weight"],
          bias=None, training=True, momentum=0.0, eps=1e-3),
    *each("batch_norm", input=T((2, 4)), weight=None, bias=None, running_mean=None,
          running_var=None, training=True, momentum=0.1, eps=1e-5, cudnn_enabled=True),
    *each("batch_norm", **{**STATS, "weight": None, "bias": None}, training=False,
          cudnn_enabled=False),
    *each("native_layer_norm", input=CUBE, normalized_shape=[4], weight=VECTOR[0],
          bias=VECTOR[1], eps=1e-5),
    *each("layer_norm", input=CUBE, normalized_shape=[3, 4], eps=1e-5),
    *each("rms_norm", input=CUBE, normalized_shape=[4], weight=VECTOR[0]),
    *each("native_group_norm", **NORM, N=2, C=4, HxW=3, group=2, eps=1e-5),
    *each("group_norm", **NORM, num_groups=2),
    *each("instance_norm", **NORM, running_mean=None, running_var=None, use_input_stats=True,
          momentum=0.1, eps=1e-5, cudnn_enabled=False),
    *each("_softmax _log_softmax", self=CUBE, dim=1, half_to_float=False),
    *each("softmax.int log_softmax.int", self=CUBE, dim=-1),
    # windows
    *[("convolution", {"input": data, "weight": weight, "bias": T((4,)), "stride": [2] * rank,
                       "padding": [1] * rank, "dilation": [1] * rank, "transposed": False,
                       "output_padding": [0] * rank, "groups": groups})
      for rank, data in ((1, SEQ), (2, IMAGE), (3, VOLUME)) for groups in (1, 2)
      for weight in [T((4, 2 // groups, *(3,) * rank), seed=7)]],
    *[("convolution", {"input": data, "weight": T((2, 3, *(3,) * rank), seed=7), "bias": T((3,)),
                       "stride": [2] * rank, "padding": [1] * rank, "dilation": [1] * rank,
                       "transposed": True, "output_padding": [1] * rank, "groups": 1})
      for rank, data in ((1, SEQ), (2, IMAGE), (3, VOLUME))],
    *each("max_pool1d", self=SEQ, kernel_size=[3], stride=[2], padding=[1]),
    *each("max_pool2d_with_indices", self=IMAGE, kernel_size=[3, 2], stride=[2, 1],
          padding=[1, 0]),
    *each("max_pool2d_with_indices", self=T((2, 6, 5)), kernel_size=[2, 2], stride=[2, 2],
          ceil_mode=True),
    *each("max_unpool2d", self=T((1, 2, 3, 2)), indices=T((1, 2, 3, 2), 0, 30, "int64", 3),
          output_size=[6, 5]),
    *each("max_pool3d_with_indices", self=VOLUME, kernel_size=[2]),
    *each("max_pool2d", self=IMAGE, kernel_size=[3, 2], stride=[2, 2], padding=[1, 0],
          ceil_mode=True),
    *each("max_pool3d", self=VOLUME, kernel_size=[2], stride=[2]),
    *each("avg_pool1d", self=SEQ, kernel_size=[3], stride=[2], padding=[1]),
    *each("avg_pool2d", self=IMAGE, kernel_size=[3], stride=[2], padding=[1],
          count_include_pad=False),
    *each("avg_pool2d", self=IMAGE, kernel_size=[3], stride=[2], padding=[1]),
    *each("avg_pool3d", self=VOLUME, kernel_size=[2]),
    *each("_adaptive_avg_pool2d adaptive_avg_pool2d", self=IMAGE, output_size=[1, 1]),
    *each("_adaptive_avg_pool2d", self=IMAGE, output_size=[3, 2]),
    *each("_adaptive_avg_pool3d adaptive_avg_pool3d", self=VOLUME, output_size=[2, 2, 2]),
    *each("adaptive_avg_pool1d", self=SEQ, output_size=[3]),
    *each("adaptive_max_pool1d", self=T((1, 2, 6)), output_size=[3]),
    *each("adaptive_max_pool2d", self=T((1, 2, 6, 4)), output_size=[3, 2]),
    *each("adaptive_max_pool2d", self=T((2, 7, 4), -3, 3, seed=5), output_size=[3, 5]),
    *each("adaptive_max_pool3d", self=VOLUME, output_size=[2, 2, 1]),
    *each("upsample_nearest1d.vec", input=SEQ, output_size=[10], scale_factors=None),
    *each("upsample_nearest2d.vec", input=IMAGE, output_size=None, scale_factors=[2.0, 2.0]),
    *each("upsample_nearest3d.vec", input=VOLUME, output_size=[6, 4, 8], scale_factors=None),
    *[("upsample_linear1d.vec", {"input": SEQ, "output_size": [10], "align_corners": c,
                                 "scale_factors": None}) for c in (False, True)],
    *[("upsample_bilinear2d.vec", {"input": IMAGE, "output_size": [9, 7], "align_corners": c,
                                   "scale_factors": None}) for c in (False, True)],
    *each("upsample_trilinear3d.vec", input=VOLUME, output_size=[6, 5, 8], align_corners=False,
          scale_factors=None),
    *each("upsample_bicubic2d.vec", input=IMAGE, output_size=[9, 7], align_corners=False,
          scale_factors=None),
    *each("im2col", self=IMAGE, kernel_size=[3, 2], dilation=[1, 2], padding=[1, 0],
          stride=[2, 1]),
    *(
        (f"grid_sampler{form}", {
            "input": IMAGE if form == "_2d" else VOLUME,
            "grid": T((1, 4, 3, 2) if form == "_2d" else (1, 2, 3, 2, 3), -1.3, 1.3),
            "interpolation_mode": mode, "padding_mode": padding, "align_corners": corners,
        })
        for form, modes in (("_2d", (0, 1, 2)), ("_3d", (0, 1)))
        for mode in modes for padding in (0, 1, 2) for corners in (False, True)
    ),
    *each("linalg_det _linalg_det", A=T((2, 4, 4))),
    # along an axis, also of a number
    *each("amax amin", self=NUMBER, dim=[0], keepdim=True),
    *each("max.dim min.dim argmax", self=NUMBER, dim=0),
    *each("softmax.int log_softmax.int", self=NUMBER, dim=-1),
    *each("sum.dim_IntList", self=NUMBER, dim=[0]),
    *each("topk", self=NUMBER, k=1),
    *each("gather", self=NUMBER, dim=0, index=I((1,), 1)),
    *each("cumprod logcumsumexp", self=CUBE, dim=1),
    *each("logcumsumexp", self=T((2, 5), -150, 90), dim=1),
    *each("cummax cummin", self=CUBE, dim=2),
    *each("cummax cummin", self=TIES, dim=1),
    *each("median.dim nanmedian.dim mode", self=ROWS, dim=0),
    *each("mode", self=TIES, dim=1),
    *each("median nanmedian", self=T((3, 4))),
    *each("median", self=INT),
    *each("kthvalue", self=CUBE, k=2, dim=1),
    *[("searchsorted.Tensor", {"sorted_sequence": EDGES, "self": X, "right": r})
      for r in (False, True)],
    *each("searchsorted.Scalar", sorted_sequence=EDGES, self=2, out_int32=True),
    *each("bucketize.Tensor", self=INT, boundaries=EDGES, right=True),
    *each("bucketize.Scalar", self=0.5, boundaries=EDGES),
    *[("histc", {"self": T((2, 9)), "bins": 4, "min": -m, "max": m}) for m in (0, 1)],
    *[("diagonal", {"self": CUBE, "offset": k, "dim1": a, "dim2": b})
      for k, a, b in ((0, 0, 1), (1, 1, 2), (-1, 0, 2), (1, 2, 0))],
    # where a tensor of integers says
    *[("scatter_reduce.two", {"self": T((3, 4)), "dim": 0, "index": I((2, 4), 3),
       "src": T((3, 4), seed=2), "reduce": r, "include_self": b})
      for r in ("sum", "prod", "mean", "amax", "amin") for b in (True, False)],
    *[("scatter_reduce.two", {"self": T((3, 4), -5, 6, "int64"), "dim": 1, "index": I((3, 3), 4),
       "src": T((3, 3), -9, 9, "int64", 2), "reduce": r, "include_self": False})
      for r in ("mean", "amax")],
    *each("scatter.reduce", self=ROWS, dim=0, index=I((2, 4), 3), src=ROWS, reduce="multiply"),
    *each("scatter.value_reduce", self=ROWS, dim=1, index=I((3, 2), 4), value=2.5, reduce="add"),
    *each("scatter_add", self=NUMBER, dim=0, index=I((), 1), src=NUMBER),
    *each("index_reduce", self=ROWS, dim=1, index=I((3,), 4), source=T((3, 3)), reduce="amax"),
    *each("index_reduce", self=ROWS, dim=0, index=I((2,), 3), source=T((2, 4)), reduce="mean",
          include_self=False),
    *each("masked_scatter", self=X, mask=BOOL, source=T((8,), 5, 9)),
    *each("index_put", self=X, indices=[BOOL], values=T((COUNT,), 5, 9)),
    *each("put", self=ROWS, index=I((2, 2), 12, -12), source=T((2, 2)), accumulate=True),
    *[("_embedding_bag", {"weight": T((5, 3)), "indices": I((6,), 5), "mode": m,
       "offsets": T((3,), 0, 7, "int64", 9, True), "include_last_offset": b, "padding_idx": p})
      for m in (0, 1, 2) for b, p in ((False, -1), (True, 2))],
    *each("_embedding_bag", weight=T((5, 3)), indices=I((6,), 5), per_sample_weights=T((6,)),
          offsets=T((3,), 0, 7, "int64", 9, True)),
    # products and distances
    *each("addmv", self=T((3,)), mat=ROWS, vec=T((4,)), beta=0.5, alpha=2),
    *each("addbmm", self=T((3, 5)), batch1=CUBE, batch2=T((2, 4, 5)), alpha=2),
    *each("_trilinear", i1=T((2, 3)), i2=T((5, 3, 4)), i3=T((2, 4)), expand1=[1, 3], expand2=[0],
          expand3=[1, 2], sumdim=[2, 3]),
    *[(op, {**given, "p": p}) for p in (0.0, 1.0, 2.0, 3.0) for op, given in (
        ("_cdist_forward", {"x1": CUBE, "x2": T((5, 4)), "compute_mode": 2}),
        ("_pdist_forward", {"self": ROWS}), ("dist", {"self": X, "other": T((3,), seed=1)}))],
    # samples placed by scales, not by sizes; what shrinks, smoothed
    *[(f"upsample_{word}2d.vec", {"input": BOXES, "scale_factors": [f, f], "output_size": None,
       **more})
      for f in (1.7, 0.6) for word, more in (
        ("nearest", {}), ("bilinear", {"align_corners": False}),
        ("bicubic", {"align_corners": False}))],
    *[(f"_upsample_{word}2d_aa", {"self": BOXES, "output_size": [3, 11], "align_corners": c})
      for word in ("bilinear", "bicubic") for c in (False, True)],
    *each("avg_pool2d", self=BOXES, kernel_size=[3, 2], padding=[1, 1], divisor_override=5),
    *[(name, {"self": T((5, 4), low, high)}) for name in ("lgamma", "digamma")
      for low, high in ((-5, 5), (0, 1), (5, 50))],
    *[("diagonal_scatter", {"self": CUBE, "src": T((3, 2), seed=8), "offset": k, "dim1": a,
                            "dim2": b})
      for k, a, b in ((1, 0, 2), (0, 2, 0))],
    *each("narrow_copy", self=CUBE, dim=-1, start=-3, length=2),
    *each("clamp", self=INT, min=-2, max=3),
    *each("clamp_max", self=INT, max=1),
    *each("__lshift__.Tensor __rshift__.Tensor", self=INT, other=SMALL),
    *each("bitwise_left_shift.Tensor_Scalar bitwise_right_shift.Tensor_Scalar", self=INT, other=2),
    *[("_native_batch_norm_legit_functional", {**STATS, "training": t}) for t in (True, False)],
    *[(op, {"self": T((5, 4), low, high)}) for op in ("erfc", "special_erfc")
      for low, high in ((-4, 4), (2, 9))],
    *[(op, {"self": T((5, 4), -0.999, 0.999, kind)}) for op in ("erfinv", "special_erfinv")
      for kind in ("float32", "float64")],
    *each("erfinv", self=T((4,), -1, 2, "int64")),
    *[("avg_pool2d", {"self": BOXES, "kernel_size": [3, 2], "stride": s, "padding": p,
                      "ceil_mode": True, "divisor_override": 5})
      for s, p in (([2, 3], [1, 1]), ([5, 2], [0, 1]))],
    *each("as_strided", self=CUBE, size=[5, 4], stride=[3, 1], storage_offset=2),
    *each("as_strided", self=CUBE, size=[2, 2], stride=[0, 2]),
    # matrices
    *each("matmul", self=T((5, 2, 0)), other=T((0, 3))),
    *[(op, {"A": T((2, 3, 3), seed=3)}) for op in (
        "linalg_inv_ex", "_linalg_det", "_linalg_slogdet")],
    *each("linalg_inv_ex", A=T((1, 1))),
    *each("linalg_inv_ex", A=T((6, 6), dtype="float64")),
    *[("_linalg_solve_ex", {"A": T((2, 3, 3), seed=3), **more}) for more in (
        {"B": T((2, 3, 2))}, {"B": T((2, 3))}, {"B": T((2, 2, 3)), "left": False})],
    *[("linalg_solve_triangular", {"self": T((2, 3, 3), 1, 2), "B": b, "upper": u, **more})
      for u in (False, True) for b, more in (
        (T((3, 2)), {}), (T((2, 2, 3)), {"left": False}), (T((3, 2)), {"unitriangular": True}))],
    *[("triangular_solve", {"self": T((3, 2)), "A": T((3, 3), 1, 2), "upper": u, "transpose": t})
      for u in (False, True) for t in (False, True)],
    *[(op, {"self": T((2, 4, 4), definite=True), "upper": u})
      for op in ("cholesky", "linalg_cholesky_ex") for u in (False, True)],
    *[("cholesky_solve", {"self": T((4, 2)), "input2": T((4, 4), 1, 2), "upper": u})
      for u in (False, True)],
    # as long as the data say
    *each("nonzero", self=AXES),
    *each("nonzero", self=NUMBER),
    *each("masked_select", self=CUBE, mask=T((3, 1), dtype="bool")),
    *each("index.Tensor", self=X, indices=[BOOL]),
    *each("index.Tensor", self=CUBE, indices=[None, T((3, 4), dtype="bool")]),
    *each("index.Tensor", self=CUBE, indices=[T((2,), 0, 2, "int64"), T((3,), dtype="bool")]),
    *each("index_put", self=CUBE, indices=[T((2,), 0, 2, "int64"), T((3,), dtype="bool", seed=2)],
          values=T((4,))),
    *[("_unique2", {"self": TIES, "return_inverse": a, "return_counts": b})
      for a in (False, True) for b in (False, True)],
    *each("unique_dim", self=TIES, dim=1, return_inverse=True, return_counts=True),
    *[("unique_consecutive", {"self": TIES, "return_inverse": True, "return_counts": True,
                              "dim": d}) for d in (None, 0, 1)],
    *each("unique_consecutive", self=TIES),
    *each("_unique2 unique_consecutive", self=NUMBER),
    *each("unique_consecutive", self=T((2, 0, 3)), dim=1, return_inverse=True, return_counts=True),
    *each("unique_consecutive", self=T((0,)), return_counts=True),
    *each("bincount", self=T((9,), 0, 5, "int64")),
    *each("bincount", self=T((3,), 0, 5, "int64"), minlength=7),
    *each("repeat_interleave.Tensor", repeats=T((5,), 0, 4, "int64")),
]  # fmt: skip


def main() -> None:
    """Write the file: each call with all of its schema's arguments, and its results."""
    import torch

    def made(value: Any) -> Any:
        if isinstance(value, T):
            return torch.from_numpy(value.array())
        if isinstance(value, list):
            return [made(v) for v in value]
        is_type = isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)
        return getattr(torch, value) if is_type else value

    def plain(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            kind = str(value.dtype).removeprefix("torch.")
            digits = 7 if value.dtype.is_floating_point else None
            flat = [float(f"{v:.{digits}g}") if digits else v for v in value.reshape(-1).tolist()]
            return {"dtype": kind, "shape": list(value.shape), "values": flat}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        return value if isinstance(value, (bool, int, float, str)) else None

    rows = []
    for name, given in CASES:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        args = {}
        for argument in op._schema.arguments:
            if argument.name in given:
                args[argument.name] = made(given[argument.name])
            elif argument.has_default_value():
                args[argument.name] = argument.default_value
            else:
                raise KeyError(f"{name}: {argument.name} is missing, given {list(given)}")
        if left := set(given) - set(args):
            raise KeyError(f"{name} has no {left}")
        result = op(**args)
        several = isinstance(result, (list, tuple))
        row = {
            "op": f"{packet}.{overload or 'default'}", "several": several,
            "args": {k: plain(v) for k, v in args.items()},
            "results": [plain(r) for r in (result if several else [result])],
        }  # fmt: skip
        rows.append(json.dumps(row))
    EXPECTED.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"{len(rows)} calls")


if __name__ == "__main__":
    main()
