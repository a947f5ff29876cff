"""How a search ends before its budget: nothing left to gain, nothing valid, the device lost."""

import threading
from concurrent.futures import Future

import pytest

from search.spaces import CPU, Instant, cpu_task
from tests.replay import NullBuilder, ReplayRunner
from tilewright import te
from tilewright.base.errors import DeviceError, DeviceLost, TargetError, Unavailable
from tilewright.measure.database import Database
from tilewright.measure.jobs import RunResult
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Result, make_record
from tilewright.measure.reference import ReferenceStore
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.task import Task
from tilewright.search import loop, portfolio
from tilewright.search.loop import tune
from tilewright.search.report import MAX_FRUITLESS, Options
from tilewright.targets.spec import DeviceSpec

BATCH = 4
FEW = portfolio.MIN_BATCHES * BATCH


def weighted(task, weight):
    return Task(task.name, task.args, task.dag, task.target, task.sketches, weight)


def run(tasks, measurer, database=None, **options):
    events = []
    chosen = Options(**{"batch": BATCH, "leaders": 0, **options})
    report = tune(tasks, measurer, database, chosen, on_event=events.append, verify=False)
    return report, events


def said(events, kind):
    return [e.message for e in events if e.kind == kind]


# -- nothing left to gain --------------------------------------------------------------------------


def flat(*tasks):
    """A measurer for which all candidates of a task take the same time."""
    measurer = Instant(list(tasks))
    measurer.of = {t.key: lambda job: RunResult(costs=(1e-3,), verified=True) for t in tasks}
    return measurer


@pytest.mark.slow
def test_a_search_that_gains_nothing_ends_and_says_so():
    report, events = run([cpu_task()], flat(cpu_task()), trials=600, negligible=2e-3)
    # 0.2 is hoped for, so 0.2 / (trials since the best) falls below the share after 100 of them
    assert report.converged and 100 - BATCH <= report.trials <= 100 + BATCH
    (text,) = said(events, "converged")
    assert text.startswith(f"Converged after {report.trials} of 600 trials: no task is predicted")
    assert "of 1 ms, all tasks together; under 2e+03 ns the search ends." in text
    assert events[-1].kind == "converged"


@pytest.mark.slow
def test_zero_spends_the_whole_budget():
    report, events = run([cpu_task()], flat(cpu_task()), trials=150, negligible=0)
    assert report.trials == 150 and not report.converged and not said(events, "converged")


@pytest.mark.slow
def test_a_budget_that_ends_first_is_no_convergence():
    report, events = run([cpu_task()], flat(cpu_task()), trials=60, negligible=2e-3)
    assert report.trials == 60 and not report.converged and not said(events, "converged")


@pytest.mark.slow
def test_an_exhausted_space_is_no_convergence():
    task = cpu_task(4, 16, 2)
    report, _ = run([task], flat(task), trials=10_000, negligible=1e-9)
    assert report.tasks[0].exhausted and not report.converged


@pytest.mark.long
def test_what_still_improves_goes_on():
    task = cpu_task()
    measurer = flat(task)
    costs = iter(range(1000, 0, -1))
    measurer.of = {task.key: lambda job: RunResult(costs=(next(costs) * 1e-6,), verified=True)}
    report, _ = run([task], measurer, trials=200, negligible=5e-4)
    assert report.trials == 200 and not report.converged


@pytest.mark.slow
def test_each_task_gets_a_few_batches_before_the_end():
    heavy, light = weighted(cpu_task(), 10_000), cpu_task(24, 64, 32)
    report, _ = run([heavy, light], flat(heavy, light), trials=2000, negligible=4e-3)
    assert report.converged and report.tasks[1].trials == FEW < report.tasks[0].trials


# -- several implementations of one thing ----------------------------------------------------------


def rivals(first, second):
    """Two tasks of which the network runs the faster one, and a measurer with their seconds."""
    tasks = [cpu_task(), cpu_task(24, 64, 32)]
    tasks[1].instead_of = tasks[0].key
    measurer = flat(*tasks)
    seconds = dict(zip((t.key for t in tasks), (first, second), strict=True))
    measurer.of = {
        key: lambda job, cost=cost: RunResult(costs=(cost,), verified=True)
        for key, cost in seconds.items()
    }
    return tasks, measurer


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("faster", [0, 1])
def test_the_implementation_that_is_ahead_gets_the_trials(faster):
    seconds = (1e-3, 3e-3)
    tasks, measurer = rivals(*(seconds if faster == 0 else seconds[::-1]))
    report, _ = run(tasks, measurer, trials=120, negligible=0)
    assert report.tasks[1 - faster].trials <= FEW and report.trials == 120


