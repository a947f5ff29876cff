"""Tuning a whole network with AutoTVM's names: extract, tune, pick, compile, run.

Each distinct convolution is a task; the best records go into one log, and `relay.build` uses them
for the fused kernels of the network.

    python examples/tune_network.py
    python examples/tune_network.py --target llvm --trials 8 --image 64
"""

import argparse
import os

import numpy as np

import tilewright
from tilewright_tvm import autotvm, nd, relay, transform
from tilewright_tvm.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    XGBTuner,
)
from tilewright_tvm.contrib import graph_executor as runtime
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="cuda", help="cuda, opencl or llvm, with options")
parser.add_argument("--trials", type=int, default=2000, help="configurations per task, at most")
parser.add_argument("--image", type=int, default=224, help="height and width of the input")
parser.add_argument("--tasks", type=int, default=None, help="tune only the first so many tasks")
parser.add_argument(
    "--tuner", default="xgb",
    help="xgb, xgb_rank or xgb_rank_binary, each also with _knob, _itervar or _curve; ga, random, "
    "gridsearch, droplet",
)  # fmt: skip
parser.add_argument("--log", default="resnet-18.log", help="file of the best records")
options = parser.parse_args()

target = Target(options.target)
dtype = "float32"
input_shape = (1, 3, options.image, options.image)

tuning_option = {
    "log_filename": options.log,
    "tuner": options.tuner,
    "n_trial": options.trials,
    "early_stopping": 600,
    "measure_option": autotvm.measure_option(
        builder=autotvm.LocalBuilder(timeout=10),
        runner=autotvm.LocalRunner(number=20, repeat=3, timeout=4, min_repeat_ms=150),
    ),
}


def make_tuner(name, task):
    plain = {"random": RandomTuner, "gridsearch": GridSearchTuner, "droplet": DropletTuner}
    if name in plain:
        return plain[name](task)
    if name == "ga":
        return GATuner(task, pop_size=100)
    for learned, loss in (("xgb_rank_binary", "rank-binary"), ("xgb_rank", "rank"), ("xgb", "reg")):
        if name.startswith(learned):
            features = name.removeprefix(learned).removeprefix("_") or None
            return XGBTuner(task, loss_type=loss, feature_type=features)
    raise ValueError("Invalid tuner: " + name)


def tune_tasks(tasks, measure_option, tuner, n_trial, early_stopping, log_filename):
    temporary = log_filename + ".tmp"
    if os.path.exists(temporary):
        os.remove(temporary)
    for i, task in enumerate(reversed(tasks)):
        tuner_obj = make_tuner(tuner, task)
        if os.path.isfile(temporary):
            tuner_obj.load_history(autotvm.record.load_from_file(temporary))
        trials = min(n_trial, len(task.config_space))
        tuner_obj.tune(
            n_trial=trials,
            early_stopping=early_stopping,
            measure_option=measure_option,
            callbacks=[
                autotvm.callback.progress_bar(trials, prefix=f"[Task {i + 1:2d}/{len(tasks):2d}] "),
                autotvm.callback.log_to_file(temporary),
            ],
        )
    autotvm.record.pick_best(temporary, log_filename)
    os.remove(temporary)


print("Extract tasks...")
mod, params = relay.testing.resnet.get_workload(
    num_layers=18, batch_size=1, image_shape=input_shape[1:], dtype=dtype
)
tasks = autotvm.task.extract_from_program(
    mod["main"], target=target, params=params, ops=(relay.op.get("nn.conv2d"),)
)
print(f"{len(tasks)} tasks: distinct convolutions")

print("Tuning...")
tune_tasks(tasks[: options.tasks], **tuning_option)

with autotvm.apply_history_best(options.log):
    print("Compile...")
    with transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=target, params=params)
print(lib.report)

dev = tilewright.device(target.kind)
module = runtime.GraphModule(lib["default"](dev))
module.set_input("data", nd.array(np.random.uniform(size=input_shape).astype(dtype)))

print("Evaluate inference time cost...")
print(module.benchmark(dev, number=1, repeat=100))
