"""What this machine's processor is: its model, features, cores, caches, as the system tells.

In: `/proc` and `/sys`; where they are missing, less is known.  Out: limits for `targets/llvm.py`,
the fingerprint of a `DeviceSpec`.  It opens nothing.  Read next: `cpu.py`.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache

from tilewright.targets.kind import LimitValue
from tilewright.targets.llvm import PORTABLE_VECTOR_BYTES

_CPUINFO = "/proc/cpuinfo"
# What the fingerprint takes from the flags: instructions that generated code may use.
_INSTRUCTIONS = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "amx", "asimd", "sve", "sme", "bf16")


def limits() -> dict[str, LimitValue]:
    """Cores of this process, bytes of the widest vector: what `Target.native` adds."""
    return {"cores": cores(), "vector_bytes": _vector_bytes()}


def cores() -> int:
    """How many this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_sizes() -> dict[str, LimitValue]:
    """Bytes of the first two levels of the first core."""
    found: dict[str, LimitValue] = {}
    for level, kind, size in _caches():
        if level == 1 and kind != "Instruction":
            found["l1_bytes"] = size
        if level == 2:
            found["l2_bytes"] = size
    return found


def model_name() -> str:
    return _field("model name") or platform.processor() or platform.machine()


def fingerprint() -> str:
    """Equal on processors of one model with the same instructions, however many cores are ours."""
    used = sorted(f for f in flags() if f.startswith(_INSTRUCTIONS))
    digest = hashlib.sha256(" ".join(used).encode()).hexdigest()[:8]
    make = ".".join(filter(None, map(_field, ("cpu family", "model", "CPU part"))))
    return " / ".join(filter(None, (model_name(), platform.machine(), make, digest)))


def flags() -> tuple[str, ...]:
    """Features of the first core, as the system names them."""
    return tuple((_field("flags") or _field("Features")).split())


def _vector_bytes() -> int:
    if "avx512f" in flags():
        return 64
    return 32 if "avx2" in flags() else PORTABLE_VECTOR_BYTES


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
