"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tilewright.base.errors import TargetError, absent
from tilewright.targets.target import Limits, Target, arm_cpu, create, cuda, intel_graphics, mali

__all__ = [
    "Limits", "Target", "arm_cpu", "bifrost", "create", "cuda", "generic_func", "intel_graphics",
    "mali",
]  # fmt: skip

bifrost = mali


def generic_func(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function stands for others, registered for keys of targets; which of them is
    called is that of the narrowest key of the target in force, else itself.

        @target.generic_func
        def schedule(outs): ...

        @schedule.register(["cuda", "gpu"])
        def schedule_gpu(outs): ...
    """
    known: dict[str, Callable[..., Any]] = {}

    @functools.wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        current = Target.current()
        keys = () if current is None else current.keys
        return next((known[k] for k in keys if k in known), function)(*args, **kwargs)

    def register(
        key: str | Sequence[str], func: Callable[..., Any] | None = None, override: bool = False
    ) -> Any:
        if func is None:
            return functools.partial(register, key, override=override)
        for one in [key] if isinstance(key, str) else key:
            if one in known and not override:
                raise TargetError(
                    f"{function.__name__}.register({one!r})", "it is registered already",
                    "Pass override=True.",
                )  # fmt: skip
            known[one] = func
        return func

    chosen.register = register  # type: ignore[attr-defined]
    return chosen


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = {
    "adreno": 'Use Target("opencl -device=adreno").',
    "datatype": "Element types are a fixed set (docs/element-types.md).",
    "hexagon": "Hexagon is no target; the targets are llvm, cuda and opencl.",
    "override_native_generic_func": "Look at Target.current().kind in a function of your own.",
    "rocm": 'ROCm is not a target; try Target("opencl").',
    "vta": "VTA is no target; the targets are llvm, cuda and opencl.",
}


def __getattr__(name: str) -> Any:
    if name == "codegen":  # in a room that this file does not load (`base/elsewhere.py`)
        return import_module("tilewright.target.codegen")
    raise absent("target", name, _ELSEWHERE)
