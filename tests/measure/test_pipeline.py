"""The pipeline without hardware: order, determinism, slices, drift, finals, interruption."""

import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from msgspec import structs

from tests.replay import NullBuilder, ReplayRunner
from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import DeviceError, DeviceLost, InternalError
from tilewright.measure.database import Database
from tilewright.measure.jobs import Builder, Built, Job, Runner, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import TaskId
from tilewright.search.jobs import Measurer
from tilewright.targets.spec import DeviceSpec

TASK = TaskId("t", [], "dddd", "llvm")
AHEAD = 6  # a proposal knows all results but those of the last few


def job(choice, trial=0, task=TASK):
    return Job(task, {}, None, decisions={"x": choice}, seed=1, trial=trial)


def cost(job):
    x = job.decisions["x"]
    if x % 7 == 3:
        return RunResult(error="run", message="illegal address", device="fake")
    return RunResult(costs=(1.0 + (x * 37 % 101) / 100,), verified=True, device="fake")


def search(pipeline, trials=40):
    """A search whose proposals depend on the results it was given."""
    rng = random.Random(5)
    records, state = [], 0
    for trial in range(trials):
        pipeline.submit(job((rng.randrange(1000) + state) % 1000, trial))
        if len(pipeline) == AHEAD:
            records.append(pipeline.next())
            state = state * 31 + int(min(records[-1].seconds, 9.0) * 1000)
    while len(pipeline):
        records.append(pipeline.next())
    return records


def outcome(records):
    return [(r.trial, r.decisions, r.result.costs, r.result.error) for r in records]


@pytest.mark.slow
def test_the_sequence_does_not_depend_on_delays():
    seen = []
    for seed in range(4):
        rng = random.Random(seed)

        def delay(job, rng=rng, seed=seed):
            return rng.random() * 0.01 if seed else 0.0

        builder, runner = NullBuilder(4, delay), ReplayRunner(cost, 2, delay)
        with Pipeline(builder, runner) as pipeline:
            seen.append(outcome(search(pipeline)))
        builder.close()
        runner.close()
    assert [o[0] for o in seen[0]] == list(range(40))
    assert seen[1:] == seen[:1] * 3


def test_a_log_can_stand_in_for_the_device(tmp_path):
    path = tmp_path / "log.jsonl"
    with Database(path) as database, Pipeline(NullBuilder(), ReplayRunner(cost), database) as first:
        records = search(first)
    replay = ReplayRunner(Database.load(path))
    with Pipeline(NullBuilder(), replay) as second:
        assert outcome(search(second)) == outcome(records)
        second.submit(job(123456))
        assert "no record of this candidate" in second.next().result.message


def test_every_record_says_on_which_device_it_was_measured():
    class Known(ReplayRunner):
        def describe(self, target):
            return DeviceSpec(target.kind, fingerprint="this cpu")

    elsewhere = structs.replace(TASK, fingerprint="that cpu")
    with Pipeline(NullBuilder(), Known(cost)) as pipeline:
        pipeline.submit(job(1))
        pipeline.submit(job(2, 1, elsewhere))  # where it ran counts
        assert {pipeline.next().task.fingerprint for _ in range(2)} == {"this cpu"}
        final = pipeline.final([job(1, 2)])
        assert final[0].task.fingerprint == "this cpu"
        assert pipeline.best_seconds(structs.replace(TASK, fingerprint="this cpu").key)
        assert pipeline.database.best(elsewhere) is None


def test_records_tell_everything(tmp_path):
    with Pipeline(NullBuilder(), ReplayRunner(cost)) as pipeline:
        (record,) = pipeline.measure([job(4, trial=8)])
        assert (record.device, record.seed, record.trial) == ("fake", 1, 8)
        assert record.result.verified and record.task == TASK
        assert pipeline.database.records == [record]


def test_measure_keeps_few_jobs_on_their_way():
    submitted = []

    def jobs():
        for n in range(12):
            submitted.append(n)
            yield job(n, n)

    with Pipeline(NullBuilder(), ReplayRunner(cost)) as pipeline:
        records = pipeline.measure(jobs(), ahead=3)
        assert next(records).trial == 0 and submitted == [0, 1, 2]
        assert [r.trial for r in records] == list(range(1, 12))


