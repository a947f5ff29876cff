"""Boards and networks that are not as they should be, with real processes: rebooted, unplugged,
slow, with a wrong clock, lying, with a full disk; and what the user is told of each."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from farm.processes import Farm, farm
from farm.test_faults import NOTICED, all_right, busy, run_job, runner_of, until
from measure.kernels import SIZE, job, reference
from tilewright.farm import certificates
from tilewright.farm.address import Devices
from tilewright.measure.jobs import RunJob
from tilewright.measure.local import LocalBuilder
from tilewright.measure.reference import ReferenceStore
from tilewright.network.tune import _runner

assert run_job  # a fixture
BUILD = "tilewright.measure.calls:build_source"

CLOCK = """
import os, time
real, real_ns, file = time.time, time.time_ns, {file!r}
def days():
    return float(open(file).read() or 0) * 86400
time.time = lambda: real() + days()
time.time_ns = lambda: real_ns() + int(days() * 1e9)
"""
LIAR = """
from tilewright.farm import board
from tilewright.measure.jobs import RunResult
honest = board._ran
board._ran = lambda result: honest(RunResult(error="wrong", message="output B differs"))
"""
SLOW = """
from dataclasses import replace
from tilewright.farm import board
honest = board._ran
board._ran = lambda r: honest(replace(r, costs=tuple(1.3 * c for c in r.costs)))
"""
FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (600, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
"""


