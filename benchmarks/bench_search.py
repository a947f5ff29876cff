"""How many candidates are judged, described and scored a second, on one core.

In: the AutoTVM tutorial's conv2d space (10,454,400 configurations).  Out: a table, and an entry in
`benchmarks/results/search.json`.  Run: `python benchmarks/bench_search.py`.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import results_file

from tilewright import te
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import create
from tilewright.schedule.template import get_config, template
from tilewright.search.cost_model import CostModel
from tilewright.search.features import FEATURES, features_and_seconds
from tilewright.search.machine_model import predict_seconds
from tilewright.search.model_proposer import ModelProposer
from tilewright.search.proposers import Outcome
from tilewright.te.tensor import Tensor

ARGS = (1, 7, 7, 512, 512, 3, 3, 1, 1)
TREES_SEEN = 512  # rows that the scored model was trained on


@template("bench/conv2d")
def conv2d(
    n: int, h: int, w: int, co: int, ci: int, kh: int, kw: int, stride: int, pad: int
) -> tuple[Schedule, list[Tensor]]:
    """The tutorial's schedule: tiles over blocks, virtual threads, threads; operands in shared."""
    data = te.placeholder((n, ci, h, w), name="data")
    kernel = te.placeholder((co, ci, kh, kw), name="kernel")
    padded = te.compute(
        (n, ci, h + 2 * pad, w + 2 * pad),
        lambda b, c, i, j: te.if_then_else(
            te.all(i >= pad, i < h + pad, j >= pad, j < w + pad), data[b, c, i - pad, j - pad], 0.0
        ),
        name="pad",
    )
    rc, ry, rx = (te.reduce_axis((0, e), r) for e, r in ((ci, "rc"), (kh, "ry"), (kw, "rx")))
    size = ((h + 2 * pad - kh) // stride + 1, (w + 2 * pad - kw) // stride + 1)
    conv = te.compute(
        (n, co, *size),
        lambda b, f, y, x: te.sum(
            padded[b, rc, y * stride + ry, x * stride + rx] * kernel[f, rc, ry, rx],
            axis=[rc, ry, rx],
        ),
        name="conv",
    )
    s = create_schedule([conv.op])
    _schedule(s, get_config(), conv, padded, kernel)
    return s, [data, kernel, conv]


def _schedule(s: Schedule, cfg: Any, conv: Tensor, padded: Tensor, kernel: Tensor) -> None:
    b, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    for name, axis in (("f", f), ("y", y), ("x", x)):
        cfg.define_split(f"tile_{name}", axis, num_outputs=4)
    for name, axis in (("rc", rc), ("ry", ry), ("rx", rx)):
        cfg.define_split(f"tile_{name}", axis, num_outputs=3)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])
    s[padded].compute_inline()
    local = s.cache_write(conv, "local")
    shared = [s.cache_read(t, "shared", [local]) for t in (padded, kernel)]
    registers = [s.cache_read(t, "local", [local]) for t in shared]
    b, f, y, x = s[conv].op.axis
    parts = [cfg[f"tile_{n}"].apply(s, conv, a) for n, a in (("f", f), ("y", y), ("x", x))]
    blocks, virtual, threads, inner = (list(level) for level in zip(*parts, strict=True))
    s[conv].reorder(b, *blocks, *virtual, *threads, *inner)
    for axes, tag in ((blocks, "blockIdx"), (threads, "threadIdx")):
        for axis, dim in zip(axes, "zyx", strict=True):
            s[conv].bind(axis, f"{tag}.{dim}")
    for axis in virtual:
        s[conv].bind(axis, "vthread")
    s[local].compute_at(s[conv], threads[-1])
    reduced = [
        cfg[f"tile_{n}"].apply(s, local, a)
        for n, a in zip(("rc", "ry", "rx"), s[local].op.reduce_axis, strict=True)
    ]
    outer, middle, innermost = (list(level) for level in zip(*reduced, strict=True))
    s[local].reorder(*outer, *middle, *innermost, *s[local].op.axis)
    for tensors, axis in ((shared, outer[-1]), (registers, middle[-1])):
        for tensor in tensors:
            s[tensor].compute_at(s[local], axis)
    for tensor in shared:
        left = s[tensor].fuse(*s[tensor].op.axis)
        for name, dim in zip("fyx", "zyx", strict=True):
            lane, left = s[tensor].split(left, nparts=cfg[f"tile_{name}"].size[2])
            s[tensor].bind(lane, f"threadIdx.{dim}")
    for key in ("auto_unroll_max_step", "unroll_explicit"):
        s[conv].pragma(b, key, cfg[key].val)


def best_of(repeats: int, work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def trained(sketch: Sketch, legal: np.ndarray, target: Any) -> CostModel:
    """A model of the usual size, trained on made-up times."""
    model = CostModel()
    for group in sketch.groups(legal[:TREES_SEEN]):
        rows, machine = features_and_seconds(group, target)
        noise = np.random.default_rng(1).standard_normal(len(machine)) * 0.3
        model.add("bench", rows, machine, machine * np.exp(noise + rows[:, 9] * 0.1))
    model.fit()
    return model


def measure(population: int, repeats: int) -> list[dict[str, Any]]:
    task = create("bench/conv2d", ARGS, "cuda")
    (sketch,) = task.sketches
    target = task.target
    every = sketch.space.sample(population, np.random.default_rng(0))
    mask = sketch.legal(every)
    legal = every[mask]
    model = trained(sketch, legal, target)

    def described(indices: np.ndarray, score: bool) -> Callable[[], None]:
        def work() -> None:
            for group in sketch.groups(indices):
                rows, machine = features_and_seconds(group, target)
                if score:
                    model.predict(rows, machine)

        return work

    def modelled() -> None:
        for group in sketch.groups(every):
            predict_seconds(group, target)

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--population", type=int, default=65536)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-save", action="store_true", help="only print")
    options = parser.parse_args()
    device = results_file.cpu_name()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = measure(options.population, options.repeats)
    print(f"{len(FEATURES)} features, population {options.population:,}, one core")
    print(results_file.table(rows))
    if not options.no_save:
        notes = {"population": options.population, "cores_used": 1}
        print(results_file.append("search", rows, device, **notes))


if __name__ == "__main__":
    main()
