"""Whether a kernel is right whatever its threads' order: tried before it counts.

In: an artefact that a trial found right, its device, a case.  Out: `TrialResult`.  Hardware may
forgive a missing barrier or a race, because warps happen to run in step; the same kernels with
threads that take turns show it (`codegen/serial_threads.py`).  They are compiled once more for
that, so this is for the few that are about to be the best of their task, or to be shipped: see
`calls.py`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tilewright.base.artifact import Artifact, Source
from tilewright.base.case import Case
from tilewright.base.errors import CompileError
from tilewright.codegen.serial_threads import WARP, copies, order, serialized
from tilewright.driver.compilers import compile_source
from tilewright.runtime.device import Device
from tilewright.runtime.trial import TrialResult, check

_SECONDS = 0.2  # for all blocks of a kernel, roughly
_LEAST = 1e-3  # for each block
_BLOCKS = 4  # for each core: so many begin one after the other,
_APART, _STAGGER = 2e-5, 0.05  # so long apart at least, in so long altogether
_SINGLY = 0.05  # a kernel that takes longer, times its threads, takes turns by warps
REFUSED = "the device or its compiler refuses the kernel with threads that take turns"
_LONGEST = 4.0  # to compile once more; a build has a deadline, and so has a trial


def tried(
    artifact: Artifact, device: Device, case: Case, seconds: float
) -> TrialResult | str | None:
    """`judged`, of what is compiled here; why it cannot be; None where there is nothing to judge.

    seconds: of one run of `artifact`
    """
    source = changed(artifact, device)
    if not isinstance(source, Source):
        return source
    try:
        compiled = compile_source(source, device.target)
    except CompileError:  # an older device
        return REFUSED
    return judged(compiled, device, case, seconds)


def changed(artifact: Artifact, device: Device) -> Source | str | None:
    """The same kernels with turns, or why they cannot take any; None where none are needed, or the
    device has no threads of that kind."""
    if device.limits.get("warp_size") != WARP:  # or not known: threads may have to go in step
        return None
    source = serialized(artifact.source)
    if isinstance(source, Source) and artifact.meta.get("compile_seconds", 0.0) > _LONGEST:
        return f"it takes its compiler more than {_LONGEST:g} s"
    return source


def judged(artifact: Artifact, device: Device, case: Case, seconds: float) -> TrialResult | str:
    """What two runs with turns, forwards and backwards, give, four where there are asynchronous
    copies; why they cannot be made.

    artifact: of `changed`; seconds: of one run of the kernels without turns
    """
    limits, source = device.limits, artifact.source
    threads = max(prod(k.block) for k in source.kernels)
    blocks = max(prod(k.grid) for k in source.kernels)
    group = 1 if seconds * threads < _SINGLY else WARP
    cores = limits.get("cores", 1)
    assert isinstance(cores, int)
    each = max(_LEAST, _SECONDS * min(1.0, cores / blocks))
    few = blocks <= _BLOCKS * cores  # the device may run them all at once
    apart = min(max(_APART, seconds), _STAGGER / blocks) if few else 0.0
    turns = [
        order(backwards=b, group=group, seconds=each, apart=apart, late=late)
        for late in ((False, True) if copies(source) else (False,))
        for b in (False, True)
    ]
    cases = [replace(case, inputs=(*case.inputs, np.array(t, np.int32))) for t in turns]
    result = check(artifact, device, cases)
    if result.error == "run" and not result.fatal:  # too much shared memory by one word, say
        return REFUSED
    if result.error == "wrong":
        missing = "a barrier or a wait" if copies(source) else "a barrier"
        message = f"with its threads one after the other, {result.message}; {missing} is missing"
        return replace(result, message=f"{message}, or threads race")
    return result
