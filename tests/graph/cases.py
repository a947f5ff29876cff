"""One small graph for every row of the operator table; several tests run over all of them."""

from __future__ import annotations

import numpy as np

from graph import cases_resize, cases_window
from graph.case import Case, function, random_inputs, tensor
from graph.cases_elementwise import ELEMENTWISE
from graph.cases_indexing import INDEXING
from graph.cases_narrow import NARROW
from graph.cases_norm import NORM
from graph.cases_regions import REGIONS
from graph.cases_sampling import SAMPLING
from tilewright.graph.expr import Expr
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


def x4(channels: int = 4, size: int = 7) -> relay.Var:
    return tensor("x", 2, channels, size, size)


def nhwc(channels: int = 4, size: int = 7) -> relay.Var:
    return tensor("x", 2, size, size, channels)


def _norm(x: Expr, channels: int, **options: object) -> Expr:
    vectors = [tensor(n, channels) for n in ("g", "b", "m", "pos_v")]
    return nn.batch_norm(x, *vectors, **options)[0]


UNARY = ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "abs", "negative", "floor", "ceil", "copy")
POSITIVE = ("log", "sqrt", "rsqrt")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "equal", "less", "greater")
REDUCTION = ("sum", "mean", "max", "min", "prod")

CASES: tuple[Case, ...] = (
    *(Case(n, lambda n=n: getattr(relay, n)(tensor("x", 3, 5))) for n in UNARY),
    *(Case(n, lambda n=n: getattr(relay, n)(tensor("pos_x", 3, 5))) for n in POSITIVE),
    *(
        Case(n, lambda n=n: getattr(relay, n)(tensor("x", 3, 1, 4), tensor("y", 5, 4)))
        for n in BINARY
    ),
    Case("divide", lambda: tensor("x", 3, 4) / tensor("pos_y", 4)),
    Case("power", lambda: relay.power(tensor("pos_x", 3, 4), tensor("y", 4))),
    Case("multiply", lambda: 2.5 * tensor("x", 3, 4), "number"),
    Case("add", lambda: tensor("x", 3) + relay.const(np.ones((1, 1), "float32")), "raises-rank"),
    Case("where", lambda: relay.where(tensor("c", 3, 1, dtype="bool"), tensor("x", 4), 0.5)),
    Case("clip", lambda: relay.clip(tensor("x", 3, 5), -0.5, 0.75)),
    *(Case("clip", lambda t=t: relay.clip(tensor("x", 3, 5, dtype=t), -1.5, 2.5), t)
      for t in ("int32", "int64", "int8", "uint8")),
    Case("cast", lambda: relay.cast(tensor("x", 3, 5, dtype="int32"), "float32")),
    Case("nn.relu", lambda: nn.relu(tensor("x", 3, 5))),
    Case("nn.leaky_relu", lambda: nn.leaky_relu(tensor("x", 3, 5), 0.1)),
    Case("nn.dropout", lambda: nn.dropout(tensor("x", 3, 5), 0.3)),
    Case("annotation.checkpoint", lambda: relay.annotation.checkpoint(tensor("x", 3, 5))),
    Case("annotation.stop_fusion", lambda: relay.annotation.stop_fusion(tensor("x", 3, 5))),
    *(
        Case(n, lambda n=n: getattr(relay, n)(tensor("x", 3, 4, 5), axis=(0, -1), keepdims=True))
        for n in REDUCTION
    ),
    Case("sum", lambda: relay.sum(tensor("x", 3, 4, 5), axis=1, exclude=True), "exclude"),
    Case("mean", lambda: relay.mean(tensor("x", 3, 4, 5), axis=2), "drops-axis"),
    Case("reshape", lambda: relay.reshape(tensor("x", 3, 4, 5), (0, -1))),
    Case("nn.batch_flatten", lambda: nn.batch_flatten(tensor("x", 3, 4, 5))),
    Case("expand_dims", lambda: relay.expand_dims(tensor("x", 3, 4), 1, 2)),
    Case("squeeze", lambda: relay.squeeze(tensor("x", 3, 1, 4, 1), axis=(1, -1))),
    Case("transpose", lambda: relay.transpose(tensor("x", 3, 4, 5), (2, 0, 1))),
    Case(
        "concatenate", lambda: relay.concatenate([tensor("x", 3, 4), tensor("y", 3, 2)], axis=-1)
    ),
    Case("broadcast_to", lambda: relay.broadcast_to(tensor("x", 3, 1, 4), (2, 3, 5, 4))),
    Case("nn.pad", lambda: nn.pad(tensor("x", 3, 4), ((1, 0), (0, 2)), 1.5)),
    Case(
        "nn.conv2d",
        lambda: nn.conv2d(x4(), tensor("w", 6, 4, 3, 3), (2, 1), (1, 0, 2, 1), (1, 2)),
    ),
    Case("nn.conv2d", lambda: nn.conv2d(x4(), tensor("w", 6, 2, 3, 3), groups=2), "groups"),
    Case(
        "nn.conv2d", lambda: nn.conv2d(x4(), tensor("w", 4, 1, 3, 3), 2, 1, groups=4), "depthwise"
    ),
    Case(
        "nn.conv2d", lambda: nn.conv2d(x4(), tensor("w", 8, 1, 3, 3), groups=4),
        "depthwise-multiplier",
    ),
    Case(
        "nn.conv2d",
        lambda: nn.conv2d(
            nhwc(), tensor("w", 3, 3, 4, 6), 2, 1, data_layout="NHWC", kernel_layout="HWIO"
        ),
        "nhwc",
    ),
    Case(
        "nn.conv2d",
        lambda: nn.conv2d(
            nhwc(), tensor("w", 3, 3, 4, 1), 1, 1, groups=4, data_layout="NHWC",
            kernel_layout="HWOI",
        ),
        "nhwc-depthwise",
    ),
    Case("nn.dense", lambda: nn.dense(tensor("x", 3, 5), tensor("w", 4, 5))),
    Case("nn.batch_matmul", lambda: nn.batch_matmul(tensor("x", 2, 3, 5), tensor("y", 2, 4, 5))),
    Case(
        "nn.batch_matmul",
        lambda: nn.batch_matmul(
            tensor("x", 2, 5, 3), tensor("y", 1, 5, 4), transpose_a=True, transpose_b=False
        ),
        "flipped",
    ),
    Case("nn.bias_add", lambda: nn.bias_add(x4(), tensor("b", 4))),
    Case("nn.bias_add", lambda: nn.bias_add(nhwc(), tensor("b", 4), axis=-1), "nhwc"),
    Case("nn.batch_norm", lambda: _norm(x4(), 4)),
    Case("nn.batch_norm", lambda: _norm(nhwc(), 4, axis=3, scale=False), "nhwc-no-scale"),
    Case("nn.batch_norm", lambda: _norm(x4(), 4, center=False, epsilon=0.1), "no-shift"),
    Case("nn.max_pool2d", lambda: nn.max_pool2d(x4(), (3, 2), 2, padding=1)),
    Case("nn.max_pool2d", lambda: nn.max_pool2d(nhwc(), 3, 2, layout="NHWC"), "nhwc"),
    Case("nn.max_pool2d", lambda: nn.max_pool2d(x4(size=6), 3, 2, ceil_mode=True), "ceil"),
    Case("nn.avg_pool2d", lambda: nn.avg_pool2d(x4(), 3, 2, padding=1)),
    Case(
        "nn.avg_pool2d", lambda: nn.avg_pool2d(x4(), 3, 2, padding=1, count_include_pad=True), "pad"
    ),
    Case("nn.avg_pool2d", lambda: nn.avg_pool2d(x4(size=6), 3, 2, ceil_mode=True), "ceil"),
    Case("nn.global_avg_pool2d", lambda: nn.global_avg_pool2d(x4())),
    Case("nn.global_avg_pool2d", lambda: nn.global_avg_pool2d(nhwc(), "NHWC"), "nhwc"),
    Case("nn.global_max_pool2d", lambda: nn.global_max_pool2d(x4())),
    Case("nn.adaptive_avg_pool2d", lambda: nn.adaptive_avg_pool2d(x4(size=6), (3, 2))),
    *(Case(*made, in_onnx=not made[0].endswith("d_grad"))
      for made in (*cases_window.MADE, *cases_resize.MADE)),
    Case("nn.softmax", lambda: nn.softmax(tensor("x", 3, 5))),
    Case("nn.log_softmax", lambda: nn.log_softmax(tensor("x", 3, 5), axis=0)),
    *ELEMENTWISE,
    *NARROW,
    *NORM,
    *INDEXING,
    *SAMPLING,
    *REGIONS,
)  # fmt: skip

__all__ = ["CASES", "Case", "function", "random_inputs", "tensor"]
