"""What surrounds a farm: a Dask cluster that is there, Dask's pages, a board without a compiler."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.processes import SOURCE, Farm, farm, free_port
from farm.test_faults import all_right, run_job, runner_of
from tilewright.driver.archive import write_runtime
from tilewright.farm import command
from tilewright.measure.jobs import RunJob

assert run_job  # a fixture


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Farm]:
    """A scheduler of a site, with the tracker added to it."""
    port, log = free_port(), tmp_path / "scheduler.log"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"]
    with open(log, "wb") as out:
        scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler",
             "--preload", "tilewright.farm.tracker", *arguments],
            stdout=out, stderr=subprocess.STDOUT, env=os.environ | {"PYTHONPATH": SOURCE},
        )  # fmt: skip
    made = Farm.__new__(Farm)
    made.folder, made.options, made.started, made.proxies = tmp_path, (), [], []
    made.port, made.address = port, f"127.0.0.1:{port}"
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


def test_a_cluster_that_is_there_lends_devices(cluster: Farm, run_job: RunJob):
    cluster.serve("k")
    with runner_of(cluster) as runner:
        all_right([runner.submit(run_job) for _ in range(3)])


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
