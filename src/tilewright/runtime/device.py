"""`Device`: a place where kernels run.  `cpu()`, `cuda(0)`, `opencl(0)`, `device("cuda", 0)`.

In: a kind and an index.  Out: what the real device reports, and whether it can be used at all.
Read next: `ndarray.py`, `drivers/__init__.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime import drivers
from tilewright.runtime.drivers import Driver, LimitValue
from tilewright.targets.target import Target

_KINDS = {"cpu": "cpu", "llvm": "cpu", "cuda": "cuda", "opencl": "opencl", "cl": "opencl"}
_TARGETS = {"cpu": "llvm", "cuda": "cuda", "opencl": "opencl"}


def device(kind: str | Target, index: int = 0) -> Device:
    """The device of a kind ("cpu", "cuda", "opencl"; a target or its kind will do) and index.

    Opens nothing: whether it exists is asked with `.exist` or `.why_not()`.
    """
    name = kind.kind if isinstance(kind, Target) else kind.partition(" ")[0]
    if name not in _KINDS:
        known = ", ".join(_KINDS)
        raise DeviceError(f"device({kind!r})", f"unknown kind {name!r}", f"Use one of {known}.")
    if index < 0:
        raise DeviceError(f"device({kind!r}, {index})", "the index must be at least 0", "Try 0.")
    return Device(_KINDS[name], index)


def cpu(index: int = 0) -> Device:
    return device("cpu", index)


def cuda(index: int = 0) -> Device:
    return device("cuda", index)


def opencl(index: int = 0) -> Device:
    return device("opencl", index)


@dataclass(frozen=True)
class Device:
    """kind: "cpu", "cuda" or "opencl".  Equal when kind and index are; it holds no handle."""

    kind: str
    index: int = 0

    @property
    def exist(self) -> bool:
        return self.why_not() is None

    def why_not(self) -> TilewrightError | None:
        """None when the device can be used; otherwise an error with the reason and a way out."""
        return drivers.why_not(self.kind, self.index)

    @property
    def driver(self) -> Driver:
        """The open driver.  Raises what `why_not` returns."""
        return drivers.driver(self.kind, self.index)

    @property
    def name(self) -> str:
        return self.driver.name

    @property
    def arch(self) -> str:
        """The architecture to compile for ("sm_90"), or "" where the device names none."""
        return self.driver.arch

    @property
    def limits(self) -> dict[str, LimitValue]:
        """What the device reports, named as the fields of `base.target.Limits`."""
        return self.driver.limits()

    @property
    def target(self) -> Target:
        """The target of this device, with the limits it reports."""
        kind = _TARGETS[self.kind]
        text = f"{kind} -arch={self.arch}" if self.arch else kind
        return Target(text).with_limits(**self.limits)

    def sync(self) -> None:
        """Wait until everything enqueued is done; raises DeviceError for what failed on the way."""
        self.driver.sync()

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"
