"""Networks as a user tunes them, `tilewright tune`, then built with the log and without it.

In: names, the minutes of each.  Out: how long each takes with and without the log, timed in turn in
one process, what `tune` said it would, and onnxruntime's time on CPUs;
`results/tuned_over_untuned.json`.  Networks of PyTorch are exported to ONNX with random weights;
nothing is downloaded.

    PYTHONPATH=src:benchmarks python benchmarks/tuned_over_untuned.py --target llvm --minutes 2
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_file
import torch_networks

from tilewright.graph.samples import sample_inputs
from tilewright.models.networks import load as load_model
from tilewright.models.peers.engines import onnxruntime_benchmark
from tilewright.models.zoo import is_network
from tilewright.network.build import build
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target

EIGHT = (
    "resnet-18", "resnet-50", "mobilenet", "squeezenet-1.1", "torchvision/efficientnet_b0",
    "timm/vit_tiny_patch16_224", "bert-4x256", "torchvision/convnext_tiny",
)  # fmt: skip
ROUNDS = 30  # in turn, each of at least so many milliseconds
LEAST_MS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(EIGHT))
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--logs", type=Path, help="where they stay; default: they do not")
    parser.add_argument("--profile", action="store_true", help="print the kernels of both")
    parser.add_argument("--folder", type=Path, default=None, help="where the results go")
    parser.add_argument("--commit", help="what is measured, where there is no git")
    parser.add_argument("--name", default="tuned_over_untuned", help="of the results")
    options = parser.parse_args()
    on, rows, again = device(Target(options.target).kind), [], False
    with tempfile.TemporaryDirectory() as scratch:
        logs = options.logs or Path(scratch)
        logs.mkdir(parents=True, exist_ok=True)
        for name in options.models:
            rows.append(row_of(name, options, logs))
            print(rows[-1], flush=True)
            results_file.append(
                options.name, rows, on.name, folder=options.folder, again=again,
                commit=options.commit, minutes=options.minutes,
                cores=len(os.sched_getaffinity(0)),
            )  # fmt: skip
            again = True


def row_of(name: str, options: argparse.Namespace, logs: Path) -> dict[str, Any]:
    model = name if is_network(name) else str(exported(name, logs))
    log = logs / f"{name.replace('/', '-')}.{options.target}.jsonl"
    began = time.perf_counter()
    said = subprocess.run(
        [sys.executable, "-m", "tilewright", "tune", model, "--target", options.target,
         "--minutes", str(options.minutes), "--log", str(log)],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    took = time.perf_counter() - began
    print(said, flush=True)
    estimates = re.findall(r"network ([\d.]+) ms", said)
    mod, params = load_model(model)
    target, on = Target(options.target), device(Target(options.target).kind)
    inputs = sample_inputs(mod, params)
    libraries = [build(mod, target, params, schedules=s) for s in ([], str(log))]
    modules = [GraphModule(lib["default"](on)) for lib in libraries]
    for module in modules:
        module.run(**inputs)
    untuned, tuned = in_turn(modules, on)
    if options.profile:
        for library, module in zip(libraries, modules, strict=True):
            print(library.report, module.profile(), sep="\n", flush=True)
    # Each round compares two runs that are neighbours in time.
    ratios = sorted(t / u for u, t in zip(untuned, tuned, strict=True))
    row = {
        "network": name,
        "untuned_ms": round(statistics.median(untuned) * 1e3, 4),
        "tuned_ms": round(statistics.median(tuned) * 1e3, 4),
        "tuned_over_untuned": round(statistics.median(ratios), 4),
        "middle_half": [round(ratios[len(ratios) // 4], 4), round(ratios[-len(ratios) // 4], 4)],
        "tune_said_ms": float(estimates[-1]) if estimates else None,
        "tune_took_s": round(took, 1),
        "kernels": ", ".join(f"{n} {s}" for s, n in libraries[1].report.sources.items()),
        "kernels_untuned": ", ".join(f"{n} {s}" for s, n in libraries[0].report.sources.items()),
    }
    if Target(options.target).device_kind.shares_host:
        peer = onnxruntime_benchmark(mod, params, target, 5, 20)
        row["onnxruntime_ms"] = peer.result and round(peer.result.median * 1e3, 4)
    return row


def in_turn(modules: Sequence[GraphModule], on: Any) -> list[list[float]]:
    """Seconds of one run of each, round after round."""
    found: list[list[float]] = [[] for _ in modules]
    for _ in range(ROUNDS):
        for module, seconds in zip(modules, found, strict=True):
            seconds += module.benchmark(on, repeat=1, number=1, min_repeat_ms=LEAST_MS).results
    return found


def exported(name: str, folder: Path) -> Path:
    """The .onnx file of a network of PyTorch."""
    import torch

    path = folder / f"{name.replace('/', '-')}.onnx"
    if not path.exists():
        network = bert_4x256() if name == "bert-4x256" else torch_networks.load(name)
        torch.onnx.export(
            network.module, network.inputs, str(path), dynamo=True, external_data=False
        )
    return path


def bert_4x256() -> torch_networks.Network:
    """BERT of four layers of 256, 128 tokens."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024,
        return_dict=False, use_cache=False,
    )  # fmt: skip
    return torch_networks.Network(
        transformers.BertModel(config).eval(), (torch.randint(0, config.vocab_size, (1, 128)),)
    )


if __name__ == "__main__":
    main()
