"""Trials on a farm: the same records as on this machine, in the order of the jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farm.processes import Farm, farm, until
from measure.kernels import job
from tilewright.base.errors import DeviceError, TargetError
from tilewright.farm import wire
from tilewright.farm.device_link import DeviceLink
from tilewright.farm.network import Line
from tilewright.farm.runner import FarmRunner, _Yardstick
from tilewright.measure.jobs import RunJob, Runner, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.reference import Reference
from tilewright.targets.target import Target
from tilewright_tvm.autotvm import RPCRunner


@pytest.fixture
def runner(shared_farm: Farm) -> Iterator[FarmRunner]:
    with FarmRunner(
        "1080ti", "127.0.0.1", shared_farm.port, timeout=20, number=1, repeat=2
    ) as made:
        yield made


def outcomes(runner: Runner, builder: LocalBuilder, expected: Reference, kinds: str) -> list[str]:
    jobs = [job(kind, expected, n) for n, kind in enumerate(kinds.split())]
    with Pipeline(builder, runner) as pipeline:
        records = list(pipeline.measure(jobs))
    assert [r.trial for r in records] == list(range(len(jobs)))
    assert all(r.result.costs for r in records if r.result.ok)
    return [r.result.error or ("right" if r.result.verified else "unverified") for r in records]


def test_it_is_a_runner(runner: FarmRunner):
    assert isinstance(runner, Runner)
    assert runner.describe(Target("llvm")).fingerprint
    assert not runner.describe(Target("llvm")).shares_host
    assert runner.n_parallel == 2


def test_all_devices_are_opened_before_the_first_trial(tmp_path: Path):
    with farm(tmp_path, ["k", "k"]) as made, FarmRunner("k", "127.0.0.1", made.port) as runner:
        runner.describe(Target("llvm"))
        until(lambda: len(runner._known) == 2)


def test_records_are_those_of_this_machine(
    runner: FarmRunner, builder: LocalBuilder, expected: Reference
):
    kinds = "good wrong good segfault good"
    with LocalRunner(timeout=20, number=1, repeat=2, race=False) as local:
        runner.race = False
        here = outcomes(local, builder, expected, kinds)
        assert outcomes(runner, builder, expected, kinds) == here
    assert here.count("right") == 3 and "wrong" in here and "run" in here


def test_a_hanging_kernel_is_ended(shared_farm: Farm, builder: LocalBuilder, expected: Reference):
    with FarmRunner("titanx", "127.0.0.1", shared_farm.port, timeout=1, repeat=1) as runner:
        built = builder.submit(job("endless", expected)).result()
        result = runner.submit(RunJob(job("endless", expected), built.artifact)).result(120)
        assert (result.error, result.cause) == ("timeout", "unclear")
        assert outcomes(runner, builder, expected, "good") == ["right"]


def test_a_small_kernel_shows_that_a_device_lives(runner: FarmRunner):
    runner.probe(Target("llvm"))


def test_files_are_sent_once(
    shared_farm: Farm, builder: LocalBuilder, expected: Reference, monkeypatch: pytest.MonkeyPatch
):
    sent: list[str] = []
    write = Line.write

    async def watched(line: Line, message: wire.Message) -> None:
        sent.extend([message.name] if isinstance(message, wire.Part) else [])
        await write(line, message)

    monkeypatch.setattr(Line, "write", watched)
    with RPCRunner("titanx", "127.0.0.1", shared_farm.port, number=1, repeat=2) as runner:
        assert outcomes(runner, builder, expected, "good good good") == ["right"] * 3
    assert len(sent) == len(set(sent)) == 3 + 3  # a case of three arrays, and three artefacts


def test_a_device_that_made_room_asks_again(
    shared_farm: Farm, builder: LocalBuilder, expected: Reference, monkeypatch: pytest.MonkeyPatch
):
    """What this side believes to be there may be gone."""
    open_link = DeviceLink.open

    async def believing(device: str, context: object) -> DeviceLink:
        link = await open_link(device, context)  # type: ignore[arg-type]
        link._sent = _Everything()
        return link

    monkeypatch.setattr(DeviceLink, "open", believing)
    with RPCRunner("titanx", "127.0.0.1", shared_farm.port, number=1, repeat=2) as runner:
        assert outcomes(runner, builder, expected, "good") == ["right"]


class _Everything(set[str]):
    """Said to be there, until it is missing."""

    def __init__(self) -> None:
        self._lacking: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name not in self._lacking

    def __isub__(self, names: object) -> _Everything:  # type: ignore[misc, override]
        self._lacking |= set(names)  # type: ignore[call-overload]
        return self


def test_two_tuners_share_the_devices(
    shared_farm: Farm, builder: LocalBuilder, expected: Reference
):
    place = "127.0.0.1", shared_farm.port
    with (
        RPCRunner("1080ti", *place, number=1, repeat=1) as one,
        RPCRunner("1080ti", *place, number=1, repeat=1) as two,
    ):
        built = builder.submit(job("good", expected)).result()
        runs = [RunJob(job("good", expected), built.artifact) for _ in range(8)]
        futures = [r.submit(run) for run in runs for r in (one, two)]
        assert all(f.result(120).verified for f in futures)


def test_a_key_that_nobody_serves_is_one_error(shared_farm: Farm):
    began = time.monotonic()
    with FarmRunner("rk3399", "127.0.0.1", shared_farm.port) as runner:
        with pytest.raises(DeviceError, match="has no device of this key; it has 1080ti, titanx"):
            runner.describe(Target("llvm"))
    assert time.monotonic() - began < 60


def test_a_target_that_the_board_cannot_run_is_one_error(runner: FarmRunner):
    from tilewright.runtime.device import device

    if device("cuda").exist:
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceError, match=r"127\.0\.0\.1:\d+ of key '1080ti': cuda\(0\)"):
        runner.describe(Target("cuda"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("-mtriple=armv7l-linux-gnueabihf -mattr=+neon", "its code is for armv7l"),
        ("-mcpu=no-such-processor", "LLVM knows no processor"),
    ],
)
def test_code_for_another_processor_is_one_error_before_anything_is_built(
    runner: FarmRunner, options: str, reason: str
):
    began = time.monotonic()
    with pytest.raises(TargetError, match=reason):
        runner.describe(Target(f"llvm {options}"))
    assert time.monotonic() - began < 30


def test_code_that_no_device_runs_ends_the_search_at_its_first_trial(
    runner: FarmRunner, builder: LocalBuilder, expected: Reference
):
    """The target names no processor, and what is built for it is for this machine's."""
    built = builder.submit(job("good", expected)).result()
    assert built.artifact is not None
    elsewhere = replace(built.artifact, meta={**built.artifact.meta, "triple": "riscv64-linux-gnu"})
    runner.describe(Target("llvm"))
    with pytest.raises(
        TargetError, match="for riscv64-linux-gnu, and the device is .*Use the target"
    ):
        runner.submit(RunJob(job("good", expected), elsewhere)).result(60)


