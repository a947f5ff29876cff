"""Which layouts convolutions may have, and what is between them then.

In: a network whose operators are not grouped yet.  Out: candidates, the network in any of them; its
operators as units, each with the options that layouts give it; the kernels that these need.
Read next: `decide.py`, which takes the fastest; `graph/passes/layouts.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from tilewright.base.dtype import FLOAT32
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    IRModule,
    TensorType,
    Tuple,
    Var,
    post_order,
)
from tilewright.graph.op.window import is_blocked
from tilewright.graph.passes import eliminate_dead_code
from tilewright.graph.passes.data_layout import AxisLayout, convert, plain
from tilewright.graph.passes.fuse import partition
from tilewright.graph.passes.layout_propagation import (
    Propagated,
    convolution_in,
    operands,
    propagate,
)
from tilewright.graph.passes.layouts import prefer_layouts
from tilewright.graph.passes.moves import moves_last
from tilewright.graph.passes.transposes import merge_transposes
from tilewright.graph.traversal import op_name
from tilewright.ir.atoms import ATOMS
from tilewright.network.extract import FusedGroup, bytes_of, groups_of_body
from tilewright.targets.target import Target

Choice = tuple[str, ...]  # the layout of each convolution's data, in post-order; "": as it is


def candidate_layouts(target: Target, mod: IRModule | None = None) -> tuple[str, ...]:
    """List layouts of data of convolutions: blocks of a vector's channels, channels last, first.

    On GPUs neighbouring threads read neighbouring columns as well as channels, so that there are
    none; but matrix units are fed best by copies of neighbouring channels: a network whose
    convolutions they multiply may have channels last.  Pairs of channels (NCHW2c) lose to that.
    """
    if target.has_threads:
        return ("NHWC", "NCHW") if mod is not None and _in_atoms(mod, target) else ()
    lanes = target.limits.vector_bytes // FLOAT32.bytes
    return (f"NCHW{lanes}c", "NHWC", "NCHW")


def usual_layouts(mod: IRModule, target: Target) -> Choice:
    """Give the layouts of convolutions where nothing was measured: as they are; channels last for
    matrix units, which read slabs of images so."""
    own = [node.attrs.data_layout for node in convolutions(mod)]
    wanted = "NHWC" if target.has_threads and _in_atoms(mod, target) else ""
    return tuple("" if is_blocked(layout) or layout == wanted else wanted for layout in own)


def _in_atoms(mod: IRModule, target: Target) -> bool:
    """Whether most of what convolutions multiply is of types for which the target has atoms, in the
    precision that it is asked for."""
    allowed = (atom.a.dtype for name, atom in ATOMS.items() if target.allows(name))
    fed = {*(dtype for dtype in allowed if dtype.is_float), *bytes_of(target)}
    whole = of_atoms = 0
    for node in convolutions(mod):
        work = prod(node.shape) * prod(node.args[1].shape)
        work //= max(node.args[1].shape[node.attrs.kernel_layout.index("O")], 1)
        whole += work
        of_atoms += work if node.args[0].dtype in fed else 0
    return 2 * of_atoms > whole


def can_choose(mod: IRModule, target: Target) -> bool:
    """Say whether the network has convolutions, and the target layouts for them."""
    return bool(_layouts_of(mod) and candidate_layouts(target, mod))


def has_layouts(mod: IRModule, target: Target, tasks: Collection[str]) -> bool:
    """Say whether among `tasks`, by name, are convolutions in other layouts than the network's."""
    own = _layouts_of(mod)
    marks = [
        "conv2d_NCHWc" if is_blocked(layout) else f"conv2d_{layout.lower()}"
        for layout in candidate_layouts(target, mod) if own and layout not in own
    ]  # fmt: skip
    return any(mark in name for mark in marks for name in tasks)


def _layouts_of(mod: IRModule) -> set[str]:
    return {node.attrs.data_layout for node in convolutions(mod)}


