"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

from typing import Any

from tilewright.base.errors import absent
from tilewright.targets.target import Limits, Target, arm_cpu, create, cuda, mali

__all__ = ["Limits", "Target", "arm_cpu", "create", "cuda", "mali"]

__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = {
    "bifrost": "Use target.mali(): the kind is opencl with -device=mali.",
    "codegen": "Processors are described by Target options: -mcpu and -mattr.",
    "datatype": "Element types are a fixed set (docs/element-types.md).",
    "generic_func": "Look at Target.current().kind in a function of your own.",
    "hexagon": "Hexagon is no target; the targets are llvm, cuda and opencl.",
    "intel_graphics": 'Use Target("opencl").',
    "override_native_generic_func": "Look at Target.current().kind in a function of your own.",
    "rocm": 'ROCm is not a target; try Target("opencl").',
    "vta": "VTA is no target; the targets are llvm, cuda and opencl.",
}


def __getattr__(name: str) -> Any:
    raise absent("target", name, _ELSEWHERE)
