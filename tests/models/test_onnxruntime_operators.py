"""Operators that onnxruntime writes into its files, each compared with onnxruntime itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tilewright.base.errors import ModelError
from tilewright.models.onnx.foreign import ROWS, foreign_schema
from tilewright.models.onnx.ops import DOMAINS
from tilewright_tvm import relay

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(0)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def whole(*shape: int, dtype: str = "uint8") -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def weights(*shape: int) -> np.ndarray:
    """Of 7 bits: with more some kernels of onnxruntime, which add up in 16 bits, are not exact."""
    return whole(*shape, dtype="int8") // 2


def number(value: float, dtype: str = "float32") -> np.ndarray:
    return np.array(value, dtype)


@dataclass
class Case:
    """inputs: arrays, None where one is left out; fixed: those that are weights, by index
    steps: how many steps of a quantised result rounding may cost
    """

    op: str
    inputs: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    outputs: int = 1
    domain: str = MICROSOFT
    steps: int = 1

    def model(self) -> onnx.ModelProto:
        names = [f"i{k}" if v is not None else "" for k, v in enumerate(self.inputs)]
        outputs = [f"o{k}" for k in range(self.outputs)]
        made = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attrs)
        graph = helper.make_graph(
            [made], "g",
            [
                helper.make_tensor_value_info(
                    names[k], helper.np_dtype_to_tensor_dtype(v.dtype), v.shape
                )
                for k, v in enumerate(self.inputs) if v is not None and k not in self.fixed
            ],
            [helper.make_empty_tensor_value_info(o) for o in outputs],
            [numpy_helper.from_array(self.inputs[k], names[k]) for k in self.fixed],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 16), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def values(self) -> dict[str, np.ndarray]:
        given = {f"i{k}": v for k, v in enumerate(self.inputs) if v is not None}
        return {n: v for n, v in given.items() if int(n[1:]) not in self.fixed}


X = real(2, 3, 8)
STEP, ZERO = number(0.05), number(120, "uint8")
IMAGE, KERNEL = real(1, 4, 6, 6), real(8, 2, 3, 3)
PACKED = [X, 0.3 * real(8, 24), real(24)]
HEADS = {"num_heads": 2}
ENDS = np.array([2, 3], "int32")
QUERY = [real(2, 3, 8) for _ in range(3)]
TABLES = [real(16, 2), real(16, 2)]
DATA = [whole(2, 3, 4), STEP, ZERO]
TO = [number(0.02), number(10, "uint8")]
PAIR = [*DATA, whole(3, 4), number(0.03), number(100, "uint8")]
WORDS = np.array([[0, 2, 1], [3, 3, 0]], "int32")
EMBED = [WORDS, None, real(4, 8), real(5, 8), None, real(8), real(8)]
POOL = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}

CASES = {
    "attention": Case("Attention", PACKED, HEADS),
    "attention-causal": Case("Attention", PACKED, {**HEADS, "unidirectional": 1}),
    "attention-ends": Case("Attention", [*PACKED, ENDS], HEADS),
    "attention-starts": Case(
        "Attention", [*PACKED, np.array([2, 3, 0, 1], "int32")], HEADS),
    "attention-words": Case(
        "Attention", [*PACKED, np.array([[1, 1, 0], [0, 1, 1]], "int32")], HEADS),
    "attention-pairs": Case("Attention", [*PACKED, np.tril(np.ones((2, 3, 3), "int32"))], HEADS),
    "attention-past": Case(
        "Attention", [*PACKED, None, real(2, 2, 2, 5, 4)], {**HEADS, "unidirectional": 1},
        outputs=2),
    "attention-bias": Case(
        "Attention", [*PACKED, None, None, real(1, 2, 3, 3)], {**HEADS, "scale": 0.3}),
    "attention-sizes": Case(
        "Attention", [X, 0.3 * real(8, 20), real(20)],
        {**HEADS, "qkv_hidden_sizes": [8, 8, 4]}),
    "multi-head": Case("MultiHeadAttention", QUERY, HEADS),
    "multi-head-bias": Case("MultiHeadAttention", [*QUERY, real(24)], HEADS),
    "multi-head-mask": Case(
        "MultiHeadAttention", [*QUERY, None, np.array([[1, 1, 0], [1, 1, 1]], "int32")], HEADS),
    "multi-head-causal": Case(
        "MultiHeadAttention", [*QUERY, None, None, real(2, 2, 3, 3)],
        {**HEADS, "unidirectional": 1}),
    "multi-head-past": Case(
        "MultiHeadAttention",
        [*QUERY, None, None, None, real(2, 2, 4, 4), real(2, 2, 4, 4)], HEADS, outputs=3),
    "qattention": Case("QAttention", [
        whole(2, 3, 8), weights(8, 24), real(24), number(0.01), number(0.01), None,
        ZERO, number(0, "int8")], HEADS),
    "rotary": Case(
        "RotaryEmbedding", [real(2, 3, 8), np.array([[3, 4, 5], [0, 1, 2]]), *TABLES],
        {"num_heads": 2, "rotary_embedding_dim": 4}),
    "rotary-from": Case(
        "RotaryEmbedding", [real(2, 2, 3, 4), np.array([7]), *TABLES], {"interleaved": 1}),
    "bias-gelu": Case("BiasGelu", [X, real(8)]),
    "gelu": Case("Gelu", [X]),
    "fast-gelu": Case("FastGelu", [X, real(8)]),
    "quick-gelu": Case("QuickGelu", [X], {"alpha": 1.5}),
    "skip-norm": Case("SkipLayerNormalization", [X, real(2, 3, 8), real(8), real(8)]),
    "skip-norm-bias": Case(
        "SkipLayerNormalization", [X, real(3, 8), real(8), None, real(8)], {"epsilon": 1e-3}),
    "skip-norm-sum": Case(
        "SkipLayerNormalization", [X, real(2, 3, 8), real(8), real(8)], outputs=4),
    "skip-rms": Case("SkipSimplifiedLayerNormalization", [X, real(2, 3, 8), real(8), real(8)]),
    "simplified": Case("SimplifiedLayerNormalization", [X, real(8)], {"epsilon": 1e-3}, domain=""),
    "layer-norm": Case("LayerNormalization", [X, real(3, 8), real(3, 8)], {"axis": 1}, domain=""),
    "embed": Case("EmbedLayerNormalization", EMBED, outputs=2),
    "embed-segments": Case(
        "EmbedLayerNormalization",
        [WORDS, WORDS // 2, *EMBED[2:4], real(2, 8), *EMBED[5:], WORDS // 2,
         np.array([[4, 3, 0]], "int32")], outputs=2),
    "fused-conv": Case(
        "FusedConv", [IMAGE, KERNEL, real(8), real(1, 8, 6, 6)],
        {"pads": [1, 1, 1, 1], "group": 2, "activation": "Relu"}),
    "fused-conv-leaky": Case(
        "FusedConv", [IMAGE, KERNEL],
        {"group": 2, "activation": "LeakyRelu", "activation_params": [0.3]}),
    "fused-conv-clip": Case(
        "FusedConv", [IMAGE, KERNEL, real(8)],
        {"group": 2, "activation": "Clip", "activation_params": [0.0, 1.5]}),
    "fused-gemm": Case(
        "FusedGemm", [real(3, 4), real(5, 4), real(5)],
        {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.2}),
    "fused-matmul": Case(
        "FusedMatMul", [real(2, 4, 3), real(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.25}),
    "fused-matmul-batch": Case(
        "FusedMatMul", [real(3, 2, 4), real(2, 4, 5)], {"transBatchA": 1}),
    "fused-matmul-both": Case(
        "FusedMatMul", [real(4, 2, 3), real(2, 4, 5)], {"transBatchA": 1, "transA": 1}),
    "transpose-matmul": Case("TransposeMatMul", [real(2, 4, 3), real(2, 4, 5)], {"transA": 1}),
    "grid-sample": Case(
        "GridSample", [IMAGE, real(1, 3, 2, 2)], {"mode": "bilinear", "padding_mode": "border"}),
    "trilu": Case("Trilu", [real(4, 5), number(1, "int64")], {"upper": 0}, (1,)),
    "pad": Case(
        "Pad", [real(3, 4), np.array([1, 0, 0, 2]), number(1.5)], fixed=(1, 2)),
    "gather-nd": Case("GatherND", [real(3, 4, 2), np.array([[0, 1], [2, 3]])]),
    "nbits": Case(
        "MatMulNBits", [real(2, 3, 40), whole(5, 3, 8), real(5, 3)],
        {"K": 40, "N": 5, "bits": 4, "block_size": 16}, (1, 2)),
    "nbits-zeros": Case(
        "MatMulNBits", [real(2, 48), whole(5, 3, 8), real(5, 3), whole(5, 2)],
        {"K": 48, "N": 5, "bits": 4, "block_size": 16}, (1, 2, 3)),
    "nbits-eight": Case(
        "MatMulNBits", [real(2, 32), whole(4, 2, 16), real(4, 2)],
        {"K": 32, "N": 4, "bits": 8, "block_size": 16}, (1, 2)),
    "qadd": Case("QLinearAdd", [*PAIR, *TO]),
    "qmul": Case("QLinearMul", [*PAIR, *TO]),
    "qmul-int8": Case("QLinearMul", [
        whole(3, 4, dtype="int8"), STEP, number(-5, "int8"), whole(4, dtype="int8"), STEP,
        number(3, "int8"), number(0.1), number(7, "int8")]),
    "qwhere": Case("QLinearWhere", [
        np.array([[True], [False], [True]]), *PAIR, *TO]),
    "qconcat": Case("QLinearConcat", [*TO, *DATA, whole(2, 1, 4), number(0.01), ZERO], {"axis": 1},
                    (0, 1, 3, 4, 6, 7)),
    "qglobal": Case("QLinearGlobalAveragePool", [whole(2, 3, 5, 4), STEP, ZERO, *TO]),
    "qglobal-last": Case(
        "QLinearGlobalAveragePool", [whole(2, 5, 4, 3), STEP, ZERO, *TO], {"channels_last": 1}),
    "qpool": Case("QLinearAveragePool", [whole(2, 3, 7, 5), STEP, ZERO, *TO], POOL),
    "qpool-last": Case(
        "QLinearAveragePool", [whole(2, 7, 5, 3), STEP, ZERO, *TO], {**POOL, "channels_last": 1}),
    "nhwc-max": Case("NhwcMaxPool", [whole(2, 7, 5, 3)], POOL),
    "qsigmoid": Case("QLinearSigmoid", [*DATA, number(1 / 256), number(0, "uint8")], fixed=(1, 2)),
    "qleaky": Case("QLinearLeakyRelu", [*DATA, *TO], {"alpha": 0.2}, (1, 2, 3, 4)),
    "qsoftmax": Case(
        "QLinearSoftmax", [*DATA, number(1 / 256), number(0, "uint8")], {"opset": 13, "axis": 1},
        (1, 2, 3, 4)),
    "qsoftmax-flat": Case(
        "QLinearSoftmax", [*DATA, number(1 / 256), number(0, "uint8")], {"opset": 11, "axis": 1},
        (1, 2, 3, 4)),
    "qgemm": Case("QGemm", [
        whole(3, 4), STEP, ZERO, weights(5, 4), number(0.1), number(0, "int8"),
        np.arange(5, dtype="int32"), number(2.0), ZERO], {"transB": 1}),
    "qgemm-columns": Case("QGemm", [
        whole(3, 4), STEP, ZERO, weights(5, 4), real(5) ** 2, np.arange(-2, 3).astype("int8"),
        np.arange(5, dtype="int32"), number(2.0), ZERO], {"transB": 1}),
    "qgemm-real": Case("QGemm", [
        whole(3, 4), STEP, ZERO, weights(4, 5), real(5) ** 2,
        np.zeros(5, "int8")], {"alpha": 0.5}),
    "dynamic-matmul": Case("DynamicQuantizeMatMul", [
        real(2, 3, 8), weights(8, 5), number(0.1), number(3, "int8"), real(5)]),
    "dynamic-matmul-columns": Case("DynamicQuantizeMatMul", [
        real(3, 8), weights(8, 5), real(5) ** 2, np.zeros(5, "int8")]),
    "matmul-to-float": Case("MatMulIntegerToFloat", [
        whole(2, 3, 8), weights(8, 5), STEP, number(0.1), ZERO, number(2, "int8"),
        real(5)]),
    "quantize": Case("QuantizeLinear", [X, STEP, ZERO]),
    "dequantize": Case("DequantizeLinear", DATA),
    "qconv": Case("QLinearConv", [
        whole(1, 4, 6, 6), STEP, ZERO, whole(8, 2, 3, 3), number(0.02), number(128, "uint8"),
        number(1.0), ZERO, np.arange(8, dtype="int32")], {"group": 2}, tuple(range(1, 9))),
}  # fmt: skip
WITHOUT_KERNEL = {"GroupNorm", "QLinearReduceMean"}  # onnxruntime has none for CPUs


@pytest.mark.sampled(24)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_onnxruntime(name):
    case = CASES[name]
    proto = case.model()
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    wanted = session.run(None, case.values())
    shapes = {n: v.shape for n, v in case.values().items()}
    mod, params = relay.frontend.from_onnx(proto, shape=shapes)
    read = {p.name_hint for p in mod["main"].params}
    given = {n: v for n, v in {**case.values(), **params}.items() if n in read}
    found = relay.evaluate(mod, given)
    for a, b in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        if b.size == 0:  # onnxruntime leaves out what only training reads
            continue
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind in "iu":
            assert np.abs(a.astype(int) - b.astype(int)).max() <= case.steps
        else:
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_every_operator_is_compared():
    names = {(c.domain, c.op) for c in CASES.values()}
    listed = {(domain, op) for domain, rows in ROWS.items() for op in rows}
    assert listed - names == {(MICROSOFT, op) for op in WITHOUT_KERNEL}
    assert {op for op in DOMAINS[MICROSOFT]} == set(ROWS[MICROSOFT])


def test_schemas_are_those_of_onnxruntime():
    own = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    single = type(own[0].inputs[0].option).Single
    for theirs in own:
        mine = foreign_schema(theirs.name, theirs.domain)
        if mine is None or theirs.domain == "":
            continue
        assert mine.needed == tuple(i.option == single for i in theirs.inputs), theirs.name
        assert set(mine.types) >= set(theirs.attributes), theirs.name
        needed = {n for n, a in theirs.attributes.items() if a.required}
        assert set(mine.required) >= needed, theirs.name


def test_a_mean_of_integers():
    attrs = {"axes": [1], "keepdims": 0}
    case = Case("QLinearReduceMean", [*DATA, *TO], attrs, (1, 2, 3, 4))
    found = relay.evaluate(relay.frontend.from_onnx(case.model())[0], {"i0": DATA[0]})
    mean = (DATA[0].astype(float) - 120).mean(1) * 0.05
    wanted = np.clip(np.rint(mean / 0.02) + 10, 0, 255)
    assert found.dtype == "uint8" and np.abs(found - wanted).max() <= 1


@pytest.mark.parametrize("last", [True, False])
def test_groups_of_channels(last):
    x, gamma, beta = real(2, 8, 3, 4), real(8), real(8)
    data = np.moveaxis(x, 1, -1) if last else x
    attrs = {"channels_last": int(last), "groups": 4, "activation": 1, "epsilon": 1e-3}
    case = Case("GroupNorm", [np.ascontiguousarray(data), gamma, beta], attrs)
    mod, _ = relay.frontend.from_onnx(case.model())
    grouped = x.reshape(2, 4, -1)
    apart = grouped - grouped.mean(-1, keepdims=True)
    made = (apart / np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-3)).reshape(x.shape)
    made = made * gamma.reshape(-1, 1, 1) + beta.reshape(-1, 1, 1)
    wanted = made / (1 + np.exp(-made))
    found = relay.evaluate(mod, case.values())
    np.testing.assert_allclose(np.moveaxis(found, -1, 1) if last else found, wanted, atol=1e-4)


REFUSED: dict[str, tuple[Callable[[], Case], str]] = {
    "activation": (
        lambda: Case("FusedConv", [IMAGE, KERNEL], {"group": 2, "activation": "Sine"}), "Use Clip",
    ),
    "rotary keys": (lambda: Case("Attention", PACKED, {**HEADS, "do_rotary": 1}), "do_rotary"),
    "shared past": (
        lambda: Case("Attention", [*PACKED, None, None, None, ENDS], HEADS), "its past is shared",
    ),
    "mask": (
        lambda: Case("Attention", [*PACKED, np.ones((2, 1, 3, 3), "int32")], HEADS), "its mask",
    ),
    "sizes": (
        lambda: Case("Attention", PACKED, {**HEADS, "qkv_hidden_sizes": [1, 2]}), "three numbers",
    ),
    "packed": (lambda: Case("MultiHeadAttention", [real(2, 3, 2, 3, 4)], HEADS), "packed"),
    "layout": (
        lambda: Case("QLinearConv", CASES["qconv"].inputs, {"channels_last": 1}), "channels",
    ),
    "rows of words": (
        lambda: Case("EmbedLayerNormalization", [WORDS[0], *EMBED[1:]]), "2 dimensions",
    ),
    "flat": (lambda: Case("Attention", [real(3, 8), *PACKED[1:]], HEADS), "3 dimensions"),
    "heads": (lambda: Case("Attention", PACKED), "num_heads is missing"),
    "unknown": (lambda: Case("Attention", PACKED, {**HEADS, "tricks": 1}), "no meaning"),
    "bits": (
        lambda: Case("MatMulNBits", CASES["nbits"].inputs,
                     {"K": 40, "N": 5, "bits": 3, "block_size": 16}, (1, 2)), "2, 4 or 8 bits",
    ),
    "packed weights": (
        lambda: Case("MatMulNBits", CASES["nbits"].inputs,
                     {"K": 80, "N": 5, "bits": 4, "block_size": 16}, (1, 2)), "are needed",
    ),
    "turns": (
        lambda: Case("RotaryEmbedding", CASES["rotary"].inputs,
                     {"num_heads": 2, "rotary_embedding_dim": 4, "scale": 2.0}), "scale=1",
    ),
    "no batch": (
        lambda: Case("FusedMatMul", [real(3, 4), real(4, 5)], {"transBatchA": 1}), "no batch",
    ),
    "pieces": (lambda: Case("QLinearConcat", [*TO, *DATA, STEP], {"axis": 1}), "Three for each"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, words = REFUSED[name]
    with pytest.raises(ModelError, match=words):
        relay.frontend.from_onnx(make().model())
