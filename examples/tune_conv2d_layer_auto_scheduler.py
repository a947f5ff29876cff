"""Tuning a convolution layer without a template, after the auto-scheduler's tutorial.

The layer is declared; rules derive from the declaration how it may be scheduled.

    python examples/tune_conv2d_layer_auto_scheduler.py
    python examples/tune_conv2d_layer_auto_scheduler.py --target llvm --trials 64
"""

import argparse

import numpy as np

import tilewright
import tilewright_tvm
from tilewright import te, topi
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.target import Target
from tilewright_tvm.topi.testing import conv2d_nchw_python

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="cuda", help="cuda, opencl or llvm, with options")
parser.add_argument("--trials", type=int, default=10, help="schedules to measure; 1000 is good")
parser.add_argument("--more", type=int, default=5, help="schedules to measure after resuming")
parser.add_argument("--log", default="conv2d.json", help="file of records, appended to")
parser.add_argument("--min-repeat-ms", type=int, default=300, help="of a measurement, at least")
options = parser.parse_args()


# Define the computation.
@auto_scheduler.register_workload
def conv2d_layer(N, H, W, CO, CI, KH, KW, stride, padding):
    data = te.placeholder((N, CI, H, W), name="data")
    kernel = te.placeholder((CO, CI, KH, KW), name="kernel")
    bias = te.placeholder((1, CO, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    out = topi.nn.relu(conv + bias)
    return [data, kernel, bias, out]


# Create the search task: the last layer in ResNet-50.
target = Target(options.target)
N, H, W, CO, CI, KH, KW, strides, padding = 1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1)
task = auto_scheduler.SearchTask(
    func=conv2d_layer, args=(N, H, W, CO, CI, KH, KW, strides, padding), target=target
)

# Inspect the computational graph.
print("Computational DAG:")
print(task.compute_dag)

# Candidates are measured in a process of its own, every one is written to the log.
measure_ctx = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=options.min_repeat_ms)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=options.trials,
    runner=measure_ctx.runner,
    measure_callbacks=[auto_scheduler.RecordToFile(options.log)],
)
task.tune(tune_option)

# Build the best schedule.
sch, args = task.apply_best(options.log)
func = tilewright.build(sch, args, target)

# Check correctness.
data_np = np.random.uniform(size=(N, CI, H, W)).astype(np.float32)
weight_np = np.random.uniform(size=(CO, CI, KH, KW)).astype(np.float32)
bias_np = np.random.uniform(size=(1, CO, 1, 1)).astype(np.float32)
conv_np = conv2d_nchw_python(data_np, weight_np, strides, padding)
out_np = np.maximum(conv_np + bias_np, 0.0)

dev = tilewright.device(target.kind, 0)
data_tvm = nd.array(data_np, dev)
weight_tvm = nd.array(weight_np, dev)
bias_tvm = nd.array(bias_np, dev)
out_tvm = nd.empty(out_np.shape, device=dev)
func(data_tvm, weight_tvm, bias_tvm, out_tvm)
tilewright_tvm.testing.assert_allclose(out_np, out_tvm.numpy(), rtol=1e-3)

# Evaluate execution time.
evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=500)
results = evaluator(data_tvm, weight_tvm, bias_tvm, out_tvm).results
print(f"Execution time of this operator: {np.median(results) * 1000:.3f} ms")

# The record of the best schedule, as Python and as generated code.
print("Equivalent python schedule:")
print(task.print_best(options.log, print_mode="schedule"))
print(f"Generated {target.kind}:")
print(task.print_best(options.log, print_mode=target.kind))

# Build it again from its record, without a search.
inp, res = auto_scheduler.load_best_record(options.log, task.workload_key)
sch, args = task.compute_dag.apply_steps_from_state(inp.state)
func = tilewright.build(sch, args, target)
print(f"The log says {np.median(res.costs) * 1000:.3f} ms")

# Resume: the policy starts with what the log knows, and tries some more.
search_policy = auto_scheduler.SketchPolicy(
    task,
    auto_scheduler.XGBModel(),
    init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(options.log)],
)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=options.more,
    runner=measure_ctx.runner,
    measure_callbacks=[auto_scheduler.RecordToFile(options.log)],
)
task.tune(tune_option, search_policy=search_policy)

# Kill the measurement process.
del measure_ctx
