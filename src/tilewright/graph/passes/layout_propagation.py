"""What an operator is in another layout: one rule for each that can follow what it reads.

In: a call and the form in which what it reads lies.  Out: the forms of its arguments and of its
result, and the call on them; None where the operator needs its axes as they are.
Read next: `data_layout.py`, `layouts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, TensorType, Tuple
from tilewright.graph.op import TABLE, Pattern, call
from tilewright.graph.op.conv import CONVOLUTIONS, TRANSPOSED
from tilewright.graph.op.pooling import ROWS as POOLS
from tilewright.graph.op.reduction import ROWS as REDUCTIONS
from tilewright.graph.op.reduction import reduced_axes
from tilewright.graph.op.window import IMAGE, is_blocked, layouts
from tilewright.graph.passes.data_layout import AxisLayout, axis_layout, convert, plain
from tilewright.graph.passes.simplify import along, scale_and_shift
from tilewright.graph.traversal import is_call, op_name
from tilewright.topi.transform import reshape_groups

Values = Sequence[Expr]


@dataclass(frozen=True)
class Propagated:
    """forms:  of each value read, those in tuples one by one
    result: the form of what `make` gives of these values (of its first value, where it has several)
    """

    forms: tuple[AxisLayout, ...]
    result: AxisLayout
    make: Callable[[Values], Expr]


RESIZE = "image.resize"
Rule = Callable[[Call, AxisLayout], Propagated | None]


def operands(node: Call) -> list[Expr]:
    """Give the values that `node` reads, those in tuples one by one."""
    return [v for a in node.args for v in (a.fields if isinstance(a, Tuple) else (a,))]


def propagate(node: Call, form: AxisLayout) -> Propagated | None:
    """Give `node` reading values that lie in `form`, as far as they have its axes."""
    rule = RULES.get(op_name(node))
    if rule is None and op_name(node):
        row = TABLE[op_name(node)]
        rule = _view if row.view else _elementwise if row.pattern <= Pattern.BROADCAST else None
    return None if rule is None or form.is_plain else rule(node, form)


def _alone(node: Call, form: AxisLayout, result: AxisLayout, **attrs: Any) -> Propagated | None:
    """`node` with other attributes, of one value that fits the form."""
    if not form.fits(node.args[0].shape):
        return None
    changed = {**node.attrs, **attrs}
    return Propagated((form,), result, lambda v: Call(node.op, v, changed))


# -- element by element ----------------------------------------------------------------------------


def _elementwise(node: Call, form: AxisLayout) -> Propagated | None:
    if not isinstance(node.checked_type, TensorType) or not form.fits(node.shape):
        return None
    forms, wide = [], []
    for value in node.args:
        shape = value.shape
        alike = len(shape) == form.rank and form.fits(shape)
        forms.append(form if alike and value.tensor_type.size > 1 else plain(len(shape)))
        full = (1,) * (form.rank - len(shape)) + shape
        wide.append(None if alike or value.tensor_type.size == 1 else full)
        if wide[-1] is not None and not form.fits(full):
            return None

    def make(values: Values) -> Expr:
        stretched = []
        for value, full, old in zip(values, wide, node.args, strict=True):
            if full is not None:
                viewed = call("reshape", value, newshape=full)
                value = convert(viewed, full, plain(len(full)), form)
            elif old.tensor_type.size == 1 and old.shape:
                value = call("reshape", value, newshape=(1,) * len(form.order))
            stretched.append(value)
        return Call(node.op, stretched, node.attrs)

    return Propagated(tuple(forms), form, make)


def _bias_add(node: Call, form: AxisLayout) -> Propagated | None:
    data, axis = node.args[0], node.attrs.axis % len(node.shape)
    if not form.fits(data.shape):
        return None

    def make(values: Values) -> Expr:
        if form.block(axis) == 1:
            return Call(node.op, values, {**node.attrs, "axis": form.place(axis)})
        bias = along(values[1], axis, form.rank)
        return call("add", values[0], convert(bias, bias.shape, plain(form.rank), form))

    return Propagated((form, plain(1)), form, make)


def _batch_norm(node: Call, form: AxisLayout) -> Propagated | None:
    axis = node.attrs.axis % len(node.args[0].shape)
    if not form.fits(node.args[0].shape):
        return None

    def make(values: Values) -> Expr:
        if form.block(axis) == 1:
            return Call(node.op, values, {**node.attrs, "axis": form.place(axis)})
        spread = [along(v, axis, form.rank) for v in scale_and_shift(values[1:], node.attrs)]
        scale, shift = (convert(v, v.shape, plain(form.rank), form) for v in spread)
        scaled = call("add", call("multiply", values[0], scale), shift)
        return Tuple([scaled, values[3], values[4]])

    return Propagated((form, *[plain(1)] * 4), form, make)


def _broadcast_to(node: Call, form: AxisLayout) -> Propagated | None:
    if len(node.args[0].shape) != form.rank or not form.fits(node.shape):
        return None
    if any(node.args[0].shape[axis] != node.shape[axis] for axis, _ in form.blocks):
        return None
    return _alone(node, form, form, shape=form.shape(node.shape))


# -- along axes ------------------------------------------------------------------------------------


def _spread(form: AxisLayout, values: Sequence[Any], inner: Any) -> tuple[Any, ...]:
    return tuple(values[k] if k >= 0 else inner for k in form.order)


def _pad(node: Call, form: AxisLayout) -> Propagated | None:
    sides = [tuple(map(int, pair)) for pair in node.attrs.pad_width]
    if len(sides) != form.rank or any(any(sides[axis]) for axis, _ in form.blocks):
        return None
    return _alone(node, form, form, pad_width=_spread(form, sides, (0, 0)))


def _slice(node: Call, form: AxisLayout) -> Propagated | None:
    a = node.attrs
    begin, extents, strides = list(a.begin), list(a.extents), list(a.strides)
    if not form.fits(node.shape):
        return None
    for axis, block in form.blocks:
        if strides[axis] != 1 or begin[axis] % block or extents[axis] % block:
            return None
        begin[axis], extents[axis] = begin[axis] // block, extents[axis] // block
    inner = [form.block(~k) if k < 0 else 0 for k in form.order]
    return _alone(
        node, form, form, begin=_spread(form, begin, 0), strides=_spread(form, strides, 1),
        extents=tuple(extents[k] if k >= 0 else inner[i] for i, k in enumerate(form.order)),
    )  # fmt: skip


def _concatenate(node: Call, form: AxisLayout) -> Propagated | None:
    parts, axis = operands(node), node.attrs.axis % len(node.shape)
    if not all(form.fits(p.shape) for p in parts):
        return None
    if form.block(axis) > 1 and any(p.shape[axis] == 1 for p in parts):
        return None  # which has no block
    attrs = {**node.attrs, "axis": form.place(axis)}
    return Propagated((form,) * len(parts), form, lambda v: Call(node.op, (Tuple(v),), attrs))


def _resize(node: Call, form: AxisLayout) -> Propagated | None:
    axes = [a % form.rank for a in node.attrs.axes]
    if any(form.block(a) > 1 for a in axes):
        return None
    return _alone(node, form, form, axes=tuple(form.place(a) for a in axes))


def resized_in(node: Call, layout: str) -> Propagated | None:
    """Give a resize of an image in another layout; None where its axes are those of no image.

    Raises ModelError for a layout that is none of such a value.
    """
    rank = len(node.args[0].shape) - 2
    axes = sorted(a % (rank + 2) for a in node.attrs.axes)
    for known in layouts(rank) if rank in IMAGE else ():
        if axes == [known.index(letter) for letter in IMAGE[rank]]:
            return _resize(node, axis_layout(known, layout, f"{RESIZE}{rank}d in {layout}"))
    return None


def _reduce(node: Call, form: AxisLayout) -> Propagated | None:
    a, rank = node.attrs, len(node.args[0].shape)
    if rank != form.rank:
        return None
    gone = reduced_axes(a.axis, a.exclude, rank)
    if any(form.block(k) > 1 for k in gone):
        return None
    kept = [k for k in range(rank) if k not in gone]
    result = form
    if not a.keepdims:  # those that stay are numbered anew
        at = {k: i for i, k in enumerate(kept)} | {~k: ~i for i, k in enumerate(kept)}
        order = tuple(at[k] for k in form.order if k in at)
        result = AxisLayout(order, tuple((at[k], n) for k, n in form.blocks))
    places = tuple(sorted(form.place(k) for k in gone))
    return _alone(node, form, result, axis=places, exclude=False)


def transposed(node: Call, form: AxisLayout) -> Propagated | None:
    """Give a transposition that moves nothing: what was axis `axes[k]` is now axis k."""
    if not form.fits(node.args[0].shape):
        return None
    now = {old: new for new, old in enumerate(node.attrs.axes)}
    order = tuple(now[k] if k >= 0 else ~now[~k] for k in form.order)
    blocks = tuple(sorted((now[k], n) for k, n in form.blocks))
    return Propagated((form,), AxisLayout(order, blocks), lambda v: v[0])


def _view(node: Call, form: AxisLayout) -> Propagated | None:
    """A view that joins or cuts only axes that are neighbours in the form, too: of an image with
    channels last its pixels, which become one axis."""
    had, has = node.args[0].shape, node.shape
    if form.blocks or len(had) != form.rank or 0 in had:
        return None
    source, target = ([k for k, n in enumerate(s) if n != 1] for s in (had, has))
    lies = [k for k in form.order if had[k] != 1]
    order: list[int] = []
    runs = {
        source[run[0]]: ([source[k] for k in run], [target[k] for k in there])
        for run, there in reshape_groups([had[k] for k in source], [has[k] for k in target])
    }
    while lies:
        run, there = runs.get(lies[0], ([], []))
        if not run or lies[: len(run)] != run:
            return None
        lies, order = lies[len(run) :], [*order, *there]
    result = AxisLayout((*(k for k, n in enumerate(has) if n == 1), *order))
    shape = result.shape(has)
    return Propagated((form,), result, lambda v: call("reshape", v[0], newshape=shape))


# -- windows ---------------------------------------------------------------------------------------


def pool(node: Call, form: AxisLayout) -> Propagated | None:
    """Give a pooling, or its gradient, in another layout of the image."""
    known = node.attrs.layout
    if is_blocked(known) or len(known) != form.rank:
        return None
    wanted = form.layout(known)
    first, last = layouts(len(known) - 2)
    blocked = "".join(filter(str.isalpha, wanted)) == f"{first}c"
    if wanted not in (first, last) and not (blocked and node.shape[known.index("C")] > 1):
        return None
    if not all(form.fits(a.shape) for a in node.args):  # of a gradient two
        return None
    attrs = {**node.attrs, "layout": wanted}
    return Propagated((form,) * len(node.args), form, lambda v: Call(node.op, v, attrs))


# -- convolutions, which do not follow but choose --------------------------------------------------


def convolution_in(
    node: Call, data_layout: str, kernel_layout: str = "default"
) -> Propagated | None:
    """Give the convolution `node` in a layout of its data and one of its kernel.

    data_layout:   NHWC, NCHW, or in blocks: NCHW8c; of one and three axes likewise.  Channels that
        do not fill whole blocks stay as they are: those of an image with three, say
    kernel_layout: default: what kernels prefer
    None where it stays as it is: in blocks, convolutions with several groups that are not depthwise
    Raises ModelError for a layout that no such operator has.
    """
    name, rank = op_name(node), len(node.attrs.strides)
    place = f"{name} in {data_layout}"
    data = axis_layout(node.attrs.data_layout, data_layout, place)
    if is_blocked(data_layout):
        if name != "nn.conv2d" or "".join(filter(str.isalpha, data_layout)) != "NCHWc":
            raise ModelError(
                place, "only nn.conv2d has blocks, of channels, which are innermost",
                "Use NCHW8c for nn.conv2d, and a layout without blocks for others.",
            )  # fmt: skip
        return _in_blocks(node, data.block(data.order[1]), kernel_layout)
    if data_layout not in layouts(rank):
        raise ModelError(
            place, "there is no such convolution", f"Use {' or '.join(layouts(rank))}."
        )
    wanted = kernel_layout
    if kernel_layout == "default":
        wanted = _usual_kernel(node, data_layout)
    weight = axis_layout(node.attrs.kernel_layout, wanted, f"{name} with kernel {wanted}")
    if weight.blocks:
        raise ModelError(
            f"{name} with kernel {wanted}", f"data in {data_layout} has none in blocks",
            "Use default.",
        )  # fmt: skip
    attrs = {**node.attrs, "data_layout": data_layout, "kernel_layout": wanted}
    return Propagated((data, weight), data, lambda v: Call(node.op, v, attrs))


def _usual_kernel(node: Call, data_layout: str) -> str:
    """OIHW for NCHW, HWIO for NHWC; of a depthwise one HWOI, of a transposed one IOHW, HWIO."""
    image = IMAGE[len(data_layout) - 2]
    channels = node.args[0].shape[node.attrs.data_layout.index("C")]
    outer = "OI"
    if is_call(node, *TRANSPOSED):
        return f"IO{image}" if data_layout[1] == "C" else f"{image}IO"
    if data_layout[1] != "C" and not 1 < node.attrs.groups == channels:
        outer = "IO"
    return f"{outer}{image}" if data_layout[1] == "C" else f"{image}{outer}"


def _in_blocks(node: Call, block: int, kernel_layout: str) -> Propagated | None:
    a = node.attrs
    at = a.data_layout.index("C")
    channels, made = node.args[0].shape[at], node.shape[at]
    depthwise = 1 < a.groups == channels == made
    inner, outer = (block if n % block == 0 else 1 for n in (channels, made))
    if (a.groups > 1 and not depthwise) or (inner == outer == 1) or (depthwise and inner == 1):
        return None
    kernel = f"OIHW{1 if depthwise else inner}i{outer}o"
    if kernel_layout not in ("default", kernel):
        raise ModelError(
            f"nn.conv2d in NCHW{block}c with kernel {kernel_layout}",
            f"it reads {kernel}", 'Use "default".',
        )  # fmt: skip
    layout = f"NCHW{inner}c"
    data = axis_layout(a.data_layout, layout, "nn.conv2d")
    weight = axis_layout(a.kernel_layout, kernel, "nn.conv2d")
    result = axis_layout(a.data_layout, f"NCHW{outer}c", "nn.conv2d")
    attrs = {**a, "data_layout": layout, "kernel_layout": kernel}
    flat = plain(4) if a.data_layout == "NCHW" else axis_layout(a.data_layout, "NCHW", "nn.conv2d")

    def make(values: Values) -> Expr:
        found = Call(node.op, values, attrs)
        return found if outer > 1 else convert(found, node.shape, result, flat)

    return Propagated((data, weight), result if outer > 1 else flat, make)


RULES: dict[str, Rule] = {
    "nn.bias_add": _bias_add,
    "nn.batch_norm": _batch_norm,
    "broadcast_to": _broadcast_to,
    "nn.pad": _pad,
    "nn.mirror_pad": _pad,
    "strided_slice": _slice,
    "concatenate": _concatenate,
    RESIZE: _resize,
    "transpose": transposed,
    **{row.name: _reduce for row in REDUCTIONS if "keepdims" in row.attrs},
    **{row.name: pool for row in POOLS if "layout" in row.attrs},
}
CHOOSING = (*CONVOLUTIONS, *TRANSPOSED)
