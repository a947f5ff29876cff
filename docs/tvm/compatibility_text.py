"""What the page of TVM's names says besides its tables of names: head, commands, packages.

In: nothing.  Out: texts.  Read next: `make_compatibility.py`, which has the tables.
"""

from __future__ import annotations

# Packages whose functions have TVM's names; the page lists them.
NO_OPERATORS = {
    "bind", "bind_params", "build", "const", "create_executor", "evaluate", "free_vars",
    "fromtext", "Let", "load", "load_param_dict", "optimize", "parse", "parse_expr",
    "save_param_dict", "scalar_type", "to_onnx", "var",
}  # fmt: skip
OPERATORS = ("relay", "relay.nn", "relay.image", "relay.vision", "topi", "topi.nn", "topi.testing")

COMMANDS = (
    (
        "python -m tvm.driver.tvmc",
        "`python -m tilewright_tvm.driver.tvmc` with TVM's options of tune, compile and run; one "
        "that has no meaning here is refused and says what to do",
    ),
    (
        "python -m tvm.driver.tvmc tune",
        "`tilewright tune MODEL`: trials are of all tasks together, --trials and --minutes; "
        "--shape for --input-shapes (`name:[1,3,224,224]`), --farm and --key for --rpc-tracker "
        "and --rpc-key",
    ),
    ("python -m tvm.driver.tvmc compile", "`tilewright compile MODEL --log FILE -o net.so`"),
    ("python -m tvm.driver.tvmc run", "`tilewright run net.so`"),
    ("python -m tvm.autotvm.record --mode read", "`tilewright records FILE`"),
    (
        "python -m tvm.auto_scheduler.measure_record --mode distill",
        "`tilewright records distill FILE`, "
        "`python -m tilewright_tvm.auto_scheduler.measure_record`",
    ),
    ("python -m tvm.exec.autotvm_log_editor", "`autotvm.record.pick_best(log, best)` in Python"),
    (
        "python -m tvm.exec.rpc_tracker",
        "`python -m tilewright_tvm.exec.rpc_tracker`, which listens on this machine only unless "
        "--host says otherwise, and then by TLS; `tilewright farm tracker`",
    ),
    (
        "python -m tvm.exec.rpc_server",
        "`python -m tilewright_tvm.exec.rpc_server`, `tilewright farm server`; --load-library and "
        "--through-proxy are not there",
    ),
    (
        "python -m tvm.exec.query_rpc_tracker",
        "`python -m tilewright_tvm.exec.query_rpc_tracker`, `tilewright farm status`",
    ),
)

# TVM writes a line per trial and times nothing again.
EACH_ONCE = (
    "gives each trial once, as TVM does; the leaders are timed again at the end, which is a line "
    'of the log (`"final": true`), but no trial: it is given as the result of its trial; of a log '
    "of TVM the trials of workloads that are registered in this process, which nobody verified"
)