def test_nothing_is_tried_while_another_has_the_device():
    begun, end, tried = threading.Event(), threading.Event(), []

    def slow(job):
        begun.set()
        assert end.wait(10)
        tried.append(job.trial)
        return cost(job)

    with Pipeline(NullBuilder(), ReplayRunner(slow)) as pipeline:
        for n in (1, 2, 4):
            pipeline.submit(job(n, n))
        assert begun.wait(10)

        def other():
            with pipeline.device_free():
                seen = list(tried)
                time.sleep(0.02)  # in which the next trial would end
                return seen, list(tried)

        with ThreadPoolExecutor(1) as threads:
            alone = threads.submit(other)
            while not pipeline._reserved:
                time.sleep(0.001)
            end.set()
            before, after = alone.result(10)
        assert len(before) == 1 and after == before  # the one under trial ended first
        assert [pipeline.next().trial for _ in range(3)] == [1, 2, 4]


def test_who_waits_for_the_device_of_a_pipeline_that_ends_is_let_go():
    begun, end = threading.Event(), threading.Event()

    def slow(job):
        begun.set()
        assert end.wait(10)
        return cost(job)

    def other(pipeline):
        with pipeline.device_free():
            return "let go"

    with ThreadPoolExecutor(1) as threads:
        with Pipeline(NullBuilder(), ReplayRunner(slow)) as pipeline:
            pipeline.submit(job(1))
            assert begun.wait(10)
            waits = threads.submit(other, pipeline)
        assert waits.result(10) == "let go"
        end.set()


def test_next_without_jobs_is_refused():
    with Pipeline(NullBuilder(), ReplayRunner(cost)) as pipeline:
        with pytest.raises(InternalError, match="no job was submitted"):
            pipeline.next()


def test_a_broken_runner_is_an_error_of_next_not_a_hang():
    def broken(job):
        raise DeviceError("cuda(0)", "the device fell off the bus")

    with Pipeline(NullBuilder(), ReplayRunner(broken)) as pipeline:
        pipeline.submit(job(1))
        with pytest.raises(DeviceError, match="fell off the bus"):
            pipeline.next()


def test_results_are_logged_before_they_are_taken():
    with Pipeline(NullBuilder(), ReplayRunner(cost)) as pipeline:
        for n in range(5):
            pipeline.submit(job(n, n))
        end = time.monotonic() + 5
        while len(pipeline.database) < 5 and time.monotonic() < end:
            time.sleep(0.005)
        assert len(pipeline.database) == 5 and len(pipeline) == 5


class Machine:
    """A CPU that builds and runs: counts what overlaps, and slows down when told."""

    n_parallel = 2

    def __init__(self, build_seconds=0.0, run_seconds=0.0):
        self.build_seconds, self.run_seconds = build_seconds, run_seconds
        self.building = 0
        self.overlaps = 0
        self.runs = []
        self.slow = lambda n: 1.0
        self.lock = threading.Lock()

    def build(self, job):
        future = Future()

        def work():
            time.sleep(self.build_seconds)
            with self.lock:
                self.building -= 1
            if job.decisions["x"] == "unbuildable":
                future.set_result(Built(error="compile", message="refused"))
            else:
                source = Source("llvm", "", job.decisions["x"], (), ())
                future.set_result(Built(Artifact(source, b"")))

        with self.lock:
            self.building += 1
        threading.Thread(target=work).start()
        return future

    def run(self, run):
        self.overlaps += self.building > 0
        time.sleep(self.run_seconds)
        self.runs.append((run.job.decisions["x"], run.verify, run.race, run.best_seconds))
        seconds = float(run.job.decisions["cost"]) * self.slow(len(self.runs))
        future = Future()
        raced = run.race and seconds > 1.5 * (run.best_seconds or 1e9)
        future.set_result(
            RunResult((seconds,), raced, run.verify, device="cpu", seconds=self.run_seconds)
        )
        return future

    def pipeline(self, exclusive=True, **options):
        machine = self

        class Builder:
            n_parallel = 2
            submit = staticmethod(machine.build)

            def probe(self, target):
                pass

            def close(self):
                pass

        class Runner(Builder):
            n_parallel = 1
            submit = staticmethod(machine.run)

            def describe(self, target):
                return DeviceSpec(target.kind, shares_host=exclusive)

        return Pipeline(Builder(), Runner(), **options)


def named(x, seconds, trial=0):
    return Job(TASK, {}, None, decisions={"x": x, "cost": seconds}, trial=trial)


