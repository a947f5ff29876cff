"""Writes docs/compatibility.md: every name of the tutorials and its state here.

In: the table below, and the package itself.  Out: the page.  `python docs/make_compatibility.py`
rewrites it; tests/autotvm/test_compatibility.py resolves every name and compares the page.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("compatibility.md")

WORKS, DIFFERENT, NOT_YET = "works", "different", "not yet"


@dataclass(frozen=True)
class Row:
    """One name as users type it, without `tilewright.`.

    use: for DIFFERENT, the name here, where it is another one
    """

    name: str
    state: str
    note: str = ""
    use: str = ""


def works(prefix: str, names: str) -> list[Row]:
    return [Row(prefix + name, WORKS) for name in names.split()]


def not_yet(prefix: str, names: str) -> list[Row]:
    return [Row(prefix + name, NOT_YET) for name in names.split()]


def different(name: str, note: str, use: str = "") -> Row:
    return Row(name, DIFFERENT, note, use)


SECTIONS: dict[str, list[Row]] = {
    "Tensor expressions": [
        *works("te.", "placeholder compute reduce_axis thread_axis create_schedule var const"),
        *works("te.", "sum max min comm_reducer if_then_else all any Tensor"),
        *works("te.", "exp log sqrt rsqrt tanh sigmoid erf sin cos floor ceil round abs power"),
        *works("C.", "shape dtype ndim name op op.name op.tag op.axis op.reduce_axis"),
        *works("C.", "op.input_tensors"),
        different("tir.Select", "both sides may be evaluated", "te.select"),
        *not_yet("te.", "extern scan hybrid create_prim_func gradient size_var"),
        *not_yet("", "placeholder compute create_schedule reduce_axis thread_axis tir"),
    ],
    "Schedules": [
        *works("s[C].", "split fuse reorder tile bind compute_at compute_inline compute_root"),
        *works("s[C].", "vectorize unroll parallel storage_align op leaf_iter_vars all_iter_vars"),
        *works("s.", "cache_read rfactor stages outputs"),
        different("s.cache_write", "takes one tensor"),
        different("s[C].set_scope", "scopes are global, shared and local"),
        different(
            "s[C].pragma",
            "auto_unroll_max_step; unroll_explicit has no effect; any other is refused",
        ),
        *not_yet("s[C].", "tensorize double_buffer prefetch env_threads set_store_predicate"),
        *not_yet("s[C].", "rolling_buffer transform_layout"),
        *not_yet("s.", "normalize create_group"),
    ],
    "Building and running": [
        *works("", "build cpu cuda opencl device IRModule IRModule.from_expr"),
        different("lower", "gives a Program, which prints as loops"),
        *works("nd.", "array empty NDArray"),
        *works("target.", "Target create cuda"),
        different("Target(host=)", "the host is this process", "target.Target"),
        different("Target.kind", "the name itself: target.kind == 'cuda'", "T.kind"),
        different("Target.max_num_threads", "and every other limit", "T.limits"),
        different(
            "transform.PassContext", "opt_level counts; unknown config entries are kept unused"
        ),
        *works("", "testing.assert_allclose"),
        *works("a.", "numpy shape dtype copyto copyfrom"),
        different("a.asnumpy", "the older spelling", "a.numpy"),
        *works("func.", "entry_name get_source time_evaluator imported_modules"),
        different("func.export_library", "writes one file", "func.save"),
        *works("", "runtime.load_module"),
        *works("result.", "mean median min max std results"),
        *works("dev.", "exist sync"),
        different("dev.max_threads_per_block", "and every other limit", "dev.limits"),
        *not_yet("", "gpu context rocm metal vulkan rpc micro meta_schedule"),
        *not_yet("contrib.", "ndk cc nvcc graph_runtime debugger"),
    ],
    "AutoTVM: templates and spaces": [
        *works("autotvm.", "template get_config ConfigSpace ConfigEntity FallbackConfigEntity"),
        *works("cfg.", "axis reduce_axis define_split define_knob define_reorder define_annotate"),
        *works("cfg.", "add_flop raise_error valid space_map dims range_length subrange_length"),
        *works("cfg.", "get point2knob knob2point is_index_valid get_next_index"),
        different("cfg.get_rand_index", "ends when everything is excluded, and says so"),
        different("cfg.sample_ints", "an optional generator makes it repeatable"),
        different("cfg.random_walk", "an optional generator makes it repeatable"),
        different("cfg.multi_filter", "tested when a configuration is asked for, not for all"),
        *works("cfg['tile'].", "apply size"),
        *works("cfg['knob'].", "val"),
        *works("config.", "get_flatten_feature get_other_option to_json_dict from_json_dict"),
        *works("fallback.", "fallback_split fallback_with_reference_log is_fallback"),
        *not_yet("autotvm.", "register_topi_compute register_topi_schedule"),
    ],
    "AutoTVM: tasks, measuring, tuners": [
        *works("autotvm.task.", "create extract_from_program"),
        *works("task.", "name args target workload flop config_space"),
        different("task.instantiate", "close(index) gives the schedule", "sketch.close"),
        *works("autotvm.", "measure_option MeasureInput MeasureResult"),
        different(
            "autotvm.LocalBuilder",
            "timeout, n_parallel and build_func (a function of an importable module)",
        ),
        different(
            "autotvm.LocalRunner",
            "no cost is dropped; a candidate that is clearly slower is timed briefly: race=False "
            "times all alike",
        ),
        *works("autotvm.tuner.", "RandomTuner GridSearchTuner GATuner"),
        different(
            "autotvm.tuner.XGBTuner",
            "features come from the loop tree; feature_type, loss_type, optimizer, num_threads and "
            "log_interval are accepted and have no effect",
        ),
        *works("tuner.", "tune next_batch has_next update reset set_error_threshold best_config"),
        *works("tuner.", "best_flops best_iter best_measure_pair ttl"),
        different("tuner.load_history", "records of this task only; any number helps"),
        *works("autotvm.callback.", "progress_bar"),
        different("autotvm.callback.log_to_file", "this project's JSON lines, not TVM's"),
        *works("autotvm.record.", "pick_best"),
        different("autotvm.record.load_from_file", "gives Records"),
        *works("autotvm.", "apply_history_best ApplyHistoryBest"),
        *not_yet("autotvm.", "RPCRunner apply_graph_best ApplyGraphBest ApplyConfig"),
        *not_yet("autotvm.", "DispatchContext FallbackContext database feature graph_tuner"),
        *not_yet("autotvm.", "tophub create"),
        *not_yet("autotvm.task.", "TaskExtractEnv extract_from_multiple_program DispatchContext"),
        *not_yet("autotvm.task.", "register_topi_compute register_topi_schedule"),
        *not_yet("autotvm.tuner.", "DropletTuner"),
        *not_yet("autotvm.callback.", "Monitor log_to_database"),
        *not_yet("autotvm.record.", "encode decode load_from_buffer split_workload"),
    ],
    "Relay": [
        *works("relay.", "var const Var Constant Call Function Tuple TupleGetItem TensorType"),
        *works("relay.", "op.get analysis.free_vars frontend.from_onnx"),
        different("relay.build", "gives a Library; its report says where each schedule came from"),
        *works("relay.testing.", "resnet.get_workload mobilenet.get_workload create_workload"),
        *works("contrib.graph_executor.", "GraphModule"),
        *works(
            "contrib.graph_executor.GraphModule.",
            "set_input run get_output get_input get_num_inputs get_num_outputs benchmark",
        ),
        different("lib.export_library", "writes one file", "relay.Library.save"),
        different("runtime.load_module(network)", "reads what save wrote", "relay.load"),
        *not_yet("contrib.graph_executor.", "create"),
        *not_yet("relay.", "vm create_executor transform quantize backend"),
        *not_yet("relay.frontend.", "from_mxnet from_pytorch from_tensorflow from_tflite"),
        *not_yet("relay.frontend.", "from_keras from_caffe from_caffe2 from_coreml from_darknet"),
        *not_yet("relay.frontend.", "from_paddle"),
        *not_yet("relay.testing.", "vgg squeezenet inception_v3 resnet_3d densenet dcgan mlp lstm"),
        *not_yet("relay.testing.", "dqn yolo_detection"),
    ],
    "Auto-scheduler": not_yet(
        "auto_scheduler.",
        "SearchTask TuningOptions TaskScheduler SketchPolicy XGBModel RandomModel RecordToFile "
        "RecordReader ApplyHistoryBest extract_tasks HardwareParams register_workload "
        "LocalRPCMeasureContext LocalBuilder LocalRunner RPCRunner PreloadMeasuredStates "
        "load_best_record load_records create_task auto_schedule",
    ),
}

# Packages whose functions have TVM's names; the page lists them.
OPERATORS = ("relay", "relay.nn", "topi", "topi.nn", "topi.testing")

COMMANDS = (
    ("python -m tvm.driver.tvmc tune", "`tilewright tune MODEL`"),
    ("python -m tvm.autotvm.record --mode read", "`tilewright records FILE`"),
    ("python -m tvm.exec.autotvm_log_editor", "`autotvm.record.pick_best(log, best)` in Python"),
    ("python -m tvm.exec.rpc_tracker", "other machines are not there yet"),
    ("python -m tvm.exec.rpc_server", "other machines are not there yet"),
)

HEAD = """# Compatibility with TVM's AutoTVM and Relay

