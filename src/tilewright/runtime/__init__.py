"""Running compiled kernels: devices, arrays, modules, networks, timing, trials.

In: `Artifact`s made by `driver`.  Out: results and seconds.  Read next: `module.py`.
"""

from collections.abc import Callable as PackedFunc  # what TVM wraps is a function here
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime.device import Device, cpu, cuda, device, opencl
from tilewright.runtime.load import load_module
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray, array, empty, from_dlpack
from tilewright.runtime.network.param_dict import (
    load_param_dict,
    load_param_dict_from_file,
    save_param_dict,
    save_param_dict_to_file,
)
from tilewright.runtime.sequence import LaunchSequence
from tilewright.runtime.timing import BenchmarkResult
from tilewright_tvm.runtime import container, vm
from tilewright_tvm.runtime.container import ShapeTuple, String


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
    "BenchmarkResult",
    "Device",
    "LaunchSequence",
    "Module",
    "NDArray",
    "PackedFunc",
    "ShapeTuple",
    "String",
    "array",
    "container",
    "convert",
    "cpu",
    "cuda",
    "device",
    "empty",
    "enabled",
    "from_dlpack",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "opencl",
    "save_param_dict",
    "save_param_dict_to_file",
    "vm",
]  # fmt: skip
