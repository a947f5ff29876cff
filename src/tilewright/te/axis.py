"""Axes: what loops run over, and the ranges of reductions.

In: names and extents.  Out: `IterVar`s.  Read next: `tensor.py`.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ExpressionError, InternalError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr, Value
from tilewright.ir.stmt import TAGS
from tilewright.ir.symbols import is_extent, one_of


class Whole(int):
    """An int as users get extents: `.value` is what TVM's scripts ask of theirs."""

    __slots__ = ()

    @property
    def value(self) -> int:
        return int(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


def shown(extent: Any) -> Any:
    """An extent as users get it."""
    return Whole(extent) if type(extent) is int else extent


@dataclass(frozen=True)
class Range:
    """`[min, min + extent)`; the spelling TVM users know from `axis.dom.extent`."""

    min: int
    extent: int


class IterVar:
    """A loop axis.  kind: "spatial", "reduce" or "thread".

    Root axes of an operation know their `extent`; axes made by a schedule have extent None until
    bounds are inferred.  Axes compare by identity.

    when: which values of a reduction axis count, where its range depends on other axes
    """

    door_words = ("an axis", "te.reduce_axis and s[tensor].op.axis have them.")

    __slots__ = ("begin", "extent", "kind", "thread_tag", "var", "when")

    # how a loop runs, by TVM's numbers: `s[C].iter_var_attrs[axis].iter_type`
    DataPar, ThreadIndex, CommReduce = 0, 1, 2
    Unrolled, Vectorized, Parallelized = 5, 6, 7

    def __init__(
        self,
        name: str,
        extent: int | None,
        kind: str = "spatial",
        *,
        begin: int = 0,
        thread_tag: str = "",
    ) -> None:
        self.when: Expr | None = None
        self.var = E.var(name)
        self.extent, self.kind, self.begin, self.thread_tag = extent, kind, begin, thread_tag

    @property
    def name(self) -> str:
        return str(self.var.attr)

    @property
    def size(self) -> int:
        """The extent of a root axis, also where it is an expression that calls give a value; for
        other axes see `Bounds.extent`."""
        if self.extent is None:
            raise InternalError(f"{self.name}.size", "an axis of a schedule, known by bounds only")
        return self.extent

    @property
    def dom(self) -> Range | None:
        if self.extent is None:
            return None
        return Range(shown(self.begin), shown(self.extent))

    def as_expr(self) -> Expr:
        return self.var + self.begin

    def at(self, numbers: Mapping[Expr, int]) -> IterVar:
        """Give the same with numbers in the place of symbols."""
        extent, begin = one_of(numbers, self.extent), one_of(numbers, self.begin)
        if extent < 1:
            raise ExpressionError("ComputeDAG.at", f"the axis {self.name} has {extent} values")
        return IterVar(self.name, extent, self.kind, begin=begin)

    def __repr__(self) -> str:
        size = "?" if self.extent is None else self.extent
        return f"{self.name}:{size}" + (f" ({self.thread_tag})" if self.thread_tag else "")

    # arithmetic on an axis is arithmetic on its expression
    def __add__(self, other: Value) -> Expr:
        return self.as_expr() + E.convert(other)

    def __radd__(self, other: Value) -> Expr:
        return E.convert(other) + self.as_expr()

    def __sub__(self, other: Value) -> Expr:
        return self.as_expr() - E.convert(other)

    def __rsub__(self, other: Value) -> Expr:
        return E.convert(other) - self.as_expr()

    def __mul__(self, other: Value) -> Expr:
        return self.as_expr() * E.convert(other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Value) -> Expr:
        return self.as_expr() // E.convert(other)

    def __mod__(self, other: Value) -> Expr:
        return self.as_expr() % E.convert(other)

    def __neg__(self) -> Expr:
        return -self.as_expr()

    def __lt__(self, other: Value) -> Expr:
        return self.as_expr() < E.convert(other)

    def __le__(self, other: Value) -> Expr:
        return self.as_expr() <= E.convert(other)

    def __gt__(self, other: Value) -> Expr:
        return self.as_expr() > E.convert(other)

    def __ge__(self, other: Value) -> Expr:
        return self.as_expr() >= E.convert(other)

    def equal(self, other: Value) -> Expr:
        return self.as_expr().equal(E.convert(other))

    def astype(self, dtype: str) -> Expr:
        return E.cast(dtype, self.as_expr())


class AxisCopy(IterVar):
    """A copy of an axis for one stage, equal to the axis that was declared and to nothing else.

    Schedules need it where one axis is reduced by two computations, and where two axes of one
    computation have one name: loops of a schedule are distinct objects with distinct names.
    """

    __slots__ = ("declared",)

    def __init__(self, axis: IterVar, name: str) -> None:
        super().__init__(name, axis.extent, axis.kind, begin=axis.begin)
        self.declared: IterVar = axis.declared if isinstance(axis, AxisCopy) else axis

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.declared

    def __hash__(self) -> int:
        return hash(self.declared)


def shape_of(shape: Any, place: str) -> tuple[int, ...]:
    """Extents as they are given: one or several ints, or expressions of variables."""
    several = isinstance(shape, Iterable) and not isinstance(shape, (str, Expr))
    dims = tuple(_extent(dim, place, "dimension") for dim in (shape if several else (shape,)))
    for size in dims:
        if not isinstance(size, Expr) and size < 0:
            raise ExpressionError(
                place, f"a dimension of extent {size}", "Extents must be at least 0."
            )
    return dims


def _extent(value: Any, place: str, what: str) -> int:
    """An int, or an expression of variables that calls give, whatever the annotation says: only
    bounds, lowering and text meet these (`te/symbolic.py` refuses them elsewhere)."""
    if isinstance(value, Expr) and value.op != "const" and is_extent(value):
        return value  # type: ignore[return-value]
    if isinstance(value, IterVar) or (isinstance(value, Expr) and value.op != "const"):
        raise ExpressionError(
            place, f"the {what} {value} is no number and no expression of te.var",
            'Give ints, or integer arithmetic of variables: te.var("n") // 2.',
        )  # fmt: skip
    plain = value.attr if isinstance(value, Expr) else value
    try:
        return (
            int(plain) if isinstance(plain, float) and plain.is_integer() else operator.index(plain)
        )
    except TypeError:
        raise ExpressionError(
            place, f"the {what} {value!r} is no integer", "Give every extent as int."
        ) from None


def reduce_axis(dom: Any, name: str = "rv") -> IterVar:
    """Declare a reduction axis over `dom`, a (begin, end) pair or an extent.

    Either may depend on axes: `te.reduce_axis((0, i + 1))` adds up to the diagonal.  The loop then
    has as many iterations as there can be, of which those in the range count; none may be left.
    """
    place = f"reduce_axis({name!r})"
    varying = _varying(dom)
    if varying is not None:
        return _masked(varying, name)
    begin, end = _range(dom, place)
    extent = end - begin
    if not isinstance(extent, Expr) and extent < 0:
        raise ExpressionError(
            place, f"the range [{begin}, {end}) ends before it begins", "Give (begin, end)."
        )
    return counted(IterVar(name, extent, "reduce", begin=begin))


_RANGES: weakref.WeakKeyDictionary[Expr, tuple[int, int]] = weakref.WeakKeyDictionary()


def counted(axis: IterVar) -> IterVar:
    """`axis`, on whose values ranges of further axes may depend from now on."""
    if isinstance(axis.extent, int):
        _RANGES[axis.var] = (0, axis.extent - 1)
    return axis


def _varying(dom: Any) -> tuple[Expr, Expr] | None:
    """The begin and end of a range that depends on axes; None of any other."""
    ends = tuple(dom) if isinstance(dom, (tuple, list)) else (0, dom)
    parts = [E.convert(v) for v in ends if isinstance(v, (int, IterVar, Expr))]
    found = set().union(*map(E.free_variables, parts)) if len(parts) == 2 else set()
    known = found and all(v in _RANGES for v in found) and all(p.dtype.is_index for p in parts)
    return (parts[0], parts[1]) if known else None


def _masked(ends: tuple[Expr, Expr], name: str) -> IterVar:
    """An axis over all values that ranges from `ends[0]` to `ends[1]` can have."""
    found = E.free_variables(*ends)
    simple = Simplifier({v: _RANGES[v] for v in found})
    least, most = int(simple.interval(ends[0])[0]), int(simple.interval(ends[1])[1])
    axis = counted(IterVar(name, max(most - least, 1), "reduce", begin=least))
    axis.when = E.all_of(ends[0] <= axis.as_expr(), axis.as_expr() < ends[1])
    return axis


def _range(dom: Any, place: str) -> tuple[int, int]:
    if not isinstance(dom, (tuple, list)):
        return 0, _extent(dom, place, "extent")
    if len(dom) != 2:
        raise ExpressionError(place, f"{dom} is no range", "Give (begin, end), or an extent.")
    return _extent(dom[0], place, "begin"), _extent(dom[1], place, "end")


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> IterVar:
    """Name a thread or block axis: `thread_axis("blockIdx.x")`, `thread_axis((0, 8), tag)`."""
    if isinstance(dom, str):
        dom, tag = None, dom
    if tag not in TAGS:
        raise ExpressionError(
            f"thread_axis({tag!r})", "unknown tag", f"Use one of {', '.join(TAGS)}."
        )
    begin, end = (0, None) if dom is None else _range(dom, f"thread_axis({tag!r})")
    extent = None if end is None else end - begin
    return IterVar(name or tag, extent, "thread", thread_tag=tag)
