"""What users get wrong, and what follows: one error with the way out, soon, and nothing is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farm.processes import SECONDS, Farm, farm
from farm.test_faults import all_right, run_job, runner_of
from farm.test_machines import FULL
from tilewright.base.errors import DeviceError
from tilewright.farm import certificates
from tilewright.farm import runner as farm_runner
from tilewright.farm.runner import FarmRunner
from tilewright.measure.jobs import RunJob
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.utils import request_remote

assert run_job  # a fixture

OTHER_VERSION = """
from tilewright.farm import wire
wire.PROTOCOL = 99
"""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Farm]:
    """A tracker alone."""
    with farm(tmp_path) as made:
        yield made


@pytest.mark.slow
def test_no_device_gets_free(shared_farm: Farm, monkeypatch: pytest.MonkeyPatch):
    """A session of this very process has the only one, and something on it."""
    monkeypatch.setattr(farm_runner, "BUSY_SECONDS", 1.0)
    place = "127.0.0.1", shared_farm.port
    told = "no device got free within 1 s: held by this process itself, .* Close that session"
    with request_remote("titanx", *place) as session, FarmRunner("titanx", *place) as runner:
        session.upload(b"x", target="a file")
        began = time.monotonic()
        with pytest.raises(DeviceError, match=told):
            runner.describe(Target("llvm"))
        assert time.monotonic() - began < 20


def test_a_tracker_of_another_version(tmp_path: Path):
    made = Farm(tmp_path, before=OTHER_VERSION)
    try:
        with pytest.raises(DeviceError, match="protocol.*Install the same version"):
            FarmRunner("k", "127.0.0.1", made.port)
    finally:
        made.stop()


@pytest.mark.slow
def test_a_device_of_another_version_is_left_out(empty: Farm, run_job: RunJob):
    notices: list[str] = []
    empty.serve_at("k", 0, before=OTHER_VERSION)
    with runner_of(empty, notices) as runner:
        result = runner.submit(run_job).result(60)
        assert result.cause == "machine" and "protocol" in result.message
        empty.serve("k")
        runner.probe(Target("llvm"))
        all_right([runner.submit(run_job) for _ in range(2)])
    assert any("is left out" in text and "protocol" in text for text in notices)


@pytest.mark.slow
def test_a_server_with_the_wrong_certificates_says_so_and_ends(tmp_path: Path):
    for name in ("farm", "other"):
        certificates.make(tmp_path / name)
    made = Farm(tmp_path, "127.0.0.1", "--certificates", str(tmp_path / "farm"))
    made.options = ("--certificates", str(tmp_path / "other"))
    try:
        server = made._server("k", wait=False)
        assert server._process.wait(SECONDS) == 1
        lines = [line for line in server.text().splitlines() if line.startswith("error: ")]
        assert len(lines) == 1 and "is not of the farm's authority" in lines[0]
        assert "farm certificates" in lines[0]
    finally:
        made.stop()


@pytest.mark.slow
def test_a_full_disk_in_a_session(empty: Farm):
    empty.serve_at("k", 0, before=FULL)
    with request_remote("k", "127.0.0.1", empty.port) as remote:
        with pytest.raises(DeviceError, match="device's disk: .*Free some space"):
            remote.upload(b"x" * 5000, target="large.so")
        remote.upload(b"x" * 50, target="small.so")
        assert remote.listdir() == ["small.so"]


@pytest.mark.parametrize("year", [1970, 2000, 2035])
def test_tls_works_whatever_year_a_board_believes_it_is(tmp_path: Path, year: int):
    """What OpenSSL checks of certificates, at the time of such a clock."""
    x509 = pytest.importorskip("cryptography.x509")
    verification = pytest.importorskip("cryptography.x509.verification")
    certificates.make(tmp_path)
    read = x509.load_pem_x509_certificate
    authority = verification.Store([read((tmp_path / "ca.pem").read_bytes())])
    policy = verification.PolicyBuilder().store(authority).time(datetime(year, 1, 2, tzinfo=UTC))
    chain = policy.build_client_verifier().verify(
        read((tmp_path / "client.pem").read_bytes()), []
    )  # fmt: skip
    assert len(chain.chain) == 2
