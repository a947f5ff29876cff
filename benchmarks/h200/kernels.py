"""ResNet-18's convolutions on a GPU: the templates' best of N configurations against cuDNN.

Convolution + bias + ReLU, batch 1, float32 (no TF32), weights constant.  Candidates are drawn from
each template's space and ranked by closed-form models, compiled in a pool of processes, verified
against the float64 reference and timed by replaying a graph in a process of its own: a candidate
that poisons the device costs itself and a restart.

    PYTHONPATH=src python3.12 benchmarks/h200/kernels.py --samples 64 --layers 10,0
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from resnet18_layers import LAYERS, Layer, dag_of
from results_file import append, table

from tilewright.base.errors import TilewrightError
from tilewright.cost.machine_model import predict_seconds
from tilewright.driver.build import build_payload, payload_of
from tilewright.runtime.device import device
from tilewright.runtime.trial import trial
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

COMPILE_SECONDS = 30.0
TRIAL_SECONDS = 20.0
DRAWN = 40_000  # configurations looked at per template
FINALISTS = 4


# -- candidates ------------------------------------------------------------------------------------


@dataclass
class Candidate:
    layer: int
    origin: str
    index: int
    config: str
    predicted: dict[str, float]  # seconds, by model
    payload: dict[str, Any]
    us: float = float("inf")
    error: str = ""
    artifact: Any = None
    compile_seconds: float = 0.0


def model_seconds(sketch: Sketch, indices: Any) -> Any:
    """Seconds by the machine model, infinite where a mask refuses."""
    seconds = np.full(len(indices), np.inf)
    for group in sketch.groups(indices):
        good = group.verdict.sensible(len(group.rows))
        seconds[group.rows] = np.where(good, predict_seconds(group), np.inf)
    return seconds


def candidates_of(
    number: int, dag: ComputeDAG, target: Target, count: int, seed: int
) -> list[Candidate]:
    """The best by the model, the rest drawn from the best twentieth, and what runs untuned."""
    found = []
    for sketch in anchor_sketches(dag, target):
        rng = np.random.default_rng(seed)
        drawn = sketch.space.sample(DRAWN, rng)
        drawn = drawn[sketch.legal(drawn)]
        seconds = model_seconds(sketch, drawn)
        order = np.argsort(seconds, kind="stable")
        chosen = dict.fromkeys(order[: count // 2].tolist())
        for row in rng.permutation(order[: max(count, len(order) // 20)]):
            if len(chosen) >= count:
                break
            chosen[int(row)] = None
        rows = [(int(drawn[r]), {"model": float(seconds[r])}) for r in chosen]
        untuned = sketch.fallback()
        if untuned is not None:
            rows.append((untuned, {}))
        for index, predicted in rows:
            payload = payload_of(sketch.close(index), f"conv{number}_{index}")
            config = str(sketch.space.get(index)).rpartition(",,")[0]
            found.append(Candidate(number, sketch.origin, index, config, predicted, payload))
    return found


# -- processes -------------------------------------------------------------------------------------


def serve(pipe: Connection, function: Callable[..., Any]) -> None:
    """Answer ("ok", value) or ("error", text) to each tuple of arguments until told None."""
    while (request := pipe.recv()) is not None:
        try:
            answer = ("ok", function(*request))
        except TilewrightError as error:
            answer = ("error", f"{type(error).__name__}: {error}")
        except Exception:
            answer = ("error", traceback.format_exc(limit=3))
        pipe.send(answer)


class Worker:
    """A process that answers one request at a time; another takes its place when it dies."""

    def __init__(self, function: Callable[..., Any], limit: float) -> None:
        self.function, self.limit = function, limit
        self.process: Any = None
        self.job: Any = None

    def start(self) -> None:
        context = mp.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.function), daemon=True)
        self.process.start()
        theirs.close()

    def submit(self, job: Any, *request: Any) -> None:
        if self.process is None:
            self.start()
        self.job, self.since = job, time.monotonic()
        self.pipe.send(request)

    def result(self) -> tuple[str, Any]:
        """Of the job in flight; waits for it no longer than its limit."""
        left = self.since + self.limit - time.monotonic()
        try:
            if not self.pipe.poll(max(left, 0)):
                raise EOFError(f"no answer after {self.limit:.0f} s")
            answer: tuple[str, Any] = self.pipe.recv()
        except (EOFError, OSError) as error:
            self.stop()
            answer = ("error", f"process lost: {error or 'it ended'}")
        self.job = None
        return answer

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = None


def compiled(jobs: list[Candidate], target: Target, processes: int) -> Iterator[Candidate]:
    """The candidates with their artefacts or errors, as they get done."""
    pending, workers = jobs[::-1], [Worker(compile_job, COMPILE_SECONDS) for _ in range(processes)]
    busy: list[Worker] = []
    try:
        while pending or busy:
            for worker in workers:
                if pending and worker.job is None:
                    job = pending.pop()
                    worker.submit(job, job.payload, target)
                    busy.append(worker)
            wait([w.pipe for w in busy], timeout=1.0)
            for worker in list(busy):
                late = time.monotonic() - worker.since > worker.limit
                if late or worker.pipe.poll():
                    job = worker.job
                    state, value = worker.result()
                    busy.remove(worker)
                    if state == "ok":
                        job.artifact, job.compile_seconds = value
                    else:
                        job.error = f"compile: {value}"
                    yield job
    finally:
        for worker in workers:
            worker.stop()


def compile_job(payload: dict[str, Any], target: Target) -> tuple[Any, float]:
    began = time.perf_counter()
    return build_payload(payload, target), time.perf_counter() - began


_HELD: dict[int, tuple[Any, Any, Any]] = {}  # of the device process: inputs, results, tolerances


def device_job(
    kind: str, number: int, artifact: Any, best: float | None, repeat: int, folder: str
) -> tuple[float, str]:
    """(median seconds of one run, error): verified, then timed unless it is far behind `best`."""
    if number not in _HELD:
        _HELD.clear()
        with np.load(Path(folder) / f"layer{number}.npz") as data:
            parts = [[data[f"{k}{i}"] for i in range(int(data[f"n_{k}"]))] for k in "iet"]
        _HELD[number] = tuple(parts)  # type: ignore[assignment]
    inputs, expected, tolerance = _HELD[number]
    done = trial(
        artifact, device(kind), inputs, expected, tolerance, best,
        number=20, repeat=repeat, min_repeat_ms=1,
    )  # fmt: skip
    if done.fatal:
        os._exit(1)
    return (statistics.median(done.costs) if done.costs else float("inf")), done.message


def save_reference(number: int, dag: ComputeDAG, folder: Path) -> None:
    inputs = random_inputs(dag, 7)
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    arrays: dict[str, Any] = {}
    for key, values in (("i", inputs), ("e", expected), ("t", tolerance)):
        arrays[f"n_{key}"] = len(values)
        arrays |= {f"{key}{i}": v for i, v in enumerate(values)}
    np.savez(folder / f"layer{number}.npz", **arrays)


# -- the peer --------------------------------------------------------------------------------------


def cudnn_job(layer: Layer) -> dict[str, float]:
    """Microseconds of cuDNN's best plan for convolution + bias + ReLU, without and with TF32."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    times = {}
    for name, allowed in (("fp32", False), ("tf32", True)):
        torch.backends.cudnn.allow_tf32 = allowed
        torch.backends.cuda.matmul.allow_tf32 = allowed
        best = float("inf")
        for form in (torch.contiguous_format, torch.channels_last):
            x = torch.randn(1, layer.ci, layer.size, layer.size, device="cuda")
            w = torch.randn(layer.co, layer.ci, layer.kernel, layer.kernel, device="cuda")
            b = torch.randn(layer.co, device="cuda")
            x, w = x.to(memory_format=form), w.to(memory_format=form)
            pair = ([layer.stride] * 2, [layer.padding] * 2, [1, 1])
            for fused in (True, False):

                def run(
                    x: Any = x, w: Any = w, b: Any = b, fused: bool = fused, pair: Any = pair
                ) -> Any:
                    if fused:
                        return torch.cudnn_convolution_relu(x, w, b, *pair, 1)
                    return torch.relu_(torch.nn.functional.conv2d(x, w, b, *pair))

                best = min(best, replayed(torch, run))
        times[name] = best
    return times


