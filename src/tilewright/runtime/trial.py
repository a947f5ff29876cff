"""`trial`: load a candidate, check its results, race it with the best, time it if worth it.

In: an artefact, a device, inputs, what must come out, the best time so far.  Out: `TrialResult`.
A kernel may still crash or hang the process: the `measure` room runs trials in processes it can
kill.  Read next: `guarded.py` (what surrounds the buffers), `timing.py`, `module.py`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.base.artifact import Artifact, BufferSpec, Packing
from tilewright.base.case import Case
from tilewright.base.errors import DeviceError, InternalError, TilewrightError
from tilewright.runtime import device_copies
from tilewright.runtime.cold import bind, in_turn
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Plan
from tilewright.runtime.guarded import BorrowedBuffer, Filling, GuardedBuffer, same_bytes
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.timing import Timed, measure

_CHEAP_SECONDS = 2e-3  # a run that takes longer is not repeated for the sake of verification
_SHORT_SECONDS = 1e-2  # of this thread, waiting included: whether loops are worth running apart
_APART_SECONDS, _APART_BYTES = 2e-3, 1 << 20  # how long they may take; what they write
_PACKS_BYTES = 128 << 20
_ROUNDS, _ROUND_PASSES, _ROUNDS_SECONDS = 4, 4, 1e-3
_RACE_PASSES = 5
_ROUGH_SECONDS = 3e-4  # shorter ones say more of the clock, some us a time, than of the kernel
_RACE_FACTOR = 1.5  # slower than this times the best: those passes are the measurement
_CLOSE_FACTOR = 0.99  # not clearly faster: a few milliseconds are the measurement
_CLOSE_SECONDS = 2e-3
_MOST_PASSES = 2000


@dataclass(frozen=True)
class TrialResult:
    """costs: seconds of one run, an entry per repeat (one entry when `raced`, none on an error).

    raced:   the race was lost, so the costs come from a few runs back to back
    cold:    runs took turns among copies of constants, which came from memory
    error:   None, "run" (load, launch or device failed) or "wrong" (results, guards, inputs)
    fatal:   the device is lost to this process; the caller must go on in a new one
    seconds: wall time spent on the whole trial
    """

    costs: tuple[float, ...] = ()
    raced: bool = False
    cold: bool = False
    error: str | None = None
    message: str = ""
    fatal: bool = False
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)  # seconds of load, verify, time


Inputs = Sequence[np.ndarray | NDArray]
_Buffer = GuardedBuffer | BorrowedBuffer


class _Wrong(Exception):
    """The results are not what they must be; the message says where and by how much."""


@dataclass(frozen=True)
class _Wanted:
    """One `Case`, with inputs as the kernels read them."""

    inputs: Inputs
    expected: Sequence[np.ndarray]
    tolerance: Sequence[np.ndarray | float]


def trial(
    artifact: Artifact,
    device: Device,
    inputs: Inputs,
    expected: Sequence[np.ndarray] | None = None,
    tolerance: Sequence[np.ndarray | float] | None = None,
    best_seconds: float | None = None,
    *,
    also: Sequence[Case] = (),
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    race: bool = True,
    cache_flush_bytes: int = 0,
    constants: Sequence[int] = (),
    cold_bytes: int = 0,
) -> TrialResult:
    """Measure one candidate; never raises for what the candidate does, only for a wrong call.

    Verification: the kernels run on every case in the same memory, which is poisoned before each
    run (`guarded.Filling`); short ones run again on the first case, with parallel loops apart where
    the device can, and must give the same bit for bit, as must the last case after the timed runs.

    inputs:    one per input buffer, in its logical shape; an NDArray on `device` is used where it
               lies, without a guard; what kernels read packed is packed here, on the host
    expected:  one per output buffer, or None to skip verification
    tolerance: largest |out - expected| per element, broadcast to the output; None: exact
    also:      what is verified before, and not timed; see `te.cases`.  Inputs are then arrays
    constants, cold_bytes: which inputs are constant; the timed runs take turns among copies of them
               that have so many bytes together (0: none), so that they come from memory
    """
    specs = artifact.source.buffers
    for one in also if expected is not None else ():
        _check_call(specs, one.inputs, one.expected, one.tolerance, device)
    _check_call(specs, inputs, expected, tolerance, device, lone=not also)
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
        kernels = device.driver.load(artifact)
        memory = [buffer.memory for buffer in buffers]
        plan = device.driver.plan(bind(kernels, memory))
        mark = lap("load", began)
        wanted, found = None, []
        if expected is None:
            _run(plan, device, buffers, Filling.NAN, _packed(specs, inputs))
        else:
            slacks = tolerance or [0.0] * len(expected)
            wanted = _Wanted(_packed(specs, inputs), expected, slacks)
            cases = [_Wanted(_packed(specs, c.inputs), c.expected, c.tolerance) for c in also]
            found = _verify(plan, device, buffers, [*cases, wanted])
        mark = lap("verify", mark)
        held = [i for i, spec in enumerate(specs) if spec.role == "input"]
        which = [held[k] for k in constants] if cold_bytes else []
        turns = in_turn(device.driver, kernels, memory, which, cold_bytes)
        timed_plan, cold = turns or plan, turns is not None
        if race and best_seconds is not None:
            cost = _race(timed_plan, best_seconds, cache_flush_bytes)
            if cost is not None:
                lap("time", mark)
                return result(costs=(cost,), raced=True, cold=cold)
        timed = measure(
            timed_plan, number, repeat, min_repeat_ms, cache_flush_bytes=cache_flush_bytes
        )
        if wanted is not None:  # a race, or state left behind, may show only after many runs
            _check_guards(buffers)
            _check_same(buffers, found, wanted)
        lap("time", mark)
        return result(costs=timed.results, cold=cold)
    except (_Wrong, TilewrightError) as error:
        device_copies.forget()  # which it may have damaged
        return _failed(error, time.perf_counter() - began, stages)


def check(artifact: Artifact, device: Device, cases: Sequence[Case]) -> TrialResult:
    """Run a candidate once on each case, in memory filled anew, and compare; nothing is timed."""
    began = time.perf_counter()
    try:
        specs = artifact.source.buffers
        buffers = _buffers(specs, (), device)
        memory = [buffer.memory for buffer in buffers]
        plan = device.driver.plan(bind(device.driver.load(artifact), memory))
        for case in cases:
            _check_call(specs, case.inputs, case.expected, case.tolerance, device)
            wanted = _Wanted(_packed(specs, case.inputs), case.expected, case.tolerance)
            _run(plan, device, buffers, Filling.NAN, wanted.inputs)
            _check_outputs(buffers, wanted)
    except (_Wrong, TilewrightError) as error:
        device_copies.forget()
        return _failed(error, time.perf_counter() - began)
    return TrialResult(seconds=time.perf_counter() - began)


def _failed(
    error: Exception, seconds: float, stages: dict[str, float] | None = None
) -> TrialResult:
    wrong, fatal = isinstance(error, _Wrong), isinstance(error, DeviceError) and error.fatal
    return TrialResult(
        error="wrong" if wrong else "run", message=str(error), fatal=fatal, seconds=seconds,
        stages=stages or {},
    )  # fmt: skip


def _race(plan: Timed, best_seconds: float, cache_flush_bytes: int) -> float | None:
    """Seconds of a candidate that cannot set a record; None for one that may.

    Only likely record-setters are worth `repeat` times `min_repeat_ms`, which is what most of a
    tuning run would otherwise be spent on.
    """
    cost = plan.seconds(_RACE_PASSES, cache_flush_bytes)
    if (passes := _passes(_ROUGH_SECONDS, cost)) > _RACE_PASSES:
        cost = plan.seconds(passes, cache_flush_bytes)
    if cost > _RACE_FACTOR * best_seconds:
        return cost
    passes = _passes(_CLOSE_SECONDS, cost)
    cost = min(plan.seconds(passes, cache_flush_bytes) for _ in range(3))
    return cost if cost > _CLOSE_FACTOR * best_seconds else None


def _passes(seconds: float, cost: float) -> int:
    """How many fill this time."""
    return max(_RACE_PASSES, min(_MOST_PASSES, int(seconds / max(cost, 1e-9))))


def _check_call(
    specs: tuple[BufferSpec, ...],
    inputs: Inputs,
    expected: Sequence[np.ndarray] | None,
    tolerance: Sequence[np.ndarray | float] | None,
    device: Device,
    lone: bool = False,
) -> None:
    """lone: nothing else is verified, so inputs may be the caller's arrays on the device."""
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
        if isinstance(value, NDArray) and not lone:
            raise InternalError("trial", f"input {spec.name} is borrowed: only of a lone case")
        if isinstance(value, NDArray) and value.device != device:
            raise DeviceError(
                f"trial: input {spec.name}", f"it lives on {value.device}, not on {device}",
                f"Try .copyto({device}).",
            )  # fmt: skip


