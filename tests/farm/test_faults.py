"""What breaks on a farm: devices killed, frozen, lying; the tracker gone; the tuner gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from farm.processes import SOURCE, Farm, farm, until
from measure.kernels import job, reference
from tilewright.base.errors import DeviceError
from tilewright.farm import fleet
from tilewright.farm.device_link import DeviceLink
from tilewright.farm.runner import FarmRunner
from tilewright.measure.jobs import RunJob, RunResult
from tilewright.measure.local import LocalBuilder
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.reference import Reference, ReferenceStore
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.utils import request_remote

NOTICED = 15.0  # seconds, at most, until a device that says nothing is given up


@pytest.fixture(scope="module")
def run_job() -> Iterator[RunJob]:
    with ReferenceStore() as store, _builder() as builder:
        stored: Reference = reference(store)
        built = builder.submit(job("good", stored)).result()
        yield RunJob(job("good", stored), built.artifact, race=False)


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """Tests leave it as it was: a tracker and two devices."""
    with farm(tmp_path_factory.mktemp("farm"), ["k", "k"]) as made:
        yield made


def _builder() -> LocalBuilder:
    return LocalBuilder(build_func="tilewright.measure.calls:build_source", timeout=60)


def runner_of(made: Farm, notices: list[str] | None = None, seconds: float = 0.0) -> FarmRunner:
    """seconds: how long a trial rests at its end, so that it can be interrupted"""
    told = [] if notices is None else notices
    return FarmRunner(
        "k", "127.0.0.1", made.port, timeout=30, number=1, repeat=1, cooldown_interval=seconds,
        on_notice=told.append,
    )  # fmt: skip


def all_right(futures: list[Future[RunResult]], seconds: float = 150.0) -> None:
    results = [f.result(seconds) for f in futures]
    assert [r.message for r in results if not r.verified] == []


def busy(runner: FarmRunner, count: int) -> Callable[[], bool]:
    return lambda: len(runner._dispatch.doing) >= count


@pytest.mark.slow
def test_a_killed_device_loses_nothing_and_another_takes_its_place(devices: Farm, run_job: RunJob):
    notices: list[str] = []
    with runner_of(devices, notices, 0.3) as runner:
        futures = [runner.submit(run_job) for _ in range(10)]
        until(busy(runner, 2))
        devices.started[1].kill()
        all_right(futures)
        until(lambda: runner.n_parallel == 1)
        (devices.started[1],) = devices.serve("k")
        devices.started.pop()
        futures = [runner.submit(run_job) for _ in range(8)]
        until(busy(runner, 2))
        all_right(futures)
    assert any("is lost" in text or "cannot be reached" in text for text in notices)


def test_a_frozen_device_is_noticed_and_used_again_when_it_thaws(devices: Farm, run_job: RunJob):
    frozen = devices.started[1]
    with runner_of(devices, seconds=0.3) as runner:
        futures = [runner.submit(run_job) for _ in range(8)]
        until(busy(runner, 2))
        frozen.send(signal.SIGSTOP)
        began = time.monotonic()
        until(lambda: runner._dispatch.total == 1)
        assert time.monotonic() - began < NOTICED
        all_right(futures)
        frozen.send(signal.SIGCONT)
        until(lambda: runner._dispatch.total == 2)
        all_right([runner.submit(run_job) for _ in range(4)])


def test_the_tracker_may_be_restarted(
    devices: Farm, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fleet, "LOST_SECONDS", 90.0)
    notices: list[str] = []
    with runner_of(devices, notices, 0.2) as runner:
        futures = [runner.submit(run_job) for _ in range(10)]
        until(busy(runner, 2))
        devices.tracker.kill()
        until(lambda: not runner._connected)
        servers = [p for p in devices.started if "bind to" in p.text() and p.name == "rpc_server"]
        until(lambda: "waiting for the tracker" in servers[-1].text())
        time.sleep(2.0)  # several attempts
        assert servers[-1].text().count("waiting for the tracker") == 1
        devices.restart_tracker()
        all_right(futures)
    assert any("The tracker is lost" in text for text in notices)
    assert "The tracker is there again." in notices


@pytest.mark.slow
def test_without_any_device_trials_fail_as_the_machines_fault(
    tmp_path: Path, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fleet, "LOST_SECONDS", 1.0)
    with farm(tmp_path, ["k"]) as made, runner_of(made) as runner:
        all_right([runner.submit(run_job)])
        made.started[1].kill()
        result = runner.submit(run_job).result(60)
        assert result.error == "run" and result.cause == "machine"
        assert "has no device of this key; it has none" in result.message
        with pytest.raises(DeviceError, match="no device"):
            runner.probe(Target("llvm"))
        monkeypatch.setattr(fleet, "LOST_SECONDS", 60.0)
        made.serve("k")
        runner.probe(Target("llvm"))
        all_right([runner.submit(run_job)])


def test_a_tuner_that_goes_frees_its_devices_at_once(devices: Farm, run_job: RunJob):
    first = runner_of(devices, seconds=60)
    first.submit(run_job)
    first.submit(run_job)
    until(busy(first, 2))
    first.close()  # as when it is killed: its connections end
    with runner_of(devices) as second:
        began = time.monotonic()
        all_right([second.submit(run_job) for _ in range(2)])
        assert time.monotonic() - began < 50


HOLDER = """
import sys, time
from tilewright_tvm.auto_scheduler.utils import request_remote
kept = request_remote("k", "127.0.0.1", int(sys.argv[1]))
print("has it", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_tuner_that_is_killed_loses_its_device_at_once(tmp_path: Path):
    with farm(tmp_path, ["k"]) as made:
        tuner = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(made.port)], stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": SOURCE},
        )  # fmt: skip
        try:
            assert tuner.stdout is not None and tuner.stdout.readline() == b"has it\n"
            told = f"are in use after 1 s, held by [^ ]*{tuner.pid} at .* Wait, give a priority"
            with pytest.raises(DeviceError, match=told):
                request_remote("k", "127.0.0.1", made.port, timeout=1)
        finally:
            tuner.kill()
            tuner.wait()
        with request_remote("k", "127.0.0.1", made.port, timeout=20) as session:
            assert session.listdir() == []


