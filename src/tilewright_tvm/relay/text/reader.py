"""Relay's text as a graph: one function for each rule of its grammar.

In: tokens.  Out: a module, or an expression.  A definition is read behind those that it calls, so
their order does not matter; a value that has a name is a node: `let` and `%0 =` leave no trace.
Read next: `operators.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Expr,
    Function,
    GlobalVar,
    IRModule,
    TensorType,
    Tuple,
    TupleType,
    Var,
    free_vars,
)
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, TypeData
from tilewright_tvm.relay.functional.nodes import (
    GeneralFunction,
    as_value,
    make_call,
    make_function,
    must_be_named,
)
from tilewright_tvm.relay.functional.scope import If, Let
from tilewright_tvm.relay.text.constants import read_metadata, referred
from tilewright_tvm.relay.text.functional import REFERENCES, FunctionalReader
from tilewright_tvm.relay.text.lexer import Source, Token
from tilewright_tvm.relay.text.numbers import is_number_word, python_number, scalar
from tilewright_tvm.relay.text.operators import apply, projected

_MOST_PIECES = 100  # of a name with dots
DEEPEST = 60  # brackets in brackets: each is some ten frames of Python
_NOT_HERE = {
    "extern": "Define it: type name[A] {Constructor(A), ...}.",
    **dict.fromkeys(
        ("from_onnx", "from_pytorch", "loops.while_loop"),
        "A node whose shapes values decide may have no text; make it again as you first did.",
    ),
}
_INFIX = (
    {"==": "equal", "!=": "not_equal"},
    {"<": "less", ">": "greater", "<=": "less_equal", ">=": "greater_equal"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "divide"},
)
_DEFINITIONS = ("def", "fused")


class Reader(FunctionalReader):
    """Reads one text.

    functions, data: of a module that the text may call and name
    metadata: constants by kind, for a text that has none behind it
    """

    def __init__(
        self,
        source: Source,
        functions: Mapping[str, Function],
        metadata: Mapping[str, Sequence[Any]],
        data: Mapping[GlobalTypeVar, TypeData] | None = None,
    ) -> None:
        super().__init__(source, data or {})
        with self.told(len(source.text) - len(source.metadata)):
            self.tables = (read_metadata(source.metadata), metadata)
        self.known: dict[str, Function] = dict(functions)
        self._names_of: dict[Function, str] = {}
        self.names: dict[str, GlobalVar] = {}  # of definitions that are called before they are read
        self.spans: dict[str, range] = {}  # of definitions, without their heads
        self.heads: dict[str, str] = {}
        self.scope: dict[str, Expr] = {}
        self.depth = 0

    # -- modules
    def module(self) -> IRModule:
        """All definitions; of an expression alone, a module whose main it is."""
        given = list(self.known)
        made = self._text()
        if made is None:
            return definitions.IRModule(self._shown(given), self.data)
        if not isinstance(made, Expr):
            raise self.wanted("def @main(...) {...}", self.tokens[0])
        return definitions.IRModule({**self._shown(given), "main": _main(made)}, self.data)

    def _shown(self, given: Sequence[str]) -> dict[str, Function]:
        """What the module has: functions it was given, then definitions as they are written."""
        names = [*given, *(n for n, head in self.heads.items() if head != "fused")]
        return {n: self.known[n] for n in names}

    def expression_text(self) -> Any:
        """One expression; of definitions, the last one."""
        made = self._text()
        if made is None and not self.heads:
            raise self.wanted("a value")
        return self.known[next(reversed(self.heads))] if made is None else made

    def _text(self) -> Any:
        """The value behind definitions and free variables; None where nothing is behind them."""
        while True:
            if self._at_definition():
                self._read_definitions()
            elif self.next.text == "type" and self.next.kind == "word":
                self.step()
                self.type_definition()
            elif self.accept("free_var"):
                name, kind = self._parameter()
                self.scope[name] = Var(name, kind)
                self.accept(";")
            else:
                break
        if self.next.kind == "end" and not self.scope:
            return None
        if "def" in self.heads.values():
            self._refuse_absent()
            raise self.wanted("def @name(...) {...}, or the end of the text")
        made = self._sequence(("end",))
        if not isinstance(made, (Expr, GlobalVar)):
            return made.value()
        self.expect("end", "the end of the text")
        return made

    def _at_definition(self) -> bool:
        following = self.tokens[self.position + 1] if self.next.kind != "end" else self.next
        return self.next.text in _DEFINITIONS and following.kind == "function"

    def _read_definitions(self) -> None:
        """All that follow each other here; the place behind them is the next one."""
        names: list[str] = []
        while self.next.kind != "end" and self._at_definition():
            head, token = self.step(), self.step()
            if token.text in self.spans or token.text in self.known:
                raise self.refuse(token, f"there is a @{token.text} already", "Rename one.")
            start = self.position
            self._skip_definition()
            self.spans[token.text] = range(start, self.position)
            self.heads[token.text] = head.text
            names.append(token.text)
        self._read_in_order(names)

    def _read_in_order(self, names: Sequence[str]) -> None:
        """Definitions, each behind those that it calls; chains of them may be long."""
        path: set[str] = set()
        waiting = list(reversed(names))
        while waiting:
            name = waiting[-1]
            if name in path or name in self.known:
                waiting.pop()
                if name in path:
                    path.remove(name)
                    self._read_definition(name)
                continue
            path.add(name)
            for token in (self.tokens[k] for k in self.spans[name]):
                if token.kind != "function":
                    continue
                if token.text in self.spans and token.text not in path:
                    waiting.append(token.text)

    def _skip_definition(self) -> None:
        depth = 0
        while True:
            token = self.step()
            if token.kind == "end":
                raise self.refuse(token, "the text ends inside of a function", "Close it with }.")
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
            if token.text == "}" and token.kind == "sign" and depth <= 0:
                return

    def _read_definition(self, name: str) -> None:
        behind, self.position = self.position, self.spans[name].start
        outer, self.scope = self.scope, {}
        made = self._function_rest()
        if self.heads[name] == "fused" and "name" not in made.attrs:
            made = make_function(made.params, made.body, attrs={**made.attrs, "name": name})
        self.known[name] = made
        if name in self.names:
            self.names[name].function = made
        self.position, self.scope = behind, outer

    # -- functions
    def _function_rest(self) -> Function:
        """Behind `fn` or a name: parameters, the type of the result, the body."""
        start = self.next
        outer, self.scope = self.scope, dict(self.scope)
        types, self.variables = self.variables, dict(self.variables)
        bound = self.type_parameters()
        self.expect("(")
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        while not self.accept(")"):
            if self.next.kind in ("local", "name"):
                name, kind = self._parameter()
                params.append(Var(name, kind))
                self.scope[name] = params[-1]
            else:
                key = self._attribute_name()
                attrs[key] = self._attribute()
            if self.next.text != ")":
                self.expect(",", "a comma or )")
        wanted = self.type() if self.accept("->") else None
        body = self.block()
        self.scope, self.variables = outer, types
        with self.told(start.at):
            made = make_function(params, body, None, bound, attrs)
            if made.waits and wanted is not None:
                made = make_function(params, body, wanted, bound, attrs)
        self._check_type(start, wanted, body)
        return made

    def _parameter(self) -> tuple[str, Any]:
        token = self.step()
        if token.kind not in ("local", "name"):
            raise self.wanted("a variable such as %x", token)
        name = token.text.removeprefix("%") if token.kind == "local" else token.text
        return name, self.type() if self.accept(":") else None

    def _check_type(self, at: Token, wanted: Any, value: Expr) -> None:
        if wanted is None or value.waits:
            return
        found = value.checked_type
        if not self.fits(wanted, found):
            raise self.refuse(at, f"the value has type {found}, not {wanted}", "Leave it out.")

    # -- values
    def value(self) -> Expr:
        return self._value(self.expression())

    def block(self) -> Expr:
        self.expect("{")
        with self.deeper():
            outer, self.scope = self.scope, dict(self.scope)
            made = self._value(self._sequence(("}",)))
            self.scope = outer
        self.expect("}")
        return made

    def _sequence(self, ends: Sequence[str]) -> Any:
        """Names for values, and the value behind them."""
        named: list[tuple[Var, Expr]] = []  # what is computed in order
        while True:
            if self.accept("let"):
                token = self.next
                name, kind = self._parameter()
                self.expect("=")
                self._let(token, Var(name, kind), named)
            elif self.next.kind in ("local", "name") and self.ahead(1).text == "=":
                token = self.step()
                self.step()
                self._bind(token, token.text, None)
            else:
                made = self.expression()
                if not self.accept(";") or self.next.kind == "end" or self.next.text in ends:
                    for variable, value in reversed(named):
                        made = Let(variable, value, self._value(made))
                    return made

    def _let(self, token: Token, variable: Var, named: list[tuple[Var, Expr]]) -> None:
        """A value, which may be a function that calls itself by that name."""
        name, kind = variable.name_hint, variable.type_annotation
        if self.next.text == "fn":
            self.scope[name] = variable
        self._bind(token, name, kind)
        value = self.scope[name]
        if must_be_named(value, variable):
            named.append((variable, value))
            self.scope[name] = variable

    def _bind(self, token: Token, name: str, kind: Any) -> None:
        value = self._value(self.expression())
        self._check_type(token, kind, value)
        self.scope[name] = value
        if self.next.text in ("}", ")") or self.next.kind == "end":
            raise self.wanted("; and the value that uses the name")
        self.expect(";")

    def expression(self, level: int = 0) -> Any:
        """Operators between values bind as in Python."""
        if level == len(_INFIX):
            return self._unary()
        left = self.expression(level + 1)
        while self.next.kind == "sign" and self.next.text in _INFIX[level]:
            token = self.step()
            right = self._value(self.expression(level + 1))
            with self.told(token.at):
                left = apply(_INFIX[level][token.text], [self._value(left), right], {})
        return left

    def _unary(self) -> Any:
        signs, token = 0, self.next
        while self.accept("-"):
            signs += 1
        minus = signs % 2 == 1
        if signs and (self.next.kind == "number" or is_number_word(self.next.text)):
            return self._postfix(self._number(minus))
        made = self._postfix(self._atom())
        if not minus:
            return made
        with self.told(token.at):
            return apply("negative", [self._value(made)], {})

    def _postfix(self, made: Any) -> Any:
        while True:
            token = self.next
            if token.kind == "sign" and token.text == "(":
                with self.deeper():
                    made = self._call(made)
            elif token.kind == "field":
                self.step()
                with self.told(token.at):
                    made = projected(self._value(made), _index(token.text[1:]))
            else:
                return made

    def _call(self, called: Any) -> Expr:
        token = self.step()
        args: list[Expr] = []
        attrs: dict[str, Any] = {}
        while not self.accept(")"):
            if self.next.kind == "word" and self.ahead(1).text == "=":
                key = self._attribute_name()
                attrs[key] = self._attribute()
            else:
                args.append(self._value(self.expression()))
            if self.next.text != ")":
                self.expect(",", "a comma or )")
        if isinstance(called, Operator):
            with self.told(called.token.at):
                return apply(called.token.text, args, attrs)
        with self.told(token.at):
            if isinstance(called, GlobalVar) and not self._is_defined(called):
                raise ModelError(f"@{called}", "there is no such function", "Define it.")
            is_function = isinstance(called, (Function, GlobalVar))
            if not is_function and isinstance(called._type, (TensorType, TupleType)):
                raise ModelError("a call", "it is no function", "Call @f, an operator or fn.")
            made: Expr = make_call(called, args)
            return made

    def _is_defined(self, name: GlobalVar) -> bool:
        return name.function is not None or name in self.spans

    def _atom(self) -> Any:
        token = self.next
        if token.kind == "local":
            return self._local(self.step())
        if token.kind == "name":
            return self._named(self.step().text, token)
        if token.kind == "function":
            self.step()
            known = self.known.get(token.text)
            if known is not None and not isinstance(known, GeneralFunction):
                return known
            return self.names.setdefault(token.text, GlobalVar(token.text, known))
        if token.kind == "number" or is_number_word(token.text):
            return self._number(False)
        if token.kind == "meta":
            self.step()
            with self.told(token.at):
                return referred(self.tables, token.text)
        if token.kind == "word":
            return self._word(token)
        if token.text == "(" and token.kind == "sign":
            return self._brackets()
        raise self.wanted("a value: %x, @f, 1f, (a, b), fn, if, or an operator's name")

    def _word(self, token: Token) -> Any:
        if token.text in _NOT_HERE:
            self._refuse_absent()
        self.step()
        if token.text in self.constructors:
            made = self.constructors[token.text]
            return made if made.inputs or self.next.text == "(" else made()
        if token.text == "match":
            return self.match(token)
        if token.text in REFERENCES:
            return self.reference(token)
        if token.text in ("True", "False"):
            return scalar(token.text, False)
        if token.text == "fn":
            with self.deeper():
                return self._function_rest()
        if token.text == "if":
            self.expect("(")
            condition = self._value(self.expression())
            self.expect(")")
            one = self.block()
            self.expect("else")
            other = self.block()
            with self.told(token.at):
                return If(condition, one, other)
        return Operator(token, self)

    def _brackets(self) -> Any:
        with self.deeper():
            self.step()
            fields: list[Any] = []
            comma = False
            while not self.accept(")"):
                fields.append(self._sequence((")",)))
                if self.next.text != ")":
                    self.expect(",", "a comma or )")
                    comma = True
        if len(fields) == 1 and not comma:
            return fields[0]
        return Tuple([self._value(f) for f in fields])

    def _local(self, token: Token) -> Expr:
        """A name with dots, or a name and what is picked of its value: `%x.0`."""
        pieces = token.text.split(".")
        if len(pieces) > _MOST_PIECES:
            raise self.refuse(token, f"it has {len(pieces) - 1} dots", "Name values: %0 = ...;")
        for count in range(len(pieces), 0, -1):
            name = ".".join(pieces[:count])
            plain = name if name in self.scope else name[1:]
            if plain in self.scope and all(p.isdigit() for p in pieces[count:]):
                made = self.scope[plain]
                for piece in pieces[count:]:
                    with self.told(token.at):
                        made = projected(made, _index(piece))
                return made
        return self._named(token.text[1:], token)

    def _named(self, name: str, token: Token) -> Expr:
        if name in self.scope:
            return self.scope[name]
        near = difflib.get_close_matches(name[:100], [n.lstrip("%") for n in self.scope], 3)
        hint = f"Near it: %{', %'.join(near)}." if near else (
            "Define it first, or declare free_var %x: float32; before a value."
        )  # fmt: skip
        raise self.refuse(token, f"%{name[:100]} is not defined here", hint)

    def _number(self, minus: bool) -> Expr:
        token = self.step()
        with self.told(token.at):
            return scalar(token.text, minus)

    # -- attributes
    def _attribute_name(self) -> str:
        token = self.step()
        if token.kind not in ("word", "string"):
            raise self.wanted("a value or an attribute name=value", token)
        self.expect("=")
        return token.text

    def _attribute(self) -> Any:
        """A Python value: numbers, strings, lists of them, graph values."""
        token = self.next
        with self.deeper():
            if token.text in ("[", "(") and token.kind == "sign":
                self.step()
                items: list[Any] = []
                while not self.accept("]" if token.text == "[" else ")"):
                    items.append(self._attribute())
                    if self.next.text not in ("]", ")"):
                        self.expect(",", "a comma or the end of the list")
                return tuple(items)
            if token.kind == "string":
                return self.string()
            if token.kind == "word" and token.text in ("None", "True", "False"):
                self.step()
                return {"None": None, "True": True, "False": False}[token.text]
            minus = False
            while self.accept("-"):
                minus = not minus
            if self.next.kind == "number" or is_number_word(self.next.text):
                token = self.step()
                with self.told(token.at):
                    return python_number(token.text, minus)
            if minus:
                raise self.wanted("a number")
            return self._value(self.expression())

    # -- what is missing
    def _value(self, made: Any) -> Expr:
        if isinstance(made, Operator):
            raise self.refuse(
                made.token, f"{made.token.text} is an operator, a value is needed",
                f"Call it: {made.token.text}(...).",
            )  # fmt: skip
        if isinstance(made, GlobalVar) and not self._is_defined(made):
            raise self.refuse(self.next, f"there is no @{made}", "Define it with def.")
        name = self._named_functions().get(made) if isinstance(made, Function) else None
        return as_value(made if name is None else GlobalVar(name, made))

    def _named_functions(self) -> dict[Function, str]:
        if len(self._names_of) < len(self.known):
            self._names_of = {f: name for name, f in self.known.items()}
        return self._names_of

    def _refuse_absent(self) -> None:
        if self.next.text in _NOT_HERE:
            raise self.refuse(self.next, f"{self.next.text} is not read", _NOT_HERE[self.next.text])

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.refuse(
                self.next, f"brackets are nested more than {DEEPEST} deep", "Name values: %0 = ...;"
            )
        yield
        self.depth -= 1


def _main(made: Expr) -> Function:
    return made if isinstance(made, Function) else make_function(free_vars(made), made)


class Operator:
    """An operator's name that is not called yet."""

    def __init__(self, token: Token, reader: Reader) -> None:
        self.token, self.reader = token, reader

    def value(self) -> Any:
        """Its row, for a text that is nothing but the name."""
        from tilewright.graph.op import get

        with self.reader.told(self.token.at):
            return get(self.token.text)


def _index(digits: str) -> int:
    return int(digits) if len(digits) < 10 else 10**9
