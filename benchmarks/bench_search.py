"""How many candidates are judged, described and scored a second, on one core.

In: the AutoTVM tutorial's conv2d space (10,454,400 configurations), and all spaces of two tasks of
float16.  Out: a table, and an entry in `benchmarks/results/search.json`.

    PYTHONPATH=src:tests python benchmarks/bench_search.py
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import results_file
import search_tasks

from schedule import seed003
from tilewright.cost.features import FEATURES, features_and_seconds
from tilewright.cost.machine_model import predict_seconds
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task, create, task_of_dag
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.first_look import score_sensible
from tilewright.search.propose.model_proposer import ModelProposer, Plan
from tilewright.search.propose.proposers import Outcome
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

TREES_SEEN = 512  # rows that the scored model was trained on


def best_of(repeats: int, work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        began = time.process_time()  # of this process, whatever runs beside
        work()
        times.append(time.process_time() - began)
    return min(times)


def trained(sketch: Sketch, legal: np.ndarray) -> CostModel:
    """A model of the usual size, trained on made-up times."""
    model = CostModel()
    for group in sketch.groups(legal[:TREES_SEEN]):
        rows, machine = features_and_seconds(group)
        noise = np.random.default_rng(1).standard_normal(len(machine)) * 0.3
        model.add("bench", rows, machine, machine * np.exp(noise + rows[:, 9] * 0.1))
    model.fit()
    return model


def measure(population: int, repeats: int) -> list[dict[str, Any]]:
    task = create("tests/conv2d_no_batching", seed003.FLAGSHIP, "cuda")
    (sketch,) = task.sketches
    every = sketch.space.sample(population, np.random.default_rng(0))
    mask = sketch.legal(every)
    legal = every[mask]
    model = trained(sketch, legal)

    def described(indices: np.ndarray, score: bool) -> Callable[[], None]:
        def work() -> None:
            for group in sketch.groups(indices):
                rows, machine = features_and_seconds(group)
                if score:
                    model.predict(rows, machine)

        return work

    def modelled() -> None:
        for group in sketch.groups(every):
            predict_seconds(group)

    def searched() -> None:
        """What one batch costs: judge fresh candidates, describe the sensible, score, choose."""
        proposer = ModelProposer(task, 0, model)
        for _ in range(4):
            chosen = proposer.suggest(16)
            proposer.update([Outcome(c, 1e-4) for c in chosen])

    share = float(mask.mean())
    rows = []
    for what, count, work in (
        ("judged (all masks)", population, lambda: sketch.legal(every)),
        ("judged + machine model", population, modelled),
        ("judged + features + machine model", population, described(every, False)),
        ("judged + features + machine model + XGBoost", population, described(every, True)),
        ("the same, sensible ones only", len(legal), described(legal, True)),
        ("proposals of the tuner", 64, searched),
    ):
        seconds = best_of(repeats, work)
        sensible = count * share if count == population else count
        rows.append(
            {"what": what, "per_second": count / seconds, "sensible_per_second": sensible / seconds}
        )
    return rows


def measure_halves(population: int, repeats: int) -> list[dict[str, Any]]:
    """Spaces with matrix instructions, all sketches of a task.  large: the population of each is
    judged, described and scored; first look: of each a few thousand, structures made anew"""
    rows = []
    for name, tensors in (
        (
            "conv 3x3 512x7x7, NHWC",
            search_tasks.conv2d_bias_relu(512, 7, 512, 3, 1, "float16", 1, True),
        ),
        ("dense 1024x1024x1024", search_tasks.dense_bias(1024, 1024, 1024, "float16")),
    ):
        dag, target = ComputeDAG(tensors), Target("cuda -arch=sm_90")
        task = with_rules(task_of_dag(dag, target))
        drawn = [s.space.sample(population, np.random.default_rng(0)) for s in task.sketches]
        kept = sum(int(s.legal(each).sum()) for s, each in zip(task.sketches, drawn, strict=True))
        model = trained(task.sketches[0], drawn[0][task.sketches[0].legal(drawn[0])])

        def large(task: Task = task, drawn: Any = drawn, model: CostModel = model) -> None:
            for sketch, each in zip(task.sketches, drawn, strict=True):
                scored = score_sensible(sketch, each)
                model.predict(scored.features, scored.machine)

        def first(dag: ComputeDAG = dag, target: Target = target) -> None:
            ModelProposer(with_rules(task_of_dag(dag, target)), 0, CostModel()).suggest(16)

        count = sum(map(len, drawn))
        few = sum(min(s.space.range_length, Plan.first) for s in task.sketches)
        for what, judged, work in (("large", count, large), ("first look", few, first)):
            seconds = best_of(repeats, work)
            rows.append({
                "what": f"{name}, float16, {what}", "per_second": judged / seconds,
                "sensible_per_second": judged * kept / count / seconds,
            })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--population", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-save", action="store_true", help="only print")
    options = parser.parse_args()
    device = results_file.cpu_name()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = measure(options.population, options.repeats)
    rows += measure_halves(options.population, options.repeats)
    print(f"{len(FEATURES)} features, population {options.population:,}, one core")
    print(results_file.table(rows))
    if not options.no_save:
        notes = {"population": options.population, "cores_used": 1}
        print(results_file.append("search", rows, device, **notes))


if __name__ == "__main__":
    main()