@pytest.mark.slow
def test_implementations_that_are_level_share_the_trials():
    tasks, measurer = rivals(1e-3, 1e-3)
    report, _ = run(tasks, measurer, trials=120, negligible=0)
    assert min(t.trials for t in report.tasks) >= 40


@pytest.mark.slow
def test_what_a_network_takes_counts_the_faster_one():
    tasks, measurer = rivals(1e-3, 5e-3)
    _, events = run(tasks, measurer, trials=2000, negligible=2e-3)
    (text,) = said(events, "converged")
    assert "of 1 ms, all tasks together" in text


# -- nothing valid ---------------------------------------------------------------------------------


def failing(good, bad):
    """A measurer for which every candidate of the task `bad` fails."""

    class Half(Instant):
        def next(self):
            job = self.jobs[len(self.records)]
            self.failing = lambda _: "run" if job.task.dag == bad.key else None
            return super().next()

    return Half([good, bad])


@pytest.mark.slow
def test_a_task_without_a_valid_schedule_is_given_up():
    good, bad = cpu_task(), weighted(cpu_task(24, 64, 32), 1000)
    report, events = run([good, bad], failing(good, bad), trials=200)
    given_up = report.tasks[1]
    assert given_up.fruitless and given_up.trials == given_up.failed == MAX_FRUITLESS * BATCH
    assert given_up.best is None and given_up.failure == "run: planted run"
    assert report.trials == 200 and report.tasks[0].best is not None
    assert not report.tasks[0].fruitless
    assert [e.task for e in events if e.kind == "fruitless"] == [1]


def test_a_network_without_any_valid_schedule_ends():
    tasks = [cpu_task(), cpu_task(24, 64, 32)]
    report, _ = run(tasks, Instant(tasks, failing=lambda trial: "compile"), trials=5000)
    assert [t.trials for t in report.tasks] == [MAX_FRUITLESS * BATCH] * 2
    assert all(t.fruitless for t in report.tasks) and not report.converged


@pytest.mark.slow
def test_one_success_is_enough_to_go_on():
    task = cpu_task()
    measurer = Instant([task], failing=lambda trial: None if trial == 15 else "run")
    report, _ = run([task], measurer, trials=100)
    assert report.trials == 100 and not report.tasks[0].fruitless


@pytest.mark.slow
def test_zero_never_gives_up():
    task = cpu_task()
    report, _ = run([task], Instant([task], failing=lambda _: "run"), trials=60, fruitless=0)
    assert report.trials == 60 and not report.tasks[0].fruitless


# -- the device lost -------------------------------------------------------------------------------


class Losing(Instant):
    """Its device is gone at the 6th result, for `times` calls."""

    def __init__(self, tasks, times):
        super().__init__(tasks)
        self.times = times

    def next(self):
        if len(self.records) == 5 and self.times:
            self.times -= 1
            raise DeviceLost("device of llvm", "lost in mid-search (no such device)", "Reboot.")
        return super().next()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(loop, "FIRST_PAUSE", 0.005)


@pytest.mark.slow
def test_a_device_that_comes_back_costs_nothing():
    task = cpu_task()
    undisturbed, _ = run([task], Instant([task]), trials=20)
    report, events = run([task], measurer := Losing([task], 3), trials=20)
    assert report.trials == 20 and report.tasks[0].failed == 0 and measurer.times == 0
    assert report.tasks[0].best.decisions == undisturbed.tasks[0].best.decisions
    (paused,), (resumed,) = said(events, "paused"), said(events, "resumed")
    assert paused.startswith("device of llvm: lost in mid-search (no such device). Reboot. ")
    assert "waits, 60 s at most" in paused and "is back" in resumed
    kinds = [e.kind for e in events if e.kind in ("trial", "paused", "resumed")]
    assert kinds[4:8] == ["trial", "paused", "resumed", "trial"]


