"""Networks on a device: ours tuned, and other engines in the same run, kept as dated results.

In: names: a network of `tilewright bench`, MODEL.onnx, or one of PyTorch (`torch_networks.py`).
Out: latencies, errors, kernels with their share, printed and kept in `results/`.  What is known is
written after each step, and tuning goes on where its log ends, so a run may be killed at any time.

    tilewright tune resnet-18-v1 --target cuda --minutes 7 --log r18.jsonl
    python benchmarks/network.py resnet-18-v1 --log r18.jsonl
    python benchmarks/network.py vit-b-16 bert-base-128 --log nets.jsonl --minutes 5 --gpu 0

Each network runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import results_file
import torch_networks

from tilewright.cli.bench import NUMBER, REPEAT
from tilewright.cli.tables import KernelLine, Latency
from tilewright.graph.evaluate import largest_deviation
from tilewright.graph.samples import sample_inputs
from tilewright.measure.database import Database
from tilewright.models.networks import load as load_model
from tilewright.models.peers.engines import peer_times, reference
from tilewright.network.build import build
from tilewright.network.conversion import converted
from tilewright.network.tune import as_described, tasks_of, tune, with_layouts
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.search.report import Options
from tilewright.targets.target import Target

NAMES = torch_networks.HOW_TO


@dataclass(frozen=True)
class Case:
    """A network, what to give it, what it should compute; torch: the module it came from."""

    mod: Any
    params: dict[str, Any]
    inputs: Mapping[str, Any]
    expected: Sequence[np.ndarray]
    torch: torch_networks.Network | None = None


@dataclass(frozen=True)
class Row:
    """One engine.  error: largest difference by the largest output, None where it was not read."""

    latency: Latency
    error: float | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.latency.seconds) if self.latency.seconds else None

    def flat(self) -> dict[str, Any]:
        seconds = self.latency.seconds
        return {
            "engine": self.latency.engine,
            "median_us": None if self.median is None else round(self.median * 1e6, 2),
            "std_us": round(statistics.pstdev(seconds) * 1e6, 2) if seconds else None,
            "error": None if self.error is None else float(f"{self.error:.2g}"),
            "note": self.latency.note,
        }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help=f"of `tilewright bench`, or {NAMES}")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--log", required=True, help="of all networks")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"),
                        help="of contractions and what follows; of all in PyTorch")  # fmt: skip
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="of tuning, for each network, in the layouts it has; `tilewright tune` tries others",
    )
    parser.add_argument("--untuned", action="store_true", help="time it without the log, too")
    parser.add_argument("--peers", nargs="*", default=["eager", "eager-tf32", "compile",
                        "compile-tf32"], choices=list(torch_networks.PEERS),
                        help="for networks of PyTorch")  # fmt: skip
    parser.add_argument("--turns", type=int, default=0, help="for networks of `tilewright bench`: "
                        "time ours and the peers so often in turn; the quietest turn of each "
                        "counts")  # fmt: skip
    parser.add_argument("--gpu", help="its number, where there are several")
    parser.add_argument("--folder", type=Path, default=None, help="where the results go")
    parser.add_argument("--commit", help="what is measured, where there is no git")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE",
                        help="import this first")  # fmt: skip
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for name in options.preload:
            importlib.import_module(name)
        Bench(options.models[0], options).run()
        return 0
    environment = dict(os.environ)
    if options.gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = options.gpu
    failed = 0
    words = [w for w in sys.argv[1:] if w not in options.models]
    for model in options.models:
        failed += subprocess.call(
            [sys.executable, __file__, model, "--one", *words], env=environment
        ) != 0  # fmt: skip
    return min(failed, 1)


class Bench:
    """One network: each step adds rows, and what is known then is printed and written."""

    def __init__(self, model: str, options: argparse.Namespace) -> None:
        self.model, self.options = model, options
        halved = options.dtype != "float32"
        self.title = f"{model}_{options.dtype}" if halved else model
        self.target = as_described(Target(options.target))
        self.device = device(self.target.kind)
        self.rows: list[Row] = []
        self.kernels: list[dict[str, Any]] = []
        self.notes: dict[str, Any] = {}
        self.written = False

    def run(self) -> None:
        case = in_type(load(self.model), self.options.dtype)
        self.tell(f"{self.title} on {self.device.name} ({self.target})")
        slow, quick = [], []
        for name in self.options.peers if case.torch is not None else ():
            peer = torch_networks.PEERS[name]
            (slow if peer.mode else quick).append(peer)
        for peer in quick:
            self.keep(self.torch_peer(case, peer))
        if self.options.minutes:
            self.tune(case)
        if self.options.untuned:
            self.keep(self.ours("untuned", case, []))
        known = Database.load(self.options.log) if Path(self.options.log).exists() else None
        if self.options.turns:
            for row in self.in_turns(case, known):
                self.keep(row)
        else:
            if known is not None:
                self.keep(self.ours("tuned", case, known))
            for row in () if case.torch is not None else self.graph_peers(case):
                self.keep(row)
        for peer in slow:
            self.keep(self.torch_peer(case, peer))
        print(results_file.table([row.flat() for row in self.rows]), flush=True)

    def tune(self, case: Case) -> None:
        began = time.perf_counter()
        network, options = (
            ([case.mod], case.params, self.target),
            Options(seconds=self.options.minutes * 60),
        )
        tasks = with_layouts(tasks_of(*network), *network, options, rules=True)
        with Database(self.options.log) as database:
            report = tune(tasks, database, options)
        spent = time.perf_counter() - began
        failed = sum(t.failed for t in report.tasks)
        self.tell(f"tuned {spent:.0f} s, {report.trials} trials, {failed} failed")
        self.notes |= {"tuning_seconds": round(spent), "trials": report.trials, "failed": failed}

    def ours(self, engine: str, case: Case, schedules: Any) -> Row:
        library = build(case.mod, self.target, case.params, schedules=schedules)
        module = GraphModule(library["default"](self.device))
        module.run(**case.inputs)
        found = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
        times = module.benchmark(self.device, repeat=REPEAT, number=NUMBER, min_repeat_ms=20)
        counts = ", ".join(f"{n} {source}" for source, n in library.report.sources.items())
        alone = {k.first.name: k.median for k in module.profile().kernels}
        total = sum(alone[k.name] * k.count for k in library.report.kernels)
        lines = [KernelLine(k.label, k.count, k.flop, k.source, alone[k.name])
                 for k in library.report.kernels]  # fmt: skip
        lines.sort(key=lambda k: -(k.seconds or 0) * k.calls)
        self.kernels = [_kernel(line, total) for line in lines]
        self.notes |= {
            "kernel_sum_us": round(total * 1e6, 1),
            "launches": sum(k.count for k in library.report.kernels),
            "build_seconds": round(library.report.seconds, 1),
        }
        print(results_file.table(self.kernels))
        return Row(Latency(engine, tuple(times.results), f"kernels: {counts}"), error(found, case))

    def in_turns(self, case: Case, database: Database | None) -> list[Row]:
        """The quietest turn of each engine: on a shared machine nothing else compares."""
        quietest: dict[str, Row] = {}
        for _ in range(self.options.turns):
            ours = self.ours("untuned" if database is None else "tuned", case, database or [])
            for row in (ours, *self.graph_peers(case)):
                known = quietest.setdefault(row.latency.engine, row)
                if row.median is not None and (known.median is None or row.median < known.median):
                    quietest[row.latency.engine] = row
        return list(quietest.values())

    def graph_peers(self, case: Case) -> Iterator[Row]:
        """Those that run the exported graph."""
        for peer in peer_times(case.mod, case.params, self.target, NUMBER, REPEAT):
            seconds = tuple(peer.result.results) if peer.result is not None else ()
            yield Row(Latency(peer.engine, seconds, peer.note))

    def torch_peer(self, case: Case, peer: torch_networks.Peer) -> Row:
        import torch

        assert case.torch is not None
        engine, cuda = f"PyTorch {torch.__version__}: {peer.name}", self.target.kind == "cuda"
        try:
            found, seconds = torch_networks.measure(
                case.torch, peer, cuda, NUMBER, REPEAT, self.options.dtype
            )
        except Exception as failure:  # whatever a foreign engine fails with must not end the bench
            return Row(Latency(engine, (), f"it failed: {type(failure).__name__}: {failure}"[:300]))
        return Row(Latency(engine, tuple(seconds), peer.how(cuda)), error(found, case))

    def keep(self, row: Row) -> None:
        """Print what an engine did, and write all that is known."""
        self.rows.append(row)
        shown = row.flat()
        self.tell(", ".join(f"{k} {v}" for k, v in shown.items() if v is not None))
        results_file.append(
            f"network_{self.title.replace('/', '-')}_{self.target.kind}",
            [r.flat() for r in self.rows], self.device.name, folder=self.options.folder,
            commit=self.options.commit, again=self.written, **self.notes, kernels=self.kernels,
        )  # fmt: skip
        self.written = True

    def tell(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def load(model: str) -> Case:
    if torch_networks.is_known(model):
        return _of_torch(torch_networks.load(model))
    mod, params = load_model(model)
    inputs = sample_inputs(mod, params)
    return Case(mod, params, inputs, reference(mod, params, inputs).outputs)


def in_type(case: Case, dtype: str) -> Case:
    """The same network with contractions and what follows them in `dtype`."""
    if dtype == "float32":
        return case
    (mod,), params = converted([case.mod], case.params, dtype)
    return replace(case, mod=mod, params=params)


def _of_torch(network: torch_networks.Network) -> Case:
    import torch

    from tilewright_tvm.relay.frontend import from_exported_program

    with torch.no_grad():
        mod, params = from_exported_program(torch.export.export(network.module, network.inputs))
    names = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
    inputs = dict(zip(names, (x.numpy() for x in network.inputs), strict=True))
    return Case(mod, params, inputs, torch_networks.expected(network), network)


def error(found: Sequence[np.ndarray], case: Case) -> float:
    """The largest difference by the largest number of the same output."""
    pairs = zip(found, case.expected, strict=True)
    return max(largest_deviation(a, b) for a, b in pairs)


def _kernel(line: KernelLine, total: float) -> dict[str, Any]:
    assert line.seconds is not None
    return {
        "kernel": line.name,
        "calls": line.calls,
        "source": line.source,
        "us": round(line.seconds * 1e6, 2),
        "gflops": round(line.flop / line.seconds * 1e-9, 1),
        "share": round(line.seconds * line.calls / total, 3),
    }


if __name__ == "__main__":
    sys.exit(main())
