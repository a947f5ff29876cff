"""The functions that run inside worker processes: build a candidate, try one, name a device.

In: jobs as data.  Out: `Built`, `RunResult`; what a candidate raises is told in them.
Read next: `local.py`, which calls these in workers.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import (
    CompileError,
    DeviceError,
    ExpressionError,
    LegalityError,
    LoweringError,
    ScheduleError,
    SpaceError,
    TargetError,
    TilewrightError,
)
from tilewright.measure import reference, signatures
from tilewright.measure.jobs import Built, Cause, Proof, RunJob, RunResult
from tilewright.measure.record import ErrorKind
from tilewright.targets.kind import kind
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

if TYPE_CHECKING:
    from tilewright.base.case import Case
    from tilewright.runtime.device import Device
    from tilewright.runtime.trial import TrialResult

# What the exceptions of a build say about the candidate; other exceptions are "compile".
BUILD_ERRORS: dict[type[TilewrightError], ErrorKind] = {
    ExpressionError: "instantiate",
    ScheduleError: "instantiate",
    SpaceError: "instantiate",
    LoweringError: "instantiate",
    LegalityError: "verify",
    CompileError: "compile",
}

_GIVES_WAY = 5  # a third of the time of a core that is wanted by others
_trials = 0  # of this process, without controls


def build_source(payload: dict[str, Any], target: Target) -> Artifact:
    """A build function for payloads {"source": Source}: text that is there already."""
    from tilewright.driver import compile_source

    return compile_source(payload["source"], target)


def build(function: str, payload: dict[str, Any], target: Target) -> Built:
    """Build one candidate.  function: "module:name" of a function (payload, target) -> Artifact."""
    began = time.perf_counter()
    artifact, error, message = None, None, ""
    cause: Cause = "candidate"
    try:
        module, _, name = function.partition(":")
        artifact = getattr(import_module(module), name)(payload, target)
    except TargetError:
        raise  # no fault of the candidate: a library is missing
    except TilewrightError as refused:
        error, message = BUILD_ERRORS.get(type(refused), "compile"), str(refused)
        cause = _cause(refused)
    except Exception as raised:
        error, message = "compile", "".join(traceback.format_exception(raised))
        message = f"{type(raised).__name__}: {raised}\n\n{message}"
        cause = _cause(raised)
    spent = time.perf_counter() - began
    return Built(artifact, error, message, spent, cause, os.getpid(), time.time())


def _cause(error: BaseException | None) -> Cause:
    """Unclear where memory, files or processes had a part in it, even where the error is another's
    word for that."""
    while error is not None:
        if isinstance(error, (OSError, MemoryError)):
            return "unclear"
        error = error.__cause__ or error.__context__
    return "candidate"


def run(
    run_job: RunJob,
    index: int,
    number: int,
    repeat: int,
    min_repeat_ms: float,
    flush_bytes: int,
    cooldown: float,
    cold_bytes: int = 0,
) -> RunResult:
    """Try one candidate on device `index` of its target's kind, then rest `cooldown` seconds."""
    from tilewright.measure import thread_order
    from tilewright.runtime.device import device
    from tilewright.runtime.trial import trial

    global _trials
    _trials += not run_job.control
    first = _trials <= 1
    assert run_job.artifact is not None
    on = device(run_job.artifact.source.target, index)
    gone = on.why_not()
    if gone is not None:  # it was there when the search began
        return RunResult(error="run", message=str(gone), cause="unclear", fatal=True, first=first)
    stored = run_job.job.reference
    try:
        data = reference.load(stored) if stored else _made_up(run_job.artifact)
    except (OSError, ValueError, MemoryError) as error:  # gone, cut short, too large
        message = f"the inputs cannot be read ({type(error).__name__}: {error})"
        return RunResult(error="run", message=message, cause="machine", first=first)
    if run_job.proof is not None:
        return _proved(run_job, run_job.proof, on, data, first)
    verify = run_job.verify and stored is not None
    result = trial(
        run_job.artifact, on, data.inputs,
        data.expected if verify else None, data.tolerance if verify else None,
        run_job.best_seconds, also=data.also if verify else (), number=number, repeat=repeat,
        min_repeat_ms=min_repeat_ms, race=run_job.race, cache_flush_bytes=flush_bytes,
        constants=stored.constants if stored else (), cold_bytes=cold_bytes,
    )  # fmt: skip
    unproven, order = None, ""
    if verify and result.costs and not result.raced and _may_ship(result.costs, run_job):
        statement = _statement(run_job, on)
        seconds = statistics.median(result.costs)
        if signatures.signed(*statement) is None:
            apart: TrialResult | Source | str | None
            if run_job.defer:
                apart = thread_order.changed(run_job.artifact, on)
            else:
                apart = thread_order.tried(run_job.artifact, on, _hardest(data), seconds)
            if isinstance(apart, str):
                order = apart
            elif isinstance(apart, Source):
                unproven = apart
            elif apart is not None and apart.error is not None:
                result = apart
        if result.error is None and unproven is None and not order:
            signatures.sign(*statement, seconds)
    time.sleep(cooldown)
    told = _told(result, on, first)
    proven = verify and result.error is None and unproven is None
    return replace(told, verified=proven, unproven=unproven, order=order)


