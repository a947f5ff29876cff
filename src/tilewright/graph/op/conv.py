"""Rows of convolutions and transposed convolutions over images of one, two and three axes.

In: tensors; attributes as `graph/functions/convolution.py` normalises them.  Out: rows for
`op/__init__.py`. Read next: `window.py`, their values on arrays; `graph/functions/convolution.py`,
what users call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright import topi
from tilewright.graph.expr import Attrs, TensorType, Type
from tilewright.graph.op import window
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.topi import layout


def rank_of(a: Attrs) -> int:
    """Axes of the image."""
    return len(a.strides)


def _parts(site: Site, inner: str) -> tuple[dict[str, int], dict[str, int]]:
    """Extents of data and weight by letter; the weight's channels must divide into groups.

    inner: which letter of the weight all groups have together, "O" or "I"
    """
    a, rank = site.attrs, rank_of(site.attrs)
    letters_of = window.check_layout(site, a.data_layout, rank)
    site.require(
        not window.is_blocked(letters_of), f"layout {a.data_layout!r} is one of nn.conv2d only",
        f"Use {' or '.join(window.layouts(rank))}.",
    )  # fmt: skip
    letters = f"OI{window.IMAGE[rank]}"
    site.require(
        sorted(a.kernel_layout) == sorted(letters),
        f"kernel layout {a.kernel_layout!r} is not known",
        f"Use an order of the letters {', '.join(letters)}.",
    )
    data = site.tensor(0, rank + 2, letters_of)
    weight = site.tensor(1, rank + 2, a.kernel_layout)
    d = dict(zip(letters_of, data.shape, strict=True))
    w = dict(zip(a.kernel_layout, weight.shape, strict=True))
    site.require(a.groups >= 1, f"groups is {a.groups}", "Use 1, or a divisor of the channels.")
    site.require(
        w[inner] % a.groups == 0,
        f"{w[inner]} {'output' if inner == 'O' else 'input'} channels do not fall into "
        f"{a.groups} groups",
        "Use a divisor of the channels.",
    )
    return d, w


def _blocked_parts(site: Site) -> tuple[dict[str, int], dict[str, int]]:
    """`_parts` of a convolution over blocks of channels, of one group or depthwise."""
    a = site.attrs
    letters = window.check_layout(site, a.data_layout, 2)
    kernel = "".join(filter(str.isalpha, str(a.kernel_layout)))
    site.require(
        kernel == "OIHWio", f"kernel layout {a.kernel_layout!r} does not go with {a.data_layout}",
        "Use blocks of both channels, such as OIHW8i8o.",
    )  # fmt: skip
    d = window.check_blocks(site, a.data_layout, site.tensor(0, 5, letters).shape)
    w = window.check_blocks(site, a.kernel_layout, site.tensor(1, 6, "OIHWio").shape)
    inner = site.tensor(0).shape[4], *site.tensor(1).shape[4:]
    site.require(
        a.groups == 1 or (a.groups == d["C"] == w["O"] and w["I"] == 1 and inner[0] == inner[2]),
        f"there are no {a.groups} groups in blocks of channels",
        "Use one group, or as many as there are channels, or NCHW.",
    )
    site.require(
        a.groups > 1 or inner[0] == inner[1], f"blocks of {inner[0]} channels meet kernels for "
        f"blocks of {inner[1]}", "Store both in blocks of one size.",
    )  # fmt: skip
    return d, w


def _conv_type(site: Site) -> Type:
    a = site.attrs
    blocked = rank_of(a) == 2 and window.is_blocked(a.data_layout)
    d, w = _blocked_parts(site) if blocked else _parts(site, "O")
    site.require(
        d["C"] == w["I"] * a.groups,
        f"data has {d['C']} channels, the weight takes {w['I']} x {a.groups} groups",
        f"With this data the weight's extent at I must be {d['C'] / a.groups:g}.",
    )
    image = window.IMAGE[rank_of(a)]
    sizes = window.image_size(site, [d[k] for k in image], [w[k] for k in image])
    d |= {"C": w["O"], **dict(zip(image, sizes, strict=True))}
    if blocked:
        d["c"] = site.tensor(1).shape[5]
        d["C"] //= d["c"]
    letters = filter(str.isalpha, str(a.data_layout))
    return TensorType(tuple(d[x] for x in letters), site.product_dtype())


def _conv_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    data, weight = tensors
    if window.is_blocked(a.data_layout):
        function = topi.nn.conv2d_NCHWc if a.groups == 1 else topi.nn.depthwise_conv2d_NCHWc
        return function(
            data, weight, a.strides, a.padding, a.dilation, out_dtype=a.out_dtype or None
        )
    first, last = window.layouts(rank_of(a))
    image = window.IMAGE[rank_of(a)]
    depthwise = {first: f"OI{image}", last: f"{image}OI"}[a.data_layout]
    channels = data.shape[a.data_layout.index("C")]
    plain = a.kernel_layout == depthwise and weight.shape[depthwise.index("O")] == channels
    out_dtype = a.out_dtype or None
    if 1 < a.groups == channels and plain:
        return topi.nn.depthwise_conv(
            data, weight, a.strides, a.padding, a.dilation, out_dtype, a.data_layout
        )
    return topi.nn.conv(
        data, weight, a.strides, a.padding, a.dilation, a.groups, a.data_layout, a.kernel_layout,
        out_dtype,
    )  # fmt: skip


def _conv_transpose_type(site: Site) -> Type:
    a = site.attrs
    d, w = _parts(site, "I")
    site.require(
        d["C"] == w["I"],
        f"data has {d['C']} channels, the weight takes {w['I']}",
        "The weight of a transposed convolution is [channels of data, channels of result / "
        "groups, ...]; see kernel_layout.",
    )
    rank = rank_of(a)
    image = window.IMAGE[rank]
    kernel = [w[k] for k in image]
    window.check_window(site, [d[k] for k in image], kernel)
    d["C"] = w["O"] * a.groups
    for k, letter in enumerate(image):
        stride, extra = a.strides[k], a.output_padding[k]
        site.require(
            0 <= extra < max(stride, a.dilation[k]),
            f"output_padding {extra} is not below stride {stride} or dilation {a.dilation[k]}",
            "It says which of the sizes that a convolution maps to one was meant; use less of it.",
        )
        reach = (kernel[k] - 1) * a.dilation[k] + 1
        out = (d[letter] - 1) * stride + reach - a.padding[k] - a.padding[rank + k] + extra
        site.require(
            out >= 1, f"its result would have extent {out} at {letter}",
            "Use less padding or a larger kernel.",
        )  # fmt: skip
        d[letter] = out
    return TensorType(tuple(d[x] for x in a.data_layout), site.product_dtype())


def _conv_transpose_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    data, weight = tensors
    return topi.nn.conv_transpose(
        data, weight, a.strides, a.padding, a.out_dtype or None, a.output_padding, a.dilation,
        a.groups, a.data_layout, a.kernel_layout,
    )  # fmt: skip


def _conv_follows(types: Sequence[TensorType], a: Attrs) -> Mapping[str, Any]:
    """The channels of the result and the kernel's size, by the weight."""
    w = layout.extents(layout.parse(a.kernel_layout, "conv"), types[1].shape, "conv")
    size = tuple(w[letter] for letter in window.IMAGE[rank_of(a)])
    return {"channels": w["O"] * (a.groups if "output_padding" in a else 1), "kernel_size": size}