SOON = """
from tilewright.farm import bounds
bounds.OWNER_SECONDS = 4.0
"""


@pytest.mark.slow
def test_the_session_of_a_frozen_script_ends(tmp_path: Path):
    """Its connections stay, and nobody would get its device."""
    made = Farm(tmp_path, before=SOON)
    script = HOLDER.replace("print(", "kept.listdir(); print(")
    made.serve_at("k", 0, before=SOON)
    tuner = subprocess.Popen(
        [sys.executable, "-c", script, str(made.port)], stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": SOURCE},
    )  # fmt: skip
    try:
        assert tuner.stdout is not None and tuner.stdout.readline() == b"has it\n"
        with pytest.raises(DeviceError, match="are in use after 6 s"):
            request_remote("k", "127.0.0.1", made.port, timeout=6)
        tuner.send_signal(signal.SIGSTOP)
        with request_remote("k", "127.0.0.1", made.port, timeout=30) as session:
            began = time.monotonic()
            assert session.listdir() == [] and time.monotonic() - began < 30
    finally:
        tuner.kill()
        tuner.wait()
        made.stop()


def test_a_device_that_lies_blames_nobody(
    devices: Farm, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
):
    """It says that right kernels are wrong."""
    run, links = DeviceLink.run, []

    async def lying(link: DeviceLink, *args: object, **kwargs: object) -> RunResult:
        if link not in links:
            links.append(link)
        result = await run(link, *args, **kwargs)  # type: ignore[arg-type]
        if link is links[0]:
            return RunResult(error="wrong", message="output B differs", first=True)
        return result

    monkeypatch.setattr(DeviceLink, "run", lying)
    notices: list[str] = []
    with runner_of(devices, notices) as runner:
        for _ in range(10):  # on a busy machine the others may do most of the work
            all_right([runner.submit(run_job) for _ in range(8)])
            if runner._dispatch.left_out:
                break
        assert len(runner._dispatch.left_out) == 1
    assert any("contradicts other devices" in text for text in notices)


def test_a_full_disk_of_a_device_is_told_and_others_go_on(
    devices: Farm, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
):
    run, links = DeviceLink.run, []

    async def full(link: DeviceLink, *args: object, **kwargs: object) -> RunResult:
        if link not in links:
            links.append(link)
        if link is links[0]:
            raise DeviceError("device's disk", "a file cannot be kept there (No space left)")
        return await run(link, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(DeviceLink, "run", full)
    notices: list[str] = []
    with runner_of(devices, notices) as runner:
        all_right([runner.submit(run_job) for _ in range(3)])
    assert any("is left out: device's disk" in text for text in notices)


def test_a_wrong_kernel_is_wrong_on_two_devices(devices: Farm):
    with ReferenceStore() as store, _builder() as builder, runner_of(devices) as runner:
        jobs = [job(kind, reference(store), n) for n, kind in enumerate(["wrong", "good"])]
        with Pipeline(builder, runner) as pipeline:
            wrong, good = pipeline.measure(jobs)
    assert wrong.result.error == "wrong" and good.result.verified
