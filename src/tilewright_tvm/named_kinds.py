"""Kinds of target that are there for their names and options: scripts make such targets, ask them
for keys and attributes, and dispatch on them.  Builds for them are refused.

In: names, by `base/plugins.py` (see `plugin.py`).  Out: `DeviceKind`s.
Read next: `targets/kind.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

from tilewright.base.errors import TargetError
from tilewright.targets import llvm, opencl
from tilewright.targets.kind import DeviceKind

_CODE = ("mcpu", "mattr", "mtriple", "march", "system-lib", "runtime", "link-params")
_MICRO = (
    "executor", "interface-api", "unpacked-api", "workspace-byte-alignment",
    "constants-byte-alignment", "constants",
)  # fmt: skip
_VULKAN = (
    "from_device", "supports_float16", "supports_float32", "supports_float64", "supports_int8",
    "supports_int16", "supports_int32", "supports_int64", "supports_8bit_buffer",
    "supports_16bit_buffer", "supports_storage_buffer_storage_class", "supports_push_descriptor",
    "supports_dedicated_allocation", "supports_integer_dot_product", "supports_cooperative_matrix",
    "supported_subgroup_operations", "max_push_constants_size", "max_uniform_buffer_range",
    "max_storage_buffer_range", "max_per_stage_descriptor_storage_buffer", "device_type",
    "driver_name", "driver_version", "vulkan_api_version", "max_spirv_version",
)  # fmt: skip
_LLVM, _OPENCL = "Use llvm.", "Try opencl."
_NONE = "The targets are llvm, cuda and opencl."


def _refuse(name: str, instead: str, *_: Any) -> NoReturn:
    raise TargetError(
        f"target {name}", "it has a name and options, and no code is made for it", instead
    )


def _named(
    name: str, instead: str, options: tuple[str, ...] = (), dlpack: int | None = None,
    device: str = "", has_threads: bool = False,
) -> DeviceKind:  # fmt: skip
    refuse = partial(_refuse, name, instead)
    return DeviceKind(
        name=name, limits=(opencl if has_threads else llvm).limits, printer=refuse, compiler=refuse,
        driver=refuse, host_limits=refuse, options=options, dlpack=dlpack, device=device,
        has_threads=has_threads,
    )  # fmt: skip


_KINDS = {
    kind.name: kind
    for kind in (
        _named("c", _LLVM, (*_CODE, *_MICRO), 1, device="cpu"),
        _named("stackvm", _LLVM, _CODE, 1, device="cpu"),
        _named("hybrid", _LLVM, _CODE, 1, device="cpu"),
        _named("hexagon", _NONE, (*_CODE, "llvm-options", "vtcm-capacity"), 16),
        _named("rocm", _OPENCL, _CODE, 10, has_threads=True),
        _named("vulkan", _OPENCL, (*_VULKAN, *_CODE), 7, has_threads=True),
        _named("metal", _OPENCL, ("max_function_args", *_CODE), 8, has_threads=True),
        _named("webgpu", _OPENCL, _CODE, 15, has_threads=True),
        _named("nvptx", "Use cuda.", _CODE, 2, has_threads=True),
        *(_named(name, _NONE, _CODE, 12) for name in ("aocl", "sdaccel", "ext_dev")),
        *(
            _named(name, _NONE, ("accelerator_config", "variant", "tops", "ple_ratio", *_CODE))
            for name in ("cmsis-nn", "ethos-n", "ethos-u")
        ),
    )
}


def __getattr__(name: str) -> DeviceKind:
    """The kind of this name: plugins name their things as attributes."""
    if name not in _KINDS:
        raise AttributeError(name)
    return _KINDS[name]
