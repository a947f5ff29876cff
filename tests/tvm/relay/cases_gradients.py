"""Graphs whose gradients go other ways than those of the cases of operators; `test_gradients.py`
takes them in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graph.case import tensor
from tilewright.graph.expr import Expr
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

Made = tuple[str, Callable[[], Expr], str]  # row, graph, label


def _x(*shape: int) -> relay.Var:
    return tensor("x", *shape)


def _of(name: str) -> Callable[..., Expr]:
    return getattr(relay.image, name)


CONVOLUTIONS: tuple[Made, ...] = (
    ("nn.conv2d", lambda: nn.conv2d(_x(2, 3, 8, 9), tensor("w", 4, 3, 3, 2), (3, 2)), "left-over"),
    (
        "nn.conv2d",
        lambda: nn.conv2d(_x(2, 4, 9, 8), tensor("w", 6, 2, 2, 3), (2, 3), (1, 0, 2, 1), (2, 1), 2),
        "all-at-once",
    ),
    ("nn.conv2d", lambda: nn.conv2d(_x(1, 2, 5, 5), tensor("w", 3, 2, 1, 1), 2), "one-tap"),
    (
        "nn.conv2d_transpose",
        lambda: nn.conv2d_transpose(
            _x(2, 4, 3, 4), tensor("w", 4, 2, 3, 3), 2, 1, (1, 3), groups=2, output_padding=(1, 2)
        ),
        "dilated-more-than-moved",
    ),
    (
        "nn.conv3d",
        lambda: nn.conv3d(_x(1, 4, 4, 5, 4), tensor("w", 2, 2, 2, 3, 2), 2, 1, groups=2),
        "grouped-strided",
    ),
    (
        "nn.dense",
        lambda: nn.dense(_x(3, 4), tensor("w", 5, 4)),
        "again",
    ),
)  # fmt: skip
MATRICES: tuple[Made, ...] = tuple(
    (
        "nn.batch_matmul",
        lambda a=a, b=b, n=n, m=m: nn.batch_matmul(
            _x(n, *((5, 3) if a else (3, 5))), tensor("y", m, *((4, 5) if b else (5, 4))),
            transpose_a=a, transpose_b=b,
        ),
        f"{a}-{b}-{n}-{m}",
    )
    for a in (False, True) for b in (False, True) for n, m in ((2, 2), (1, 2), (2, 1))
)  # fmt: skip
POOLS: tuple[Made, ...] = (
    ("nn.avg_pool2d", lambda: nn.avg_pool2d(_x(1, 2, 6, 8), (2, 4), (2, 4)), "tiles"),
    ("nn.avg_pool2d", lambda: nn.avg_pool2d(_x(1, 2, 7, 9), 2, 2), "tiles-left-over"),
    ("nn.avg_pool2d", lambda: nn.avg_pool2d(_x(1, 2, 7, 9), 2, 3), "gaps"),
    ("nn.avg_pool2d", lambda: nn.avg_pool2d(_x(1, 2, 9, 9), 2, 1, 3), "dilated"),
    (
        "nn.avg_pool2d",
        lambda: nn.avg_pool2d(_x(1, 2, 7, 8), 3, 2, 2, (2, 1, 0, 3), count_include_pad=True),
        "padded",
    ),
    ("nn.avg_pool2d", lambda: nn.avg_pool2d(_x(1, 2, 6, 7), 3, 2, 1, (2, 0, 2, 1)), "partly"),
    ("nn.max_pool2d", lambda: nn.max_pool2d(_x(1, 2, 9, 9), 3, 2, 2, 1), "overlaps"),
    ("nn.lp_pool2d", lambda: nn.lp_pool(_x(1, 2, 6, 6), 2, 2, p=1), "sums"),
    ("nn.adaptive_avg_pool2d", lambda: nn.adaptive_avg_pool2d(_x(1, 2, 7, 6), (3, 4)), "uneven"),
    ("nn.adaptive_max_pool2d", lambda: nn.adaptive_max_pool2d(_x(1, 2, 6, 6), (3, 2)), "parts"),
)
SIZES: tuple[Made, ...] = tuple(
    (
        "image.resize",
        lambda m=m, c=c: _of("resize2d")(
            _x(1, 2, 5, 4), (7, 3), method=m, coordinate_transformation_mode=c
        ),
        f"{m}-{c}",
    )
    for m, c in (
        ("nearest_neighbor", "asymmetric"), ("linear", "half_pixel"), ("cubic", "align_corners"),
    )
)  # fmt: skip
MOVES: tuple[Made, ...] = (
    ("cast", lambda: relay.sin(relay.cast(_x(3, 4), "float64")), "wider"),
    ("strided_slice", lambda: relay.strided_slice(_x(6, 7), [1, 6], [5, 0], [2, -2]), "backwards"),
    ("concatenate", lambda: relay.concatenate([(x := _x(2, 3)), x * 2.0, x], 1), "of-one"),
    ("reshape", lambda: relay.concatenate(list(relay.split(_x(6, 2), 3)), 1), "split"),
    ("take", lambda: relay.take(_x(3, 4, 5), tensor("at4", 2, 2, dtype="int32"), 1), "middle"),
    (
        "take",
        lambda: relay.take(
            _x(2, 3, 4, 5), tensor("at4", 2, 3, dtype="int32"), 2, 1, mode="wrap"
        ),
        "batch-not-next",
    ),
    ("take", lambda: relay.take(_x(4, 3), relay.const(np.array([9, -1, -9])), 0), "outside"),
    ("gather", lambda: relay.sort(_x(3, 5), 1), "sort"),
    ("where", lambda: relay.logsumexp(_x(3, 5), 1), "logsumexp"),
    ("sum", lambda: relay.sum(_x(3, 4, 2), (0, 2), exclude=True), "exclude"),
    ("prod", lambda: relay.prod(_x(3, 4, 2), (0, 2)), "two-axes"),
    ("cumsum", lambda: relay.cumsum(_x(3, 4), 1, exclusive=True, reverse=True), "backwards"),
    ("cumprod", lambda: relay.cumprod(_x(3, 4), 0, exclusive=True, reverse=True), "backwards"),
    ("mean", lambda: relay.variance(_x(3, 4), 1), "variance"),
    ("nn.standardize", lambda: nn.layer_norm(_x(3, 4), tensor("g", 4), tensor("b", 4)), "layer"),
    ("maximum", lambda: relay.maximum(_x(3, 1, 2), tensor("y", 4, 1)), "stretched"),
    (
        "nn.log_softmax",
        lambda: nn.nll_loss(
            nn.log_softmax(_x(4, 3)), tensor("at3", 4, dtype="int32"), tensor("pos_w", 3)
        ),
        "loss",
    ),
)  # fmt: skip
MADE: tuple[Made, ...] = (*CONVOLUTIONS, *MATRICES, *POOLS, *SIZES, *MOVES)