def _proved(
    run_job: RunJob, proof: Proof, on: Device, data: reference.ReferenceArrays, first: bool
) -> RunResult:
    """The trial's result, now verified, or what kernels with threads in turns show.

    Where they cannot be run, it is verified and not signed: this is tried again at each build.
    """
    from tilewright.measure import thread_order

    seconds, spent, order = statistics.median(proof.result.costs), proof.result.seconds, ""
    apart: TrialResult | str = thread_order.REFUSED
    if proof.artifact is not None:
        apart = thread_order.judged(proof.artifact, on, _hardest(data), seconds)
    if isinstance(apart, str):
        order = apart
    elif apart.error is not None:
        return _told(apart, on, first)
    else:
        spent += apart.seconds
        signatures.sign(*_statement(run_job, on), seconds)
    return replace(
        proof.result, verified=True, unproven=None, seconds=spent, first=first, order=order
    )


def _statement(run_job: RunJob, on: Device) -> tuple[Artifact, str, str]:
    """What is signed: right for these inputs, if some are given."""
    artifact, stored = run_job.artifact, run_job.job.reference
    assert artifact is not None and stored is not None
    job = run_job.job
    claim = signatures.claim(job.task.dag, job.full_target.precision)
    return artifact, claim + stored.given, on.spec.fingerprint


def _hardest(data: reference.ReferenceArrays) -> Case:
    """The case that is not timed, if there is one."""
    return (*data.also, data)[0]


def _told(result: TrialResult, on: Device, first: bool) -> RunResult:
    kinds: dict[str, ErrorKind] = {"run": "run", "wrong": "wrong"}
    own = result.error is None or (result.error == "wrong" and first)
    return RunResult(
        costs=result.costs, raced=result.raced, error=kinds[result.error] if result.error else None,
        message=result.message, seconds=result.seconds, device=on.name, fatal=result.fatal,
        first=first, cause="candidate" if own else "unclear", cold=result.cold,
    )  # fmt: skip


def _may_ship(costs: Sequence[float], run_job: RunJob) -> bool:
    """Whether it is the fastest so far: only such kernels are ever asked for again."""
    return run_job.best_seconds is None or min(costs) <= run_job.best_seconds


def describe(name: str, index: int) -> DeviceSpec:
    """What a device is.  Raises what `Device.why_not` says."""
    from tilewright.runtime.device import device

    on = device(name, index)
    reason = on.why_not()
    if reason is not None:
        raise reason
    return on.spec


def probe_build(name: str) -> None:
    """Build a small kernel for targets of a kind, past the cache.  Raises what is in the way."""
    from tilewright.driver.cache import Cache
    from tilewright.driver.compilers import compile_source
    from tilewright.driver.doctor import small_source

    known = kind(name)
    if known.sanity:
        compile_source(small_source(known), Target(name), Cache(None))


def probe_device(name: str, index: int) -> None:
    """Run a small kernel.  Raises DeviceError or TargetError where it is not right."""
    from tilewright.driver.compilers import compile_source
    from tilewright.driver.doctor import run_small, small_source
    from tilewright.runtime.device import device

    describe(name, index)
    known, on = kind(name), device(name, index)
    if not known.sanity:
        return
    result = run_small(compile_source(small_source(known), on.target), on)
    if result.error:
        raise DeviceError(f"device {on}", f"a small kernel fails ({result.message})")


def warm_build(name: str) -> None:
    """Import what a build for targets of a kind needs; `build` tells what is missing.

    Where trials go on beside builds, these give way to who tries and to who proposes: there is one
    of each, and a trial computes for longer than its kernel runs.
    """
    if not kind(name).shares_host:
        _give_way()
    for module in kind(name).warm_up:
        with contextlib.suppress(ImportError):
            import_module(module)
    import_module("tilewright.driver.build")


@cache
def _give_way() -> None:
    os.nice(_GIVES_WAY)


def warm_device(name: str, index: int) -> None:
    """Open the device, so that the first trial does not pay for it; `run` tells what failed."""
    from tilewright.runtime.device import device

    import_module("tilewright.runtime.trial")
    device(name, index).why_not()


def _made_up(artifact: Artifact) -> reference.ReferenceArrays:
    """Inputs for a job without a reference: ones, whose values do not matter for its time."""
    import numpy as np

    specs = [b for b in artifact.source.buffers if b.role == "input"]
    ones = tuple(np.ones(b.logical_shape, b.dtype.storage) for b in specs)
    return reference.ReferenceArrays(ones, (), ())
