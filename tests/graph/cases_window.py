"""Graphs for the rows of convolution and pooling; `cases.py` takes them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.graph.expr import Expr
from tilewright.graph.op import call
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

Made = tuple[str, Callable[[], Expr], str]  # row, graph, label
IMAGE = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}
LAST = {1: ("NWC", "WIO", "WOI"), 2: ("NHWC", "HWIO", "HWOI"), 3: ("NDHWC", "DHWIO", "DHWOI")}


def tensor(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def _data(rank: int, channels: int = 4, last: bool = False) -> relay.Var:
    image = IMAGE[rank]
    return tensor("x", 2, *image, channels) if last else tensor("x", 2, channels, *image)


def _weight(rank: int, out: int, into: int, size: int = 3) -> relay.Var:
    return tensor("w", out, into, *(size,) * rank)


def convolutions(rank: int) -> Iterator[Made]:
    row, conv = f"nn.conv{rank}d", getattr(nn, f"conv{rank}d")
    uneven = (1, *[0] * (rank - 1), 2, *[1] * (rank - 1))
    layout, kernel, depthwise = LAST[rank]
    yield row, lambda: conv(_data(rank), _weight(rank, 6, 4), 2, uneven), "strided"
    yield row, lambda: conv(_data(rank), _weight(rank, 6, 4, 2), 1, 1, 2), "dilated"
    yield row, lambda: conv(_data(rank), _weight(rank, 6, 2, 2), groups=2), "grouped"
    yield row, lambda: conv(_data(rank), _weight(rank, 4, 1), 1, 1, groups=4), "depthwise"
    yield (
        row,
        lambda: conv(
            _data(rank, last=True), tensor("w", *(3,) * rank, 4, 6), 1, 1, data_layout=layout,
            kernel_layout=kernel,
        ),
        "channels-last",
    )  # fmt: skip
    yield (
        row,
        lambda: conv(
            _data(rank, last=True), tensor("w", *(3,) * rank, 4, 1), 1, 1, groups=4,
            data_layout=layout, kernel_layout=depthwise,
        ),
        "channels-last-depthwise",
    )  # fmt: skip


def blocked() -> Iterator[Made]:
    """Channels in blocks: of 2 into blocks of 3, depthwise, pooled."""
    x, other = tensor("x", 2, 2, 7, 6, 2), tensor("x", 2, 4, 7, 6, 1)
    wide, deep = tensor("w", 2, 2, 3, 3, 2, 3), tensor("w", 2, 1, 3, 3, 1, 2)
    conv, kernels = nn.conv2d, {"data_layout": "NCHW2c", "kernel_layout": "OIHW2i3o"}
    yield "nn.conv2d", lambda: conv(x, wide, 2, 1, **kernels, out_layout="NCHW3c"), "blocks"
    yield (
        "nn.conv2d",
        lambda: conv(
            other, tensor("w", 3, 4, 3, 3, 1, 2), 1, 1, data_layout="NCHW1c",
            kernel_layout="OIHW1i2o",
        ),
        "blocks-of-one",
    )  # fmt: skip
    each = {"data_layout": "NCHW2c", "kernel_layout": "OIHW1i2o", "groups": 4}
    yield "nn.conv2d", lambda: conv(x, deep, 1, 1, **each), "blocks-depthwise"
    named, single = nn.contrib_conv2d_nchwc, nn.contrib_depthwise_conv2d_nchwc
    yield "nn.conv2d", lambda: named(x, wide, 2, 1, data_layout="NCHW2c"), "blocks-by-name"
    yield "nn.conv2d", lambda: single(x, deep, 1, 1, data_layout="NCHW2c"), "blocks-depthwise-name"
    yield "nn.max_pool2d", lambda: nn.max_pool2d(x, 3, 2, padding=1, layout="NCHW2c"), "blocks"
    yield "nn.avg_pool2d", lambda: nn.avg_pool2d(x, 3, 2, padding=1, layout="NCHW2c"), "blocks"
    yield "nn.global_avg_pool2d", lambda: nn.global_avg_pool2d(x, "NCHW2c"), "blocks"
    yield "nn.adaptive_max_pool2d", lambda: nn.adaptive_max_pool2d(x, (7, 3), "NCHW2c"), "blocks"


def transposed(rank: int) -> Iterator[Made]:
    row, conv = f"nn.conv{rank}d_transpose", getattr(nn, f"conv{rank}d_transpose")
    x, uneven = _data(rank), (1, *[0] * (rank - 1), 2, *[1] * (rank - 1))
    yield row, lambda: conv(x, _weight(rank, 4, 6), 1, 1), ""
    yield row, lambda: conv(x, _weight(rank, 4, 6, 4), 2, 1), "strided"
    yield row, lambda: conv(x, _weight(rank, 4, 6), 2, uneven, output_padding=1), "uneven"
    yield row, lambda: conv(x, _weight(rank, 4, 3, 2), 3, 0, groups=2), "gaps-grouped"
    yield row, lambda: conv(x, _weight(rank, 4, 6), 2, 1, 2), "dilated"
    yield (
        row,
        lambda: conv(_data(rank, last=True), _weight(rank, 4, 6), 2, 1, data_layout=LAST[rank][0]),
        "channels-last",
    )


def pools(rank: int) -> Iterator[Made]:
    x, last = _data(rank), _data(rank, last=True)
    uneven = (1, *[0] * (rank - 1), 0, *[1] * (rank - 1))
    layout = LAST[rank][0]
    for kind in ("max", "avg", "lp"):
        row = f"nn.{kind}_pool{rank}d"
        pool = nn.lp_pool if kind == "lp" else getattr(nn, row[3:])
        given = {"layout": "NC" + "DHW"[-rank:]} if kind == "lp" else {}
        yield row, lambda p=pool, g=given: p(x, 3, 2, 1, uneven, **g), "uneven"
        yield row, lambda p=pool: p(last, 3, 2, 1, 1, layout=layout), "channels-last"
    pool, mean = getattr(nn, f"max_pool{rank}d"), getattr(nn, f"avg_pool{rank}d")
    yield f"nn.max_pool{rank}d", lambda: pool(x, 2, 1, 2, 1), "dilated"
    yield f"nn.max_pool{rank}d", lambda: pool(x, 3, 2, ceil_mode=True), "ceil"
    yield f"nn.avg_pool{rank}d", lambda: mean(x, 3, 2, ceil_mode=True), "ceil"
    yield (
        f"nn.avg_pool{rank}d", lambda: mean(x, 3, 2, 1, 1, count_include_pad=True), "whole"
    )  # fmt: skip
    yield f"nn.lp_pool{rank}d", lambda: nn.lp_pool(
        x, 2, p=3, layout="NC" + "DHW"[-rank:]
    ), "cubes"  # fmt: skip
    row = f"nn.max_pool{rank}d_grad"
    image = tuple(-(-n // 2) for n in IMAGE[rank])
    g, out = tensor("g", 2, 4, *image), tensor("g", 2, *image, 4)
    window = {"pool_size": (3,) * rank, "strides": (2,) * rank}
    padded, ceil = window | {"padding": (1,) * 2 * rank}, window | {"ceil_mode": True}
    yield row, lambda: call(row, g, x, **padded), ""
    yield row, lambda: call(row, out, last, **padded, layout=layout), "channels-last"
    less = tensor("g", 2, 4, *(-(-(n - 3) // 2) + 1 for n in IMAGE[rank]))
    yield row, lambda: call(row, less, x, **ceil), "ceil"
    far = tensor("g", 2, 4, *(n - 2 for n in IMAGE[rank]))
    yield row, lambda: call(row, far, x, pool_size=(2,) * rank, dilation=(2,) * rank), "dilated"
    where = f"nn.max_pool{rank}d_indices"
    yield where, lambda: nn.max_pool_indices(x, 2, 2), ""
    yield where, lambda: nn.max_pool_indices(x, 3, 2, 1, uneven), "padded"
    yield where, lambda: nn.max_pool_indices(x, 2, 1, storage_order=1), "columns-first"
    for kind in ("max", "avg"):
        whole = getattr(nn, f"global_{kind}_pool{rank}d")
        yield f"nn.global_{kind}_pool{rank}d", lambda w=whole: w(x), ""
        yield f"nn.global_{kind}_pool{rank}d", lambda w=whole: w(last, layout), "channels-last"
        parts = getattr(nn, f"adaptive_{kind}_pool{rank}d")
        even = tuple(n // 2 if n % 2 == 0 else 1 for n in IMAGE[rank])
        yield f"nn.adaptive_{kind}_pool{rank}d", lambda p=parts, s=even: p(x, s), ""
        yield f"nn.adaptive_{kind}_pool{rank}d", lambda p=parts: p(x), "same-size"


MADE: tuple[Made, ...] = (*blocked(), *(
    made for rank in (1, 2, 3) for family in (convolutions, transposed, pools)
    for made in family(rank)
))  # fmt: skip
