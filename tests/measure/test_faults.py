"""Planted faults through the real pipeline: each costs its own candidate and nothing else."""

import os
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.measure import kernels as K
from tests.measure import misbehave as M
from tilewright.base.errors import (
    DeviceError,
    DeviceLost,
    TargetError,
    Unavailable,
)
from tilewright.measure import calls
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job, RunJob
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.pool import Options, WorkerPool
from tilewright.measure.reference import ReferenceStore
from tilewright.runtime.device import device
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.targets import processors
from tilewright.targets.target import Target

LIMIT = 1.0  # seconds for a trial
FAULTS = {
    "segfault": ("run", "killed by SIGSEGV"),
    "trap": ("run", "killed by SIG"),
    "endless": ("timeout", "the trial took more than 1 s"),
    "wrong": ("wrong", "output b is wrong in"),
    "unwritten": ("wrong", "1 of them never written"),
    "overrun": ("wrong", "past the end of output b"),
    "memory": ("run", "allocate"),
    "refused": ("compile", "LLVM refused the text"),
}


@pytest.fixture(scope="module")
def store():
    with ReferenceStore() as store:
        yield store


@pytest.fixture(scope="module")
def builder():
    with LocalBuilder(build_func="tilewright.measure.calls:build_source", n_parallel=1) as builder:
        yield builder


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(timeout=LIMIT, number=2, repeat=2) as runner:
        yield runner


@pytest.mark.long
def test_each_fault_costs_only_its_candidate(store, builder, runner, tmp_path):
    reference = K.reference(store)
    kinds = [k for fault in FAULTS for k in (fault, "good")]
    with Database(tmp_path / "log.jsonl") as database:
        with Pipeline(builder, runner, database) as pipeline:
            jobs = [K.job(kind, reference, n) for n, kind in enumerate(kinds)]
            began = time.monotonic()
            records = list(pipeline.measure(jobs, ahead=4))
            spent = time.monotonic() - began
    assert [r.trial for r in records] == list(range(len(kinds)))
    for kind, record in zip(kinds, records, strict=True):
        if kind == "good":
            assert record.result.error is None and record.result.verified, record.result.message
            assert record.result.costs and record.decisions["kernel"] == "good"
            continue
        error, words = FAULTS[kind]
        assert (record.result.error, record.result.costs) == (error, ()), record.result.message
        assert words in record.result.message
    assert spent < 120  # nothing hung; how well deadlines are kept is measured in test_pool.py
    log = Database.load(tmp_path / "log.jsonl")
    assert log.counts().failed == len(FAULTS) and log.skipped == {}
    assert {(f.kind, f.count) for f in log.failures()} >= {("timeout", 1), ("compile", 1)}
    assert log.best(K.TASK).decisions["kernel"] == "good"
    assert log.dag(K.TASK.dag) == {"ops": ["twice"]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["good", "wrong"])
def test_equal_programs_are_run_once(kind, store, builder, runner):
    reference = K.reference(store)
    same = {"source": K.source(kind)}
    jobs = [replace(K.job(kind, reference, n), payload=same) for n in range(3)]
    with Pipeline(builder, runner) as pipeline:
        first, *rest = pipeline.measure([*jobs, replace(jobs[0], trial=3, reference=None)])
        *twins, unchecked = rest
    assert first.result.same_as is None and first.result.run_s > 0
    for n, twin in enumerate(twins, 1):
        assert (twin.trial, twin.decisions["trial"]) == (n, n)
        assert (twin.result.same_as, twin.result.run_s) == (0, 0)
        assert (twin.result.costs, twin.result.error) == (first.result.costs, first.result.error)
    # nothing to compare it with: another question, so another answer
    assert unchecked.result.same_as is None and not unchecked.result.verified