def _rows(rank: int) -> tuple[Op, Op]:
    channels_first, image = window.channels_first(rank), window.IMAGE[rank]
    words = {1: "One", 2: "Two", 3: "Three"}[rank] + "-dimensional"
    common = {**window.defaults(rank), "groups": 1, "data_layout": channels_first}
    return (
        Op(
            f"nn.conv{rank}d", ("data", "weight"), Pattern.ANCHOR, _conv_type, window.conv,
            _conv_te,
            f"{words} convolution; groups equal to the channels make it depthwise.",
            {**common, "kernel_layout": f"OI{image}", "out_dtype": ""}, ("Conv",),
            follows=_conv_follows,
        ),
        Op(
            f"nn.conv{rank}d_transpose", ("data", "weight"), Pattern.ANCHOR, _conv_transpose_type,
            window.conv_transpose, _conv_transpose_te,
            f"{words} transposed convolution: the gradient of one.",
            {**common, "kernel_layout": f"IO{image}", "output_padding": (0,) * rank,
             "out_dtype": ""},
            ("ConvTranspose",), follows=_conv_follows,
        ),
    )  # fmt: skip


CONVOLUTIONS = tuple(f"nn.conv{rank}d" for rank in window.RANKS)
TRANSPOSED = tuple(f"{name}_transpose" for name in CONVOLUTIONS)
ROWS = tuple(row for rank in window.RANKS for row in _rows(rank))