def _packed(specs: tuple[BufferSpec, ...], inputs: Inputs) -> list[np.ndarray | NDArray]:
    """The inputs as the kernels read them."""
    wanted = [s for s in specs if s.role == "input"]
    made: list[np.ndarray | NDArray] = []
    for spec, value in zip(wanted, inputs, strict=True):
        if spec.packing is None:
            made.append(value)
            continue
        made.append(_pack(spec.packing, value))
    return made


_packs: OrderedDict[tuple[Packing, int], tuple[np.ndarray, np.ndarray]] = OrderedDict()


def _pack(packing: Packing, value: np.ndarray | NDArray) -> np.ndarray:
    """`value` packed; of an array that nobody may change it is kept for the next candidate."""
    if isinstance(value, NDArray):
        return packing.apply(value.numpy())
    key = (packing, id(value))
    known = _packs.pop(key, None)  # with the array itself, whose identity it is then
    packed = packing.apply(value) if known is None else known[1]
    if not value.flags.writeable:
        packed.flags.writeable = False
        _packs[key] = value, packed
        while sum(kept.nbytes for _, kept in _packs.values()) > _PACKS_BYTES:
            _packs.popitem(last=False)
    return packed


def _buffers(specs: tuple[BufferSpec, ...], inputs: Inputs, device: Device) -> list[_Buffer]:
    """Memory for all of them; what is too large fails here.

    inputs: of which arrays of the caller on the device are used where they lie
    """
    try:
        return _allocated(specs, inputs, device)
    except DeviceError:
        if not device_copies.forget():  # which may have taken the room
            raise
    return _allocated(specs, inputs, device)


