"""What knowledge is worth to a network that it never saw: tuned with it and without, side by side.

In: logs of other networks, networks.  Out: the network's time, as its best records add up (of a
convolution its faster implementation), at each mark of the run, and how good the first batch of
each task was; `results/knowledge_TARGET.json`.  Each run has a process of its own, an empty cache,
and nothing of what ships.

    PYTHONPATH=src python benchmarks/bench_knowledge.py squeezenet-1.1 --target cuda --seconds 60 \
        --seeds 2 --logs r18.jsonl r50.jsonl mobilenet.jsonl

With --replay LOG, of another network, nothing is measured: how well the trees of --logs order the
candidates of tasks that they never saw, beside the machine model alone.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import results_file

from tilewright.knowledge import store
from tilewright.measure.database import Database, readable
from tilewright.models.networks import load as load_model
from tilewright.network.tune import as_described, tasks_of, tune
from tilewright.runtime.device import device
from tilewright.search.propose.cost_model import CostModel, rank_correlation
from tilewright.search.propose.prior import trees_of
from tilewright.search.publish import TREE_OPTIONS, publish
from tilewright.search.report import Event, Options
from tilewright.search.transfer import described, recall, teach
from tilewright.targets.target import Target

MARKS = 6
FIRST = 16  # candidates: a first batch


@dataclass
class Run:
    """Best seconds of each task as time goes by; first: after its first batch.

    tasks: of each its family and its weight
    """

    tasks: list[tuple[str, int]]
    batch: int
    best: dict[int, float] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        if event.kind != "trial" or event.record is None:
            return
        at = event.task
        self.counts[at] = self.counts.get(at, 0) + 1
        if event.record.result.ok:
            self.best[at] = min(event.record.seconds, self.best.get(at, math.inf))
        if self.counts[at] <= self.batch and at in self.best:
            self.first[at] = self.best[at]
        fastest: dict[str, float] = {}
        for k, (family, weight) in enumerate(self.tasks):
            took = weight * self.best.get(k, math.inf)
            fastest[family] = min(took, fastest.get(family, math.inf))
        if math.isfinite(total := sum(fastest.values())):
            self.curve.append((event.elapsed, total))

    def at(self, seconds: float) -> float | None:
        """The network's time, as known then; None where some kernel had no result yet."""
        known = [total for elapsed, total in self.curve if elapsed <= seconds]
        return known[-1] if known else None

    def reached(self, total: float) -> float | None:
        """The seconds after which the network's time was known to be `total` or less."""
        return next((elapsed for elapsed, known in self.curve if known <= total), None)


def tuned(model: str, kind: str, seconds: float, seed: int) -> Run:
    store.SHIPPED = Path(tempfile.gettempdir()) / "none"
    target = as_described(Target(kind))
    mod, params = load_model(model)
    tasks = tasks_of([mod], params, target)
    options = Options(seconds=seconds, seed=seed)
    batch = options.sizes(target.device_kind.shares_host)[0]
    run = Run([(t.family, t.weight) for t in tasks], batch)
    with Database() as database:
        tune(tasks, database, options, run.tell)
    return run


def alone(said: str, *what: Any) -> Run:
    """`tuned`, in a fresh process with an empty cache; said: TILEWRIGHT_KNOWLEDGE."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"TILEWRIGHT_KNOWLEDGE": said, "TILEWRIGHT_CACHE": cache}
        fresh = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=fresh) as process:
            return process.submit(tuned, *what).result()


def compared(model: str, kind: str, seconds: float, folder: str, seed: int) -> dict[str, Any]:
    told = (("without", "off"), ("with", folder))
    in_turn = told if seed % 2 == 0 else told[::-1]
    runs = {name: alone(said, model, kind, seconds, seed) for name, said in in_turn}
    both = [k for k in runs["with"].first if k in runs["without"].first]
    ratios = [math.log(runs["without"].first[k] / runs["with"].first[k]) for k in both]
    row: dict[str, Any] = {
        "network": model,
        "seed": seed,
        "first_batch_gain": round(math.exp(sum(ratios) / max(len(ratios), 1)), 3),
    }
    for name, run in runs.items():
        row[f"trials_{name}"] = sum(run.counts.values())
    if (last := runs["without"].at(seconds)) is not None:
        row["with_reached_that_after_s"] = runs["with"].reached(last)
    for mark in range(1, MARKS + 1):
        when = seconds * mark / MARKS
        for name, run in runs.items():
            known = run.at(when)
            row[f"{when:.0f}s_{name}_us"] = None if known is None else round(known * 1e6, 1)
    return row


def replayed(logs: list[Path], held: Path) -> list[dict[str, Any]]:
    """A row for each task of `held` that `logs` do not have: rank correlation with what was
    measured, and the best of all by the best of the 16 that are predicted best."""
    known = readable(*logs)
    teacher, pupil = CostModel(TREE_OPTIONS), CostModel()
    teach(teacher, recall(known))
    pupil.begin_with(trees_of(teacher.booster))
    seen, rows = {t.dag for t in known.tasks()}, []
    for past in recall(readable(held)).told:
        if past.key.dag in seen:
            continue
        features, machine, seconds = described(past)
        good = np.isfinite(seconds)
        if good.sum() < FIRST:
            continue
        seconds, row = seconds[good], {"task": past.task.name, "trials": int(good.sum())}
        found = (("machine", np.log(machine)), ("trees", pupil.predict(features, machine)))
        for name, predicted in found:
            predicted = predicted[good]
            chosen = seconds[np.argsort(predicted, kind="stable")[:FIRST]]
            row[f"rank_{name}"] = round(rank_correlation(predicted, seconds), 3)
            row[f"best_of_{FIRST}_{name}"] = round(float(seconds.min() / chosen.min()), 3)
        rows.append(row)
    means = {n: round(float(np.mean([r[n] for r in rows])), 3) for n in rows[0] if n != "task"}
    return [*rows, {"task": "mean", **means}]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*")
    parser.add_argument("--replay", type=Path, metavar="LOG")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--logs", nargs="+", required=True, type=Path, help="of other networks")
    parser.add_argument("--seeds", type=int, default=1, help="so many runs of each, from seed 0")
    parser.add_argument("--folder", type=Path, help="where the results go")
    parser.add_argument("--commit")
    options = parser.parse_args()
    if options.replay is not None:
        rows = replayed(options.logs, options.replay)
        print(results_file.table(rows))
        results_file.append(
            "knowledge_replayed", rows, folder=options.folder, commit=options.commit,
            logs=[log.name for log in options.logs], held=options.replay.name,
        )  # fmt: skip
        return
    target = as_described(Target(options.target))
    with tempfile.TemporaryDirectory() as folder:
        published = publish(options.logs, folder).published
        rows = [
            compared(m, options.target, options.seconds, folder, seed)
            for m in options.models
            for seed in range(options.seeds)
        ]
    for row in rows:
        print("\n".join(f"{name:>20}  {value}" for name, value in row.items()))
    results_file.append(
        f"knowledge_{target.kind}", rows, device(target.kind).name, folder=options.folder,
        commit=options.commit, logs=[log.name for log in options.logs],
        taught=sum(p.taught for p in published),
    )  # fmt: skip


if __name__ == "__main__":
    main()
