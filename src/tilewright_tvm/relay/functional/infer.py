"""Types of functional networks, by unification: of functions, data types, references.

In: expressions.  Out: their types; functions whose variables have types.  What operators give is
asked of themselves, as soon as the types of what they read are known.  A function has as many types
as its type variables say; without any it has one.
Read next: `unify.py`, `nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Branch, Deferred, NotYet
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
from tilewright.graph.types import (
    AnyType,
    FuncType,
    TensorType,
    TupleType,
    holds_other,
    scalar_type,
)
from tilewright_tvm.relay.functional.data_types import RefType, TypeCall
from tilewright_tvm.relay.functional.later import CallByName
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Call,
    Constructor,
    Functional,
    LetNode,
    Match,
    NamedFunction,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    told_ret_type,
    type_params,
)
from tilewright_tvm.relay.functional.unify import (
    Unknown,
    checked,
    found,
    instance,
    resolved,
    unknowns,
)
from tilewright_tvm.relay.functional.unmatched import pattern_text, unmatched

EMPTY = TupleType(())


def inferred_type(node: Expr) -> AnyType | None:
    """The type of a node of a functional network; None where it does not follow.

    Raises ModelError where its parts do not fit together.
    """
    known = getattr(node, "inferred", None)
    if known is not None:
        return known
    inference = Inference()
    try:
        kind = inference.of(node)
        inference.finish()
    except NotYet:
        return None
    kind = resolved(kind)
    if unknowns(kind):
        return None
    if isinstance(node, (Functional, Apply)) and not inference.touched_names:
        node.inferred = kind
    return kind


def constructor_type(constructor: Constructor) -> FuncType:
    """What a constructor takes and gives."""
    data = constructor.belong_to.data
    if data is None:
        raise ModelError(
            constructor.name_hint, f"{constructor.belong_to} is not defined",
            f"relay.TypeData({constructor.belong_to}, type_vars, constructors) defines it.",
        )  # fmt: skip
    made = TypeCall(constructor.belong_to, data.type_vars)
    return FuncType(constructor.inputs, made, data.type_vars)


class Inference:
    """One of it.

    types: of nodes, with unknown parts; touched_names: functions that a module may yet replace
    """

    def __init__(self) -> None:
        self.types: dict[Expr, AnyType] = {}
        self.touched_names = False
        self._functions: dict[Function, AnyType] = {}
        self._open: list[Expr] = []  # operators, and values of tuples, that wait for types

    def of(self, root: Expr) -> AnyType:
        """The type of `root`, as far as it is known."""
        if isinstance(root, Function):
            return self.function(root)
        for node in post_order(root, self._read):
            if node not in self.types:
                self.types[node] = self._visit(node)
        return self.types[root]

    def function(self, function: Function) -> AnyType:
        """Of a function: with the type variables that it binds."""
        if function in self._functions:
            return self._functions[function]
        params = [self._variable(p) for p in function.params]
        told = told_ret_type(function)
        result: AnyType = Unknown() if told is None else told
        made = FuncType(params, result, type_params(function))
        self._functions[function] = self.types[function] = made
        checked(result, self.of(function.body), _named("the result", function))
        return made

    def finish(self) -> None:
        """Ask the operators that waited, as long as that tells something."""
        while self._open:
            left = [node for node in self._open if not self._settled(node)]
            if len(left) == len(self._open):
                return
            self._open = left

    # -- nodes
    def _read(self, node: Expr) -> Sequence[Expr]:
        return () if node in self.types or _is_plain(node) else children(node)

    def _variable(self, var: Var) -> AnyType:
        if var not in self.types:
            self.types[var] = Unknown() if var.type_annotation is None else var.type_annotation
        return self.types[var]

    def _visit(self, node: Expr) -> AnyType:
        if isinstance(node, Var):
            return self._variable(node)
        if _is_plain(node):
            return node.checked_type
        if isinstance(node, Function):
            return self.function(node)
        if isinstance(node, CallByName):
            return self._call(self._by_name(node.name), node.parts, f"@{node.name}")
        if isinstance(node, Apply):
            place = f"@{node.op}" if isinstance(node.op, GlobalVar) else _word(node.op)
            return self._call(self._callee(node), node.args, place)
        if isinstance(node, Call) and isinstance(node.op, Function):
            return self._call(self.function(node.op), node.args, "relay.Call")
        rule = _RULES.get(type(node))
        if rule is not None:
            return rule(self, node)
        self._open.append(node)
        return Unknown()

    def _callee(self, node: Apply) -> AnyType:
        if isinstance(node.op, GlobalVar):
            return self._by_name(node.op)
        assert node.callee is not None
        return self.types[node.callee]

    def _by_name(self, name: GlobalVar) -> AnyType:
        function = name.function
        self.touched_names = True
        if function is None:
            return Unknown()
        annotated = told_ret_type(function) is not None and all(p.is_typed for p in function.params)
        if annotated and function not in self._functions:
            params = [p.checked_type for p in function.params]
            return FuncType(params, told_ret_type(function), type_params(function))
        return self.function(function)

    def _call(self, callee: AnyType, args: Sequence[Expr], place: str) -> AnyType:
        callee = found(callee)
        given = [self.types[a] for a in args]
        if isinstance(callee, Unknown):
            result = Unknown()
            checked(callee, FuncType(given, result), place)
            return result
        if not isinstance(callee, FuncType):
            raise ModelError(place, f"a value of type {callee} is called", "Call a function.")
        if len(callee.arg_types) != len(args):
            raise ModelError(
                place, f"{len(args)} arguments for {len(callee.arg_types)} parameters",
                f"It is {callee}.",
            )  # fmt: skip
        wanted = instance(callee) if callee.type_params else callee
        for k, (asked, have) in enumerate(zip(wanted.arg_types, given, strict=True)):
            if not _fits_open(asked, have):
                checked(asked, have, f"argument {k} of {place}")
        return wanted.ret_type

    def branch(self, node: Any) -> AnyType:
        condition, one, other = (self.types[p] for p in node.parts)
        if isinstance(found(condition), Unknown):
            checked(scalar_type("bool"), condition, "the condition of relay.If")
        checked(one, other, "the other branch of relay.If")
        return one

    def let(self, node: Any) -> AnyType:
        checked(self._variable(node.var), self.types[node.value], f"%{node.var.name_hint}")
        return self.types[node.body]

    def match(self, node: Any) -> AnyType:
        result: AnyType = Unknown()
        if node.complete and (left := unmatched(node)):
            shown = ", ".join(map(pattern_text, left))
            raise ModelError(
                "relay.Match", f"no clause looks like {shown}",
                "Add one for it, or give complete=False.",
            )  # fmt: skip
        for clause in node.clauses:
            self._pattern(clause.lhs, self.types[node.data])
            checked(result, self.types[clause.rhs], "a clause of relay.Match")
        return result

    def _pattern(self, pattern: Pattern, kind: AnyType) -> None:
        if isinstance(pattern, PatternVar):
            checked(kind, self._variable(pattern.var), f"%{pattern.var.name_hint}")
        elif isinstance(pattern, PatternConstructor):
            made = instance(constructor_type(pattern.constructor))
            checked(made.ret_type, kind, f"the value at {pattern.constructor.name_hint}")
            for part, field in zip(pattern.patterns, made.arg_types, strict=True):
                self._pattern(part, field)
        elif isinstance(pattern, PatternTuple):
            fields = tuple(Unknown() for _ in pattern.patterns)
            checked(TupleType(fields), kind, "the value at a tuple")
            for part, field in zip(pattern.patterns, fields, strict=True):
                self._pattern(part, field)

    def tuple(self, node: Any) -> AnyType:
        return TupleType(tuple(self.types[f] for f in node.fields))

    def read(self, node: Any) -> AnyType:
        value = Unknown()
        checked(RefType(value), self.types[node.ref], "what relay.RefRead reads")
        return value

    def write(self, node: Any) -> AnyType:
        checked(RefType(self.types[node.value]), self.types[node.ref], "what relay.RefWrite writes")
        return EMPTY

    # -- what waits for types
    def _settled(self, node: Expr) -> bool:
        """Whether the type of `node` is known now."""
        if isinstance(node, TupleGetItem):
            held = found(self.types[node.tuple_value])
            if isinstance(held, Unknown):
                return False
            if not isinstance(held, TupleType) or not -len(held.fields) <= node.index < len(
                held.fields
            ):
                raise ModelError(
                    f"[{node.index}]", f"a value of type {held} has no such value", "Count from 0."
                )
            checked(self.types[node], held.fields[node.index], f"[{node.index}]")
            return True
        kinds = [resolved(self.types[c]) for c in children(node)]
        if any(map(unknowns, kinds)):
            return False
        parts = [_stand_in(c, k) for c, k in zip(children(node), kinds, strict=True)]
        made = _again(node, parts)
        if made is None or made.waits:
            return False
        checked(made.checked_type, self.types[node], type(node).__name__)
        return True


def _again(node: Expr, parts: Sequence[Expr]) -> Expr | None:
    """An operator of values that have types; None where it needs numbers."""
    if isinstance(node, Call):
        return node.with_parts(parts)
    if isinstance(node, Deferred) and all(isinstance(parts[k], Constant) for k in node.needs):
        return node.make(parts)
    return None


def _stand_in(node: Expr, kind: AnyType) -> Expr:
    if isinstance(node, Constant):
        return node
    if isinstance(kind, TupleType):
        return Tuple([_stand_in(Var("part"), k) for k in kind.fields])
    if holds_other(kind):
        raise ModelError(
            _word(node), f"a value of type {kind} where a tensor is needed",
            "Take a tensor out of it, with relay.Match or relay.RefRead.",
        )  # fmt: skip
    return Var("value", kind)


def _fits_open(asked: AnyType, have: AnyType) -> bool:
    """Whether a tensor is one of those that a type with open extents stands for."""
    asked, have = found(asked), found(have)
    if not isinstance(asked, TensorType) or not isinstance(have, TensorType):
        return False
    open_axes = asked.open_extents
    return (
        bool(open_axes) and asked.dtype == have.dtype and len(asked.shape) == len(have.shape)
        and all(
            k in open_axes or n == m
            for k, (n, m) in enumerate(zip(asked.shape, have.shape, strict=True))
        )
    )  # fmt: skip


def _is_plain(node: Expr) -> bool:
    """Whether it has a type, and nothing in it need be looked at."""
    return not node.waits and not isinstance(node, Function)


def _named(what: str, function: Function) -> str:
    return f"{what} of Function({', '.join(p.name_hint for p in function.params)})"


def _word(node: Any) -> str:
    name = getattr(node, "name_hint", None)
    return f"%{name}" if isinstance(node, Var) else name or type(node).__name__


_RULES: dict[type[Expr], Callable[[Inference, Any], AnyType]] = {
    Branch: Inference.branch,
    Constructor: lambda inference, node: constructor_type(node),
    LetNode: Inference.let,
    Match: Inference.match,
    NamedFunction: lambda inference, node: inference._by_name(node.name),
    RefCreate: lambda inference, node: RefType(inference.types[node.value]),
    RefRead: Inference.read,
    RefWrite: Inference.write,
    Tuple: Inference.tuple,
}
