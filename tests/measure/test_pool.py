"""Worker processes: results, deadlines, crashes, orphans, and scripts without a main guard."""

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import CancelledError

import pytest

from tests.measure import misbehave as M
from tilewright.base.errors import InternalError, ScheduleError
from tilewright.measure import pool as P
from tilewright.measure.pool import (
    Options,
    WorkerCrash,
    WorkerMissing,
    WorkerPool,
    WorkerRaised,
    WorkerTimeout,
)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as pool:
        yield pool


def call(pool, function, *args, timeout=20.0):
    return pool.submit(function, *args, timeout=timeout).result(30)


@pytest.mark.slow
def test_results_and_large_arguments(pool):
    blob = os.urandom(5_000_000)
    assert call(pool, M.echo, blob) == blob
    assert call(pool, M.pid) == call(pool, M.pid) != os.getpid()


@pytest.mark.slow
def test_printing_does_not_disturb(pool):
    assert call(pool, M.prints) == "printed"


def test_exceptions_are_told_with_their_traceback(pool):
    with pytest.raises(WorkerRaised, match="(?s)KeyError: 'stage'.*misbehave.py"):
        call(pool, M.raises)
    with pytest.raises(ScheduleError, match="split: no such axis. Try i."):
        call(pool, M.refuses)
    with pytest.raises(WorkerRaised, match="the answer cannot be sent"):
        call(pool, M.gives_a_lock)


def test_arguments_that_cannot_be_sent_harm_nobody(pool):
    before = call(pool, M.pid)
    with pytest.raises((TypeError, AttributeError), match="pickle"):
        call(pool, M.echo, lambda: 1)
    assert call(pool, M.pid) == before


@pytest.mark.slow
def test_a_crash_tells_signal_and_last_words(pool):
    queued = [pool.submit(M.crashes, timeout=20), pool.submit(M.echo, 7, timeout=20)]
    with pytest.raises(WorkerCrash, match="(?s)killed by SIGABRT; it said:.*LLVM ERROR: no") as e:
        queued[0].result(30)
    assert not e.value.killed
    assert queued[1].result(30) == 7
    with pytest.raises(WorkerCrash, match="ended with exit code 3"):
        call(pool, M.exits, 3)
    with pytest.raises(WorkerCrash, match="SIGKILL") as e:
        call(pool, M.killed)
    assert e.value.killed  # programs do not send that to themselves


@pytest.mark.long
def test_a_deadline_is_kept_whatever_the_worker_does(pool):
    for function in (M.sleeps, M.spins_in_native_code, M.stops_itself):
        queued = pool.submit(M.echo, 1, timeout=20)
        queued.result(30)  # the worker is ready: what follows is the deadline alone
        began = time.monotonic()
        with pytest.raises(WorkerTimeout, match=r"no result within 0.3 s"):
            call(pool, function, timeout=0.3)
        assert 0.3 <= time.monotonic() - began < 1.3, function


@pytest.mark.long
def test_endless_output_is_cut_and_fills_nothing(pool, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(WorkerTimeout):
        call(pool, M.shouts, timeout=0.5)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
    assert call(pool, M.echo, 1) == 1 and not list(tmp_path.iterdir())


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENOSPC])
def test_no_process_to_be_had_is_one_error_and_the_pool_goes_on(error, monkeypatch):
    def refused(*_, **__):
        raise OSError(error, os.strerror(error))

    with WorkerPool(1) as pool:
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", refused)
            with pytest.raises(WorkerMissing, match=f"does not start: {os.strerror(error)}"):
                call(pool, M.echo, 1)
        assert call(pool, M.echo, 1) == 1


