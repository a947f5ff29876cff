"""Standard output closed or full, and a log on a full disk: a search goes on, and says so."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.errors import SearchError
from tilewright.base.terminal import say
from tilewright.measure.database import Database
from tilewright.search.report import Report, TaskReport

# Scripts that measure six candidates, in three ways.
REPLAY = """
from tilewright.measure.jobs import RunResult
from tests.replay import NullBuilder, ReplayRunner
builder = NullBuilder()
runner = ReplayRunner(lambda job: RunResult(RESULT))
"""
SCRIPTS = {
    "tune": """
from contextlib import nullcontext
from tilewright import front
from tilewright.cli.app import main
from tilewright.models import networks
from search.spaces import cpu_task
from tilewright.measure.pipeline import Pipeline
from tilewright.search import loop, report
networks.check = lambda model: None
front.as_described = lambda target, *_: target
front.begun = lambda *_: nullcontext()
front.load = lambda *_, **__: None
def tune(model, target, database, *, progress, **options):
    with Pipeline(builder, runner, database) as pipeline:
        found = loop.tune(
            [cpu_task(8, 8, 8)], pipeline, database, report.Options(trials=6, leaders=0),
            on_event=lambda event: progress.note(event.kind * 1000), verify=False,
        )
    found.check()
front.search = tune
main(["tune", "resnet-18", "--log", LOG])
""",
    "autotvm": """
from tilewright import autotvm
from search.spaces import cpu_task
tuner = autotvm.tuner.RandomTuner(cpu_task(8, 8, 8))
options = autotvm.measure_option(builder=builder, runner=runner)
tuner.tune(6, options, callbacks=[
    autotvm.callback.progress_bar(6, prefix="x" * 9000), autotvm.callback.log_to_file(LOG)])
""",
    "auto_scheduler": """
from tilewright import auto_scheduler
from tests.tvm.auto_scheduler.workloads import CPU, product
task = auto_scheduler.SearchTask(func=product, args=(8, 8, 8), target=CPU)
task.tune(auto_scheduler.TuningOptions(6, builder=builder, runner=runner,
    measure_callbacks=[auto_scheduler.RecordToFile(LOG)]))
""",
}
GOOD, BAD = "(1e-3,), verified=True", "error='compile', message='no'"


def run(door, folder, *, result=GOOD, redirect="", limit=-1, **variables):
    script = folder / "script.py"
    head = (
        f"LOG = 'log.jsonl'\n{REPLAY.replace('RESULT', result)}\n"
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, -1))\n"
    )
    tail = "\nimport sys; sys.stderr.write('the script went on')"
    script.write_text(head + SCRIPTS[door] + tail)
    path = os.pathsep.join([*(p for p in sys.path if p), str(Path(__file__).parents[1])])
    return subprocess.run(
        f"{sys.executable} {script} {redirect}", shell=True, cwd=folder, text=True,
        capture_output=True, env={**os.environ, "PYTHONPATH": path, **variables},
    )  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("door", SCRIPTS)
@pytest.mark.parametrize("redirect", ["> /dev/full", ">&-", "| true"])
def test_lost_output_does_not_stop_a_search(door, redirect, tmp_path):
    done = run(door, tmp_path, redirect=redirect)
    assert len(Database.load(tmp_path / "log.jsonl")) >= 6
    assert "Traceback" not in done.stderr
    if door == "tune" and "|" not in redirect:  # what was asked for is in the log
        assert done.returncode == 0 and "Exception ignored" not in done.stderr


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("door", SCRIPTS)
def test_a_log_on_a_full_disk_is_saved_elsewhere_and_the_end_says_where(door, tmp_path):
    """No file may grow beyond some bytes, which has the log of an earlier run already."""
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "log.jsonl").write_text('{"kind":"run","v":1,"options":{}}\n' * 440)
    done = run(door, tmp_path, limit=16_000, TMPDIR=str(other))
    assert done.returncode == 1 and "Done.  Next" not in done.stdout
    (file,) = other.glob("log-rescued-*")
    assert f"are not in it, but in {file}" in done.stderr and "went on" not in done.stderr
    both = Database.load(tmp_path / "log.jsonl", file)
    assert sum(not r.result.final for r in both) == 6


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("door", SCRIPTS)
def test_a_run_without_any_success_is_an_error(door, tmp_path):
    done = run(door, tmp_path, result=BAD)
    assert done.returncode == 1 and "Done.  Next" not in done.stdout
    assert "none of 6 trials succeeded; the last failed with compile: no" in done.stderr


def test_one_success_is_enough():
    def report(*tasks):
        return Report([TaskReport(None, trials=t, failed=f, best=b) for t, f, b in tasks])

    for fine in ((), ((0, 0, None),), ((5, 5, None), (3, 2, None)), ((5, 5, object()),)):
        report(*fine).check()
    with pytest.raises(SearchError, match="search of 2 tasks: none of 8 trials succeeded"):
        report((5, 5, None), (3, 3, None)).check()


def test_what_cannot_be_said_is_dropped(tmp_path, monkeypatch):
    with open("/dev/full", "w") as full:
        assert not say("x" * 100_000, stream=full)
    assert not say("x", stream=full)  # closed
    monkeypatch.setattr(sys, "stdout", None)
    assert not say("x")
    with open(tmp_path / "file", "w", encoding="ascii") as ascii_only:
        assert say("24 µs", stream=ascii_only)
    assert (tmp_path / "file").read_text() == "24 ?s\n"


def test_names_from_files_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    assert say("a\x1b[2Jb\tc", begin="\r", end="", stream=stream)
    assert stream.getvalue() == "\ra\\x1b[2Jb\tc"
