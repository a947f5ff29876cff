"""The rows of the table: the kernels of a network where it is given, else the tasks of the log.

In: what is known of the tasks; a network.  Out: `Kernel`s, those that take longest first.
A log tells tasks; which of them a network runs, in which layout, by which computation, follows from
all of its records together, so that is asked of the rooms that build it.
Read next: `network/decide.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.cost.ceilings import Ceilings, work_of
from tilewright.graph.layers import of_each
from tilewright.knowledge import records
from tilewright.measure.database import Database
from tilewright.measure.record import Key, TaskId, task_label
from tilewright.network.decide import KernelChoices, decide
from tilewright.network.evidence import Evidence
from tilewright.network.extract import FusedGroup, fused_groups
from tilewright.reporting.model import Kernel, TaskPart, shared
from tilewright.targets.target import Target

UNTUNED = "untuned"


@dataclass(frozen=True)
class Known:
    """A log, the task whose target and device count, what was found of all tasks."""

    database: Database
    main: TaskId
    tasks: Sequence[TaskPart]
    ceilings: Ceilings | None


def kernels_of_tasks(known: Known) -> tuple[list[Kernel], list[str]]:
    """A row for each task of the device; of several that compute one thing, the fastest."""
    main = known.main
    chosen: dict[str, TaskPart] = {}
    for part in known.tasks:
        if (part.target, part.device) != (main.target, main.fingerprint):
            continue
        family = part.instead_of or part.key
        before = chosen.get(family)
        if before is None or _time(part) < _time(before):
            chosen[family] = part
    rows = [
        Kernel(
            part.label, part.layers, part.calls, part.seconds, 0.0, part.work, part.bound,
            "" if part.best is None else source_text(part.best.origin), part.number, part.key,
            () if part.best is None else part.best.costs, part.measured, part.refused,
        )
        for part in chosen.values()
    ]  # fmt: skip
    notes = []
    elsewhere = sum((p.target, p.device) != (main.target, main.fingerprint) for p in known.tasks)
    if elsewhere:
        notes.append(
            f"{elsewhere} tasks of other targets or devices have no row in the table; they are "
            "among the tasks below."
        )
    if len(rows) > 1:
        notes.append(
            "The log tells tasks, not which of them a network runs: with --model MODEL the rows "
            "are the kernels that it is built of."
        )
    return shared(rows), notes


def _time(part: TaskPart) -> float:
    return math.inf if part.seconds is None else part.seconds * max(part.calls, 1)


def kernels_of_network(network: Any, known: Known) -> tuple[list[Kernel], list[str]]:
    """A row for each kernel that the network is built of with this log.

    network: a `front.Network`
    """
    main = known.main
    target = Target(main.target)
    evidence = Evidence([known.database], (main.target,), main.fingerprint, records(target), None)
    decided = [decide(mod, network.params, evidence, target) for mod in network.modules]
    each = [fused_groups(d.main) for d in decided]
    choices = KernelChoices(decided, each, evidence, target)
    calls: dict[str, int] = {}
    groups: dict[str, FusedGroup] = {}
    for group in (g for own in each for g in own):
        calls[group.key] = calls.get(group.key, 0) + len(group.calls)
        groups.setdefault(group.key, group)
    listed = list(groups.values())
    by_key = {
        p.key: p for p in known.tasks if (p.target, p.device) == (main.target, main.fingerprint)
    }
    rows = []
    for own, made in zip(listed, choices.implemented(listed), strict=True):
        rows.append(_row(own, made, calls[own.key], evidence, by_key, known))
    notes = []
    if len(network.modules) > 1:
        notes.append(
            f"For {len(network.modules)} shapes of inputs: calls and times are those of all."
        )
    unknown = sum(row.seconds is None for row in rows)
    if unknown:
        notes.append(
            f"Of {unknown} of {len(rows)} kernels nobody measured what they take: they run "
            "untuned, and shares are of the others. `tilewright bench --report` times all."
        )
    return shared(rows), notes


def _row(
    own: FusedGroup, made: FusedGroup, calls: int, evidence: Evidence,
    by_key: dict[str, TaskPart], known: Known,
) -> Kernel:  # fmt: skip
    """own: as the network has it; made: the computation that is built"""
    work = work_of(made.dag)
    bound = None if known.ceilings is None else known.ceilings.bound(work)
    part = by_key.get(made.key)
    main = known.main
    mine = known.database.best(Key(made.key, main.target, main.fingerprint))
    record = mine if mine is not None else evidence.best(made.dag)
    seconds = evidence.seconds(made.dag)
    source = UNTUNED
    if mine is not None:
        source = source_text(mine.origin)
    elif record is not None:
        source = f"knowledge, {source_text(record.origin)}"
    costs = mine.result.costs if mine is not None else ()
    label = task_label(TaskId(own.name, list(own.args), own.key, main.target))
    layers = of_each(own.calls) or (() if part is None else part.layers)
    if part is None:
        return Kernel(label, layers, calls, seconds, 0.0, work, bound, source, key=own.key)
    return Kernel(
        label, layers, calls, seconds, 0.0, work, bound, source, part.number, own.key, costs,
        part.measured, part.refused,
    )  # fmt: skip


def source_text(origin: str) -> str:
    """`template dense.tensor` of an origin of a record."""
    kind, colon, name = origin.partition(":")
    if kind == "rules":
        return "rules"
    return f"{kind} {name}".strip() if colon else origin
