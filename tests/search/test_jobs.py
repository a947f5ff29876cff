"""Jobs of candidates: their steps are those of the closed schedule, wherever they come from."""

import pickle
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from search.spaces import cpu_task
from tilewright import te, topi
from tilewright.base.errors import TargetError, Unavailable
from tilewright.measure.pool import WorkerCrash
from tilewright.measure.reference import load
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import task_of_dag
from tilewright.search.jobs import References, make_job
from tilewright.search.propose.proposers import Candidate
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG


def dense(dtype: str) -> list[te.Tensor]:
    a, b = (te.placeholder((64, 64), dtype, name) for name in "ab")
    return [a, b, topi.nn.dense(a, b)]


def members(sketch: Sketch) -> list[int]:
    drawn = sketch.space.sample(300, np.random.default_rng(0))
    return [int(i) for i in drawn[sketch.legal(drawn)]][:25]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tensors", "target"),
    [
        (dense("float32"), "cuda -arch=sm_90"),  # also rings of no slot, vectors of one element
        (dense("float16"), "cuda -arch=sm_90"),
        (dense("float32"), "llvm"),
    ],
    ids=["cuda", "matrix units", "cpu"],
)
def test_steps_of_a_judged_candidate_are_those_of_its_closed_schedule(tensors, target):
    task, new = (
        with_rules(task_of_dag(ComputeDAG(tensors), Target(target), "x")) for _ in range(2)
    )
    for sketch, unjudged in zip(task.sketches, new.sketches, strict=True):
        for at, index in enumerate(members(sketch)):
            if at < 5:
                assert unjudged.steps(index) == sketch.close(index).to_json()
                assert unjudged.runs(index) and not unjudged.explain(index)
            assert sketch.steps(index) == sketch.close(index).to_json(), sketch.origin


def test_steps_of_what_nobody_judged_and_of_a_users_template_are_those_of_the_closed_schedule():
    task = cpu_task()
    (sketch,) = task.sketches
    assert not sketch.repeatable
    for index in members(sketch)[:3]:
        job = make_job(task, Candidate(sketch, index), None, 0, 0)
        closed = sketch.close(index)
        assert job.steps == job.payload["steps"] == closed.to_json()
        assert job.dag == job.payload["dag"] == closed.dag.to_json()


def worked_out(task, helper=None):
    references = References(helper=helper)
    try:
        reference = references.get(task)
        arrays = load(reference)
        return reference, [*arrays.inputs, *arrays.expected, *arrays.tolerance]
    finally:
        references.close()


class Unwilling:
    """A helper whose processes fail, or that says what they do."""

    def __init__(self, error):
        self.error, self.calls = error, 0

    def call(self, target, function, *args, timeout):
        self.calls += 1
        done = Future()
        if self.error is None:
            done.set_result(function(*pickle.loads(pickle.dumps(args))))
        else:
            done.set_exception(self.error)
        return done


def test_references_are_the_same_whoever_works_them_out():
    given = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 4096
    task = replace(cpu_task(64, 64, 64), inputs={"A": given})
    alone, here = worked_out(task)
    assert alone.given and np.array_equal(here[0], given)
    for error in (None, WorkerCrash("it died"), TargetError("x", "y", "z")):
        helper = Unwilling(error)
        reference, there = worked_out(task, helper)
        assert helper.calls == 1 and replace(reference, directory=alone.directory) == alone
        assert all(map(np.array_equal, here, there))
    full = Unwilling(Unavailable("reference of x", "no space", "Free some."))
    with pytest.raises(Unavailable):
        worked_out(task, full)
