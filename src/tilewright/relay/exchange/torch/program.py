"""An exported program of PyTorch as plain data: what `importer.py` reads, without PyTorch.

In: `export.py` makes it of an ExportedProgram, tests write it by hand.  Out: frozen dataclasses.
Read next: `importer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.relay.graph.expr import Array


@dataclass(frozen=True)
class Ref:
    """The value called `name`, as an argument or an output."""

    name: str


@dataclass(frozen=True)
class Spec:
    """A tensor: element type by its name, and extents; the name of a symbol where one is open."""

    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One call of an operator.

    op:      "add.Tensor" for `torch.ops.aten.add.Tensor`; of another namespace with it in front
    args:    by the names of the operator's schema, those with defaults included; tensors are `Ref`s
    results: one for each value, None where a value is no tensor or absent
    several: it gives a tuple

    `as_strided` reads memory, not elements; it has an argument `dense` more: whether the elements
    of `self` lie there in order, from the offset on.
    """

    name: str
    op: str
    args: Mapping[str, Any]
    results: tuple[Spec | None, ...]
    several: bool = False


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


def live(program: Program) -> list[Step]:
    """The steps that outputs depend on."""
    read, found = set(refs(list(program.outputs))), []
    for step in reversed(program.steps):
        if step.name in read:
            read.update(refs(list(step.args.values())))
            found.append(step)
    return found[::-1]