def convolutions(mod: IRModule) -> list[Call]:
    """List those whose layout is chosen or not, in post-order."""
    nodes = post_order(mod["main"].body)
    return [n for n in nodes if isinstance(n, Call) and op_name(n) == "nn.conv2d"]


def fits(choice: Sequence[str], mod: IRModule, target: Target) -> bool:
    """Say whether these may be the layouts of the network's convolutions."""
    known = {"", *candidate_layouts(target, mod)}
    return len(choice) in (0, len(convolutions(mod))) and known.issuperset(choice)


def in_layouts(mod: IRModule, choice: Choice) -> IRModule:
    """Give `mod` with its convolutions in the layouts of `choice`.

    Where these are only other orders of axes, elementwise steps may now follow what computes: a
    residual that was behind a transposition of the product is behind a view of it, and what was
    moved once more is moved once.
    """
    if not any(choice):
        return merge_transposes(mod)
    layouts = dict(zip(convolutions(mod), choice, strict=True))
    made = prefer_layouts(mod, lambda node: layouts.get(node, ""))
    ordered = not any(map(is_blocked, choice))
    return eliminate_dead_code(merge_transposes(moves_last(made)) if ordered else made)


def layouts_throughout(mod: IRModule, target: Target) -> list[Choice]:
    """Give each layout, for all convolutions."""
    own = [n.attrs.data_layout for n in convolutions(mod)]
    return [
        tuple("" if o == layout else layout for o in own)
        for layout in candidate_layouts(target, mod)
    ]


def throughout(mod: IRModule, target: Target) -> list[IRModule]:
    """Give `mod` in each of the layouts, other than its own, that all its convolutions may have."""
    return [in_layouts(mod, choice) for choice in layouts_throughout(mod, target) if any(choice)]