def test_a_device_that_stays_away_ends_the_search_with_all_results_in_the_log(tmp_path):
    """Through the real pipeline; the device goes for good at the 9th trial."""
    path, task = tmp_path / "log.jsonl", cpu_task()

    class Runner:
        n_parallel = 1
        runs = 0

        def describe(self, target):
            return DeviceSpec(target.kind, shares_host=True)

        def submit(self, job):
            self.runs += 1
            if self.runs > 8:
                return done(RunResult(error="run", message="lost", fatal=True))
            return done(RunResult(costs=(1e-3,), verified=True, device="a device"))

        def probe(self, target):
            raise DeviceError("cuda(0)", "no such device", "Reboot.")

    builder = NullBuilder(1)
    with Database(path) as database, Pipeline(builder, Runner(), database) as pipeline:
        with pytest.raises(DeviceError) as raised:
            run([task], pipeline, database, trials=50, lost_seconds=0.02)
    builder.close()
    text = str(raised.value)
    assert "(cuda(0): no such device), and still so after 0.02 s. Reboot." in text
    assert f"Everything measured is in {path}" in text
    log = Database.load(path)
    assert len(log) == 8 and log.counts().failed == 0


def test_a_device_without_an_element_type_is_one_error_before_the_first_trial():
    task = cpu_task()

    class Poor(Instant):
        def describe(self, target):
            return DeviceSpec(target.kind, "Small", lacks=("float32",))

    with pytest.raises(TargetError, match=r"this device \(Small\) does not compute float32"):
        run([task], Poor([task]), trials=20)


def done(result):
    from concurrent.futures import Future

    future = Future()
    future.set_result(result)
    return future


def test_leaders_wait_for_the_device_too():
    task = cpu_task()

    class Finishing(Instant):
        repeats = True

        lost = True

        def final(self, jobs):
            if self.lost:
                self.lost = False
                raise DeviceLost("device of llvm", "lost")
            job = jobs[0]
            return [make_record(job.task, Result(costs=(1e-3,), verified=True, final=True))]

    report, events = run([task], Finishing([task]), trials=12, leaders=2)
    assert report.trials == 12 and [e.kind for e in events][-3:] == ["paused", "resumed", "final"]


def test_a_search_that_ends_in_time_leaves_nothing_to_the_next():
    """What is on its way when the time is over is not taken for a result of the next search."""
    now = [0.0]

    def clock():
        now[0] += 0.2
        return now[0]

    of_job = ReplayRunner(lambda job: RunResult(costs=(1e-3,), verified=True))
    with Pipeline(NullBuilder(), of_job) as pipeline:
        budget = Options(seconds=6.0, leaders=0, batch=BATCH, ahead=4 * BATCH)
        first = tune([cpu_task()], pipeline, options=budget, verify=False, clock=clock)
        assert first.trials > 0 and len(pipeline) == 0
        report = tune(
            [cpu_task()], pipeline, options=Options(trials=8, leaders=0, seed=5), verify=False
        )
        assert report.trials == 8 and len(pipeline) == 0


def test_what_a_start_takes_is_not_counted_as_time_of_trials():
    """Of 12 s half goes by before the first trial; then they take a fifth of a second each."""
    now = [0.0]

    def meanwhile(*_):
        now[0] = 6.0

    def tick():
        now[0] += 0.2

    measurer = Instant([cpu_task()], tick=tick)
    budget = Options(seconds=12.0, leaders=0, batch=BATCH, ahead=4 * BATCH, negligible=0.0)
    tune(
        [cpu_task()], measurer, options=budget, verify=False, meanwhile=meanwhile,
        clock=lambda: now[0],
    )  # fmt: skip
    assert 11 < now[0] <= 12.5 and measurer.ahead == 4 * BATCH, (now, measurer.ahead)


@pytest.mark.parametrize("took", [4.0, 50.0])
def test_what_is_done_meanwhile_takes_half_of_the_seconds_at_most(took):
    now, seen = [0.0], []

    def tick():
        now[0] += 0.25

    def meanwhile(predictions, references):
        seen.append((predictions, references, len(measurer.jobs)))
        now[0] += took

    measurer = Instant([cpu_task()], tick=tick)
    budget = Options(seconds=20.0, leaders=0, batch=BATCH, negligible=0.0, knowledge=False)
    report = tune(
        [cpu_task()], measurer, options=budget, verify=False, meanwhile=meanwhile,
        clock=lambda: now[0],
    )  # fmt: skip
    assert seen == [(None, None, 0)]
    left = 20 - min(took, 10)
    assert left - 2 <= report.trials * 0.25 <= left + 1


