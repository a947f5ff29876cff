"""Convolutions with steps over few channels: the pixels of a step become channels.

In: a module whose operators are not grouped, and how many channels a matrix instruction sums up.
Out: an equal module, in which such a convolution, as first layers are, has steps of one, a smaller
window, and channels that fill an instruction as far as they can; its data have channels last.
Read next: `layouts.py`; `network/extract.py`, which applies it for targets with such instructions.

As after Winograd's transforms, some weights are zeros that were not there: an infinity in the data
becomes no number in a few more places than it would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Call, Constant, Expr, IRModule, TensorType, Var
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, users, with_body

LAYOUTS = ("NCHW", "OIHW")
Steps = tuple[int, int]  # rows, columns


def steps_to_channels(mod: IRModule, filled: Mapping[DType, int]) -> IRModule:
    """Give `mod` with convolutions of constant weights over so few channels that those of one step
    together are no more than an instruction sums up, in steps of one; and likewise those that cut
    an input of the network into patches, which then are products of pixels.

    filled: element type -> channels that one instruction sums up

    rewrite:  conv2d(cast(x[1, 3, 224, 224]), w[64, 3, 7, 7], strides 2, padding 3)
              ->   p[1, 112, 112, 2, 2, 3] = transpose(cast(x viewed as [1, 3, 112, 2, 112, 2]))
                   conv2d(p viewed as [1, 112, 112, 12], w'[64, 12, 4, 4], padding 2, 2, 1, 1)
    """

    def changed(body: Expr) -> Expr:
        readers = users(body)

        def visit(old: Expr, node: Expr) -> Expr:
            if not isinstance(node, Call) or not is_call(node, "nn.conv2d"):
                return node
            most = filled.get(node.args[0].dtype, 0)
            return (_in_single_steps(node, most, readers) if most else None) or node

        return rewrite(body, visit)

    return each_function(mod, lambda f: with_body(f, changed(f.body)))


def _in_single_steps(node: Call, most: int, readers: Mapping[Expr, Sequence[Expr]]) -> Expr | None:
    """The convolution in steps of one; None where it stays as it is."""
    data, weight = node.args
    a = node.attrs
    plain = (a.data_layout, a.kernel_layout) == LAYOUTS and a.groups == 1
    if not plain or not isinstance(weight, Constant) or tuple(a.dilation) != (1, 1):
        return None
    channels, *image = data.shape[1:]
    strides, before = tuple(a.strides), a.padding[:2]
    window = weight.shape[2:]
    if all(k <= s for k, s in zip(window, strides, strict=True)):
        patches = window == strides and not any(a.padding) and np.prod(strides) > 1
        if not patches or not _is_given(data):  # what is computed would be moved for it alone
            return None
    elif not 1 < np.prod(strides) <= most // channels:
        return None
    if any(n % s for n, s in zip(image, strides, strict=True)):
        return None
    front = [-(-b // s) for b, s in zip(before, strides, strict=True)]
    shift = [f * s - b for f, s, b in zip(front, strides, before, strict=True)]
    taps = [-(-(k + h) // s) for k, h, s in zip(window, shift, strides, strict=True)]
    sizes = zip(node.shape[2:], taps, front, image, strides, strict=True)
    behind = [out + t - 1 - f - n // s for out, t, f, n, s in sizes]
    if min(behind) < 0:
        return None
    moved = call("transpose", _split(data, strides, readers), axes=(0, 2, 4, 3, 5, 1))
    rows, columns = (n // s for n, s in zip(image, strides, strict=True))
    deep = channels * strides[0] * strides[1]
    pixels = call("reshape", moved, newshape=(data.shape[0], rows, columns, deep))
    attrs = {**a, "strides": (1, 1), "padding": (*front, *behind)}
    first = call("transpose", pixels, axes=(0, 3, 1, 2))  # which goes where channels come last
    return Call(node.op, [first, Constant(_weight(weight.data, strides, shift, taps))], attrs)


def _split(value: Expr, strides: Steps, readers: Mapping[Expr, Sequence[Expr]]) -> Expr:
    """`value`, [N, C, H, W], as [N, C, rows, step, columns, step]: a view of what elementwise steps
    of it alone are made of, so that they share a kernel with what follows."""
    if isinstance(value, Call) and _is_elementwise(value) and len(readers.get(value, ())) < 2:
        args = [
            _constant(v) if isinstance(v, Constant) else _split(v, strides, readers)
            for v in value.args
        ]
        return Call(value.op, args, value.attrs)
    n, c, h, w = value.shape
    (sy, sx) = strides
    return call("reshape", value, newshape=(n, c, h // sy, sy, w // sx, sx))


def _is_given(value: Expr) -> bool:
    """Whether it is an input of the network, or made of one element by element."""
    while isinstance(value, Call) and _is_elementwise(value):
        value = next(v for v in value.args if not isinstance(v, Constant))
    return isinstance(value, Var)


def _is_elementwise(value: Call) -> bool:
    """Whether it is of one value of its shape, and of constants."""
    name = op_name(value)
    if not name or TABLE[name].pattern > Pattern.BROADCAST or "shape" in value.attrs:
        return False
    others = [v for v in value.args if not isinstance(v, Constant)]
    alike = isinstance(value.checked_type, TensorType) and len(others) == 1
    return (
        alike
        and others[0].shape == value.shape
        and all(_along_channels(v) for v in value.args if isinstance(v, Constant))
    )


def _along_channels(value: Constant) -> bool:
    """Whether it differs between channels only."""
    shape = (1,) * (4 - len(value.shape)) + value.shape
    return len(shape) == 4 and shape[2:] == (1, 1)


def _constant(value: Constant) -> Constant:
    if value.data.size == 1:
        return Constant(value.data.reshape(()))
    shape = (1,) * (4 - value.data.ndim) + value.data.shape
    return Constant(value.data.reshape(*shape[:2], 1, 1, 1, 1))


def _weight(
    weight: np.ndarray, strides: Steps, shift: Sequence[int], taps: Sequence[int]
) -> np.ndarray:
    """[O, I, KH, KW] as [O, steps * I, rows, columns]."""
    outputs, channels, *window = weight.shape
    sides = [
        (h, t * s - k - h) for h, t, s, k in zip(shift, taps, strides, window, strict=True)
    ]  # fmt: skip
    (rows, columns), (sy, sx) = taps, strides
    full = np.pad(weight, ((0, 0), (0, 0), *sides))
    apart = full.reshape(outputs, channels, rows, sy, columns, sx).transpose(0, 3, 5, 1, 2, 4)
    return np.ascontiguousarray(apart.reshape(outputs, sy * sx * channels, rows, columns))
