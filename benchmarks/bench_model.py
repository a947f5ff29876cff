"""How well the machine model, and trees of other networks, order what was measured.

In: logs of searches, one for each network.  Out: a table, by kinds of kernels.  Of each computation
the ten fastest and some others count; trees learn from the other logs what is not among the
computations of this one.

    PYTHONPATH=src python benchmarks/bench_model.py LOG LOG [LOG...]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import results_file

from tilewright.base.errors import TilewrightError
from tilewright.cost.features import describe, with_atoms
from tilewright.measure.database import Database
from tilewright.measure.record import Record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.search.propose.cost_model import CostModel
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

LEAST = 24  # candidates of a computation
FASTEST = 10  # that are looked at of each, and `OTHERS`
OTHERS = 50
FIRST = (1, 4, 8)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    """What was measured of a computation.  features: [n, ...], machine, seconds: [n]"""

    log: int
    key: str
    features: npt.NDArray[np.float32]
    machine: Vector
    seconds: Vector

    @property
    def kind(self) -> str:
        return "matrix units" if with_atoms(self.features).mean() > 0.5 else "others"


def layers_of(log: int, path: Path) -> list[Layer]:
    database, found = Database.load(path), []
    for task in database.tasks():
        records = [r for r in database.query(task) if r.result.ok and r.result.same_as is None]
        records.sort(key=lambda r: r.seconds)
        if len(records) < LEAST:
            continue
        rest = records[FASTEST:]
        drawn = np.random.default_rng(0).permutation(len(rest))[:OTHERS]
        rows = [
            (r, described(database, r)) for r in (*records[:FASTEST], *(rest[k] for k in drawn))
        ]
        known = [(r.seconds, *row) for r, row in rows if row is not None]
        seconds, features, machine = zip(*known, strict=True)
        found.append(
            Layer(
                log, task.dag, np.concatenate(features), np.concatenate(machine), np.array(seconds)
            )
        )
    return found


def described(database: Database, record: Record) -> tuple[Any, Vector] | None:
    """Features and machine seconds; None of a record that does not replay."""
    try:
        dag = ComputeDAG.from_json(database.dag_of(record))
        bounds = LoopTree(Schedule.replay(dag, record.steps)).bounds()
    except TilewrightError:
        return None
    return describe(Resources(bounds, Target(record.task.target)), 1)


def by_others(layers: list[Layer]) -> list[Vector]:
    """Predicted seconds of each, by trees that saw none of its network."""
    keys = defaultdict(set)
    for layer in layers:
        keys[layer.log].add(layer.key)
    models: dict[int, CostModel] = {}
    for log, own in keys.items():
        models[log] = CostModel()
        for other in layers:
            if other.log != log and other.key not in own:
                name = f"{other.log} {other.key}"
                models[log].add(name, other.features, other.machine, other.seconds)
        models[log].fit()
    return [np.exp(models[one.log].predict(one.features, one.machine)) for one in layers]


def rows_of(name: str, layers: list[Layer], predicted: list[Vector]) -> list[dict[str, Any]]:
    """rank: correlation of ranks; first N: the best of all over the best of the N that are
    predicted to be the fastest; ratio: predicted over measured.  Means over computations."""
    told: dict[str, list[list[float]]] = defaultdict(list)
    for layer, said in zip(layers, predicted, strict=True):
        order = np.argsort(said, kind="stable")
        best = [layer.seconds.min() / layer.seconds[order[:n]].min() for n in FIRST]
        ranks = (np.argsort(np.argsort(x)) for x in (said, layer.seconds))
        told[layer.kind].append(
            [np.corrcoef(*ranks)[0, 1], *best, float(np.median(said / layer.seconds))]
        )
    heads = ("rank", *(f"first {n}" for n in FIRST), "ratio")
    return [
        {"by": name, "kernels": kind, "computations": len(values)}
        | dict(zip(heads, np.mean(values, 0).round(3).tolist(), strict=True))
        for kind, values in sorted(told.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", nargs="+", type=Path)
    options = parser.parse_args()
    layers = [one for at, path in enumerate(options.logs) for one in layers_of(at, path)]
    rows = rows_of("machine model", layers, [one.machine for one in layers])
    if len(options.logs) > 1:
        rows += rows_of("trees of the other logs", layers, by_others(layers))
    print(results_file.table(rows))


if __name__ == "__main__":
    main()
