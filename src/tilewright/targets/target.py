"""`Target`: what code is generated for, with the limits that legality masks and models need.

In: TVM-style strings such as ``"cuda -arch=sm_90"`` or ``"llvm -mcpu=native -num-cores=2"``, and
the `DeviceSpec` of a real device.  Out: a frozen, hashable value.  It opens no device and does not
ask this machine: see `Target.on` and `Target.native`.  Read next: `kind.py`, `spec.py`.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from typing import Any

from tilewright.base import context
from tilewright.base.errors import TargetError
from tilewright.targets.kind import DeviceKind, kind, resolve
from tilewright.targets.limits import Limits
from tilewright.targets.spec import DeviceSpec

__all__ = ["Limits", "Target", "create", "cuda"]

_OTHER_OPTIONS = ("arch", "mcpu", "mattr", "mtriple", "num-cores", "device", "libs", "model")
_FIELDS = fields(Limits)
_LIMIT_NAMES = {f.name for f in _FIELDS if f.type == "int"}  # annotations are text

LONGEST = 2000  # characters of a target; TVM's longest have some hundred


@dataclass(frozen=True)
class Target:
    """`Target("cuda -arch=sm_90")`: a kind ("llvm", "cuda", ...), its options, its limits.

    Options: ``-arch=sm_XX`` (cuda), ``-mcpu=NAME -mattr=+a,+b -mtriple=T`` (llvm),
    ``-num-cores=N``, and any integer field of `Limits` with dashes, for example
    ``-max-threads-per-block=512``.  TVM's `host` changes nothing: the host is this process.

    device: what real device the limits are of, perhaps known in part; None: portable ones
    """

    kind: str
    options: tuple[tuple[str, str], ...]
    limits: Limits
    device: DeviceSpec | None

    def __new__(cls, text: str | Target, host: str | Target | None = None) -> Target:
        return text if isinstance(text, Target) else super().__new__(cls)

    def __init__(self, text: str | Target, host: str | Target | None = None) -> None:
        if text is self:
            return
        assert isinstance(text, str)
        place = f"Target({text!r})"
        if len(text) > LONGEST:
            raise TargetError(
                f"Target({text[:40]!r}...)", f"a text of {len(text)} characters",
                f"Targets have at most {LONGEST}.",
            )  # fmt: skip
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise TargetError(place, f"{error}", "Close the quotation.") from None
        known = kind(words[0] if words else "", place)
        options = {}
        for word in words[1:]:
            name, eq, value = word.lstrip("-").partition("=")
            if not word.startswith("-") or not eq:
                raise TargetError(place, f"cannot read {word!r}", "Write options as -name=value.")
            options[name] = value
        _check_options(place, options, known)
        self._set(known.name, tuple(sorted(options.items())), _limits(known, options, {}), None)

    def _set(
        self,
        kind: str,
        options: tuple[tuple[str, str], ...],
        limits: Limits,
        device: DeviceSpec | None,
    ) -> None:
        for f, value in zip(fields(self), (kind, options, limits, device), strict=True):
            object.__setattr__(self, f.name, value)

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def device_kind(self) -> DeviceKind:
        return kind(self.kind)

    @property
    def has_threads(self) -> bool:
        """Kernels are grids of blocks of threads, as on GPUs; see `DeviceKind`."""
        return self.device_kind.has_threads

    @property
    def arch(self) -> str:
        """The architecture: as the target names it, as the device has it, as the kind assumes."""
        own = self.device.arch if self.device is not None else ""
        return self.option("arch") or own or self.device_kind.default_arch

    @property
    def fingerprint(self) -> str:
        """Of the device whose limits these are; "" for portable ones."""
        return self.device.fingerprint if self.device is not None else ""

    def on(self, device: DeviceSpec) -> Target:
        """This target on that device: its architecture, limits and compiler options, except what
        the target's own options and `with_limits` say.

        Raises TargetError for a device of another kind.
        """
        if device.kind != self.kind:
            raise TargetError(
                f"{self!r}.on({device.name})", f"the device is of kind {device.kind}",
                f"Use Target({device.kind!r}).",
            )  # fmt: skip
        old = dict(self.options)
        new = {"arch": device.arch, **old} if device.arch else old
        reported = self.device.reported if self.device is not None else {}
        base = _limits(self.device_kind, old, reported)
        pairs = ((f.name, getattr(self.limits, f.name), getattr(base, f.name)) for f in _FIELDS)
        changed: dict[str, Any] = {name: own for name, own, known in pairs if own != known}
        limits = replace(_limits(self.device_kind, new, device.reported), **changed)
        return _made(self.kind, tuple(sorted(new.items())), limits, device)

    def native(self) -> Target:
        """With what this machine has, as far as it can be told without opening a device.

        Cores and vectors of a CPU, for example, so that schedules written here fit here.  The same
        target where it is for another machine, or its device is known.
        """
        ask = self.device_kind.host_limits
        if ask is None or self.device is not None or self.option("mtriple"):
            return self
        here = self.on(DeviceSpec(self.kind, limits=tuple(resolve(ask)().items())))
        return self if here.limits == self.limits else here

    def with_limits(self, **limits: Any) -> Target:
        """The same target with some limits replaced."""
        return _made(self.kind, self.options, replace(self.limits, **limits), self.device)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{k}={v}" for k, v in self.options)])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (self.kind, self.options, self.limits, self.device)

    def __enter__(self) -> Target:
        context.push("target", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("target")

    @staticmethod
    def current() -> Target | None:
        """The target of the innermost `with target:`, or None."""
        return context.current("target")  # type: ignore[no-any-return]


def create(text: str | Target) -> Target:
    """The spelling TVM users know: `target.create("cuda")`."""
    return Target(text)


def cuda(arch: str = "") -> Target:
    return Target(f"cuda -arch={arch}" if arch else "cuda")


def _made(
    kind: str, options: tuple[tuple[str, str], ...], limits: Limits, device: DeviceSpec | None
) -> Target:
    new = object.__new__(Target)
    new._set(kind, options, limits, device)
    return new


def _limits(known: DeviceKind, options: dict[str, str], device: Any) -> Limits:
    """Of the kind; then what a device reports; then what the options say."""
    chosen: dict[str, Any] = dict(device)
    if "num-cores" in options:
        chosen["cores"] = int(options["num-cores"])
    for name, value in options.items():
        if name.replace("-", "_") in _LIMIT_NAMES:
            chosen[name.replace("-", "_")] = int(value)
    return replace(known.limits(options, device), **chosen)


def _check_options(place: str, options: dict[str, str], known: DeviceKind) -> None:
    for name, value in options.items():
        if name == "num-cores" or name.replace("-", "_") in _LIMIT_NAMES:
            if not (value.isascii() and value.isdigit() and int(value) > 0):
                raise TargetError(
                    place, f"-{name} must be a whole number from 1, not {value!r}",
                    f"For example -{name}=16.",
                )  # fmt: skip
        elif name not in (*_OTHER_OPTIONS, *known.options):
            listed = " ".join(f"-{option}" for option in _OTHER_OPTIONS)
            raise TargetError(
                place, f"unknown option -{name}",
                f"Known: {listed} and the integers of Limits, such as -max-threads-per-block.",
            )  # fmt: skip
