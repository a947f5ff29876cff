"""`trial`: load a candidate, check its results, race it with the best, time it if worth it.

In: an artefact, a device, inputs, what must come out, the best time so far.  Out: `TrialResult`.
A kernel may still crash or hang the process: the `measure` room runs trials in processes it can
kill.  Read next: `timing.py`, `module.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.artifact import Artifact, BufferSpec
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError, InternalError, TilewrightError
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Launch, Memory, Plan
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.timing import measure

GUARD_BYTES = 4096  # behind each buffer; a multiple of every alignment in use
_GUARD = 0xA5
_RACE_PASSES = 5
_RACE_FACTOR = 1.5  # slower than this times the best: the five passes are the measurement
_CLOSE_FACTOR = 0.99  # not clearly faster: a few milliseconds are the measurement
_CLOSE_SECONDS = 2e-3


@dataclass(frozen=True)
class TrialResult:
    """costs: seconds of one run, an entry per repeat (one entry when `raced`, none on an error).

    raced:   the race was lost, so the costs come from five runs back to back
    error:   None, "run" (load, launch or device failed) or "wrong" (results, guards, inputs)
    fatal:   the device is lost to this process; the caller must go on in a new one
    seconds: wall time spent on the whole trial
    """

    costs: tuple[float, ...] = ()
    raced: bool = False
    error: str | None = None
    message: str = ""
    fatal: bool = False
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # seconds of load, verify, time


class _Wrong(Exception):
    """The results are not what they must be; the message says where and by how much."""


def trial(
    artifact: Artifact,
    device: Device,
    inputs: Sequence[np.ndarray | NDArray],
    expected: Sequence[np.ndarray] | None = None,
    tolerance: Sequence[np.ndarray | float] | None = None,
    best_seconds: float | None = None,
    *,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    race: bool = True,
    cache_flush_bytes: int = 0,
) -> TrialResult:
    """Measure one candidate; never raises for what the candidate does, only for a wrong call.

    inputs:    one per input buffer, in its logical shape; an NDArray on `device` is used where it
               lies, without a guard; what kernels read packed is packed here, on the host
    expected:  one per output buffer, or None to skip verification
    tolerance: largest |out - expected| per element, broadcast to the output; None: exact
    """
    specs = artifact.source.buffers
    _check_call(specs, inputs, expected, tolerance, device)
    inputs = _packed(specs, inputs)
    began = time.perf_counter()
    stages: dict[str, float] = {}

    def result(**fields: object) -> TrialResult:
        spent = time.perf_counter() - began
        return TrialResult(seconds=spent, stages=stages, **fields)  # type: ignore[arg-type]

    def lap(stage: str, since: float) -> float:
        now = time.perf_counter()
        stages[stage] = now - since
        return now

    try:
        buffers = _buffers(specs, inputs, device)
        plan = _load(artifact, device, buffers)
        mark = lap("load", began)
        plan.run()
        device.sync()
        if expected is not None:
            _check_guards(buffers)
            _check_outputs(buffers, expected, tolerance)
            _check_inputs(buffers, inputs)
        mark = lap("verify", mark)
        if race and best_seconds is not None:
            cost = _race(plan, best_seconds, cache_flush_bytes)
            if cost is not None:
                lap("time", mark)
                return result(costs=(cost,), raced=True)
        timed = measure(plan, number, repeat, min_repeat_ms, cache_flush_bytes=cache_flush_bytes)
        if expected is not None:  # a race, or state left behind, may show only after many runs
            _check_guards(buffers)
            _check_outputs(buffers, expected, tolerance)
        lap("time", mark)
        return result(costs=timed.results)
    except _Wrong as wrong:
        return result(error="wrong", message=str(wrong))
    except TilewrightError as error:
        return result(
            error="run", message=str(error), fatal=isinstance(error, DeviceError) and error.fatal
        )


def _race(plan: Plan, best_seconds: float, cache_flush_bytes: int) -> float | None:
    """Seconds of a candidate that cannot set a record; None for one that may.

    Only likely record-setters are worth `repeat` times `min_repeat_ms`, which is what most of a
    tuning run would otherwise be spent on.
    """
    cost = plan.seconds(_RACE_PASSES, cache_flush_bytes)
    if cost > _RACE_FACTOR * best_seconds:
        return cost
    passes = max(_RACE_PASSES, min(200, int(_CLOSE_SECONDS / max(cost, 1e-9))))
    cost = min(plan.seconds(passes, cache_flush_bytes) for _ in range(3))
    return cost if cost > _CLOSE_FACTOR * best_seconds else None


class _Buffer:
    """A buffer of the artefact: borrowed, or with guard bytes behind it."""

    def __init__(self, spec: BufferSpec, device: Device, borrowed: NDArray | None = None) -> None:
        self.spec, self.driver, self.guarded = spec, device.driver, borrowed is None
        if borrowed is not None:
            self.memory: Memory = borrowed.memory
            return
        self.nbytes = spec.size * spec.dtype.bytes
        self.memory = self.driver.allocate(self.nbytes + GUARD_BYTES)
        self.driver.write(self.memory, np.full(GUARD_BYTES, _GUARD, np.uint8), self.nbytes)

    def write(self, value: np.ndarray) -> None:
        if value.size:
            self.driver.write(self.memory, value.reshape(-1).view(np.uint8))

    def read(self) -> np.ndarray:
        out = np.empty(self.spec.shape, self.spec.dtype.storage)
        if out.size:
            self.driver.read(self.memory, out.reshape(-1).view(np.uint8))
        return out

    def damage(self) -> int | None:
        """The distance of the first guard byte that changed, or None."""
        if not self.guarded:
            return None
        guard = np.empty(GUARD_BYTES, np.uint8)
        self.driver.read(self.memory, guard, self.nbytes)
        changed = np.flatnonzero(guard != _GUARD)
        return int(changed[0]) if changed.size else None


def _check_call(
    specs: tuple[BufferSpec, ...],
    inputs: Sequence[np.ndarray | NDArray],
    expected: Sequence[np.ndarray] | None,
    tolerance: Sequence[np.ndarray | float] | None,
    device: Device,
) -> None:
    wanted = [s for s in specs if s.role == "input"]
    outputs = [s for s in specs if s.role == "output"]
    for what, given, needed in (
        ("inputs", inputs, wanted), ("expected", expected, outputs),
        ("tolerance", tolerance, outputs),
    ):  # fmt: skip
        if given is not None and len(given) != len(needed):
            raise InternalError(
                "trial", f"{len(given)} {what} for {len(needed)} buffers of the artefact"
            )
    for spec, value in zip(wanted, inputs, strict=True):
        if tuple(value.shape) != spec.logical_shape or str(value.dtype) != spec.dtype:
            raise DeviceError(
                f"trial: input {spec.name}",
                f"it is {value.dtype}{list(value.shape)}, the kernel takes {spec.dtype}"
                f"{list(spec.logical_shape)}",
                "Give inputs of the artefact's own shapes.",
            )
        if isinstance(value, NDArray) and value.device != device:
            raise DeviceError(
                f"trial: input {spec.name}", f"it lives on {value.device}, not on {device}",
                f"Try .copyto({device}).",
            )  # fmt: skip


def _packed(
    specs: tuple[BufferSpec, ...], inputs: Sequence[np.ndarray | NDArray]
) -> list[np.ndarray | NDArray]:
    """The inputs as the kernels read them."""
    wanted = [s for s in specs if s.role == "input"]
    made: list[np.ndarray | NDArray] = []
    for spec, value in zip(wanted, inputs, strict=True):
        if spec.packing is None:
            made.append(value)
            continue
        host = value.numpy() if isinstance(value, NDArray) else value
        made.append(spec.packing.apply(host))
    return made


def _buffers(
    specs: tuple[BufferSpec, ...], inputs: Sequence[np.ndarray | NDArray], device: Device
) -> list[_Buffer]:
    """Inputs as given; outputs and workspaces poisoned, so that what is not written shows."""
    given = iter(inputs)
    buffers = []
    for spec in specs:
        value = next(given) if spec.role == "input" else None
        if isinstance(value, NDArray):
            buffers.append(_Buffer(spec, device, value))
            continue
        buffers.append(_Buffer(spec, device))  # first: what is too large fails here, at once
        if value is None:
            value = np.full(spec.shape, _poison(spec.dtype), spec.dtype.storage)
        buffers[-1].write(np.ascontiguousarray(value))
    return buffers


def _poison(dtype: DType) -> float | int | bool:
    """What a kernel is unlikely to leave: NaN, or next to the end of the range that is far off."""
    if dtype.is_float:
        return float("nan")
    if dtype.kind == "bool":
        return True
    return int(dtype.least) + 1 if dtype.least < 0 else int(dtype.greatest) - 1


def _load(artifact: Artifact, device: Device, buffers: list[_Buffer]) -> Plan:
    kernels = device.driver.load(artifact)
    launches = tuple(Launch(k, tuple(buffers[i].memory for i in k.info.args)) for k in kernels)
    return device.driver.plan(launches)


def _check_outputs(
    buffers: list[_Buffer],
    expected: Sequence[np.ndarray],
    tolerance: Sequence[np.ndarray | float] | None,
) -> None:
    outputs = [b for b in buffers if b.spec.role == "output"]
    slacks = tolerance or [0.0] * len(expected)
    for buffer, want, slack in zip(outputs, expected, slacks, strict=True):
        _check_output(buffer.spec, buffer.read(), np.asarray(want), slack)


def _check_inputs(buffers: list[_Buffer], inputs: Sequence[np.ndarray | NDArray]) -> None:
    given = iter(inputs)
    for buffer in buffers:
        if buffer.spec.role != "input":
            continue
        value = next(given)
        same = isinstance(value, NDArray) or np.array_equal(
            buffer.read().reshape(-1).view(np.uint8),
            np.ascontiguousarray(value).reshape(-1).view(np.uint8),
        )
        if not same:
            raise _Wrong(f"the kernel wrote into its input {buffer.spec.name}")


def _check_guards(buffers: list[_Buffer]) -> None:
    for buffer in buffers:
        at = buffer.damage()
        if at is not None:
            spec = buffer.spec
            raise _Wrong(
                f"the kernel wrote {at} bytes past the end of {spec.role} {spec.name} "
                f"({spec.dtype}{list(spec.shape)})"
            )


def _check_output(
    spec: BufferSpec, got: np.ndarray, want: np.ndarray, slack: np.ndarray | float
) -> None:
    if got.dtype == bool:
        bad = got != want
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
            same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities, wanted NaN
            bad = ~((distance <= slack) | same)
    if not bad.any():
        return
    unwritten = int(np.isnan(got[bad]).sum()) if spec.dtype.is_float else 0
    bad_at = np.argwhere(bad)
    rank = np.flatnonzero(bad)
    worst = int(rank[_worst(got[bad], want[bad])])
    index = tuple(int(i) for i in np.unravel_index(worst, got.shape)) if got.shape else ()
    limit = np.broadcast_to(np.asarray(slack), got.shape)[index]
    raise _Wrong(
        f"output {spec.name} is wrong in {len(bad_at)} of {got.size} elements"
        f"{f' ({unwritten} are NaN: perhaps never written)' if unwritten else ''}; first at "
        f"{bad_at[0].tolist()}, worst at {list(index)}: {got[index]!s} instead of {want[index]!s}, "
        f"tolerance {float(limit):.3g}"
    )


def _worst(got: np.ndarray, want: np.ndarray) -> int:
    """Which of these elements is furthest off; NaN only when there is nothing else."""
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return 0 if np.isnan(distance).all() else int(np.nanargmax(distance))