@pytest.mark.slow
def test_nothing_builds_while_a_cpu_kernel_is_timed():
    machine = Machine(build_seconds=0.02, run_seconds=0.01)
    with machine.pipeline(slice_seconds=0.05) as pipeline:
        jobs = [named(f"k{n}", 1.0, n) for n in range(14)]
        records = list(pipeline.measure(jobs, ahead=8))
    assert [r.trial for r in records] == list(range(14))
    assert machine.overlaps == 0
    timed = [name for name, verify, *_ in machine.runs if verify]
    assert sorted(timed) == sorted(f"k{n}" for n in range(14))


def test_slices_alternate_so_that_results_come_early():
    machine = Machine(build_seconds=0.03, run_seconds=0.001)
    with machine.pipeline(slice_seconds=0.05) as pipeline:
        for n in range(12):
            pipeline.submit(named(f"k{n}", 1.0, n))
        pipeline.next()
        assert 1 < len(pipeline.database) < 12


def test_failures_to_build_do_not_block():
    machine = Machine()
    with machine.pipeline() as pipeline:
        jobs = [named("unbuildable", 1.0, n) for n in range(3)] + [named("good", 1.0, 3)]
        errors = [r.result.error for r in pipeline.measure(jobs)]
    assert errors == ["compile"] * 3 + [None]


def test_the_race_is_against_the_best_of_the_task():
    machine = Machine()
    with machine.pipeline() as pipeline:
        jobs = [named("a", 2.0, 0), named("b", 1.0, 1), named("c", 5.0, 2)]
        records = list(pipeline.measure(jobs, ahead=1))
        assert [r.result.raced for r in records] == [False, False, True]
        assert [best for name, verify, _, best in machine.runs if verify] == [None, 2.0, 1.0]
        assert pipeline.best_seconds(TASK.key) == 1.0


def slice_of(machine, slow):
    """An incumbent, then one slice of three candidates on a machine of changing speed."""
    with machine.pipeline() as pipeline:
        list(pipeline.measure([named("best", 1.0)]))
        machine.slow = slow
        jobs = [named(x, s, n) for n, (x, s) in enumerate([("a", 1.1), ("b", 9.0), ("c", 0.9)])]
        return list(pipeline.measure(jobs)), pipeline.repeated_slices


def test_the_incumbent_frames_each_slice():
    machine = Machine()
    records, repeated = slice_of(machine, lambda n: 1.0)
    assert [x for x, *_ in machine.runs] == ["best", "best", "a", "b", "c", "best"]
    assert [r.seconds for r in records] == [1.1, 9.0, 0.9] and repeated == 0


def test_a_slice_in_which_the_machine_changed_is_repeated():
    machine = Machine()
    records, repeated = slice_of(machine, lambda n: 1.3 if n in (3, 4, 5, 6) else 1.0)
    # the candidate that lost its race is not worth a second look
    assert [x for x, *_ in machine.runs] == ["best", "best", "a", "b", "c", "best", "a", "c"]
    assert [r.seconds for r in records] == [1.1, 9.0 * 1.3, 0.9] and repeated == 1
    assert all(r.result.verified for r in records)


def test_a_second_look_that_fails_leaves_the_first_figure():
    class Stuck(Machine):
        def run(self, run):
            future = super().run(run)
            if run.job.decisions["x"] == "c" and not run.verify:
                future = Future()
                future.set_result(RunResult(error="timeout", message="10 s", seconds=10.0))
            return future

    records, repeated = slice_of(Stuck(), lambda n: 1.3 if n in (3, 4, 5, 6) else 1.0)
    assert repeated == 1 and [r.result.error for r in records] == [None] * 3
    assert [r.seconds for r in records] == [1.1, 9.0 * 1.3, 0.9 * 1.3]
    assert records[2].result.verified and records[2].result.run_s == 10.0


def test_on_a_slower_machine_the_race_is_fair():
    machine = Machine()
    with machine.pipeline() as pipeline:
        list(pipeline.measure([named("best", 1.0)]))
        machine.slow = lambda n: 2.0  # for good: no drift within the slice
        (record,) = pipeline.measure([named("a", 0.9)])
    assert not record.result.raced and pipeline.repeated_slices == 0


