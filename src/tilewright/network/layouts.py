"""Which layout each convolution gets, and with it what is between them: what was measured decides.

In: a network whose operators are not grouped yet, and the records.  Out: a layout for each of its
convolutions, and the same network in these.  Candidates are the network as it is, each layout used
throughout, and the mixture that kernels and transformations make cheapest (`assign.py`).  Of these
the one is taken whose kernels, transformations among them, take least by their records; a
contraction that was not measured rules a candidate out.  So the choice is a function of the log,
and found again from it.
Read next: `passes/layouts.py`, `grouping.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

import numpy as np

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
from tilewright.graph.passes import eliminate_dead_code, fuse
from tilewright.graph.passes.follow import Followed, convolution_in, follow, operands
from tilewright.graph.passes.form import Form, convert, plain
from tilewright.graph.passes.fuse import partition
from tilewright.graph.passes.layouts import prefer_layouts
from tilewright.graph.printer import expression_text
from tilewright.graph.traversal import op_name
from tilewright.network.assign import cheapest
from tilewright.network.extract import FusedGroup, fused_groups
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

Seconds = Callable[[FusedGroup], float | None]
Choice = tuple[str, ...]  # the layout of each convolution's data, in post-order; "": as it is

CLEARLY = 0.98  # of the time as it is: what takes longer may seem faster by luck
RATE, LAUNCH = 1e10, 2e-6  # bytes a second and seconds: of other kernels, where nobody measured
COMPUTING = ("conv", "dense", "matmul", "attention")  # whose time nobody can guess, in their names


def candidate_layouts(target: Target) -> tuple[str, ...]:
    """Of the data of convolutions: blocks of a vector's channels, channels last, channels first.

    On GPUs none: neighbouring threads read neighbouring columns as well as channels.
    """
    lanes = target.limits.vector_bytes // FLOAT32.bytes
    return () if target.has_threads else (f"NCHW{lanes}c", "NHWC", "NCHW")


def can_choose(mod: IRModule, target: Target) -> bool:
    """Whether the network has convolutions, and the target layouts for them."""
    return bool(_layouts_of(mod) and candidate_layouts(target))


def has_layouts(mod: IRModule, target: Target, tasks: Collection[str]) -> bool:
    """Whether among `tasks`, by name, are convolutions in other layouts than the network's."""
    own = _layouts_of(mod)
    marks = [
        "conv2d_NCHWc" if is_blocked(layout) else f"conv2d_{layout.lower()}"
        for layout in candidate_layouts(target) if own and layout not in own
    ]  # fmt: skip
    return any(mark in name for mark in marks for name in tasks)


def _layouts_of(mod: IRModule) -> set[str]:
    return {node.attrs.data_layout for node in convolutions(mod)}


def convolutions(mod: IRModule) -> list[Call]:
    """Those whose layout is chosen or not, in post-order."""
    nodes = post_order(mod["main"].body)
    return [n for n in nodes if isinstance(n, Call) and op_name(n) == "nn.conv2d"]


def fits(choice: Sequence[str], mod: IRModule, target: Target) -> bool:
    """Whether these may be the layouts of the network's convolutions."""
    known = {"", *candidate_layouts(target)}
    return len(choice) in (0, len(convolutions(mod))) and known.issuperset(choice)


def in_layouts(mod: IRModule, choice: Choice) -> IRModule:
    """`mod` with its convolutions in the layouts of `choice`."""
    if not any(choice):
        return mod
    layouts = dict(zip(convolutions(mod), choice, strict=True))
    return eliminate_dead_code(prefer_layouts(mod, lambda node: layouts.get(node, "")))


def chosen_layouts(mod: IRModule, target: Target, seconds: Seconds) -> Choice:
    """The layouts that are clearly fastest by `seconds`, of one call of a kernel."""
    cost = Costs(seconds)
    usual = groups_of(mod)
    best, least = ("",) * len(convolutions(mod)), 0.0
    for choice in dict.fromkeys((*_throughout(mod, target), mixture(mod, target, cost))):
        if any(choice):
            gained, lost = cost.difference(usual, groups_of(in_layouts(mod, choice)))
            if gained < CLEARLY * lost and gained - lost < least:
                best, least = choice, gained - lost
    return best


