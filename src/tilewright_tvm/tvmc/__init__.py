"""A network from file to result in four calls, under the names of TVM's `driver.tvmc`.

    model = tvmc.load("net.onnx")
    records = tvmc.tune(model, target="llvm", trials=64)
    package = tvmc.compile(model, target="llvm", tuning_records=records)
    print(tvmc.run(package, device="cpu"))

`python -m tilewright_tvm.driver.tvmc` is the command, with TVM's options (`main.py`).
In: a model file.  Out: `TVMCModel`, a log, `TVMCPackage`, `TVMCResult`.
Read next: `model.py`, `autotuner.py`, `compiler.py`, `runner.py`.
"""

from importlib import import_module
from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.tvmc import (
    autotuner,
    common,
    compiler,
    composite_target,
    frontends,
    model,
    result_utils,
    runner,
    shape_parser,
    target,
    transform,
)
from tilewright_tvm.tvmc.autotuner import tune_model as tune
from tilewright_tvm.tvmc.common import TVMCException, TVMCImportError
from tilewright_tvm.tvmc.compiler import compile_model as compile
from tilewright_tvm.tvmc.frontends import load_model as load
from tilewright_tvm.tvmc.model import TVMCModel, TVMCPackage, TVMCResult
from tilewright_tvm.tvmc.runner import run_module as run

__all__ = [
    "TVMCException", "TVMCImportError", "TVMCModel", "TVMCPackage", "TVMCResult", "autotuner",
    "common", "compile", "compiler", "composite_target", "frontends", "load", "model",
    "result_utils", "run", "runner", "shape_parser", "target", "transform", "tune",
]  # fmt: skip

_COMMAND = "Its options are functions of the module main; `tilewright --help` has ours."
_ELSEWHERE = {
    "arguments": _COMMAND,
    "micro": "Microcontrollers are no target; the targets are llvm, cuda and opencl.",
    "pass_config": "Use tvmc.compile(pass_context_configs=) or transform.PassContext(config=).",
    "pass_list": "Use tvmc.compile(disabled_pass=).",
    "project": "Microcontrollers are no target; the targets are llvm, cuda and opencl.",
    "registry": "Name options in the target: tvmc.compile(model, target='cuda -arch=sm_90').",
    "tracker": "Pass hostname=, port= and rpc_key=; a farm is started by `tilewright farm`.",
    "workspace_pools": "Memory is planned by relay.build; its report tells how much.",
}


def __getattr__(name: str) -> Any:
    if name == "main":
        return import_module(f"{__name__}.main")
    raise absent("driver.tvmc", name, _ELSEWHERE)
