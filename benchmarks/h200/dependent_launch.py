"""Networks whose kernels begin before the one before has ended, that ask for weights ahead, and the
same without.

In: networks by what ships, nothing tuned, by default ResNet-18 in float32 and a chain of small
dense layers.  Each is built in all ways; the modules run in turn, in one process, and their outputs
are compared with the network in float64.  Out: a table, and an entry in
`results/dependent_launch.json`.

    PYTHONPATH=src:benchmarks python benchmarks/h200/dependent_launch.py --rounds 15
    PYTHONPATH=src:benchmarks python benchmarks/h200/dependent_launch.py resnet-50 vit-b-16 \\
      --dtype float16

plain:  kernels without the instructions, launched each after the one before it
text:   kernels that wait themselves, launched likewise: what the text alone costs
on:     the same kernels, launched so that each begins when all blocks of the one before have ended
early:  kernels that let the one behind begin as soon as they wait for nothing themselves
ask:    plain, or on, with weights asked for ahead
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from results_file import append, table

import network as benched
from tilewright.base.environment import ASK_AHEAD, DEPENDENT_LAUNCH
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Array, IRModule
from tilewright.graph.samples import sample_inputs
from tilewright.models.networks import load
from tilewright.network.build import build
from tilewright.runtime.device import Device, device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright_tvm import relay

Network = tuple[IRModule, dict[str, Array]]
WAYS = {  # how it is built, and prepared
    "plain": ("off", "off", "off"), "plain_ask": ("off", "off", "on"),
    "text": ("on", "off", "off"), "on": ("on", "on", "off"), "on_ask": ("on", "on", "on"),
    "early": ("early", "early", "off"),
}  # fmt: skip
INPUTS, NUMBER = 8, 50
OFF = {"float32": 1e-3, "float16": 1e-2}  # of the largest value, at most


def chain(layers: int = 24, width: int = 512) -> Network:
    """Dense layers with relu, of one row: each kernel takes about as long as its launch."""
    rng = np.random.default_rng(0)
    x, params = relay.var("data", shape=(1, width)), dict[str, Array]()
    data = x
    for k in range(layers):
        weight = relay.var(f"w{k}", shape=(width, width))
        params[f"w{k}"] = (rng.standard_normal((width, width)) * (2 / width) ** 0.5).astype("f4")
        x = relay.nn.relu(relay.nn.dense(x, weight))
    weights = [v for v in relay.analysis.free_vars(x) if v.name_hint in params]
    return IRModule.from_expr(relay.Function([data, *weights], x)), params


@contextmanager
def switched(launch: str, ask: str = "off") -> Iterator[None]:
    before = {name: os.environ.get(name) for name in (DEPENDENT_LAUNCH, ASK_AHEAD)}
    os.environ |= {DEPENDENT_LAUNCH: launch, ASK_AHEAD: ask}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ |= {} if value is None else {name: value}


def modules_of(network: Network, on: Device) -> dict[str, GraphModule]:
    """A module for each way, with its launches prepared."""
    mod, params = network
    libraries: dict[str, Library] = {}
    for value in ("off", "on", "early"):
        with switched(value):
            libraries[value] = build(mod, on.target, params)
    checks = [k.verified for library in libraries.values() for k in library.report.kernels]
    assert all(checks), "a kernel was not verified"
    made = {}
    for way, (built, *prepared) in WAYS.items():
        module = GraphModule(libraries[built]["default"](on))
        with switched(*prepared):  # asked when the first run is prepared
            module.run(**sample_inputs(mod, params))
        made[way] = module
    return made


def outputs(module: GraphModule, inputs: dict[str, Array]) -> Array:
    module.run(**inputs)
    return np.array(module.get_output(0).numpy())


def compare(
    network: Network, modules: dict[str, GraphModule], dtype: str, inputs: int = INPUTS
) -> float:
    """The largest difference from float64, of the largest value.  Raises where it is too large."""
    mod, params = network
    worst = 0.0
    for seed in range(inputs):
        given = sample_inputs(mod, params, seed)
        want = np.asarray(evaluate(mod, {**params, **given}, "float64"))
        scale = float(np.abs(want).max())
        for way, module in modules.items():
            found = outputs(module, given)
            off = float(np.abs(found - want).max()) / scale
            assert off < OFF[dtype], f"{way} is off by {off:.2g} of the largest value"
            worst = max(worst, off)
    return worst


def row(name: str, network: Network, on: Device, rounds: int, dtype: str) -> dict[str, Any]:
    modules = modules_of(network, on)
    worst = compare(network, modules, dtype, INPUTS if dtype == "float32" else 1)
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, module in modules.items():
            timed = module.benchmark(on, repeat=1, number=NUMBER, min_repeat_ms=20)
            taken[way].append(timed.median * 1e6)
    compare(network, modules, dtype, 1)
    us = {way: statistics.median(each) for way, each in taken.items()}
    return {
        "network": name, "launches": len(modules["early"].loaded.library.plan.launches),
        **{f"{way}_us": round(us[way], 2) for way in WAYS},
        "on_ask_over_plain": round(us["on_ask"] / us["plain"], 4),
        "error": f"{worst:.1e}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="as of `network.py`")
    parser.add_argument("--dtype", default="float32", choices=tuple(OFF), help="of `models`")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    on = device("cuda")
    if not on.exist or not on.driver.launches_early:
        sys.exit("there is no CUDA device that launches kernels early")
    networks = {"resnet-18-v1": lambda: load("resnet-18-v1"), "24 dense layers of 512": chain}
    if options.models:
        networks = {name: partial(read, name, options.dtype) for name in options.models}
    rows = []
    for name, make in networks.items():
        rows.append(row(name, make(), on, options.rounds, options.dtype))
        append("dependent_launch", rows, on.name, folder=options.folder, again=len(rows) > 1,
               dtype=options.dtype)  # fmt: skip
    print(f"{on.name}; medians of {options.rounds} rounds in turn")
    print(table(rows))


def read(name: str, dtype: str) -> Network:
    case = benched.in_type(benched.load(name), dtype)
    return case.mod, case.params


if __name__ == "__main__":
    main()
