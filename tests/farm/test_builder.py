"""Builders of a farm: the same artefacts as here, whatever becomes of single builders."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from farm.processes import Farm, farm
from tilewright import te
from tilewright.base.errors import DeviceError
from tilewright.cli.app import cli
from tilewright.driver.build import payload_of
from tilewright.farm import builds, command, wire
from tilewright.farm.builder import FarmBuilder
from tilewright.farm.device_link import DeviceLink
from tilewright.farm.network import opened
from tilewright.farm.runner import FarmRunner
from tilewright.measure.database import Database
from tilewright.measure.jobs import Builder, Built, Job
from tilewright.measure.local import LocalBuilder
from tilewright.measure.record import TaskId
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target
from tilewright_tvm import relay


@pytest.fixture(scope="module")
def builders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A device, and a process that is two builders."""
    with farm(tmp_path_factory.mktemp("farm"), ["k"]) as made:
        made.build("b", 2)
        yield made


def job(n: int, threads: bool = False, target: str = "llvm -num-cores=2") -> Job:
    a = te.placeholder((n,), name="A")
    half = te.compute((n,), lambda i: (a[i] + 1.0).astype("float16"), name="H")
    b = te.compute((n,), lambda i: half[i] + half[i], name="B")
    s = te.create_schedule(b.op)
    if threads:
        s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
    return Job(TaskId("add", [n], "d" * 32, target), payload_of(s, "add"), None)


def builder_of(made: Farm, key: str = "b", notices: list[str] | None = None) -> FarmBuilder:
    told = [] if notices is None else notices
    return FarmBuilder(key, "127.0.0.1", made.port, timeout=60, on_notice=told.append)


def code(built: Built) -> object:
    return built.artifact and (built.artifact.source, built.artifact.binary)


@pytest.mark.slow
def test_artefacts_are_those_of_this_machine(builders: Farm):
    jobs = [job(n) for n in (8, 16, 24, 32)]
    jobs.append(job(1 << 20, threads=True, target="cuda -arch=sm_80"))  # breaks a limit
    with builder_of(builders) as far, LocalBuilder(timeout=60, n_parallel=1) as here:
        assert isinstance(far, Builder)
        there = [f.result(120) for f in [far.submit(j) for j in jobs]]
        expected = [f.result(120) for f in [here.submit(j) for j in jobs]]
        assert far.n_parallel == 4
    assert [code(b) for b in there] == [code(b) for b in expected]
    assert [(b.error, b.message, b.cause) for b in there] == [
        (b.error, b.message, b.cause) for b in expected
    ]
    assert there[-1].error == "verify" and there[0].artifact is not None


@pytest.mark.slow
def test_a_killed_builder_loses_nothing(tmp_path: Path):
    notices: list[str] = []
    with farm(tmp_path) as made:
        first, _ = made.build("b", 1), made.build("b", 1)
        with builder_of(made, notices=notices) as far:
            futures = [far.submit(job(8 * n)) for n in range(1, 25)]
            futures[0].result(120)
            first.kill()
            assert [f.result(120).error for f in futures] == [None] * 24


def test_a_small_kernel_shows_that_builders_work(builders: Farm):
    with builder_of(builders) as far:
        far.probe(Target("llvm"))


def test_a_key_without_builders_is_one_error(builders: Farm):
    began = time.monotonic()
    with builder_of(builders, "nobody") as far:
        built = far.submit(job(8)).result(60)
        assert (built.error, built.cause) == ("compile", "machine")
        assert "no device of this key; it has b, k" in built.message
        with pytest.raises(DeviceError, match="no device of this key"):
            far.probe(Target("llvm"))
    assert time.monotonic() - began < 30


def test_a_device_does_not_build_and_a_builder_runs_nothing(builders: Farm):
    notices: list[str] = []
    with builder_of(builders, "k", notices) as far:
        built = far.submit(job(8)).result(60)
        assert built.cause == "machine" and "Start its server with --builders" in built.message
    with FarmRunner("b", "127.0.0.1", builders.port, on_notice=notices.append) as runner:
        with pytest.raises(DeviceError, match="it builds and does nothing else"):
            runner.describe(Target("llvm"))


def test_a_builder_of_another_version_is_refused(builders: Farm, monkeypatch: pytest.MonkeyPatch):
    """Its code would not be what this side would have built."""
    from tilewright.farm import network

    monkeypatch.setattr(network, "VERSION", "0.0.1")
    with builder_of(builders) as far:
        built = far.submit(job(8)).result(60)
    assert built.cause == "machine" and "and whoever asks 0.0.1" in built.message
    assert "Install the same version" in built.message


