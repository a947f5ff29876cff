"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import TargetError
from tilewright.targets.processors import architecture
from tilewright.targets.spelling import is_by_device
from tilewright.targets.tags import list_tags
from tilewright.targets.target import UNKNOWN, Limits, Target, TargetLike
from tilewright_tvm.elsewhere import find

__all__ = [
    "GenericFunc", "Limits", "Target", "TargetFeatures", "arm_cpu", "bifrost", "create", "cuda",
    "extend_native_generic_func", "generic_func", "get_native_generic_func", "hexagon",
    "intel_graphics", "list_tags", "mali", "override_native_generic_func", "rocm", "vta",
]  # fmt: skip

_BOARDS = {
    "rasp3b": "-mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a53 -mattr=+neon",
    "rasp4b": "-mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a72 -mattr=+neon",
    "rasp4b64": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon",
    "rk3399": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon",
}


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


def extend_native_generic_func(
    name: str, keys: str | Sequence[str]
) -> Callable[[Callable[..., Any]], GenericFunc]:
    """A decorator: the function is that of `override_native_generic_func(name)` for some keys.

    Raises TargetError where there is none of that name.
    """
    return functools.partial(get_native_generic_func(name).register, keys)


def get_native_generic_func(name: str) -> GenericFunc:
    """What `override_native_generic_func(name)` made.  Raises TargetError where there is none."""
    if name not in _NATIVE:
        raise TargetError(
            f"get_native_generic_func({name!r})", "there is none of that name",
            "Decorate one with override_native_generic_func.",
        )  # fmt: skip
    return _NATIVE[name]


# Of ARM, what has a feature of TVM's: an instruction of -mattr, the name of a small processor.
_ARM_FEATURES = {
    "has_asimd": ("neon",), "has_sve": ("sve", "sve2"), "has_sme": ("sme",),
    "has_dotprod": ("dotprod",), "has_matmul_int8": ("i8mm",), "has_fp16_simd": ("fullfp16",),
    "has_dsp": ("dsp", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m35p", "cortex-m55",
                "cortex-m85"),
    "has_mve": ("mve", "mve.fp", "cortex-m55", "cortex-m85"),
}  # fmt: skip


class TargetFeatures:
    """What an ARM processor has, as far as the options of its target say; of other processors, and
    by other names, None: `Target("c -mcpu=cortex-m55").features.has_dsp`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def __getattr__(self, name: str) -> bool | None:
        target = self._target
        is_aarch64 = architecture(target.triple) == "aarch64"
        told = {word.partition("+")[0] for word in (target.mcpu, target.option("march"))}
        words = told | {word[1:] for word in target.mattr if word[0] == "+"}
        is_arm = is_aarch64 or "arm_cpu" in target.keys or target.mcpu.startswith("cortex-")
        if not is_arm or name not in ("is_aarch64", *_ARM_FEATURES):
            return None
        if name == "is_aarch64":
            return is_aarch64
        if name == "has_asimd" and is_aarch64:
            return "-neon" not in target.mattr
        return not words.isdisjoint(_ARM_FEATURES[name])


class Members(Target):
    """What targets have by TVM's names.  No object is made of it: they are put into the class, for
    its functions are called without one, and objects find them without this module."""

    @property
    def features(self) -> TargetFeatures:
        """What the processor has."""
        return TargetFeatures(self)

    @property
    def device_name(self) -> str:
        """What -device says, "" where it is not given."""
        return self.option("device")

    def get_target_device_type(self) -> int:
        """The number by which DLPack knows the devices of this kind."""
        known = self.device_kind.dlpack
        if known is None:
            raise TargetError(f"{self!r}", "DLPack has no number for its devices", "Use .kind.")
        return known

    @staticmethod
    def canon_target_and_host(
        target: TargetLike | None, target_host: TargetLike | None = None
    ) -> tuple[Target | None, Target | None]:
        """The target beside its host, and the host.

        Raises TargetError for a host without a target.
        """
        if target is None:
            if target_host is not None:
                raise TargetError(
                    f"canon_target_and_host(None, {target_host!r})", "a host needs a target",
                    "Give the target, too.",
                )  # fmt: skip
            return None, None
        both = Target(target, target_host)
        return both, both.host

    @staticmethod
    def canon_multi_target_and_host(
        target: TargetLike | Sequence[TargetLike] | Mapping[Any, TargetLike],
        target_host: TargetLike | None = None,
    ) -> list[Target]:
        """Targets, given as one, as a list or by their devices, each beside the host."""
        if target is None:
            raise TargetError(
                "canon_multi_target_and_host(None)", "there is no target", 'Give "llvm".'
            )
        several: Sequence[Any] = (
            list(target) if isinstance(target, (list, tuple)) else
            list(target.values()) if isinstance(target, Mapping) and is_by_device(target) else
            [target]
        )  # fmt: skip
        return [Target(each, target_host) for each in several]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: TargetLike | None = None
    ) -> tuple[dict[Target, Any], Target | None]:
        """What belongs to each target, by targets beside the host; and the host."""
        beside = None if target_host is None else Target(target_host)
        made = {Target(each, beside): value for each, value in target_map.items()}
        return made, next((t.host for t in made), beside)


for _name, _member in list(vars(Members).items()):
    if not _name.startswith("_"):
        setattr(Target, _name, _member)


def cuda(model: str = UNKNOWN, arch: str = "", options: str = "") -> Target:
    """A CUDA device; model: a name for people; options: more of a target's, as text."""
    named = "" if model == UNKNOWN else f" -model={model}"
    return Target(f"cuda{named}{f' -arch={arch}' if arch else ''} {options}")


def intel_graphics(model: str = UNKNOWN, options: str = "") -> Target:
    """An Intel GPU by OpenCL."""
    return Target(f"opencl -device=intel_graphics -model={model} {options}")


def arm_cpu(model: str = UNKNOWN, options: str = "") -> Target:
    """The processor of a board by TVM's name for it: "rk3399", "rasp3b", "rasp4b", "rasp4b64".

    options: more of a target's, as text.  An unknown board is one of 64 bits
    """
    known = _BOARDS.get(model, "-mtriple=aarch64-linux-gnu -mattr=+neon")
    return Target(f"llvm -device=arm_cpu -model={model} {known} {options}")


def mali(model: str = UNKNOWN, options: str = "") -> Target:
    """A Mali GPU by OpenCL; give `Target(mali(), host=arm_cpu("rk3399"))` the board around it."""
    return Target(f"opencl -device=mali -model={model} {options}")


bifrost = mali


def rocm(model: str = UNKNOWN, options: str = "") -> Target:
    """An AMD GPU, for its name and options; builds take `Target("opencl")`."""
    return Target(f"rocm -model={model} {options}")


def hexagon(cpu_ver: str = "v68", options: str = "") -> Target:
    """A Hexagon processor, for its name and options: no code is made for it."""
    return Target(f"hexagon -mtriple=hexagon -mcpu=hexagon{cpu_ver} {options}")


def vta(model: str = UNKNOWN, options: str = "") -> Target:
    """VTA, for its name and options: no code is made for it."""
    return Target(f"ext_dev -device=vta -keys=vta,cpu -model={model} {options}")


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = {
    "adreno": 'Use Target("opencl -device=adreno").',
    "datatype": "Element types are a fixed set (docs/element-types.md).",
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
