"""`Module`: a compiled artefact loaded on a device, called with arrays.

In: an `Artifact` and a `Device`.  Out: results in the output arrays, timings, the source, a file.
Read next: `sequence.py` for whole networks, `trial.py` for verified timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.artifact import Artifact
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime import arguments, artifact_file
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.drivers import Launch, Plan
from tilewright.runtime.ndarray import NDArray, array, empty
from tilewright.runtime.sequence import KernelCall
from tilewright.runtime.timing import BenchmarkResult, measure

TimeEvaluator = Callable[..., BenchmarkResult]

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


class Module:
    """Callable on the inputs and outputs of its source, in their order and their logical shapes.

    A constant that kernels read packed (`BufferSpec.packing`) is packed on the host at each call;
    `time_evaluator` and `LaunchSequence` pack it once.  Threads may call one module at the same
    time: each call has workspaces of its own, which later calls take over.  Raises DeviceError
    naming the argument that does not fit, or that shares memory with an output.
    """

    def __init__(self, artifact: Artifact, device: Device | None = None) -> None:
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
        self.kernels = self.device.driver.load(artifact)
        self.parameters = tuple(b for b in source.buffers if b.role != "workspace")
        self._spaces = tuple(b for b in source.buffers if b.role == "workspace")
        self._has_packing = any(spec.packing for spec in self.parameters)
        self._idle: list[_Ready] = []  # appended to and popped from, which threads may do at once

    @property
    def entry_name(self) -> str:
        return self.artifact.source.entry_name

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        """The modules holding device code: this one, but for code of the host's own processor."""
        return () if self.device.device_kind.shares_host else (self,)

    def get_source(self) -> str:
        """The generated text: LLVM IR, CUDA C or OpenCL C."""
        return self.artifact.source.text

    def __call__(self, *arrays: NDArray) -> None:
        """Run.  On a GPU this enqueues; reading an output waits for it."""
        ready = self._take(arrays)
        ready.plan.run()
        self._give(ready)

    def launches(self, *arrays: NDArray) -> list[KernelCall]:
        """The launches of one call as (kernel, arrays) pairs, for a `LaunchSequence`.

        Packed constants are packed now: later changes of their contents are not seen.  The launches
        have workspaces of their own.
        """
        self._check(arrays)
        return self._launches(self._packed(arrays), self._workspaces())

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
        if func_name not in ("default", "main", "run", self.entry_name):
            raise DeviceError(
                f"time_evaluator({func_name!r})", f"this module's function is {self.entry_name!r}",
                "Pass mod.entry_name.",
            )  # fmt: skip
        if dev != self.device:
            raise DeviceError(
                f"time_evaluator({func_name!r}, {dev})", f"the module is loaded on {self.device}",
                f"Pass {self.device}.",
            )  # fmt: skip

        def evaluate(*arrays: NDArray) -> BenchmarkResult:
            ready = self._take(arrays)
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
        """Write the artefact for `load_module`."""
        try:
            Path(path).write_bytes(artifact_file.to_bytes(self.artifact))
        except OSError as error:
            raise DeviceError(
                f"save({str(path)!r})", f"it cannot be written ({error.strerror})",
                "Name a file in a folder that exists and that you may write to.",
            ) from None  # fmt: skip

    export_library = save

    def _take(self, arrays: tuple[NDArray, ...]) -> _Ready:
        """A call on `arrays` that nobody else runs: the one that ended last, bound anew if it had
        other arrays."""
        key = tuple(map(id, arrays))
        try:
            ready = self._idle.pop()
        except IndexError:
            return self._bind(key, arrays, None)
        if ready.key != key:
            return self._bind(key, arrays, ready.workspaces)
        if self._has_packing:
            self._repack(arrays, ready.held)
        return ready

    def _give(self, ready: _Ready) -> None:
        if len(self._idle) < _KEPT:
            self._idle.append(ready)

    def _bind(
        self, key: tuple[int, ...], arrays: tuple[NDArray, ...], spaces: tuple[NDArray, ...] | None
    ) -> _Ready:
        self._check(arrays)
        held = self._packed(arrays)
        workspaces = self._workspaces() if spaces is None else spaces
        launches = tuple(
            Launch(kernel, tuple(a.memory for a in buffers))
            for kernel, buffers in self._launches(held, workspaces)
        )
        return _Ready(key, arrays, held, workspaces, self.device.driver.plan(launches))

    def _workspaces(self) -> tuple[NDArray, ...]:
        return tuple(empty(b.shape, b.dtype, self.device) for b in self._spaces)

    def _launches(
        self, arrays: tuple[NDArray, ...], workspaces: tuple[NDArray, ...]
    ) -> list[KernelCall]:
        buffers = (*arrays, *workspaces)
        return [(kernel, [buffers[i] for i in kernel.info.args]) for kernel in self.kernels]

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

    def _check(self, arrays: tuple[NDArray, ...]) -> None:
        if len(arrays) != len(self.parameters):
            names = ", ".join(p.name for p in self.parameters)
            raise DeviceError(
                f"{self.entry_name}()",
                f"it takes {len(self.parameters)} arrays, not {len(arrays)}",
                f"Pass {names}.",
            )  # fmt: skip
        place = f"{self.entry_name}()"
        arguments.check(place, self.parameters, arrays, self.device, packed=False)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{p.name}: {p.dtype}{list(p.logical_shape)}" for p in self.parameters)
        names = " ".join(k.info.name for k in self.kernels)
        return f"Module {self.entry_name}({inputs}) on {self.device}; kernels: {names}"
