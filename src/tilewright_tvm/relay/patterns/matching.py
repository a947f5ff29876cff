"""Patterns of expressions and how they are matched.

In: a pattern, and the expression at its root.  Out: which nodes each part of the pattern stands
for, or nothing.  A part that is used twice in a pattern stands for one node.
Read next: `partition.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Branch
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    children,
    post_order,
)
from tilewright.graph.leaves import const
from tilewright.graph.op import Op, get
from tilewright.graph.op.row import Pattern
from tilewright_tvm.relay.equality import first_difference
from tilewright_tvm.relay.op_attributes import attribute

_OPAQUE = 8  # TVM's number of such operators; the others are those of `Pattern`
_SWAPS = frozenset(("add", "multiply"))  # operators whose operands may stand in either order


class DFPattern:
    """What an expression, or an operator, may look like.

    Patterns are combined by `|`, by arithmetic, and by calling them with those of arguments.
    """

    def parts(self) -> Sequence[DFPattern]:
        """The patterns that it is made of."""
        return ()

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        """Once for each way in which `node` matches; `found` holds the way until the next."""
        raise NotImplementedError

    def __call__(self, *args: Any) -> CallPattern:
        """A call of what this matches; `pattern(None)`: of any number of arguments."""
        return CallPattern(self, None if args == (None,) else [_pattern(a) for a in args])

    def __or__(self, other: DFPattern) -> AltPattern:
        return AltPattern(self, _pattern(other))

    def __add__(self, other: Any) -> CallPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: Any) -> CallPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: Any) -> CallPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: Any) -> CallPattern:
        return is_op("divide")(self, other)

    def has_attr(self, attrs: Mapping[str, Any]) -> AttrPattern:
        """It, where the operator, call or function has these attributes."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: Type) -> TypePattern:
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str) -> DataTypePattern:
        return DataTypePattern(self, dtype)

    def has_shape(self, shape: Sequence[int]) -> ShapePattern:
        return ShapePattern(self, shape)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> AltPattern:
        """It, or what `option_constructor` makes of it."""
        return AltPattern(self, option_constructor(self))

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """This, where all its values come from `parent` by way of nodes that match `path`."""
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    def match(self, expr: Any) -> bool:
        """Whether an expression, or an operator, looks so."""
        return matched(self, expr) is not None

    def rewrite(self, *args: Any, **kwargs: Any) -> Any:
        raise ModelError(
            "pattern.rewrite", "a pattern does not say what becomes of it",
            "Use dataflow_pattern.rewrite with a DFPatternCallback.",
        )  # fmt: skip

    def partition(
        self,
        expr: Expr,
        attrs: Mapping[str, Any] | None = None,
        check: Callable[[Expr], bool] = lambda expr: True,
    ) -> Expr:
        """`dataflow_pattern.partition` with this pattern."""
        from tilewright_tvm.relay.patterns.partition import partition

        return partition(self, expr, attrs, check)


class Match:
    """What the parts of a pattern stand for, so far.

    root: the expression that is matched
    several: of patterns along the paths of a `dominates`, all nodes they stood for
    instead: of names, the patterns of what they name (`let_pattern.py`)
    """

    def __init__(self, root: Any) -> None:
        self.root = root
        self.one: dict[DFPattern, Any] = {}
        self.several: dict[DFPattern, list[Any]] = {}
        self.instead: dict[DFPattern, DFPattern] = {}

    def run(self, pattern: DFPattern, node: Any) -> Iterator[None]:
        """`pattern.fits`, for a pattern that may stand for a node already."""
        pattern = self.instead.get(pattern, pattern)
        if pattern in self.one:
            if self.one[pattern] is node:
                yield
            return
        if isinstance(pattern, WildcardPattern) and pattern.redirected is not None:
            yield from self._deeper(pattern.redirected, node)
            return
        for _ in pattern.fits(node, self):
            if pattern in self.one and self.one[pattern] is not node:
                continue
            fresh = pattern not in self.one
            self.one[pattern] = node
            yield
            if fresh:
                del self.one[pattern]

    def _deeper(self, pattern: DFPattern, node: Any) -> Iterator[None]:
        """A pattern that is met again at each depth, where its parts stand for other nodes."""
        inner = matched(pattern, node)
        if inner is not None:
            before = self.several
            self.several = _merged(before, inner)
            yield
            self.several = before

    def all(self, patterns: Sequence[DFPattern], nodes: Sequence[Any]) -> Iterator[None]:
        """Each pattern its node."""
        if len(patterns) != len(nodes):
            return
        if not patterns:
            yield
            return
        for _ in self.run(patterns[0], nodes[0]):
            yield from self.all(patterns[1:], nodes[1:])

    def node_map(self) -> dict[DFPattern, list[Any]]:
        """The nodes that each part stands for, a list for each."""
        return _merged({p: [n] for p, n in self.one.items()}, self.several)


