"""Functional graphs as text, in TVM's form: blocks in braces, each value named in its block.

In: bodies of functions, and what writes operators and constants.  Out: lines.
Read next: `graph/printer.py`, `nodes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

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
    free_vars,
    post_order,
)
from tilewright_tvm.relay.functional.later import CallByName
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Call,
    Constructor,
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

Names = dict[Expr, str]
Write = Callable[[Any, Names], str]


class Blocks:
    """Text of one function, or of one expression.

    operator: writes a call of an operator; leaf: a constant; later: a node that waits
    names_of: of functions in the module
    is_key: it is equal for equal structure, whatever variables are called
    """

    def __init__(
        self, operator: Write, later: Write, leaf: Callable[[Expr], str],
        names_of: Callable[[Function], str | None], is_key: bool = False,
    ) -> None:  # fmt: skip
        self.is_key = is_key
        self.operator, self.later, self.leaf, self.names_of = operator, later, leaf, names_of
        self._numbers = count()
        self._taken: set[str] = set()

    def expression(self, body: Expr) -> list[str]:
        names: Names = {v: self._variable(v) for v in free_vars(body)}
        return self._block(body, names)

    def function(self, head: str, function: Function, outer: Names | None = None) -> str:
        """`head[types](parameters) -> type {lines}`."""
        names = dict(outer or {})
        params = []
        for p in function.params:
            names[p] = self._variable(p)
            kind = None if self.is_key else p.type_annotation
            params.append(names[p] if kind is None else f"{names[p]}: {kind}")
        shown = () if self.is_key else type_params(function)
        types = f"[{', '.join(map(str, shown))}]" if shown else ""
        told = None if self.is_key else told_ret_type(function)
        result = "" if told is None else f" -> {told}"
        lines = _indented(self._block(function.body, names))
        return f"{head}{types}({', '.join(params)}){result} {{\n{lines}\n}}"

    def _variable(self, var: Var) -> str:
        if self.is_key:
            self._taken.add(f"p{len(self._taken)}")
            return f"%p{len(self._taken)}"
        name, k = var.name_hint or "v", 0
        while name in self._taken:
            k += 1
            name = f"{var.name_hint or 'v'}_{k}"
        self._taken.add(name)
        return f"%{name}"

    def _block(self, body: Expr, names: Names) -> list[str]:
        """The lines of a block, the result last; names: of what is known in it."""
        names = dict(names)
        lines: list[str] = []
        while isinstance(body, LetNode):
            value = self._value(body.value, names, lines)
            names[body.var] = self._variable(body.var)
            lines.append(f"let {names[body.var]} = {value};")
            body = body.body
        lines.append(self._value(body, names, lines))
        return "\n".join(lines).split("\n")

    def _value(self, root: Expr, names: Names, lines: list[str]) -> str:
        """The text of a value; what it is made of is named in front of it."""
        for node in post_order(root, lambda n: () if n in names else _first(n)):
            if node in names:
                continue
            text = self._text(node, names)
            if node is root:
                return text
            short = isinstance(node, (Var, Constant, Constructor, NamedFunction, TupleGetItem))
            short = short or (isinstance(node, Function) and text.startswith("@"))
            if not short:
                name = f"%{next(self._numbers)}"
                lines.append(f"{name} = {text};")
                text = name
            names[node] = text
        return names[root]

    def _text(self, node: Expr, names: Names) -> str:
        if isinstance(node, Branch):
            yes, no = (_indented(self._block(p, names)) for p in node.parts[1:])
            return f"if ({names[node.parts[0]]}) {{\n{yes}\n}} else {{\n{no}\n}}"
        if isinstance(node, LetNode):
            return "(\n" + _indented(self._block(node, names)) + "\n)"
        if isinstance(node, Match):
            return self._match(node, names)
        if isinstance(node, Function):
            known = self.names_of(node)
            return self.function("fn ", node, names) if known is None else f"@{known}"
        if isinstance(node, CallByName):
            return _called(f"@{node.name}", [names[p] for p in node.parts])
        if isinstance(node, Apply):
            if isinstance(node.op, GlobalVar):
                return _called(f"@{node.op}", [names[a] for a in node.args])
            text = names[children(node)[0]]
            is_data = isinstance(node.op, Constructor) and not node.args
            return text if is_data else _called(text, [names[a] for a in node.args])
        if isinstance(node, Call) and isinstance(node.op, Function):
            known = self.names_of(node.op)
            text = f"@{known}" if known else f"({self.function('fn ', node.op, names)})"
            return _called(text, [names[a] for a in node.args])
        if isinstance(node, Deferred):
            return self.later(node, names)
        if isinstance(node, Call):
            return self.operator(node, names)
        return self._simple(node, names)

    def _simple(self, node: Expr, names: Names) -> str:
        if isinstance(node, Constructor):
            return node.name_hint
        if isinstance(node, NamedFunction):
            return f"@{node.name}"
        if isinstance(node, Tuple):
            held = [names[f] for f in node.fields]
            return f"({', '.join(held)}{',' if len(held) == 1 else ''})"
        if isinstance(node, TupleGetItem):
            return f"{names[node.tuple_value]}.{node.index}"
        for kind, word in _WORDS.items():
            if isinstance(node, kind):
                return _called(word, [names[p] for p in node.parts])
        return f"%{node.name_hint}" if isinstance(node, Var) else self.leaf(node)

    def _match(self, node: Match, names: Names) -> str:
        word = "match" if node.complete else "match?"
        cases = []
        for clause in node.clauses:
            inside = dict(names)
            pattern = self._pattern(clause.lhs, inside)
            lines = _indented(self._block(clause.rhs, inside))
            cases.append(f"{pattern} => {{\n{lines}\n}},")
        body = _indented("\n".join(cases).split("\n"))
        return f"{word} ({names[node.data]}) {{\n{body}\n}}"

    def _pattern(self, pattern: Pattern, names: Names) -> str:
        if isinstance(pattern, PatternVar):
            names[pattern.var] = self._variable(pattern.var)
            return names[pattern.var]
        parts = [self._pattern(p, names) for p in pattern.patterns]
        if isinstance(pattern, PatternConstructor):
            name = pattern.constructor.name_hint
            return _called(name, parts) if parts else name
        return f"({', '.join(parts)})" if isinstance(pattern, PatternTuple) else "_"


_WORDS: dict[type[Expr], str] = {
    RefCreate: "ref", RefRead: "ref_read", RefWrite: "ref_write",
}  # fmt: skip


def _first(node: Expr) -> Sequence[Expr]:
    """What is written in front of a node; the rest is in blocks of its own."""
    if isinstance(node, (Branch, Match)):
        return node.parts[:1]
    if isinstance(node, LetNode):
        return ()
    return children(node)


def _called(name: str, args: Sequence[str]) -> str:
    return f"{name}({', '.join(args)})"


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
