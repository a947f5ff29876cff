"""`DeviceKind`: all that Tilewright knows of a kind of device, in one value; and their registry.

In: `register(DeviceKind(...))`, once per kind; `llvm.py`, `cuda.py` and `opencl.py` are those that
come with Tilewright.  Out: `kind(name)`, `kinds()`.  Printers, compilers and drivers are named, not
imported, so that naming a target loads none of them.  Read next: `llvm.py`, then `target.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from tilewright.base import plugins
from tilewright.base.concurrency import importing
from tilewright.base.dtype import TYPES
from tilewright.base.errors import TargetError
from tilewright.targets.limits import Limits

LimitValue = int | float | tuple[int, int, int]
Options = Mapping[str, str]  # of a target, as its text gives them
Provider = Callable[..., Any] | str  # a function or object, or its name: "module:attribute"


def _never(arch: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class DeviceKind:
    """One kind of device, as the first word of a target names it.

    name:         of targets, "cuda"
    limits:       (options, what a device reports) -> Limits, raising TargetError; see
                  `Limits.reported`.  Without a device the second is empty, and the result portable:
                  this machine is not asked
    printer:      a function (Program, Target) -> Source, see `codegen`
    compiler:     what has the methods of `driver.compilers.Compiler`: a module, an object
    driver:       a function (index) -> `runtime.drivers.Driver`
    sanity:       text of a kernel `twice`, which `doctor` compiles and runs: b[i] = a[i] + a[i] for
                  256 floats, on a device with threads in 4 blocks of 64; "": none is tried

    device:       what its devices are called, "cpu" for the kind llvm; default: the name
    aliases:      other words for its devices
    options:      of its targets, besides those that all have
    default_arch: the architecture where neither the target nor a device names one
    dlpack:       the number that DLPack gives to memory of its devices; None: it has no addresses
    templates:    the kinds whose templates fit; default: those made for it
    types:        the element types that its code can store and compute
    precisions:   of `precision.py`, beside float32: those that some template or rule makes use of;
                  others are refused for networks, since they would change nothing
    warm_up:      modules that a build imports, so that workers do so before the first
    host_limits:  a function () -> limits that this very machine has, for `Target.native`
    host_lacks:   a function (options) -> what of a target's options this very machine lacks, so
                  that code for it can be built here but not run

    linker:       a function (contents of a library, what is done, C compiler or None) that makes
                  its `runtime.network.library_file.Code`; "": nobody makes any
    loader:       a function (path, artefacts) that opens such a file, where it has the code of
                  kernels; `load` of what it returns is that of `runtime.drivers.Driver`; "": their
                  binaries are data to the host

    has_threads:  kernels are grids of blocks of threads, which share memory within a block; loops
                  are bound to them.  Otherwise kernels are functions with parallel loops
    shares_host:  kernels run on the processor that also compiles and searches.  A driver may say so
                  of one device whose kind does not
    alignment:    of values that share memory, in bytes: at least 64.  OpenCL makes parts of memory
                  from such places only
    atoms:        a function (target) -> `AtomRate`s of the instructions by which a thread alone
                  multiplies matrices, which `Limits.atoms` has not
    has:          a function (target, word) -> whether a device has what the word says: sm_80 or
                  later, instructions by LLVM's name for them
    copies_alone: a function (architecture) -> whether it copies to shared memory asynchronously
    copies_boxes: likewise, whether an engine of it copies boxes of tensors there
    waits:        likewise, whether a kernel itself can wait for the one before it
    counts_blocks: whether blocks of a launch can count each other (`ir.stmt.Join`)
    vectors_are_aligned: loads and stores of vectors must be aligned, and of 8 or 16 bytes
    bounded:      which worker processes may be given less address space: of "build", "run".
                  Drivers of GPUs reserve more addresses than there is memory
    kernels_per_process: so many kernels take longer to compile than a process to start
    """

    name: str
    limits: Callable[[Options, Mapping[str, LimitValue]], Limits]
    printer: Provider
    compiler: Provider
    driver: Provider
    sanity: str = ""
    device: str = ""
    aliases: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    default_arch: str = ""
    dlpack: int | None = None
    templates: tuple[str, ...] = ()
    types: tuple[str, ...] = TYPES
    precisions: tuple[str, ...] = ()
    warm_up: tuple[str, ...] = ()
    host_limits: Provider | None = None
    host_lacks: Provider | None = None
    linker: Provider = ""
    loader: Provider = ""
    has_threads: bool = False
    shares_host: bool = False
    alignment: int = 64
    atoms: Provider | None = None
    has: Provider | None = None
    copies_alone: Callable[[str], bool] = _never
    waits: Callable[[str], bool] = _never
    copies_boxes: Callable[[str], bool] = _never
    counts_blocks: bool = False
    vectors_are_aligned: bool = False
    bounded: tuple[str, ...] = ("build", "run")
    kernels_per_process: int = 4

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", self.device or self.name)
        object.__setattr__(self, "templates", self.templates or (self.name,))


def resolve(provider: Provider) -> Any:
    """What a provider names.  Raises TargetError where there is nothing of that name."""
    if not isinstance(provider, str):
        return provider
    module, _, attribute = provider.partition(":")
    try:
        with importing:
            found = import_module(module)
        return getattr(found, attribute) if attribute else found
    except (ImportError, AttributeError) as error:
        raise TargetError(
            provider, f"it cannot be imported ({error})", "Name it as module:attribute."
        ) from None


@dataclass(frozen=True)
class Origin:
    """Where a kind was registered: how another process can do the same.

    file: of a module that cannot be imported by its name; "" where it can
    """

    module: str
    file: str = ""

    def load(self) -> None:
        """Import it, unless that was done."""
        if self.module in sys.modules:
            return
        if not self.file:
            import_module(self.module)
            return
        spec = importlib.util.spec_from_file_location(self.module, self.file)
        if spec is None or spec.loader is None:
            raise TargetError(
                f"device kind of {self.file}", "it is no Python file", "Register it in a module."
            )
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        spec.loader.exec_module(module)


_KINDS: dict[str, DeviceKind] = {}
_ORIGINS: dict[str, Origin] = {}  # of kinds that do not come with Tilewright


def register(new: DeviceKind) -> DeviceKind:
    """Make targets of this kind possible, here and in worker processes; returns it.

    Call it at the top of a module: worker processes import that module, or load its file, and
    nothing else.  Raises TargetError in a main script, which no other process may import, and for
    words that another kind has.
    """
    caller = sys._getframe(1).f_globals
    name, file = str(caller.get("__name__", "")), str(caller.get("__file__", ""))
    place = f"register(DeviceKind({new.name!r}))"
    if name == "__main__":
        raise TargetError(
            place, "worker processes cannot import the main script",
            "Register the kind in a module of its own, and import that.",
        )  # fmt: skip
    words = {new.name, new.device, *new.aliases}
    for other in _KINDS.values():
        taken = words & {other.name, other.device, *other.aliases}
        if taken and other.name != new.name:
            raise TargetError(
                place, f"the kind {other.name} has the word {min(taken)!r}", "Choose another."
            )
    known = _KINDS.get(new.name)
    if known is not None and _ORIGINS.get(new.name) != _origin(name, file):
        raise TargetError(place, "there is a kind of that name", "Choose another.")
    if not name.startswith("tilewright."):
        _ORIGINS[new.name] = _origin(name, file)
    _KINDS[new.name] = new
    return new


def kind(name: str, place: str = "") -> DeviceKind:
    """The kind of targets called `name`.  Raises TargetError, at `place`, for one that is not."""
    found: DeviceKind | None = _KINDS.get(name) or plugins.placed("device kinds", name)
    if found is not None:
        return found
    raise TargetError(
        place or f"kind({name!r})", f"unknown kind {name!r}",
        f"Use one of {', '.join(_KINDS)}, for example 'cuda -arch=sm_90'.",
    )  # fmt: skip


# Kinds that TVM has and Tilewright does not.
_OF_TVM = frozenset(
    (
        "aocl", "aocl_sw_emu", "c", "ext_dev", "hexagon", "metal", "nvptx", "opengl", "rocm",
        "sdaccel", "stackvm", "vulkan", "webgpu",
    )
)  # fmt: skip


def called(word: str) -> DeviceKind | None:
    """The kind of which `word` is the name, another name, or the word for its devices."""
    for known in _KINDS.values():  # no generator: every call of a network asks
        if word == known.name or word == known.device or word in known.aliases:
            return known
    return None


def is_absent(word: str) -> bool:
    """Whether it is TVM's word for a kind that nobody registered here: scripts ask for devices of
    them, to leave out what needs one."""
    known = word in _OF_TVM or plugins.placed("device kinds", word) is not None
    return known and called(word) is None


def kinds() -> tuple[DeviceKind, ...]:
    """All that are registered, those of Tilewright first."""
    return tuple(_KINDS.values())


def origins() -> tuple[Origin, ...]:
    """Where kinds were registered that do not come with Tilewright: what workers must load."""
    return tuple(dict.fromkeys(_ORIGINS.values()))


def _origin(module: str, file: str) -> Origin:
    """By name where the path leads to the same file: `sys.modules` may know it from elsewhere."""
    parent = module.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None)
    spec = None if parent and path is None else PathFinder.find_spec(module, path)
    same = spec is not None and spec.origin and Path(spec.origin) == Path(file)
    return Origin(module, "" if same else str(Path(file).resolve()))
