"""The tuning loop without hardware: order, budgets, resuming, failures, who is next."""

import random
from collections import Counter

import numpy as np
import pytest
from msgspec.structs import replace

from search.spaces import Instant, answer, conv, cpu_task, flagship, hidden_cost
from tests.replay import NullBuilder, ReplayRunner
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.measure.database import Database
from tilewright.measure.jobs import RunResult
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import ERROR_KINDS, Result, make_record
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task
from tilewright.search.loop import Options, tune


def run(tasks, measurer=None, database=None, on_event=None, clock=None, **options):
    measurer = Instant(tasks) if measurer is None else measurer
    more = {} if clock is None else {"clock": clock}
    report = tune(
        tasks, measurer, database, Options(**options), on_event=on_event, verify=False, **more
    )
    return report, measurer


def order(records):
    return [(r.task.dag, r.trial, str(r.decisions)) for r in records]


@pytest.mark.slow
def test_the_sequence_does_not_depend_on_delays():
    task = flagship()
    seen = []
    for shuffle in range(3):
        rng = random.Random(shuffle)

        def delay(job, rng=rng, shuffle=shuffle):
            return rng.random() * 0.004 * shuffle

        builder, runner = NullBuilder(4, delay), ReplayRunner(answer(task), 2, delay)
        events = []
        with Pipeline(builder, runner) as pipeline:
            run([task], pipeline, on_event=events.append, trials=56, batch=8, seed=3)
        builder.close()
        runner.close()
        seen.append(order(e.record for e in events if e.kind == "trial"))
        assert any(e.kind == "fit" for e in events)
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) == 56
    other, measurer = run([task], trials=56, batch=8, seed=4)
    assert order(measurer.records) != seen[0] and other.trials == 56


@pytest.mark.long
def test_many_tasks_give_one_sequence_too():
    tasks = [conv(64, 14), cpu_like(conv(128, 14)), conv(256, 7)]
    runs = [order(run(tasks, trials=72, batch=8, seed=1)[1].records) for _ in range(2)]
    assert runs[0] == runs[1]
    assert {r[0] for r in runs[0][:24]} == {t.key for t in tasks}  # each gets a first batch


def cpu_like(task):
    return Task(task.name, task.args, task.dag, task.target, task.sketches, weight=2)


@pytest.mark.slow
@pytest.mark.parametrize("tuner", ["xgb", "random", "grid", "ga"])
def test_every_tuner_keeps_to_the_trials(tuner):
    report, measurer = run([cpu_task()], trials=30, batch=8, tuner=tuner)
    assert report.trials == 30 == len(measurer.records)
    assert report.tasks[0].best_seconds == min(r.seconds for r in measurer.records)
    assert [r.trial for r in measurer.records] == list(range(30))


def test_the_look_ahead_is_never_exceeded():
    _, measurer = run([flagship()], trials=40, batch=4, ahead=12, tuner="random")
    assert measurer.ahead == 12


@pytest.mark.slow
def test_seconds_are_a_budget():
    now = [0.0]

    def tick():
        now[0] += 0.5

    task = cpu_task()
    measurer = Instant([task], tick=tick)
    report, _ = run([task], measurer, clock=lambda: now[0], seconds=20, batch=4)
    assert 16 <= now[0] <= 20 and report.seconds == now[0]
    assert len(measurer.records) == len(measurer.jobs) == 2 * now[0]  # nothing is left behind


@pytest.mark.slow
def test_early_stopping_counts_trials_since_the_best():
    task = flagship()
    report, measurer = run([task], trials=500, early_stopping=24, batch=4, tuner="random")
    seconds = [r.seconds for r in measurer.records]
    assert report.tasks[0].stopped
    last = int(np.argmin(seconds))
    ahead = Options(batch=4).sizes(shares_host=False)[1]
    assert 24 <= len(seconds) - last - 1 <= 24 + ahead  # those on their way are still taken


