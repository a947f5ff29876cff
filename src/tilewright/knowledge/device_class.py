"""The class of a device: those for which the same schedules are good.

In: a target, as it is on a device.  Out: a name, which is also that of a folder, and those of the
classes whose schedules are still better than none.
Read next: `store.py`.
"""

from __future__ import annotations

import platform
import re

from tilewright.targets.precision import FLOAT32
from tilewright.targets.target import Target

_NARROWEST = 128  # bits of a vector


def device_class(target: Target) -> str:
    """ "cuda-sm_90": by architecture; "llvm-x86_64-256": by the width of vectors, in bits;
    "opencl-nvidia-h200": by the device's name, where there are no architectures.

    Neither the number of cores nor a clock counts: what is best there is found by tuning there.
    A precision does: "cuda-sm_90-tf32" has nothing in common with what is computed in float32.
    """
    own = machine_class(target)
    return own if target.precision == FLOAT32 else f"{own}-{target.precision}"


def machine_class(target: Target) -> str:
    """The same, whatever the precision: trees, which predict, serve all."""
    if target.arch:
        which = target.arch
    elif not target.has_threads:
        machine = target.triple.partition("-")[0] or platform.machine()
        which = f"{machine}-{8 * target.limits.vector_bytes}"
    else:
        named = target.device.name if target.device is not None else ""
        which = target.option("device") or named or "any"
    return re.sub(r"[^a-z0-9_]+", "-", f"{target.kind}-{which}".lower()).strip("-")


def device_classes(target: Target) -> list[str]:
    """Its class, then those of processors with narrower vectors, the widest first: what was found
    on them is right here and mostly better than what nobody tuned."""
    own = device_class(target)
    if target.precision != FLOAT32:
        return [own]
    name, _, bits = own.rpartition("-")
    found, width = [own], 0 if target.arch or target.has_threads else int(bits) // 2
    while width >= _NARROWEST:
        found.append(f"{name}-{width}")
        width //= 2
    return found
