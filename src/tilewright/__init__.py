"""Tilewright: declare a computation or import a network, tune it on your device, compile it.

    import tilewright as tw

A network:     tw.load, tw.tune, tw.compile, tw.open, tw.report
An operator:   tw.te, tw.topi, tw.template, tw.get_config, tw.task, tw.tune, tw.build, tw.lower
Where it runs: tw.Target, tw.device, tw.cpu, tw.cuda, tw.opencl

Rooms, in the order data flows: base, targets, ir, te, schedule, lowering, codegen, cost, runtime,
driver, topi, measure, knowledge, farm, search, graph, network, models; on top reports (reporting)
and the command (cli).
TVM's names, those of its tutorials among them, are the package `tilewright_tvm`.
Read next: docs/design.md.
"""

from tilewright.base import early as _early  # noqa: F401  # hears Ctrl-C from here on
from tilewright.base import systems as _systems  # noqa: F401  # raises where it does not run

# isort: split

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.base import forward as _forward
from tilewright.base import plugins as _plugins

if TYPE_CHECKING:
    from tilewright import te as te
    from tilewright import topi as topi
    from tilewright.driver.build import build as build
    from tilewright.driver.build import lower as lower
    from tilewright.front import Network as Network
    from tilewright.front import Tuned as Tuned
    from tilewright.front import compile as compile
    from tilewright.front import load as load
    from tilewright.front import task as task
    from tilewright.front import tune as tune
    from tilewright.graph.expr import IRModule as IRModule
    from tilewright.reporting.write import report as report
    from tilewright.runtime.device import cpu as cpu
    from tilewright.runtime.device import cuda as cuda
    from tilewright.runtime.device import device as device
    from tilewright.runtime.device import opencl as opencl
    from tilewright.runtime.network.compiled import Compiled as Compiled
    from tilewright.runtime.network.compiled import open as open
    from tilewright.runtime.network.decoder import Decoder as Decoder
    from tilewright.schedule.own_atoms import register_atom as register_atom
    from tilewright.schedule.task import Task as Task
    from tilewright.schedule.template import get_config as get_config
    from tilewright.schedule.template import template as template
    from tilewright.targets.target import Target as Target

__version__ = "0.1.0"

_forward.install()
# What rooms find in later ones.
_plugins.register(
    "names of te", {"create_schedule": "tilewright.schedule.schedule:create_schedule"}
)
_plugins.register("pragmas", {"import_llvm": "tilewright.codegen.llvm_foreign:define"})
_plugins.register("devices", {"device": "tilewright.runtime.device:device"})
_plugins.register("offered templates", {"topi": "tilewright.topi.templates"})

# Loaded on first use, so that `import tilewright` and the command line start fast.
_LAZY = {
    "Compiled": "tilewright.runtime.network.compiled",
    "Decoder": "tilewright.runtime.network.decoder",
    "Network": "tilewright.front",
    "Target": "tilewright.targets.target",
    "Task": "tilewright.schedule.task",
    "Tuned": "tilewright.front",
    "compile": "tilewright.front",
    "get_config": "tilewright.schedule.template",
    "load": "tilewright.front",
    "open": "tilewright.runtime.network.compiled",
    "report": "tilewright.reporting.write",
    "task": "tilewright.front",
    "template": "tilewright.schedule.template",
    "tune": "tilewright.front",
    "build": "tilewright.driver.build",
    "lower": "tilewright.driver.build",
    "cpu": "tilewright.runtime.device",
    "cuda": "tilewright.runtime.device",
    "opencl": "tilewright.runtime.device",
    "device": "tilewright.runtime.device",
    "IRModule": "tilewright.graph.expr",
    "get_global_func": "tilewright.runtime.function_table",
    "register_atom": "tilewright.schedule.own_atoms",
    "register_func": "tilewright.runtime.function_table",
}
_MODULES = ("codegen", "driver", "ir", "runtime", "schedule", "te", "topi")


def __getattr__(name: str) -> Any:
    try:
        if name in _LAZY:
            return getattr(import_module(_LAZY[name]), name)
        if name in _MODULES:
            return import_module(f"tilewright.{name}")
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("tilewright."):
            raise
        told = f"tilewright.{name}: this is the runtime alone, see docs/boards.md"
        raise AttributeError(told, name=name) from None
    return _forward.find(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
