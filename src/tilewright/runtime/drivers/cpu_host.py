"""What this machine's processor is: its model, features, cores, caches, as the system tells.

In: `/proc` and `/sys`; where they are missing, less is known.  Out: limits for `targets/llvm.py`,
the fingerprint of a `DeviceSpec`.  It opens nothing.  Read next: `cpu.py`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import sys
from functools import cache

from tilewright.targets import processors
from tilewright.targets.kind import LimitValue
from tilewright.targets.llvm import PORTABLE_VECTOR_BYTES

_CPUINFO = "/proc/cpuinfo"
_HWCAP, _HWCAP2 = 16, 26  # what `getauxval` calls the two words of capabilities
_PARTS = {
    "0xd03": "cortex-a53", "0xd04": "cortex-a35", "0xd05": "cortex-a55", "0xd07": "cortex-a57",
    "0xd08": "cortex-a72", "0xd09": "cortex-a73", "0xd0a": "cortex-a75", "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1", "0xd40": "neoverse-v1", "0xd41": "cortex-a78", "0xd44": "cortex-x1",
    "0xd49": "neoverse-n2", "0xd4f": "neoverse-v2",
}  # fmt: skip
# What the fingerprint takes from the flags: instructions that generated code may use.
_INSTRUCTIONS = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "amx")


def limits() -> dict[str, LimitValue]:
    """Cores of this process, bytes of the widest vector: what `Target.native` adds."""
    found: dict[str, LimitValue] = {"cores": cores(), "vector_bytes": _vector_bytes()}
    if processors.here() == "aarch64":
        found["vector_registers"] = 32
    return found


def triple() -> str:
    """Return the triple of code for this process, as it can be told without LLVM."""
    arch, linux = processors.here(), processors.on_linux()
    words = {"arm": "armv7l-linux-gnueabihf"}
    return words.get(arch, f"{arch}-{'linux-gnu' if linux else sys.platform}")


def processor() -> str:
    """LLVM's name for an ARM core, by its part number; "generic" where that is not known."""
    return _PARTS.get(_field("CPU part"), "generic")


@cache
def capabilities() -> int:
    """Return both words by which Linux tells instructions of an ARM, the second on top; 0 where
    they are not told."""
    try:
        ask = ctypes.CDLL(None).getauxval
    except (AttributeError, OSError, TypeError):
        return 0
    ask.restype, ask.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    return int(ask(_HWCAP)) | int(ask(_HWCAP2)) << 32


def cores() -> int:
    """Count the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_sizes() -> dict[str, LimitValue]:
    """Bytes of each level that the first core sees."""
    found: dict[str, LimitValue] = {}
    for level, kind, size in _caches():
        if level == 1 and kind != "Instruction":
            found["l1_bytes"] = size
        if level in (2, 3):
            found[f"l{level}_bytes"] = size
    return found


def model_name() -> str:
    """As the system calls the processor, of an ARM its core."""
    if _is_arm():
        return f"{platform.machine()} {processor()}"
    return _field("model name") or platform.processor() or platform.machine()


def fingerprint() -> str:
    """Equal on processors of one model with the same instructions, however many cores are ours."""
    used = " ".join(sorted(f for f in flags() if f.startswith(_INSTRUCTIONS)))
    told = f"{capabilities():x}" if _is_arm() else used
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    make = ".".join(filter(None, map(_field, ("cpu family", "model", "CPU part"))))
    return " / ".join(filter(None, (model_name(), platform.machine(), make, digest)))


def flags() -> tuple[str, ...]:
    """Features of the first core, as the system names them."""
    return tuple((_field("flags") or _field("Features")).split())


def _is_arm() -> bool:
    return processors.here() in ("arm", "aarch64")


def _vector_bytes() -> int:
    has = flags() if processors.here() == "x86_64" else ()
    return 64 if "avx512f" in has else 32 if "avx2" in has else PORTABLE_VECTOR_BYTES


@cache
def _field(name: str) -> str:
    """Of the first core; "" where it is not told."""
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as f:
            for line in f:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()
    except OSError:
        pass
    return ""


def _caches() -> list[tuple[int, str, int]]:
    """(level, type, bytes) of each cache of the first core, as Linux tells them."""
    found = []
    for i in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{i}"
        try:
            level, kind, size = (
                _first_line(f"{folder}/{name}") for name in ("level", "type", "size")
            )
        except OSError:
            break
        scale = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
        found.append((int(level), kind, int(size.rstrip("KM")) * scale))
    return found


def _first_line(path: str) -> str:
    with open(path, encoding="ascii") as f:
        return f.readline().strip()
