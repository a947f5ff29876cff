"""An ONNX file on a CPU from beginning to end: compile, run, tune, compile again, compare.

After TVM's tutorials of its Python interface; `command_line.sh` does the same with commands.

    python examples/tune_onnx_network.py --model resnet50-v2-7.onnx --trials 1500
    python examples/tune_onnx_network.py --trials 2 --tasks 3
"""

import argparse
import timeit

import numpy as np

import tilewright
from tilewright_tvm import autotvm, relay, testing, transform
from tilewright_tvm.autotvm.tuner import XGBTuner
from tilewright_tvm.contrib import graph_executor

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--model", default=None, help="an ONNX file; default: a small ResNet")
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda, with options")
parser.add_argument("--trials", type=int, default=20, help="configurations per task, at most")
parser.add_argument("--tasks", type=int, default=None, help="tune only the first so many tasks")
parser.add_argument("--log", default="network.jsonl", help="file of records, appended to")
options = parser.parse_args()

model = options.model
if model is None:  # the file that a framework would write
    net, weights = relay.testing.resnet.get_workload(num_layers=18, image_shape=(3, 32, 32))
    model = relay.to_onnx(relay.bind_params(net, weights))
mod, params = relay.frontend.from_onnx(model)
(image,) = (p for p in mod["main"].params if p.name_hint not in params)
dev = tilewright.device(options.target.split()[0], 0)


def preprocess(pixels):
    """Bytes of an image, height by width by channel, as networks of ImageNet read them."""
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    normal = (pixels / 255 - np.array(mean)) / np.array(deviation)
    return normal.transpose(2, 0, 1)[None].astype("float32")


def compiled():
    with transform.PassContext(opt_level=3):
        lib = relay.build(mod, target=options.target, params=params)
    return graph_executor.GraphModule(lib["default"](dev))


def scores_of(module, data):
    module.run(**{image.name_hint: data})
    return module.get_output(0).numpy().ravel()


def milliseconds(module):
    times = np.array(timeit.Timer(module.run).repeat(repeat=5, number=5)) * 1000 / 5
    return f"mean {np.mean(times):.3f}, median {np.median(times):.3f}, std {np.std(times):.3f} ms"


height, width = image.shape[2:]
pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3))  # or those of a photograph
data = preprocess(pixels)
untuned = compiled()
scores = scores_of(untuned, data)
for k in np.argsort(scores)[:-6:-1]:
    print(f"class {k}: score {scores[k]:.6f}")

tasks = autotvm.task.extract_from_program(mod["main"], target=options.target, params=params)
measured = autotvm.measure_option(
    builder=autotvm.LocalBuilder(),
    runner=autotvm.LocalRunner(number=10, repeat=1, min_repeat_ms=0, enable_cpu_cache_flush=True),
)
for i, task in enumerate(tasks[: options.tasks]):
    trials = min(options.trials, len(task.config_space))
    XGBTuner(task, loss_type="reg").tune(
        n_trial=trials,
        early_stopping=100,
        measure_option=measured,
        callbacks=[
            autotvm.callback.progress_bar(trials, prefix=f"[Task {i + 1:2d}/{len(tasks):2d}] "),
            autotvm.callback.log_to_file(options.log),
        ],
    )

with autotvm.apply_history_best(options.log):
    tuned = compiled()
testing.assert_allclose(scores_of(tuned, data), scores, rtol=1e-3, atol=1e-6)
print("untuned:", milliseconds(untuned))
print("tuned:  ", milliseconds(tuned))
