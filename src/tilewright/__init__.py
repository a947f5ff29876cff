"""Tilewright: declare a computation or import a network, tune it on your device, compile it.

    from tilewright import te, topi, relay, autotvm, auto_scheduler, nd
    from tilewright import build, lower, cpu, cuda, opencl

Rooms, in the order data flows: base, ir, te, schedule, lowering, codegen, runtime, driver, topi,
measure, search, relay; on top the names of the tutorials (autotvm, auto_scheduler, tvmc) and the
command (cli).
Read next: docs/design.md.
"""

from tilewright.base import early as _early  # noqa: F401  # hears Ctrl-C from here on

# isort: split

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.base.offers import offer
from tilewright.targets.target import Target as Target
from tilewright_tvm.elsewhere import explain_imports, find

if TYPE_CHECKING:
    from tilewright import te as te
    from tilewright.driver.build import build as build
    from tilewright.driver.build import lower as lower
    from tilewright.graph.expr import IRModule as IRModule
    from tilewright.runtime.device import cpu as cpu
    from tilewright.runtime.device import cuda as cuda
    from tilewright.runtime.device import device as device
    from tilewright.runtime.device import opencl as opencl

__version__ = "0.1.0"

explain_imports()

# What rooms offer of later ones.
offer("tilewright.te", {"create_schedule": "tilewright.schedule.schedule:create_schedule"})
offer("templates", {"topi": "tilewright.topi.templates"})
# Of TVM's `te`, which no room here imports.
offer("tilewright.te", {
    "ExternOp": "tilewright.te.extern:ExternOp",
    "extern": "tilewright.te.extern:extern",
    "gradient": "tilewright.te.gradient:gradient",
    "hybrid": "tilewright.te.hybrid",
    "scan": "tilewright.te.scan:scan",
    "schedule": "tilewright.schedule.by_name",
})  # fmt: skip

# Loaded on first use, so that `import tilewright` and the command line start fast.
_LAZY = {
    "build": "tilewright.driver.build",
    "lower": "tilewright.driver.build",
    "cpu": "tilewright.runtime.device",
    "cuda": "tilewright.runtime.device",
    "opencl": "tilewright.runtime.device",
    "cl": "tilewright.runtime.device:opencl",
    "gpu": "tilewright.runtime.device:cuda",
    "context": "tilewright.runtime.device:device",
    "device": "tilewright.runtime.device",
    "container": "tilewright.runtime",
    "convert": "tilewright.runtime",
    "IRModule": "tilewright.graph.expr",
    "TVMError": "tilewright_tvm.error",
    "get_global_func": "tilewright.base.functions",
    "register_func": "tilewright.base.functions",
}
_MODULES = (
    "_ffi",
    "arith",
    "error",
    "te",
    "tir",
    "topi",
    "relay",
    "rpc",
    "autotvm",
    "auto_scheduler",
    "instrument",
    "ir",
    "nd",
    "parser",
    "target",
    "testing",
    "transform",
    "tvmc",
    "contrib",
    "codegen",
    "driver",
    "exec",
    "runtime",
    "schedule",
)


# Names of TVM whose time has not come, or never will: what to use instead.
_ELSEWHERE = {
    "meta_schedule": "Use autotvm.",
    "metal": "Metal is not a target; the targets are llvm, cuda and opencl.",
    "micro": "Microcontrollers are no target; the targets are llvm, cuda and opencl.",
    "rocm": "ROCm is not a target; try opencl().",
    "relax": "Networks are relay's: relay.frontend imports them.",
    "script": "TVMScript is not read; declare with te.compute, schedule with te.create_schedule.",
    "vulkan": "Vulkan is not a target; try opencl().",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, other = _LAZY[name].partition(":")
        return getattr(import_module(module), other or name)
    if name in _MODULES:
        return import_module(f"tilewright.{name}")
    return find(__name__, name, _ELSEWHERE)
