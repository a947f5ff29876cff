"""Layouts of a network: some operators get others, what stands between them follows.

In: a module, and which layout which operator shall have.  Out: an equal module: weights that are
constants are stored anew, a value is transformed where its reader needs it otherwise, once for all
readers, and only there; inputs and results of the network lie as before.
Read next: `layout_propagation.py`, `data_layout.py`; `network/decide.py`, which chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Call,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Type,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.op import TABLE
from tilewright.graph.op.window import RANKS, is_blocked
from tilewright.graph.passes.data_layout import AxisLayout, axis_layout, convert, plain
from tilewright.graph.passes.layout_propagation import (
    CHOOSING,
    RESIZE,
    Propagated,
    convolution_in,
    operands,
    propagate,
    resized_in,
    transposed,
)
from tilewright.graph.traversal import each_function, op_name, unpacked, with_body

CHANNELS_LAST = axis_layout("NCHW", "NHWC", "the layout of channels last")
RESIZES = tuple(f"{RESIZE}{rank}d" for rank in RANKS)

# What a call becomes, given the forms of what it reads; None: it stays, its axes as they were.
Pick = Callable[[Call, Sequence[AxisLayout]], Propagated | None]


def convert_layout(mod: IRModule, desired: Mapping[str, Sequence[str]]) -> IRModule:
    """Give every operator named in `desired` its layout; others follow where they can.

    desired: {"nn.conv2d": ["NHWC", "default"]}: of the data, and of the kernel where there is one;
        in blocks: ["NCHW8c", "default"].  Convolutions of all ranks, poolings and image.resize2d;
        "qnn.conv2d" is nn.conv2d of integers, which else has the layout of "nn.conv2d"
    Raises ModelError for a layout that an operator cannot have.
    """
    wanted = {name: _checked(name, layouts) for name, layouts in desired.items()}

    def pick(node: Call, forms: Sequence[AxisLayout]) -> Propagated | None:
        name = op_name(node)
        layouts = wanted.get(name)
        if name in CHOOSING and node.args[0].dtype.is_int:
            layouts = wanted.get(f"q{name}", layouts)
        if name == RESIZE:
            layouts = wanted.get(f"{name}{len(node.shape) - 2}d")
        if layouts is None:
            return propagated(node, forms)
        if name == RESIZE:
            return resized_in(node, layouts[0])
        if name in CHOOSING:
            return convolution_in(node, layouts[0], *layouts[1:])
        form = axis_layout(node.attrs.layout, layouts[0], f"{name} in {layouts[0]}")
        found = propagate(node, form)
        if found is None and not form.is_plain:
            raise ModelError(
                f"{name} in {layouts[0]}", "it cannot have this layout",
                "Use channels first or last, or blocks of channels that divide them.",
            )  # fmt: skip
        return found

    return each_function(mod, lambda f: with_body(f, relayout(f.body, pick)))


def _checked(name: str, layouts: Sequence[str]) -> tuple[str, ...]:
    place = f"ConvertLayout({name!r}: {list(layouts)})"
    convolution = name.removeprefix("q") in CHOOSING
    has_layout = name in TABLE and "layout" in TABLE[name].attrs
    if not convolution and not has_layout and name not in RESIZES:
        raise ModelError(
            place, "this operator has no layout to choose",
            "Use nn.conv2d or another convolution, nn.max_pool2d or another pooling, "
            "image.resize2d; elementwise operators follow what they read.",
        )  # fmt: skip
    if isinstance(layouts, str) or not 1 <= len(layouts) <= (2 if convolution else 1):
        raise ModelError(
            place, f"{len(layouts)} layouts are given" if not isinstance(layouts, str)
            else "one string is given", 'Give a list: ["NHWC", "default"], of a pooling ["NHWC"].',
        )  # fmt: skip
    if layouts[0] == "default":
        raise ModelError(place, "the layout of the data is open", "Name one, such as NHWC.")
    return tuple(layouts)


def prefer_layouts(mod: IRModule, layout_of: Callable[[Call], str]) -> IRModule:
    """Two-dimensional convolutions in the layouts of their data that `layout_of` names, where they
    can have them; "": as they are.

    Where some have channels last, what is transposed from there stays as it lies until somebody
    needs it otherwise, so that a residual of a network that works on rows of channels between its
    convolutions is added in place.
    """

    def pick(node: Call, forms: Sequence[AxisLayout]) -> Propagated | None:
        if op_name(node) != "nn.conv2d" or is_blocked(node.attrs.data_layout):
            if last and op_name(node) == "transpose" and forms[0].is_plain:
                stays = transposed(node, forms[0])
                return stays if stays is not None and stays.result == CHANNELS_LAST else None
            return propagated(node, forms)
        layout = layout_of(node)
        return (convolution_in(node, layout) if layout else None) or propagated(node, forms)

    bodies = [f.body for f in mod.functions.values() if isinstance(f, Function)]
    last = any(
        layout_of(n) == "NHWC"
        for body in bodies for n in post_order(body)
        if isinstance(n, Call) and op_name(n) == "nn.conv2d"
    )  # fmt: skip
    return each_function(mod, lambda f: with_body(f, relayout(f.body, pick)))


def propagated(node: Call, forms: Sequence[AxisLayout]) -> Propagated | None:
    """Give `node` in the form of the first of its arguments that is not as it was."""
    for form in dict.fromkeys(f for f in forms if not f.is_plain):
        found = propagate(node, form)
        if found is not None:
            return found
    return None


def relayout(body: Expr, pick: Pick) -> Expr:
    """Give `body` with each call as `pick` says, and what is needed between them."""
    return _Rewritten(pick).of(body)


class _Rewritten:
    """New values in the forms in which they were made, and in those that somebody asked for."""

    def __init__(self, pick: Pick) -> None:
        self.pick = pick
        self.made: dict[Expr, tuple[Expr, AxisLayout]] = {}
        self.known: dict[tuple[Expr, AxisLayout], Expr] = {}

    def of(self, body: Expr) -> Expr:
        for node in post_order(body):
            if isinstance(node, Call):
                self._call(node)
            elif isinstance(node, TupleGetItem):
                self._item(node)
            elif not isinstance(node, Tuple):
                self.made[node] = node, _plain_of(node.checked_type)
        return self._as_it_was(body)

    def at(self, value: Expr, form: AxisLayout) -> Expr:
        """The new value of `value` in a form, converted at most once."""
        new, own = self.made[value]
        if own == form:
            return new
        key = value, form
        if key not in self.known:
            made = convert(new, value.shape, own, form)
            if layers := layers_of(value):
                adopt(made, layers)  # else whoever reads it says
            self.known[key] = made
        return self.known[key]

    def _call(self, node: Call) -> None:
        read = [v for v in operands(node) if isinstance(v.checked_type, TensorType)]
        whole = len(read) == len(operands(node)) and op_name(node)
        picked = self.pick(node, [self.made[v][1] for v in read]) if whole else None
        if picked is None:
            args = [self._as_it_was(a) for a in node.args]
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            new = node if same else Call(node.op, args, node.attrs)
            self.made[node] = new, _plain_of(node.checked_type)
        else:
            values = [self.at(v, f) for v, f in zip(read, picked.forms, strict=True)]
            self.made[node] = picked.make(values), picked.result
        adopt(self.made[node][0], layers_of(node))

    def _item(self, node: TupleGetItem) -> None:
        """Of several results the first lies in the form of the call."""
        if isinstance(node.tuple_value, Tuple):
            self.made[node] = self.made[node.tuple_value.fields[node.index]]
            return
        new, form = self.made[node.tuple_value]
        own = form if node.index == 0 else _plain_of(node.checked_type)
        self.made[node] = unpacked(TupleGetItem(new, node.index)), own

    def _as_it_was(self, value: Expr) -> Expr:
        if isinstance(value, Tuple):
            fields = [self._as_it_was(f) for f in value.fields]
            same = all(a is b for a, b in zip(fields, value.fields, strict=True))
            return value if same else Tuple(fields)
        kind = value.checked_type
        if not isinstance(kind, TensorType):
            new, form = self.made[value]
            if form.is_plain:
                return new
            items = [TupleGetItem(value, k) for k in range(len(kind.fields))]
            for item in items:
                self._item(item)
            return Tuple([self._as_it_was(item) for item in items])
        return self.at(value, plain(len(kind.shape)))


def _plain_of(kind: Type) -> AxisLayout:
    """As it was; of several results that of the first."""
    while not isinstance(kind, TensorType):
        kind = kind.fields[0]
    return plain(len(kind.shape))
