"""A program in parts: runs of steps that can be compiled, and those between them that cannot.

In: a program and the names of its steps that are blocked.  Out: parts in order, each with what it
reads and what later parts read of it.  Read next: `compile.py`, which runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from tilewright.models.torch.node import PARTS
from tilewright.models.torch.program import Program, Ref, Spec, Step, refs


@dataclass(frozen=True)
class Part:
    """program: its inputs are values of earlier parts and of the whole program

    compiled: it holds no blocked step
    dead:     values that no later part reads
    """

    program: Program
    compiled: bool
    dead: tuple[str, ...]


def parts_of(program: Program, blocked: frozenset[str]) -> list[Part]:
    """Few and long: a part ends where the next step is of the other kind."""
    ordered = list(_with_their_items(program.steps))
    kinds = _kinds(ordered, blocked)
    groups = [list(g) for _, g in groupby(ordered, key=lambda s: kinds[s.name])]
    specs: dict[str, Spec | None] = dict(program.inputs)
    specs |= {s.name: _tensor(s) for s in ordered}
    last: dict[str, int] = {}
    for k, group in enumerate(groups):
        last |= {name: k for s in group for name in refs(list(s.args.values()))}
    last |= dict.fromkeys(refs(list(program.outputs)), len(groups))
    found = []
    for k, group in enumerate(groups):
        made = [s.name for s in group]
        read = dict.fromkeys(n for s in group for n in refs(list(s.args.values())))
        given = [n for n in read if n not in made and n not in program.weights]
        inside = Program(
            tuple((n, spec) for n in given if (spec := specs[n]) is not None),
            {n: w for n, w in program.weights.items() if n in read}, tuple(group),
            tuple(Ref(n) for n in made if last.get(n, -1) > k),
        )  # fmt: skip
        dead = tuple(n for n in (*given, *made) if last.get(n, -1) <= k)
        found.append(Part(inside, not kinds[made[0]], dead))
    return found


def with_complex(program: Program, blocked: frozenset[str]) -> frozenset[str]:
    """`blocked`, and what gives it complex numbers or takes them from it: compiled parts take and
    give real ones."""
    giving = {s.name for s in program.steps if any(r and r.dtype in PARTS for r in s.results)}
    reads = {s.name: giving.intersection(refs(list(s.args.values()))) for s in program.steps}
    found, left = set(blocked), [*blocked]
    readers: dict[str, list[str]] = {}
    for name, read in reads.items():
        for source in read:
            readers.setdefault(source, []).append(name)
    while left:
        name = left.pop()
        for other in {*reads.get(name, ()), *readers.get(name, ())} - found:
            found.add(other)
            left.append(other)
    return frozenset(found)


def _tensor(step: Step) -> Spec | None:
    """What a step gives, if it is one tensor."""
    spec = None if step.several else step.results[0]
    return None if spec is None or spec.number is not None else spec


def _with_their_items(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Steps in order, each followed by those that pick one of its values."""
    items: dict[str, list[Step]] = {}
    for s in steps:
        if s.op == "getitem":
            items.setdefault(s.args["self"].name, []).append(s)
    for s in steps:
        if s.op != "getitem":
            yield s
            yield from items.get(s.name, ())


def _kinds(steps: list[Step], blocked: frozenset[str]) -> dict[str, bool]:
    """Whether each step is blocked; one that picks a value is what it picks from."""
    found: dict[str, bool] = {}
    for s in steps:
        source = s.args["self"].name if s.op == "getitem" else s.name
        found[s.name] = source in blocked
    return found


def without_values(
    program: Program, inputs: Mapping[str, int] | None = None
) -> tuple[Program, list[Any]]:
    """`program` with outputs that it computes only, and for each output ("output", its position
    among these), ("value", what it is) or ("input", which one it is).

    inputs: positions of inputs by name
    """
    positions: list[Any] = []
    computed: list[Any] = []
    known = inputs or {}
    for value in program.outputs:
        if not isinstance(value, Ref):
            positions.append(("value", value))
        elif value.name in known:
            positions.append(("input", known[value.name]))
        else:
            positions.append(("output", len(computed)))
            computed.append(value)
    return replace(program, outputs=tuple(computed)), positions


__all__ = ["Part", "parts_of", "with_complex", "without_values"]
