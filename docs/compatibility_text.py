"""What docs/compatibility.md says besides its tables of names: head, commands, packages.

In: nothing.  Out: texts.  Read next: `make_compatibility.py`, which has the tables.
"""

from __future__ import annotations

# Packages whose functions have TVM's names; the page lists them.
NO_OPERATORS = {
    "bind", "bind_params", "build", "const", "create_executor", "evaluate", "free_vars", "Let",
    "load", "load_param_dict", "optimize", "save_param_dict", "scalar_type", "to_onnx", "var",
}  # fmt: skip
OPERATORS = ("relay", "relay.nn", "relay.image", "relay.vision", "topi", "topi.nn", "topi.testing")

COMMANDS = (
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
        "`tilewright records distill FILE`, `python -m tilewright.auto_scheduler.measure_record`",
    ),
    ("python -m tvm.exec.autotvm_log_editor", "`autotvm.record.pick_best(log, best)` in Python"),
    (
        "python -m tvm.exec.rpc_tracker",
        "`python -m tilewright.exec.rpc_tracker`, which listens on this machine only unless --host "
        "says otherwise, and then by TLS; `tilewright farm tracker`",
    ),
    (
        "python -m tvm.exec.rpc_server",
        "`python -m tilewright.exec.rpc_server`, `tilewright farm server`; --load-library and "
        "--through-proxy are not there",
    ),
    (
        "python -m tvm.exec.query_rpc_tracker",
        "`python -m tilewright.exec.query_rpc_tracker`, `tilewright farm status`",
    ),
)

HEAD = """# Compatibility with TVM's AutoTVM, auto-scheduler and Relay

<!-- Written by docs/make_compatibility.py; change that, and run it. -->

Names are in the newest spelling that TVM gave them, after `from tilewright import te, topi, relay,
autotvm, auto_scheduler, nd, ...`. Here `C` is a tensor, `s` a schedule, `cfg` a configuration
space, `config` a configuration, `func` what `build` returns, `lib` what `relay.build` returns, `a`
an array on a device, `T` a target, `result` what `time_evaluator` and `benchmark` return,
`search_task` a `SearchTask`, `dag` its computation, `inp` the input of a record, `model` an
`XGBModel`.

Three states. *Works*: as in TVM. *Different*: there, with a difference that a user may meet. *Not
yet*: using the name raises an error that says what to use instead; the text below is that error's.
"""


TEMPLATES = """
## Templates by TVM's names

`autotvm.task.create(name, args, target)` makes the task of one, with AutoTVM's knobs in its order;
lines of its logs with these names are imported, applied and built from. Indices are the originals',
except of splits with policy "verbose", which TVM numbers in the order of a Python set: lines are
read by their knobs. `.cuda`, `.gpu` and `.mali` are for every GPU, `.x86` and `.arm_cpu` for every
CPU.
"""