@pytest.mark.slow
def test_an_exhausted_space_ends_the_run():
    task = cpu_task(4, 16, 2)
    events = []
    report, measurer = run([task], trials=100_000, on_event=events.append)
    every = np.arange(len(task.config_space))
    assert len(measurer.records) == task.sketches[0].legal(every).sum()
    assert report.tasks[0].exhausted and [e.kind for e in events].count("exhausted") == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ERROR_KINDS)
def test_a_failure_of_any_kind_costs_one_trial(kind):
    task = cpu_task()
    measurer = Instant([task], failing=lambda trial: kind if trial % 3 == 0 else None)
    report, _ = run([task], measurer, trials=24, batch=4)
    assert report.tasks[0].failed == 8 and report.trials == 24
    assert report.tasks[0].best.result.ok
    decisions = [str(r.decisions) for r in measurer.records]
    assert len(set(decisions)) == 24  # what failed is not tried again


def test_only_failures_leave_no_best():
    task = cpu_task()
    report, _ = run([task], Instant([task], failing=lambda trial: "run"), trials=24)
    assert report.tasks[0].best is None and report.tasks[0].failed == 24


def test_what_is_not_verified_is_never_best():
    task = cpu_task()
    report, measurer = run([task], Instant([task], verified=False), trials=16)
    assert len(measurer.records) == 16 and report.tasks[0].best is None


def test_a_candidate_that_cannot_be_closed_is_a_failed_trial():
    base = cpu_task()
    source = base.sketches[0]

    def build(config):
        if getattr(config, "index", None) is not None and config.index % 2:
            raise ScheduleError("split(C.i)", "planted")
        return source.build(config)

    broken = Sketch(source.origin, source.dag, source.space, build, base.target)
    task = Task(base.name, base.args, base.dag, base.target, [broken])
    database = Database()
    events = []
    report, measurer = run([task], None, database, events.append, trials=20, batch=4)
    refused = [r for r in database if r.result.error == "instantiate"]
    assert report.tasks[0].failed == len(refused) > 0
    assert len(measurer.records) + len(refused) == 20
    assert [e.trial for e in events if e.kind == "trial"] == list(range(1, 21))
    assert "planted" in refused[0].result.message


@pytest.mark.slow
def test_a_run_is_resumed_from_its_log(tmp_path):
    task = flagship()
    path = tmp_path / "log.jsonl"
    builder, runner = NullBuilder(2), ReplayRunner(answer(task))
    with Database(path) as database, Pipeline(builder, runner, database) as pipeline:
        first, _ = run([task], pipeline, trials=40, batch=8, leaders=0)
    with Database(path) as database, Pipeline(builder, runner, database) as pipeline:
        assert len(database) == 40
        second, _ = run([task], pipeline, trials=24, batch=8, leaders=0)
        records = sorted(database, key=lambda r: r.trial)
        assert len({str(r.decisions) for r in records}) == 64 == len(records)
        assert [r.trial for r in records] == list(range(64))
    assert second.tasks[0].known == 40 and second.tasks[0].trials == 24
    assert second.tasks[0].best_seconds <= first.tasks[0].best_seconds
    # the model knew the first run: what it proposed at once is better than the start of that run
    seconds = [r.seconds for r in records]
    assert np.median(seconds[40:48]) < np.median(seconds[:8])
    builder.close()
    runner.close()


def test_records_of_other_targets_and_old_spaces_are_passed_over():
    task = cpu_task()
    database = Database()
    for record in run([task], trials=8)[1].records:
        database.append(record)
    changed = cpu_task(48, 64, 16)
    report, _ = run([changed], None, database, trials=8)
    assert report.tasks[0].known == 0
    report, _ = run([task], None, database, trials=8)
    assert report.tasks[0].known == 8


def test_interrupting_returns_what_is_known():
    task = cpu_task()
    measurer = Instant([task], interrupt_at=13)
    report, _ = run([task], measurer, trials=100)
    assert report.interrupted and report.trials == 13
    assert report.tasks[0].best_seconds == min(r.seconds for r in measurer.records)


@pytest.mark.slow
def test_trials_go_where_seconds_can_be_saved():
    """A task that takes most of the network's time gets most of the trials."""
    heavy, light = cpu_task(48, 64, 32), cpu_task(24, 64, 32)
    heavy = Task(heavy.name, heavy.args, heavy.dag, heavy.target, heavy.sketches, weight=50)
    report, _ = run([light, heavy], trials=80, batch=4)
    assert report.tasks[1].trials > 2 * report.tasks[0].trials > 0


