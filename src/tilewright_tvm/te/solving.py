"""Which iterations read an element: indices of a read solved for the axes they are made of.

In: indices over axes, and the element.  Out: some axes as expressions of the element and of the
axes that are left, and conditions under which that is an iteration.  Used by `gradient.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.affine import Linear, Simplifier
from tilewright.ir.expr import Expr, free_variables
from tilewright.te.axis import IterVar


@dataclass(frozen=True)
class Solution:
    """values: variable of an axis -> what it must be; conditions: where there is such an iteration;
    left: axes that may have any value"""

    values: Mapping[Expr, Expr]
    conditions: Sequence[Expr]
    left: Sequence[IterVar]

    def value(self, variable: Expr) -> Expr:
        return self.values.get(variable, variable)


def solve(indices: Sequence[Expr], sizes: Mapping[Expr, Any], axes: Sequence[IterVar]) -> Solution:
    """All iterations of `axes` in which `indices` are the variables of `sizes`, in their order.

    sizes: of the dimensions that the variables count
    """
    wanted = tuple(sizes)
    extents = {ax.var: ax.size for ax in axes}
    ranges = {v: (0, n - 1) for v, n in (extents | dict(sizes)).items() if isinstance(n, int)}
    simple = Simplifier(ranges)
    values: dict[Expr, Expr] = {v: E.const(0) for v, n in extents.items() if n == 1}
    conditions: list[Expr] = []
    open_ = dict(zip(wanted, indices, strict=True))

    def settle(found: Mapping[Expr, Expr]) -> None:
        for v, e in found.items():
            conditions.extend((e >= 0, e < extents[v]))
        for known in (values, open_):
            for key, e in known.items():
                known[key] = simple(E.substitute(e, found))
        conditions[:] = [E.substitute(c, found) for c in conditions]
        values.update(found)

    settle({})
    open_ = {x: E.substitute(e, values) for x, e in open_.items()}
    settle(_by_digits(open_, simple, extents))
    for x in wanted:
        index = simple(open_.pop(x))
        choice = _unknown(index, simple, extents, values)
        if choice is None:
            conditions.append(index.equal(x))
            continue
        v, step = choice
        rest = x - simple(E.substitute(index, {v: E.const(0)}))
        if step < 0:
            rest, step = -rest, -step
        if step > 1:
            conditions.append((rest % step).equal(0))
            rest = rest // step
        settle({v: simple(rest)})
    left = [ax for ax in axes if ax.var not in values]
    needed = dict.fromkeys(map(simple, conditions))
    return Solution(values, [c for c in needed if c.op != "const" or not c.attr], left)


def _unknown(
    index: Expr, simple: Simplifier, extents: Mapping[Expr, Any], values: Mapping[Expr, Expr]
) -> tuple[Expr, int] | None:
    """The axis of most values that `index` is linear in, and its coefficient."""
    if not index.dtype.is_index:
        return None
    form = simple.linear(index).terms
    inside = free_variables(*(atom for atom in form if atom.op != "var"))
    fit = [v for v in form if v in extents and v not in values and v not in inside]

    def size(v: Expr) -> float:
        return extents[v] if isinstance(extents[v], int) else inf

    return max(((v, form[v]) for v in fit), key=lambda pair: size(pair[0]), default=None)


def _by_digits(
    indices: Mapping[Expr, Expr], simple: Simplifier, extents: Mapping[Expr, Any]
) -> dict[Expr, Expr]:
    """Axes of which all digits, `v // step % base`, are digits of the element: of a reshape."""
    found: dict[Expr, dict[int, tuple[int, Expr]]] = {}  # axis -> step -> how many values, which
    for x, index in indices.items():
        for (v, step, count), unit, last in _places(simple.linear(simple(index)), extents):
            value = x // unit if last else x // unit % count
            found.setdefault(v, {})[step] = count, value
    whole = {}
    for v, digits in found.items():
        steps = sorted(digits)
        ends = [step * digits[step][0] for step in steps]
        if len(steps) > 1 and steps == [1, *ends[:-1]] and ends[-1] >= extents[v]:
            whole[v] = simple(sum((digits[s][1] * s for s in steps), E.const(0)))
    return whole


def _places(
    form: Linear, extents: Mapping[Expr, Any]
) -> list[tuple[tuple[Expr, int, int], int, bool]]:
    """The digits that an index is written with, each with its place value, and whether it is the
    highest; none where it is no such number."""
    ordered = sorted(form.terms.items(), key=lambda pair: pair[1])
    places, unit = [], 1
    for atom, coefficient in ordered:
        digit = _digit(atom, extents)
        if coefficient != unit or digit is None:
            return []
        places.append((digit, unit, atom is ordered[-1][0]))
        unit *= digit[2]
    return places if not form.constant else []


def _digit(e: Expr, extents: Mapping[Expr, Any]) -> tuple[Expr, int, int] | None:
    """(v, step, count) of `v // step % count`, however it is written."""
    step, base = 1, None
    if e.op == "floormod" and e.args[1].op == "const":
        base, e = int(e.args[1].attr), e.args[0]
    if e.op == "floordiv" and e.args[1].op == "const":
        step, e = int(e.args[1].attr), e.args[0]
        if base is None and e.op == "floormod" and e.args[1].op == "const":
            if int(e.args[1].attr) % step:
                return None
            base, e = int(e.args[1].attr) // step, e.args[0]
    if not isinstance(extents.get(e), int) or step < 1:
        return None
    most = -(-extents[e] // step)
    return e, step, most if base is None else min(base, most)
