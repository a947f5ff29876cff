"""What the history of other networks saves: trials to within 5% of the best, with it and without.

In: `results/layers_TARGET.csv.gz`: measured candidates of the 3x3 convolutions of some networks,
which `--collect` makes on a device.  Out: a table and an entry in `results/transfer_TARGET.json`.

    PYTHONPATH=src python benchmarks/bench_transfer.py --target cuda --collect --trials 600
    PYTHONPATH=src python benchmarks/bench_transfer.py --target cuda

The second command needs no device: a search plays over what was measured, choosing among those
candidates only.  For each layer of a network the history is that of the others, less the very same
computations, whose fastest are tried first, so that nothing is left to find; and less all layers of
the same shapes.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import results_file

from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Key
from tilewright.network.extract import fused_tasks
from tilewright.network.tune import as_described
from tilewright.schedule.task import Task
from tilewright.search.jobs import candidate_of, history
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import Candidate, Outcome, Past
from tilewright.search.report import BATCH, Options
from tilewright.search.transfer import History, teach
from tilewright.targets.target import Target
from tilewright_tvm import relay

NETWORKS = ("resnet-18", "resnet-50")
NEAR = 1.05
HALF = 0.5  # of the trials are drawn at random, so that the pool has more than what one model likes
FIELDS = ("network", "layer", "target", "origin", "decisions", "seconds")


@dataclass(frozen=True)
class Layer:
    """A task with all that was measured of it.  seconds: infinity for a failure"""

    network: str
    task: Task
    pool: dict[Candidate, float]

    @property
    def best(self) -> float:
        return min(self.pool.values())


def layers_of(network: str, target: Target) -> list[Task]:
    """The distinct 3x3 convolutions of a network."""
    mod, params = relay.testing.get_network(network)
    return [
        task for task in fused_tasks(mod, params, target)
        if any(t.shape[-2:] == (3, 3) and len(t.shape) == 4 for t in task.dag.placeholders)
    ]  # fmt: skip


def collect(path: Path, target: Target, trials: int, minutes: float) -> None:
    """Measure `trials` candidates of each layer, and add them to the file."""
    known = {(row["network"], row["layer"]) for row in _rows(path)}
    ends = time.monotonic() + minutes * 60
    for network in NETWORKS:
        for k, task in enumerate(layers_of(network, target)):
            layer = _label(k, task)
            if (network, layer) in known or time.monotonic() > ends:
                continue
            database = Database()
            with (
                LocalBuilder() as builder,
                LocalRunner(number=4, repeat=3, min_repeat_ms=20) as runner,
                Pipeline(builder, runner, database) as pipeline,
            ):
                for tuner, count in (("random", round(trials * HALF)), ("xgb", trials)):
                    left = count - len(database)
                    options = Options(trials=left, tuner=tuner, leaders=0, negligible=0)
                    tune([task], pipeline, database, options)
            rows = [
                (network, layer, str(target), outcome.candidate.sketch.origin,
                 json.dumps(record.decisions), f"{outcome.seconds:.4g}")
                for outcome, record in history(task, database)
                if not outcome.ok or record.result.verified
            ]  # fmt: skip
            with gzip.open(path, "at", newline="") as file:
                csv.writer(file).writerows(rows)
            print(f"{network:10} {layer:40} {len(rows)} candidates", flush=True)


def load(path: Path) -> list[Layer]:
    """The layers that were measured; candidates that the templates no longer have are left out."""
    found: dict[tuple[str, str], Layer] = {}
    tasks: dict[tuple[str, str], Task] = {}
    for row in _rows(path):
        key = row["network"], row["layer"]
        if key not in tasks:
            target = Target(row["target"])
            every = layers_of(row["network"], target)
            tasks |= {(row["network"], _label(k, task)): task for k, task in enumerate(every)}
        task = tasks[key]
        layer = found.setdefault(key, Layer(row["network"], task, {}))
        candidate = candidate_of(task, row["origin"], json.loads(row["decisions"]))
        if candidate is not None:
            layer.pool[candidate] = float(row["seconds"])
    return [layer for layer in found.values() if np.isfinite(min(layer.pool.values(), default=1e9))]


def play(layer: Layer, past: History | None, seed: int) -> int:
    """Trials until a search over the pool is within 5% of its best."""
    model = CostModel(ModelOptions(seed=seed))
    if past is not None:
        teach(model, past)
    proposer = ModelProposer(layer.task, seed, model)
    for pool in proposer.pools:
        mine = sorted(c.index for c in layer.pool if c.sketch is pool.sketch)
        pool.listed = np.array(mine, np.int64)
    batch = BATCH[layer.task.target.device_kind.shares_host]
    spent = 0
    while chosen := proposer.suggest(batch):
        for k, candidate in enumerate(chosen):
            if layer.pool[candidate] <= NEAR * layer.best:
                return spent + k + 1
        proposer.update([Outcome(c, layer.pool[c]) for c in chosen])
        model.fit()
        spent += len(chosen)
    return spent


def rows_of(layers: Sequence[Layer], seeds: int) -> Iterator[dict[str, Any]]:
    for layer in layers:
        others = [one for one in layers if one.network != layer.network]
        unlike = [one for one in others if one.task.key != layer.task.key]
        elsewhere = [one for one in unlike if _shapes(one.task) != _shapes(layer.task)]
        spent = [
            statistics.median(play(layer, past, seed) for seed in range(seeds))
            for past in (None, _told(unlike), _told(elsewhere))
        ]
        yield {
            "network": layer.network, "layer": _label(0, layer.task)[3:],
            "same_elsewhere": len(others) - len(unlike), "pool": len(layer.pool),
            "best_us": layer.best * 1e6, "trials_without": spent[0], "trials_with": spent[1],
            "trials_with_other_shapes": spent[2], "ratio": spent[1] / spent[0],
            "ratio_other_shapes": spent[2] / spent[0],
        }  # fmt: skip


def _told(layers: Sequence[Layer]) -> History:
    """What models are taught of layers."""
    found = History()
    for one in layers:
        outcomes = [Outcome(c, seconds) for c, seconds in one.pool.items()]
        found.told.append(Past(one.task, Key(one.task.key, str(one.task.target)), outcomes))
    return found


def _shapes(task: Task) -> list[tuple[int, ...]]:
    """Of data and weights."""
    return [op.shape for op in task.dag.placeholders[:2]]


def _label(number: int, task: Task) -> str:
    shapes = ["x".join(map(str, t.shape)) for t in task.dag.placeholders if len(t.shape) == 4]
    return f"{number:2} {' '.join(shapes)} -> {'x'.join(map(str, task.dag.outputs[0].shape))}"


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file, FIELDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--collect", action="store_true", help="measure; needs the device")
    parser.add_argument("--trials", type=int, default=600, help="of each layer, with --collect")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no layer after so long")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--layers", type=Path, help="the file, instead of the one in results/")
    parser.add_argument("--no-save", action="store_true", help="only print")
    options = parser.parse_args()
    kind = Target(options.target).kind
    path = options.layers or results_file.RESULTS / f"layers_{kind}.csv.gz"
    if options.collect:
        collect(path, as_described(Target(options.target)), options.trials, options.minutes)
        return
    layers = load(path)
    if not layers:
        parser.error(f"there is no {path}: --collect makes it")
    rows = list(rows_of(layers, options.seeds))
    print(results_file.table(rows))
    medians = {
        network: [
            statistics.median(r[key] for r in rows if r["network"] == network)
            for key in ("ratio", "ratio_other_shapes")
        ]
        for network in dict.fromkeys(r["network"] for r in rows)
    }
    for network, (every, other) in medians.items():
        print(
            f"{network}: {every:.2f} of the trials with the others' history, {other:.2f} with that "
            "of other shapes (median of its layers)"
        )
    if not options.no_save:
        device = str(layers[0].task.target)
        notes = {"seeds": options.seeds, "medians": medians}
        print(results_file.append(f"transfer_{kind}", rows, device, **notes))


if __name__ == "__main__":
    main()
