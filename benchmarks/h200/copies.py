"""Rings of asynchronous copies against plain copies: the same configurations with 0, 2, 3, 4 slots.

In: the eight tasks of the search, those of them whose sketches have rings.  Of each sketch, the
machine model's best --members at 0 and as many at 3 slots, out of --drawn, are compiled with every
number of slots, verified on both cases of the reference, and timed in turn; the leaders of each
number are timed again, in turn, and run with their threads one after the other.
Out: a table in microseconds, and an entry in `results/copies.json` (--folder).

    TILEWRIGHT_CACHE=off PYTHONPATH=src:benchmarks python benchmarks/h200/copies.py --members 32

gain: the best with plain copies over the best with a ring.  model_*: what the machine model says
      of the same configuration.  failed: configurations that are wrong or do not run: none may be
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import results_file
import search_tasks

from tilewright.base.artifact import Artifact
from tilewright.base.case import Case
from tilewright.base.errors import TilewrightError
from tilewright.cost.machine_model import predict_seconds
from tilewright.driver.build import build_artifact
from tilewright.measure import thread_order
from tilewright.runtime.device import Device, device
from tilewright.runtime.trial import TrialResult, trial
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.thread_loops import RINGS
from tilewright.targets.target import Target
from tilewright.te.cases import cases

LEADERS, ROUNDS = 3, 5  # of each number of slots; how often they are timed again


@dataclass
class Member:
    """One configuration with one number of slots.  us: of each time that it was timed."""

    sketch: Sketch
    index: int
    slots: int
    model_us: float
    artifact: Artifact | None = None
    failed: str = ""
    us: list[float] = field(default_factory=list)

    @property
    def best_us(self) -> float:
        return statistics.median(self.us)


def knob_of(sketch: Sketch) -> str | None:
    """The knob of the slots, if the sketch has one alone."""
    found = [name for name in sketch.space.space_map if name.rpartition(":")[2] == "stages"]
    return found[0] if len(found) == 1 else None


def with_slots(sketch: Sketch, knob: str, indices: Any, slots: int) -> Any:
    """The same configurations with another number of slots."""
    positions = sketch.space.positions(indices)
    values = [entity.value for entity in sketch.space.space_map[knob]]
    positions[list(sketch.space.space_map).index(knob)] = values.index(slots)
    return sketch.space.indices(positions)


def predicted(sketch: Sketch, indices: Any) -> Any:
    """Seconds by the machine model; infinite for what a mask refuses or discourages."""
    seconds = np.full(len(indices), np.inf)
    for group in sketch.groups(indices):
        sensible = group.verdict.sensible(len(group.rows))
        seconds[group.rows] = np.where(sensible, predict_seconds(group), np.inf)
    return seconds


def members(sketch: Sketch, knob: str, drawn: int, count: int) -> list[list[Member]]:
    """Configurations, each with every number of slots that masks allow."""
    some = sketch.space.sample(drawn, np.random.default_rng(0))
    sizes = [entity.value for entity in sketch.space.space_map[knob]]
    by_slots = {n: np.array(with_slots(sketch, knob, some, n)) for n in sizes}
    model = {n: predicted(sketch, indices) for n, indices in by_slots.items()}
    chosen: dict[int, None] = {}  # rows; those that differ in their slots alone are one
    taken: set[int] = set()
    for slots in (sizes[0], sizes[min(2, len(sizes) - 1)]):
        found = 0
        for row in np.argsort(model[slots], kind="stable").tolist():
            plain = int(by_slots[sizes[0]][row])
            if found == count or not np.isfinite(model[slots][row]):
                break
            if plain not in taken:
                taken.add(plain)
                chosen[row] = None
                found += 1
    return [
        [
            Member(sketch, int(by_slots[n][row]), n, float(model[n][row]) * 1e6)
            for n in sizes
            if np.isfinite(model[n][row])
        ]
        for row in chosen
    ]


def compile_all(made: list[Member], target: Target) -> None:
    def one(member: Member) -> None:
        try:
            schedule = member.sketch.close(member.index)
            member.artifact = build_artifact(schedule, target)
        except TilewrightError as error:
            member.failed = str(error)

    with ThreadPoolExecutor() as threads:
        list(threads.map(one, made))


def timed(member: Member, on: Device, given: tuple[Case, Case], *, verify: bool) -> None:
    assert member.artifact is not None
    main, whole = given
    result: TrialResult = trial(
        member.artifact, on, main.inputs, main.expected if verify else None,
        main.tolerance if verify else None, also=(whole,) if verify else (),
        number=20, repeat=3, min_repeat_ms=2, race=False,
    )  # fmt: skip
    if result.error is not None:
        member.failed = f"{result.error}: {result.message}"
    else:
        member.us.append(statistics.median(result.costs) * 1e6)


def rows_of(name: str, target: Target, on: Device, drawn: int, count: int) -> list[dict[str, Any]]:
    task = search_tasks.task(name, target)
    given = cases(task.dag)
    rows = []
    for sketch in task.sketches:
        knob = knob_of(sketch)
        if knob is None:
            continue
        configurations = members(sketch, knob, drawn, count)
        flat = [member for row in configurations for member in row]
        compile_all(flat, target)
        for row in configurations:
            for member in row:
                if not member.failed:
                    timed(member, on, given, verify=True)
        right = [m for m in flat if not m.failed]
        leaders = {
            n: sorted((m for m in right if m.slots == n), key=lambda m: m.best_us)[:LEADERS]
            for n in RINGS
        }
        for _ in range(ROUNDS):
            for member in (m for few in leaders.values() for m in few):
                timed(member, on, given, verify=False)
        best = {n: min(few, key=lambda m: m.best_us) for n, few in leaders.items() if few}
        for member in best.values():
            assert member.artifact is not None
            told = thread_order.tried(member.artifact, on, given[1], member.best_us * 1e-6)
            if isinstance(told, TrialResult) and told.error is not None:
                member.failed = f"in turns: {told.message}"
            elif isinstance(told, str):
                print(f"  {sketch.origin}, {member.slots} slots: no turns, {told}")
        for failed in (m for m in flat if m.failed):
            print(f"  FAILED {sketch.origin} {failed.index}: {failed.failed}")
        ring = [m.best_us for n, m in best.items() if n and not m.failed]
        row: dict[str, Any] = {"task": name, "sketch": sketch.origin}
        for n, member in best.items():
            row[f"us_{n}"] = round(member.best_us, 2)
            row[f"model_{n}"] = round(member.model_us, 2)
        if ring and 0 in best:
            row["gain"] = round(best[0].best_us / min(ring), 3)
        row |= {"configurations": len(configurations), "failed": sum(bool(m.failed) for m in flat)}
        rows.append(row)
        print(row, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--drawn", type=int, default=8192)
    parser.add_argument("--only", default="", help="part of the names of the tasks to run")
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    on = device(options.target)
    target, rows = on.target, []
    for name in search_tasks.TASKS:
        if options.only in name:
            rows += rows_of(name, target, on, options.drawn, options.members)
    print(results_file.table(rows))
    results_file.append("copies", rows, on.name, folder=options.folder, members=options.members)


if __name__ == "__main__":
    main()
