"""ResNet-18's convolutions on the CPU: untuned, best of N random ones, onnxruntime, PyTorch.

Every contender of a layer is timed in turn, round after round, and its fastest call counts: other
work on the machine then disturbs all alike.  Convolution + bias + ReLU, batch 1, float32, weights
constant.

    python benchmarks/bench_cpu_conv.py --samples 20 --threads 2 --layers 0,10
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from resnet18_layers import LAYERS, Layer, dag_of

from tilewright.driver.build import build
from tilewright.runtime.drivers.cpu_native import set_num_threads
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG

Run = Callable[[], float]  # seconds of one call


def inputs_of(layer: Layer) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [t.shape for t in dag_of(layer).args[:3]]
    return [rng.standard_normal(s, dtype=np.float32) * 0.1 for s in shapes]


def ours(schedule: Schedule, inputs: list[np.ndarray], target: Target) -> tuple[Run, np.ndarray]:
    module = build(schedule, target=target)
    out = empty(module.parameters[-1].shape, "float32", module.device)
    arrays = [*map(array, inputs), out]
    evaluate = module.time_evaluator(module.entry_name, module.device, number=1)
    module(*arrays)
    return lambda: evaluate(*arrays).min, out.numpy()


def onnxruntime_run(layer: Layer, inputs: list[np.ndarray], threads: int) -> Run | None:
    try:
        import onnx
        import onnxruntime as ort
    except ImportError:
        return None
    h = onnx.helper
    names = ("data", "weight", "bias")
    conv = h.make_node(
        "Conv",
        names,
        ["conv"],
        kernel_shape=[layer.kernel] * 2,
        strides=[layer.stride] * 2,
        pads=[layer.padding] * 4,
    )
    graph = h.make_graph(
        [conv, h.make_node("Relu", ["conv"], ["out"])],
        "layer",
        [h.make_tensor_value_info("data", onnx.TensorProto.FLOAT, inputs[0].shape)],
        [h.make_tensor_value_info("out", onnx.TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(inputs[1], "weight"),
            onnx.numpy_helper.from_array(inputs[2].reshape(-1), "bias"),
        ],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
    model.ir_version = 8
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: timed(lambda: session.run(None, {"data": inputs[0]}))


def torch_run(layer: Layer, inputs: list[np.ndarray], threads: int) -> Run | None:
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    data, weight, bias = (torch.from_numpy(x) for x in inputs)

    def call() -> None:
        with torch.no_grad():
            torch.relu_(torch.conv2d(data, weight, bias.reshape(-1), layer.stride, layer.padding))

    return lambda: timed(call)


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fastest(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            run()  # own caches and threads are warm, the others' are not in the way
            best[name] = min(best[name], run())
    return best


def best_of_random(
    dag: ComputeDAG, inputs: list[np.ndarray], target: Target, samples: int
) -> tuple[Schedule, str, float]:
    """The fastest of `samples` legal configurations; seconds spent."""
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    found: tuple[float, Schedule | None, str] = (float("inf"), None, "")
    sketches = anchor_sketches(dag, target)
    for sketch in sketches:
        indices = rng.permutation(len(sketch.space))[:4096]
        for index in indices[sketch.legal(indices)][: samples // len(sketches)]:
            schedule = sketch.close(int(index))
            run, _ = ours(schedule, inputs, target)
            cost = min(run() for _ in range(3))
            if cost < found[0]:
                found = cost, schedule, f"{sketch.origin} {sketch.space.get(int(index))}"
    assert found[1] is not None
    return found[1], found[2], time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=20, help="random configurations per layer")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--layers", default=",".join(map(str, range(len(LAYERS)))))
    parser.add_argument("--verbose", action="store_true", help="print the best configuration")
    chosen = parser.parse_args()
    set_num_threads(chosen.threads)
    target = Target(f"llvm -num-cores={chosen.threads}").native()
    names = ["default", "random", "onnxruntime", "torch"]
    print(f"{chosen.threads} threads, ms (GFLOP/s); / ort: how many times onnxruntime's time")
    print(
        f"{'layer':30}"
        + "".join(f"{n:>18}" for n in names)
        + f"{'default/ort':>13}{'best/ort':>10}"
    )
    total = dict.fromkeys([*names, "best"], 0.0)
    for number in map(int, chosen.layers.split(",")):
        layer = LAYERS[number]
        dag, inputs = dag_of(layer), inputs_of(layer)
        run, expected = ours(default_schedule(dag, target), inputs, target)
        runs: dict[str, Run | None] = {"default": run}
        about = ""
        if chosen.samples:
            schedule, about, spent = best_of_random(dag, inputs, target, chosen.samples)
            about = f"{about}, {spent:.0f} s"
            runs["random"], out = ours(schedule, inputs, target)
            np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)
        runs["onnxruntime"] = onnxruntime_run(layer, inputs, chosen.threads)
        runs["torch"] = torch_run(layer, inputs, chosen.threads)
        best = fastest({n: r for n, r in runs.items() if r is not None}, chosen.rounds)
        best["best"] = min(best["default"], best.get("random", float("inf")))
        cells = "".join(
            f"{best[n] * 1e3:>10.3f} ({dag.flop_ct / best[n] / 1e9:>4.0f})"
            if n in best
            else f"{'-':>17}"
            for n in names
        )
        ort = best.get("onnxruntime", float("nan"))
        print(
            f"{layer!s:30}{cells}{best['default'] / ort:>13.2f}{best['best'] / ort:>10.2f}",
            flush=True,
        )
        if chosen.verbose:
            print(f"    {about}")
        for name, seconds in best.items():
            total[name] += seconds * layer.count
    row = "".join(f"{total[n] * 1e3:>17.2f}" for n in names)
    ort = total["onnxruntime"] or float("nan")
    print(
        f"{'sum over the network':30}{row}"
        f"{total['default'] / ort:>14.2f}{total['best'] / ort:>10.2f}"
    )


if __name__ == "__main__":
    main()
