"""`Device`: a place where kernels run.  `cpu()`, `cuda(0)`, `opencl(0)`, `device("cuda", 0)`.

In: a kind and an index.  Out: what the real device reports, and whether it can be used at all.
Read next: `ndarray.py`, `drivers/__init__.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from tilewright.base import plugins
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime import drivers
from tilewright.runtime.drivers import Driver
from tilewright.targets import processors
from tilewright.targets.kind import DeviceKind, LimitValue, called, is_absent, kinds, resolve
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

_DLPACK = {"cpu": 1, "cuda": 2, "opencl": 4}
_OTHER = 12  # DLPack's number for devices that it has no other for


@door(DeviceError)
def device(kind: str | Target, index: int = 0) -> Device:
    """The device of a kind ("cpu", "cuda", "opencl"; a target or its kind will do) and index.

    Opens nothing: whether it exists is asked with `.exist` or `.why_not()`.  Kinds of TVM that are
    not here ("vulkan", "metal", ...) may be asked for, and have no device that exists.
    """
    name = kind.kind if isinstance(kind, Target) else kind.partition(" ")[0]
    word = name if is_absent(name) else _kind_of(name, f"device({kind!r})").device
    if index < 0:
        raise DeviceError(f"device({kind!r}, {index})", "the index must be at least 0", "Try 0.")
    return Device(word, index)


@door(DeviceError)
def cpu(index: int = 0) -> Device:
    """Give this machine's processor, on which targets of kind `llvm` run."""
    return device("cpu", index)


@door(DeviceError)
def cuda(index: int = 0) -> Device:
    """Give GPU `index` of NVIDIA; whether it is there is asked with `.exist`."""
    return device("cuda", index)


@door(DeviceError)
def opencl(index: int = 0) -> Device:
    """Give device `index` of OpenCL; whether it is there is asked with `.exist`."""
    return device("opencl", index)


@dataclass(frozen=True)
class Device:
    """kind: "cpu", "cuda", "opencl", ...: the word for devices of a kind of targets.

    Equal when kind and index are; it holds no handle.
    """

    door_words = ("a device", "Use tilewright.cpu() or tilewright.device(kind, index).")

    kind: str
    index: int = 0

    @property
    def device_kind(self) -> DeviceKind:
        """The kind of targets that run here: of a CPU, `llvm`."""
        return called(self.kind) or _kind_of(self.kind, str(self))

    @property
    def device_type(self) -> int:
        """The number of its kind in DLPack."""
        return _DLPACK.get(self.device_kind.device, _OTHER)

    @property
    def device_id(self) -> int:
        return self.index

    @property
    def exist(self) -> bool:
        return self.why_not() is None

    def why_not(self) -> TilewrightError | None:
        """None when the device can be used; otherwise an error with the reason and a way out."""
        try:
            return drivers.why_not(self.device_kind.name, self.index)
        except DeviceError as error:  # of a kind that is not here
            return error

    @property
    def driver(self) -> Driver:
        """The open driver.  Raises what `why_not` returns."""
        return drivers.driver(self.device_kind.name, self.index)

    @property
    def name(self) -> str:
        return self.driver.name

    @property
    def arch(self) -> str:
        """The architecture to compile for ("sm_90"), or "" where the device names none."""
        return self.driver.arch

    @property
    def limits(self) -> dict[str, LimitValue]:
        """What the device reports, named as the fields of `targets.limits.Limits`."""
        return dict(self.spec.limits)

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes."""
        return self.target.limits.shared_bytes_per_block

    @property
    def max_threads_per_block(self) -> int:
        return self.target.limits.max_threads_per_block

    @property
    def warp_size(self) -> int:
        return self.target.limits.warp_size

    @property
    def spec(self) -> DeviceSpec:
        """What the device is, as data."""
        return self.driver.describe()

    @property
    def target(self) -> Target:
        """The target of this device, with what it reports."""
        return Target(self.device_kind.name).on(self.spec)

    def sync(self) -> None:
        """Wait until everything enqueued is done; raises DeviceError for what failed on the way."""
        self.driver.sync()

    def __getattr__(self, name: str) -> Any:
        other = plugins.placed("other names", "Device") or {}
        if name not in other:
            raise plugins.absent("Device", name)
        return attrgetter(other[name])(self)

    def __str__(self) -> str:
        return f"{self.kind}({self.index})"


def local_target(target: Target) -> tuple[Target, Device | None]:
    """The target on device 0 of its kind here, and that device.

    The target without a device, and None, where there is none, or it is for another machine (its
    triple or its host's, or instructions that this one lacks) or another architecture.
    """
    dev = device(target)
    if target.fingerprint and (not dev.exist or dev.spec != target.device):
        return target, None
    if not dev.exist or processors.elsewhere(target.triple):
        return target.native(), None
    if dev.arch and target.option("arch", dev.arch) != dev.arch:
        return target, None
    ask = dev.device_kind.host_lacks
    if ask is not None and resolve(ask)(dict(target.options)):
        return target, None
    return target.on(dev.spec), dev


def _kind_of(word: str, place: str) -> DeviceKind:
    """The kind of which `word` is the name, or that of its devices.  Raises DeviceError."""
    known = called(word)
    if known is not None:
        return known
    words = ", ".join(dict.fromkeys(w for k in kinds() for w in (k.device, k.name, *k.aliases)))
    raise DeviceError(place, f"unknown kind {word!r}", f"Use one of {words}.")
