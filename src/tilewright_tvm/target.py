"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import TargetError
from tilewright.targets.tags import list_tags
from tilewright.targets.target import (
    Limits,
    Target,
    TargetLike,
    arm_cpu,
    cuda,
    intel_graphics,
    mali,
)
from tilewright_tvm.elsewhere import find

__all__ = [
    "GenericFunc", "Limits", "Target", "arm_cpu", "bifrost", "create", "cuda", "generic_func",
    "get_native_generic_func", "hexagon", "intel_graphics", "list_tags", "mali",
    "override_native_generic_func", "rocm", "vta",
]  # fmt: skip

bifrost = mali


def create(text: TargetLike) -> Target:
    """Give `Target(text)`; `-target=` of TVM 0.6 is `-mtriple=` here.

    Raises TargetError for what is no target.
    """
    if isinstance(text, str):
        text = re.sub(r"(?<!\S)-target=", "-mtriple=", text)
    return Target(text)


class GenericFunc:
    """A function that stands for others, registered for keys of targets; which of them is called is
    that of the narrowest key of the target in force, else itself."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._default = function
        self._known: dict[str, Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get_packed_func()(*args, **kwargs)

    def get_packed_func(self) -> Callable[..., Any]:
        """The function that a call would be of, by the target in force."""
        current = Target.current()
        keys = () if current is None else current.keys
        return next((self._known[k] for k in keys if k in self._known), self._default)

    def set_default(self, func: Callable[..., Any]) -> None:
        """What is called where no key of the target has a function."""
        self._default = func

    def register(
        self, key: Any, func: Any = None, override: bool = False, allow_override: bool = False
    ) -> Any:
        """Make `func` the one for a key, or several; a decorator without it.  TVM's other order,
        `register(func, key)`, is read, too.

        override, allow_override: it may have been registered before
        Raises TargetError where it was, and neither is given.
        """
        if callable(key) and not isinstance(key, str):
            key, func = func, key
        override = override or allow_override
        if func is None:
            return functools.partial(self._register, key, override=override)
        return self._register(key, func, override=override)

    def _register(
        self, key: str | Sequence[str], func: Callable[..., Any], override: bool
    ) -> Callable[..., Any]:
        for one in [key] if isinstance(key, str) else key:
            if one in self._known and not override:
                raise TargetError(
                    f"{getattr(self, '__name__', 'generic')}.register({one!r})",
                    "it is registered already", "Pass override=True.",
                )  # fmt: skip
            self._known[one] = func
        return func


def generic_func(function: Callable[..., Any]) -> GenericFunc:
    """A decorator: the function stands for others, one for each key of targets.

    @target.generic_func
    def schedule(outs): ...

    @schedule.register(["cuda", "gpu"])
    def schedule_gpu(outs): ...
    """
    return GenericFunc(function)


_NATIVE: dict[str, GenericFunc] = {}


def override_native_generic_func(
    func_name: str,
) -> Callable[[Callable[..., Any]], GenericFunc]:
    """A decorator like `generic_func`, by whose name `get_native_generic_func` finds it."""

    def decorate(function: Callable[..., Any]) -> GenericFunc:
        _NATIVE[func_name] = GenericFunc(function)
        return _NATIVE[func_name]

    return decorate


def get_native_generic_func(name: str) -> GenericFunc:
    """What `override_native_generic_func(name)` made.  Raises TargetError where there is none."""
    if name not in _NATIVE:
        raise TargetError(
            f"get_native_generic_func({name!r})", "there is none of that name",
            "Decorate one with override_native_generic_func.",
        )  # fmt: skip
    return _NATIVE[name]


def _refused(name: str, title: str, instead: str) -> Callable[..., Target]:
    """A target of TVM's by its name, which scripts import beside those that they use."""

    def refuse(*args: Any, **kwargs: Any) -> Target:
        raise TargetError(f"target.{name}", f"{title} is not a target", instead)

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raises TargetError: {title} is not a target."
    return refuse


rocm = _refused("rocm", "ROCm", 'Try Target("opencl").')
hexagon = _refused("hexagon", "Hexagon", "The targets are llvm, cuda and opencl.")
vta = _refused("vta", "VTA", "The targets are llvm, cuda and opencl.")


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = {
    "adreno": 'Use Target("opencl -device=adreno").',
    "datatype": "Element types are a fixed set (docs/element-types.md).",
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
