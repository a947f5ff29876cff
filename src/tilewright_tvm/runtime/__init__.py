"""TVM's `runtime`: the names of ours, and those that only TVM has.

Read next: `container.py`, `vm.py`.
"""

from collections.abc import Callable as PackedFunc  # what TVM wraps is a function here
from typing import Any

from tilewright import runtime
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime import *  # noqa: F403
from tilewright.runtime.device import device
from tilewright_tvm import param_dict
from tilewright_tvm.elsewhere import find
from tilewright_tvm.runtime import container, vm
from tilewright_tvm.runtime.container import ShapeTuple, String

load_param_dict = param_dict.load_param_dict  # type: ignore[assignment]  # not ours
save_param_dict = param_dict.save_param_dict  # type: ignore[assignment]


def convert(value: Any) -> Any:
    """`value` itself, tuples as lists: numbers and lists of Python are what functions here take."""
    return [convert(v) for v in value] if isinstance(value, (list, tuple)) else value


@door(DeviceError, "runtime.enabled")
def enabled(target: str) -> bool:
    """Tell whether there is a device here for kernels of a target."""
    try:
        return device(target).exist
    except TilewrightError:
        return False


__all__ = [
    "PackedFunc", "ShapeTuple", "String", "container", "convert", "enabled", "vm",
    *runtime.__all__,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