# -- units -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """One way to compute a unit.

    layout: of its convolution's data, "" as it is; forms: of what it reads; result: of its value
    body:   it, as an expression of variables in these forms
    """

    layout: str
    forms: Mapping[Expr, AxisLayout]
    result: AxisLayout
    body: Expr


@dataclass(frozen=True, eq=False)
class Unit:
    """Operators that share a kernel; the first of its options is: as they are."""

    steps: tuple[Call, ...]
    options: tuple[Option, ...]


def name_of(unit: Unit) -> str:
    """Name its operators, for people, with the shape of its value."""
    steps = " + ".join(op_name(s) for s in unit.steps)
    return f"{steps} of {unit.steps[-1].checked_type}"


@dataclass(frozen=True)
class Rival:
    """A kernel that other layouts need.

    instead_of: key of the one that the network has in its place, if one: of a convolution
    """

    group: FusedGroup
    instead_of: str


def rivals(mod: IRModule, target: Target) -> list[Rival]:
    """Give the kernels that a choice of layouts asks for, and those of the network that follow,
    each once: convolutions in other layouts, what follows them, transformations from the network's
    layouts and to them."""
    found: dict[str, Rival] = {}
    units = units_of(mod, candidate_layouts(target, mod))
    for unit in units:
        own = groups_of_body(unit.options[0].body)
        follows = not any(map(may_choose, unit.steps))
        for option in unit.options if len(unit.options) > 1 else ():
            for group in groups_of_body(option.body):
                key = own[0].key if option.layout and len(own) == 1 else ""
                if option is not unit.options[0] or follows:
                    found.setdefault(group.key, Rival(group, key))
    for body in _transformations(units):
        for group in groups_of_body(body):
            found.setdefault(group.key, Rival(group, ""))
    return list(found.values())


def _transformations(units: Sequence[Unit]) -> list[Expr]:
    """Between the forms that values may have and those they have now."""
    made = {unit.steps[-1]: unit for unit in units}
    found: dict[tuple[object, AxisLayout, AxisLayout], Expr] = {}
    for unit in units:
        for option in unit.options:
            for value, form in option.forms.items():
                kept = made[value].options if value in made else ()
                own = plain(len(value.shape))
                for source in {own, *(o.result for o in kept)}:
                    if source != form and own in (source, form):
                        key = value.checked_type, source, form
                        found.setdefault(key, transformed(value, source, form))
    return list(found.values())


def transformed(value: Expr, source: AxisLayout, wanted: AxisLayout) -> Expr:
    """Give the transformation of `value` from one form to the other, of a variable."""
    data = Var("x", TensorType(source.shape(value.shape), value.dtype))
    return convert(data, value.shape, source, wanted)


def units_of(mod: IRModule, layouts: Sequence[str]) -> list[Unit]:
    """Give the kernels of the network as units, each with the options that `layouts` give it."""
    body = mod["main"].body
    grouped = partition(body)
    inside = {step for g in grouped for step in g.steps}
    alone = [n for n in post_order(body) if isinstance(n, Call) and n not in inside]
    listed = [*(tuple(g.steps) for g in grouped), *((n,) for n in alone)]
    kinds: dict[AxisLayout, None] = {}
    made: list[tuple[tuple[Call, ...], list[Option]]] = []
    for steps in listed:
        first = _option(steps, "", plain)
        options = [first] if first is not None else []
        if any(may_choose(n) for n in steps):
            others = [_option(steps, layout, plain) for layout in layouts]
            options += [o for o in others if o is not None and o.forms != options[0].forms]
        made.append((steps, options))
        kinds |= dict.fromkeys(o.result for o in options if not o.result.is_plain)
    units = []
    for steps, options in made:
        if options and not any(may_choose(n) for n in steps):
            found = [_option(steps, "", partial(_always, form)) for form in kinds]
            options = [*options, *(o for o in found if o is not None)]
        if options:
            units.append(Unit(steps, tuple(options)))
    return units


def _always(form: AxisLayout, rank: int) -> AxisLayout:
    return form


def may_choose(node: Call) -> bool:
    """Say whether it is a convolution that may have another layout."""
    return op_name(node) == "nn.conv2d" and not is_blocked(node.attrs.data_layout)


def _option(
    steps: Sequence[Call], layout: str, form_of: Callable[[int], AxisLayout]
) -> Option | None:
    """`steps` with their convolution in `layout`, or what they read in `form_of` its rank; None
    where that is not possible."""
    forms: dict[Expr, AxisLayout] = {}
    made: dict[Expr, tuple[Expr, AxisLayout]] = {}
    as_it_is = not layout and form_of is plain

    def at(value: Expr, form: AxisLayout) -> Expr:
        if value in made:
            new, own = made[value]
            return convert(new, value.shape, own, form)
        if isinstance(value, Constant):
            return convert(value, value.shape, plain(len(value.shape)), form)
        known = forms.setdefault(value, form)
        name = f"x{list(forms).index(value)}"
        new = Var(name, TensorType(known.shape(value.shape), value.dtype))
        made[value] = new, known
        return at(value, form)

    for step in steps:
        values = operands(step)
        if not all(isinstance(v.checked_type, TensorType) for v in (*values, step)):
            return None
        read = [made[v][1] for v in values if v in made]
        picked: Propagated | None
        if as_it_is:
            own = tuple(plain(len(v.shape)) for v in values)
            picked = Propagated(own, plain(len(step.shape)), partial(_again, step))
        elif layout and may_choose(step):
            picked = convolution_in(step, layout)
        else:
            leads = [f for f in read if not f.is_plain] or [form_of(len(values[0].shape))]
            picked = propagate(step, leads[0]) if values else None
        if picked is None:
            return None
        new = [at(v, f) for v, f in zip(values, picked.forms, strict=True)]
        made[step] = picked.make(new), picked.result
    body, result = made[steps[-1]]
    return Option(layout, forms, result, body)


def _again(step: Call, values: Sequence[Expr]) -> Expr:
    """The call on other values, those of tuples in tuples."""
    given = iter(values)
    args = [
        Tuple([next(given) for _ in a.fields]) if isinstance(a, Tuple) else next(given)
        for a in step.args
    ]
    return Call(step.op, args, step.attrs)
