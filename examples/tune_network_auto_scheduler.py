"""Tuning a whole network without templates, after the auto-scheduler's tutorial.

The network is taken apart into kernels; each distinct one is a task, and a scheduler gives its
time to the task from which it expects most.

    python examples/tune_network_auto_scheduler.py
    python examples/tune_network_auto_scheduler.py --target llvm --network resnet-18 --trials 2000
"""

import argparse

import numpy as np

import tilewright
from tilewright_tvm import auto_scheduler, nd, relay, transform
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="cuda", help="cuda, opencl or llvm, with options")
parser.add_argument("--network", default="mobilenet", help="resnet-18, ..., mobilenet, vgg-16, ...")
parser.add_argument("--layout", default="NHWC", choices=["NHWC", "NCHW"])
parser.add_argument("--batch", type=int, default=1, help="images at once")
parser.add_argument("--image", type=int, default=224, help="height and width of the input")
parser.add_argument("--trials", type=int, default=200, help="of all tasks; 800 per task is good")
parser.add_argument("--min-repeat-ms", type=int, default=100, help="of a measurement, at least")
parser.add_argument("--log", default=None, help="file of records, appended to")
parser.add_argument("--resume", action="store_true", help="go on from the log")
options = parser.parse_args()


# Define the network.
def get_network(name, batch_size, layout="NHWC", dtype="float32", size=224):
    image_shape = (size, size, 3) if layout == "NHWC" else (3, size, size)
    common = dict(batch_size=batch_size, image_shape=image_shape, layout=layout, dtype=dtype)
    if name.startswith("resnet-"):
        layers = int(name.split("-")[1])
        mod, params = relay.testing.resnet.get_workload(num_layers=layers, **common)
    elif name == "mobilenet":
        mod, params = relay.testing.mobilenet.get_workload(**common)
    elif name.startswith("vgg-"):
        mod, params = relay.testing.vgg.get_workload(num_layers=int(name.split("-")[1]), **common)
    elif name == "squeezenet_v1.1":
        mod, params = relay.testing.squeezenet.get_workload(version="1.1", **common)
    else:
        raise ValueError(f"Unsupported network: {name}")
    return mod, params, (batch_size, *image_shape)


target = Target(options.target)
network, layout, batch_size, dtype = options.network, options.layout, options.batch, "float32"
log_file = options.log or f"{network}-{layout}-B{batch_size}-{target.kind}.json"

# Extract search tasks.
mod, params, input_shape = get_network(network, batch_size, layout, dtype, options.image)
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target)

for idx, task in enumerate(tasks):
    print(f"========== Task {idx}  (workload key: {task.workload_key}) ==========")
    print(task.compute_dag)

# Tune.
print("Begin tuning...")
tuner = auto_scheduler.TaskScheduler(
    tasks, task_weights, load_log_file=log_file if options.resume else None
)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=options.trials,
    runner=auto_scheduler.LocalRunner(repeat=3, min_repeat_ms=options.min_repeat_ms),
    measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
)
tuner.tune(tune_option)

# Compile the whole network.
print("Compile...")
config = {"relay.backend.use_auto_scheduler": True}
with auto_scheduler.ApplyHistoryBest(log_file), transform.PassContext(opt_level=3, config=config):
    lib = relay.build(mod, target=target, params=params)
print(lib.report)

# Create the graph executor.
dev = tilewright.device(target.kind, 0)
module = graph_executor.GraphModule(lib["default"](dev))
data_tvm = nd.array(np.random.uniform(size=input_shape).astype(dtype), dev)
module.set_input("data", data_tvm)

# Evaluate.
print("Evaluate inference time cost...")
print(module.benchmark(dev, repeat=3, min_repeat_ms=500))