<!-- Written by docs/make_compatibility.py; change that, and run it. -->

Names are in the newest spelling that TVM gave them, after `from tilewright import te, topi, relay,
autotvm, nd, ...`. Here `C` is a tensor, `s` a schedule, `cfg` a configuration space, `config` a
configuration, `func` what `build` returns, `lib` what `relay.build` returns, `a` an array on a
device and `result` what `time_evaluator` and `benchmark` return.

Three states. *Works*: as in TVM. *Different*: there, with a difference that a user may meet. *Not
yet*: using the name raises an error that says what to use instead; the text below is that error's.
"""


def resolve(name: str) -> Any:
    """What `name` stands for.  Raises AttributeError or ImportError where it is not there."""
    found, rest = _root(name)
    for part in rest:
        found = getattr(found, part)
    return found


def instead(name: str) -> str:
    """What the error of a name that is not there says to use."""
    try:
        resolve(name)
    except (AttributeError, ImportError) as error:
        return str(error).partition(" does not exist here. ")[2]
    return ""


def page() -> str:
    """The text of docs/compatibility.md."""
    parts = [HEAD]
    for title, rows in SECTIONS.items():
        parts += [f"\n## {title}\n", *_section(rows)]
    parts.append("\n## Operators\n\n")
    parts.append("Names, defaults and layouts are TVM's; what is not listed is not there yet.\n")
    for package in OPERATORS:
        parts.append(_listed(f"`{package}`", operators(package)))
    parts.append("\n## Commands\n\n| in TVM | here |\n| --- | --- |\n")
    parts += [f"| `{theirs}` | {ours} |\n" for theirs, ours in COMMANDS]
    return "".join(parts)


def operators(package: str) -> list[str]:
    """The operators of a package; relay's are those of its table."""
    if package.partition(".")[0] == "relay":
        from tilewright.relay.op import TABLE

        full = {f"relay.{name}" for name in TABLE}
        return sorted(n.rpartition(".")[2] for n in full if n.rpartition(".")[0] == package)
    module = import_module(f"tilewright.{package}")
    return sorted(name for name in module.__all__ if callable(getattr(module, name)))


