"""Types in relay's text, and the steps through tokens that all rules take.

In: tokens.  Out: types: `Tensor[(1, ?, n), float32]`, `float32`, `(a, b)`, `fn (a) -> b`, `_`,
`List[a]`, `ref(a)`.
Read next: `reader.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.graph.expr import FuncType, TensorType, TupleType, check_dtype
from tilewright.graph.extents import Any as Open
from tilewright.graph.types import tensor_type
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, RefType, TypeVar
from tilewright_tvm.relay.text.lexer import Source, Token, unquoted


class TypeReader:
    """A place in a text, and the types there."""

    depth: int

    def __init__(self, source: Source) -> None:
        self.source, self.tokens, self.position = source, source.tokens, 0
        self.variables: dict[str, TypeVar] = {}
        self.headers: dict[str, GlobalTypeVar] = {}  # of data types

    # -- steps
    @property
    def next(self) -> Token:
        return self.tokens[self.position]

    def ahead(self, count: int) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def step(self) -> Token:
        token = self.tokens[self.position]
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        """Whether that follows; it is then behind us."""
        found = self.next.text == text and self.next.kind in ("sign", "word")
        if found:
            self.position += 1
        return found

    def expect(self, text: str, words: str = "") -> None:
        if text == "end":
            if self.next.kind != "end":
                raise self.wanted(words)
        elif not self.accept(text):
            raise self.wanted(words or text)

    def string(self) -> str:
        return unquoted(self.step().text)

    # -- errors
    def refuse(self, token: Token, reason: str, way_out: str = "") -> ModelError:
        return self.source.refuse(token.at, reason, way_out)

    def wanted(self, words: str, token: Token | None = None) -> ModelError:
        """What should stand where something else does."""
        token = token or self.next
        there = "the text ends" if token.kind == "end" else f"{token.text[:40]!r} stands there"
        return self.refuse(token, f"{words} is expected, {there}", "Give text of mod.astext().")

    @contextmanager
    def told(self, at: int) -> Iterator[None]:
        """Errors of what is made here name the place in the text."""
        try:
            yield
        except TilewrightError as error:
            raise self.source.within(at, error) from None
        except MemoryError:
            raise self.source.refuse(at, "no memory is that large", "Use smaller shapes.") from None

    @contextmanager
    def deeper(self) -> Iterator[None]:
        yield

    # -- types
    def type(self) -> Any:
        """A type; None for `_`, which is left open."""
        with self.deeper():
            token = self.step()
            if token.text == "(" and token.kind == "sign":
                fields = self.types()
                return TupleType(tuple(fields))
            if token.kind == "word" and token.text == "fn":
                return self._function_type()
            if token.kind != "word":
                raise self.wanted("a type such as Tensor[(1, 3), float32]", token)
            if token.text == "_":
                return None
            if token.text == "Tensor":
                return self._tensor(token)
            if token.text in self.variables:
                return self.variables[token.text]
            if token.text in self.headers:
                args = self.types("]") if self.accept("[") else []
                with self.told(token.at):
                    return self.headers[token.text](*args)
            if token.text == "ref":
                self.expect("(")
                (held,) = self.types() or [None]
                return RefType(held)
            with self.told(token.at):
                return TensorType((), check_dtype(token.text, "type"))

    def _function_type(self) -> FuncType:
        outer, self.variables = self.variables, dict(self.variables)
        bound = self.type_parameters()
        self.expect("(")
        given = self.types()
        self.expect("->")
        made = FuncType(tuple(given), self.type(), bound)
        self.variables = outer
        return made

    def type_parameters(self) -> list[TypeVar]:
        return []

    def types(self, end: str = ")") -> list[Any]:
        """A list of types, as far as `end`."""
        found: list[Any] = []
        while not self.accept(end):
            token = self.next
            found.append(self.type())
            if found[-1] is None:
                raise self.refuse(token, "a type inside of another is open", "Give it.")
            if self.next.text != end:
                self.expect(",", f"a comma or {end}")
        return found

    def _tensor(self, start: Token) -> TensorType:
        self.expect("[")
        self.expect("(")
        shape: list[Any] = []
        while not self.accept(")"):
            shape.append(self._extent())
            if self.next.text != ")":
                self.expect(",", "a comma or )")
        self.expect(",")
        token = self.step()
        if token.kind != "word":
            raise self.wanted("an element type such as float32", token)
        self.expect("]")
        with self.told(start.at):
            return tensor_type(tuple(shape), check_dtype(token.text, "Tensor"), "Tensor")

    def _extent(self) -> Any:
        token = self.step()
        if token.text == "?":
            return Open()
        if token.kind == "word" and "." not in token.text:
            return Open(token.text)
        digits = token.text.removesuffix("i64")
        if token.kind != "number" or not digits.isdigit():
            raise self.wanted("an extent: a number, or ?", token)
        return int(digits) if len(digits) < 20 else 10**20

    def fits(self, wanted: Any, found: Any) -> bool:
        """Whether a value of type `found` may be called one of `wanted`: open extents are any."""
        if wanted is None:
            return True
        if isinstance(wanted, TensorType) and isinstance(found, TensorType):
            pairs = zip(wanted.shape, found.shape, strict=False)
            return wanted.dtype == found.dtype and len(wanted.shape) == len(found.shape) and all(
                a == b or k in wanted.open_extents for k, (a, b) in enumerate(pairs)
            )  # fmt: skip
        if isinstance(wanted, TupleType) and isinstance(found, TupleType):
            return len(wanted.fields) == len(found.fields) and all(
                map(self.fits, wanted.fields, found.fields)
            )
        return bool(wanted == found)