@pytest.mark.slow
def test_a_wrong_result_is_believed_only_in_a_fresh_process(store, builder, runner):
    reference = K.reference(store)
    built = [builder.submit(K.job(k, reference)).result() for k in ("good", "wrong")]
    good, wrong = (RunJob(K.job("good", reference), b.artifact) for b in built)
    assert runner.submit(good).result().error is None
    result = runner.submit(wrong).result()
    assert (result.error, result.first, result.cause) == ("wrong", False, "unclear")
    runner.probe(Target("llvm"))
    assert runner.submit(replace(good, control=True)).result().error is None
    result = runner.submit(wrong).result()  # only what is known to be good ran here before
    assert (result.error, result.first, result.cause) == ("wrong", True, "candidate")


@pytest.mark.slow
def test_a_slow_candidate_is_raced_out(store, builder, runner):
    job = K.job("good", K.reference(store))
    artifact = builder.submit(job).result().artifact
    slow = runner.submit(RunJob(job, artifact, best_seconds=1e-12)).result()
    assert slow.raced and len(slow.costs) == 1 and slow.verified
    kept = runner.submit(RunJob(job, artifact, best_seconds=1.0)).result()
    assert not kept.raced and len(kept.costs) == 2
    with LocalRunner(number=1, repeat=3, race=False) as patient:
        result = patient.submit(RunJob(job, artifact, best_seconds=1e-12)).result()
    assert not result.raced and len(result.costs) == 3


@pytest.mark.slow
def test_a_job_without_reference_is_timed_and_not_verified(builder, runner):
    job = K.job("good", None)
    result = runner.submit(RunJob(job, builder.submit(job).result().artifact)).result()
    assert result.costs and not result.verified


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "error", "words"),
    [
        ("sleep", "timeout", "the build took more than 1 s"),
        ("exit", "compile", "LLVM ERROR: out of registers"),
        ("memory", "compile", "MemoryError"),
        ("bug", "compile", "KeyError: 'no such stage'"),
    ],
)
def test_faults_of_a_build(do, error, words, faulty_builder):
    good, bad = (Job(K.TASK, {"do": what}, None) for what in ("build", do))
    first, second = faulty_builder.submit(bad), faulty_builder.submit(good)
    assert (first.result(30).error, first.result().artifact) == (error, None)
    assert words in first.result().message
    assert second.result(30).artifact is not None


@pytest.fixture(scope="module")
def faulty_builder():
    with LocalBuilder(timeout=1.0, n_parallel=1, build_func=K.build_as_told) as builder:
        yield builder


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("do", ["killed", "exit", "sleep", "memory", "no space"])
def test_what_fails_once_is_no_fault_of_the_candidate(do, store, faulty_builder, runner, tmp_path):
    payload = {"do": do, "once": str(tmp_path / "once")}
    with Pipeline(faulty_builder, runner) as pipeline:
        job = replace(K.job("good", K.reference(store)), payload=payload)
        (record,) = pipeline.measure([job])
    assert record.result.error is None and (tmp_path / "once").exists()


@pytest.mark.slow
def test_a_build_that_computes_until_its_deadline_is_to_blame(
    store, faulty_builder, runner, tmp_path
):
    payload = {"do": "compute", "once": str(tmp_path / "once")}  # a second one would succeed
    with Pipeline(faulty_builder, runner) as pipeline:
        job = replace(K.job("good", K.reference(store)), payload=payload)
        (record,) = pipeline.measure([job])
    assert record.result.error == "timeout" and record.result.build_s == 1.0


@pytest.mark.long
def test_who_is_killed_each_time_is_to_blame(store, faulty_builder, runner):
    with Pipeline(faulty_builder, runner) as pipeline:
        job = replace(K.job("good", K.reference(store)), payload={"do": "killed"})
        (record,) = pipeline.measure([job])
    assert record.result.error == "compile" and "killed by SIGKILL" in record.result.message


@pytest.mark.long
def test_a_frozen_device_process_costs_no_candidate(store, builder, runner):
    reference = K.reference(store)
    with Pipeline(builder, runner) as pipeline:
        (before,) = pipeline.measure([K.job("good", reference, 0)])
        for worker in runner._pools["llvm", 0]._stock._living:
            os.kill(worker._process.pid, signal.SIGSTOP)
        (after,) = pipeline.measure([K.job("good", reference, 1)])
    assert before.result.error is None and after.result.error is None


