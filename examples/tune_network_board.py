"""Tuning a network for boards of a farm, with templates or without, and running it on one of them.

After the tutorials for ARM processors and mobile GPUs.  With --key the tracker at --host lends the
boards; without one, this machine is the board, and its tracker and server are started here.

    python examples/tune_network_board.py --key rk3399 --host 0.0.0.0 \\
        --target "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon"
    python examples/tune_network_board.py --key phone --search auto-scheduler \\
        --target "opencl -device=mali" --target-host "llvm -mtriple=aarch64-linux-gnu"
    python examples/tune_network_board.py --network dqn --tasks 2 --trials 2
"""

import argparse
import atexit
import os
import subprocess
import sys

import numpy as np

from tilewright_tvm import auto_scheduler, autotvm, nd, relay, transform
from tilewright_tvm.autotvm.tuner import XGBTuner
from tilewright_tvm.contrib import graph_executor, utils
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--key", default="", help="of the boards, as the tracker knows them")
parser.add_argument("--host", default="127.0.0.1", help="of the tracker")
parser.add_argument("--port", type=int, default=9190, help="of the tracker")
parser.add_argument("--target", default="llvm", help="of the boards' kernels, with options")
parser.add_argument("--target-host", default=None, help="the boards' processor, beside a GPU")
parser.add_argument("--search", default="autotvm", choices=["autotvm", "auto-scheduler"])
parser.add_argument("--network", default="resnet-18", help="dqn, resnet-18, resnet-34, ...")
parser.add_argument("--min-repeat-ms", type=int, default=200, help="of one without templates")
parser.add_argument("--trials", type=int, default=1000, help="per task, at most")
parser.add_argument("--tasks", type=int, default=None, help="tune only the first so many tasks")
options = parser.parse_args()


def start(module, *arguments):
    """A process of a farm on this machine; gives the port that it says it is bound to."""
    command = [sys.executable, "-m", f"tilewright_tvm.exec.{module}", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    atexit.register(process.terminate)
    said = next(line for line in process.stderr if "bind to" in line)
    return int(said.rpartition(":")[2].partition(",")[0])


key, host, port = options.key, options.host, options.port
if not key:
    key, plain = "here", ["--certificates", "none"]
    port = start("rpc_tracker", "--host", host, "--port", "0", *plain)
    start("rpc_server", "--tracker", f"{host}:{port}", "--key", key, "--port", "0", *plain)
    os.environ["TILEWRIGHT_CERTIFICATES"] = "none"

target = Target(options.target, host=options.target_host)
log = f"{key}.{options.network}.{options.search}.json"
if options.network == "dqn":
    mod, params = relay.testing.dqn.get_workload(batch_size=1)
else:
    layers = int(options.network.removeprefix("resnet-"))
    mod, params = relay.testing.resnet.get_workload(num_layers=layers)
(image,) = (p for p in mod["main"].params if p.name_hint not in params)

if options.search == "autotvm":
    tasks = autotvm.task.extract_from_program(
        mod["main"], target=target, params=params, ops=(relay.op.get("nn.conv2d"),)
    )[: options.tasks]
    measured = autotvm.measure_option(
        builder=autotvm.LocalBuilder(),
        runner=autotvm.RPCRunner(key, host=host, port=port, number=10, timeout=5),
    )
    for i, task in enumerate(tasks):
        tuner, trials = XGBTuner(task), min(options.trials, len(task.config_space))
        if os.path.exists(log):
            tuner.load_history(autotvm.record.load_from_file(log))
        tuner.tune(
            n_trial=trials,
            early_stopping=450,
            measure_option=measured,
            callbacks=[
                autotvm.callback.progress_bar(trials, prefix=f"[Task {i + 1}/{len(tasks)}] "),
                autotvm.callback.log_to_file(log),
            ],
        )
    best = autotvm.apply_history_best(log)
else:
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, target)
    tasks, weights = tasks[: options.tasks], weights[: options.tasks]
    auto_scheduler.TaskScheduler(tasks, weights).tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=options.trials * len(tasks),
            runner=auto_scheduler.RPCRunner(
                key,
                host=host,
                port=port,
                timeout=30,
                repeat=1,
                min_repeat_ms=options.min_repeat_ms,
                enable_cpu_cache_flush=True,
            ),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
    )
    best = auto_scheduler.ApplyHistoryBest(log)

with best, transform.PassContext(opt_level=3):
    lib = relay.build(mod, target=target, params=params)
print(lib.report)
folder = utils.tempdir()
file = folder.relpath("net.tar")
lib.export_library(file)

# The network on one of the boards: arrays are there, results come back when they are asked for.
remote = auto_scheduler.utils.request_remote(key, host, port, timeout=10000)
remote.upload(file)
dev = remote.device(target.kind)
module = graph_executor.GraphModule(remote.load_module("net.tar")["default"](dev))
data = np.random.uniform(size=image.shape).astype("float32")
module.set_input(image.name_hint, nd.array(data))
print(module.benchmark(dev, number=1, repeat=10))