def replayed(torch: Any, run: Callable[[], Any], calls: int = 20, samples: int = 30) -> float:
    """Microseconds of one call in a graph of `calls`, the median over `samples` replays."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    graph.replay()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return statistics.median(times)


# -- the run ---------------------------------------------------------------------------------------


@dataclass
class Progress:
    """The state of one layer."""

    layer: Layer
    peer: dict[str, float] = field(default_factory=dict)
    done: list[Candidate] = field(default_factory=list)
    right: int = 0

    @property
    def best(self) -> float | None:
        times = [c.us for c in self.done if not c.error]
        return min(times) * 1e-6 if times else None


def measure(
    work: dict[int, Progress], jobs: list[Candidate], arguments: Any, target: Target, folder: Path
) -> None:
    worker = Worker(device_job, TRIAL_SECONDS)
    began = time.monotonic()

    def time_one(c: Candidate, best: float | None, repeat: int) -> tuple[float, str]:
        worker.submit(c, arguments.device, c.layer, c.artifact, best, repeat, str(folder))
        state, value = worker.result()
        return value if state == "ok" else (float("inf"), str(value))

    try:
        for c in compiled(jobs, target, arguments.processes):
            state = work[c.layer]
            if not c.error:
                seconds, c.error = time_one(c, state.best, 3)
                c.us = seconds * 1e6
            state.done.append(c)
            if c.error and arguments.verbose:
                print(f"{state.layer} {c.index} {c.config}\n   {c.error}", flush=True)
            if time.monotonic() - began > arguments.seconds:
                print("time is up: the remaining candidates are not measured", flush=True)
                break
        for state in work.values():
            leaders = sorted((c for c in state.done if not c.error), key=lambda c: c.us)[:FINALISTS]
            for c in leaders:
                seconds, c.error = time_one(c, None, 30)
                c.us = seconds * 1e6
    finally:
        worker.stop()


def peers(work: dict[int, Progress]) -> None:
    worker = Worker(cudnn_job, 60.0)
    try:
        for state in work.values():
            worker.submit(state, state.layer)
            status, value = worker.result()
            state.peer = value if status == "ok" else {}
            if status != "ok":
                print(f"cuDNN on {state.layer}: {value}", flush=True)
    finally:
        worker.stop()


def row_of(state: Progress) -> dict[str, Any]:
    good = sorted((c for c in state.done if not c.error), key=lambda c: c.us)
    ours = good[0].us if good else float("nan")
    fp32 = state.peer.get("fp32", float("nan"))
    return {
        "layer": str(state.layer),
        "cudnn_us": fp32,
        "cudnn_tf32_us": state.peer.get("tf32", float("nan")),
        "ours_us": ours,
        "times_faster": fp32 / ours,
        "tflops": state.layer.mflop / ours,
        "right": len(good),
        "failed": len(state.done) - len(good),
        "count": state.layer.count,
    }


def resource(c: Candidate, name: str) -> list[int]:
    """What the compiler said of each kernel."""
    return [v.get(name, 0) for v in c.artifact.resources.values()] if c.artifact else []


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--samples", type=int, default=64, help="configurations per template and layer"
    )
    parser.add_argument(
        "--layers", default="", help="numbers of the layers, comma-separated (default: all)"
    )
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--seconds", type=float, default=180.0, help="time for compiling and measuring"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda", choices=("cuda", "opencl"))
    parser.add_argument("--no-peers", action="store_true", help="leave cuDNN out")
    parser.add_argument("--verbose", action="store_true", help="print what failed")
    arguments = parser.parse_args()
    numbers = [int(n) for n in arguments.layers.split(",") if n] or list(range(len(LAYERS)))
    on = device(arguments.device)
    target, name = on.target, on.name
    began = time.monotonic()
    folder = Path(os.environ.get("OUT", "") or Path(__file__).resolve().parents[1] / "results")
    scratch = folder / "kernels-inputs"
    scratch.mkdir(parents=True, exist_ok=True)
    work = {n: Progress(LAYERS[n]) for n in numbers}
    if arguments.device == "cuda" and not arguments.no_peers:
        peers(work)
        print(f"cuDNN: {time.monotonic() - began:.0f} s", flush=True)
    jobs: list[Candidate] = []
    for n in numbers:
        dag = dag_of(LAYERS[n])
        save_reference(n, dag, scratch)
        jobs += candidates_of(n, dag, target, arguments.samples, arguments.seed)
    print(
        f"{len(jobs)} candidates for {target} on {name}: {time.monotonic() - began:.0f} s",
        flush=True,
    )
    try:
        measure(work, jobs, arguments, target, scratch)
    finally:
        for n in numbers:
            (scratch / f"layer{n}.npz").unlink(missing_ok=True)
        scratch.rmdir()
    rows = [row_of(state) for state in work.values()]
    print(table(rows))
    for state in work.values():
        for c in sorted((c for c in state.done if not c.error), key=lambda c: c.us)[:FINALISTS]:
            predicted = " ".join(f"{k} {v * 1e6:.1f}" for k, v in c.predicted.items())
            registers = resource(c, "registers")
            print(
                f"{state.layer}: {c.us:.2f} us (predicted {predicted}; registers {registers}) "
                f"{c.config}"
            )
    for what in ("cudnn_us", "cudnn_tf32_us", "ours_us"):
        total = sum(row[what] * row["count"] for row in rows)
        print(f"{what.removesuffix('_us')}: {total:.1f} us for all convolutions, by count")
    trials = [
        {
            "layer": str(state.layer), "origin": c.origin, "index": c.index, "config": c.config,
            "us": c.us if not c.error else None, "error": c.error[:500],
            "predicted_us": {k: round(v * 1e6, 2) for k, v in c.predicted.items()},
            "compile_seconds": round(c.compile_seconds, 3),
            "registers": resource(c, "registers"),
            "spills": resource(c, "spill_bytes"),
        }
        for state in work.values()
        for c in state.done
    ]  # fmt: skip
    command = "benchmarks/h200/kernels.py " + " ".join(sys.argv[1:])
    path = append(
        "h200_kernels",
        rows,
        name,
        folder=folder,
        command=command,
        target=str(target),
        trials=trials,
    )
    print(f"{time.monotonic() - began:.0f} s in all; written to {path}")


if __name__ == "__main__":
    main()
