"""Imports of TVM's names that are not here say what to use instead."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tilewright.base.errors import ModelError
from tilewright_tvm.elsewhere import ALSO, PLACES
from tilewright_tvm.old_names import NAMES, is_sentence, placed

MISSING = {
    "tilewright_tvm.meta_schedule": "Use autotvm",
    "tilewright_tvm.micro": "Microcontrollers are no target",
    "tilewright_tvm.script.tir": "TVMScript is not read; declare with te.compute",
    "tilewright_tvm.te.create_prim_func": "Schedule tensors directly: te.create_schedule.",
    "tilewright_tvm.relay.frontend.from_mxnet": "Export the model to ONNX",
    "tilewright_tvm.target.adreno": "Use Target",
    "tilewright_tvm.tir.analysis": "gives a Program, which prints as loops",
}


@pytest.mark.parametrize("name", MISSING)
def test_an_import_says_what_to_use(name: str) -> None:
    owner, _, last = name.rpartition(".")
    for words in (f"import {name}", f"from {owner} import {last}"):
        with pytest.raises(ImportError, match=f"does not exist here. .*{MISSING[name]}"):
            exec(words, {})


def test_a_name_that_nobody_knows_is_pythons_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'tilewright_tvm.nonsense'"):
        import_module("tilewright_tvm.nonsense")


def test_names_of_tir_are_those_of_te() -> None:
    from tilewright import te
    from tilewright_tvm import tir

    i = te.var("i")
    assert tir.if_then_else is te.if_then_else and tir.exp is te.exp
    assert str(tir.indexdiv(i, 4)) == str(i // 4) and str(tir.indexmod(i, 4)) == str(i % 4)
    x = te.var("x", "float32")
    assert tir.call_intrin("float32", "tir.exp", x) is te.exp(x)
    assert isinstance(tir.Select(i < 2, 1.0, 0.0), tir.PrimExpr)


OLD = {(owner, name): told for owner, names in NAMES.items() for name, told in names.items()}


@pytest.mark.parametrize(("owner", "name"), OLD)
def test_an_old_name_is_what_it_is_called_now_or_says_what_to_use(owner: str, name: str) -> None:
    told = OLD[owner, name]
    try:
        now = None if is_sentence(told) else placed(told)
    except AttributeError as error:  # it is not there by its new name either, which says why
        told = str(error)
        now = None
    if now is not None:
        assert getattr(import_module(owner), name) == now
        return
    with pytest.raises(AttributeError) as caught:
        getattr(import_module(owner), name)
    assert str(caught.value).endswith(told)
    with pytest.raises(ImportError):
        exec(f"from {owner} import {name}", {})


@pytest.mark.parametrize("name", [*ALSO, *sorted(PLACES)])
def test_a_module_that_moved_is_imported_and_is_an_attribute(name: str) -> None:
    module = import_module(name)
    assert module is sys.modules[name]
    if name in ALSO:
        assert module is import_module(ALSO[name])
    if name.endswith("__main__"):
        return
    owner, _, last = name.rpartition(".")
    assert getattr(import_module(owner), last) is module


# As tutorials of TVM 0.6 to 0.8 have them, from names at the top of `tvm` and under `topi.util`.
TUTORIALS = """
module.load module.enabled build_config relay.build_config target.current_target
contrib.util.tempdir contrib.graph_runtime.create contrib.graph_runtime.GraphModule
contrib.debugger.debug_runtime.create relay.Module relay.Module.from_expr relay.module.Module
relay.transform.PassContext ir_builder.create relay.transform.Sequential
topi.util.get_const_tuple hybrid.script expr.Var expr.IntImm nd.gpu nd.cl tensor.Tensor
api.convert ndarray.array autotvm.task.register autotvm.measure.measure_methods.RPCRunner
context gpu opencl TVMContext relay.testing.config.ctx_list get_global_func rpc lower
"""


@pytest.mark.parametrize("name", TUTORIALS.split())
def test_what_tutorials_print_is_there(name: str) -> None:
    assert reduce(getattr, name.split("."), tilewright_tvm) is not None


def test_arguments_have_their_old_names_too() -> None:
    here = tilewright_tvm.context("llvm", 0)
    a = tilewright_tvm.nd.array(np.ones(3, "float32"), ctx=here)
    b = tilewright_tvm.nd.empty((3,), ctx=here)
    assert a.ctx == b.ctx == here
    with pytest.raises(TypeError, match="unexpected keyword argument 'ctx'"):
        tilewright_tvm.nd.array(np.ones(3), device=here, ctx=here)
    with pytest.raises(TypeError, match="unexpected keyword argument 'ctx'"):
        tilewright.te.placeholder((3,), ctx=here)


def test_options_of_builds_are_a_pass_context() -> None:
    with tilewright_tvm.build_config(auto_unroll_max_step=16, unroll_explicit=True):
        assert (
            tilewright_tvm.transform.PassContext.current().config["tir.auto_unroll_max_step"] == 16
        )
    with tilewright_tvm.relay.build_config(disabled_pass=["FuseOps"]):
        assert tilewright_tvm.transform.PassContext.current().opt_level == 2
    with pytest.raises(ModelError, match=r"add_lower_pass=\): lowering has its own passes"):
        tilewright_tvm.build_config(add_lower_pass=[(1, print)])
    with pytest.raises(ModelError, match="is built for one device"):
        tilewright_tvm.relay.build_config(fallback_device=tilewright.cpu())


def test_targets_and_sessions_have_their_old_spellings() -> None:
    arm = tilewright_tvm.target.create("llvm -target=aarch64-linux-gnu -mcpu=cortex-a53")
    assert arm.triple == "aarch64-linux-gnu" and arm.mcpu == "cortex-a53"
    assert tilewright_tvm.rpc.LocalSession().context("llvm", 0) == tilewright.cpu()


def test_operators_to_extract_may_be_functions() -> None:
    from tilewright_tvm import autotvm, relay

    mod, params = relay.testing.mlp.get_workload(1)
    keys = [
        [t.key for t in autotvm.task.extract_from_program(mod["main"], params, "llvm", ops=ops)]
        for ops in ((relay.op.nn.dense,), relay.nn.dense, "nn.dense", [relay.op.get("nn.dense")])
    ]
    assert len(keys[0]) == 3 and all(k == keys[0] for k in keys)


def _commands() -> list[str]:
    """Modules that `python -m` runs, by all their names."""
    source = Path(tilewright.__file__).parents[1]
    found = {
        ".".join(file.relative_to(source).with_suffix("").parts)
        for package in (tilewright, tilewright_tvm)
        for file in Path(package.__file__).parent.rglob("*.py")
        if '\nif __name__ == "__main__":' in file.read_text()
    }
    known = {name: real for name, real in ALSO.items() if real in found}
    packages = {name for name, real in ALSO.items() if f"{real}.__main__" in {*found, *known}}
    return sorted(name.removesuffix(".__main__") for name in {*found, *known, *packages})


def test_the_commands_are_those_that_are_known() -> None:
    assert {"tilewright", "tilewright_tvm.tvmc", "tilewright_tvm.driver.tvmc"} <= {*_commands()}
    assert len(_commands()) >= 7


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", _commands())
def test_a_module_is_a_command_by_each_of_its_names(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", name, "--help"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "usage: " in done.stdout.lower()


# Modules that TVM 0.6 to 0.19 had; those with a `_` of their own are left out but for `_ffi`.
MODULES = """
_ffi _ffi.base _ffi.function _ffi.libinfo _ffi.node _ffi.object _ffi.registry _ffi.runtime_ctypes
_pyversion api arith arith._ffi_api arith.analyzer arith.bound arith.int_set arith.int_solver
arith.iter_affine_map arith.pattern attrs auto_scheduler auto_scheduler.compute_dag
auto_scheduler.cost_model.cost_model auto_scheduler.dispatcher auto_scheduler.feature
auto_scheduler.loop_state auto_scheduler.measure auto_scheduler.relay_integration
auto_scheduler.search_policy auto_scheduler.search_task auto_scheduler.task_scheduler
auto_scheduler.testing auto_scheduler.workload_registry autotvm.database autotvm.env
autotvm.feature autotvm.graph_tuner autotvm.graph_tuner.base_graph_tuner
autotvm.graph_tuner.dynamic_programming_tuner autotvm.graph_tuner.utils autotvm.measure.executor
autotvm.measure.local_executor autotvm.measure.measure autotvm.record autotvm.task.code_hash
autotvm.task.nnvm_integration autotvm.task.relay_integration autotvm.task.space autotvm.task.task
autotvm.testing autotvm.tophub autotvm.tuner.droplet_tuner autotvm.tuner.graph_based_tuner
autotvm.tuner.gridsearch_tuner autotvm.tuner.metric autotvm.tuner.model_based_tuner
autotvm.tuner.sa_model_optimizer build_module codegen container contrib.binutil
contrib.coreml_runtime contrib.cublas contrib.cuda_graph contrib.cudnn contrib.cutlass
contrib.debugger.debug_result contrib.emcc contrib.ethosu contrib.graph_runtime contrib.hexagon
contrib.micro contrib.miopen contrib.mps contrib.mrvl contrib.mxnet contrib.nnpack contrib.nvcc
contrib.peak contrib.pickle_memoize contrib.pipeline_executor contrib.popen_pool contrib.rocm
contrib.rpc contrib.sdaccel contrib.sparse contrib.stackvm contrib.tar contrib.target contrib.tedd
contrib.tf_op contrib.tflite_runtime contrib.thrust contrib.torch contrib.tvmjs contrib.uTVM
contrib.verilog contrib.xcode contrib.xcodebuild datatype dlight driver.build_module
driver.tvmc.common error exec.autotvm_log_editor exec.disco_worker exec.gpu_memory_bandwidth
exec.measure_peak exec.microtvm_debug_shell exec.popen_worker exec.query_rpc_tracker
exec.rpc_proxy exec.rpc_server exec.rpc_tracker exec.tune_relay expr ffi generic hybrid hybrid.api
hybrid.parser intrin ir.adt ir.affine_type ir.attrs ir.base ir.container ir.diagnostics ir.expr
ir.function ir.global_info ir.json_compact ir.memory_pools ir.op ir.supply ir.tensor_type ir.type
ir.type_relation ir.worker_pool ir_builder ir_pass libinfo make meta_schedule micro module ndarray
node object parser relax relay.adt relay.analysis.analysis relay.analysis.annotated_regions
relay.analysis.call_graph relay.analysis.count_layers relay.analysis.feature
relay.analysis.sparse_dense relay.annotation relay.backend.aot relay.backend.compile_engine
relay.backend.contrib relay.backend.executor relay.backend.executor_factory
relay.backend.graph_executor_codegen relay.backend.profiler_vm relay.backend.runtime relay.base
relay.build_module relay.collage relay.contrib relay.data_dep_optimization.bsr_dense
relay.dataflow_pattern.rewrite relay.debug relay.expr relay.feature relay.frontend.caffe
relay.frontend.caffe2 relay.frontend.common relay.frontend.coreml relay.frontend.darknet
relay.frontend.keras relay.frontend.mxnet relay.frontend.nnvm_common relay.frontend.onnx
relay.frontend.paddlepaddle relay.frontend.pytorch relay.frontend.pytorch_utils
relay.frontend.qnn_torch relay.frontend.tensorflow relay.frontend.tensorflow2
relay.frontend.tensorflow_parser relay.frontend.tflite relay.function relay.grammar relay.image
relay.loops relay.memory_alloc relay.op.algorithm relay.op.annotation relay.op.contrib
relay.op.dyn relay.op.image relay.op.image.image relay.op.layout_conversions relay.op.memory
relay.op.nn._nn relay.op.nn.nn relay.op.op_attrs relay.op.random relay.op.reduce relay.op.strategy
relay.op.strategy.generic relay.op.tensor relay.op.transform relay.op.vision relay.op.vision.nms
relay.op.vm relay.parser relay.prelude relay.qnn.op.legalizations relay.qnn.op.qnn relay.quantize
relay.scope_builder relay.testing.byoc relay.testing.darknet relay.testing.nat
relay.testing.py_converter relay.testing.tf relay.testing.tflite
relay.transform.fake_quantization_to_integer relay.transform.memory_plan relay.transform.recast
relay.ty relay.type_functor relay.visualize rpc.base rpc.client rpc.minrpc rpc.proxy rpc.server
rpc.testing rpc.tracker runtime.container runtime.disco runtime.executor runtime.module
runtime.name_transforms runtime.ndarray runtime.object runtime.object_generic runtime.packed_func
runtime.params runtime.profiling runtime.relax_vm runtime.script_printer runtime.support
runtime.vm schedule script.tir stmt support tag target.codegen target.compilation_config
target.datatype target.detect_target target.generic_func target.intrin target.tag target.target
target.virtual_device target.x86 te.autodiff te.hybrid.parser te.hybrid.runtime te.hybrid.util
te.operation te.schedule te.tag te.tensor te.tensor_intrin tensor testing.aot
testing.auto_scheduler testing.autotvm testing.plugin testing.popen_pool testing.runner
testing.utils tir.analysis tir.block_dependence_info tir.block_scope tir.buffer tir.data_layout
tir.expr tir.expr_functor tir.function tir.generic tir.op tir.schedule tir.stmt tir.tensor_intrin
tir.transform tir.usmp tirp tl topi.adreno topi.argwhere topi.arm_cpu.conv2d
topi.arm_cpu.conv2d_gemm topi.bifrost.conv2d topi.broadcast topi.cpp topi.cuda.batch_matmul
topi.cuda.conv2d_direct topi.cuda.conv2d_winograd topi.cuda.dense topi.cuda.injective
topi.cuda.nms topi.cuda.reduction topi.cuda.softmax topi.einsum topi.generic.injective
topi.generic.nn topi.generic_op_impl topi.hexagon topi.image.grid_sample topi.image.resize
topi.intel_graphics.conv2d topi.mali.conv2d topi.mali.dense topi.math topi.nn.batch_matmul
topi.nn.bitserial_conv2d topi.nn.conv1d topi.nn.conv2d topi.nn.conv2d_transpose topi.nn.conv3d
topi.nn.dense topi.nn.dilate topi.nn.elemwise topi.nn.flatten topi.nn.mapping topi.nn.pad
topi.nn.pooling topi.nn.softmax topi.nn.upsampling topi.nn.winograd_util topi.reduction
topi.rocm.dense topi.scatter topi.sort topi.sparse.csrmm topi.tag topi.tensor
topi.testing.conv2d_nchw_python topi.transform topi.unique topi.vision.nms topi.vision.rcnn
topi.vision.ssd topi.vision.ssd.multibox topi.x86.batch_matmul topi.x86.conv2d_int8 topi.x86.dense
topi.x86.injective topi.x86.nn topi.x86.reduction vta vta.build_module vta.top
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES.split())
def test_a_module_of_tvm_is_there_or_says_where_to_look(name: str) -> None:
    full = f"tilewright_tvm.{name}"
    try:
        module = import_module(full)
    except ModuleNotFoundError as error:
        assert "docs/tvm/compatibility.md" in str(error) and error.name.startswith(
            "tilewright_tvm."
        )
    except ImportError as error:
        assert " does not exist here. " in str(error)
    else:
        assert module is sys.modules[full]