def test_final_takes_turns_and_replaces_lucky_figures():
    machine = Machine()
    with machine.pipeline() as pipeline:
        leaders = [named("lucky", 1.0, 0), named("steady", 1.1, 1)]
        list(pipeline.measure(leaders))
        assert pipeline.database.best(TASK).decisions["x"] == "lucky"
        machine.runs.clear()
        machine.slow = lambda n: 1.0 if n % 2 == 0 else 1.4
        records = pipeline.final(leaders, rounds=3)
        names = [(x, verify, race) for x, verify, race, _ in machine.runs]
        turn = [("lucky", False, False), ("steady", False, False)]
        assert names == [("lucky", True, False), ("steady", True, False), *turn, *turn]
        assert [len(r.result.costs) for r in records] == [3, 3]
        assert all(r.result.final and r.result.verified for r in records)
        assert pipeline.database.best(TASK).decisions["x"] == "steady"
        pipeline.submit(named("x", 1.0))
        with pytest.raises(InternalError, match="1 jobs are on their way"):
            pipeline.final(leaders)


class Losing(Machine):
    """Loses its device under the candidate `bad`, each of the first `times` that it runs."""

    def __init__(self, bad, times, back=True):
        super().__init__()
        self.bad, self.times, self.back = bad, times, back
        self.gone = False
        self.probes = 0

    def run(self, run):
        lost = run.job.decisions["x"] == self.bad and self.times > 0
        if not lost and not self.gone:
            return super().run(run)
        self.times -= lost
        self.gone |= self.back
        future = Future()
        future.set_result(RunResult(error="run", message="device lost", fatal=True))
        return future

    def pipeline(self, exclusive=True, **options):
        made = super().pipeline(exclusive, **options)
        made.runner.probe = self.probe
        return made

    def probe(self, target):
        """Gone when first asked, then back."""
        self.probes += 1
        if self.gone:
            self.gone = False
            raise DeviceError("cuda(0)", "no such device", "Reboot.")


def outcomes(pipeline, jobs):
    """Error or None per record, and how often the device was lost."""
    for n, (x, s) in enumerate(jobs):
        pipeline.submit(named(x, s, n))
    found, losses = [], 0
    while len(pipeline):
        try:
            found.append(pipeline.next().result.error)
        except DeviceLost as error:
            assert "(cuda(0): no such device). Reboot." in str(error)
            losses += 1
    return found, losses


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize(
    ("times", "error", "losses"),
    [(1, None, 1), (2, "run", 2)],  # innocent until it happens again
)
def test_what_was_tried_when_the_device_went_is_tried_again(exclusive, times, error, losses):
    machine = Losing("b", times)
    with machine.pipeline(exclusive) as pipeline:
        jobs = [("a", 1.0), ("b", 0.9), ("b", 5.0), ("c", 1.1)]  # the second b is a twin
        assert outcomes(pipeline, jobs) == ([None, error, error, None], losses)
        assert len(pipeline.database) == 4


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_fault_that_leaves_the_device_alone_is_recorded(exclusive):
    machine = Losing("b", 2, back=False)
    with machine.pipeline(exclusive) as pipeline:
        assert outcomes(pipeline, [("a", 1.0), ("b", 0.9)]) == ([None, "run"], 0)
        assert machine.probes == 2  # after each failure, the second one as well


def test_leaders_are_not_refuted_by_a_lost_device():
    machine = Losing("a", 0)
    with machine.pipeline() as pipeline:
        leaders = [named("a", 1.0, 0), named("b", 1.1, 1)]
        list(pipeline.measure(leaders))
        machine.times = 1
        with pytest.raises(DeviceLost):
            pipeline.final(leaders)
        assert [r.result.error for r in pipeline.final(leaders)] == [None, None]
        assert pipeline.database.counts().failed == 0


@pytest.mark.slow
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("ahead", [1, 3, 8])
def test_equal_programs_run_once(exclusive, ahead):
    """The machine names programs by `x` alone, so what "cost" says of a twin is never heard."""
    machine = Machine(build_seconds=0.01, run_seconds=0.01)
    names = "abaacba"
    with machine.pipeline(exclusive=exclusive, slice_seconds=0.02) as pipeline:
        jobs = [named(x, 1.0 + n, n) for n, x in enumerate(names)]
        records = list(pipeline.measure(jobs, ahead=ahead))
        assert (
            [r.trial for r in records]
            == list(range(7))
            == sorted(r.trial for r in pipeline.database)
        )
    assert [r.decisions for r in records] == [j.decisions for j in jobs]
    assert sorted(x for x, verify, *_ in machine.runs if verify) == ["a", "b", "c"]
    ran = {r.decisions["x"]: r for r in records if r.result.same_as is None}
    for record in records:
        first = ran[record.decisions["x"]]
        assert record.result.costs == first.result.costs and record.result.verified
        if record is not first:
            assert (record.result.same_as, record.result.run_s) == (first.trial, 0)
    if ahead == 1:
        assert [r.result.same_as for r in records] == [None, None, 0, 0, None, 1, 0]
    with Pipeline(NullBuilder(), ReplayRunner(pipeline.database)) as replayed:
        again = list(replayed.measure(jobs))
    assert [r.result.same_as for r in again] == [r.result.same_as for r in records]