@pytest.mark.parametrize(
    ("share", "given", "computing"),
    [
        (1.0, 2.0, True),  # it has a core of its own: the deadline is the clock's
        (0.25, 8.0, True),  # it gets a quarter of one, and so much more time
        (0.01, 2.0, False),  # it waits for something else
        (0.15, 8.0, False),  # no more than four times the deadline
    ],
)
def test_who_shares_a_core_has_more_time(share, given, computing, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(P.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(P, "_processor_seconds", lambda pid: share * now[0])
    deadline = P._Deadline(2.0, 1)
    while deadline.left() > 0:
        now[0] += min(deadline.left(), 0.01)
    assert now[0] == pytest.approx(given, abs=0.9)
    assert deadline.computing is computing


def test_the_time_that_a_process_computes_is_known():
    assert P._processor_seconds(os.getpid()) > 0 and P._processor_seconds(None) == 0


@pytest.mark.slow
def test_a_death_between_two_calls_costs_nothing(pool):
    before = call(pool, M.dies_soon)
    time.sleep(0.4)
    assert call(pool, M.pid) != before


@pytest.mark.slow
def test_workers_share_the_calls():
    with WorkerPool(2) as pool:
        futures = [pool.submit(M.pid_after, 0.2, timeout=20) for _ in range(6)]
        assert len({f.result(30) for f in futures}) == 2


@pytest.mark.slow
def test_what_can_wait_waits_for_all_others(pool):
    order = []
    first = pool.submit(time.sleep, 0.2, timeout=20.0)  # until all others are there
    later = [pool.submit(M.echo, k, timeout=20.0, can_wait=True) for k in (1, 2)]
    soon = [pool.submit(M.echo, k, timeout=20.0) for k in (3, 4)]
    for future in (*later, *soon):
        future.add_done_callback(lambda done: order.append(done.result()))
    for future in (first, *later, *soon):
        future.result(20)
    assert order == [3, 4, 1, 2]


def test_workers_are_replaced_after_a_number_of_calls():
    with WorkerPool(1, Options(max_calls=2)) as pool:
        pids = [call(pool, M.pid) for _ in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]


@pytest.mark.slow
def test_replace_workers_takes_a_warm_spare():
    with WorkerPool(1, Options(spares=1, warm=M.warm)) as pool:
        first = call(pool, M.pid)
        (spare,) = pool._stock._spares
        pool.replace_workers()  # those in use, not the spare
        second = call(pool, M.pid)
        assert first != second == spare._process.pid
        (spare,) = pool._stock._spares
        with pytest.raises(WorkerCrash):
            call(pool, M.crashes)
        assert call(pool, M.pid) == spare._process.pid
        assert call(pool, M.is_warm)


@pytest.mark.slow
def test_spares_can_be_replaced_too():
    with WorkerPool(1, Options(spares=1)) as pool:
        first = call(pool, M.pid)
        (spare,) = pool._stock._spares
        pool.replace_workers(spares=True)
        assert call(pool, M.pid) not in (first, spare._process.pid) and not spare.alive


@pytest.mark.slow
def test_memory_is_limited():
    with WorkerPool(1, Options(memory_bytes=2 << 30)) as pool:
        with pytest.raises(WorkerRaised, match="out of memory"):
            call(pool, M.takes_memory, 3 << 30)
        assert call(pool, M.takes_memory, 1 << 20) == 1 << 20


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_an_error_with_its_words():
    with WorkerPool(1, Options(warm=M.raises)) as pool:
        with pytest.raises(InternalError, match="(?s)does not start.*KeyError: 'stage'"):
            call(pool, M.pid)


@pytest.mark.slow
def test_close_kills_and_cancels():
    pool = WorkerPool(1)
    pid = call(pool, M.pid)
    running, queued = (pool.submit(M.sleeps, timeout=60) for _ in range(2))
    time.sleep(0.2)
    pool.close()
    with pytest.raises(WorkerCrash):
        running.result(5)
    with pytest.raises(CancelledError):
        queued.result(5)
    assert not alive(pid)
    with pytest.raises(CancelledError):
        pool.submit(M.pid, timeout=20).result(5)


def test_functions_of_the_main_script_are_refused(pool, monkeypatch):
    monkeypatch.setattr(M.pid, "__module__", "__main__")
    with pytest.raises(InternalError, match="cannot import the main script"):
        pool.submit(M.pid, timeout=1)


def alive(pid):
    """False for a process that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def run_script(tmp_path, text, **options):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, str(path)], env=env, stdout=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_a_script_needs_no_main_guard(tmp_path):
    script = run_script(
        tmp_path,
        """
        print("script starts")
        from tests.measure import misbehave as M
        from tilewright.measure.pool import WorkerCrash, WorkerPool
        pool = WorkerPool(2)
        print(sorted(pool.submit(M.echo, n, timeout=20).result() for n in (3, 4)))
        try:
            pool.submit(M.crashes, timeout=20).result()
        except WorkerCrash:
            print("crash", pool.submit(M.echo, 5, timeout=20).result())
        """,
    )
    out, _ = script.communicate(timeout=60)
    assert out.splitlines() == ["script starts", "[3, 4]", "crash 5"]
    assert script.returncode == 0


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("busy", ["sleeps", "spins_in_native_code"])
def test_no_worker_outlives_a_killed_parent(tmp_path, busy):
    script = run_script(
        tmp_path,
        f"""
        from tests.measure import misbehave as M
        from tilewright.measure.pool import WorkerPool
        pool = WorkerPool(1)
        print(pool.submit(M.pid, timeout=20).result(), flush=True)
        pool.submit(M.{busy}, timeout=60).result()
        """,
    )
    pid = int(script.stdout.readline())
    time.sleep(0.2)
    assert alive(pid)
    script.send_signal(signal.SIGKILL)
    script.wait()
    script.stdout.close()
    end = time.monotonic() + 5
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not alive(pid)


@pytest.mark.slow
def test_a_forked_child_neither_uses_nor_ends_the_workers(tmp_path):
    script = run_script(
        tmp_path,
        """
        import os, sys
        from tests.measure import misbehave as M
        from tilewright.measure.pool import WorkerPool
        pool = WorkerPool(1)
        print(pool.submit(M.pid, timeout=20).result(), flush=True)
        if not os.fork():
            try:
                pool.submit(M.pid, timeout=20)
            except Exception as error:
                print(error, flush=True)
            sys.exit()  # with everything that runs at exit
        os.wait()
        print(pool.submit(M.pid, timeout=20).result(), flush=True)
        """,
    )
    out, _ = script.communicate(timeout=60)
    before, refusal, after = out.splitlines()
    assert "belong to the process that this one was forked from" in refusal
    assert before == after and script.returncode == 0