@pytest.mark.slow
def test_inputs_that_are_gone_are_no_fault_of_the_candidate(builder, runner):
    with ReferenceStore() as store, Pipeline(builder, runner) as pipeline:
        reference = K.reference(store)
        for path in Path(reference.directory).iterdir():
            path.unlink()
        pipeline.submit(K.job("good", reference))
        for _ in range(2):
            with pytest.raises(Unavailable, match="at fault .the inputs cannot be read .*No such"):
                pipeline.next()
        assert len(pipeline.database) == 0
        os.rename(K.reference(store).directory, f"{reference.directory}-new")
        os.rmdir(reference.directory)
        os.rename(f"{reference.directory}-new", reference.directory)
        assert pipeline.next().result.verified


@pytest.mark.slow
def test_a_builder_that_cannot_build_anything_is_no_fault_of_the_candidate(store, runner):
    class Failing(LocalBuilder):
        def probe(self, target):
            raise DeviceError("builds for llvm", "a small kernel cannot be built", "Wait.")

    with Failing(timeout=1.0, n_parallel=1, build_func=K.build_as_told) as builder:
        with Pipeline(builder, runner) as pipeline:
            pipeline.submit(replace(K.job("good", None), payload={"do": "no space"}))
            with pytest.raises(Unavailable, match="builds for llvm: a small kernel cannot"):
                pipeline.next()
            assert len(pipeline.database) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
def test_controls_build_and_run_a_small_kernel(kind, builder, runner):
    if not device(kind).exist:
        pytest.skip(f"there is no {kind} device")
    builder.probe(Target(kind))
    runner.probe(Target(kind))


def test_the_machine_is_named(runner):
    assert runner.describe(Target("llvm")).name and runner.describe(Target("llvm")).shares_host


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("ask", ["describe", "probe"])
@pytest.mark.parametrize("times", [1, 3, 4])
def test_a_process_that_opens_the_device_is_started_again_when_killed(
    ask, times, tmp_path, monkeypatch
):
    name = {"describe": "describe", "probe": "probe_device"}[ask]
    killer = partial(M.killed_some_times, str(tmp_path), times, name)
    monkeypatch.setattr(calls, name, killer)
    with LocalRunner() as runner:
        if times < 4:
            getattr(runner, ask)(Target("llvm"))
        else:
            with pytest.raises(DeviceError, match="killed by SIGKILL, 4 times in a row"):
                getattr(runner, ask)(Target("llvm"))
    assert len(list(tmp_path.iterdir())) == times


@pytest.mark.long
def test_builds_are_tried_again_when_the_process_is_killed(tmp_path, monkeypatch):
    killer = partial(M.killed_some_times, str(tmp_path), 2, "probe_build")
    monkeypatch.setattr(calls, "probe_build", killer)
    with LocalBuilder(n_parallel=1) as builder:
        builder.probe(Target("llvm"))
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_a_missing_device_is_one_error_and_no_records(builder):
    with LocalRunner(index=63) as runner, Pipeline(builder, runner) as pipeline:
        with pytest.raises(Exception, match=r"cpu\(63\): all cores are one device"):
            pipeline.submit(K.job("good", None))
        assert len(pipeline) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "words"),
    [("dead", "a worker process does not start: .* exit code 7"), ("gone", "fell off the bus")],
)
def test_a_lost_device_costs_no_candidate(state, words, store, builder, tmp_path):
    reference, told = K.reference(store), tmp_path / "state"
    told.write_text("there")
    with LocalRunner(timeout=LIMIT, number=1, repeat=1) as runner:
        pool = WorkerPool(1, Options(partial(M.open_device_if, str(told))))
        runner._pools["llvm", 0] = pool
        with Pipeline(builder, runner) as pipeline:
            (before,) = pipeline.measure([K.job("good", reference, 0)])
            told.write_text(state)
            for worker in pool._stock._living:
                worker.kill()
            for trial in (1, 2):
                pipeline.submit(K.job("good", reference, trial))
            for _ in range(2):  # it is looked for each time
                with pytest.raises(DeviceLost, match=f"lost in mid-search.*{words}"):
                    pipeline.next()
            assert pipeline.database.records == [before]
            told.write_text("there")
            after = [pipeline.next(), pipeline.next()]
    assert [r.trial for r in after] == [1, 2]
    assert all(r.result.verified and r.result.same_as is None for r in after)