def _allocated(specs: tuple[BufferSpec, ...], inputs: Inputs, device: Device) -> list[_Buffer]:
    given = iter(inputs)
    buffers: list[_Buffer] = []
    for number, spec in enumerate(specs):
        value = next(given, None) if spec.role == "input" else None
        if isinstance(value, NDArray) and spec.packing is None:
            buffers.append(BorrowedBuffer(spec, value))
        else:
            buffers.append(GuardedBuffer(spec, device, number))
    return buffers


def _verify(
    plan: Plan, device: Device, buffers: list[_Buffer], cases: Sequence[_Wanted]
) -> list[np.ndarray]:
    """The outputs of the last case.  Raises _Wrong."""
    first = cases[0]
    spent = _run(plan, device, buffers, Filling.EXTREMES, first.inputs)
    found = _check_outputs(buffers, first)
    _check_inputs(buffers, first.inputs)
    _repeat(plan, device, buffers, found, first, spent)
    for case in cases[1:] or cases:
        _run(plan, device, buffers, Filling.NAN, case.inputs)
        found = _check_outputs(buffers, case)
    return found


@dataclass(frozen=True)
class _Spent:
    """Of one run: wall seconds, and those of this thread, which other processes do not lengthen."""

    wall: float
    thread: float


def _repeat(
    plan: Plan, device: Device, buffers: list[_Buffer], found: list[np.ndarray], case: _Wanted,
    spent: _Spent,
) -> None:  # fmt: skip
    """Run again after the run that has `found` the outputs, if it was short.  Raises _Wrong.

    Threads that race may never meet in runs as short as these, when some of them still sleep: loops
    run apart where the device can, else several times back to back.
    """
    cheap = spent.wall < _CHEAP_SECONDS
    written = [b.memory for b in buffers if b.spec.role != "input"]
    short = spent.thread < _SHORT_SECONDS and sum(m.nbytes for m in written) < _APART_BYTES
    if not (cheap or short):
        return
    _fill(buffers, Filling.EXCHANGED, case.inputs)
    apart = plan.run_apart(written, _APART_SECONDS) if short else None
    rounds = 0
    if not apart:
        if not cheap:
            return
        if apart is not None:
            _fill(buffers, Filling.EXCHANGED, case.inputs)
        plan.run()
        rounds = min(_ROUNDS, int(_ROUNDS_SECONDS / (_ROUND_PASSES * max(spent.wall, 1e-9))))
    device.sync()
    _check_guards(buffers)
    _check_same(buffers, found, case)
    for _ in range(rounds):
        plan.seconds(_ROUND_PASSES)
        outputs = [b for b in buffers if b.spec.role == "output"]
        _check_same(_looked_at(outputs), found, case)


def _run(
    plan: Plan, device: Device, buffers: list[_Buffer], filling: Filling, inputs: Inputs
) -> _Spent:
    """Once, in memory filled anew.  Raises _Wrong for what was written outside."""
    _fill(buffers, filling, inputs)
    wall, own = time.perf_counter(), time.thread_time()
    plan.run()
    device.sync()
    spent = _Spent(time.perf_counter() - wall, time.thread_time() - own)
    _check_guards(buffers)
    return spent