def _throughout(mod: IRModule, target: Target) -> list[Choice]:
    own = [n.attrs.data_layout for n in convolutions(mod)]
    return [
        tuple("" if o == layout else layout for o in own) for layout in candidate_layouts(target)
    ]


def throughout(mod: IRModule, target: Target) -> list[IRModule]:
    """`mod` in each of the layouts, other than its own, that all its convolutions may have."""
    return [in_layouts(mod, choice) for choice in _throughout(mod, target) if any(choice)]


def groups_of(mod: IRModule) -> list[FusedGroup]:
    """The kernels of a network whose operators are not grouped yet."""
    return fused_groups(fuse(mod)["main"])


def groups_of_body(body: Expr) -> list[FusedGroup]:
    """The kernels that compute an expression."""
    return groups_of(eliminate_dead_code(IRModule.from_expr(body)))


class Costs:
    """Seconds of kernels: measured; otherwise guessed, but infinite for those that compute much.

    guess: whether anything is
    """

    def __init__(self, seconds: Seconds, guess: bool = True) -> None:
        self._seconds, self._guess = seconds, guess
        self._known: dict[str, float] = {}
        self._of_text: dict[str, float] = {}

    def of(self, group: FusedGroup) -> float:
        if group.key not in self._known:
            found = self._seconds(group)
            guess = (
                LAUNCH + moved_bytes(group.dag) / RATE if self._guess and group.is_simple else inf
            )
            self._known[group.key] = guess if found is None else found
        return self._known[group.key]

    def of_body(self, body: Expr) -> float:
        """Of all kernels of a body; equal bodies are asked for once."""
        text = expression_text(body)
        if text not in self._of_text:
            groups = groups_of_body(body)
            self._of_text[text] = sum(self.of(g) * len(g.calls) for g in groups)
        return self._of_text[text]

    def difference(
        self, usual: Sequence[FusedGroup], other: Sequence[FusedGroup]
    ) -> tuple[float, float]:
        """What the kernels take that only `other` has, and those that only `usual` has."""
        every = {g.key: g for g in (*usual, *other)}
        more = Counter({g.key: len(g.calls) for g in other})
        more.subtract({g.key: len(g.calls) for g in usual})
        gained = sum(n * self.of(every[k]) for k, n in more.items() if n > 0)
        return gained, sum(-n * self.of(every[k]) for k, n in more.items() if n < 0)


def moved_bytes(dag: ComputeDAG) -> int:
    """What a kernel reads and writes, each of it once."""
    return sum(int(np.prod(t.shape, dtype=np.int64)) * t.dtype.bytes for t in dag.args)