ASKED = """
from tilewright.farm import board
made = board._run_job
def noted(asked, artifact, target, reference):
    run = made(asked, artifact, target, reference)
    with open({file!r}, "a") as file:
        print(asked.timing.cold_bytes, run.job.reference.constants, file=file)
    return run
board._run_job = noted
init = board.LocalRunner.__init__
def noted_too(self, *args, **options):
    with open({file!r}, "a") as file:
        print("runner", options.get("cold_bytes"), file=file)
    init(self, *args, **options)
board.LocalRunner.__init__ = noted_too
"""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Farm]:
    """A tracker alone."""
    with farm(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_a_rebooted_board_comes_back_under_its_address(empty: Farm, run_job: RunJob):
    """Its power failed: nobody hears of the end of its connections, and it registers anew."""
    notices: list[str] = []
    board, out, into = empty.serve_behind("k")
    with runner_of(empty, notices, 0.3) as runner:
        futures = [runner.submit(run_job) for _ in range(6)]
        until(busy(runner, 1))
        out.unplugged = into.unplugged = True
        board.kill()
        port = into.to
        again = type(out)(empty.port)
        empty.proxies.append(again)
        into.unplugged = False
        empty.serve_at("k", port, "--custom-addr", f"127.0.0.1:{into.port}", tracker=again.port)
        all_right(futures)
    assert "has started again" in empty.tracker.text()
    assert any("is lost" in text or "cannot be reached" in text for text in notices)


@pytest.mark.slow
def test_an_unplugged_board_is_noticed_and_taken_up_again(empty: Farm, run_job: RunJob):
    notices: list[str] = []
    empty.serve("k")
    _, out, into = empty.serve_behind("k")
    with runner_of(empty, notices, 0.3) as runner:
        futures = [runner.submit(run_job) for _ in range(8)]
        until(busy(runner, 2))
        out.unplugged = into.unplugged = True
        began = time.monotonic()
        until(lambda: runner._dispatch.total == 1)
        assert time.monotonic() - began < NOTICED
        all_right(futures)
        out.unplugged = into.unplugged = False
        until(lambda: runner._dispatch.total == 2)
        all_right([runner.submit(run_job) for _ in range(4)])
    assert any("is lost" in text or "cannot be reached" in text for text in notices)
    assert "has said nothing for" in empty.tracker.text()


@pytest.mark.slow
def test_a_slow_network_costs_time_and_nothing_else(empty: Farm, run_job: RunJob):
    """300 ms there and 300 ms back."""
    notices: list[str] = []
    empty.serve_behind("k", delay=0.3)
    with runner_of(empty, notices) as runner:
        all_right([runner.submit(run_job) for _ in range(2)])
    assert notices == []


@pytest.mark.slow
def test_lost_packets_cost_time_and_nothing_else(empty: Farm, run_job: RunJob):
    """Twenty times as many as the benchmark has."""
    notices: list[str] = []
    _, out, into = empty.serve_behind("k", loss=0.2, seed=3)
    with runner_of(empty, notices) as runner:
        all_right([runner.submit(run_job) for _ in range(6)])
    assert out.lost + into.lost > 3 and notices == []


@pytest.mark.slow
def test_wrong_clocks_break_nothing(tmp_path: Path, run_job: RunJob):
    """A board that begins in the past, and a tracker whose clock is set by days meanwhile."""
    clock, past = tmp_path / "clock", tmp_path / "past"
    clock.write_text("0")
    past.write_text("-9000")
    notices: list[str] = []
    made = Farm(tmp_path, before=CLOCK.format(file=str(clock)))
    try:
        made.serve_at("k", 0, before=CLOCK.format(file=str(past)))
        with runner_of(made, notices, 0.3) as runner:
            all_right([runner.submit(run_job) for _ in range(2)])
            for days in ("5", "-5", "900"):
                futures = [runner.submit(run_job) for _ in range(3)]
                until(busy(runner, 1))
                clock.write_text(days)
                all_right(futures)
            time.sleep(1.5)  # heartbeats with the new time
            all_right([runner.submit(run_job)])
        assert notices == [] and "is gone" not in made.tracker.text()
    finally:
        made.stop()


def test_certificates_are_valid_on_a_board_without_a_clock(tmp_path: Path):
    x509 = pytest.importorskip("cryptography.x509")
    certificates.make(tmp_path)
    for name in ("ca", "server", "client"):
        known = x509.load_pem_x509_certificate((tmp_path / f"{name}.pem").read_bytes())
        assert known.not_valid_before_utc.year == 1970
        left = known.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
        assert left > datetime.timedelta(days=3000)


def test_a_board_that_lies_blames_nobody(empty: Farm, run_job: RunJob):
    """It says of right kernels that they are wrong."""
    notices: list[str] = []
    empty.serve("k")
    empty.serve_at("k", 0, before=LIAR)
    with runner_of(empty, notices, 0.1) as runner:
        until(lambda: runner.n_parallel == 2)
        all_right([runner.submit(run_job) for _ in range(10)])
        assert runner.n_parallel == 1
    assert any("contradicts other devices" in text for text in notices)


@pytest.mark.slow
def test_weights_come_from_memory_there_as_they_do_here(empty: Farm, tmp_path: Path):
    """A network's search says so of its runner, wherever that is."""
    file, place = tmp_path / "asked", Devices("k", "127.0.0.1", empty.port)
    empty.serve_at("k", 0, before=ASKED.format(file=str(file)))
    a = np.linspace(-3, 3, SIZE, dtype=np.float32)
    with ReferenceStore() as store, _runner(place, cold=1 << 20) as runner:
        expected = [2.0 * a.astype(np.float64)]
        stored = store.put("twice", [a], expected, [np.float64(1e-6)], constants=[0])
        with LocalBuilder(build_func=BUILD, timeout=60) as builder:
            built = builder.submit(job("good", stored)).result()
        all_right([runner.submit(RunJob(job("good", stored), built.artifact))])
    said = file.read_text().splitlines()
    assert f"{1 << 20} (0,)" in said and f"runner {1 << 20}" in said


def test_boards_of_one_key_that_differ_are_reported(
    empty: Farm, run_job: RunJob, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tilewright.farm.runner._YARDSTICK_SECONDS", 0.0)
    notices: list[str] = []
    empty.serve("k")
    empty.serve_at("k", 0, before=SLOW.replace("1.3 *", "30.0 *"))  # whatever else runs here
    with runner_of(empty, notices, 0.2) as runner:

        def noticed() -> bool:
            all_right([runner.submit(run_job) for _ in range(6)])  # one board may take them all
            return any("differ: the same kernel takes" in text for text in notices)

        until(lambda: runner.n_parallel == 2)
        until(noticed)


@pytest.mark.slow
def test_a_full_disk_is_told_and_other_boards_go_on(tmp_path: Path):
    """Of a file more than 600 bytes cannot be kept there."""
    notices: list[str] = []
    with ReferenceStore() as store:
        with LocalBuilder(build_func=BUILD, timeout=60) as builder:
            built = builder.submit(job("good", reference(store))).result()
        run = RunJob(job("good", reference(store)), built.artifact, race=False)
        with farm(tmp_path, ["k"]) as made:
            made.serve_at("k", 0, before=FULL)
            with runner_of(made, notices, 0.1) as runner:
                until(lambda: runner.n_parallel == 2)
                all_right([runner.submit(run) for _ in range(6)])
    assert any("is left out: device's disk: a file cannot be kept there" in t for t in notices)
    assert any("set TMPDIR of its server" in t for t in notices)
