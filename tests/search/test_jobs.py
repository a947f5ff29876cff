"""Jobs of candidates: their steps are those of the closed schedule, wherever they come from."""

import numpy as np
import pytest

from search.spaces import cpu_task
from tilewright import te, topi
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import task_of_dag
from tilewright.search.jobs import make_job
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
    task = with_rules(task_of_dag(ComputeDAG(tensors), Target(target), "x"))
    for sketch in task.sketches:
        for index in members(sketch):
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