# Script of TVM 0.14, examples/, what the script does here.
GALLERIES = (
    ("tune_with_autotvm/tune_conv2d_cuda", "tune_conv2d_cuda.py", "as it is"),
    ("tune_with_autotvm/tune_relay_cuda", "tune_network.py", "as it is"),
    ("tune_with_autotvm/tune_relay_x86", "tune_network_layouts.py", "as it is"),
    ("tune_with_autotvm/tune_relay_arm", "tune_network_board.py", "as it is, with a farm"),
    ("tune_with_autotvm/tune_relay_mobile_gpu", "tune_network_board.py", "as it is, with a farm"),
    (
        "tune_with_autoscheduler/tune_conv2d_layer_cuda",
        "tune_conv2d_layer_auto_scheduler.py",
        "as it is",
    ),
    (
        "tune_with_autoscheduler/tune_network_cuda",
        "tune_network_auto_scheduler.py",
        "as it is",
    ),
    ("tune_with_autoscheduler/tune_network_x86", "tune_network_auto_scheduler.py", "as it is"),
    ("tune_with_autoscheduler/tune_network_arm", "tune_network_board.py", "as it is, with a farm"),
    ("tune_with_autoscheduler/tune_network_mali", "tune_network_mali.py", "as it is, with a farm"),
    (
        "tune_with_autoscheduler/tune_sparse_x86",
        "tune_sparse_dense_auto_scheduler.py",
        "as it is",
    ),
    (
        "tutorial/tvmc_command_line_driver",
        "command_line.sh",
        "`tilewright` for `tvmc`: --trials are of all tasks, --log for --tuning-records of "
        "compile, --outputs; run always prints times",
    ),
    (
        "tutorial/tvmc_python",
        "tune_model_tvmc.py",
        "as it is, with a file that is there",
    ),
    (
        "tutorial/autotvm_relay_x86",
        "tune_onnx_network.py",
        "as it is, with files that are there: nothing is downloaded",
    ),
    ("tutorial/autotvm_matmul_x86", "tune_matmul.py", "as it is"),
    ("tutorial/auto_scheduler_matmul_x86", "tune_matmul_auto_scheduler.py", "as it is"),
    (
        "tutorial/tensor_expr_get_started",
        "tensor_expressions.py",
        "without cc.create_shared: one file holds all",
    ),
    ("tutorial/intro_topi", "operators.py", "as it is"),
    (
        "tutorial/cross_compilation_and_rpc",
        "cross_compile.py",
        "as it is; with a board rpc.connect_tracker(...).request(key) for rpc.connect",
    ),
    ("tutorial/relay_quick_start", "deploy_network.py compile_network.py", "as it is"),
    ("tutorial/introduction", "", "text only"),
    ("tutorial/install", "", "text only"),
    ("tutorial/tensor_ir_blitz_course", "schedules.py", "ends: TVMScript is not read"),
    ("tutorial/uma", "", "ends: targets are llvm, cuda and opencl"),
    ("optimize_operators/opt_gemm", "tensor_expressions.py", "as it is"),
    ("optimize_operators/opt_conv_cuda", "tune_conv2d_cuda.py", "as it is"),
    ("optimize_operators/opt_conv_tensorcore", "", "ends: no wmma; tensorize takes atoms by name"),
    ("extend_tvm/use_pass_infra", "", "as it is"),
    ("extend_tvm/use_pass_instrument", "", "as it is"),
    (
        "extend_tvm/low_level_custom_pass",
        "",
        "ends: lowering has its own passes",
    ),
    ("extend_tvm/bring_your_own_datatypes", "", "ends: element types are a fixed set"),
    (
        "work_with_relay/using_external_lib",
        "",
        "as it is; -libs=cudnn has no effect, kernels are compiled and tuned",
    ),
    ("work_with_relay/build_gcn", "", "ends: networks have dense weights"),
    ("work_with_relay/using_relay_viz", "", "ends: print(mod) shows the network"),
    ("work_with_relay/using_pipeline_executor", "", "ends: a GraphModule for each part"),
    ("work_with_pytorch/using_as_torch", "", "ends: TVMScript is not read"),
    (
        "compile_models/from_onnx",
        "compile_network.py",
        "as it is, with files that are there: nothing is downloaded",
    ),
    (
        "compile_models/from_pytorch",
        "compile_network.py",
        "as it is, with files that are there: nothing is downloaded",
    ),
    (
        "compile_models/from_{keras,tensorflow,tflite,mxnet,paddle,oneflow,coreml,darknet}",
        "",
        "ends: export the model to ONNX",
    ),
    (
        "deploy_models/deploy_model_on_{rasp,nano,d1}",
        "cross_compile.py",
        "as it is with local_demo, with files that are there",
    ),
    ("deploy_models/deploy_sparse", "", "ends: networks have dense weights"),
    ("deploy_models/deploy_quantized", "", "ends: import a model that is quantised already"),
    ("work_with_microtvm/*", "", "ends: microcontrollers are no target"),
    ("work_with_schedules/schedule_primitives", "schedules.py", "as it is"),
    ("work_with_schedules/reduction", "schedules.py", "as it is"),
    (
        "work_with_schedules/intrin_math",
        "math_functions.py",
        "te.exp as it is; ends at functions of CUDA's own and rules for them",
    ),
    (
        "work_with_schedules/scan",
        "recurrences.py",
        "as it is up to states of two shapes, which are a scan each",
    ),
    ("work_with_schedules/extern_op", "imperative_stages.py", "as it is"),
    ("work_with_schedules/tensorize", "", "as it is where there is clang, or a text of LLVM"),
    ("work_with_schedules/tuple_inputs", "several_results.py", "as it is"),
    ("work_with_schedules/tedd", "schedules.py", "ends: print(s) shows the loops"),
)


HEAD = """# Compatibility with TVM's AutoTVM, auto-scheduler and Relay

<!-- Written by docs/tvm/make_compatibility.py; change that, and run it. -->

Names are in the newest spelling that TVM gave them, behind `tvm.` after `import tilewright_tvm as
tvm` ([README.md](README.md) says how scripts run). Here `C` is a tensor, `s` a schedule, `cfg` a
configuration space, `config` a configuration, `func` what `build` returns, `lib` what `relay.build`
returns, `a` an array on a device, `T` a target, `result` what `time_evaluator` and `benchmark`
return, `search_task` a `SearchTask`, `dag` its computation, `inp` the input of a record, `model` an
`XGBModel`.

Three states. *Works*: as in TVM. *Different*: there, with a difference that a user may meet. *Not
yet*: using the name raises an error that says what to use instead; the text below is that error's.

Of 1,572 functions of TVM's own tests that look at what a user sees, imports renamed and many of
them shortened, 1,234 pass, 224 end in an error that says what to do, and 114 do neither:
`benchmarks/results/tvm_tests.json` has them by name.
"""


TEMPLATES = """
## Templates by TVM's names

`autotvm.task.create(name, args, target)` makes the task of one, with AutoTVM's knobs in its order;
lines of its logs with these names are imported, applied and built from. Indices are the originals',
except of splits with policy "verbose", which TVM numbers in the order of a Python set: lines are
read by their knobs. `.cuda`, `.gpu` and `.mali` are for every GPU, `.x86` and `.arm_cpu` for every
CPU.
"""


def closing_tables() -> list[str]:
    """Lines of commands and of TVM's scripts."""
    lines = ["\n## Commands\n\n| in TVM | here |\n| --- | --- |\n"]
    lines += [f"| `{theirs}` | {ours} |\n" for theirs, ours in COMMANDS]
    lines += [
        "\n## Scripts of TVM's galleries\n\n",
        "Ours are in `examples/`; *as it is*: only the imports change.\n\n",
        "| in TVM | here | the script itself |\n| --- | --- | --- |\n",
    ]
    for script, ours, ends in GALLERIES:
        names = ", ".join(f"`{name}`" for name in ours.split())
        lines.append(f"| `{script}` | {names} | {ends} |\n")
    return lines