def test_modules_that_are_missing_may_be_tried() -> None:
    with pytest.raises(ModuleNotFoundError, match="compatibility") as caught:
        import_module("tilewright_tvm.relay.nonsense")
    assert caught.value.name == "tilewright_tvm.relay.nonsense"
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from tilewright_tvm.relay import nonsense", {})


@pytest.mark.slow
def test_importing_a_module_that_moved_hides_no_function() -> None:
    """Looked at where nothing has been imported by the other name."""
    code = (
        "from importlib import import_module\nfrom types import ModuleType\n"
        "from tilewright_tvm.elsewhere import ALSO\n"
        "for name in ALSO:\n"
        "    owner, _, last = name.rpartition('.')\n"
        "    found = getattr(import_module(owner), last, None)\n"
        "    assert found is None or isinstance(found, ModuleType), name\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_attributes_of_devices_are_found_or_say_what_to_use() -> None:
    dev = tilewright.cpu(0)
    assert dev.device_name == dev.name and dev.multi_processor_count == dev.target.limits.cores
    assert dev.l2_cache_size_bytes > 0 and len(dev.max_thread_dimensions) == 3
    for name in ("max_clock_rate", "compute_version", "set_raw_stream", "driver_version"):
        with pytest.raises(AttributeError, match=rf"Device\.{name} does not exist here\. \w"):
            getattr(dev, name)
    assert copy.copy(dev) == pickle.loads(pickle.dumps(dev)) == dev


def test_functions_of_kernels_have_no_attributes() -> None:
    with pytest.raises(ModelError, match=r"register_op_attr\('tir.exp', .*a fixed set"):
        tilewright_tvm.ir.register_op_attr("tir.exp", "cuda.FLowerIntrinsic", print, level=99)


def test_what_tvm_calls_an_attribute_is_told_where_its_home_is_loaded() -> None:
    code = (
        "from tilewright.runtime.device import cpu\n"
        "def told():\n    try:\n        return cpu().compute_version\n"
        "    except AttributeError as error:\n        return str(error)\n"
        "assert told() == \"Device has no attribute 'compute_version'\", told()\n"
        "import tilewright_tvm\nassert 'dev.arch' in told(), told()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


MOVED = [
    "from tilewright import TVMError", "from tilewright import gpu, placeholder",
    "from tilewright.topi import testing", "from tilewright.te import extern",
    "from tilewright.ir import IRModule", "from tilewright.runtime import vm",
    "from tilewright.schedule import AutoInlineInjective",
]  # fmt: skip


@pytest.mark.parametrize("line", MOVED)
def test_what_moved_says_where_it_is(line: str) -> None:
    with pytest.raises(ImportError, match=r"It is a name of TVM: (tilewright_tvm[\w.]+)") as caught:
        exec(line, {})
    owner, _, name = str(caught.value).partition("TVM: ")[2].split()[0].rpartition(".")
    assert hasattr(import_module(owner), name)
    owner, _, names = line.removeprefix("from ").partition(" import ")
    with pytest.raises(AttributeError, match="It is a name of TVM"):
        getattr(import_module(owner), names.partition(",")[0])


@pytest.mark.parametrize("line, room", [
    ("import tilewright.relay.compile.build", "network"),
    ("from tilewright.relay import passes", "graph.passes"),
    ("import tilewright_tvm.relay.exchange", "models"),
])  # fmt: skip
def test_rooms_that_left_relay_say_where_they_are(line: str, room: str) -> None:
    with pytest.raises(ImportError, match=rf"It is the package tilewright\.{room} now\.$"):
        exec(line, {})
    assert import_module(f"tilewright.{room}")


def test_what_is_forwarded_and_what_nobody_knows() -> None:
    import tilewright.driver.tvmc

    from tilewright.driver import tvmc

    assert tvmc is tilewright_tvm.tvmc is tilewright.driver.tvmc
    with pytest.raises(ImportError, match="Microcontrollers are no target"):
        exec("from tilewright import micro", {})
    with pytest.raises(ModuleNotFoundError, match="No module named 'tilewright.nope'"):
        import_module("tilewright.nope")
    assert {"load", "tune", "compile", "open", "te", "cpu"} <= set(dir(tilewright))


def test_a_script_that_asks_ints_for_their_value_is_told_what_to_write(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from tvm import te\nprint(te.placeholder((4, 5)).shape[0].value)\n")
    run = [sys.executable, "-m", "tilewright_tvm", str(script)]
    told = subprocess.run(run, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "line 2" in told.stderr
    assert "leave .value out, or write int(n)" in told.stderr


def test_networks_by_name_are_modules_of_relay_testing_too():
    zoo = importlib.import_module("tilewright.models.zoo")
    for file in Path(zoo.__file__).parent.glob("[a-z]*.py"):
        found = importlib.import_module(f"tilewright_tvm.relay.testing.{file.stem}")
        assert found is importlib.import_module(f"tilewright.models.zoo.{file.stem}")


REFUSED = {  # what it says last
    "from tvm.relay.op.contrib import tensorrt": "kernels are compiled and tuned.",
    "import tvm.meta_schedule": "Use autotvm.",
    "from tvm import te\nte.create_schedule(3)": "",
    "from tvm import autotvm\n@autotvm.template('old')\ndef made(n):\n"
    "    autotvm.get_config().no\nautotvm.task.create('old', (1,), 'llvm')": "",  # calls it
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_ends_a_script_with_its_own_line_and_one_sentence(tmp_path, text):
    script = tmp_path / "old.py"
    script.write_text(f"def old():\n    {text.replace(chr(10), chr(10) + '    ')}\nold()\n")
    run = [sys.executable, "-m", "tilewright_tvm", str(script)]
    told = subprocess.run(run, capture_output=True, text=True, check=False)
    lines = told.stderr.splitlines()
    files = {line.split('"')[1] for line in lines if line.startswith("  File ")}
    assert told.returncode == 1 and files == {str(script)}, told.stderr
    assert lines[-1].endswith(REFUSED[text]) and "Error: " in lines[-1]


@pytest.mark.parametrize("text", ["raise ValueError('mine')", "def x(:", "import tvm\n1 / 0"])
def test_a_scripts_own_errors_are_told_as_python_tells_them(tmp_path, text):
    script = tmp_path / "old.py"
    script.write_text(text)
    ways = [[str(script)], ["-m", "tilewright_tvm", str(script)]]
    if "tvm" in text:
        script.write_text(text.replace("tvm", "tilewright_tvm"))
    told = [
        subprocess.run([sys.executable, *way], capture_output=True, text=True, check=False)
        for way in ways
    ]
    assert told[0].stderr == told[1].stderr and told[0].returncode == told[1].returncode == 1


SPAWNING = """
import multiprocessing
import tvm
def work():
    import tvm, topi
    assert tvm.__name__ == "tilewright_tvm" and topi is tvm.topi
if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=work)
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


@pytest.mark.slow
def test_processes_that_a_script_spawns_have_its_names_too(tmp_path):
    script = tmp_path / "old.py"
    script.write_text(SPAWNING)
    run = [sys.executable, "-m", "tilewright_tvm", str(script)]
    told = subprocess.run(run, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr


def test_a_module_that_is_not_there_is_one_line():
    run = [sys.executable, "-m", "tilewright_tvm", "-m", "no_such_module"]
    told = subprocess.run(run, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "Traceback" not in told.stderr
    assert "No module named no_such_module" in told.stderr


@pytest.mark.slow
def test_templates_by_tvms_names_are_found_after_ours() -> None:
    """By who starts from the compiler, as the command does: packages of equal names are two."""
    script = (
        "import tilewright.topi.templates as ours\n"
        "from tilewright.schedule.template import named_template\n"
        "assert named_template('dense_nopack.x86') is not None\n"
        "import tilewright_tvm.topi.templates as theirs\n"
        "assert ours is not theirs\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
