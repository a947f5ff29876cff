"""Tilewright: declare a computation or import a network, tune it on your device, compile it.

    from tilewright import te, topi, relay, autotvm, auto_scheduler, nd
    from tilewright import build, lower, cpu, cuda, opencl

Rooms, in the order data flows: base, ir, te, schedule, lowering, codegen, runtime, driver, topi,
measure, search, relay; on top the names of the tutorials (autotvm, auto_scheduler) and the command
(cli).
Read next: docs/design.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import absent
from tilewright.targets.target import Target as Target

if TYPE_CHECKING:
    from tilewright import te as te
    from tilewright.driver.build import build as build
    from tilewright.driver.build import lower as lower
    from tilewright.relay.graph.expr import IRModule as IRModule
    from tilewright.runtime.device import cpu as cpu
    from tilewright.runtime.device import cuda as cuda
    from tilewright.runtime.device import device as device
    from tilewright.runtime.device import opencl as opencl

__version__ = "0.1.0"

# Loaded on first use, so that `import tilewright` and the command line start fast.
_LAZY = {
    "build": "tilewright.driver.build",
    "lower": "tilewright.driver.build",
    "cpu": "tilewright.runtime.device",
    "cuda": "tilewright.runtime.device",
    "opencl": "tilewright.runtime.device",
    "device": "tilewright.runtime.device",
    "IRModule": "tilewright.relay.graph.expr",
}
_MODULES = (
    "te",
    "topi",
    "relay",
    "autotvm",
    "auto_scheduler",
    "instrument",
    "nd",
    "target",
    "testing",
    "transform",
    "contrib",
    "runtime",
)


# Names of TVM whose time has not come, or never will: what to use instead.
_ELSEWHERE = {
    "compute": "Use te.compute.",
    "context": "Use device(kind, index).",
    "create_schedule": "Use te.create_schedule.",
    "gpu": "Use cuda() or opencl().",
    "meta_schedule": "Use autotvm.",
    "metal": "Metal is not a target; the targets are llvm, cuda and opencl.",
    "micro": "Microcontrollers are no target; the targets are llvm, cuda and opencl.",
    "placeholder": "Use te.placeholder.",
    "reduce_axis": "Use te.reduce_axis.",
    "rocm": "ROCm is not a target; try opencl().",
    "rpc": "Use autotvm.RPCRunner to measure, auto_scheduler.utils.request_remote for a session.",
    "thread_axis": "Use te.thread_axis.",
    "tir": "Use te: te.if_then_else, te.all, te.any, te.exp, ...",
    "vulkan": "Vulkan is not a target; try opencl().",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"tilewright.{name}")
    raise absent("tilewright", name, _ELSEWHERE)
