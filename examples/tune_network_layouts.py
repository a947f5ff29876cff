"""Tuning a network for a CPU: first its kernels, in several layouts, then the layout of each.

After AutoTVM's tutorial for x86, with its graph tuner.  `tilewright tune` chooses layouts without
being asked.

    python examples/tune_network_layouts.py
    python examples/tune_network_layouts.py --network dqn --trials 2 --runs 5
"""

import argparse

import numpy as np

import tilewright
from tilewright_tvm import autotvm, nd, relay, testing, transform
from tilewright_tvm.autotvm.graph_tuner import DPTuner, PBQPTuner
from tilewright_tvm.autotvm.tuner import XGBTuner
from tilewright_tvm.contrib import graph_executor

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--network", default="resnet-18", help="dqn, resnet-18, resnet-34, ...")
parser.add_argument("--target", default="llvm", help="llvm with options: llvm -mcpu=haswell")
parser.add_argument("--trials", type=int, default=100, help="configurations per task, at most")
parser.add_argument("--graph-tuner", default="dp", choices=["dp", "pbqp"])
parser.add_argument("--runs", type=int, default=100, help="runs to average in the end")
parser.add_argument("--log", default="kernels.log", help="file of the kernels' records")
parser.add_argument("--chosen", default="chosen.log", help="file of those that were chosen")
options = parser.parse_args()


if options.network == "dqn":
    mod, params = relay.testing.dqn.get_workload(batch_size=1)
else:
    layers = int(options.network.removeprefix("resnet-"))
    mod, params = relay.testing.resnet.get_workload(num_layers=layers)
conv2d = relay.op.get("nn.conv2d")
(image,) = (p for p in mod["main"].params if p.name_hint not in params)

# Every convolution as the network has it, and in blocks of channels.
weighted = relay.bind_params(mod, params)
blocked = transform.Sequential([relay.transform.AlterOpLayout(options.target)])(weighted)
tasks = autotvm.task.extract_from_multiple_program(
    [weighted["main"], blocked["main"]], params=[{}, {}], target=options.target, ops=(conv2d,)
)
measured = autotvm.measure_option(
    builder=autotvm.LocalBuilder(),
    runner=autotvm.LocalRunner(number=1, repeat=10, enable_cpu_cache_flush=True),
)
for i, task in enumerate(tasks):
    trials = min(options.trials, len(task.config_space))
    XGBTuner(task).tune(
        n_trial=trials,
        measure_option=measured,
        callbacks=[
            autotvm.callback.progress_bar(trials, prefix=f"[Task {i + 1:2d}/{len(tasks):2d}] "),
            autotvm.callback.log_to_file(options.log),
        ],
    )

# One layout for each convolution: its time, and that of the transformations it asks for.
Tuner = {"dp": DPTuner, "pbqp": PBQPTuner}[options.graph_tuner]
executor = Tuner(mod["main"], {image.name_hint: image.shape}, options.log, [conv2d], options.target)
executor.benchmark_layout_transform(min_exec_num=options.runs)
executor.run()
executor.write_opt_sch2record_file(options.chosen)

data = np.random.uniform(size=image.shape).astype("float32")
results = []


def evaluate(title):
    with transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=options.target, params=params)
    module = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
    module.set_input(image.name_hint, nd.array(data))
    print(f"{title}\n{module.benchmark(tilewright.cpu(), number=options.runs, repeat=3)}")
    results.append(module.get_output(0).numpy())


evaluate("untuned")
with autotvm.apply_history_best(options.log):
    evaluate("kernels tuned")
with autotvm.apply_graph_best(options.chosen):
    evaluate("kernels and layouts tuned")
for result in results[1:]:
    testing.assert_allclose(result, results[0], rtol=1e-3, atol=1e-5)
