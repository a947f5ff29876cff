"""An exported program of PyTorch as plain data: what `importer.py` reads, without PyTorch.

In: `export.py` makes it of an ExportedProgram, tests write it by hand.  Out: frozen dataclasses.
Read next: `importer.py`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.graph.expr import Array


@dataclass(frozen=True)
class Ref:
    """The value called `name`, as an argument or an output."""

    name: str


@dataclass(frozen=True)
class Spec:
    """A tensor: element type by its name, and extents; an expression of symbols where one is open.

    number: likewise of a number of Python's that data decide, such as an extent
    """

    shape: tuple[int | str, ...]
    dtype: str
    number: str | None = None


@dataclass(frozen=True)
class Step:
    """One call of an operator.

    op:      "add.Tensor" for `torch.ops.aten.add.Tensor`; of another namespace with it in front
    args:    by the names of the operator's schema, those with defaults included; tensors are
             `Ref`s, branches and bodies of loops are Programs; by position where there is no schema
    results: one for each value, None where a value is no tensor or absent
    several: it gives a tuple
    layer:   name of the module that calls it, "" where that is the whole

    `as_strided` reads memory, not elements; it has an argument `dense` more: whether the elements
    of `self` lie there in order. Its offset is from the first of them.
    """

    name: str
    op: str
    args: Mapping[str, Any]
    results: tuple[Spec | None, ...]
    several: bool = False
    layer: str = ""


@dataclass(frozen=True)
class Program:
    """inputs: in order; weights: arrays by name, not copied; outputs: `Ref`s, numbers or None."""

    inputs: tuple[tuple[str, Spec], ...]
    weights: Mapping[str, Array]
    steps: tuple[Step, ...]
    outputs: tuple[Any, ...]


def refs(value: Any) -> Iterator[str]:
    """The names of all values in an argument."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs(item)


def extent_of(expression: str, known: Mapping[str, int]) -> int | str:
    """The number that sums, differences and products of symbols give; itself where it has one that
    is not known, or something else."""
    if expression in known:
        return known[expression]
    try:
        return _number(ast.parse(expression, mode="eval").body, known)
    except (LookupError, SyntaxError):
        return expression


def _number(node: ast.expr, known: Mapping[str, int]) -> int:
    """Raises LookupError for what is not known."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        return known[node.id]
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left, known), _number(node.right, known)
        return _OPERATIONS[type(node.op)](left, right)
    raise LookupError(ast.dump(node))


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip


def live(program: Program) -> list[Step]:
    """The steps that outputs depend on."""
    read, found = set(refs(list(program.outputs))), []
    for step in reversed(program.steps):
        if step.name in read:
            read.update(refs(list(step.args.values())))
            found.append(step)
    return found[::-1]
