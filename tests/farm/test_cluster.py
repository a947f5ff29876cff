"""What surrounds a farm: a Dask cluster that is there, Dask's pages, a board without a compiler."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from farm.processes import SOURCE, Farm, farm, free_port
from farm.test_faults import all_right, run_job, runner_of
from farm.test_tutorial import matmul
from tilewright.base.errors import DeviceError
from tilewright.cli.app import cli
from tilewright.driver.archive import write_runtime
from tilewright.farm import certificates, command
from tilewright.farm.client import summary
from tilewright.farm.runner import FarmRunner
from tilewright.measure.database import Database
from tilewright.measure.jobs import RunJob
from tilewright_tvm import autotvm, relay
from tilewright_tvm.auto_scheduler.utils import request_remote

assert run_job and matmul  # a fixture, a template


@contextmanager
def cluster(tmp_path: Path, secret: Path | None = None) -> Iterator[Farm]:
    """A scheduler of a site, with the tracker added to it; secret: certificates that it has."""
    port, log, scheme = free_port(), tmp_path / "scheduler.log", "tcp" if secret is None else "tls"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    if secret is not None:
        arguments += ["--protocol", "tls", "--tls-ca-file", str(secret / "ca.pem")]
        arguments += ["--tls-cert", str(secret / "server.pem")]
        arguments += ["--tls-key", str(secret / "server.key")]
    with open(log, "wb") as out:
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler",
             "--preload", "tilewright.farm.tracker", *arguments],
            stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": SOURCE},
        )  # fmt: skip
    made = Farm.__new__(Farm)
    made.folder, made.started, made.proxies = tmp_path, [], []
    made.options = () if secret is None else ("--certificates", str(secret))
    made.port, made.address = port, f"{scheme}://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while "Scheduler at" not in log.read_text():
            assert scheduler.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield made
    finally:
        made.stop()
        scheduler.terminate()
        scheduler.wait(30)


@pytest.mark.slow
def test_a_cluster_that_is_there_lends_devices(tmp_path: Path, run_job: RunJob):
    with cluster(tmp_path) as made:
        made.serve("k")
        with runner_of(made) as runner:
            all_right([runner.submit(run_job) for _ in range(3)])


@pytest.mark.long
def test_a_cluster_at_tls_is_tuned_on_and_refuses_whoever_has_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A site's scheduler with its certificates: a server, scripts, the command, and a stranger."""
    onnx = pytest.importorskip("onnx")
    secret, log = tmp_path / "secret", tmp_path / "log.json"
    certificates.make(secret)
    with cluster(tmp_path, secret) as made:
        device = made._start(
            "rpc_server", "--scheduler", made.address, "--key", "k", "--port", "0", *made.options
        )
        assert f"tls://127.0.0.1:{device.port}" in the_members(made, str(secret))
        monkeypatch.setenv("TILEWRIGHT_CERTIFICATES", str(secret))
        task = autotvm.task.create("farm/matmul", args=(32,), target="llvm")
        option = autotvm.measure_option(
            builder=autotvm.LocalBuilder(timeout=60),
            runner=autotvm.RPCRunner(
                "k", "tls://127.0.0.1", made.port, number=1, repeat=1, timeout=30
            ),
        )  # fmt: skip
        autotvm.tuner.RandomTuner(task, seed=0).tune(
            n_trial=4, measure_option=option, callbacks=[autotvm.callback.log_to_file(str(log))]
        )
        option["runner"].close()
        records = [r for r in Database.load(log) if not r.result.final]
        assert len(records) == 4 and any(r.result.verified for r in records)

        x, w = relay.var("x", shape=(4, 16)), relay.var("w", shape=(8, 16))
        mod = relay.IRModule.from_expr(relay.nn.dense(x, w))
        onnx.save(relay.to_onnx(mod, {"w": np.ones((8, 16), "float32")}), tmp_path / "n.onnx")
        monkeypatch.chdir(tmp_path)
        there, once = ["--farm", made.address, "--key", "k"], ["--trials", "1", "--tuner", "random"]
        none = {"TILEWRIGHT_CERTIFICATES": "none"}
        for asked in (["tune", "n.onnx", *once], ["bench", "n.onnx"]):
            done = CliRunner().invoke(cli, [*asked, *there])
            assert done.exit_code == 0, done.output
            done = CliRunner().invoke(cli, [*asked, *there], env=none)
            assert "no certificates to speak to it" in str(done.exception)
        for host in ("127.0.0.1", "tcp://127.0.0.1"):
            with pytest.raises(DeviceError, match="it wants TLS.*Copy its certificates here"):
                FarmRunner("k", host, made.port, certificates="none")
        certificates.make(tmp_path / "other")
        with pytest.raises(DeviceError, match="not of the farm's authority.*copy them"):
            request_remote("k", "127.0.0.1", made.port, certificates=str(tmp_path / "other"))


def the_members(made: Farm, secret: str) -> list[str]:
    found = asyncio.run(summary("tls://127.0.0.1", made.port, secret))
    return [member.address for member in found.members]


@pytest.mark.slow
def test_dasks_pages_are_served_where_asked_for(tmp_path: Path, run_job: RunJob):
    pytest.importorskip("bokeh")
    port = free_port()
    made = Farm(tmp_path, "127.0.0.1", pages=f"127.0.0.1:{port}")
    try:
        made.serve("k")
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/info/main/workers.html")
        assert page.status == 200 and b"tcp://127.0.0.1" in page.read()
        with runner_of(made) as runner:
            all_right([runner.submit(run_job)])
    finally:
        made.stop()


def test_without_bokeh_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    assert command.tracker(["--port", "0", "--dashboard", "127.0.0.1:0"]) == 1
    assert "the package bokeh is not installed" in capsys.readouterr().err


HIDDEN = """
import sys
for name in ("llvmlite", "ml_dtypes", "xgboost", "onnx", "rich", "ziglang"):
    sys.modules[name] = None
"""


@pytest.mark.slow
def test_a_device_needs_no_compiler(tmp_path: Path, run_job: RunJob):
    """The runtime's archive with the server in it, numpy and Dask: neither LLVM nor the rest."""
    archive = tmp_path / "tilewright-runtime.pyz"
    write_runtime(archive, server=True)
    (tmp_path / "sitecustomize.py").write_text(HIDDEN)  # of worker processes, too
    with farm(tmp_path) as made:
        path = os.pathsep.join([str(tmp_path), str(archive)])
        made.serve_at("k", 0, path=path)
        with runner_of(made) as runner:
            all_right([runner.submit(run_job) for _ in range(2)])
        shown = subprocess.run(
            [sys.executable, "-c", "import tilewright; print(tilewright.__file__)"],
            capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False,
        )  # fmt: skip
        assert str(archive) in shown.stdout
