"""`Target`: what code is generated for, with the limits that legality masks and models need.

In: TVM-style strings such as ``"cuda -arch=sm_90"`` or ``"llvm -mcpu=native -num-cores=2"``, and
the `DeviceSpec` of a real device.  Out: a frozen, hashable value.  It opens no device and does not
ask this machine: see `Target.on` and `Target.native`.  Read next: `kind.py`, `spec.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, Union

from tilewright.base import context, plugins
from tilewright.base.errors import TargetError
from tilewright.targets.atoms import beside
from tilewright.targets.kind import DeviceKind, kind, kinds, resolve
from tilewright.targets.limits import AtomRate, Limits
from tilewright.targets.precision import FLOAT32, allows, needed
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.spelling import (
    FIELDS,
    LIMIT_NAMES,
    check_options,
    from_json,
    is_by_device,
    limit_named,
    options_of,
    spelled,
    value_of,
    without_foreign,
)
from tilewright.targets.tags import TAGS

__all__ = ["Limits", "Target", "TargetLike"]

TargetLike = Union[str, "Target", Mapping[Any, Any]]

UNKNOWN = "unknown"  # the model where none is given
# As where it is not given; TVM prints the first two.
_UNSAID = {"model": UNKNOWN, "link-params": "0", "precision": FLOAT32}
LONGEST = 2000  # characters of a target; TVM's longest have some hundred


class KindName(str):
    """The kind of a target, "cuda", by its name as in TVM: `target.kind.name`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Target:
    """`Target("cuda -arch=sm_90")`: a kind ("llvm", "cuda", ...), its options, its limits.

    TVM's other spellings are read, too: ``{"kind": "llvm", "num-cores": 4}``, and the target of one
    device, ``{"cpu": "llvm"}``.
    Options: ``-arch=sm_XX`` (cuda), ``-mcpu=NAME -mattr=+a,+b -mtriple=T`` (llvm),
    ``-num-cores=N``, ``-precision=P`` (`precision.py`), and any integer field of `Limits` with
    dashes, for example ``-max-threads-per-block=512``; TVM's words for them are read, too
    (`spelling.py`).
    A tag, ``"nvidia/geforce-rtx-3090"`` or ``{"tag": ..., "num-cores": 4}``, is the target that
    `tags.py` has for it.

    host:   the target of the processor beside the device, or its text, where that is not this
            machine's: kernels are then compiled here and run there.  It is no part of what records
            and kernels are told apart by
    device: what real device the limits are of, perhaps known in part; None: portable ones
    """

    door_words = ("a target", 'Target("llvm") makes one.')

    kind: KindName
    options: tuple[tuple[str, str], ...]
    limits: Limits
    device: DeviceSpec | None
    host: Target | None = field(default=None, compare=False)

    def __new__(cls, target: TargetLike, host: TargetLike | None = None) -> Target:
        given = _only(target)
        if not isinstance(given, Target):
            return super().__new__(cls)
        return given if host is None else given._beside(host)

    def __init__(self, target: TargetLike, host: TargetLike | None = None) -> None:
        text = _only(target)
        if isinstance(text, Target):  # which `__new__` gave
            return
        place = f"Target({text!r})"
        if isinstance(text, str) and text.lstrip().startswith("{") and len(text) <= LONGEST:
            text = from_json(text, place)
        if isinstance(text, Mapping):
            host = text.get("host") if host is None else host
            text = spelled(text, place)
        if not isinstance(text, str):
            raise TargetError(
                place, f"a {type(text).__name__} is no target", 'Give a string such as "llvm".'
            )
        if len(text) > LONGEST:
            raise TargetError(
                f"Target({text[:40]!r}...)", f"a text of {len(text)} characters",
                f"Targets have at most {LONGEST}.",
            )  # fmt: skip
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise TargetError(place, f"{error}", "Close the quotation.") from None
        if words and words[0] in TAGS:
            words = [*shlex.split(TAGS[words[0]]), *words[1:]]
        known = kind(words[0] if words else "", place)
        options = options_of(words[1:], place)
        named = options.pop("host", None)
        options = {name: v for name, v in options.items() if _UNSAID.get(name) != v}
        options = without_foreign(options, known)
        check_options(place, options, known)
        host = named if host is None else host
        beside = None if host is None else Target(host)
        limits = _limits(known, options, {})
        self._set(known.name, tuple(sorted(options.items())), limits, None, beside)

    def _set(
        self,
        kind: str,
        options: tuple[tuple[str, str], ...],
        limits: Limits,
        device: DeviceSpec | None,
        host: Target | None,
    ) -> None:
        values = (KindName(kind), options, limits, device, host)
        for f, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, f.name, value)

    def _beside(self, host: TargetLike) -> Target:
        return _made(self.kind, self.options, self.limits, self.device, Target(host))

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def attrs(self) -> dict[str, Any]:
        """The values of the options, by their names: numbers, lists of words, text.  Of a real
        device with threads also what it reports."""
        given = {name: value_of(name, text) for name, text in self.options}
        if self.device is None or not self.has_threads:
            return given
        return {
            "max_threads_per_block": self.limits.max_threads_per_block,
            "max_shared_memory_per_block": self.limits.shared_bytes_per_block,
            "thread_warp_size": self.limits.warp_size,
            **given,
        }

    @property
    def keys(self) -> tuple[str, ...]:
        """What the target is, from the narrowest word to the widest: ("cuda", "gpu")."""
        own = [k for k in self.option("keys").split(",") if k]
        if self.option("device"):
            own.append(self.option("device"))
        if self.device_kind.device == "cpu":
            arm = self.triple.startswith(("arm", "aarch64")) and "arm_cpu" not in own
            return tuple(dict.fromkeys([*own, *(["arm_cpu"] if arm else []), "cpu"]))
        known = [str(self.kind), *(["gpu"] if self.has_threads else [])]
        return tuple(dict.fromkeys([*own, *known]))

    @property
    def mcpu(self) -> str:
        return self.option("mcpu")

    @property
    def mattr(self) -> list[str]:
        """The instructions that -mattr adds or takes away."""
        return [word for word in self.option("mattr").split(",") if word]

    @property
    def model(self) -> str:
        return self.option("model", UNKNOWN)

    @property
    def precision(self) -> str:
        """In what sums of products of float32 may be computed: a name of `precision.py`."""
        return self.option("precision", FLOAT32)

    def with_precision(self, precision: str) -> Target:
        """The same target with another precision.  Raises TargetError where it lacks that."""
        place, options = f"{self!r}.with_precision({precision!r})", dict(self.options)
        check_options(place, {"precision": precision}, self.device_kind)
        options.pop("precision", None)
        if precision != FLOAT32:
            options["precision"] = precision
            _limits(self.device_kind, options, self._reported)
        ordered = tuple(sorted(options.items()))
        return _made(self.kind, ordered, self.limits, self.device, self.host)

    @property
    def libs(self) -> list[str]:
        return [word for word in self.option("libs").split(",") if word]

    @property
    def max_num_threads(self) -> int:
        """Threads of a block."""
        return self.limits.max_threads_per_block

    @property
    def thread_warp_size(self) -> int:
        return self.limits.warp_size

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes."""
        return self.limits.shared_bytes_per_block

    @property
    def l2_cache_size_bytes(self) -> int:
        return self.limits.l2_bytes

    @property
    def device_kind(self) -> DeviceKind:
        return kind(self.kind)

    @property
    def has_threads(self) -> bool:
        """Kernels are grids of blocks of threads, as on GPUs; see `DeviceKind`."""
        return self.device_kind.has_threads

    @property
    def waits(self) -> bool:
        """Whether a kernel itself can wait for the one before it."""
        return self.device_kind.waits(self.arch)

    @property
    def copies_alone(self) -> bool:
        """Copies from global to shared memory go on beside the threads that began them."""
        return self.device_kind.copies_alone(self.arch)

    @property
    def copies_boxes(self) -> bool:
        """A copy engine brings boxes of tensors to shared memory."""
        return self.device_kind.copies_boxes(self.arch)

    @property
    def counts_blocks(self) -> bool:
        """Blocks of one launch can tell which of them is done last."""
        return self.device_kind.counts_blocks

    @property
    def is_mali(self) -> bool:
        """A GPU whose threads run vectors, and whose shared memory is memory like any other; the
        option `-device=mali` says so."""
        return self.kind == "opencl" and self.option("device") == "mali"

    @property
    def arch(self) -> str:
        """The architecture: as the target names it, as the device has it, as the kind assumes."""
        own = self.device.arch if self.device is not None else ""
        return self.option("arch") or own or self.device_kind.default_arch

    @property
    def triple(self) -> str:
        """Of the processor that runs the code or, of a device, sits beside it; "" for this one."""
        return self.option("mtriple") or (self.host.triple if self.host is not None else "")

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
        base = _limits(self.device_kind, old, self._reported)
        pairs = ((f.name, getattr(self.limits, f.name), getattr(base, f.name)) for f in FIELDS)
        changed: dict[str, Any] = {name: own for name, own, known in pairs if own != known}
        limits = replace(_limits(self.device_kind, new, device.reported), **changed)
        return _made(self.kind, tuple(sorted(new.items())), limits, device, self.host)

    @property
    def _reported(self) -> Any:
        return self.device.reported if self.device is not None else {}

    @property
    def atoms(self) -> tuple[str, ...]:
        """Names of the matrix instructions that the device has, as `ir.atoms` has them."""
        return tuple(rate.name for rate in self.limits.atoms)

    def has(self, atom: str) -> bool:
        """Tell whether the device has a matrix instruction, by the name that `ir.atoms` has for
        it."""
        return self.atom(atom).rate > 0

    def atom(self, name: str) -> AtomRate:
        """Give the rate of a matrix instruction; it takes for ever where the target has none."""
        found = self.limits.atom(name)
        return found if found.rate else beside(self, name) or found

    def allows(self, atom: str) -> bool:
        """Tell whether kernels may use a matrix instruction: the device has it, and its operands
        keep as many digits as the precision asks for."""
        return self.has(atom) and allows(self.precision, needed(atom))

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
        for name, value in limits.items():
            if name not in (f.name for f in FIELDS):
                raise TargetError(
                    f"with_limits({name}=)", "there is no such limit",
                    f"There are {', '.join(sorted(LIMIT_NAMES))}.",
                )  # fmt: skip
            if name in LIMIT_NAMES and not isinstance(value, (int, Integral)):
                raise TargetError(
                    f"with_limits({name}={value!r})", "it is no whole number", "Give an int."
                )
        changed = replace(self.limits, **limits)
        return _made(self.kind, self.options, changed, self.device, self.host)

    if not TYPE_CHECKING:  # whose attributes are those that are written here

        def __getattr__(self, name: str) -> Any:
            return plugins.member(self, name)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{k}={v}" for k, v in self.options)])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _made, (self.kind, self.options, self.limits, self.device, self.host)

    def __enter__(self) -> Target:
        context.push("target", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("target")

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with target:`, or None.

        Raises TargetError where there is none and `allow_none` is False.
        """
        found: Target | None = context.current("target")
        if found is None and not allow_none:
            raise TargetError(
                "Target.current", "no target is in force", "Use `with Target('llvm'):`."
            )
        return found

    def with_host(self, host: TargetLike) -> Target:
        """The same target beside another processor."""
        return self._beside(host)

    def export(self) -> dict[str, Any]:
        """The kind, the options and the host, as a dict that `Target` takes."""
        beside = {} if self.host is None else {"host": self.host.export()}
        given = {name: value_of(name, text) for name, text in self.options}
        return {"kind": str(self.kind), **given, **beside}

    @staticmethod
    def from_device(device: Any) -> Target:
        """The target of a device that is here, with what it reports.

        device: "cuda", or a `tilewright.device`
        """
        find = plugins.placed("devices", "device")
        found: Target = (find(device) if isinstance(device, str) else device).target
        return found

    @staticmethod
    def list_kinds() -> list[str]:
        """The kinds there are."""
        return [known.name for known in kinds()]


