"""What relay's text has beyond operators: data types, `match`, references.

In: tokens.  Out: definitions of types, nodes.  Read next: `reader.py`, `relay/functional/nodes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.graph.expr import Expr, Var
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, TypeData, TypeVar
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
)
from tilewright_tvm.relay.text.lexer import Source, Token
from tilewright_tvm.relay.text.types import TypeReader

REFERENCES: dict[str, type[Expr]] = {"ref": RefCreate, "ref_read": RefRead, "ref_write": RefWrite}


class FunctionalReader(TypeReader):
    """The rules of these; `Reader` has the others.

    data: the data types that are known, by name; constructors: theirs, by name
    scope: values by the names of their variables
    """

    scope: dict[str, Expr]

    def __init__(self, source: Source, data: Mapping[GlobalTypeVar, TypeData]) -> None:
        super().__init__(source)
        self.data = dict(data)
        self.headers = {str(name): name for name in self.data}
        self.constructors: dict[str, Constructor] = {}
        for definition in self.data.values():
            self.constructors.update({c.name_hint: c for c in definition.constructors})

    def type_parameters(self) -> list[TypeVar]:
        """`[A, B]`, known from here on; nothing where none stands there."""
        found: list[TypeVar] = []
        if not self.accept("["):
            return found
        while not self.accept("]"):
            token = self.step()
            if token.kind != "word":
                raise self.wanted("a name for a type", token)
            found.append(TypeVar(token.text))
            self.variables[token.text] = found[-1]
            if self.next.text != "]":
                self.expect(",", "a comma or ]")
        return found

    def type_definition(self) -> None:
        """Behind `type`: a name, its variables, its constructors in braces."""
        token = self.step()
        if token.kind != "word" or token.text in self.headers:
            raise self.wanted("a name for a data type that is not there yet", token)
        header = self.headers[token.text] = GlobalTypeVar(token.text)
        outer, self.variables = self.variables, dict(self.variables)
        bound = self.type_parameters()
        made: list[Constructor] = []
        self.expect("{")
        while not self.accept("}"):
            name = self.step()
            if name.kind != "word" or name.text in self.constructors:
                raise self.wanted("a name for a constructor that is not there yet", name)
            inputs = self.types() if self.accept("(") else []
            with self.told(name.at):
                made.append(Constructor(name.text, inputs, header))
            self.constructors[name.text] = made[-1]
            if self.next.text != "}":
                self.expect(",", "a comma or }")
        self.variables = outer
        with self.told(token.at):
            self.data[header] = TypeData(header, bound, made)

    def match(self, token: Token) -> Expr:
        """Behind `match`: perhaps ?, a value in brackets, clauses in braces."""
        complete = not self.accept("?")
        self.expect("(")
        value = self.value()
        self.expect(")")
        self.expect("{")
        clauses: list[Clause] = []
        with self.deeper():
            while not self.accept("}"):
                outer, self.scope = self.scope, dict(self.scope)
                pattern = self.pattern()
                self.expect("=>")
                result = self.block() if self.next.text == "{" else self.value()
                clauses.append(Clause(pattern, result))
                self.scope = outer
                if self.next.text != "}":
                    self.expect(",", "a comma or }")
        with self.told(token.at):
            return Match(value, clauses, complete)

    def pattern(self) -> Pattern:
        token = self.step()
        if token.kind in ("local", "name"):
            name = token.text.removeprefix("%") if token.kind == "local" else token.text
            kind = self.type() if self.accept(":") else None
            var = Var(name, kind)
            self.scope[name] = var
            return PatternVar(var)
        if token.kind == "word" and token.text == "_":
            return PatternWildcard()
        if token.kind == "sign" and token.text == "(":
            return PatternTuple(self.patterns())
        if token.kind == "word" and token.text in self.constructors:
            inside = self.patterns() if self.accept("(") else []
            with self.told(token.at):
                return PatternConstructor(self.constructors[token.text], inside)
        raise self.wanted("a pattern: _, %x, (a, b), or a constructor's name", token)

    def patterns(self) -> list[Pattern]:
        found: list[Pattern] = []
        with self.deeper():
            while not self.accept(")"):
                found.append(self.pattern())
                if self.next.text != ")":
                    self.expect(",", "a comma or )")
        return found

    def reference(self, token: Token) -> Expr:
        """Behind `ref`, `ref_read`, `ref_write`: values in brackets."""
        self.expect("(")
        values: list[Any] = []
        while not self.accept(")"):
            values.append(self.value())
            if self.next.text != ")":
                self.expect(",", "a comma or )")
        count = 2 if token.text == "ref_write" else 1
        if len(values) != count:
            raise self.refuse(token, f"{token.text} of {len(values)} values", f"Give {count}.")
        with self.told(token.at):
            return REFERENCES[token.text](*values)

    def value(self) -> Expr:
        raise NotImplementedError

    def block(self) -> Expr:
        raise NotImplementedError
