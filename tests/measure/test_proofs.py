"""What may be the best is proven in a trial of its own, for which a builder compiles meanwhile."""

import random
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from tilewright.base.artifact import Artifact, Source
from tilewright.measure.jobs import Built, Job, RunResult
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import TaskId
from tilewright.targets.spec import DeviceSpec

TASK = TaskId("t", [], "dddd", "cuda")


def job(name, cost, trial=0):
    return Job(TASK, {}, None, decisions={"x": name, "cost": cost}, trial=trial)


def done(value):
    future = Future()
    future.set_result(value)
    return future


def artifact(name):
    return Artifact(Source("cuda", "", name, (), ()), b"")


class Gpu:
    """Builds and runs at once; what it is to compile waits until it is told to.

    wrong: candidates that are right but for the order of their threads
    """

    n_parallel = 1

    def __init__(self, wrong=()):
        self.wrong, self.tried, self.compiling = wrong, [], []
        self.pipeline = Pipeline(self, _Runner(self))

    def submit(self, job):
        return done(Built(artifact(job.decisions["x"])))

    def compile(self, source, target):
        self.compiling.append((source.entry_name, Future()))
        return self.compiling[-1][1]

    def compiled(self, built=None):
        """What was first to compile is."""
        name, future = self.compiling.pop(0)
        future.set_result(built or Built(artifact(name)))

    def run(self, run):
        name, seconds = run.job.decisions["x"], run.job.decisions["cost"]
        how = "proof" if run.proof else "deferred" if run.defer else "whole"
        self.tried.append((name, how))
        if run.proof is None:
            raced = run.race and run.best_seconds is not None and seconds > 0.99 * run.best_seconds
            result = RunResult((seconds,), raced, run.verify and raced)
            if raced or not run.verify:
                return done(result)
            if run.defer:
                return done(replace(result, unproven=Source("cuda", "", name, (), ())))
        else:
            result = replace(run.proof.result, unproven=None)
        if name in self.wrong:
            return done(RunResult(error="wrong", message="threads race"))
        return done(replace(result, verified=True))

    def probe(self, target):
        """It is there."""

    def close(self):
        """Nothing is open."""


class _Runner:
    n_parallel = 1

    def __init__(self, gpu):
        self.submit, self.probe, self.close = gpu.run, gpu.probe, gpu.close

    def describe(self, target):
        return DeviceSpec("cuda")


def outcomes(gpu, count):
    records = [gpu.pipeline.next() for _ in range(count)]
    return [(r.decisions["x"], r.result.error, r.result.verified) for r in records]


def test_others_are_tried_while_a_proof_is_compiled():
    gpu = Gpu()
    gpu.pipeline.submit(job("a", 1.0))
    gpu.pipeline.submit(job("slower", 2.0, 1))  # races against what is claimed
    assert gpu.tried == [("a", "deferred"), ("slower", "deferred")] and len(gpu.compiling) == 1
    assert not gpu.pipeline.database.records
    gpu.compiled()
    assert gpu.tried[2:] == [("a", "proof")]
    assert outcomes(gpu, 2) == [("a", None, True), ("slower", None, True)]
    assert gpu.pipeline.best_seconds(TASK.key) == 1.0


def test_what_would_be_the_best_without_it_is_tried_again_where_it_is_wrong():
    gpu = Gpu(wrong=["a"])
    for trial, (name, cost) in enumerate([("a", 1.0), ("b", 2.0), ("c", 3.0)]):
        gpu.pipeline.submit(job(name, cost, trial))
    assert not gpu.pipeline.database.records
    gpu.compiled()
    assert gpu.tried[3:] == [("a", "proof"), ("b", "deferred"), ("c", "deferred")]
    gpu.compiled()
    assert [name for name, _ in gpu.compiling] == [] and gpu.tried[6:] == [("b", "proof")]
    assert outcomes(gpu, 3) == [("a", "wrong", False), ("b", None, True), ("c", None, True)]
    assert gpu.pipeline.database.best(TASK).decisions["x"] == "b"


def test_a_compiler_that_refuses_proves_nothing_wrong():
    gpu = Gpu()
    gpu.pipeline.submit(job("a", 1.0))
    gpu.compiled(Built(error="compile", message="no such instruction"))
    assert outcomes(gpu, 1) == [("a", None, True)] and gpu.tried[1:] == [("a", "proof")]


@pytest.mark.parametrize("cause", ["unclear", "killed", "machine"])
def test_a_build_that_fails_by_no_fault_of_its_own_costs_another_trial(cause):
    gpu = Gpu(wrong=["a"])
    gpu.pipeline.submit(job("a", 1.0))
    gpu.compiled(Built(error="compile", message="no memory", cause=cause))
    assert outcomes(gpu, 1) == [("a", "wrong", False)] and gpu.tried[1:] == [("a", "whole")]


def test_leaders_are_proven_when_they_are_timed_again():
    gpu = Gpu(wrong=["b"])
    real = gpu.compile

    def at_once(source, target):
        future = real(source, target)
        gpu.compiled()
        return future

    gpu.compile = at_once
    records = gpu.pipeline.final([job("a", 1.0), job("b", 0.5, 1)])
    found = [(r.decisions["x"], r.result.error, r.result.verified, r.result.final) for r in records]
    assert found == [("a", None, True, True), ("b", "wrong", False, True)]
    assert len(records[0].result.costs) == 3
    assert gpu.pipeline.database.best(TASK).decisions["x"] == "a"


@pytest.mark.parametrize("seed", range(20))
def test_the_best_is_the_fastest_that_is_right_whatever_the_delays(seed):
    rng = random.Random(seed)
    costs = {f"x{k}": rng.choice([1.0, 2.0, 3.0, 4.0]) + k / 1000 for k in range(24)}
    gpu = Gpu(wrong=[name for name in costs if rng.random() < 0.4])
    real = gpu.compile

    def later(source, target):
        made, future = Built(artifact(source.entry_name)), real(source, target)
        threading.Timer(rng.random() * 0.004, future.set_result, [made]).start()
        return future

    gpu.compile = later
    jobs = [job(name, cost, k) for k, (name, cost) in enumerate(costs.items())]
    records = list(gpu.pipeline.measure(jobs, ahead=8))
    assert [r.trial for r in records] == list(range(24))
    right = {name: cost for name, cost in costs.items() if name not in gpu.wrong}
    best = gpu.pipeline.database.best(TASK)
    assert best.seconds == min(right.values())
    proven = [name for name, how in gpu.tried if how == "proof" and name in right]
    assert best.decisions["x"] in proven
