"""Nodes of a model that have to know values which the network computes.

In: such a node, and what it asked for.  Out: values that stand for its results.  When they are
known, its converter is called again, as it is at import.
Read next: `../../graph/deferred.py`, `importer.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tilewright.graph.deferred import Deferred, NotYet
from tilewright.graph.expr import Array, Expr, Tuple, TupleGetItem
from tilewright.models.onnx.blockers import Blockers
from tilewright.models.onnx.fold import Folder
from tilewright.models.onnx.scope import Scope
from tilewright.models.onnx.structure import names_read
from tilewright.models.onnx.values import Absent, Items, Value, replaced, tensors

if TYPE_CHECKING:
    from onnx import NodeProto


class Postponing(ABC):
    """What an import adds to do it: `importer.py` says what the names are."""

    params: dict[str, Array]
    blockers: Blockers
    folder: Folder
    freeze: bool
    nodes: int
    constant_bytes: int
    _exprs: dict[int, tuple[Array, Expr]]

    @abstractmethod
    def _results(
        self, scope: Scope, node: NodeProto, name: str, values: Mapping[str, Value], place: str,
        resume: Value | None = None,
    ) -> Sequence[Value]:  # fmt: skip
        ...

    @abstractmethod
    def _read(self, scope: Scope, name: str, reader: str) -> Value: ...

    @abstractmethod
    def _room(self, nbytes: int, place: str) -> None: ...

    @abstractmethod
    def expr(self, value: Value, name: str, reader: str) -> Expr: ...

    def _later(
        self, scope: Scope, node: NodeProto, name: str, place: str, error: NotYet
    ) -> list[Value]:
        """What stands for the results of a node until what it needs is known.

        Raises `error` where that cannot be made known.
        """
        read = {n: scope.find(n) for n in names_read(node)}
        parts = list(dict.fromkeys(e for v in read.values() if v is not None for e in tensors(v)))
        resume = error.state
        if resume is not None:
            parts = list(dict.fromkeys([error.node, *parts, *tensors(resume)]))
        needs = error.among(parts)

        def make(given: Sequence[Expr]) -> Expr:
            there = dict(zip(parts, given, strict=True))
            inner = Scope(
                scope.versions, scope.read, scope, scope.depth,
                {n: replaced(v, there) for n, v in read.items() if v is not None}, scope.declared,
            )  # fmt: skip
            values = {i: self._read(inner, i, place) for i in node.input if i}
            state = None if resume is None else replaced(resume, there)
            return self._again(
                lambda: self._results(inner, node, name, values, place, state), place
            )

        later = Deferred(parts, needs, make, error, trip=resume is not None)
        return [TupleGetItem(later, k) for k in range(len(node.output))]

    def _again(self, run: Callable[[], Sequence[Value]], place: str) -> Expr:
        """The results of a node, now that values are known: nothing is a weight any more, and each
        time the limits are those of one import."""
        state = self.blockers, self.folder, self.freeze, self._exprs
        counts = self.nodes, self.constant_bytes
        self.blockers, self.folder = Blockers(), Folder(self.params, self._room)
        self.freeze, self._exprs = True, {}
        try:
            results = run()
            self.blockers.raise_for(results, 1)
            return Tuple([self._nested(value, place) for value in results])
        finally:
            self.blockers, self.folder, self.freeze, self._exprs = state
            self.nodes, self.constant_bytes = counts

    def _nested(self, value: Value, place: str) -> Expr:
        """A sequence as a tuple; an empty optional is an empty one."""
        if isinstance(value, (Items, Absent)):
            parts = value.parts if isinstance(value, Items) else ()
            return Tuple([self._nested(part, place) for part in parts])
        return self.expr(value, place, place)
