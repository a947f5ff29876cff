"""Auto-scheduling a network for Mali GPUs, as TVM 0.8 to 0.14 print it: one board of a tracker."""

import numpy as np
import tvm
from tvm import relay, auto_scheduler
import tvm.relay.testing
from tvm.contrib import graph_executor
import os

def get_network(name, batch_size, layout="NHWC", dtype="float32"):
    if layout == "NHWC":
        image_shape = (224, 224, 3)
    elif layout == "NCHW":
        image_shape = (3, 224, 224)
    else:
        raise ValueError("Invalid layout: " + layout)
    input_shape = (batch_size,) + image_shape
    output_shape = (batch_size, 1000)
    if name.startswith("resnet-"):
        n_layer = int(name.split("-")[1])
        mod, params = relay.testing.resnet.get_workload(num_layers=n_layer, batch_size=batch_size, layout=layout, dtype=dtype, image_shape=image_shape)
    elif name.startswith("resnet3d-"):
        n_layer = int(name.split("-")[1])
        mod, params = relay.testing.resnet.get_workload(num_layers=n_layer, batch_size=batch_size, layout=layout, dtype=dtype, image_shape=image_shape)
    elif name == "mobilenet":
        mod, params = relay.testing.mobilenet.get_workload(batch_size=batch_size, layout=layout, dtype=dtype, image_shape=image_shape)
    elif name == "squeezenet_v1.1":
        assert layout == "NCHW", "squeezenet_v1.1 only supports NCHW layout"
        mod, params = relay.testing.squeezenet.get_workload(version="1.1", batch_size=batch_size, dtype=dtype, image_shape=image_shape)
    elif name == "inception_v3":
        input_shape = (batch_size, 3, 299, 299) if layout == "NCHW" else (batch_size, 299, 299, 3)
        mod, params = relay.testing.inception_v3.get_workload(batch_size=batch_size, dtype=dtype)
    return mod, params, input_shape, output_shape

network = "mobilenet"
batch_size = 1
layout = "NHWC"
dtype = "float32"
target = tvm.target.Target(os.environ.get("TUTORIAL_TARGET", "opencl -device=mali"), host=os.environ.get("TUTORIAL_HOST", "llvm -mtriple=aarch64-linux-gnu"))
device_key = "rk3399"
PORT = int(os.environ.get("TUTORIAL_PORT", "9190"))
log_file = "%s-%s-B%d-%s.json" % (network, layout, batch_size, target.kind.name)

print("Extract tasks...")
mod, params, input_shape, output_shape = get_network(network, batch_size, layout, dtype=dtype)
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target)
for idx, task in enumerate(tasks):
    print("========== Task %d  (workload key: %s) ==========" % (idx, task.workload_key))
    print(task.compute_dag)

from tvm.auto_scheduler.utils import request_remote
remote = request_remote(device_key, "127.0.0.1", PORT)
dev = remote.cl() if "opencl" in str(target) else remote.cpu()
max_shared_memory_per_block = dev.max_shared_memory_per_block
max_local_memory_per_block = 2147483647
max_threads_per_block = dev.max_threads_per_block
max_vthread_extent = int(dev.warp_size / 4) if int(dev.warp_size / 4) > 1 else dev.warp_size
warp_size = dev.warp_size
hardware_params = auto_scheduler.HardwareParams(-1, 16, 64, max_shared_memory_per_block, max_local_memory_per_block, max_threads_per_block, max_vthread_extent, warp_size)
tasks, task_weights = auto_scheduler.extract_tasks(mod["main"], params, target, hardware_params=hardware_params)


def tune_and_evaluate():
    print("Begin tuning...")
    tuner = auto_scheduler.TaskScheduler(tasks, task_weights)
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=int(os.environ.get("TUTORIAL_TRIALS", "200")),
        builder=auto_scheduler.LocalBuilder(build_func="default"),
        runner=auto_scheduler.RPCRunner(
            device_key, host="127.0.0.1", port=PORT, repeat=3, timeout=50
        ),
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
    )
    tuner.tune(tune_option)
    print("Compile...")
    with auto_scheduler.ApplyHistoryBest(log_file):
        with tvm.transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}):
            lib = relay.build(mod, target, params=params)
    print("=============== Request Remote ===============")
    from tvm.auto_scheduler.utils import request_remote
    remote = request_remote(device_key, "127.0.0.1", PORT)
    dev = remote.cl() if "opencl" in str(target) else remote.cpu()
    from tvm.contrib import utils
    temp = utils.tempdir()
    filename = "deploy_lib.so"
    path_lib = temp.relpath(filename)
    lib.export_library(path_lib)
    remote.upload(path_lib)
    loaded_lib = remote.load_module(filename)
    module = graph_executor.GraphModule(loaded_lib["default"](dev))
    data = (np.random.uniform(size=input_shape)).astype(dtype)
    data_tvm = tvm.nd.array(data)
    module.set_input("data", data_tvm)
    print("Evaluate inference time cost...")
    print(module.benchmark(dev, repeat=3, min_repeat_ms=500))

tune_and_evaluate()
