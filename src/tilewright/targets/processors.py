"""Processors by name: what code for one may count on, whatever machine compiles it.

In: the options of a target (`-mtriple`, `-mcpu`, `-mattr`).  Out: widths and sizes.  Caches and
clocks are those of common boards, written down from their makers' manuals; a device that is asked
knows its own better.  Read next: `llvm.py`.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

_SAME = {"amd64": "x86_64", "arm64": "aarch64", "armv8l": "arm", "armv7l": "arm", "armv7a": "arm"}


def architecture(word: str) -> str:
    """One word for each architecture, of a triple or of what a system calls its machine."""
    first = word.partition("-")[0].lower()
    if first in _SAME:
        return _SAME[first]
    return "arm" if first.startswith(("arm", "thumb")) else first


def here() -> str:
    """The architecture of this process: a 32-bit Python may run on a 64-bit processor."""
    machine = architecture(platform.machine())
    return "arm" if machine == "aarch64" and sys.maxsize < 2**32 else machine


def whole(triple: str) -> str:
    """With its vendor, which users leave out, and LLVM then takes the system for: floats would be
    passed as a system without a name passes them."""
    parts = triple.split("-")
    if len(parts) == 3 and parts[1] == "linux":
        parts.insert(1, "unknown")
    return "-".join(parts)


def on_linux() -> bool:
    """Whether this process runs on Linux, that of Android among them."""
    return sys.platform in ("linux", "android")


def elsewhere(triple: str) -> bool:
    """Whether code for it is not for this process; "" is."""
    return bool(triple) and (architecture(triple) != here() or ("linux" in triple) != on_linux())


@dataclass(frozen=True)
class Processor:
    """One core, and the caches that it sees.

    vector_bytes, vector_registers: of its widest vectors, and how many there are
    ghz:      a common clock
    pipes:    multiply-adds of whole vectors that begin in a cycle
    """

    vector_bytes: int = 16
    vector_registers: int = 16
    ghz: float = 3.5
    pipes: float = 2
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20

    @property
    def flops(self) -> float:
        """Operations per second and byte of a vector's elements."""
        return self.ghz * 1e9 * self.pipes * 2


_X86 = Processor()
_AVX2 = replace(_X86, vector_bytes=32)
_AVX512 = replace(_X86, vector_bytes=64, vector_registers=32)
_X86_NAMES = (
    ((
        "x86-64-v4", "skylake-avx512", "skx", "cascadelake", "cooperlake", "cannonlake",
        "icelake-client", "icelake-server", "tigerlake", "rocketlake", "sapphirerapids",
        "emeraldrapids", "graniterapids", "knl", "knm", "znver4", "znver5",
    ), _AVX512),
    ((
        "x86-64-v3", "haswell", "core-avx2", "broadwell", "skylake", "alderlake", "raptorlake",
        "meteorlake", "arrowlake", "lunarlake", "gracemont", "sierraforest", "bdver4", "znver1",
        "znver2", "znver3",
    ), _AVX2),
)  # fmt: skip
_X86_BY_NAME = {name: made for names, made in _X86_NAMES for name in names}

_ARM64 = Processor(vector_registers=32, ghz=1.8, pipes=1)
_ARM64_BY_NAME = {
    "cortex-a35": replace(_ARM64, ghz=1.3, pipes=0.5, l2_bytes=512 << 10),
    "cortex-a53": replace(_ARM64, ghz=1.4, l2_bytes=512 << 10),
    "cortex-a55": replace(_ARM64, l2_bytes=256 << 10),
    "cortex-a57": replace(_ARM64, ghz=1.9, l2_bytes=2 << 20),
    "cortex-a72": replace(_ARM64, pipes=2),
    "cortex-a73": replace(_ARM64, ghz=2.2, pipes=2, l1_bytes=64 << 10, l2_bytes=2 << 20),
    "cortex-a75": replace(_ARM64, ghz=2.6, pipes=2, l1_bytes=64 << 10, l2_bytes=512 << 10),
    "cortex-a76": replace(_ARM64, ghz=2.4, pipes=2, l1_bytes=64 << 10, l2_bytes=512 << 10),
    "cortex-a78": replace(_ARM64, ghz=2.6, pipes=2, l1_bytes=64 << 10, l2_bytes=512 << 10),
    "cortex-x1": replace(_ARM64, ghz=2.8, pipes=4, l1_bytes=64 << 10),
    "neoverse-n1": replace(_ARM64, ghz=2.5, pipes=2, l1_bytes=64 << 10),
    "neoverse-n2": replace(_ARM64, ghz=2.8, pipes=2, l1_bytes=64 << 10),
    "neoverse-v1": replace(_ARM64, ghz=2.6, pipes=4, l1_bytes=64 << 10),
    "neoverse-v2": replace(_ARM64, ghz=3.0, pipes=4, l1_bytes=64 << 10, l2_bytes=2 << 20),
    "apple-m1": replace(_ARM64, ghz=3.2, pipes=4, l1_bytes=128 << 10, l2_bytes=12 << 20),
}
_BY_NAME = {"x86_64": _X86_BY_NAME, "aarch64": _ARM64_BY_NAME, "arm": _ARM64_BY_NAME}
_NEON = Processor(ghz=1.2, pipes=0.5, l2_bytes=512 << 10)
_VFP = replace(_NEON, vector_bytes=8)  # two registers of four bytes, or one of eight


def names(arch: str) -> tuple[str, ...]:
    """Of processors of an architecture that are known here."""
    return tuple(_BY_NAME.get(arch, ()))


def named(options: Mapping[str, str]) -> Processor | None:
    """What a target's options say of its processor; None where they leave it to the machine at
    hand."""
    cpu, triple = options.get("mcpu", "native"), options.get("mtriple", "")
    features = {f[1:]: f[0] == "+" for f in options.get("mattr", "").split(",") if f[1:]}
    if cpu == "native" and not triple:
        return None
    arch = architecture(triple) if triple else ""
    if arch == "arm":
        neon = features.get("neon", cpu.startswith(("cortex-a", "neoverse")))
        return _NEON if neon else _VFP
    if cpu in _ARM64_BY_NAME or arch == "aarch64":
        return _ARM64_BY_NAME.get(cpu, _ARM64)
    if arch in ("", "x86_64") and (cpu in _X86_BY_NAME or arch or cpu.startswith("x86-64")):
        return _with_avx(_X86_BY_NAME.get(cpu, _X86), features)
    return Processor() if triple else None


def _with_avx(known: Processor, said: Mapping[str, bool]) -> Processor:
    """Vectors as wide as the features added to, or taken from, a processor of x86-64 leave them."""
    wide = said.get("avx512f", known is _AVX512)
    return _AVX512 if wide else _AVX2 if said.get("avx2", known is not _X86) else _X86
