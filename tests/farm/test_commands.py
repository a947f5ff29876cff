"""Tracker, servers and the table, as processes, by TVM's commands and by ours."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from farm.processes import SOURCE, Farm, farm
from tilewright.cli.app import cli
from tilewright.farm import address, wire
from tilewright.farm.command import query, table

TUTORIAL = """\
Queue Status
----------------------------------
key          total  free  pending
----------------------------------
1080ti       4      4     0
gfx900       1      1     0
titanx       2      2     0
----------------------------------"""


def command(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"tilewright_tvm.exec.{name}", *arguments],
        capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": SOURCE},
    )  # fmt: skip


def test_the_table_is_that_of_the_tutorial():
    counts = {"1080ti": 4, "gfx900": 1, "titanx": 2}
    rows = tuple(wire.Row(key, n, n, 0) for key, n in counts.items())
    text = table(wire.Summary(rows, (wire.Member("tcp://10.0.0.1:9090", "gfx900", 0.1),)))
    assert text.partition("\n\n")[2] == TUTORIAL
    assert text.splitlines()[4] == "        10.0.0.1:9090    server:gfx900"


def test_a_tracker_knows_the_devices_that_registered(shared_farm: Farm):
    done = command("query_rpc_tracker", "--host", "127.0.0.1", "--port", str(shared_farm.port))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Tracker address 127.0.0.1:{shared_farm.port}\n\nServer List")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["1080ti", "2", "2", "0"] in rows and ["titanx", "1", "1", "0"] in rows
    assert sum(row[-1:] == ["server:1080ti"] for row in rows) == 2
    assert f"INFO:RPCTracker:bind to 127.0.0.1:{shared_farm.port}" in shared_farm.tracker.text()


@pytest.mark.slow
def test_a_tracker_and_a_device_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nor do they share a folder with other users' processes, where Dask finds modules."""
    files = tmp_path / "temporary"
    files.mkdir()
    monkeypatch.setenv("TMPDIR", str(files))
    with farm(tmp_path, ["k", "k"]) as made:
        open_to_all = [path for path in files.iterdir() if path.stat().st_mode & 0o077]
        assert open_to_all == [] and len(list(files.iterdir())) == 3
        made.started[1].kill()
        made.started[2].stop()
        made.serve("k")  # removes what the killed one left
        assert len(list(files.iterdir())) == 2
    assert list(files.iterdir()) == []


def test_the_address_may_come_from_the_environment(
    shared_farm: Farm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("TVM_TRACKER_HOST", "127.0.0.1")
    monkeypatch.setenv("TVM_TRACKER_PORT", str(shared_farm.port))
    assert query([]) == 0
    assert "titanx" in capsys.readouterr().out


def test_tilewright_farm_status_says_the_same(shared_farm: Farm):
    arguments = ["farm", "status", "--host", "127.0.0.1", "--port", str(shared_farm.port)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0 and "Queue Status" in done.output


def test_a_tracker_that_is_not_there_is_one_error(capsys: pytest.CaptureFixture[str]):
    assert query(["--host", "127.0.0.1", "--port", "1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: tracker 127.0.0.1:1: it cannot be reached (Connection refused)")
    assert "tilewright farm tracker" in error and len(error.splitlines()) == 1


def test_without_an_address_the_error_names_the_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("TVM_TRACKER_HOST", raising=False)
    assert query([]) == 1
    assert "TVM_TRACKER_HOST" in capsys.readouterr().err


def test_a_tracker_whose_port_is_taken_says_so(shared_farm: Farm):
    port = str(shared_farm.port)
    done = command("rpc_tracker", "--host", "127.0.0.1", "--port", port, "--port-end", port)
    assert done.returncode == 1 and f"no port from {port} to {port} is free" in done.stderr
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_tracker_that_is_stopped_reports_no_error(tmp_path: Path, how: signal.Signals):
    with farm(tmp_path, ["k"]) as made:
        made.tracker.send(how)
        assert made.tracker.wait() == 0
        said = made.tracker.text()
    assert "Traceback" not in said and "ERROR" not in said


def test_hooks_that_dask_awaits_are_those_that_can_be():
    """Dask logs the error of a hook that is none, and goes on."""
    from distributed.diagnostics.plugin import SchedulerPlugin

    from tilewright.farm.tracker import Tracker

    hooks = [n for n, f in vars(SchedulerPlugin).items() if inspect.iscoroutinefunction(f)]
    assert "close" in hooks
    assert all(inspect.iscoroutinefunction(getattr(Tracker, name)) for name in hooks)


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:x", "host:0", "host:70000", "http://h:1", "://h:1"]
)
def test_what_is_no_address_is_refused(text: str):
    with pytest.raises(address.DeviceError, match="no address"):
        address.parsed(text)


@pytest.mark.parametrize("port", [-1, 0, 70000, "x", "9190.5"])
def test_what_is_no_port_is_refused(monkeypatch: pytest.MonkeyPatch, port: int | str):
    """Wherever it is said."""
    monkeypatch.setenv("TVM_TRACKER_PORT", str(port))
    for given in (port, None):
        with pytest.raises(address.DeviceError, match="this is no port"):
            address.tracker_address("127.0.0.1", given)  # type: ignore[arg-type]
    monkeypatch.setenv("TVM_TRACKER_PORT", "9191")
    assert address.tracker_address("h", None) == ("h", 9191)
    assert address.tracker_address("h", 9192) == ("h", 9192)


def test_addresses_may_have_a_scheme_and_brackets():
    assert address.parsed("tls://10.0.0.1:9190") == ("tls://10.0.0.1", 9190)
    assert address.parsed("[::1]:9190") == ("::1", 9190)
    assert str(address.Place("tcp", "::1", 1)) == "tcp://[::1]:1"
