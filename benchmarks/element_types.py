"""Which operators were verified in which element type: one table per target.

In: a target kind of this machine.  Every operator of `OPERATORS` is built in every type it takes,
by its default schedule, by the template's own choice and by some drawn members of each sketch, and
its result compared with the reference.  Out: a table, and an entry in
`benchmarks/results/element_types.json`.

    PYTHONPATH=src:tests python benchmarks/element_types.py --target opencl
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import results_file

from codegen.typed_operators import OPERATORS
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import TilewrightError
from tilewright.driver.build import build_artifact
from tilewright.runtime.device import Device, device
from tilewright.runtime.trial import trial
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.rules.derive import with_rules
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

DRAWN = 1000  # configurations looked at for sensible ones


def schedules(task: Task, count: int) -> Iterator[tuple[str, Schedule]]:
    """The default, each sketch's own choice and `count` of its sensible members."""
    yield "default", task.default()
    for sketch in task.sketches:
        drawn = sketch.space.sample(DRAWN, np.random.default_rng(0))
        chosen = [int(i) for i in drawn[sketch.legal(drawn)][:count]]
        own = sketch.fallback()
        for index in dict.fromkeys(chosen if own is None else [own, *chosen]):
            yield f"{sketch.origin} {index}", sketch.close(index)


def verify(
    name: str, dtype: DType, on: Device, count: int, pool: ThreadPoolExecutor
) -> tuple[int, list[str]]:
    """How many schedules gave the right result, and what the others did."""
    make, _ = OPERATORS[name]
    try:
        dag = ComputeDAG(make(dtype))
        task = with_rules(task_of_dag(dag, on.target, name))
        inputs = random_inputs(dag, 7)
        expected, bound = evaluate_with_tolerance(dag, inputs)
    except TilewrightError as error:
        return 0, [f"{name} {dtype}: {error}"]
    chosen = list(schedules(task, count))
    built = [pool.submit(build_artifact, schedule, on.target) for _, schedule in chosen]
    right, wrong = 0, []
    for (origin, _), artifact in zip(chosen, built, strict=True):
        try:
            done = trial(artifact.result(), on, inputs, expected, bound, number=1, race=False)
            message = done.message if done.error else ""
        except Exception as error:  # a pass or printer that fails is what this looks for
            message = f"{type(error).__name__}: {error}"
        right += not message
        wrong += [f"{name} {dtype} {origin}: {message}"] if message else []
    return right, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda")
    parser.add_argument("--drawn", type=int, default=2, help="members of each sketch")
    parser.add_argument("--threads", type=int, default=1, help="that compile; 16 for cuda")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--operators", default=",".join(OPERATORS))
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    on = device(options.target)
    if not on.exist:
        sys.exit(f"there is no {options.target} device here")
    rows, failures = [], []
    began = time.monotonic()
    pool = ThreadPoolExecutor(options.threads)
    for dtype in map(DType, options.types.split(",")):
        row: dict[str, str] = {"type": dtype}
        for name in options.operators.split(","):
            if dtype not in OPERATORS[name][1]:
                row[name] = "-"
                continue
            right, wrong = verify(name, dtype, on, options.drawn, pool)
            row[name] = f"{right}" if not wrong else f"{right}/{right + len(wrong)}"
            failures += wrong
            for line in wrong[:2]:
                print(f"  {line[:400]}", flush=True)
        print(f"{dtype}: {time.monotonic() - began:.0f} s", flush=True)
        rows.append(row)
    print(f"right results per operator on {on.target}, out of all where some are not")
    print(results_file.table(rows))
    notes = {"target": str(on.target), "drawn": options.drawn, "failures": failures}
    print(results_file.append("element_types", rows, on.name, folder=options.folder, **notes))


if __name__ == "__main__":
    main()
