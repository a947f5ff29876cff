"""`Module`: a compiled artefact loaded on a device, called with arrays.

In: an `Artifact` and a `Device`.  Out: results in the output arrays, timings, the source, a file.
Read next: `sequence.py` for whole networks, `trial.py` for verified timing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.base.artifact import Artifact, BufferSpec
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime import artifact_file
from tilewright.runtime.device import Device, cpu, device
from tilewright.runtime.drivers import Launch, Plan
from tilewright.runtime.ndarray import NDArray, array, empty
from tilewright.runtime.sequence import KernelCall
from tilewright.runtime.timing import BenchmarkResult, measure

TimeEvaluator = Callable[..., BenchmarkResult]


def load_module(path: str | Path, on: Device | None = None) -> Module:
    """Load what `Module.save` wrote; on the device of its kind with index 0 unless one is named."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DeviceError(
            f"load_module({str(path)!r})", f"the file cannot be read ({error.strerror})",
            "Name a file that Module.save wrote.",
        ) from None  # fmt: skip
    artifact = artifact_file.from_bytes(data, f"load_module({str(path)!r})")
    return Module(artifact, on or device(artifact.source.target))


class Module:
    """Callable on the inputs and outputs of its source, in their order and their logical shapes.

    A constant that kernels read packed (`BufferSpec.packing`) is packed on the host at each call;
    `time_evaluator` and `LaunchSequence` pack it once.
    Workspaces are allocated once and belong to the module, so two calls of one module must not
    overlap on different streams.  Raises DeviceError naming the argument that does not fit.
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
        self.workspaces = tuple(
            empty(b.shape, b.dtype, self.device) for b in source.buffers if b.role == "workspace"
        )
        self._bound: tuple[tuple[int, ...], Plan, tuple[NDArray, ...]] | None = None

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
        self._plan(arrays).run()

    def launches(self, *arrays: NDArray) -> list[KernelCall]:
        """The launches of one call as (kernel, arrays) pairs, for a `LaunchSequence`.

        Packed constants are packed now: later changes of their contents are not seen.
        """
        self._check(arrays)
        return self._launches(self._packed(arrays))

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
            plan = self._plan(arrays)
            plan.run()
            self.device.sync()
            return measure(
                plan, number, repeat, min_repeat_ms,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms,
                repeats_to_cooldown=repeats_to_cooldown, cache_flush_bytes=cache_flush_bytes,
            )  # fmt: skip

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

    def _plan(self, arrays: tuple[NDArray, ...]) -> Plan:
        """The plan for these arrays, kept for the next call; packed constants are packed anew."""
        self._check(arrays)
        key = tuple(id(a) for a in arrays)
        if self._bound is not None and self._bound[0] == key:
            if self._has_packing:
                self._repack(arrays, self._bound[2])
            return self._bound[1]
        held = self._packed(arrays)
        plan = self.device.driver.plan(
            tuple(
                Launch(kernel, tuple(a.memory for a in buffers))
                for kernel, buffers in self._launches(held)
            )
        )
        self._bound = key, plan, (*held, *arrays)  # alive, so that no id comes back
        return plan

    def _launches(self, arrays: tuple[NDArray, ...]) -> list[KernelCall]:
        buffers = (*arrays, *self.workspaces)
        return [(kernel, [buffers[i] for i in kernel.info.args]) for kernel in self.kernels]

    @property
    def _has_packing(self) -> bool:
        return any(spec.packing for spec in self.parameters)

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

    def _check(self, arrays: tuple[Any, ...]) -> None:
        if len(arrays) != len(self.parameters):
            names = ", ".join(p.name for p in self.parameters)
            raise DeviceError(
                f"{self.entry_name}()",
                f"it takes {len(self.parameters)} arrays, not {len(arrays)}",
                f"Pass {names}.",
            )  # fmt: skip
        for index, (spec, value) in enumerate(zip(self.parameters, arrays, strict=True)):
            reason = _misfit(spec, value, self.device)
            if reason:
                raise DeviceError(f"{self.entry_name}(): argument {index} ({spec.name})", *reason)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{p.name}: {p.dtype}{list(p.logical_shape)}" for p in self.parameters)
        names = " ".join(k.info.name for k in self.kernels)
        return f"Module {self.entry_name}({inputs}) on {self.device}; kernels: {names}"


def _misfit(spec: BufferSpec, value: Any, device: Device) -> tuple[str, str] | None:
    """Why `value` cannot be passed for `spec`, with a way out; None when it can."""
    if not isinstance(value, NDArray):
        return f"it is a {type(value).__name__}, not an NDArray", f"Try array(x, {device})."
    if value.device != device:
        return f"it lives on {value.device}, not on {device}", f"Try .copyto({device})."
    if value.dtype != spec.dtype:
        return f"its dtype is {value.dtype}, not {spec.dtype}", "Convert it first."
    if value.shape != spec.logical_shape:
        return f"its shape is {value.shape}, not {spec.logical_shape}", "Reshape it first."
    return None
