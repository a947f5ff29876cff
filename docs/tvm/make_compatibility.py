"""Writes docs/tvm/compatibility.md: every name of the tutorials and its state here.

In: the tables, and the package itself.  Out: the page.  `python docs/tvm/make_compatibility.py`
rewrites it; test_compatibility.py resolves every name and compares the page.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # where this is loaded from elsewhere
from compatibility_rows import (
    AUTO_SCHEDULER,
    DIFFERENT,
    FUNCTIONAL,
    GRADIENTS,
    NOT_YET,
    PASSES,
    SPACES,
    TUNERS,
    WORKS,
    Row,
    different,
    not_yet,
    works,
)
from compatibility_tensors import OLD, SCHEDULES, TENSORS
from compatibility_text import HEAD, NO_OPERATORS, OPERATORS, TEMPLATES, closing_tables

PACKAGE = "tilewright_tvm"
PAGE = Path(__file__).with_name("compatibility.md")

SECTIONS: dict[str, list[Row]] = {
    "Tensor expressions": TENSORS,
    "Names of TVM 0.6 and 0.7": OLD,
    "Schedules": SCHEDULES,
    "Operators by target": [
        different(
            "topi.cuda.schedule_*",
            "and of topi.generic, x86, arm_cpu, gpu, mali, bifrost, intel_graphics, rocm: one "
            "default schedule for the target in force, whatever the operator",
            "topi.cuda.schedule_injective",
        ),
        *works("topi.vision.", "reorg roi_align_nchw rcnn.roi_pool_nchw ssd.multibox_prior"),
        *works("topi.vision.", "get_valid_counts ssd.multibox_detection rcnn.proposal"),
        different(
            "topi.vision.non_max_suppression",
            "and relay's: -1 behind what is kept; scores of 0 and less are no boxes; boxes are "
            "decided one after the other, at most 4,096 of each row",
        ),
        *works("topi.", "argwhere unique"),
        different("topi.reinterpret", "a function of the process makes it, so on CPUs only"),
        different("topi.x86.conv2d_nchw", "topi.nn's: a computation is the same for every target"),
        *works(
            "topi.testing.", "get_injective_schedule get_reduce_schedule get_broadcast_schedule"
        ),
        *works("topi.testing.", "get_elemwise_schedule get_conv2d_nchw_implement dispatch"),
        *works("topi.", "get_const_tuple get_const_int traverse_inline"),
        *works("topi.", "testing.compare_numpy_tvm nn.utils.get_pad_tuple"),
        *works("topi.utils.", "get_const_tuple get_const_int get_const_float equal_const_int"),
        *works("topi.utils.", "get_shape simplify prod ravel_index unravel_index traverse_inline"),
        *works("topi.tag.", "is_injective is_broadcast INJECTIVE ELEMWISE BROADCAST COMM_REDUCE"),
    ],
    "Building and running": [
        *works("", "build cpu cuda opencl device IRModule IRModule.from_expr cl gpu context"),
        *works("nd.", "cpu gpu cl"),
        different("lower", "gives a Program, which prints as loops; simple_mode changes nothing"),
        *works("nd.", "array empty NDArray NDArray.same_as"),
        *works("target.", "Target create cuda arm_cpu mali intel_graphics bifrost generic_func"),
        *works("target.", "GenericFunc override_native_generic_func get_native_generic_func"),
        *works("target.", "extend_native_generic_func"),
        different("target.list_tags", "of NVIDIA's GPUs from Pascal on, c5 machines and boards"),
        different(
            "Target(host=)",
            "says where kernels run that are compiled here: ../boards.md",
            "target.Target",
        ),
        *works("T.", "kind.name keys attrs mcpu mattr model libs host max_num_threads current"),
        *works("T.", "thread_warp_size max_shared_memory_per_block with_host"),
        *works("T.", "export list_kinds canon_target_and_host canon_multi_target_and_host"),
        *works("T.", "canon_target_map_and_host from_device device_name l2_cache_size_bytes"),
        *works("T.", "get_target_device_type"),
        different("T.features", "of ARM, as far as -mtriple, -mcpu and -mattr say; else None"),
        different(
            "target.rocm",
            "and hexagon, vta, and the kinds c, cmsis-nn, ethos-u, metal, vulkan, webgpu, ...: "
            "there for names, keys and options; builds for them are refused",
        ),
        different("T.kind", "the name itself, too: target.kind == 'cuda'"),
        different(
            "transform.PassContext", "opt_level counts; unknown config entries are kept unused"
        ),
        *works("", "testing.assert_allclose"),
        *works("a.", "numpy asnumpy shape dtype copyto copyfrom ctx"),
        different(
            "a[:] =", "all of it; numbers are converted, but no floats to integers", "nd.NDArray"
        ),
        *works("func.", "entry_name get_source time_evaluator imported_modules get_function"),
        different("func.get_source(fmt)", '"ll" and "asm", "cu", "cl"', "func.get_source"),
        different("build([f, g])", "m[name] is each function, and is saved by itself", "build"),
        different("build(lower(s, args))", "lowered again for the target of the build", "build"),
        *works("error.", "TVMError"),
        different("func['name']", "the module itself", "func.get_function"),
        different(
            "build without the device",
            "its text can be read, code for another machine be saved; calls say what is missing",
            "build",
        ),
        different("s.rfactor at threads", "compute_at the loop that threads share", "s.rfactor"),
        *works("runtime.", "convert enabled"),
        *works("testing.", "enabled_targets device_enabled requires_llvm requires_gpu uses_gpu"),
        *works("testing.", "requires_cuda requires_opencl parametrize_targets parameters fixture"),
        *works("", "testing.requires_x86 target.codegen.llvm_version_major"),
        different("contrib.cudnn.exists", "never: kernels call no library"),
        different(
            "func.export_library",
            "writes one file; save makes an object of it for NAME.o, text for .ll, .s, .asm",
            "func.save",
        ),
        *works("", "runtime.load_module testing.main contrib.pickle_memoize.memoize"),
        *works("result.", "mean median min max std results"),
        *works("dev.", "exist sync"),
        *works("dev.", "max_shared_memory_per_block max_threads_per_block warp_size"),
        *not_yet("", "rocm metal vulkan micro meta_schedule script relax"),
        *works("rpc.", "LocalSession connect_tracker"),
        different("tracker.request", "max_retry is not needed: it waits", "rpc.TrackerSession"),
        *not_yet("rpc.", "connect Server"),
        different("contrib.ndk.create_shared", "changes nothing: the target says what to link for"),
        different(
            "contrib.cc.create_shared",
            "by the system's compiler; of one module that was saved as .o, load_module takes it",
        ),
    ],
    **SPACES,
    **TUNERS,
    "Relay": [
        *works("relay.", "var const Var Constant Call Function Tuple TupleGetItem TensorType"),
        *works("relay.", "op.get GlobalVar TupleType FuncType IncompleteType scalar_type ty.Any"),
        *works("relay.", "ExprFunctor ExprVisitor ExprMutator save_param_dict load_param_dict"),
        *works("relay.", "expr.const expr_functor.ExprMutator build_module.bind_params_by_name"),
        *works("relay.analysis.", "post_order_visit free_vars all_vars bound_vars check_constant"),
        *works("relay.analysis.", "count_layers list_op_freqs get_total_mac_number"),
        *works("relay.analysis.", "free_type_vars bound_type_vars all_type_vars"),
        *works("relay.analysis.", "extract_fused_functions extract_intermdeiate_expr well_formed"),
        *works("ir.", "structural_equal assert_structural_equal structural_hash"),
        *works("IRModule.", "get_global_var get_global_vars update update_func astext"),
        *works("IRModule.", "shallow_copy _add"),
        different("ir.make_node", "of IntImm, FloatImm and attributes"),
        *works("relay.", "parse fromtext parse_expr parser.parse"),
        *works("", "parser.parse parser.fromtext parser.parse_expr error.DiagnosticError"),
        different(
            "relay.Let",
            "the body with the value in it: a graph needs no names for values, but for those that "
            "make or use references or call functions that may, which stay in order",
        ),
        different("relay.ScopeBuilder", "the same: let gives the value back, or its name"),
        *FUNCTIONAL,
        different(
            "relay.GlobalVar(name)(x)",
            "a function that its module has is called as such; one that it does not have yet, as "
            'inside itself, needs the executor "vm", which makes each call when it is reached',
            "relay.GlobalVar",
        ),
        different(
            "ir.save_json",
            "networks, tensors, schedules; load_json reads what it wrote, not TVM's",
            "ir.save_json",
        ),
        different("device(kind)", "kinds that are not here have no device that exists", "device"),
        different(
            "relay.create_executor",
            'kinds are "graph", "vm" and "debug", which is numpy; a tuple is a list of arrays',
        ),
        different(
            "relay.vm.compile",
            "open extents, and values that decide shapes, are those of the arrays of a call; for "
            "each set of them it is built once",
        ),
        *works("relay.", "argwhere If loops.while_loop sparse_fill_empty_rows sparse_reshape"),
        different("relay.unique", "results are as long as there are different elements"),
        different(
            "runtime.vm.VirtualMachine",
            "set_input, set_one_input, run, invoke, invoke_with_outputs, get_outputs, benchmark of "
            "main",
        ),
        different("relay.backend.Executor", 'Executor("graph") and Runtime("cpp"), nothing else'),
        different(
            "transform.PassContext(disabled_pass=)",
            "and required_pass=: by the names of relay.transform; others are an error",
            "transform.PassContext",
        ),
        different(
            "graph, lib, params = relay.build()",
            "the library is all three: weights are part of it and need not be set",
            "relay.Library",
        ),
        different(
            'lib["default"](dev)["run"]', "functions by name, as of a GraphModule", "relay.Library"
        ),
        different('lib["debug_create"]("default", dev)', "for a GraphModuleDebug", "relay.Library"),
        different('lib["get_graph_json"]()', "of the first plan", "relay.Library"),
        *works("runtime.", "save_param_dict load_param_dict"),
        *works("relay.qnn.op.", "quantize dequantize concatenate conv2d dense batch_matmul"),
        *works("relay.qnn.op.", "conv2d_transpose add subtract register_qnn_legalize"),
        *works("relay.qnn.op.", "simulated_quantize simulated_dequantize requantize_config"),
        *works("relay.qnn.op.", "abs erf exp hardswish log rsqrt sigmoid sqrt tanh leaky_relu"),
        *works("relay.qnn.transform.", "CanonicalizeOps Legalize"),
        different(
            "relay.qnn.op.requantize",
            'compute_dtype is "float32" where nothing is said, TVM\'s is "int64"; both are there',
        ),
        different("relay.qnn.op.mul", "the product is scaled in float32, and rounds once"),
        different("relay.qnn.op.softmax", "computed in float32, not by tables of integers"),
        different("relay.qnn.op.avg_pool2d", "averaged in float32, and rounds once"),
        different(
            "a.copyfrom(float64)",
            "and set_input: floats round, integers go where they fit, all else is an error",
            "nd.NDArray",
        ),
        different("relay.frontend.from_onnx", "weights stay parameters, unless freeze_params=True"),
        different("relay.frontend.from_pytorch", "exports with torch.export: inputs have types"),
        different("relay.build", "gives a Library; its report says where each schedule came from"),
        *works("relay.testing.", "resnet.get_workload mobilenet.get_workload create_workload"),
        *works("relay.testing.", "squeezenet.get_workload vgg.get_workload"),
        different("contrib.graph_executor.GraphModule", "of one thread, or `with module:` in turn"),
        *works(
            "contrib.graph_executor.GraphModule.",
            "set_input run get_output get_input get_num_inputs get_num_outputs benchmark "
            "set_input_zero_copy get_input_info load_params",
        ),
        different(
            "contrib.graph_executor.GraphModule.share_params",
            "weights are shared by all modules of a library: it checks that",
        ),
        different("lib.export_library", ".so, .tar or zip", "relay.Library.export_library"),
        different("runtime.load_module(network)", "the same function", "runtime.load_module"),
        different("lib.get_params", "weights as kernels read them", "relay.Library.get_params"),
        different("lib.get_graph_json", "of the first plan", "relay.Library.get_graph_json"),
        *works("contrib.graph_executor.", "create"),
        different("contrib.debugger.debug_executor.create", "writes files only with dump_root"),
        *works("contrib.debugger.debug_executor.", "GraphModuleDebug"),
        *not_yet("relay.", "quantize collage annotation.on_device reinterpret"),
        *works("relay.", "annotation.stop_fusion"),
        *works("relay.random.", "threefry_key threefry_split threefry_generate uniform normal"),
        *works("topi.random.", "threefry_generate threefry_split uniform normal"),
        *works("contrib.", "random.randint random.uniform random.normal"),
        *works("contrib.sparse.", "array placeholder"),
        *works("topi.sparse.", "csrmm csrmv dense"),
        *not_yet("relay.data_dep_optimization.", "simplify_fc_transpose bsr_dense"),
        *works("relay.backend.", "te_compiler.get"),
        *works("relay.op.", "add nn.conv2d tensor.exp"),
        *not_yet("relay.op.", "register_compute strategy contrib"),
        *not_yet("contrib.", "relay_viz pipeline_executor"),
        different(
            "contrib.download.download",
            "a file that is there is taken, another is an error: nothing is downloaded; so is "
            "download_testdata",
        ),
        *works("driver.", "tvmc"),
        different("driver.tvmc.load", "of ONNX and PyTorch", "tvmc.load"),
        different(
            "driver.tvmc.tune",
            "trials of each task on average, given to those that gain most",
            "tvmc.tune",
        ),
        different(
            "driver.tvmc.compile", "a package is the file of Library.export_library", "tvmc.compile"
        ),
        different("driver.tvmc.run", "it times unless benchmark=False", "tvmc.run"),
        *works("driver.tvmc.target.", "generate_target_args reconstruct_target_args"),
        *works("driver.tvmc.target.", "target_from_cli tokenize_target parse_target"),
        different(
            "driver.tvmc.composite_target",
            "names of others' compilers are read; a build that one is named for is refused",
        ),
        *works("driver.tvmc.", "TVMCModel TVMCPackage TVMCResult TVMCException"),
        *works("driver.tvmc.", "frontends.load_model frontends.guess_frontend"),
        *works("driver.tvmc.", "main"),
        *not_yet("driver.tvmc.", "micro registry workspace_pools"),
        *not_yet("relay.testing.", "to_python"),
        *works("relay.transform.", "ToMixedPrecision InferType FoldConstant SimplifyInference"),
        *works("relay.transform.", "CanonicalizeOps FuseOps DefuseOps EliminateCommonSubexpr"),
        *works("relay.transform.", "DeadCodeElimination CombineParallelConv2D SimplifyExpr"),
        *works("relay.transform.", "CombineParallelDense RemoveUnusedFunctions function_pass"),
        *works("relay.transform.", "CombineParallelBatchMatmul CanonicalizeCast DynamicToStatic"),
        *works("relay.transform.", "FlattenAtrousConv Inline Legalize ChangeBatch recast"),
        *works("relay.analysis.", "extract_operators CallGraph"),
        *works("relay.dataflow_pattern.", "is_op is_var is_constant is_expr is_tuple wildcard"),
        *works("relay.dataflow_pattern.", "is_if is_tuple_get_item has_attr has_type has_dtype"),
        *works("relay.dataflow_pattern.", "dominates match rewrite DFPatternCallback has_shape"),
        *works("relay.dataflow_pattern.", "partition"),
        different(
            "relay.dataflow_pattern.is_let",
            "matches the body with the value in it, as relay.Let is",
        ),
        *works("relay.op.", "register_legalize"),
        *works("relay.testing.", "temp_op_attr.TempOpAttr"),
        *works("ir.", "register_op_attr"),
        different(
            "relay.op.register_alter_op_layout",
            "what follows a changed call keeps its layout, the result is brought back at once",
        ),
        *PASSES,
        *works("transform.", "module_pass PrintIR"),
        *works("instrument.", "PrintBeforeAll PrintAfterAll PassTimingInstrument"),
        different(
            "relay.Any",
            'an extent that relay.build is told: batch_sizes=[1, 8], or sizes=[{"seq": 128}]; it '
            "may have a name; a value's checked_type has it where values decide an extent",
        ),
        different("relay.image.resize2d", "integers are computed in float32, and cut off"),
        *not_yet("relay.transform.", "ToANormalForm PartitionGraph FastMath"),
        *not_yet("relay.frontend.", "from_mxnet from_tensorflow from_tflite"),
        *not_yet("relay.frontend.", "from_keras from_caffe from_caffe2 from_coreml from_darknet"),
        *not_yet("relay.frontend.", "from_paddle"),
        *works("relay.testing.", "inception_v3.get_workload resnet_3d.get_workload"),
        *works("relay.testing.", "dcgan.get_workload mlp.get_workload dqn.get_workload"),
        *works("relay.testing.", "lstm.get_workload yolo_detection.fill_network_boxes"),
        *works("relay.testing.", "yolo_detection.do_nms_sort"),
        different(
            "relay.testing.densenet.get_workload",
            "TVM's network, whose layers read only the one before; the published: chained=False",
        ),
        *works("relay.testing.", "synthetic.get_workload init.create_workload run_infer_type"),
        *works("relay.testing.", "run_opt_pass ctx_list enabled_targets rand"),
        *GRADIENTS,
    ],
    **AUTO_SCHEDULER,
}


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
    """The text of the page."""
    parts = [HEAD]
    for title, rows in SECTIONS.items():
        parts += [f"\n## {title}\n", *_section(rows)]
    parts.append("\n## Operators\n\n")
    parts.append("Names, defaults and layouts are TVM's; what is not listed is not there yet.\n")
    for package in OPERATORS:
        parts.append(_listed(f"`{package}`", operators(package)))
    parts.append(TEMPLATES)
    parts.append(_listed("Names", template_names()))
    parts += closing_tables()
    return "".join(parts)


def operators(package: str) -> list[str]:
    """The operators of a package, as users call them."""
    module = import_module(f"{PACKAGE}.{package}")
    names = {n for n in module.__all__ if inspect.isroutine(getattr(module, n))}
    return sorted(names - NO_OPERATORS)


def template_names() -> list[str]:
    from tilewright.schedule.template import names_of_others

    return names_of_others()


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
    return import_module(PACKAGE), [first, *rest]


@cache
def _samples() -> dict[str, Any]:
    """An object for each word that the page uses for one."""
    from tilewright.driver.build import build
    from tilewright.farm.session import RemoteSession
    from tilewright.runtime.timing import BenchmarkResult
    from tilewright.targets.target import Target

    package = import_module(PACKAGE)
    auto_scheduler, autotvm, te = package.auto_scheduler, package.autotvm, package.te
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
    search_task = auto_scheduler.SearchTask(compute_dag=[a, c], target=target)
    space = task.config_space
    return {
        "C": c, "s": s, "s[C]": s[c], "T": target, "a": package.nd.empty((8,)),
        "dev": package.cpu(),
        "func": build(s, [a, c], target), "result": BenchmarkResult((1.0,)),
        "cfg": space, "cfg['tile']": space["tile"], "cfg['knob']": space["knob"],
        "config": space.get(0), "fallback": autotvm.FallbackConfigEntity(), "task": task,
        "sketch": task.sketches[0], "tuner": autotvm.tuner.RandomTuner(task),
        "search_task": search_task, "dag": search_task.compute_dag,
        "inp": auto_scheduler.MeasureInput(search_task, search_task.compute_dag.init_state),
        "policy": auto_scheduler.SketchPolicy(search_task), "model": auto_scheduler.XGBModel(),
        "scheduler": auto_scheduler.TaskScheduler([search_task]), "remote": RemoteSession,
    }  # fmt: skip


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
