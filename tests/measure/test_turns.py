"""Kernels about to count are run with threads in turns, where the device has warps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from drills._kernels import Kernel, tiles
from drills._mutations import MUTATIONS, harmful
from tests.ir import products, rings
from tests.ir.products import Product
from tests.ir.rings import Ring
from tilewright.base.artifact import Artifact, Source
from tilewright.base.case import Case
from tilewright.base.errors import CompileError
from tilewright.codegen import generate
from tilewright.driver import compile_source
from tilewright.ir.stmt import Program
from tilewright.measure import calls, signatures, thread_order
from tilewright.measure.jobs import Job, Proof, RunJob
from tilewright.measure.record import TaskId
from tilewright.measure.reference import ReferenceStore
from tilewright.runtime import device
from tilewright.runtime.device import Device
from tilewright.runtime.trial import TrialResult
from tilewright.targets.target import Target
from tilewright.te.cases import cases

ON = device("opencl")
NO_DEVICE = pytest.mark.skipif(not ON.exist, reason="there is no OpenCL device")


def compiled(kernel: Kernel) -> Artifact:
    return compile_source(generate(kernel.program, ON.target), ON.target)


def with_warps(monkeypatch: pytest.MonkeyPatch, changed: Callable[[Any], Any]) -> list[Any]:
    """A device with warps, on which `changed(source)` stands for kernels with threads in turns."""
    known, seen = ON.limits, []
    monkeypatch.setattr(Device, "limits", property(lambda _: known | {"warp_size": 32}))

    def serialized(source: Any) -> Any:
        seen.append(source)
        return changed(source)

    monkeypatch.setattr(thread_order, "serialized", serialized)
    monkeypatch.setattr(thread_order, "order", lambda **_: (0, 0, 0, 0))
    return seen


def more(source: Any) -> Any:
    """With one more input that nothing reads."""
    buffers = (*source.buffers, replace(source.buffers[0], dtype="int32", shape=(4,), role="input"))
    return replace(source, buffers=buffers)


def run(kernel: Kernel, dag: str, defer: bool = False) -> tuple[Any, float | None]:
    """What a trial says, and what is signed then.  defer: its proof is a trial of its own."""
    artifact = compiled(kernel)
    first, *also = cases(kernel.dag, 0)
    with ReferenceStore() as store:
        reference = store.put(dag, first.inputs, first.expected, first.tolerance, also)
        job = Job(TaskId("tiles", [], dag, "opencl"), {}, reference)
        trial = RunJob(job, artifact, race=False, defer=defer)
        result = calls.run(trial, 0, 1, 1, 0.0, 0, 0.0)
        if result.unproven is not None:
            assert defer and not result.verified and result.error is None
            assert signatures.signed(artifact, dag, ON.spec.fingerprint) is None
            try:
                proof = Proof(result, compile_source(result.unproven, ON.target))
            except CompileError:
                proof = Proof(result, None)
            result = calls.run(replace(trial, proof=proof), 0, 1, 1, 0.0, 0, 0.0)
    return result, signatures.signed(artifact, dag, ON.spec.fingerprint)


@NO_DEVICE
@pytest.mark.parametrize("defer", [False, True])
def test_a_kernel_that_shows_a_race_in_turns_is_wrong_and_not_signed(
    monkeypatch: pytest.MonkeyPatch, defer: bool
) -> None:
    kernel, wrong = tiles(random.Random(0), "opencl"), None
    while wrong is None or not harmful(wrong, 5, races=True):
        wrong = MUTATIONS["missing barrier"](kernel, random.Random(1))
    seen = with_warps(monkeypatch, lambda _: more(compiled(wrong).source))
    result, signed = run(kernel, "a" * 32, defer)
    assert len(seen) == 1 and result.error == "wrong" and not result.costs and signed is None
    assert "with its threads one after the other, output" in result.message
    assert "a barrier is missing, or threads race" in result.message


@pytest.mark.parametrize("whole", [rings.program(Ring()), products.program(Product())])
def test_copies_are_tried_early_and_late_both_ways(
    whole: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, int]] = []

    def check(artifact: Artifact, on: Device, cases: list[Case]) -> TrialResult:
        tried.extend((int(c.inputs[-1][0]), int(c.inputs[-1][4])) for c in cases)
        return TrialResult(costs=(), error="wrong", message="all is wrong")

    monkeypatch.setattr(thread_order, "check", check)
    monkeypatch.setattr(Device, "limits", property(lambda _: {"warp_size": 32, "cores": 100}))
    on, target = device("cuda"), Target("cuda -arch=sm_90")
    source = thread_order.changed(Artifact(generate(whole, target), b"", {}), on)
    assert isinstance(source, Source)
    judged = thread_order.judged(Artifact(source, b"", {}), on, Case((), (), ()), 1e-4)
    assert isinstance(judged, TrialResult)
    copies = whole.name == "ring"
    assert tried == [(b, late) for late in (0, 1)[: 1 + copies] for b in (0, 1)]
    assert ("a barrier or a wait is missing" in judged.message) == copies


@NO_DEVICE
@pytest.mark.parametrize("defer", [False, True])
def test_a_kernel_that_was_signed_takes_turns_no_more(
    monkeypatch: pytest.MonkeyPatch, defer: bool
) -> None:
    kernel, seen = tiles(random.Random(2), "opencl"), with_warps(monkeypatch, more)
    for _ in range(2):
        result, signed = run(kernel, f"{defer:b}" * 32, defer)
        assert result.error is None and result.costs and signed is not None and result.verified
    assert len(seen) == 1


REFUSING = {
    "its text": lambda s: "its text has asm",
    "the device or its compiler refuses": lambda s: replace(more(s), text=f"no text {s.text}"),
    "the device or its compiler": lambda s: replace(more(s), buffers=(*s.buffers, *s.buffers[:1])),
}  # fmt: skip


@NO_DEVICE
@pytest.mark.parametrize("why", REFUSING)
@pytest.mark.parametrize("defer", [False, True])
def test_what_cannot_take_turns_is_not_blamed_and_not_signed(
    monkeypatch: pytest.MonkeyPatch, why: str, defer: bool
) -> None:
    kernel, dag = tiles(random.Random(3), "opencl"), f"{defer:b}{list(REFUSING).index(why)}" * 16
    seen = with_warps(monkeypatch, REFUSING[why])
    for again in (1, 2):
        result, signed = run(kernel, dag, defer)
        assert result.error is None and result.costs and result.verified and signed is None
        assert result.order.startswith(why)
        assert len(seen) == again  # it is tried at each build


@NO_DEVICE
def test_a_kernel_that_compiles_slowly_takes_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tiles(random.Random(3), "opencl")
    artifact, case = compiled(kernel), cases(kernel.dag, 0)[1]
    if "warp_size" not in ON.limits:
        assert thread_order.tried(artifact, ON, case, 1e-5) is None
    with_warps(monkeypatch, more)
    slow = replace(artifact, meta=artifact.meta | {"compile_seconds": 60.0})
    assert thread_order.tried(slow, ON, case, 1e-5) == "it takes its compiler more than 4 s"
    found = thread_order.tried(artifact, ON, case, 1e-5)
    assert isinstance(found, TrialResult) and found.error is None
    assert np.isfinite(found.seconds)
    with_warps(monkeypatch, lambda _: None)  # nothing to show
    assert thread_order.tried(slow, ON, case, 1e-5) is None
    result, signed = run(kernel, "e" * 32)
    assert result.verified and not result.order and signed is not None
