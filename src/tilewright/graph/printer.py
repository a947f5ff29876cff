"""Graphs as text, as TVM prints them: one line per call with its attributes and type; fused groups
are printed once.

In: expressions, functions, modules.  Out: text that `relay.parse` reads; keys, in which equal
structure gives equal lines.
Read next: `expr.py`, `tilewright_tvm/relay/parser.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.base.printed import text_of
from tilewright.graph.counts import counted
from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.extents import is_open, is_unnamed, known_part

_LETTERS = {"int": "i", "uint": "u", "float": "f", "bfloat": "bf"}
WIDTH = 120  # a longer list of parameters is printed one a line
_PLAIN = re.compile(r"[A-Za-z_](\w|/(?=\w))*(\.\w(\w|/(?=\w))*)*", re.ASCII)


@text_of.register(IRModule)
def module_text(mod: IRModule) -> str:
    """All functions of a module; each distinct fused group once, in front of its first user."""
    return Printer().module(mod)


@text_of.register(Expr)
def expression_text(expr: Expr) -> str:
    """One expression: a function with its body, or the calls that make a value."""
    return Printer().expression(expr)


def structural_key(function: Function) -> str:
    """Text that is equal for functions of equal structure, whatever their names."""
    names = [f"p{k}" for k in range(len(function.params))]
    return Printer(is_key=True).function("fn ", function, names)


class Printer:
    """One text.

    is_key: it shows types for constants, but for numbers, and no attributes of functions
    """

    def __init__(self, is_key: bool = False) -> None:
        self.is_key = is_key
        self.names_of: dict[Function, str] = {}  # functions of the module
        self.groups: dict[tuple[Any, ...], str] = {}
        self.constants: list[Constant] = []
        self.numbers: dict[Constant, int] = {}

    def module(self, mod: IRModule) -> str:
        self.names_of = {f: str(name) for name, f in mod.functions.items()}
        parts: list[str] = []
        for name, function in mod.functions.items():
            parts += self._groups(function.body)
            parts.append(self.function(f"def @{_quoted(name, _WORD)}", function))
        return "\n\n".join(parts)

    def expression(self, expr: Expr) -> str:
        if isinstance(expr, Function) and "name" in expr.attrs:
            parts = self._groups(expr.body)
            name = str(expr.attrs["name"])
            return "\n\n".join([*parts, self.function(f"def @{_quoted(name, _WORD)}", expr)])
        parts = self._groups(expr.body if isinstance(expr, Function) else expr)
        if isinstance(expr, Function):
            return "\n\n".join([*parts, self.function("fn ", expr)])
        lines = "\n".join(self._lines(expr, _distinct(free_vars(expr))))
        return "\n\n".join([*parts, lines])

    def declarations(self, expr: Expr) -> str:
        """Variables that are no parameters."""
        if isinstance(expr, Function):
            return ""
        names = _distinct(free_vars(expr))
        return "".join(f"free_var {_parameter(n, v)};\n" for v, n in names.items())

    # -- functions
    def _groups(self, body: Expr) -> list[str]:
        """Functions that `body` calls and that have names, each once."""
        parts: list[str] = []
        for node in post_order(body):
            called = node.op if isinstance(node, Call) else None
            if not isinstance(called, Function) or called in self.names_of:
                continue
            if "name" not in called.attrs:
                parts += self._groups(called.body)
                continue
            key = _group_key(called)
            if key in self.groups:
                continue
            parts += self._groups(called.body)
            base = str(called.attrs["name"])
            used = {*self.groups.values(), *self.names_of.values()}
            name, k = base, 0
            while name in used:
                k += 1
                name = f"{base}_{k}"
            self.groups[key] = name
            parts.append(self.function(f"fused @{_quoted(name, _WORD)}", called, name=name))
        return parts

    def function(
        self, head: str, function: Function, names: Sequence[str] | None = None, name: str = ""
    ) -> str:
        """`head(parameters, attributes) -> type {lines}`; name: what `head` calls it."""
        if (writer := extension().writer(self, function)) is not None:
            return writer.function(head, function)
        if names is None:
            shown = _distinct(function.params)
        else:
            shown = {p: f"%{n}" for p, n in zip(function.params, names, strict=True)}
        listed = [_parameter(shown[p], p) for p in function.params]
        if not self.is_key:
            listed += [
                f"{_quoted(k, _WORD)}={_attr(v)}"
                for k, v in function.attrs.items()
                if k != "name" or v != name
            ]
        params = ", ".join(listed)
        if len(params) > WIDTH:
            params = ",".join(f"\n    {text}" for text in listed) + "\n"
        lines = "\n".join(f"  {line}" for line in self._lines(function.body, shown))
        return f"{head}({params}){_result(function)} {{\n{lines}\n}}"

    # -- values
    def _lines(self, body: Expr, shown: Mapping[Var, str]) -> list[str]:
        """A line for each call, and for each tuple that is read several times."""
        if (writer := extension().writer(self, body)) is not None:
            return writer.expression(body)
        is_opened = any(v.open_extents for v in shown)
        order = post_order(body)
        uses = Counter(c for node in order for c in children(node))
        names: dict[Expr, str] = dict(shown.items())
        functions: dict[Function, str] = {}
        lines: list[str] = []
        count = 0

        def line(text: str, node: Expr) -> None:
            nonlocal count
            if node is body:
                lines.extend(f"{text}{self.note(node, is_opened)}".split("\n"))
                return
            names[node] = f"%{count}"
            count += 1
            lines.extend(f"{names[node]} = {text}{self.note(node, is_opened)};".split("\n"))

        for node in order:
            if isinstance(node, Call):
                if isinstance(node.op, Function) and self.called(node.op) is None:
                    if node.op not in functions:
                        functions[node.op] = f"%{count}"
                        text = self.function("fn ", node.op)
                        lines.extend(f"%{count} = {text};".split("\n"))
                        count += 1
                    args = ", ".join(names[a] for a in node.args)
                    line(f"{functions[node.op]}({args})", node)
                else:
                    line(self.call(node, names), node)
            elif isinstance(node, Tuple):
                held = [names[f] for f in node.fields]
                text = f"({', '.join(held)}{',' if len(held) == 1 else ''})"
                simple = all(_is_short(t) for t in held) and uses[node] <= 1
                if node is body or not simple:
                    line(text, node) if node is not body else lines.append(text)
                else:
                    names[node] = text
            elif isinstance(node, TupleGetItem):
                text = f"{names[node.tuple_value]}.{node.index}"
                if node is body:
                    lines.append(text)
                elif uses[node] > 1 and not _is_short(text):
                    line(text, node)
                else:
                    names[node] = text
            elif isinstance(node, Deferred):
                line(self.deferred(node, names), node)
            elif node not in names:
                names[node] = self.leaf(node)
        if not isinstance(body, (Call, Tuple, TupleGetItem, Deferred)):
            lines.append(names[body])
        if isinstance(body, Constant) and not self.is_key and not shown:
            return [lines[0].partition(" /*")[0]]  # which says its type
        return lines

    def note(self, node: Expr, is_opened: bool) -> str:
        """What stands behind the line of a node: its type as a comment, where it is known yet."""
        if node.waits:
            return " /* what values decide */" if isinstance(node, Deferred) else ""
        return f" /* ty={_type(node.checked_type, is_opened)} */"

    def deferred(self, node: Deferred, names: Mapping[Expr, str]) -> str:
        return node.text(names, _attr)

    def called(self, function: Function) -> str | None:
        """The name of a function in this text; None where it stands where it is called."""
        if self.is_key:
            return str(function.attrs.get("name", "fn"))
        if function in self.names_of:
            return self.names_of[function]
        return self.groups.get(_group_key(function)) if "name" in function.attrs else None

    def call(self, node: Call, names: Mapping[Expr, str]) -> str:
        args = [names[a] for a in node.args]
        if isinstance(node.op, Function):
            return f"@{_quoted(str(self.called(node.op)), _WORD)}({', '.join(args)})"
        usual = node.usual
        args += [f"{k}={_attr(v)}" for k, v in node.attrs.items() if not _same(v, usual, k)]
        args += [f"{k}={_attr(v)}" for k, v in node.attrs.derived.items()]
        return f"{node.op.name}({', '.join(args)})"

    def leaf(self, node: Expr) -> str:
        if isinstance(node, Function):
            return self.function("fn ", node).replace("\n", " ")
        if not isinstance(node, Constant):
            return f"%{node.name_hint}" if isinstance(node, Var) else type(node).__name__
        value = f"{node.data.reshape(-1)[0]!s}" if node.tensor_type.size == 1 else ""
        if self.is_key:
            if value:
                return f"{value}{list(node.data.shape) or ''}"
            return f"const({node._type}{counted(node) or ''})"
        if not node.shape and (text := scalar_text(node.data)):
            return f"{text} /* ty={node.checked_type} */"
        if node not in self.numbers:
            self.numbers[node] = len(self.constants)
            self.constants.append(node)
        shown = f"{node.checked_type}{f', {value}' if value else ''}"
        return f"meta[relay.Constant][{self.numbers[node]}] /* ty={shown} */"


_WORD = re.compile(r"[A-Za-z_](\w|/(?=\w))*(\.[A-Za-z_](\w|/(?=\w))*)*", re.ASCII)


def _same(value: Any, usual: Mapping[str, Any], key: str) -> bool:
    return key in usual and type(value) is type(usual[key]) and bool(value == usual[key])


def _group_key(function: Function) -> tuple[Any, ...]:
    """Equal for groups of one structure and the same arrays."""
    constants = (n for n in post_order(function.body) if isinstance(n, Constant))
    held = [n for n in constants if n.tensor_type.size > 1]
    return structural_key(function), *map(id, held)


def _distinct(variables: Sequence[Var]) -> dict[Var, str]:
    """What variables are called in a text: no two the same, in quotes where they are no words."""
    taken: set[str] = set()
    names: dict[Var, str] = {}
    for v in variables:
        name, k = v.name_hint, 0
        while name in taken:
            k += 1
            name = f"{v.name_hint}_{k}"
        taken.add(name)
        names[v] = name
    parts = {".".join(p[:k]) for n in taken for p in [n.split(".")] for k in range(1, len(p))}
    return {
        v: f"%{json.dumps(n, ensure_ascii=False) if n in parts else _quoted(n, _PLAIN)}"
        for v, n in names.items()
    }


def _quoted(name: str, plain: re.Pattern[str]) -> str:
    return name if plain.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _parameter(shown: str, v: Var) -> str:
    if v.type_annotation is None:
        return shown
    return f"{shown}: {_type(v.type_annotation, False, v.open_extents)}"


def _type(t: Type, is_opened: bool, named: Mapping[int, str] | None = None) -> str:
    """A type; extents that are open, or depend on those, are not numbers."""
    if isinstance(t, TensorType) and (named or (is_opened and is_open(t.shape))):
        extents = [
            ("?" if is_unnamed(named[k], k) else named[k]) if named and k in named
            else "?" if is_opened and known_part(n) != n else str(n)
            for k, n in enumerate(t.shape)
        ]  # fmt: skip
        return f"Tensor[({', '.join(extents)}), {t.dtype}]"
    if isinstance(t, TupleType) and is_opened:
        return f"({', '.join(_type(f, True) for f in t.fields)})"
    return str(t)


def _result(function: Function) -> str:
    body = function.body
    if body.waits:
        return ""
    return f" -> {_type(body.checked_type, any(p.open_extents for p in function.params))}"


def _is_short(text: str) -> bool:
    """A name, or what is picked of one: it can be repeated."""
    return text[0] in "%@" or "(" not in text


def deferred_key(node: Deferred) -> str:
    """Equal for nodes that make the same of their parts; "" where a frontend's converter makes it,
    of which nothing is known."""
    text = node.text({p: f"%{k}" for k, p in enumerate(node.parts)}, _attr)
    return text if ":" not in text.partition("(")[0] else ""


def _attr(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_attr, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return f"{value!r}f".replace(".0f", "f")
    return repr(value)


def scalar_text(data: Array) -> str:
    """One element without a shape; empty where text has no such number."""
    try:
        dtype = str(DType(data.dtype))
    except ExpressionError:
        return ""
    if dtype == "bool":
        return str(bool(data))
    found = re.fullmatch(r"(int|uint|float|bfloat)(\d+)", dtype)
    if found is None:
        return ""
    kind, bits = found[1], "" if found[2] == "32" else found[2]
    if kind in ("int", "uint"):
        return f"{int(data)}{_LETTERS[kind] + bits if dtype != 'int32' else ''}"
    return f"{float_digits(data[()])}{_LETTERS[kind]}{bits}"


def float_digits(value: Any) -> str:
    """The shortest digits that give the number again."""
    return str(value).removesuffix(".0")
