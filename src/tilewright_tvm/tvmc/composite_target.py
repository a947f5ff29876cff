"""Compilers of others under TVM's names: targets name them, and nothing is called.

In: names.  Out: the refusals.  Read next: `target.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

from tilewright.base.errors import TargetError, absent

__all__ = ["get_codegen_by_target", "get_codegen_names", "refuse"]

_NAMES = (
    "bnns", "clml", "cmsis-nn", "compute-library", "ethos-n", "ethos-n77", "ethos-n78", "ethos-u",
    "mrvl", "tensorrt", "vitis-ai",
)  # fmt: skip


def get_codegen_names() -> list[str]:
    """Give the names that a target may have in front of its own."""
    return list(_NAMES)


def get_codegen_by_target(name: str) -> dict[str, Any]:
    """Tell of one compiler the part that builds would call, which refuses.

    Raises TargetError for a name that none has.
    """
    if name not in _NAMES:
        raise TargetError(
            f"composite target {name!r}", "it is not defined", f"There are {', '.join(_NAMES)}."
        )
    return {"config_key": None, "pass_pipeline": partial(refuse, name)}


def refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    """Raise TargetError: no compiler of others is called."""
    raise TargetError(
        f"target {name}", "compilers of others are not called",
        "Leave it out; a target is llvm, cuda or opencl.",
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("driver.tvmc.composite_target", name, {})