def test_an_artefact_for_another_target_is_refused(
    runner: FarmRunner, builder: LocalBuilder, expected: Reference
):
    built = builder.submit(job("good", expected)).result()
    assert built.artifact is not None
    source = replace(built.artifact.source, target="vax")
    run = RunJob(job("good", expected), replace(built.artifact, source=source))
    result = runner.submit(run).result(60)
    assert result.error == "run" and result.cause == "machine" and "vax" in result.message


def test_a_tracker_that_is_not_there_is_one_error():
    with pytest.raises(DeviceError, match="cannot be reached"):
        RPCRunner("k", "127.0.0.1", 1)


@pytest.mark.parametrize("wrong", [{"number": 0}, {"repeat": 0}, {"timeout": 0}, {"timeout": 1e9}])
def test_options_that_no_device_takes_are_refused(wrong: dict[str, float]):
    with pytest.raises(DeviceError, match="RPCRunner"):
        FarmRunner("k", "127.0.0.1", 1, **wrong)  # type: ignore[arg-type]


def test_devices_of_another_make_are_left_out(
    shared_farm: Farm, builder: LocalBuilder, expected: Reference, monkeypatch: pytest.MonkeyPatch
):
    describe, seen = DeviceLink.describe, []

    async def differing(link: DeviceLink, kind: str, index: int) -> object:
        spec = await describe(link, kind, index)
        seen.append(link)
        makes = list(dict.fromkeys(map(id, seen)))
        return replace(spec, fingerprint=f"make {makes.index(id(link))}")

    monkeypatch.setattr(DeviceLink, "describe", differing)
    notices: list[str] = []
    with FarmRunner(
        "1080ti", "127.0.0.1", shared_farm.port, number=1, repeat=2, on_notice=notices.append
    ) as runner:
        fingerprint = runner.describe(Target("llvm")).fingerprint
        assert outcomes(runner, builder, expected, "good good good good") == ["right"] * 4
        assert fingerprint in ("make 0", "make 1") and runner.n_parallel == 1
    assert "give it a key of its own" in " ".join(notices)


def test_devices_that_differ_are_reported():
    yardstick = _Yardstick()
    run = RunJob(job("good", None), None)
    yardstick.note("a", run, RunResult(costs=(1e-3,), verified=True))
    assert yardstick.is_due("b") and not yardstick.is_due("a")
    assert yardstick.compare("b", (1.05e-3, 4e-3)) == []  # something disturbed one of them
    assert not yardstick.is_due("b")
    (told,) = yardstick.compare("c", (1.3e-3,))
    assert "c and a differ: the same kernel takes 1.3 and 1 ms" in told
    (told,) = yardstick.compare("b", (2e-3,))
    assert "b has changed its speed" in told
    assert yardstick.slower("b") == 2.0 and yardstick.slower("new") == 1.0
    for device in "abc":
        yardstick.forget(device)
    assert yardstick.compare("a", (5e-3,)) == [] == yardstick.compare("a", ())