def _made(
    kind: str,
    options: tuple[tuple[str, str], ...],
    limits: Limits,
    device: DeviceSpec | None,
    host: Target | None,
) -> Target:
    new = object.__new__(Target)
    new._set(kind, options, limits, device, host)
    return new


def _only(given: Any) -> Any:
    """The target in `{"cpu": "llvm"}`, targets by their devices; anything else as it is."""
    if not isinstance(given, Mapping) or not is_by_device(given):
        return given
    if len(given) != 1:
        raise TargetError(
            f"Target({given!r})", f"{len(given)} targets, where one is needed",
            'Give {"kind": "llvm", ...}, or the target of one device: {"cpu": "llvm"}.',
        )  # fmt: skip
    ((dev, text),) = given.items()
    target, word = Target(text), str(getattr(dev, "kind", dev))
    known = target.device_kind
    if word not in (known.name, known.device, *known.aliases):
        raise TargetError(
            f"Target({given!r})", f"{target} is no target for {word!r}", f"Use {known.device!r}."
        )
    return target


def _limits(known: DeviceKind, options: dict[str, str], device: Any) -> Limits:
    """Of the kind, which asks the device; then what the options say."""
    chosen: dict[str, Any] = {}
    if "num-cores" in options:
        chosen["cores"] = int(options["num-cores"])
    for name, value in options.items():
        if limit := limit_named(name):
            chosen[limit] = int(value)
    limits = replace(known.limits(options, device), **chosen)
    asked = options.get("precision", FLOAT32)
    if asked not in (FLOAT32, *(needed(atom.name) for atom in limits.atoms)):
        given = dict(device).get("arch") or options.get("arch") or known.default_arch
        raise TargetError(
            f"{known.name} -precision={asked}", f"{given or known.name} has no instruction for it",
            "Leave -precision out: float32 is then computed in float32.",
        )  # fmt: skip
    return limits
