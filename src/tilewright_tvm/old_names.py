"""Spellings of TVM 0.6 to 0.19 that changed: where each thing is now, or what to use instead.

One table for all packages, read when somebody asks for a name that is not there, so nothing that
is there costs anything.  In: the module that was asked, and the name.  Out: what has that name now.
Read next: `elsewhere.py`, which asks; modules that only moved are in its `ALSO`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

ROOT = "tilewright_tvm"


def _same(home: str, names: str) -> dict[str, str]:
    return {name: f"{home}:{name}" for name in names.split()}


_TE = (
    "abs acos acosh all any asin asinh atan atan2 atanh ceil clz comm_reducer compute const "
    "copysign cos cosh create_schedule div erf exp exp10 exp2 extern floor floordiv floormod fmod "
    "hypot if_then_else indexdiv indexmod infinity isfinite isinf isnan ldexp log log10 log1p log2 "
    "max max_value min min_value nearbyint placeholder popcount power prod reduce_axis round rsqrt "
    "scan select sigmoid sin sinh size_var sqrt sum tag_scope tan tanh thread_axis trunc truncdiv "
    "truncmod var"
)
_TIR = "call_extern call_intrin call_llvm_intrin call_packed call_pure_extern decl_buffer"
_LIBRARIES = "Libraries are not called from kernels; topi.nn is tuned instead."
_TYPES = "Element types are a fixed set (docs/element-types.md)."
_PROCESSES = "Candidates are built and timed in processes of their own; use concurrent.futures."
_EXPORT = "Export the model to ONNX and use relay.frontend.from_onnx."
_STATEMENTS = "lower(s, args) gives a Program, which prints as loops."

# Module -> name -> "module:attribute" where the thing is now, or a sentence that says what to use.
# A module that is no file is there all the same: its names are those of the table.
NAMES: Mapping[str, Mapping[str, str]] = {
    ROOT: {
        **_same("tilewright_tvm.te", _TE),
        **_same("tilewright_tvm.tir", _TIR),
        "fabs": "tilewright_tvm.te:abs",
        "call_pure_intrin": "tilewright_tvm.tir:call_intrin",
        "decl_tensor_intrin": "tilewright_tvm.te:decl_tensor_intrin",
        "build_config": "tilewright_tvm.old_names:build_config",
        "BuildConfig": "tilewright_tvm.transform:PassContext",
        "current_build_config": "tilewright_tvm.transform:PassContext.current",
        "TVMContext": "tilewright.runtime.device:Device",
        "Range": "tilewright.te.axis:Range",
        "ir_pass": "Use arith.Analyzer().simplify for expressions; lowering has its own passes, "
            "which TILEWRIGHT_DEBUG=5 prints.",
        "make": f"Expressions are made by operators and te.compute. {_STATEMENTS}",
        "node": "Tensors, schedules and expressions are objects of Python; print shows them.",
        "nnvm": "Import networks with relay.frontend.",
        "object": "Tensors, schedules and expressions are objects of Python; print shows them.",
        "register_extension": "Any object goes through nd.from_dlpack that has __dlpack__.",
        "register_intrin_rule": "Functions of numbers are a fixed set; te has exp, log, erf, ...",
        "sdaccel": "FPGAs are no target; the targets are llvm, cuda and opencl.",
        "support": "Run `tilewright doctor`: it shows what is installed.",
        "vpi": "Verilog is no target; the targets are llvm, cuda and opencl.",
        "opengl": "OpenGL is not a target; try opencl().",
        "ext_dev": "Accelerators of others are no target; they are llvm, cuda and opencl.",
        "hexagon": "Hexagon is no target; the targets are llvm, cuda and opencl.",
        "datatype": _TYPES,
        "dlight": "Kernels have default schedules of their own: relay.build, or autotvm.",
        "compile": "Use tvm.build of a schedule, or relay.build of a network.",
        "ffi": "There are no objects of another language; register_func makes functions known.",
        "libinfo": "Run `tilewright doctor`: it shows what is installed.",
        "vta": "VTA is no target; the targets are llvm, cuda and opencl.",
    },
    "tilewright_tvm.autotvm": {
        "env": "Options are arguments here: of tuners, LocalBuilder, LocalRunner and RPCRunner.",
    },
    "tilewright_tvm.autotvm.task": {
        "extract_from_graph": "Import the network with relay.frontend, then extract_from_program.",
    },
    "tilewright_tvm.build_module": {
        **_same("tilewright_tvm", "build lower build_config BuildConfig current_build_config"),
    },
    "tilewright_tvm.arith": {
        "DetectClipBound": "Ask arith.Analyzer(), or read the loops that lower(s, args) prints.",
    },
    "tilewright_tvm.auto_scheduler": {
        "ProgramMeasurer": "A policy measures: task.tune(TuningOptions(builder=, runner=)).",
    },
    "tilewright_tvm.codegen": {
        "build_module": "Use build(s, args, target), which lowers and compiles.",
        "llvm_version_major": "tilewright_tvm.driver.codegen:llvm_version_major",
    },
    "tilewright_tvm.contrib": {
        "coreml_runtime": "Core ML is not called; relay.frontend.from_onnx imports networks.",
        "dlpack": "nd.from_dlpack(tensor) gives an argument for a function, without a copy.",
        "binutil": "Microcontrollers are no target; the targets are llvm, cuda and opencl.",
        "emcc": "WebAssembly is no target; the targets are llvm, cuda and opencl.",
        "miopen": _LIBRARIES,
        "mps": _LIBRARIES,
        "nnpack": _LIBRARIES,
        "popen_pool": _PROCESSES,
        "sdaccel": "FPGAs are no target; the targets are llvm, cuda and opencl.",
        "tflite_runtime": f"TensorFlow Lite is not called. {_EXPORT}",
        "thrust": "Libraries are not called from kernels; topi.sort and topi.argsort sort.",
        "tvmjs": "WebAssembly is no target; the targets are llvm, cuda and opencl.",
        "peak": "Run `tilewright doctor`: it shows the device.",
        "rocblas": _LIBRARIES,
        "verilog": "Verilog is no target; the targets are llvm, cuda and opencl.",
        "xcode": "Metal is not a target; the targets are llvm, cuda and opencl.",
    },
    "tilewright_tvm.exec": {
        "autotvm_log_editor": "autotvm.record.pick_best(log, out) keeps the best lines of a log.",
        "measure_peak": "Run `tilewright doctor`: it shows the device.",
        "gpu_memory_bandwidth": "Run `tilewright doctor`: it shows the device.",
        "popen_worker": _PROCESSES,
        "rpc_proxy": "Servers ask the tracker for work: "
            "`python -m tilewright_tvm.exec.rpc_tracker`.",
        "tune_relay": "Run `tilewright tune`, or `python -m tilewright_tvm.tvmc tune`.",
    },
    "tilewright_tvm.runtime": {"tensor": "tilewright_tvm.nd:array"},
    "tilewright_tvm.module": {
        "load": "tilewright_tvm.runtime:load_module",
        **_same("tilewright_tvm.runtime", "Module enabled"),
        "create": "build makes modules, and module.load opens them.",
        "system_lib": "Load the file that func.save or lib.export_library wrote.",
    },
    "tilewright_tvm.nd": {
        "context": "tilewright.runtime.device:device",
        "TVMContext": "tilewright.runtime.device:Device",
        "numpyasarray": "tilewright.runtime.ndarray:array",
        **dict.fromkeys(
            ("rocm", "metal", "vulkan", "vpi", "opengl", "ext_dev"),
            "It is no device here; there are nd.cpu, nd.cuda and nd.opencl.",
        ),
    },
    "tilewright_tvm.relay": {
        "Module": "tilewright_tvm.relay.functional.definitions:IRModule",
        "alpha_equal": "tilewright_tvm.relay.analysis:structural_equal",
        "build_config": "tilewright_tvm.old_names:relay_build_config",
        "debug": "print(mod) shows the network.",
        "feature": "relay.analysis tells what is in a network.",
        "visualize": "print(mod) shows the network; relay.to_onnx writes it for a viewer.",
        "ir_pass": "Use the passes of relay.transform, as relay.transform.InferType()(mod).",
    },
    "tilewright_tvm.relay.analysis": {
        "alpha_equal": "tilewright_tvm.relay.analysis:structural_equal",
        "assert_alpha_equal": "tilewright_tvm.relay.analysis:assert_structural_equal",
        "assert_graph_equal": "tilewright_tvm.relay.analysis:assert_structural_equal",
        "graph_equal": "tilewright_tvm.relay.analysis:structural_equal",
    },
    "tilewright_tvm.relay.backend": {
        "graph_runtime_codegen": "Use relay.build, whose report names the schedule of each kernel.",
        "graph_runtime_factory": "Use relay.build, which gives a library.",
    },
    "tilewright_tvm.relay.frontend": {
        "common": "relay.frontend imports by itself; parts of its importers are no interface.",
        **dict.fromkeys(
            ("caffe", "caffe2", "coreml", "darknet", "keras", "mxnet", "nnvm_common", "oneflow",
             "paddlepaddle", "tensorflow", "tensorflow2", "tensorflow_parser", "tflite"),
            _EXPORT,
        ),
    },
    "tilewright_tvm.relay.module": {
        "Module": "tilewright_tvm.relay.functional.definitions:IRModule",
    },
    "tilewright_tvm.relay.testing": dict.fromkeys(("darknet", "tf", "tflite"), _EXPORT),
    "tilewright_tvm.relay.transform": {
        **_same(
            "tilewright_tvm.transform",
            "PassContext Sequential module_pass function_pass Pass",
        ),
        "build_config": "tilewright_tvm.old_names:relay_build_config",
    },
    "tilewright_tvm.rpc": {
        "proxy": "Servers ask the tracker for work: rpc.connect_tracker(host, port).request(key).",
    },
    "tilewright_tvm.schedule": _same(
        "tilewright_tvm.te.schedule",
        "AutoInlineBroadcast AutoInlineElemWise AutoInlineInjective Buffer Fuse InferBound IterVar "
        "Schedule Split Stage create_schedule",
    ),
    "tilewright_tvm.target": {
        "current_target": "tilewright.targets.target:Target.current",
        "rasp": "tilewright.targets.target:arm_cpu",
        "opengl": "OpenGL is not a target; try opencl.",
        "vulkan": 'Vulkan is not a target; try Target("opencl").',
    },
    "tilewright_tvm.topi": dict.fromkeys(
        ("adreno", "hexagon"), "It is no target; topi.cuda and topi.mali have schedules of GPUs."
    ),
    "tilewright_tvm.tir": {
        "Load": _STATEMENTS,
        "Store": _STATEMENTS,
        "ir_pass": "Use arith.Analyzer().simplify for expressions; lowering has its own passes, "
            "which TILEWRIGHT_DEBUG=5 prints.",
    },
}  # fmt: skip

# Arguments that had another name: which of these a function has is the one that is meant.
ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "ctx": ("device", "dev"),
    "context": ("device", "dev"),
    "func_name": ("task_name",),
    "device": ("dev",),
    "dev": ("device",),
}


def is_sentence(told: str) -> bool:
    """Whether an entry of `NAMES` is what to say, and not where a thing is."""
    return " " in told


def placed(told: str) -> Any:
    """The thing at "module:attribute"; `told`: an entry of `NAMES`."""
    home, _, path = told.partition(":")
    found: Any = import_module(home)
    for attribute in path.split(".") if path else ():
        found = getattr(found, attribute)
    return found


def modern(
    given: Mapping[str, Any], known: Collection[str], before: Collection[str]
) -> dict[str, Any]:
    """Arguments by the names that a function has now.

    known: its parameters; before: those that were given by position
    """
    renamed = {}
    for name, value in given.items():
        others = () if name in known else ARGUMENTS.get(name, ())
        free = (o for o in others if o in known and o not in given and o not in before)
        renamed[next(free, name)] = value
    return renamed


def build_config(**options: Any) -> Any:
    """Give a `transform.PassContext` with options of TVM 0.6's `build_config`.

    Raises ModelError for passes of the user's: lowering has its own.
    """
    if options.pop("add_lower_pass", None):
        _refuse("build_config(add_lower_pass=)", "lowering has its own passes", "Leave it out.")
    given = {f"tir.{name}": value for name, value in options.items()}
    return import_module("tilewright_tvm.transform").PassContext(config=given)


def relay_build_config(
    opt_level: int = 2, fallback_device: Any = None, required_pass: Any = None,
    disabled_pass: Any = None, trace: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """Give a `transform.PassContext`, by the name and the arguments that it had in TVM 0.6.

    Raises ModelError for a device to fall back to: a network runs on one.
    """
    for name, value in (("fallback_device", fallback_device), ("trace", trace)):
        if value is not None:
            _refuse(
                f"relay.build_config({name}={value!r:.60})", "a network is built for one device",
                "Leave it out; transform.PassContext(instruments=) sees each pass.",
            )  # fmt: skip
    make: Callable[..., Any] = import_module("tilewright_tvm.transform").PassContext
    return make(opt_level, required_pass=required_pass, disabled_pass=disabled_pass, **options)


def _refuse(place: str, reason: str, way_out: str) -> None:
    from tilewright.base.errors import ModelError

    raise ModelError(place, reason, way_out)