@pytest.mark.long
def test_a_crash_with_the_device_still_there_is_the_candidates_own(store, builder, runner):
    reference = K.reference(store)
    with Pipeline(builder, runner) as pipeline:
        jobs = [K.job(kind, reference, n) for n, kind in enumerate(["good", "segfault", "good"])]
        assert [r.result.error for r in pipeline.measure(jobs, ahead=1)] == [None, "run", None]


@pytest.mark.slow
def test_a_missing_compiler_is_one_error_and_no_records(runner):
    with (
        LocalBuilder(build_func="tests.measure.test_faults:no_compiler") as builder,
        Pipeline(builder, runner) as pipeline,
    ):
        pipeline.submit(K.job("good", None))
        with pytest.raises(TargetError, match="NVRTC is not installed"):
            pipeline.next()
        assert len(pipeline.database) == 0


def no_compiler(payload, target):
    raise TargetError("compile for cuda", "NVRTC is not installed", "Install it.")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LocalBuilder(timeout=0), "timeout=0.*must be positive"),
        (lambda: LocalBuilder(n_parallel=0), "n_parallel=0.*at least 1"),
        (lambda: LocalRunner(timeout=-1), "timeout=-1.*must be positive"),
        (lambda: LocalRunner(number=0), "number=0.*at least 1"),
        (lambda: LocalRunner(cold_bytes=-1), "cold_bytes=-1.*must not be negative"),
        (lambda: LocalRunner(repeat=0), "repeat=0.*at least 1"),
    ],
)
def test_options_are_checked(make, words):
    with pytest.raises(Exception, match=words):
        make()


def test_a_local_build_function_is_refused():
    with pytest.raises(DeviceError, match="build processes cannot import it"):
        LocalBuilder(build_func=lambda payload, target: None)


def test_a_target_is_completed_by_the_device(runner):
    found = Target("llvm").on(runner.describe(Target("llvm")))
    assert found.limits.cores >= 1 and str(found) == "llvm"
    chosen = Target("llvm -num-cores=7 -l2-bytes=4096").on(found.device)
    assert (chosen.limits.cores, chosen.limits.l2_bytes) == (7, 4096)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("llvm -mattr=+{lacked}", "this processor lacks {lacked}"),
        ("llvm -mtriple={other}-unknown-linux-gnu", "machines of another kind"),
    ],
)
def test_code_for_another_processor_is_one_error_before_the_search(
    target: str, reason: str
) -> None:
    """Not one for each trial."""
    names = llvm_library().get_host_cpu_features()
    some = ("avx512f", "avx512fp16", "avxvnniint8", "avx10.2", "sve", "sve2", "sme")
    lacked = next(n for n in some if not names.get(n, True))
    other = "aarch64" if processors.here() == "x86_64" else "x86_64"
    known = Target(target.format(lacked=lacked, other=other))
    with LocalRunner(LIMIT) as runner, ReferenceStore() as store:
        with pytest.raises(TargetError, match=reason.format(lacked=lacked)):
            runner.describe(known)
        with LocalBuilder(60, 1) as builder, Pipeline(builder, runner) as pipeline:
            job = replace(K.job("good", K.reference(store)), target=known)
            with pytest.raises(TargetError, match=r"measure for .*Name what this machine has"):
                pipeline.submit(job)
            assert len(pipeline) == 0


@pytest.mark.slow
def test_builds_give_way_where_trials_go_on_beside_them() -> None:
    with LocalBuilder(n_parallel=1) as builder:
        for kind, more in (("opencl", 5), ("llvm", 0)):
            target = Target(kind)
            builder.start(target)  # a process that is told twice to begin gives way once
            found = builder.call(target, os.nice, 0, timeout=20).result()
            assert found == min(os.nice(0) + more, 19)
