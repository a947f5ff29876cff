"""What a search begins early, has once, and goes on beside its trials."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from search.spaces import conv, cpu_task
from tilewright import front
from tilewright.graph.expr import Constant, Function, IRModule, TensorType, Var
from tilewright.graph.op import call
from tilewright.graph.passes import narrow as passes_narrow
from tilewright.measure import calls
from tilewright.measure.database import Database
from tilewright.measure.jobs import Built, Job, RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pool import WorkerPool
from tilewright.network import narrow, tune_network
from tilewright.network import tune as tuning
from tilewright.network.helpers import Helpers
from tilewright.search.loop import Report, TaskReport
from tilewright.search.progress import Progress
from tilewright.search.report import Options
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target


def products() -> IRModule:
    """Two dense layers."""
    x, rng = Var("x", TensorType((1, 256))), np.random.default_rng(0)
    floats = (rng.standard_normal((256, 256)).astype("float32") for _ in range(2))
    first, second = map(Constant, floats)
    body = call("nn.dense", call("nn.relu", call("nn.dense", x, first)), second)
    return IRModule.from_expr(Function([x], body))


@pytest.mark.slow
def test_the_device_is_asked_once_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    submit = WorkerPool.submit

    def seen(self: WorkerPool, function: Any, *args: Any, **options: Any) -> Any:
        asked.append(function)
        return submit(self, function, *args, **options)

    monkeypatch.setattr(WorkerPool, "submit", seen)
    target = Target("llvm")
    with tuning.begun(target) as helpers:
        assert asked == [calls.describe]  # while the caller goes on
        described = tuning.as_described(target, None, helpers)
        assert described.fingerprint
        task = cpu_task(8, 8, 8)
        report = tuning.tune([task], Database(), Options(trials=2, leaders=0), helpers=helpers)
        assert report.trials == 2
        assert tuning.as_described(target, None, helpers) == described
    assert asked.count(calls.describe) == 1 and calls.run in asked


@pytest.mark.parametrize(("kind", "beside"), [("cuda", True), ("llvm", False)])
def test_the_untuned_network_is_built_beside_trials_on_a_device_of_its_own(
    monkeypatch: pytest.MonkeyPatch, kind: str, beside: bool
) -> None:
    """Where the processor is timed that builds it, before them."""
    tried, order = threading.Event(), []

    def show_untuned(*_: Any) -> list[Any]:
        tried.wait(10 if beside else 0)
        order.append("untuned")
        return []

    def search(tasks: Any, *_: Any, meanwhile: Any, **__: Any) -> Report:
        going_on = meanwhile(None, None)
        order.append("trial")
        tried.set()
        assert going_on.result(10) >= 0
        return Report([TaskReport(t) for t in tasks])

    def describe(_: LocalRunner, target: Target) -> DeviceSpec:
        return DeviceSpec(kind, shares_host=not beside)

    monkeypatch.setattr(LocalRunner, "describe", describe)
    monkeypatch.setattr(tune_network, "show_untuned", show_untuned)
    monkeypatch.setattr(tune_network, "confirm", lambda *_: order.append("confirm"))
    monkeypatch.setattr(tuning, "search", search)
    task = conv(8, 8) if kind == "cuda" else cpu_task(8, 8, 8)
    with LocalBuilder() as builder, LocalRunner() as runner, Progress() as progress:
        tune_network.tune_network(
            [task], Database(), Options(trials=1), networks=[products()],
            helpers=Helpers(builder, runner=runner), progress=progress,
        )  # fmt: skip
    first = ["trial", "untuned"] if beside else ["untuned", "trial"]
    assert order == [*first, "confirm"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "beside"), [("cuda", True), ("llvm", False)])
def test_no_trial_waits_for_what_narrow_weights_cost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, beside: bool
) -> None:
    """It is measured beside trials on a device of their own, else behind them, and told once.
    Weights are not packed before the first trial, and once for all that reads them."""
    tried, order, packs = threading.Event(), list[str](), list[Any]()
    deviation, pack = narrow._deviation, passes_narrow.packed

    def measured(*given: Any) -> float:
        assert tried.wait(20), "it comes before the first trial"
        order.append("cost")
        return deviation(*given)

    def packed(*given: Any) -> Any:
        packs.append(given)
        return pack(*given)

    def answer(_: Any, run: RunJob) -> Future[RunResult]:
        if not tried.is_set():
            order.append(f"trial, {len(packs)} packed")
        done: Future[RunResult] = Future()
        if beside and tried.is_set():  # the search is not over before it is told
            assert costs_told.wait(20)
        assert beside or "cost" not in order
        tried.set()
        done.set_result(RunResult((1e-3,), verified=True))
        return done

    def built(_: Any, job: Job) -> Future[Built]:
        done: Future[Built] = Future()
        done.set_result(Built())
        return done

    def told(self: Progress, text: str) -> None:
        if text.startswith("weights int8:128:head=int8 in 2 layers: outputs "):
            order.append("told")
            costs_told.set()

    costs_told = threading.Event()
    monkeypatch.setattr(narrow, "_deviation", measured)
    monkeypatch.setattr(passes_narrow, "packed", packed)
    monkeypatch.setattr(
        LocalRunner, "describe", lambda *_: DeviceSpec(kind, shares_host=not beside)
    )
    monkeypatch.setattr(LocalRunner, "submit", answer)
    monkeypatch.setattr(LocalBuilder, "submit", built)
    monkeypatch.setattr(Progress, "note", told)
    monkeypatch.setattr(tune_network, "show_untuned", lambda *_: [])
    monkeypatch.setattr(tune_network, "confirm", lambda *_: order.append("confirm"))
    net = front.load(products()).with_weights("int8")
    target = Target("cuda -arch=sm_90" if kind == "cuda" else kind)
    with LocalBuilder(n_parallel=1) as builder, LocalRunner() as runner, Progress() as progress:
        front.search(
            net, target, Database(), trials=40, seconds=None, tuner="random",
            helpers=Helpers(builder, runner=runner), progress=progress,
        )  # fmt: skip
    samples = ["cost"] * narrow.SAMPLES
    assert order == ["trial, 0 packed", *samples, "told", "confirm"]
    assert len(packs) == 2


def test_what_comes_before_a_search_counts_a_quarter_of_its_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float | None] = []

    def search(tasks: Any, pipeline: Any, database: Any, options: Options, **_: Any) -> Report:
        asked.append(options.seconds)
        return Report([TaskReport(t) for t in tasks])

    monkeypatch.setattr(tuning, "search", search)
    for passed, left in ((6.0, 54.0), (40.0, 45.0)):
        now = [0.0]
        with Progress(seconds=60, clock=lambda now=now: now[0]) as progress:
            now[0] = passed
            tune_network.tune_network(
                [cpu_task(8, 8, 8)], Database(), Options(seconds=60.0), helpers=Helpers(),
                progress=progress,
            )  # fmt: skip
        assert asked.pop() == left