# -- a mixture -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """One way to compute a unit.

    layout: of its convolution's data, "" as it is; forms: of what it reads; result: of its value
    body:   it, as an expression of variables in these forms
    """

    layout: str
    forms: Mapping[Expr, Form]
    result: Form
    body: Expr


@dataclass(frozen=True, eq=False)
class Unit:
    """Operators that share a kernel; the first of its options is: as they are."""

    steps: tuple[Call, ...]
    options: tuple[Option, ...]


def name_of(unit: Unit) -> str:
    """Its operators, for people, with the shape of its value."""
    steps = " + ".join(op_name(s) for s in unit.steps)
    return f"{steps} of {unit.steps[-1].checked_type}"


def mixture(mod: IRModule, target: Target, cost: Costs) -> Choice:
    """Every convolution in the layout that is cheapest with those of its neighbours, by the costs
    of kernels and of transformations between them."""
    units = units_of(mod, candidate_layouts(target))
    costs = [[cost.of_body(o.body) for o in unit.options] for unit in units]
    # As it is costs what is known, or what nobody knows: then it is left only for what is known.
    costs = [[1.0 if c == inf and k == 0 else c for k, c in enumerate(own)] for own in costs]
    chosen, _ = cheapest(costs, transformations(units, cost))
    layouts = {
        step: unit.options[k].layout for unit, k in zip(units, chosen, strict=True)
        for step in unit.steps
    }  # fmt: skip
    return tuple(layouts.get(node, "") for node in convolutions(mod))


def transformations(units: Sequence[Unit], cost: Costs) -> dict[tuple[int, int], list[list[float]]]:
    """What it costs to bring the value of a unit to another, by the options of both."""
    made: dict[Expr, int] = {unit.steps[-1]: k for k, unit in enumerate(units)}
    found: dict[tuple[int, int], list[list[float]]] = {}
    for j, unit in enumerate(units):
        for value in dict.fromkeys(v for o in unit.options for v in o.forms):
            i = made.get(value)
            if i is None:
                continue
            table = [
                [cost.of_body(_transformed(value, a.result, b.forms[value])) for b in unit.options]
                for a in units[i].options
            ]
            known = found.setdefault((i, j), [[0.0] * len(unit.options) for _ in table])
            found[i, j] = (np.asarray(known) + np.asarray(table)).tolist()
    return found


@dataclass(frozen=True)
class Rival:
    """A kernel that other layouts need.

    instead_of: key of the one that the network has in its place, if one: of a convolution
    """

    group: FusedGroup
    instead_of: str


def rivals(mod: IRModule, target: Target) -> list[Rival]:
    """The kernels that a choice of layouts asks for, and those of the network that follow, each
    once: convolutions in other layouts, what follows them, transformations from the network's
    layouts and to them."""
    found: dict[str, Rival] = {}
    units = units_of(mod, candidate_layouts(target))
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
    found: dict[tuple[object, Form, Form], Expr] = {}
    for unit in units:
        for option in unit.options:
            for value, form in option.forms.items():
                kept = made[value].options if value in made else ()
                own = plain(len(value.shape))
                for source in {own, *(o.result for o in kept)}:
                    if source != form and own in (source, form):
                        key = value.checked_type, source, form
                        found.setdefault(key, _transformed(value, source, form))
    return list(found.values())


def _transformed(value: Expr, source: Form, wanted: Form) -> Expr:
    data = Var("x", TensorType(source.shape(value.shape), value.dtype))
    return convert(data, value.shape, source, wanted)


def units_of(mod: IRModule, layouts: Sequence[str]) -> list[Unit]:
    """The kernels of the network as units, each with the options that `layouts` give it."""
    body = mod["main"].body
    grouped = partition(body)
    inside = {step for g in grouped for step in g.steps}
    alone = [n for n in post_order(body) if isinstance(n, Call) and n not in inside]
    listed = [*(tuple(g.steps) for g in grouped), *((n,) for n in alone)]
    kinds: dict[Form, None] = {}
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


def _always(form: Form, rank: int) -> Form:
    return form


def may_choose(node: Call) -> bool:
    """Whether it is a convolution that may have another layout."""
    return op_name(node) == "nn.conv2d" and not is_blocked(node.attrs.data_layout)


def _option(steps: Sequence[Call], layout: str, form_of: Callable[[int], Form]) -> Option | None:
    """`steps` with their convolution in `layout`, or what they read in `form_of` its rank; None
    where that is not possible."""
    forms: dict[Expr, Form] = {}
    made: dict[Expr, tuple[Expr, Form]] = {}
    as_it_is = not layout and form_of is plain

    def at(value: Expr, form: Form) -> Expr:
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
        picked: Followed | None
        if as_it_is:
            own = tuple(plain(len(v.shape)) for v in values)
            picked = Followed(own, plain(len(step.shape)), partial(_again, step))
        elif layout and may_choose(step):
            picked = convolution_in(step, layout)
        else:
            leads = [f for f in read if not f.is_plain] or [form_of(len(values[0].shape))]
            picked = follow(step, leads[0]) if values else None
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