def test_what_goes_on_beside_a_search_is_waited_for_and_has_its_share_of_the_seconds():
    """Trials begin before it is done; then 3 of 20 s are left for what follows, 4 at most."""
    for asked, left in ((3.0, 3.0), (50.0, 4.0)):
        now, beside, at = [0.0], Future(), []

        def tick(now=now, beside=beside, at=at, asked=asked):
            now[0] += 0.25
            at.append(now[0])
            if len(at) == 10:
                beside.set_result(asked)

        measurer = Instant([cpu_task()], tick=tick)
        budget = Options(seconds=20.0, leaders=0, batch=BATCH, negligible=0.0, knowledge=False)
        report = tune(
            [cpu_task()], measurer, options=budget, verify=False,
            meanwhile=lambda *_, beside=beside: beside, clock=lambda now=now: now[0],
        )  # fmt: skip
        assert 20 - left - 2 <= report.trials * 0.25 <= 20 - left + 1


def test_a_search_ends_after_what_goes_on_beside_it():
    beside, measurer = Future(), Instant([cpu_task()])
    later = threading.Timer(0.05, beside.set_result, (0.0,))
    later.start()
    report = tune(
        [cpu_task()], measurer, options=Options(trials=4, leaders=0, batch=BATCH), verify=False,
        meanwhile=lambda *_: beside,
    )  # fmt: skip
    assert beside.done() and report.trials == 4
    later.join()


# -- no space --------------------------------------------------------------------------------------


def full_for(times, monkeypatch):
    """The folder of temporary files is full for the first `times` references."""
    put, asked = ReferenceStore.put, []

    def full(store, *args):
        asked.append(args[0])
        if len(asked) <= times:
            raise Unavailable("reference of x", "/tmp cannot be written (No space)", "Free some.")
        return put(store, *args)

    monkeypatch.setattr(ReferenceStore, "put", full)


def test_a_full_temporary_folder_costs_no_candidate(monkeypatch):
    full_for(3, monkeypatch)
    task, events = cpu_task(), []
    options = Options(trials=8, leaders=0, batch=BATCH)
    report = tune([task], Instant([task]), Database(), options, on_event=events.append)
    assert (report.tasks[0].trials, report.tasks[0].failed) == (8, 0)
    assert [e.kind for e in events if e.message] == ["paused", "resumed"]


def test_a_temporary_folder_that_stays_full_ends_the_search(monkeypatch, tmp_path):
    full_for(10**9, monkeypatch)
    task = cpu_task()
    options = Options(trials=8, leaders=0, batch=BATCH, lost_seconds=0.02)
    with Database(tmp_path / "log.jsonl") as database:
        with pytest.raises(DeviceError, match="No space.*still so after 0.02 s. Free some. Every"):
            tune([task], Instant([task]), database, options)
        assert len(database) == 0  # nothing is remembered against a candidate


def test_several_devices_take_larger_batches():
    assert Options().sizes(shares_host=False) == (16, 80)
    assert Options().sizes(shares_host=True) == (8, 16)
    assert Options().sizes(shares_host=False, devices=2) == (32, 96)
    batch, ahead = Options().sizes(shares_host=False, devices=100)
    assert batch == 64 and ahead >= 200  # no device waits for a proposal
    assert Options(batch_most=10).sizes(shares_host=False, devices=4)[0] == 10
    assert Options(batch=4).sizes(shares_host=False, devices=1) == (4, 20)


def test_a_task_whose_masks_leave_nothing_says_which():
    """A serial sum of very many terms, which a template leaves no other way."""
    config = ConfigSpace()
    a = te.placeholder((4, 1 << 15), name="A")
    k = te.reduce_axis((0, 1 << 15), "k")
    b = te.placeholder((1 << 15,), name="B")
    dag = te.ComputeDAG([a, b, te.compute((4,), lambda i: te.sum(a[i, k] * b[k], axis=k))])
    sketch = Sketch("serial", dag, config, lambda _: Schedule(dag), CPU)
    task = Task("serial", (), dag, CPU, [sketch])
    report, events = run([task], Instant([]), trials=8)
    assert report.tasks[0].exhausted and not report.tasks[0].trials
    assert said(events, "exhausted") == ["serial: no candidate is worth a trial (long_sums)"]
