"""The step as_product: a sum of products as one of matrices.

In: a stage that sums products of two reads, groups of its axes.  Out: a stage with one axis for
each group, which the stage itself then only reads, and factors gathered to match.
Read next: `products.py` (pad, which makes its extents whole), `layouts.py` (constants).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import last, ranges, symbols_of
from tilewright.schedule.steps.layouts import moving
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import (
    Axes,
    Product,
    read_instead,
    refuse_large,
    refuse_scheduled,
    root_axes,
    sum_of_products,
)
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.dag import fresh_name
from tilewright.te.tensor import ComputeOp, IterVar, Tensor


@dataclass(frozen=True)
class AsProduct(Step):
    """A sum of products becomes one over matrices: each group of axes is fused to one.

    m, n: spatial axes along which one factor varies, but not the other; k: reduction axes.  The sum
    moves to a new stage, of the type of partial results, whose axes are those that are in no group
    (of a convolution: its batch, where that is not fused), m and n, and in the same way for the
    reduction; the stage reads of it what it had before.  A factor is read through a stage that
    gathers it, with axes in that order, unless its indices are axes already.  Where windows of it
    are read, in dimensions that no group has fused, these stay windows, and only the others are
    gathered; of windows that are several elements apart along n, what is so far apart becomes a
    dimension, and what lies between another.  Of an axis in a group of which the other factor
    varies with the quotient by a number (a grouped convolution), the quotient stays an axis before
    m and n.

    rewrite:  s.as_product(C, m=[f], n=[x], k=[c, r])
        W: float32[3, 2, 3] constant
        C: float32[3, 4] global, 12 elements, 48 bytes
          for f in 3:
            for x in 4:
              for c in 2:
                for r in 3:
                  C[f, x] += A[c, x + r]*W[f, c, r]
        ->
        A.matrix: float32[6, 4] global, 24 elements, 96 bytes
          for k in 6:
            for x.p in 4:
              A.matrix[k, x.p] = A[k//3, x.p + k%3]
        W: float32[3, 2, 3] constant
        W.matrix: float32[3, 6] global, 18 elements, 72 bytes, packed before the program runs
          for f.p in 3:
            for k in 6:
              W.matrix[f.p, k] = W[f.p, k//3, k%3]
        C.product: float32[1, 3, 4] global, 12 elements, 48 bytes
          for f.outer in 1:
            for f.p in 3:
              for x.p in 4:
                for k in 6:
                  C.product[0, f.p, x.p] += A.matrix[k, x.p]*W.matrix[f.p, k]
        C: float32[3, 4] global, 12 elements, 48 bytes
          for f in 3:
            for x in 4:
              C[f, x] = C.product[0, f, x]
    legal:    a sum of products of two reads, without scheduled loops; one factor does not vary
              along m, the other not along n.
    """

    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]
    verb: ClassVar[str] = "as_product"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        listed = ", ".join(f"{g}=[{', '.join(getattr(self, g))}]" for g in "mnk")
        place = f"as_product({stage.name}, {listed})"
        if not (self.m and self.n and self.k):
            raise ScheduleError(place, "a group is empty", "Each needs an axis.")
        refuse_scheduled(self, s, stage, place)
        product = sum_of_products(self, stage, place)
        op = product.op
        spatial = root_axes(product, self.m + self.n, op.axis, place, "spatial axis")
        m, n = spatial[: len(self.m)], spatial[len(self.m) :]
        k = root_axes(product, self.k, op.reduce_axis, place, "reduction axis")
        quotients = _quotients(product, m, n, place)
        fused = _Fused.of(product, quotients, m, n, k, s.dag.extent_symbols)
        refuse_large((ax.size for ax in (*fused.spatial[-2:], fused.reduce[-1])), place)
        simple = Simplifier(ranges(s.dag.extent_symbols) | fused.known | _known(op.axis))
        new: dict[Expr, Any] = dict(fused.values)
        for read in dict.fromkeys(product.reads):
            new[read] = _gathered(s, read, fused, simple)
        body = product.sums(fused.spatial, fused.reduce, new)[1]
        made = ComputeOp(s.new_name(f"{stage.name}.product"), fused.spatial, body)
        return read_instead(s, stage, made, [simple(i) for i in fused.places])

    def python(self, names: PythonNames) -> str:
        groups = (f"{g}=[{names.axes(self.stage, getattr(self, g))}]" for g in "mnk")
        return f"s.as_product({names.tensor(self.stage)}, {', '.join(groups)})"


def _quotients(product: Product, m: Axes, n: Axes, place: str) -> dict[IterVar, int]:
    """The divisor of each axis of which one factor only knows the quotient; 0 for all others.

    Raises ScheduleError where both factors vary along an axis otherwise.
    """
    reads = product.reads
    for left, right in (reads, reads[::-1]):
        found = {ax: _divisor(ax, right) for ax in m} | {ax: _divisor(ax, left) for ax in n}
        if None not in found.values():
            along = [_variables(f) & {ax.var for ax in g} for f, g in ((left, m), (right, n))]
            if all(along):
                return {ax: d for ax, d in found.items() if d is not None}
    varying = " and ".join(f"{r.attr.name}[{', '.join(map(str, r.args))}]" for r in reads)
    raise ScheduleError(
        place, f"the factors are {varying}",
        "Name axes of one of them in m, of the other in n; leave out what both vary along.",
    )  # fmt: skip


def _variables(read: Expr) -> set[Expr]:
    return E.free_variables(*read.args)


def _divisor(axis: IterVar, read: Expr) -> int | None:
    """By which number the indices divide an axis, where they have it in no other way: 0 where they
    do not have it at all, None where no number is."""
    if axis.var not in _variables(read):
        return 0
    above = {n for n in E.walk(*read.args) if any(a is axis.var for a in n.args)}
    if any(i is axis.var for i in read.args) or len(above) != 1:
        return None
    (node,) = above
    if node.op != "floordiv" or node.args[1].op != "const":
        return None
    by = int(node.args[1].attr)
    return by if by > 0 and axis.size % by == 0 else None


@dataclass(frozen=True)
class _Part:
    """What a fused axis has of an old one: all of it, or of an axis that is divided `by` a number
    the quotient or the remainder."""

    axis: IterVar
    size: int
    by: int = 0
    quotient: bool = False

    @property
    def place(self) -> Expr:
        if not self.by:
            return self.axis.var
        return self.axis.var // self.by if self.quotient else self.axis.var % self.by


@dataclass(frozen=True)
class _Fused:
    """Axes of the matrix product.

    parts:  of each new axis, from the outermost to the innermost
    values: variables of old axes -> what they are
    """

    spatial: tuple[IterVar, ...]
    reduce: tuple[IterVar, ...]
    parts: dict[IterVar, tuple[_Part, ...]]
    values: dict[Expr, Expr]

    @staticmethod
    def of(
        product: Product, quotients: Mapping[IterVar, int], m: Axes, n: Axes, k: Axes,
        symbols: Iterable[Expr],
    ) -> _Fused:  # fmt: skip
        taken = {str(symbol.attr) for symbol in symbols}
        parts: dict[IterVar, tuple[_Part, ...]] = {}

        def axis(name: str, of: Sequence[_Part], kind: str = "spatial") -> IterVar:
            made = IterVar(fresh_name(name, taken), prod(p.size for p in of), kind)
            taken.add(made.name)
            parts[made] = tuple(of)
            return made

        def group(name: str, axes: Axes, kind: str = "spatial") -> IterVar:
            name = f"{axes[0].name}.p" if len(axes) == 1 else name
            by = [quotients.get(ax, 0) for ax in axes]
            own = [_Part(ax, d or ax.size, d) for ax, d in zip(axes, by, strict=True)]
            return axis(name, own, kind)

        batch = []
        for ax in product.op.axis:
            if d := quotients.get(ax, 0):
                batch.append(axis(f"{ax.name}.outer", [_Part(ax, ax.size // d, d, True)]))
            elif ax not in (*m, *n):
                batch.append(axis(f"{ax.name}.p", [_Part(ax, ax.size)]))
        spatial = (*batch, group("m", m), group("n", n))
        rest = [
            axis(ax.name, [_Part(ax, ax.size)], "reduce")
            for ax in product.op.reduce_axis if ax not in k
        ]  # fmt: skip
        reduce = (*rest, group("k", k, "reduce"))
        values: dict[Expr, Expr] = {}
        for new in (*spatial, *reduce):
            for part, step in _steps(parts[new]):
                value: Expr = new.var // step
                value = value if part is parts[new][0] else value % part.size
                value = value * part.by if part.quotient else value
                values[part.axis.var] = values.get(part.axis.var, E.const(0)) + value
        fused = _Fused(spatial, reduce, parts, values)
        simple = Simplifier(fused.known)
        return _Fused(spatial, reduce, parts, {v: simple(e) for v, e in values.items()})

    @property
    def known(self) -> dict[Expr, tuple[int, int]]:
        return _known((*self.spatial, *self.reduce))

    @property
    def places(self) -> list[Expr]:
        """The spatial axes as expressions of the old ones."""
        return [
            sum((part.place * step for part, step in _steps(self.parts[ax])), E.const(0))
            for ax in self.spatial
        ]


def _known(axes: Axes) -> dict[Expr, tuple[int, int]]:
    return {ax.var: (0, last(ax.size)) for ax in axes}


def _steps(parts: Sequence[_Part]) -> list[tuple[_Part, int]]:
    """Each part with how many elements of the fused axis are between two of its values."""
    return [(part, prod(p.size for p in parts[at + 1 :])) for at, part in enumerate(parts)]


def _gathered(s: AnyState, read: Expr, fused: _Fused, simple: Simplifier) -> Expr:
    """What stands in the place of a factor."""
    tensor: Tensor = read.attr
    index = [simple(E.substitute(i, fused.values)) for i in read.args]
    axes = [i for i in index if i.op != "const"]
    if all(i.op == "var" for i in axes) and len(set(axes)) == len(axes):
        return tensor[tuple(index)]
    dims = _around_windows(tensor, index, fused, simple)
    packing = None
    if dims is None:
        used = E.free_variables(*index)
        *batch, m, n = fused.spatial
        *rest, k = fused.reduce
        columns = (m, k) if m.var in used else (k, n)
        axes_of = [ax for ax in (*batch, *rest, *columns) if ax.var in used]
        packing = _transposition(read, fused, axes_of)
        dims = [_Dim(ax.name, ax.size, ax.var) for ax in axes_of]
    elif [dim.of for dim in dims] == [(d, 1, 0) for d in range(tensor.ndim)]:
        return tensor[tuple(index)]
    own = copy_axes(tuple(dim.size for dim in dims), [dim.name for dim in dims])
    new = {dim.place: ax.var for dim, ax in zip(dims, own, strict=True) if dim.of is None}
    at = [E.substitute(i, new) for i in index]
    windows = {dim.of[0] for dim in dims if dim.of is not None}
    for d in windows:
        parts = ((dim, ax) for dim, ax in zip(dims, own, strict=True) if dim.of and dim.of[0] == d)
        at[d] = sum((ax.var * dim.of[1] for dim, ax in parts if dim.of), E.const(0))
    known = Simplifier(ranges(s.dag.extent_symbols) | _known(own))
    beyond = [known(at[d] < size) for d, size in enumerate(tensor.shape) if d in windows]
    inside = E.all_of(*beyond)
    value = tensor[tuple(at)]
    if inside.op != "const":
        value = E.if_then_else(inside, value, E.const(0, tensor.dtype))
    source = s[tensor]
    tag, attrs = moving(s, tensor, packing)
    op = ComputeOp(s.new_name(f"{source.name}.matrix"), own, value, tag, attrs)
    s.insert_stage(op, after=source)
    return op.output_tensor[tuple(dim.place for dim in dims)]


@dataclass(frozen=True)
class _Dim:
    """A dimension of a gathered factor.

    place: where it is read
    of:    the dimension of the factor that it is, or is a part of, and the elements of that from
           one of its own to the next, with a number for each part; None: it is an axis
    """

    name: str
    size: int
    place: Expr
    of: tuple[int, int, int] | None = None


def _around_windows(
    tensor: Tensor, index: Sequence[Expr], fused: _Fused, simple: Simplifier
) -> list[_Dim] | None:
    """The dimensions of a factor of which windows are read, where these leave the others alone.

    Windows stay what they are: of those whose steps along n are longer than one element, what is
    that far apart becomes a dimension.  Axes take the place of other dimensions.  None where there
    are no windows, or none that can stay: then what is in a window is gathered as often as it is
    read.
    """
    if symbols_of(tensor.shape):
        return None
    every = {ax.var: ax for ax in (*fused.spatial, *fused.reduce)}
    above = {v for i in index for v in E.free_variables(i) if not _is_sum(i)}
    above |= {ax.var for ax, own in fused.parts.items() if any(p.quotient for p in own)}
    joined: list[tuple[set[int], set[Expr]]] = []  # dimensions that share such axes, all their axes
    for d, i in enumerate(index):
        found = E.free_variables(i)
        if not found & above:
            continue
        near = [pair for pair in joined if pair[1] & found]
        joined = [pair for pair in joined if not pair[1] & found]
        numbers, axes = {d}.union(*(p[0] for p in near)), found.union(*(p[1] for p in near))
        joined.append((numbers, axes))
    others = {d for numbers, _ in joined for d in numbers}
    windows = [i for d, i in enumerate(index) if d not in others]
    if not any(len(E.free_variables(i)) > 1 for i in windows):
        return None
    dims: list[_Dim] = []
    for d, i in enumerate(index):
        if d not in others:
            dims += _window(d, tensor.shape[d], i, fused, simple)
        for numbers, axes in joined:
            if d != min(numbers):
                continue
            if prod(every[v].size for v in axes) > prod(tensor.shape[k] for k in numbers):
                return None
            if E.free_variables(*windows) & axes:
                return None
            dims += [_Dim(ax.name, ax.size, v) for v, ax in every.items() if v in axes]
    return dims


def _window(d: int, size: int, index: Expr, fused: _Fused, simple: Simplifier) -> list[_Dim]:
    """Dimension `d` as it is, or what is one step along n apart, and what lies between."""
    n = fused.spatial[-1]
    step = simple.linear(index).terms.get(n.var, 1)
    if step == 1:
        return [_Dim(f"ax{d}", size, index, (d, 1, 0))]
    return [
        _Dim(f"ax{d}", -(-size // step), simple(index // step), (d, step, 0)),
        _Dim(f"ax{d}.rest", step, simple(index % step), (d, 1, 1)),
    ]


def _is_sum(index: Expr) -> bool:
    """Whether an index is a sum of multiples of axes."""
    return all(n.op in ("var", "const", "add", "sub", "mul") for n in E.walk(index))


def _transposition(read: Expr, fused: _Fused, dims: Axes) -> Packing | None:
    """What makes the gathered factor of the tensor, where it has the same elements."""
    shape = read.attr.shape
    if symbols_of(shape):
        return None
    dim_of = {index: d for d, index in enumerate(read.args)}
    parts = {ax: fused.parts[ax] for ax in dims}
    listed = [part for own in parts.values() for part in own]
    if any(dim_of.get(part.axis.var) is None for part in listed):
        return None
    n, blocks = len(shape), [1] * len(shape)
    for part in listed:
        d = dim_of[part.axis.var]
        if shape[d] != part.axis.size:
            return None
        blocks[d] = max(blocks[d], part.by)
    order = [dim_of[p.axis.var] + (n if p.by and not p.quotient else 0) for p in listed]
    sizes = {d: extent // b for d, (extent, b) in enumerate(zip(shape, blocks, strict=True))}
    sizes |= {n + d: b for d, b in enumerate(blocks) if b > 1}
    order = [*(k for k, size in sizes.items() if size == 1 and k not in order), *order]
    if sorted(order) != sorted(sizes):  # some elements are not there, or several times
        return None
    return Packing(shape, tuple(blocks), tuple(order), (), tuple(ax.size for ax in dims))
