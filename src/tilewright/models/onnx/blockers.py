"""What stands against an import, all of it in one error.

In: nodes that cannot be imported, and why.  Out: stand-ins of the types that such nodes would give,
so that those behind them are looked at, too; at the end one ModelError for those whose results are
read.  Read next: `importer.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import InternalError, ModelError
from tilewright.graph.expr import (
    Call,
    Expr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    post_order,
)
from tilewright.graph.op.row import Op, Pattern
from tilewright.models.onnx.checks import shown
from tilewright.models.onnx.values import Unknown, Value, tensors

if TYPE_CHECKING:
    from onnx import NodeProto

OPERATORS, REASONS, NAMES = 9, 2, 3  # lines of the error, so that it stays readable
WIDTH = 200
NO_CONVERTER = "there is no converter for it"


@dataclass(frozen=True)
class Blocker:
    """One node that cannot be imported.

    op, node: its operator and its name
    error:    what refused it; None where there is no converter
    """

    op: str
    node: str
    error: ModelError | None


@dataclass
class Blockers:
    """Those of one import.

    found:   by the stand-in for their results; None for a node that may be well, but needs to know
             what a stand-in is
    untyped: those whose results have no known type
    read:    what such nodes, and those behind them, read
    behind:  nodes that could not be looked at, as they read something of unknown type
    """

    found: dict[Expr, Blocker | None] = field(default_factory=dict)
    untyped: list[Blocker] = field(default_factory=list)
    read: list[Expr] = field(default_factory=list)
    behind: int = 0

    def mark(self) -> tuple[int, ...]:
        """How much is there, for `back_to`."""
        return len(self.found), len(self.untyped), len(self.read), self.behind

    def back_to(self, mark: tuple[int, ...]) -> None:
        """Forget what came after."""
        self.found = dict(list(self.found.items())[: mark[0]])
        del self.untyped[mark[1] :]
        del self.read[mark[2] :]
        self.behind = mark[3]

    def stand_ins(
        self,
        op: str,
        blocker: Blocker | None,
        inputs: Sequence[Value],
        types: Sequence[TensorType | None],
    ) -> list[Value]:
        """What the outputs of `op` are until the end, when `raise_for` finds what is read."""
        args = [e for value in inputs for e in tensors(value)]
        if not types or any(t is None for t in types):
            self.read += args
            if blocker is None:
                self.behind += 1
            else:
                self.untyped.append(blocker)
            return [Unknown() for _ in types]
        kind = TupleType(tuple(t for t in types if t is not None))
        row = Op(
            f"onnx.{op}", tuple(f"input{k}" for k in range(len(args))), Pattern.OPAQUE,
            lambda site: kind, _no_value, _no_value, "It cannot be imported.",
        )  # fmt: skip
        call = Call(row, args)
        self.found[call] = blocker
        return [TupleGetItem(call, k) for k in range(len(types))]

    def hide(self, value: Expr) -> bool:
        """Whether one of them is what `value` is made of."""
        return bool(self.found) and any(node in self.found for node in post_order(value))

    def raise_for(self, results: Sequence[Value], nodes: int) -> None:
        """Raises ModelError if `results` need a node that cannot be imported.

        nodes: of the model, for the error
        """
        wanted = [e for value in results for e in tensors(value)]
        read = set(post_order(Tuple([*wanted, *self.read])))
        needed = [blocker for call, blocker in self.found.items() if call in read]
        blocking = [*filter(None, needed), *self.untyped]
        behind = self.behind + needed.count(None)
        if not blocking and not behind:
            return
        if len(blocking) == 1 and not behind and blocking[0].error is not None:
            raise blocking[0].error
        raise ModelError("from_onnx", _listed(blocking, nodes, behind), _WAY_OUT, command=_COMMAND)


_WAY_OUT = "models.onnx.ops.CONVERTERS lists the operators that can be imported."
_COMMAND = "docs/onnx.md lists the operators that can be imported."


def _no_value(*_: Any) -> Any:
    raise InternalError("from_onnx", "an operator that cannot be imported was computed")


def _listed(blocking: Sequence[Blocker], nodes: int, behind: int) -> str:
    by_op: dict[str, list[Blocker]] = {}
    for blocker in blocking:
        by_op.setdefault(blocker.op, []).append(blocker)
    ranked = sorted(by_op.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [f"{len(blocking)} of its {nodes} nodes cannot be imported:"]
    for op, group in ranked[:OPERATORS]:
        lines += _lines_of(op, group)
    if rest := ranked[OPERATORS:]:
        names = ", ".join(f"{op} ({len(group)})" for op, group in rest)
        lines.append(_cut(f"  and {len(rest)} more operators: {names}"))
    if behind:
        lines.append(f"  {_nodes(behind)} behind those could not be looked at")
    return "\n".join(lines)


def _lines_of(op: str, group: Sequence[Blocker]) -> list[str]:
    names = ", ".join(b.node for b in group[:NAMES]) + (", ..." if len(group) > NAMES else "")
    head = f"  {op} ({_nodes(len(group))}: {names})"
    reasons = Counter(b.error.reason if b.error else NO_CONVERTER for b in group)
    if len(reasons) == 1:
        return [_cut(f"{head}: {next(iter(reasons))}")]
    told = [_cut(f"    {_nodes(n)}: {why}") for why, n in reasons.most_common(REASONS)]
    if len(reasons) > REASONS:  # the last line tells of several
        told[-1] += f"; {len(reasons) - REASONS} more reasons"
    return [_cut(head), *told]


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count > 1 else ''}"


def _cut(line: str) -> str:
    line = line.replace("\n", " ")
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def operator_name(node: NodeProto) -> str:
    name = node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
    return shown(name)