@pytest.mark.slow
def test_a_task_that_stopped_improving_is_left():
    stuck, moving = cpu_task(48, 64, 32), cpu_task(24, 64, 32)
    measurer = Instant([stuck, moving])
    flat = answer(stuck)
    costs = iter(np.linspace(1, 0.2, 200) * 1e-4)

    def same(job):
        return type(flat(job))(costs=(1e-4,), verified=True)

    def better(job):
        return type(flat(job))(costs=(float(next(costs)),), verified=True)

    measurer.of = {stuck.key: same, moving.key: better}
    report, _ = run([stuck, moving], measurer, trials=160, batch=4)
    assert report.tasks[1].trials > 1.5 * report.tasks[0].trials


class Finishing(Instant):
    """Notes what is timed at the end; `asked`: a list of decisions per task."""

    repeats = True

    def final(self, jobs):
        self.asked = [*getattr(self, "asked", []), [j.decisions for j in jobs]]
        return []


def test_leaders_are_timed_again_in_turn():
    task = cpu_task()
    measurer = Finishing([task])
    run([task], measurer, trials=24, leaders=3)
    fastest = sorted(measurer.records, key=lambda r: r.seconds)[:3]
    assert measurer.asked == [[r.decisions for r in fastest]]


def with_fallback(task, index):
    """The task with an untuned configuration, as an anchor template names one."""
    (old,) = task.sketches
    sketch = Sketch(old.origin, old.dag, old.space, old.build, old.target, lambda: index)
    return Task(task.name, task.args, task.dag, task.target, [sketch])


@pytest.mark.parametrize("asked", ["fallback", "groups"])
def test_a_task_whose_turn_never_comes_costs_nothing(monkeypatch, asked):
    """Neither is its space listed nor is a default looked for."""
    tasks, seen = [conv(64, 14), cpu_task(), cpu_task(32)], []
    real = getattr(Sketch, asked)

    def noted(self, *args):
        seen.append(self)
        return real(self, *args)

    monkeypatch.setattr(Sketch, asked, noted)
    report, _ = run(tasks, trials=8, batch=8)
    (served,) = [t.task for t in report.tasks if t.trials]
    assert seen and all(s in served.sketches for s in seen)


@pytest.mark.slow
def test_every_task_has_what_runs_untuned_tried_before_any_has_a_batch():
    """So that soon the network is no slower than untuned, however short the search."""
    tasks = []
    for plain in map(cpu_task, (64, 32, 16)):
        legal = plain.sketches[0].legal(np.arange(len(plain.config_space)))
        tasks.append(with_fallback(plain, int(np.argmax(legal))))
    batch = Options().sizes(shares_host=True)[0]
    _, measurer = run(tasks, trials=3 + 2 * batch, seed=1)
    first = measurer.records[:3]
    assert {r.task.dag for r in first} == {t.key for t in tasks}
    for record in first:
        (task,) = (t for t in tasks if t.key == record.task.dag)
        untuned = task.config_space.get(task.sketches[0].fallback())
        assert record.decisions == {n: e.value for n, e in untuned.items()}
    assert len({r.task.dag for r in measurer.records[3 : 3 + batch]}) == 1
    for said in ({"batch": 8}, {"batch_most": 8}):
        _, measurer = run(tasks, trials=24, seed=1, **said)
        counts = Counter(r.task.dag for r in measurer.records)
        assert counts == dict.fromkeys(counts, 8) and len(counts) == 3


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, -1])
def test_what_runs_untuned_is_proposed_first_and_timed_again_at_the_end(rank):
    plain = cpu_task()
    every = np.arange(len(plain.config_space))
    every = every[plain.sketches[0].legal(every)]
    index = int(every[np.argsort(hidden_cost(plain, every))[rank]])  # the best, or the worst
    task = with_fallback(plain, index)
    untuned = {n: e.value for n, e in task.config_space.get(index).items()}
    measurer, database = Finishing([task]), Database()
    run([task], measurer, database, trials=24, leaders=3)
    assert measurer.records[0].decisions == untuned
    assert [r.decisions for r in measurer.records].count(untuned) == 1
    (asked,) = measurer.asked
    assert asked.count(untuned) == 1 and len(asked) == (3 if rank == 0 else 4)
    for record in measurer.records:
        database.append(record)
    again = Finishing([task])
    run([task], again, database, trials=8, leaders=3)
    assert untuned not in [r.decisions for r in again.records]
    assert again.asked[0].count(untuned) == 1  # of a resumed run, too