def _merged(
    first: Mapping[DFPattern, list[Any]], more: Mapping[DFPattern, list[Any]]
) -> dict[DFPattern, list[Any]]:
    found = dict(first)
    for p, nodes in more.items():
        found[p] = list(dict.fromkeys([*found.get(p, []), *nodes]))
    return found


def matched(pattern: DFPattern, node: Any) -> dict[DFPattern, list[Any]] | None:
    """What the parts of `pattern` stand for where `node` matches, else None."""
    found = Match(node)
    return next((found.node_map() for _ in found.run(pattern, node)), None)


class ExprPattern(DFPattern):
    """One expression: the variable itself, a constant of its value, an operator."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        same = node is self.expr
        if not same and isinstance(self.expr, Expr) and type(node) is type(self.expr):
            same = not first_difference(self.expr, node)
        if same:
            yield


class VarPattern(DFPattern):
    """A variable, of a name or of any."""

    def __init__(self, name_hint: str = "") -> None:
        self.name = name_hint

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if isinstance(node, Var) and self.name in ("", node.name_hint):
            yield


class ConstantPattern(DFPattern):
    """A constant."""

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if isinstance(node, Constant):
            yield


class WildcardPattern(DFPattern):
    """Anything, until it is told what by `redirect_to`."""

    redirected: DFPattern | None = None

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        yield

    def redirect_to(self, pat: DFPattern) -> None:
        """From now on it is `pat`, which may be made of it: a pattern of any depth."""
        self.redirected = pat


class CallPattern(DFPattern):
    """A call of what `op` matches; args: patterns, None for any number of arguments."""

    def __init__(self, op: DFPattern, args: Sequence[DFPattern] | None) -> None:
        self.op, self.args = _pattern(op), _patterns(args)

    def parts(self) -> Sequence[DFPattern]:
        return [self.op, *(self.args or ())]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if not isinstance(node, Call):
            return
        yield from self._as_it_is(node, found)
        yield from self._regrouped(node, found)

    def _as_it_is(self, node: Call, found: Match) -> Iterator[None]:
        for _ in found.run(self.op, node.op):
            if self.args is None:
                yield
                continue
            yield from found.all(self.args, node.args)
            if isinstance(node.op, Op) and node.op.name in _SWAPS:
                yield from found.all(self.args, node.args[::-1])

    def _regrouped(self, node: Call, found: Match) -> Iterator[None]:
        """a * b / c for a pattern of a * (b / c), and the other way."""
        name = _op_name(node)
        if name not in ("multiply", "divide") or self.args is None or len(self.args) != 2:
            return
        if name == "multiply" and _wanted(self.op) == "divide":
            for k in (0, 1):
                inner, other = node.args[k], node.args[1 - k]
                if _op_name(inner) == "divide":
                    above = _call("multiply", inner.args[0], other)  # type: ignore[attr-defined]
                    yield from found.all(self.args, [above, inner.args[1]])  # type: ignore[attr-defined]
        if name == "divide" and _wanted(self.op) == "multiply":
            inner, below = node.args
            if _op_name(inner) == "multiply":
                for k in (0, 1):
                    rest = _call("divide", inner.args[k], below)  # type: ignore[attr-defined]
                    pair = [rest, inner.args[1 - k]]  # type: ignore[attr-defined]
                    yield from found.all(self.args, pair)
                    yield from found.all(self.args, pair[::-1])


class FunctionPattern(DFPattern):
    """A function; params: patterns, None for any number of parameters."""

    def __init__(self, params: Sequence[DFPattern] | None, body: DFPattern) -> None:
        self.params, self.body = _patterns(params), _pattern(body)

    def parts(self) -> Sequence[DFPattern]:
        return [*(self.params or ()), self.body]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if not isinstance(node, Function):
            return
        if self.params is None:
            yield from found.run(self.body, node.body)
        else:
            yield from found.all([*self.params, self.body], [*node.params, node.body])


class TuplePattern(DFPattern):
    """A tuple; fields: patterns, None for any number of values."""

    def __init__(self, fields: Sequence[DFPattern] | None) -> None:
        self.fields = _patterns(fields)

    def parts(self) -> Sequence[DFPattern]:
        return self.fields or ()

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if isinstance(node, Tuple):
            if self.fields is None:
                yield
            else:
                yield from found.all(self.fields, node.fields)


class TupleGetItemPattern(DFPattern):
    """A value of a tuple; index: None for any."""

    def __init__(self, tuple_value: DFPattern, index: int | None = None) -> None:
        self.tuple, self.index = _pattern(tuple_value), index

    def parts(self) -> Sequence[DFPattern]:
        return [self.tuple]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if isinstance(node, TupleGetItem) and self.index in (None, node.index):
            yield from found.run(self.tuple, node.tuple_value)


class IfPattern(DFPattern):
    """`relay.If`."""

    def __init__(self, cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> None:
        self.cond, self.true_branch = _pattern(cond), _pattern(true_branch)
        self.false_branch = _pattern(false_branch)

    def parts(self) -> Sequence[DFPattern]:
        return [self.cond, self.true_branch, self.false_branch]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if isinstance(node, Branch):
            yield from found.all(self.parts(), node.parts)


class AltPattern(DFPattern):
    """One of two patterns."""

    def __init__(self, left: DFPattern, right: DFPattern) -> None:
        self.left, self.right = _pattern(left), _pattern(right)

    def parts(self) -> Sequence[DFPattern]:
        return [self.left, self.right]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        yield from found.run(self.left, node)
        yield from found.run(self.right, node)


class _Restricted(DFPattern):
    """A pattern, of what `holds`."""

    def __init__(self, pattern: DFPattern) -> None:
        self.pattern = _pattern(pattern)

    def parts(self) -> Sequence[DFPattern]:
        return [self.pattern]

    def holds(self, node: Any) -> bool:
        raise NotImplementedError

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if self.holds(node):
            yield from found.run(self.pattern, node)


class AttrPattern(_Restricted):
    """A pattern with attributes: of a call, a function, or an operator (those that
    `relay.op.register_op_attr` gave it, and "TOpPattern")."""

    def __init__(self, pattern: DFPattern, attrs: Mapping[str, Any]) -> None:
        super().__init__(pattern)
        if not isinstance(attrs, Mapping):
            raise ModelError(
                "pattern.has_attr", f"{attrs!r:.80} holds no attributes", "Give a dict of them."
            )
        self.attrs = dict(attrs)

    def holds(self, node: Any) -> bool:
        return all(_same(_attribute(node, k), v) for k, v in self.attrs.items())


class TypePattern(_Restricted):
    """A pattern of values of one type."""

    def __init__(self, pattern: DFPattern, ttype: Type) -> None:
        super().__init__(pattern)
        self.type = ttype

    def holds(self, node: Any) -> bool:
        return _type(node) == self.type


class DataTypePattern(_Restricted):
    """A pattern of tensors of one element type."""

    def __init__(self, pattern: DFPattern, dtype: str) -> None:
        super().__init__(pattern)
        self.dtype = str(dtype)

    def holds(self, node: Any) -> bool:
        kind = _type(node)
        return isinstance(kind, TensorType) and kind.dtype == self.dtype


class ShapePattern(_Restricted):
    """A pattern of tensors of one shape."""

    def __init__(self, pattern: DFPattern, shape: Sequence[int]) -> None:
        super().__init__(pattern)
        self.shape = _extents(shape)

    def holds(self, node: Any) -> bool:
        kind = _type(node)
        return isinstance(kind, TensorType) and list(kind.shape) == self.shape


class DominatorPattern(DFPattern):
    """`child`, all of whose values come from one node that matches `parent`, each by way of nodes
    that match `path`, at least one of them, and that nothing else reads."""

    def __init__(self, parent: DFPattern, path: DFPattern, child: DFPattern) -> None:
        self.parent, self.path, self.child = _pattern(parent), _pattern(path), _pattern(child)

    def parts(self) -> Sequence[DFPattern]:
        return [self.parent, self.path, self.child]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        if not isinstance(node, Expr):
            return
        for _ in found.run(self.child, node):
            walk = self._walk(node)
            if walk is None:
                continue
            top, between = walk
            for _ in found.run(self.parent, top):
                before = found.several
                for inner in between:
                    found.several = _merged(found.several, matched(self.path, inner) or {})
                yield
                found.several = before

    def _walk(self, node: Expr) -> tuple[Expr, list[Expr]] | None:
        """The parent and what is between it and `node`."""
        top: Expr | None = None
        between: dict[Expr, None] = {}
        stack = list(children(node))
        while stack:
            inner = stack.pop()
            if inner in between or inner is top:
                continue
            if self.path.match(inner) and not self.parent.match(inner):
                between[inner] = None
                stack.extend(children(inner))
            elif top is None and self.parent.match(inner):
                top = inner
            else:
                return None
        inside = {node, *between}
        if top is None or not between:
            return None
        for other in post_order(node):
            if other not in inside and any(c in between for c in children(other)):
                return None
        return top, list(between)


def is_op(op_name: str) -> ExprPattern:
    """An operator, by its name; called with patterns of its arguments, a call of it.

    Raises ModelError for a name that no operator has.
    """
    return ExprPattern(get(op_name))


def is_expr(expr: Expr) -> ExprPattern:
    """An expression that equals `expr` in structure."""
    return ExprPattern(expr)


def is_var(name: str = "") -> VarPattern:
    """A variable; name: of this name only."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """A constant."""
    return ConstantPattern()


def wildcard() -> WildcardPattern:
    """Anything."""
    return WildcardPattern()


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """A tuple of values that match `fields`; None: of any."""
    return TuplePattern(fields)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """The value `index` of a tuple; None: any."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """A `relay.If` of these."""
    return IfPattern(cond, true_branch, false_branch)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """`child` whose values come from one `parent`, through nodes that match `path`."""
    return DominatorPattern(parent, path, child)


def match(pattern: DFPattern, expr: Any) -> bool:
    """Whether an expression, or an operator, looks like `pattern`."""
    return pattern.match(expr)


def _pattern(value: Any) -> DFPattern:
    if value is None or isinstance(value, DFPattern):
        return wildcard() if value is None else value
    return ExprPattern(value if isinstance(value, Expr) else const(value))


def _patterns(values: Any) -> list[DFPattern] | None:
    if values is None:
        return None
    if not isinstance(values, (list, tuple)):
        raise ModelError(
            "relay.dataflow_pattern", f"{values!r:.80} is no list of patterns",
            "Give a list, or None for any number of them.",
        )  # fmt: skip
    return [_pattern(value) for value in values]


def _extents(shape: Any) -> list[Any]:
    if not isinstance(shape, (list, tuple)):
        raise ModelError(
            "pattern.has_shape", f"{shape!r:.80} is no shape", "Give a list of extents, as (1, 3)."
        )
    return list(shape)


def _op_name(node: Any) -> str:
    return node.op.name if isinstance(node, Call) and isinstance(node.op, Op) else ""


def _wanted(pattern: DFPattern) -> str:
    op = pattern.expr if isinstance(pattern, ExprPattern) else None
    return op.name if isinstance(op, Op) else ""


def _call(name: str, *args: Expr) -> Call:
    return Call(get(name), args, get(name).attrs)


def _type(node: Any) -> Type | None:
    return node.checked_type if isinstance(node, Expr) and not node.waits else None


def _attribute(node: Any, key: str) -> Any:
    if isinstance(node, Op):
        if key == "TOpPattern":
            return _OPAQUE if node.pattern is Pattern.OPAQUE else int(node.pattern)
        return attribute(node.name, key)
    attrs = getattr(node, "attrs", None)
    if attrs is None:
        return None
    return attrs.get(key, attrs.derived.get(key))


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(found, str) or isinstance(wanted, str):
        return found is not None and str(found) == str(wanted)
    return found is not None and bool(np.array_equal(found, wanted))
