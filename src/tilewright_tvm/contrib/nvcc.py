"""`contrib.nvcc`: what a CUDA device can do, as scripts of TVM ask.

In: a compute capability, such as "9.0".  Out: answers.  CUDA is compiled by NVRTC, so there is no
compiler to call.  Read next: `driver/nvrtc.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import TargetError, absent

__all__ = ["have_bf16", "have_fp16", "have_int8", "have_tensorcore", "parse_compute_version"]


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """ "9.0" as (9, 0).  Raises TargetError for what is no version."""
    major, _, minor = str(compute_version).partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise TargetError(
            f"contrib.nvcc({compute_version!r})", "it is no compute capability", 'Give "9.0".'
        )
    return int(major), int(minor)


def have_fp16(compute_version: str) -> bool:
    """Whether it computes in float16."""
    version = parse_compute_version(compute_version)
    return version == (5, 3) or version >= (6, 0)


def have_int8(compute_version: str) -> bool:
    """Whether it has dot products of int8."""
    return parse_compute_version(compute_version) >= (6, 1)


def have_bf16(compute_version: str) -> bool:
    """Whether it computes in bfloat16."""
    return parse_compute_version(compute_version) >= (8, 0)


def have_tensorcore(compute_version: str | None = None, target: Any = None) -> bool:
    """Whether it has matrix instructions, which kernels do not use yet."""
    if compute_version is None:
        arch = getattr(target, "arch", "") or ""
        return arch.startswith("sm_") and int(arch[3:].rstrip("a")) >= 70
    return parse_compute_version(compute_version) >= (7, 0)


def __getattr__(name: str) -> Any:
    raise absent("contrib.nvcc", name, {"compile_cuda": "NVRTC compiles; nothing to call."})
