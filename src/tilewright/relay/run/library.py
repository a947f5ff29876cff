"""`Library`: a compiled network as plain data, in memory and in one file.

In: what `compile/build.py` made.  Out: `lib["default"](dev)`, the network loaded on a device;
`lib.save(path)` and `load`.  Read next: `graph_executor.py`, which runs it.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import lock
from tilewright.base.doors import door
from tilewright.base.dtype import DType, json_name
from tilewright.base.errors import DeviceError, ModelError, TilewrightError
from tilewright.relay.compile.report import BuildReport
from tilewright.relay.graph.expr import Array
from tilewright.runtime import artifact_file
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import Kernel
from tilewright.runtime.ndarray import NDArray, array

_FORMAT = "tilewright network 1"
_HEADER = "network.json"
_loading = lock()


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that users see: an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Operand:
    """Where an argument of a kernel lives: "input", "constant" or "slot", and which of them."""

    kind: str
    index: int


@dataclass(frozen=True)
class Launch:
    """One run of a kernel.  operands: one for each of its `Source.buffers`, workspaces included."""

    kernel: int
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Plan:
    """The network without code and weights.

    slot_bytes: sizes of the buffers that intermediate values share; launches run in order
    bound:      parameters that became constants
    """

    target: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[tuple[TensorSpec, Operand], ...]
    launches: tuple[Launch, ...]
    slot_bytes: tuple[int, ...]
    bound: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Header:
    format: str
    plan: Plan
    report: BuildReport
    kernels: int
    constants: int
    constant_types: tuple[str, ...] = ()


class Library:
    """A network compiled for one target.

    report:    what each kernel is, printable
    kernels:   distinct artefacts; constants: weights in the layout that kernels read
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Sequence[Artifact],
        constants: Sequence[Array],
        report: BuildReport,
    ) -> None:
        self.plan, self.report = plan, report
        self.kernels, self.constants = tuple(kernels), tuple(constants)
        self._loaded: dict[Device, LoadedLibrary] = {}

    @property
    def target(self) -> str:
        return self.plan.target

    @door(ModelError)
    def __getitem__(self, name: str) -> Callable[[Device], LoadedLibrary]:
        """`lib["default"](dev)`: the network on a device."""
        if name == "default":
            return self.load_on
        raise ModelError(f"lib[{name!r}]", "there is no such function", 'Use lib["default"](dev).')

    def load_on(self, dev: Device) -> LoadedLibrary:
        """Code and weights on `dev`, put there once however often it is asked for.

        Raises DeviceError when the target is of another kind.
        """
        if not isinstance(dev, Device):
            raise DeviceError(
                f'lib["default"]({type(dev).__name__})', "it is no device", "Try cpu() or cuda(0)."
            )
        wanted = device(self.target)
        if dev.kind != wanted.kind:
            raise DeviceError(
                f'lib["default"]({dev})', f"the network was built for {self.target}",
                f"Use {wanted}, or build it for another target.",
            )  # fmt: skip
        with _loading:
            if dev not in self._loaded:
                self._loaded[dev] = LoadedLibrary(self, dev)
            return self._loaded[dev]

    def get_source(self) -> str:
        """The generated text of all kernels."""
        return "\n".join(k.source.text for k in self.kernels)

    @door(ModelError)
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one file with everything; `load` reads it.  Raises ModelError."""
        types = tuple(DType(c.dtype) for c in self.constants)
        header = _Header(_FORMAT, self.plan, self.report, len(self.kernels), len(types), types)
        try:
            with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
                file.writestr(_HEADER, msgspec.json.encode(header, enc_hook=json_name))
                for k, artifact in enumerate(self.kernels):
                    file.writestr(f"kernel{k}", artifact_file.to_bytes(artifact))
                for k, value in enumerate(self.constants):
                    with file.open(f"constant{k}.npy", "w", force_zip64=True) as out:
                        np.save(out, value.view(_stored(value.dtype)), allow_pickle=False)
        except OSError as error:
            raise ModelError(
                f"save({os.fspath(path)!r})", f"it cannot be written ({error.strerror or error})",
                "Name a file in a directory that exists and that you may write to.",
            ) from None  # fmt: skip

    export_library = save

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.plan.inputs))
        outputs = ", ".join(str(spec) for spec, _ in self.plan.outputs)
        return (
            f"Library({inputs}) -> {outputs} for {self.target}: "
            f"{len(self.kernels)} kernels, {len(self.plan.launches)} launches"
        )


class LoadedLibrary:
    """Code and weights of a library on a device; `GraphModule` runs it."""

    def __init__(self, library: Library, dev: Device) -> None:
        self.library, self.device = library, dev
        self.kernels: tuple[tuple[Kernel, ...], ...] = tuple(
            dev.driver.load(artifact) for artifact in library.kernels
        )
        self.constants: tuple[NDArray, ...] = tuple(array(c, dev) for c in library.constants)

    def __repr__(self) -> str:
        return f"{self.library!r} on {self.device}"


def load(path: str | os.PathLike[str]) -> Library:
    """The library that `save` wrote.  Raises ModelError for a missing or damaged file."""
    place = f"relay.load({os.fspath(path)!r})"
    try:
        with zipfile.ZipFile(path) as file:
            return _read(file, place)
    except OSError as error:
        raise ModelError(place, error.strerror or str(error), "Check the path.") from None
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError, TilewrightError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            place, f"it is no compiled network, or damaged ({error})", "Write it with lib.save."
        ) from None


def _read(file: zipfile.ZipFile, place: str) -> Library:
    data = file.read(_HEADER)
    found = msgspec.json.decode(data)
    if not isinstance(found, Mapping) or found.get("format") != _FORMAT:
        raise ModelError(
            place, f"its format is {_format(found)!r}, not {_FORMAT!r}",
            "Build and save it with this version.",
        )  # fmt: skip
    header = msgspec.json.decode(data, type=_Header)
    kernels = [
        artifact_file.from_bytes(file.read(f"kernel{k}"), place) for k in range(header.kernels)
    ]
    constants = [
        np.load(io.BytesIO(file.read(f"constant{k}.npy")), allow_pickle=False)
        for k in range(header.constants)
    ]
    for k, name in enumerate(header.constant_types):
        constants[k] = constants[k].view(DType(name).storage)
    return Library(header.plan, kernels, constants, header.report)


def _stored(kind: np.dtype[Any]) -> np.dtype[Any]:
    """The type under which a file of numpy keeps elements of `kind`: it knows no bfloat16."""
    return np.dtype(f"u{kind.itemsize}") if kind.isbuiltin != 1 else kind


def _format(found: Any) -> Any:
    return found.get("format") if isinstance(found, Mapping) else None
