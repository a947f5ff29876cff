"""Tilewright: declare a computation or import a network, tune it on your device, compile it.

    from tilewright import te, topi, relay, autotvm, nd, build, lower, cpu, cuda, opencl

Rooms, in the order data flows: base, ir, te, schedule, lowering, codegen, runtime, driver, topi,
measure, search, relay; on top of them the names of the tutorials (autotvm) and the command (cli).
Read next: docs/design.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright import te as te
from tilewright.base.target import Target as Target
from tilewright.schedule.schedule import create_schedule as _create_schedule

if TYPE_CHECKING:
    from tilewright.driver.build import build as build
    from tilewright.driver.build import lower as lower
    from tilewright.relay.expr import IRModule as IRModule
    from tilewright.runtime.device import cpu as cpu
    from tilewright.runtime.device import cuda as cuda
    from tilewright.runtime.device import device as device
    from tilewright.runtime.device import opencl as opencl

__version__ = "0.1.0"

te.create_schedule = _create_schedule  # type: ignore[attr-defined]  # its home is a later room

# Loaded on first use, so that `import tilewright` and the command line start fast.
_LAZY = {
    "build": "tilewright.driver.build",
    "lower": "tilewright.driver.build",
    "cpu": "tilewright.runtime.device",
    "cuda": "tilewright.runtime.device",
    "opencl": "tilewright.runtime.device",
    "device": "tilewright.runtime.device",
    "IRModule": "tilewright.relay.expr",
}
_MODULES = (
    "topi",
    "relay",
    "autotvm",
    "nd",
    "target",
    "testing",
    "transform",
    "contrib",
    "runtime",
)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MODULES:
        return import_module(f"tilewright.{name}")
    raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
