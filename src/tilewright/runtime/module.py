"""`Module`: a compiled artefact loaded on a device, called with arrays.

In: an `Artifact` and a `Device`.  Out: results in the output arrays, timings, the source, a file.
Read next: `sequence.py` for whole networks, `trial.py` for verified timing.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base import output, plugins
from tilewright.base.artifact import Artifact, BufferSpec
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.base.extent import text_of
from tilewright.runtime import arguments, artifact_file, extents, own_files
from tilewright.runtime.calls import mixed_plan
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.drivers import Kernel, Launch, Plan
from tilewright.runtime.ndarray import NDArray, array, empty
from tilewright.runtime.sequence import KernelCall
from tilewright.runtime.texts import source_text
from tilewright.runtime.timing import BenchmarkResult, measure

TimeEvaluator = Callable[..., BenchmarkResult]

_SPACES = ("workspace", "counters")
_OWN = (*_SPACES, "extent")  # what a module passes beside the caller's arguments
_TEXTS = {".ll": "ll", ".s": "asm", ".asm": "asm", ".cu": "cu", ".cl": "cl"}
_NUMBERS = (numbers.Real, np.generic)

_KEPT = 16  # calls that stay ready, and so at most the sets of workspaces that an idle module has


@dataclass(frozen=True, eq=False)
class _Ready:
    """A call ready to run: checked arguments, workspaces that no other call has, launches.

    key:       the identities of `arrays`, which stay alive so that none of them comes back
    held:      what kernels read of the arrays: of packed constants another array
    """

    key: tuple[int, ...]
    arrays: tuple[NDArray, ...]
    held: tuple[NDArray, ...]
    workspaces: tuple[NDArray, ...]
    plan: Plan


@dataclass(frozen=True, eq=False)
class _Call:
    """What is launched for the shapes of one call.

    given:  the extents that kernels read; spaces: of workspaces; values: of variables
    """

    kernels: tuple[Kernel, ...]
    given: tuple[NDArray, ...]
    spaces: tuple[BufferSpec, ...]
    values: Mapping[str, int]

    def launches(
        self, arrays: Sequence[NDArray], workspaces: Sequence[NDArray]
    ) -> list[KernelCall]:
        buffers = (*arrays, *self.given, *workspaces)
        return [(kernel, [buffers[i] for i in kernel.info.args]) for kernel in self.kernels]


class Module:
    """Callable on the inputs and outputs of its source, in their order and their logical shapes.

    A constant that kernels read packed (`BufferSpec.packing`) is packed on the host at each call;
    `time_evaluator` and `LaunchSequence` pack it once.  Threads may call one module at the same
    time: each call has workspaces of its own, which later calls take over.  Raises DeviceError
    naming the argument that does not fit, or that shares memory with an output.
    """

    def __init__(
        self, artifact: Artifact, device: Device | None = None, *, load_later: bool = False
    ) -> None:
        """load_later: load kernels at the first call, such as those for another machine"""
        self.artifact = artifact
        self.device = device or cpu()
        source = artifact.source
        wanted = source.target.partition(" ")[0]
        if self.device.device_kind.name != wanted:
            raise DeviceError(
                f"Module({source.entry_name})",
                f"it was compiled for {wanted}, not for {self.device}",
                f"Load it on device({wanted!r}).",
            )  # fmt: skip
        if not load_later and (self.device.exist or artifact.binary):
            self.kernels = self.device.driver.load(artifact)
        self.parameters = tuple(b for b in source.buffers if b.role not in _OWN)
        self._spaces = tuple(b for b in source.buffers if b.role in _SPACES)
        self._has_scalars = any(not b.shape for b in self.parameters)
        self._has_packing = any(spec.packing for spec in self.parameters)
        self._idle: list[_Ready] = []  # appended to and popped from, which threads may do at once

    def __getattr__(self, name: str) -> Any:
        """Kernels of a device that is not here, or for another machine, are loaded when they are
        asked for, which raises."""
        if name != "kernels":
            raise plugins.absent("Module", name)
        self.kernels = self.device.driver.load(self.artifact)
        return self.kernels

    @property
    def entry_name(self) -> str:
        return self.artifact.source.entry_name

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        """The modules holding device code: this one, but for code of the host's own processor."""
        return () if self.device.device_kind.shares_host else (self,)

    @door(DeviceError)
    def get_source(self, fmt: str = "") -> str:
        """The generated text: LLVM IR, CUDA C or OpenCL C.

        fmt: default: that text, "ll" of LLVM, "cu" of CUDA, "cl" of OpenCL; "asm" or "s" gives the
             instructions of a CPU
        """
        return source_text(self.artifact, fmt)

    @door(DeviceError)
    def get_function(self, name: str, query_imports: bool = False) -> Module:
        """The function `name`, which is this module: it has one."""
        self._check_name(name, f"get_function({name!r})")
        return self

    def __getitem__(self, name: str) -> Module:
        return self.get_function(name)

    def _check_name(self, name: str, place: str) -> None:
        if name not in ("default", "main", "run", self.entry_name):
            raise DeviceError(
                place, f"this module's function is {self.entry_name!r}", "Pass mod.entry_name."
            )

    def __call__(self, *arrays: NDArray | float) -> None:
        """Run.  On a GPU this enqueues; reading an output waits for it.

        Numbers may be given for inputs without dimensions.  Extents that are variables are what the
        shapes of the arrays say.
        """
        ready = self._take(self._arrays(arrays))
        ready.plan.run()
        self._give(ready)

    def launches(self, *arrays: NDArray) -> list[KernelCall]:
        """The launches of one call as (kernel, arrays) pairs, for a `LaunchSequence`.

        Packed constants are packed now: later changes of their contents are not seen.  The launches
        have workspaces of their own.
        """
        for host in self.artifact.source.calls:
            raise DeviceError(
                f"{self.entry_name}.launches()", f"{host.name}, a Python function, is a part of it",
                "Call the module.",
            )  # fmt: skip
        arrays = self._arrays(arrays)
        call = self._call(arrays)
        return call.launches(self._packed(arrays), self._workspaces(call))

    @door(DeviceError)
    def time_evaluator(
        self,
        func_name: str,
        dev: Device,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
    ) -> TimeEvaluator:
        """A function of the module's arrays that gives a `BenchmarkResult` in seconds of device
        time.

        One warm-up call, then `repeat` times the mean of `number` calls back to back, without
        Python between them; `min_repeat_ms` raises `number` until a repeat lasts that long.
        `cache_flush_bytes` are written before each call, which is then timed alone.
        """
        self._check_name(func_name, f"time_evaluator({func_name!r})")
        if dev != self.device:
            raise DeviceError(
                f"time_evaluator({func_name!r}, {dev})", f"the module is loaded on {self.device}",
                f"Pass {self.device}.",
            )  # fmt: skip

        def evaluate(*arrays: NDArray) -> BenchmarkResult:
            ready = self._take(self._arrays(arrays))
            ready.plan.run()
            self.device.sync()
            timed = measure(
                ready.plan, number, repeat, min_repeat_ms,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown, cache_flush_bytes=cache_flush_bytes,
            )  # fmt: skip
            self._give(ready)
            return timed

        return evaluate

    @door(DeviceError)
    def save(self, path: str | Path) -> None:
        """Write the artefact for `load_module`.

        A name that ends in `.o` makes an object file of it, where the code is that of a CPU; one
        that ends in `.ll`, `.s`, `.asm`, `.cu` or `.cl` is the text, which nothing loads.
        Raises DeviceError where it cannot be written, or a file of another kind is there.
        """
        kind = Path(path).suffix
        if kind in _TEXTS:
            own_files.write_source(path, self.get_source(_TEXTS[kind]), f"save({str(path)!r})")
        elif kind == ".o" and self.artifact.binary.startswith(artifact_file.OBJECT):
            self._write(path, artifact_file.behind_object(self.artifact))
        else:
            self._write(path, artifact_file.to_bytes(self.artifact))

    def export_library(self, path: str | Path) -> None:
        """Write the artefact for `load_module`, whatever the name."""
        self._write(path, artifact_file.to_bytes(self.artifact))

    def _write(self, path: str | Path, data: bytes) -> None:
        output.write(path, data, own_files.LIBRARY, f"save({str(path)!r})", DeviceError)

    def _take(self, arrays: tuple[NDArray, ...]) -> _Ready:
        """A call on `arrays` that nobody else runs: the one that ended last, bound anew if it had
        other arrays."""
        key = tuple(map(id, arrays))
        try:
            ready = self._idle.pop()
        except IndexError:
            ready = None
        if ready is None:
            return self._bind(key, arrays, None)
        if ready.key != key:
            spaces = ready.workspaces if self.artifact.source.open is None else None
            return self._bind(key, arrays, spaces)
        if self._has_packing:
            self._repack(arrays, ready.held)
        return ready

    def _give(self, ready: _Ready) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(ready)

    def _bind(
        self, key: tuple[int, ...], arrays: tuple[NDArray, ...], spaces: tuple[NDArray, ...] | None
    ) -> _Ready:
        call = self._call(arrays)
        held = self._packed(arrays)
        workspaces = self._workspaces(call) if spaces is None else spaces
        launches = tuple(
            Launch(kernel, tuple(a.memory for a in buffers))
            for kernel, buffers in call.launches(held, workspaces)
        )
        plan: Plan
        if self.artifact.source.calls:
            known = (*held, *call.given, *workspaces)
            plan = mixed_plan(self.artifact.source.calls, launches, known, call.values, self.device)
        else:
            plan = self.device.driver.plan(launches)
        return _Ready(key, arrays, held, workspaces, plan)

    def _call(self, arrays: tuple[NDArray, ...]) -> _Call:
        """What is launched for `arrays`, which are checked."""
        source = self.artifact.source
        if source.open is None:
            self._check(arrays, self.parameters)
            return _Call(self.kernels, (), self._spaces, {})
        self._check_count(arrays)
        values = extents.values_of(source, arrays)
        buffers, infos = extents.with_numbers(source, values)
        specs = tuple(b for b in buffers if b.role not in _OWN)
        self._check(arrays, specs)
        kernels = tuple(
            replace(kernel, info=info, source=replace(source, buffers=buffers, kernels=infos))
            for kernel, info in zip(self.kernels, infos, strict=True)
        )
        pairs = zip(source.open.symbols, source.open.places, strict=True)
        named = {at: values[name] for name, at in pairs}
        given = tuple(
            array(np.full((), named[at], b.dtype.storage), self.device)
            for at, b in enumerate(buffers)
            if b.role == "extent"
        )
        return _Call(kernels, given, tuple(b for b in buffers if b.role in _SPACES), values)

    def _arrays(self, arrays: tuple[Any, ...]) -> tuple[NDArray, ...]:
        """The arguments, numbers among them as arrays without dimensions."""
        if not self._has_scalars or len(arrays) != len(self.parameters):
            return arrays
        return tuple(
            self._scalar(value, spec) if not spec.shape and isinstance(value, _NUMBERS) else value
            for value, spec in zip(arrays, self.parameters, strict=True)
        )

    def _scalar(self, value: Any, spec: BufferSpec) -> NDArray:
        number = np.asarray(value)
        if spec.dtype.is_int and (number.dtype.kind == "f" or not spec.dtype.holds(int(number))):
            raise DeviceError(
                f"{self.entry_name}(): {spec.name}", f"{value!r} is no {spec.dtype}",
                "Give a number of its type.",
            )  # fmt: skip
        return array(number.astype(spec.dtype.storage), self.device)

    def _workspaces(self, call: _Call) -> tuple[NDArray, ...]:
        return tuple(
            empty(b.shape, b.dtype, self.device)
            if b.role == "workspace"
            else array(np.zeros(b.shape, b.dtype.storage), self.device)
            for b in call.spaces
        )

    def _packed(self, arrays: tuple[NDArray, ...]) -> tuple[NDArray, ...]:
        """The arrays that the kernels read: a new one for each packed constant."""
        return tuple(
            array(spec.packing.apply(value.numpy()), self.device) if spec.packing else value
            for spec, value in zip(self.parameters, arrays, strict=True)
        )

    def _repack(self, arrays: tuple[NDArray, ...], held: tuple[NDArray, ...]) -> None:
        for spec, value, target in zip(self.parameters, arrays, held, strict=False):
            if spec.packing:
                target.copyfrom(spec.packing.apply(value.numpy()))

    def _check(self, arrays: tuple[NDArray, ...], specs: Sequence[BufferSpec]) -> None:
        self._check_count(arrays)
        arguments.check(f"{self.entry_name}()", specs, arrays, self.device, packed=False)

    def _check_count(self, arrays: tuple[Any, ...]) -> None:
        if len(arrays) != len(self.parameters):
            names = ", ".join(p.name for p in self.parameters)
            raise DeviceError(
                f"{self.entry_name}()",
                f"it takes {len(self.parameters)} arrays, not {len(arrays)}",
                f"Pass {names}.",
            )  # fmt: skip

    def __repr__(self) -> str:
        known = self.artifact.source.open
        shapes: list[Any] = [p.logical_shape for p in self.parameters]
        if known is not None:
            shapes = [[text_of(n) for n in shape] for shape in known.shapes[: len(shapes)]]
        inputs = ", ".join(
            f"{p.name}: {p.dtype}[{', '.join(map(str, n))}]"
            for p, n in zip(self.parameters, shapes, strict=True)
        )
        names = " ".join(k.name for k in self.artifact.source.kernels)
        return f"Module {self.entry_name}({inputs}) on {self.device}; kernels: {names}"