def test_what_is_no_plain_data_is_not_sent(builders: Farm):
    strange = replace(job(8), payload={"source": object()})
    with builder_of(builders) as far:
        built = far.submit(strange).result(60)
    assert built.error == "compile" and "no plain data" in built.message


@pytest.mark.parametrize(
    "message",
    [
        wire.Build(b"\xff", "llvm", 10.0), wire.Build(b"\x01", "llvm", 10.0),
        wire.Build(b"\x80", "vax", 10.0), wire.Build(b"\x80", "llvm", 1.0, limits=(("x", 1),)),
        wire.Build(b"\x80", "llvm", 1.0, device=wire.Spec("cuda", "", "", "", (), (), ())),
    ],
    ids=["noise", "no table", "no target", "no limit", "another device"],
)  # fmt: skip
def test_a_strange_build_is_refused_and_the_builder_goes_on(builders: Farm, message: wire.Build):
    async def ask() -> None:
        place = builders.started[-1].text().partition("bind to ")[2].partition(",")[0]
        link = DeviceLink(await opened(f"tcp://{place}", None, "test"))
        with pytest.raises(DeviceError):
            await link.build(message)
        answer = await link.build(builds.asked(job(8), Target("llvm"), 60.0))
        assert answer.error is None
        link.abort()

    asyncio.run(ask())


TARGETS = [
    Target("llvm"), Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"),
    Target("opencl -device=mali", host="llvm -mtriple=aarch64-linux-gnu"),
    Target("cuda -arch=sm_80").with_limits(max_threads_per_block=256),
    Target("cuda").on(
        DeviceSpec("cuda", "H", "f", "sm_90", (("cores", 132),), (), ("bfloat16",))
    ),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_a_target_arrives_as_it_was(target: Target):
    sent = wire.decoded(wire.encoded(builds.asked(job(8), target, 5.0)), "test")
    assert isinstance(sent, wire.Build)
    arrived = builds.job_of(sent)
    assert arrived.full_target == target and str(arrived.full_target.host) == str(target.host)
    assert arrived.payload == job(8).payload


def test_answers_that_contradict_themselves_are_refused():
    with pytest.raises(DeviceError, match="no Tilewright artefact|not a Tilewright artefact"):
        builds.built(wire.Made(), Target("llvm"))
    with pytest.raises(DeviceError, match="no message of this protocol"):
        builds.built(wire.Started(), Target("llvm"))


@pytest.mark.parametrize("count", ["-1", "100000"])
def test_a_strange_number_of_builders_is_refused(
    builders: Farm, count: str, capsys: pytest.CaptureFixture[str]
):
    arguments = ["--tracker", builders.address, "--key", "b", "--builders", count]
    with pytest.raises(SystemExit) as ended:
        command.server(arguments)
    assert ended.value.code == 2
    assert f"--builders: '{count}' is no number from 0 to" in capsys.readouterr().err


def test_without_a_compiler_there_are_no_builders(
    builders: Farm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def without(name: str) -> object:
        raise ModuleNotFoundError("no", name="tilewright.lowering")

    monkeypatch.setattr(command, "import_module", without)
    assert command.server(["--tracker", builders.address, "--key", "b", "--builders", "1"]) == 1
    assert "cannot build (tilewright.lowering is not in it)" in capsys.readouterr().err


@pytest.mark.long
def test_the_command_tunes_with_builders(
    builders: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    onnx = pytest.importorskip("onnx")
    x = relay.var("x", shape=(4, 16))
    onnx.save(relay.to_onnx(relay.IRModule.from_expr(relay.nn.relu(x)), {}), tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    there = ["--farm", builders.address, "--key", "k", "--builders", "b"]
    options = ["--trials", "3", "--tuner", "auto-scheduler"]
    done = CliRunner().invoke(cli, ["tune", "net.onnx", *options, *there])
    assert done.exit_code == 0, done.output
    assert any(r.result.ok for r in Database.load("net.llvm.jsonl"))
    done = CliRunner().invoke(cli, ["tune", "net.onnx", *options, "--builders", "b"])
    assert done.exit_code == 2 and "--builders are those of --farm" in done.output


def test_a_timeout_that_makes_no_sense_is_refused():
    with pytest.raises(DeviceError, match="must be positive"):
        FarmBuilder("b", "127.0.0.1", 1, timeout=0)
