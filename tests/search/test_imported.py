"""Imported records are tried first, once, and what was measured of them counts like any other."""

import json

import pytest

from schedule.ansor_logs import MATMUL, matmul
from search.spaces import CPU, Instant, cpu_task
from tilewright import te
from tilewright.measure.database import Database
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import import_lines
from tilewright.measure.jobs import RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.search.imported import MOST
from tilewright.search.jobs import history
from tilewright.search.loop import tune
from tilewright.search.report import Options
from tilewright.search.rules.derive import with_rules

SIZES = (32, 48, 24)
TILES = [(a, b, r) for r in (2, 4) for a in (1, 2, 4) for b in (1, 2, 3)]


def ansor(steps, seconds, key=("matmul", *SIZES)):
    """A line of the auto-scheduler's log."""
    task = [json.dumps(key), "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    return json.dumps({"i": [task, [[], steps]], "r": [[seconds], 0, 1.0, 1], "v": "v0.6"})


def tiled(rows, columns, reduced):
    """The steps of `MATMUL` with other tiles."""
    steps = [list(s) for s in MATMUL]
    steps[1][4], steps[2][4], steps[3][4] = [rows, 4, 2], [columns, 1, 8], [reduced]
    return steps


def autotvm(index, seconds):
    """A line of AutoTVM's log about `cpu_task`."""
    task = cpu_task()
    entities = task.config_space.get(index).to_json_dict()["entity"]
    line = {
        "input": ["llvm", task.name, list(task.args), {}],
        "config": {"index": index, "code_hash": None, "entity": entities},
        "result": [[seconds], 0, 1.0, 2.0], "version": 0.2, "tvm_version": "0.8.0",
    }  # fmt: skip
    return json.dumps(line)


def log_of(lines, target=CPU):
    database = Database()
    report = import_lines(lines, database, Workloads({"matmul": matmul}), target)
    assert not report.unusable
    return database


def rule_task():
    task = cpu_task(*SIZES)  # the same computation by the same names
    return with_rules(Task("matmul", SIZES, task.dag, CPU), templates=False)


class Logging(Instant):
    """Any candidate takes a millisecond, but those in `fast`; records go to the database."""

    def __init__(self, tasks, database, fast=()):
        super().__init__(tasks)
        self.database, self.fast = database, fast
        self.of = {t.key: self.answer for t in tasks}

    def answer(self, job):
        return RunResult(costs=(1e-6 if list(job.steps) in self.fast else 1e-3,), verified=True)

    def next(self):
        record = super().next()
        self.database.append(record)
        return record


def run(task, measurer, **options):
    events = []
    chosen = Options(**{"trials": 16, "leaders": 0, **options})
    report = tune([task], measurer, measurer.database, chosen, on_event=events.append, verify=False)
    return report, [e.message for e in events if e.kind == "imported"]


@pytest.mark.slow
def test_ansors_best_are_tried_first_and_one_may_win():
    database = log_of(ansor(tiled(*tiles), 1e-3 * (k + 1)) for k, tiles in enumerate(TILES))
    foreign = [r.steps for r in database]
    task = rule_task()
    measurer = Logging([task], database, fast=[foreign[3]])
    report, said = run(task, measurer)
    assert said == [f"{MOST} imported schedules are tried first."]
    own = [r for r in measurer.records if not r.origin.startswith("replay:")]
    assert own[0] is measurer.records[0] and own[0].origin == "default"  # what runs untuned
    assert [r.steps for r in measurer.records[1 : 1 + MOST]] == foreign[:MOST]
    best = report.tasks[0].best
    assert (best.origin, best.steps, best.seconds) == ("replay:ansor-v0.6", foreign[3], 1e-6)
    assert database.best(best.key) is best
    assert database.lookup(task.dag, task.target).to_json() == foreign[3]


@pytest.mark.slow
def test_nothing_is_tried_twice_and_the_next_best_follow():
    database = log_of(ansor(tiled(*tiles), 1e-3 * (k + 1)) for k, tiles in enumerate(TILES))
    foreign = [r.steps for r in database]
    task = rule_task()
    run(task, Logging([task], database, fast=[foreign[3]]))
    again = Logging([rule_task()], database)
    report, _ = run(rule_task(), again)
    assert report.tasks[0].known == 16 and report.tasks[0].best_seconds == 1e-6
    assert [r.steps for r in again.records[:MOST]] == foreign[MOST : 2 * MOST]
    assert all(r.steps not in foreign[:MOST] for r in again.records)


def test_the_model_learns_from_them():
    database = log_of(ansor(tiled(*tiles), 1e-3) for tiles in TILES[:4])
    from tilewright.search.propose.cost_model import CostModel

    model = CostModel()
    measurer = Logging([rule_task()], database)
    tune([rule_task()], measurer, database, Options(trials=12, leaders=0), model=model,
         verify=False)  # fmt: skip
    assert len(model) == 12


@pytest.mark.slow
def test_a_template_gets_back_its_own_configurations():
    task = cpu_task()
    space = task.sketches[0]
    legal = [i for i in range(0, len(space.space), 7) if not space.explain(i)][:3]
    database = log_of(autotvm(i, 1e-3 / (k + 1)) for k, i in enumerate(legal))
    measurer = Logging([task], database)
    run(task, measurer)
    first = [space.space.index_of(r.decisions) for r in measurer.records[:3]]
    assert first == legal[::-1]  # the fastest there first
    assert {r.origin for r in measurer.records} == {"template:tests/search/matmul"}
    again = Logging([task], database)
    report, said = run(task, again)
    assert report.tasks[0].known == 16 and said == []


@pytest.mark.slow
def test_without_the_template_its_steps_are_replayed():
    database = log_of([autotvm(0, 1e-3)])
    (record,) = database
    task = with_rules(Task("any", (), cpu_task().dag, CPU), templates=False)
    measurer = Logging([task], database)
    run(task, measurer)
    (replayed,) = [r for r in measurer.records if r.origin == "replay:autotvm-0.2"]
    assert replayed.steps == record.steps and replayed.decisions == {}


def test_what_is_illegal_here_is_counted_and_costs_nothing():
    lines = [ansor(tiled(1, 1, 2), 1e-3), ansor(tiled(1, 3, 4), 2e-3)]
    database = log_of(lines)
    small = CPU.with_limits(max_unrolled_body=1)
    task = Task("matmul", SIZES, cpu_task(*SIZES).dag, small)
    report, said = run(task, Logging([task], database))
    assert report.trials == 0 and said == [
        "0 imported schedules are tried first.  2 cannot be used here: 2 x straight-line code so "
        "long that compiling takes seconds"
    ]


def test_records_of_another_kind_of_target_are_left_alone():
    database = log_of([ansor(tiled(1, 1, 2), 1e-3)])
    task = Task("matmul", SIZES, cpu_task(*SIZES).dag, type(CPU)("opencl"))
    _, said = run(task, Logging([task], database))
    assert said == []


def test_equal_computations_may_have_other_names():
    a, b = te.placeholder((32, 24), name="left"), te.placeholder((24, 48), name="right")
    r = te.reduce_axis((0, 24), "rv")
    c = te.compute((32, 48), lambda y, x: te.sum(a[y, r] * b[r, x], axis=r), name="product")
    dag = te.ComputeDAG([a, b, c])
    database = log_of([ansor(tiled(2, 3, 4), 1e-3)])
    steps = database.records[0].steps
    task = Task("other", (), dag, CPU)
    assert task.key == database.records[0].task.dag
    with pytest.raises(Exception, match="no such stage"):
        Schedule.replay(dag, steps)
    report, _ = run(task, Logging([task], database))
    assert report.tasks[0].best.steps == steps
    assert [r.steps for _, r in history(task, database)] == [steps]
    assert database.lookup(dag, CPU).to_json() == steps


@pytest.mark.slow
def test_a_replayed_schedule_is_built_verified_and_best(tmp_path):
    """With nothing faked."""
    with Database(tmp_path / "log.jsonl") as database:
        import_lines([ansor(tiled(2, 3, 4), 1e-3)], database, Workloads({"matmul": matmul}), CPU)
        task = Task("matmul", SIZES, cpu_task(*SIZES).dag, CPU)
        with (
            LocalBuilder(n_parallel=1) as builder,
            LocalRunner(number=1, repeat=1) as runner,
            Pipeline(builder, runner, database) as pipeline,
        ):
            report = tune([task], pipeline, database, Options(trials=4))
    (found,) = report.tasks
    assert found.trials == 1 and found.exhausted
    assert found.best.origin == "replay:ansor-v0.6" and found.best.result.verified
    assert Database.load(tmp_path / "log.jsonl").best((task.key, str(CPU))).seconds > 0
