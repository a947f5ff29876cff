"""Convolutions whose data or kernels are in blocks that the compiler's own have not.

In: arguments of `relay.nn.conv2d`, `conv3d` and their transposed kin, with layouts such as NCHW2c
and OIHW, NCDHW16c, NCHW4n4c and OIHW4o4i.  Out: the convolution of the same values without blocks,
between two `layout_transform`; networks drop those that meet.  NCHW8c with OIHW8i16o stays what it
is, an operator of its own.
Read next: `graph/functions/convolution.py`.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Var
from tilewright.graph.functions import nn
from tilewright.graph.functions.layout import layout_transform
from tilewright.graph.functions.sizes import per_axis, settle
from tilewright.topi.layout import parse

__all__ = ["conv1d", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose"]

_OPERATOR = re.compile(r"NCHW\d+c OIHW\d+i\d+o")  # which `nn.conv2d` computes as it is


def _plain(layout: str) -> str:
    return "".join(filter(str.isupper, layout))


def _also_in_blocks(convolution: Callable[..., Expr]) -> Callable[..., Expr]:
    """`convolution` for every blocked layout."""
    signature = inspect.signature(convolution)
    place = f"nn.{convolution.__name__}"
    transposed = place.endswith("_transpose")

    @functools.wraps(convolution)
    def made(*args: object, **options: object) -> Expr:
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        given = bound.arguments
        layouts = [given[k] for k in ("data_layout", "kernel_layout")]
        cut = any(isinstance(text, str) and text != _plain(text) for text in layouts)
        if not cut or (not transposed and _OPERATOR.fullmatch(" ".join(layouts))):
            return convolution(*args, **options)
        (held, kernel), result = layouts, given["out_layout"] or layouts[0]
        if kernel != _plain(kernel):
            if isinstance(given["weight"], Var) and not given["weight"].is_typed:
                _settle(given, kernel, transposed, place)
            given["weight"] = layout_transform(given["weight"], kernel, _plain(kernel))
        if held != _plain(held):
            given["data"] = layout_transform(given["data"], held, _plain(held))
        given |= {"data_layout": _plain(held), "kernel_layout": _plain(kernel), "out_layout": ""}
        whole = convolution(**given)
        return whole if result == _plain(held) else layout_transform(whole, _plain(held), result)

    return made


def _settle(given: dict[str, object], layout: str, transposed: bool, place: str) -> None:
    """Gives a variable without a type the blocks that channels and kernel_size say."""
    weight, data, channels, size, groups = (
        given[k] for k in ("weight", "data", "channels", "kernel_size", "groups")
    )
    assert isinstance(weight, Var) and isinstance(data, Expr) and isinstance(groups, int)
    if not isinstance(channels, int) or size is None:
        raise ModelError(
            f"{place}(weight={weight.name_hint})", "its shape is not known",
            "Give channels= and kernel_size=, or relay.var(shape=).",
        )  # fmt: skip
    axes = [axis for axis in _plain(layout) if axis not in "OI"]
    inputs = _whole(data, str(given["data_layout"]), "C", place)
    outer = (inputs, channels // groups) if transposed else (inputs // groups, channels)
    whole = dict(zip("IO", outer, strict=True))
    whole |= dict(zip(axes, per_axis(size, len(axes), "kernel_size", place), strict=True))
    blocks = parse(layout, place).blocks
    cut = {axis: n // blocks.get(axis.lower(), 1) for axis, n in whole.items()}
    settle(weight, [(cut | blocks)[axis] for axis in filter(str.isalpha, layout)], data)


def _whole(data: Expr, layout: str, axis: str, place: str) -> int:
    letters = [letter for letter in layout if letter.isalpha()]
    found = 1
    for letter, extent in zip(letters, data.shape, strict=False):
        found *= extent if letter.upper() == axis else 1
    return found


conv1d = _also_in_blocks(nn.conv1d)
conv2d = _also_in_blocks(nn.conv2d)
conv3d = _also_in_blocks(nn.conv3d)
conv2d_transpose = _also_in_blocks(nn.conv2d_transpose)
conv3d_transpose = _also_in_blocks(nn.conv3d_transpose)
