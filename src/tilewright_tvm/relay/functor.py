"""`ExprVisitor` and `ExprMutator`: walks of a user's own, one method for each kind of node.

In: expressions.  Out: whatever the methods do; of a mutator, an expression.  Each node is visited
once.  Read next: `graph/traversal.py`, whose functions need no class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.base.errors import ModelError
from tilewright.graph import expr as nodes
from tilewright.graph.deferred import Branch, Deferred
from tilewright.graph.expr import (
    Constant,
    Expr,
    Function,
    GlobalVar,
    Tuple,
    TupleGetItem,
    Var,
    children,
    post_order,
)
from tilewright.graph.traversal import with_children
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Call,
    Constructor,
    LetNode,
    Match,
    NamedFunction,
    RefCreate,
    RefRead,
    RefWrite,
    make_call,
    make_function,
)

_METHODS: dict[type[Expr], str] = {
    Var: "visit_var", Constant: "visit_constant", Tuple: "visit_tuple",
    nodes.Call: "visit_call", Apply: "visit_call", TupleGetItem: "visit_tuple_getitem",
    nodes.Function: "visit_function",
    Branch: "visit_if", Deferred: "visit_later", LetNode: "visit_let", Match: "visit_match",
    RefCreate: "visit_ref_create", RefRead: "visit_ref_read", RefWrite: "visit_ref_write",
    Constructor: "visit_constructor", NamedFunction: "visit_named_function",
}  # fmt: skip
_FRAMES = 8  # of Python for one node of a path, with a method of the user's among them
_changing = lock()


class MissingMethod(ModelError, NotImplementedError):
    """A kind of node that a walk has no method for."""


class ExprFunctor:
    """`visit(expr)` calls the method of the node's kind once, and knows its result from then on."""

    def __init__(self) -> None:
        self.memo_map: dict[Expr, Any] = {}

    def visit(self, expr: Expr) -> Any:
        if isinstance(expr, GlobalVar):
            return self._method("visit_global_var")(expr)
        if not isinstance(expr, Expr):
            raise ModelError(
                f"{type(self).__name__}.visit({expr!r})", "it is no value of relay",
                "Visit an expression, or mod[name].",
            )  # fmt: skip
        if expr not in self.memo_map:
            method = self._method(_name_of(type(expr)))
            if self.memo_map:
                self.memo_map[expr] = method(expr)
            else:
                with _room_for(expr):
                    self.memo_map[expr] = method(expr)
        return self.memo_map[expr]

    def _method(self, name: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] | None = getattr(self, name, None)
        if found is None:
            raise MissingMethod(
                f"{type(self).__name__}.visit", f"it has no {name}",
                "Define it, or subclass ExprVisitor or ExprMutator, which have all.",
            )  # fmt: skip
        return found

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        """Of the name of a function in a module."""
        raise MissingMethod(
            f"{type(self).__name__}.visit", "it has no visit_global_var", "Define it."
        )

    def visit_op(self, op: Any) -> Any:
        """Of the operator of a call; it is no expression, so nothing calls this by itself."""
        return op


def _name_of(kind: type[Expr]) -> str:
    """The method for a kind of node, or for the kind that it is one of."""
    return next(_METHODS[k] for k in kind.__mro__ if k in _METHODS)


class ExprVisitor(ExprFunctor):
    """Visits everything; override the methods of the kinds that matter, and call theirs."""

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        return None

    def visit_var(self, var: Var) -> Any:
        return None

    def visit_constant(self, const: Constant) -> Any:
        return None

    def visit_call(self, call: Call) -> Any:
        if isinstance(call.op, Function):
            self.visit(call.op)
        self._visit_parts(call)

    def visit_tuple(self, tup: Tuple) -> Any:
        for field in tup.fields:
            self.visit(field)

    def visit_tuple_getitem(self, t: TupleGetItem) -> Any:
        self.visit(t.tuple_value)

    def visit_function(self, fn: Function) -> Any:
        for param in fn.params:
            self.visit(param)
        self.visit(fn.body)

    def visit_later(self, later: Deferred) -> Any:
        """Of a value whose shape, or whose steps, elements of others decide."""
        self._visit_parts(later)

    def _visit_parts(self, node: Expr) -> Any:
        for part in children(node):
            self.visit(part)

    visit_if = visit_let = visit_match = visit_constructor = visit_named_function = _visit_parts
    visit_ref_create = visit_ref_read = visit_ref_write = _visit_parts


class ExprMutator(ExprFunctor):
    """Rebuilds everything that reads what changed; override the methods of what should change."""

    def visit_global_var(self, gvar: GlobalVar) -> Any:
        return gvar

    def visit_var(self, var: Var) -> Any:
        return var

    def visit_constant(self, const: Constant) -> Any:
        return const

    def visit_call(self, call: Call) -> Any:
        if isinstance(call, Apply):
            return self._rebuilt(call)
        op = self.visit(call.op) if isinstance(call.op, Function) else call.op
        args = [self.visit(arg) for arg in call.args]
        if op is call.op and all(a is b for a, b in zip(args, call.args, strict=True)):
            return call
        return make_call(op, args, call.attrs)

    def visit_tuple(self, tup: Tuple) -> Any:
        fields = [self.visit(field) for field in tup.fields]
        unchanged = all(a is b for a, b in zip(fields, tup.fields, strict=True))
        return tup if unchanged else Tuple(fields)

    def visit_tuple_getitem(self, t: TupleGetItem) -> Any:
        value = self.visit(t.tuple_value)
        return t if value is t.tuple_value else TupleGetItem(value, t.index)

    def visit_function(self, fn: Function) -> Any:
        params = [self.visit(param) for param in fn.params]
        body = self.visit(fn.body)
        if body is fn.body and all(a is b for a, b in zip(params, fn.params, strict=True)):
            return fn
        return make_function(params, body, attrs=fn.attrs)

    def visit_later(self, later: Deferred) -> Any:
        """Of a value whose shape, or whose steps, elements of others decide."""
        return self._rebuilt(later)

    def _rebuilt(self, node: Expr) -> Any:
        return with_children(node, tuple(self.visit(part) for part in children(node)))

    visit_if = visit_let = visit_match = visit_constructor = visit_named_function = _rebuilt
    visit_ref_create = visit_ref_read = visit_ref_write = _rebuilt


@contextmanager
def _room_for(expr: Expr) -> Iterator[None]:
    """Python's limit of frames, raised for as long as the longest path of `expr` needs it."""
    body = expr.body if isinstance(expr, Function) else expr
    depth: dict[Expr, int] = {}
    for node in post_order(body):
        inside = node.op.body if isinstance(node, Call) and isinstance(node.op, Function) else None
        own = len(post_order(inside)) if inside is not None else 1
        depth[node] = own + max((depth[c] for c in children(node)), default=0)
    needed = _FRAMES * depth[body]
    with _changing:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + needed)
    try:
        yield
    finally:
        with _changing:
            sys.setrecursionlimit(max(sys.getrecursionlimit() - needed, before))
