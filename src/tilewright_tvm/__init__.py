"""TVM's API, 0.6 to 0.19, over Tilewright: `import tilewright_tvm as tvm`.

    from tilewright_tvm import te, topi, relay, autotvm, auto_scheduler, nd

`python -m tilewright_tvm script.py ARGS` runs a script as it is.  What lives here exists for that
API only; all work is done by the package `tilewright`, which knows nothing of this one.
Read next: `elsewhere.py`, `old_names.py`; docs/tvm/compatibility.md lists the names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright import __version__ as __version__
from tilewright.targets.target import Target as Target
from tilewright_tvm import plugin
from tilewright_tvm.elsewhere import explain_imports, find

if TYPE_CHECKING:
    from tilewright import te as te
    from tilewright.driver.build import build as build
    from tilewright.driver.build import lower as lower
    from tilewright.runtime.device import cpu as cpu
    from tilewright.runtime.device import cuda as cuda
    from tilewright.runtime.device import device as device
    from tilewright.runtime.device import opencl as opencl
    from tilewright_tvm.relay.functional.definitions import IRModule as IRModule

explain_imports()
plugin.register()

# Loaded on first use.
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
    "container": "tilewright_tvm.runtime",
    "convert": "tilewright_tvm.runtime",
    "IRModule": "tilewright_tvm.relay.functional.definitions",
    "TVMError": "tilewright_tvm.error",
    "get_global_func": "tilewright.runtime.function_table",
    "register_func": "tilewright.runtime.function_table",
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
        return import_module(f"tilewright_tvm.{name}")
    return find(__name__, name, _ELSEWHERE)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_MODULES})
