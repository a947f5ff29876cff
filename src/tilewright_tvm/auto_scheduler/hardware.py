"""`HardwareParams`: what the auto-scheduler may assume of a device, where the target does not say.

In: TVM's eight numbers, any of them left out.  Out: `Hardware` for sketch rules, limits for masks.
Read next: `search/rules/state.py`, `targets/target.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.search.rules.state import Hardware
from tilewright.targets.target import Target

UNLIMITED = 2**31 - 1
CACHE_LINE = 64


@dataclass(frozen=True)
class HardwareParams:
    """None: as the target has it; -1, 0: does not apply; `UNLIMITED`: no limit.

    num_cores:                   of a CPU
    vector_unit_bytes:           widest vector of a CPU, widest access of a GPU
    cache_line_bytes:            accepted and not needed
    max_shared_memory_per_block: bytes
    max_local_memory_per_block:  bytes of local arrays of a thread
    max_threads_per_block, max_vthread_extent, warp_size: of a GPU
    target:                      completes the others; target_host is accepted and not needed
    """

    door_words = (
        "HardwareParams",
        "Use HardwareParams(num_cores=4, vector_unit_bytes=32), or leave it out.",
    )

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: Any = None
    target_host: Any = None

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and -1 <= value <= UNLIMITED):
                raise SpaceError(
                    f"HardwareParams({name}={value!r})", f"not a whole number up to {UNLIMITED}",
                    "Use -1 for what does not apply, None for what the target has.",
                )  # fmt: skip

    def completed(self, target: Target) -> HardwareParams:
        """The same with every number, missing ones from the target."""
        limits, known = target.limits, Hardware.of(target)
        gpu = target.has_threads
        defaults = {
            "num_cores": known.num_cores,
            "vector_unit_bytes": limits.vector_bytes,
            "cache_line_bytes": CACHE_LINE,
            "max_shared_memory_per_block": limits.shared_bytes_per_block,
            "max_local_memory_per_block": UNLIMITED if gpu else 0,
            "max_threads_per_block": known.max_threads_per_block,
            "max_vthread_extent": known.max_vthread_extent,
            "warp_size": known.warp_size,
        }
        missing = {n: v for n, v in defaults.items() if getattr(self, n) is None}
        return replace(self, **missing)

    def hardware(self, target: Target) -> Hardware:
        """What sketch rules weigh a computation against."""
        full = self.completed(target)
        names = [f.name for f in fields(Hardware)]
        return Hardware(**{name: getattr(full, name) for name in names})

    def limited(self, target: Target) -> Target:
        """`target` with the limits given here; its name, which records are found by, stays."""
        wanted = {"vector_bytes": self.vector_unit_bytes}
        if target.has_threads:
            wanted["max_threads_per_block"] = self.max_threads_per_block
            wanted["shared_bytes_per_block"] = self.max_shared_memory_per_block
            local = self.max_local_memory_per_block or 0
            if 0 < local < UNLIMITED:
                wanted["registers_per_thread"] = min(local // 4, target.limits.registers_per_thread)
        else:
            wanted["cores"] = self.num_cores
        return target.with_limits(**{k: v for k, v in wanted.items() if v is not None and v > 0})


_NUMBERS = [f.name for f in fields(HardwareParams) if not f.name.startswith("target")]
