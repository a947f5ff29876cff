"""CUDA C to a cubin, by NVRTC: needs neither a GPU nor a driver.

In: kernels in CUDA C.  Out: a cubin for the target's own architecture, with registers, spills and
shared memory of each kernel from the assembler's log.  Read next: `compilers.py`,
`runtime/drivers/cuda.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import CompileError, TargetError
from tilewright.base.extras import install
from tilewright.targets.target import Target

_BY_GROUP = "wgmma."  # instructions that an architecture has for itself alone, named sm_90a
_OPTIONS = ("--std=c++17", "--ptxas-options=-v")
# Leaves out textures and the host's functions, which no text of ours has: the same code, 6 ms less.
_SHORT = "--minimal"

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FACTS = (
    ("registers", re.compile(r"Used (\d+) registers")),
    ("shared_bytes", re.compile(r"(\d+) bytes smem")),
    ("barriers", re.compile(r"used (\d+) barriers")),
    ("stack_bytes", re.compile(r"(\d+) bytes stack frame")),
    ("spill_bytes", re.compile(r"(\d+) bytes spill (?:stores|loads)")),
)


@cache
def _binding() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:  # the library is looked for at the first call
        raise TargetError(
            "compile for cuda", f"NVRTC is not installed ({' '.join(str(error).split())})",
            f"Try {install('cuda13')}; for drivers before 580 {install('cuda12')}.",
        ) from None  # fmt: skip
    return nvrtc


@cache
def version() -> tuple[int, int]:
    _, major, minor = _binding().nvrtcVersion()
    return int(major), int(minor)


@cache
def supported_archs() -> tuple[str, ...]:
    """The architectures this NVRTC compiles for, oldest first: "sm_75", "sm_80", ..."""
    return tuple(f"sm_{number}" for number in _binding().nvrtcGetSupportedArchs()[1])


def identity(target: Target) -> dict[str, str]:
    major, minor = version()
    return {
        "compiler": f"NVRTC {major}.{minor}", "arch": target.arch, "options": " ".join(_OPTIONS),
    }  # fmt: skip


@cache
def _is_short() -> bool:
    """Whether this NVRTC knows the option."""
    status, *_ = _compile("options", "", "empty", (*_OPTIONS, _SHORT))
    return bool(status == _success())


def about() -> str:
    archs = supported_archs()
    return f"{archs[0]} to {archs[-1]}"


def build(source: Source, target: Target) -> Artifact:
    place = f"compile {source.entry_name} for {target}"
    if target.arch.rstrip("af") not in supported_archs():
        raise TargetError(
            place, f"NVRTC {version()[0]}.{version()[1]} does not compile for {target.arch}",
            f"It knows {' '.join(supported_archs())}. NVRTC 12 knows older ones: "
            f"{install('cuda12')}",
        )  # fmt: skip
    arch = f"{target.arch}a" if _BY_GROUP in source.text and "a" not in target.arch else target.arch
    options = f"--gpu-architecture={arch}", *_OPTIONS
    status, log, cubin = _compile(place, source.text, source.entry_name, options, _is_short())
    if status != _success():
        reason = f"NVRTC refused the text ({status.name}):\n{log}"
        raise CompileError(place, reason, CompileError.REPORT)
    return Artifact(source, cubin, parse_resources(log), {"log": log})


def _compile(
    place: str, text: str, name: str, options: Sequence[str], short: bool = False
) -> tuple[Any, str, bytes]:
    """How it went, what the compiler says, the cubin.

    short: try `_SHORT` first; a text of somebody else's may need what that leaves out
    """
    nvrtc = _binding()
    given = [option.encode() for option in (*options, *[_SHORT] * short)]
    status, program = nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], [])
    _check(place, status)
    try:
        status, *_ = nvrtc.nvrtcCompileProgram(program, len(given), given)
        log = _text(place, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
        if status == _success():
            cubin = _bytes(place, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
            return status, log, cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return _compile(place, text, name, options) if short else (status, log, b"")


def _success() -> Any:
    return _binding().nvrtcResult.NVRTC_SUCCESS


def parse_resources(log: str) -> dict[str, dict[str, int]]:
    """Kernel name -> registers, spill_bytes (stores and loads), shared_bytes (static), ..."""
    found: dict[str, dict[str, int]] = {}
    kernel: dict[str, int] = {}
    for line in log.splitlines():
        entry = _ENTRY.search(line)
        if entry:
            kernel = found.setdefault(entry[1], {name: 0 for name, _ in _FACTS})
            continue
        for name, pattern in _FACTS:
            numbers = pattern.findall(line)
            if numbers:
                kernel[name] = sum(map(int, numbers))
    return found


def _text(place: str, program: Any, size: Any, get: Any) -> str:
    return _bytes(place, program, size, get).rstrip(b"\0").decode(errors="replace").strip()


def _bytes(place: str, program: Any, size: Any, get: Any) -> bytes:
    status, length = size(program)
    _check(place, status)
    data = bytearray(length)
    _check(place, get(program, data)[0])
    return bytes(data)


def _check(place: str, status: Any) -> None:
    if status != _success():
        raise CompileError(place, f"NVRTC failed with {status.name}")
