"""`DeviceSpec`: what a real device is, as data: its fingerprint, architecture and limits.

In: an open driver (`runtime.Device.spec`), here or in another process or machine.  Out: what
`Target.on` completes a target with, and what records are told apart by.  Read next: `target.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.targets.kind import LimitValue


@dataclass(frozen=True)
class DeviceSpec:
    """One device, for targets of `kind`.

    name:        as people know it
    fingerprint: equal for devices on which the same schedule takes the same time: the make of the
                 hardware, no driver, no address; "" where nothing is known
    arch:        what to compile for ("sm_90"); "" where the kind has no architectures
    limits:      what the device reports, named as the fields of `Limits`
    code:        more options for its compiler (mcpu, mattr, mtriple), where the target names none
    lacks:       element types that this device cannot compute, though its kind can
    shares_host: it computes on the processor that compiles and searches
    """

    kind: str
    name: str = ""
    fingerprint: str = ""
    arch: str = ""
    limits: tuple[tuple[str, LimitValue], ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    lacks: tuple[str, ...] = ()
    shares_host: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", str(self.kind))  # a target's has a type of its own

    @property
    def reported(self) -> Mapping[str, LimitValue]:
        return dict(self.limits)