def test_the_best_is_one_that_was_timed_again():
    """All are slower at the end; those that were not asked would look better."""
    task = cpu_task()

    class Tiring(Instant):
        repeats = True

        def __init__(self, tasks, database):
            super().__init__(tasks)
            self.database, self.asked = database, []

        def next(self):
            record = super().next()
            self.database.append(record)
            return record

        def final(self, jobs):
            self.asked.append([j.decisions for j in jobs])
            for job in jobs:
                costs = tuple(2.0 * c for c in self.of[job.task.dag](job).costs)
                result = Result(costs=costs, verified=True, final=True)
                self.database.append(
                    make_record(
                        job.task, result, origin=job.origin, decisions=job.decisions,
                        steps=job.steps, trial=job.trial,
                    )
                )  # fmt: skip
            return self.database.records[-len(jobs) :]

    first = {}

    def answered(job):
        seconds = first.setdefault(str(job.decisions), 1.0 + 0.3 * len(first))
        return RunResult(costs=(seconds,), verified=True)

    measurer = Tiring([task], Database())
    measurer.of = {task.key: answered}
    report, _ = run([task], measurer, measurer.database, trials=8, leaders=2)
    assert [len(asked) for asked in measurer.asked] == [2, 3]  # 2.0 is then better than 1.6 was
    best = report.tasks[0].best
    assert best.result.final and best.seconds == 2.0 and str(best.decisions) == next(iter(first))


def test_a_program_that_equals_another_is_no_leader():
    task = cpu_task()

    class Paired(Finishing):
        """Each second record is told to be the same program as the one before it."""

        def next(self):
            record = super().next()
            if len(self.records) % 2 == 0:
                before = self.records[-2]
                result = replace(before.result, same_as=before.trial)
                record = self.records[-1] = replace(record, result=result)
            return record

    measurer = Paired([task])
    report, _ = run([task], measurer, trials=24, leaders=3)
    distinct = measurer.records[::2]
    fastest = sorted(distinct, key=lambda r: r.seconds)[:3]
    assert measurer.asked == [[r.decisions for r in fastest]]
    assert report.tasks[0].best_seconds == fastest[0].seconds


def test_expected_results_travel_with_the_jobs():
    task = cpu_task(4, 16, 2)
    measurer = Instant([task])
    seen = []
    submit = measurer.submit

    def look(job):
        from tilewright.measure.reference import load

        seen.append((job.reference, [a.shape for a in load(job.reference).expected]))
        submit(job)

    measurer.submit = look
    tune([task], measurer, None, Options(trials=6))
    assert len(set(r for r, _ in seen)) == 1 and seen[0][1] == [(4, 16)]


@pytest.mark.parametrize(
    "tasks, options",
    [([], {}), (["task"], {"trials": 0}), (["task"], {"tuner": "magic"})],
)
def test_refusals(tasks, options):
    with pytest.raises(SpaceError):
        run([cpu_task() for _ in tasks], Instant([]), **options)


def test_the_hidden_cost_is_not_the_machine_model():
    """Else the tests above would prove little."""
    from tilewright.search.propose.cost_model import rank_correlation
    from tilewright.search.propose.model_proposer import evaluate

    task = flagship()
    sketch = task.sketches[0]
    found = sketch.space.sample(8192, np.random.default_rng(2))
    found = found[sketch.legal(found)]
    likeness = rank_correlation(evaluate(sketch, found)[1], hidden_cost(task, found))
    assert abs(likeness) < 0.8