@pytest.mark.slow
def test_equal_programs_do_not_make_the_sequence_depend_on_delays():
    seen = []
    for seed in range(4):
        rng = random.Random(seed)
        ran = []

        def delay(job, rng=rng, seed=seed):
            return rng.random() * 0.01 if seed else 0.0

        class Builder(NullBuilder):
            def _build(self, job):
                super()._build(job)
                text = str(job.decisions["x"] // 50)
                return Built(Artifact(Source("llvm", text, "f", (), ()), b""))

        def of_program(job, ran=ran):
            ran.append(job.decisions["x"] // 50)
            return RunResult(costs=(1.0 + job.decisions["x"] // 50 * 37 % 11,), verified=True)

        builder, runner = Builder(4, delay), ReplayRunner(of_program, 2, delay)
        with Pipeline(builder, runner) as pipeline:
            records = search(pipeline)
        seen.append(outcome(records))
        assert len(ran) == len(set(ran)) < len(records)
        with Pipeline(NullBuilder(), ReplayRunner(pipeline.database)) as replayed:
            assert outcome(search(replayed)) == seen[0]
        builder.close()
        runner.close()
    assert seen[1:] == seen[:1] * 3


def test_a_lucky_figure_does_not_survive_in_a_twin():
    machine = Machine()
    with machine.pipeline() as pipeline:
        leaders = [named("lucky", 1.0, 0), named("steady", 1.1, 1)]
        list(pipeline.measure([*leaders, named("lucky", 1.0, 2)], ahead=1))
        machine.slow = lambda n: 1.0 if n % 2 == 0 else 1.4
        machine.runs.clear()
        pipeline.final(leaders)
        assert pipeline.database.best(TASK).decisions["x"] == "steady"


def test_an_interrupt_keeps_what_was_measured(monkeypatch):
    machine = Machine()
    pipeline = machine.pipeline()
    for n in range(4):
        pipeline.submit(named(f"k{n}", 1.0, n))
    tried = pipeline._try

    def interrupted(slot, *args, **options):
        if slot.number == 2:
            raise KeyboardInterrupt
        return tried(slot, *args, **options)

    monkeypatch.setattr(pipeline, "_try", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pipeline.next()
    assert [r.decisions["x"] for r in pipeline.database] == ["k0", "k1"]
    pipeline.close()


def test_a_full_disk_does_not_stop_the_search(tmp_path, monkeypatch):
    heard = []
    database = Database(tmp_path / "log.jsonl")
    monkeypatch.setattr("tilewright.measure.database.os.write", _no_space)
    with Pipeline(NullBuilder(), ReplayRunner(cost), database, on_error=heard.append) as pipeline:
        records = list(pipeline.measure(job(n, n) for n in range(5)))
    assert len(records) == len(database) == 5 and len(heard) == 1
    assert database.unwritten == 5


def _no_space(fd, data):
    raise OSError(28, "No space left on device")


def test_what_measures_has_all_that_the_loop_uses():
    for builder in (LocalBuilder(), NullBuilder()):
        assert isinstance(builder, Builder)
    for runner in (LocalRunner(), ReplayRunner(cost)):
        assert isinstance(runner, Runner)
    asked = {name for name in vars(Measurer) if not name.startswith("_")}
    used = {
        "database", "devices", "helper", "repeats", "start", "submit", "next", "forget", "final",
        "describe",
    }  # fmt: skip
    assert asked == used
    assert asked <= set(dir(Pipeline(NullBuilder(), ReplayRunner(cost))))


def test_jobs_that_are_forgotten_leave_the_pipeline_as_new():
    with Pipeline(NullBuilder(2, lambda job: 0.02), ReplayRunner(cost)) as pipeline:
        for n in range(6):
            pipeline.submit(job(n, n))
        pipeline.forget()
        assert len(pipeline) == 0
        records = list(pipeline.measure(job(n, n) for n in range(6, 10)))
        assert [r.trial for r in records] == [6, 7, 8, 9]
        pipeline.final([job(11, 11)])