def _fill(buffers: list[_Buffer], filling: Filling, inputs: Inputs) -> None:
    given = iter(inputs)
    for buffer in buffers:
        spec = buffer.spec
        value = next(given) if spec.role == "input" else None
        if spec.role == "counters":
            value = np.zeros(spec.shape, spec.dtype.storage)
        buffer.fill(filling, None if isinstance(value, NDArray) else value)


def _looked_at(buffers: list[_Buffer]) -> list[_Buffer]:
    """The same, whose content is read anew."""
    for buffer in buffers:
        buffer.look()
    return buffers


def _check_guards(buffers: list[_Buffer]) -> None:
    for buffer in _looked_at(buffers):
        damage = buffer.damage()
        if damage:
            raise _Wrong(f"the kernel {damage}")
        spec = buffer.spec
        if spec.role == "counters" and (left := buffer.read()).any():
            raise _Wrong(f"the kernel leaves its counters {spec.name} at {left.max()}, not at 0")


def _check_outputs(buffers: list[_Buffer], case: _Wanted) -> list[np.ndarray]:
    """What the kernels wrote.  Raises _Wrong."""
    outputs = [b for b in buffers if b.spec.role == "output"]
    found = [b.read() for b in outputs]
    for buffer, got, want, slack in zip(outputs, found, case.expected, case.tolerance, strict=True):
        _check_output(buffer, got, np.asarray(want), slack)
    return found


def _check_same(buffers: list[_Buffer], found: Sequence[np.ndarray], case: _Wanted) -> None:
    """Whether the outputs are still what one run has `found`."""
    outputs = [b for b in buffers if b.spec.role == "output"]
    for k, (buffer, before) in enumerate(zip(outputs, found, strict=True)):
        got = buffer.read()
        if same_bytes(got, before):
            continue
        differs = _bytes(got) != _bytes(before)
        spec = buffer.spec
        _check_output(buffer, got, np.asarray(case.expected[k]), case.tolerance[k])
        at = np.unravel_index(int(np.flatnonzero(differs)[0]) // spec.dtype.bytes, got.shape)
        index = tuple(map(int, at))
        raise _Wrong(
            f"output {spec.name} differs from one run to the next: at {list(index)} first "
            f"{before[index]!s}, then {got[index]!s}; threads race, or something is read that was "
            "never written"
        )


def _check_inputs(buffers: list[_Buffer], inputs: Inputs) -> None:
    given = iter(inputs)
    for buffer in buffers:
        if buffer.spec.role != "input":
            continue
        value = next(given)
        if not isinstance(value, NDArray) and not buffer.holds(value):
            raise _Wrong(f"the kernel wrote into its input {buffer.spec.name}")


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _check_output(
    buffer: _Buffer, got: np.ndarray, want: np.ndarray, slack: np.ndarray | float
) -> None:
    if np.ndim(slack) == 0 and np.array_equal(got, want):
        return
    if _close(got, want, slack):
        return
    if got.dtype == bool:
        bad = got != want
    else:
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
            same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities, wanted NaN
            bad = ~((distance <= slack) | same)
    if not bad.any():
        return
    unwritten = int(buffer.unwritten(got)[bad].sum())
    bad_at = np.argwhere(bad)
    rank = np.flatnonzero(bad)
    worst = int(rank[_worst(got[bad], want[bad])])
    index = tuple(int(i) for i in np.unravel_index(worst, got.shape)) if got.shape else ()
    limit = np.broadcast_to(np.asarray(slack), got.shape)[index]
    raise _Wrong(
        f"output {buffer.spec.name} is wrong in {len(bad_at)} of {got.size} elements"
        f"{f' ({unwritten} of them never written)' if unwritten else ''}; first at "
        f"{bad_at[0].tolist()}, worst at {list(index)}: {got[index]!s} instead of {want[index]!s}, "
        f"tolerance {float(limit):.3g}"
    )


def _close(got: np.ndarray, want: np.ndarray, slack: np.ndarray | float) -> bool:
    """Whether all are within the tolerance, and none is infinite or NaN: most often so."""
    if got.dtype == bool or want.dtype == bool:
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.asarray(np.subtract(got, want, dtype=np.float64))  # of rank 0: a number
        return bool((np.abs(distance, out=distance) <= slack).all())


def _worst(got: np.ndarray, want: np.ndarray) -> int:
    """Which of these elements is furthest off; NaN only when there is nothing else."""
    distance = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return 0 if np.isnan(distance).all() else int(np.nanargmax(distance))
