"""Running compiled kernels: devices, arrays, modules, networks, timing, trials.

In: `Artifact`s made by `driver`.  Out: results and seconds.  Read next: `module.py`.
"""

from typing import Any

from tilewright.base import forward
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

__all__ = [
    "BenchmarkResult",
    "Device",
    "LaunchSequence",
    "Module",
    "NDArray",
    "array",
    "cpu",
    "cuda",
    "device",
    "empty",
    "from_dlpack",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "opencl",
    "save_param_dict",
    "save_param_dict_to_file",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
