"""Tuning a network for a Mali GPU beside an ARM processor, after the auto-scheduler's tutorial.

Kernels are made here for a board that is elsewhere.  With a key, its devices measure them and the
network runs there; without one, this machine's OpenCL device stands in for the Mali, within a
Mali's limits, and the library is only written.

    python examples/tune_network_mali.py --key rk3399 --host 0.0.0.0 --port 9190 --trials 20000
    python examples/tune_network_mali.py --image 32 --trials 22
"""

import argparse
import os

import numpy as np

import tilewright
from tilewright_tvm import auto_scheduler, nd, relay, transform
from tilewright_tvm.auto_scheduler.utils import request_remote
from tilewright_tvm.contrib import graph_executor, ndk, utils
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--key", default="", help="of the boards, as the tracker knows them")
parser.add_argument("--host", default="127.0.0.1", help="of the tracker")
parser.add_argument("--port", type=int, default=9190, help="of the tracker")
parser.add_argument("--triple", default="aarch64-linux-gnu", help="of the boards' processor")
parser.add_argument("--image", type=int, default=224, help="height and width of the input")
parser.add_argument("--trials", type=int, default=200, help="of all tasks; 800 per task is good")
parser.add_argument("--min-repeat-ms", type=int, default=100, help="of a measurement, at least")
options = parser.parse_args()

network, batch_size, layout, dtype = "mobilenet", 1, "NHWC", "float32"
target = Target("opencl -device=mali", host=f"llvm -mtriple={options.triple}")
log_file = f"{network}-{layout}-B{batch_size}-{target.kind}.json"

# Extract tasks from the network.
print("Extract tasks...")
image_shape = (options.image, options.image, 3)
mod, params = relay.testing.mobilenet.get_workload(
    batch_size=batch_size, layout=layout, dtype=dtype, image_shape=image_shape
)


def hardware_params(dev):
    """The limits of a board's GPU; of its local memory none is known."""
    vthread = dev.warp_size // 4 if dev.warp_size // 4 > 1 else dev.warp_size
    return auto_scheduler.HardwareParams(
        -1, 16, 64, dev.max_shared_memory_per_block, 2147483647, dev.max_threads_per_block,
        vthread, dev.warp_size,
    )  # fmt: skip


hardware = None  # as the target has it, which is for every Mali
if options.key:
    with request_remote(options.key, options.host, options.port) as remote:
        hardware = hardware_params(remote.cl())
tasks, task_weights = auto_scheduler.extract_tasks(
    mod["main"], params, target, hardware_params=hardware
)
for idx, task in enumerate(tasks):
    print(f"========== Task {idx}  (workload key: {task.workload_key}) ==========")
    print(task.compute_dag)

# Tune.
print("Begin tuning...")
if options.key:
    runner = auto_scheduler.RPCRunner(
        options.key, host=options.host, port=options.port, repeat=3, timeout=50,
        min_repeat_ms=options.min_repeat_ms,
    )  # fmt: skip
else:
    runner = auto_scheduler.LocalRunner(repeat=3, min_repeat_ms=options.min_repeat_ms)
tuner = auto_scheduler.TaskScheduler(tasks, task_weights)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=options.trials,
    builder=auto_scheduler.LocalBuilder(build_func="ndk"),
    runner=runner,
    measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
)
tuner.tune(tune_option)

# Compile the whole network.
print("Compile...")
config = {"relay.backend.use_auto_scheduler": True}
with auto_scheduler.ApplyHistoryBest(log_file), transform.PassContext(opt_level=3, config=config):
    lib = relay.build(mod, target=target, params=params)
print(lib.report)

temp = utils.tempdir()
filename = "deploy_lib.so"
path_lib = temp.relpath(filename)
lib.export_library(path_lib, ndk.create_shared)

# Create the graph executor.
if options.key:
    print("=============== Request Remote ===============")
    remote = request_remote(options.key, options.host, options.port)
    dev = remote.cl()
    remote.upload(path_lib)
    loaded_lib = remote.load_module(filename)
else:
    dev = tilewright.opencl()
    loaded_lib = tilewright.runtime.load_module(path_lib)
module = graph_executor.GraphModule(loaded_lib["default"](dev))
print(f"The library has {os.path.getsize(path_lib) / 1e6:.1f} MB.")
data = np.random.uniform(size=(batch_size, *image_shape)).astype(dtype)
module.set_input("data", nd.array(data))

# Evaluate.
print("Evaluate inference time cost...")
print(module.benchmark(dev, repeat=3, min_repeat_ms=500))