def _listed(label: str, names: list[str]) -> str:
    text = f"{label}: {', '.join(f'`{name}`' for name in names)}."
    return f"\n{textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False)}\n"


def _section(rows: list[Row]) -> Iterator[str]:
    names = [row.name for row in rows if row.state == WORKS]
    if names:
        yield _listed("Works", names)
    changed = [row for row in rows if row.state == DIFFERENT]
    if changed:
        yield "\n| different | here | how |\n| --- | --- | --- |\n"
        for row in changed:
            yield f"| `{row.name}` | `{row.use or row.name}` | {row.note} |\n"
    missing: dict[str, list[str]] = {}
    for row in rows:
        if row.state == NOT_YET:
            missing.setdefault(instead(row.name), []).append(f"`{row.name}`")
    if missing:
        yield "\n| not yet | use instead |\n| --- | --- |\n"
        for text, group in missing.items():
            yield f"| {', '.join(group)} | {text} |\n"


def _root(name: str) -> tuple[Any, list[str]]:
    for prefix in sorted(_samples(), key=len, reverse=True):
        if name.startswith(f"{prefix}."):
            return _samples()[prefix], name[len(prefix) + 1 :].split(".")
    first, *rest = name.split(".")
    if first == "auto_scheduler":  # as `from tilewright import auto_scheduler`
        return import_module("tilewright.auto_scheduler"), rest
    return import_module("tilewright"), [first, *rest]


@cache
def _samples() -> dict[str, Any]:
    """An object for each word that the page uses for one."""
    from tilewright import autotvm, cpu, nd, te
    from tilewright.base.target import Target
    from tilewright.driver.build import build
    from tilewright.runtime.timing import BenchmarkResult

    a = te.placeholder((8, 8), name="a")
    c = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="c")
    s = te.create_schedule([c.op])
    target = Target("llvm")

    @autotvm.template("compatibility page")
    def double() -> tuple[Any, list[Any]]:
        schedule, cfg = te.create_schedule([c.op]), autotvm.get_config()
        cfg.define_split("tile", c.op.axis[0], num_outputs=2)
        cfg.define_knob("knob", [0, 1])
        cfg["tile"].apply(schedule, c, c.op.axis[0])
        return schedule, [a, c]

    task = autotvm.task.create("compatibility page", args=(), target=target)
    space = task.config_space
    return {
        "C": c, "s": s, "s[C]": s[c], "T": target, "a": nd.empty((8,)), "dev": cpu(),
        "func": build(s, [a, c], target), "result": BenchmarkResult((1.0,)),
        "cfg": space, "cfg['tile']": space["tile"], "cfg['knob']": space["knob"],
        "config": space.get(0), "fallback": autotvm.FallbackConfigEntity(), "task": task,
        "sketch": task.sketches[0], "tuner": autotvm.tuner.RandomTuner(task),
    }  # fmt: skip


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
