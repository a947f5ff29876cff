"""AutoTVM's names: templates called directly, logs and their readers, options and their errors."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.replay import NullBuilder, ReplayRunner
from tilewright import cpu, te
from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.driver.build import build
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job, RunResult
from tilewright.measure.record import Record, Result, make_record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright.te.tensor import Tensor
from tilewright_tvm import autotvm, nd
from tilewright_tvm.autotvm import callback, record
from tilewright_tvm.autotvm.measure.measure import MeasureErrorNo, Runner
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult, measure_result
from tilewright_tvm.target import Target

NAME = "tests/autotvm/product"
CPU = Target("llvm -num-cores=2 -vector-bytes=32")
SHAPE = (12, 16, 8)


@autotvm.template(NAME)
def product(n: int, m: int, k: int) -> tuple[Schedule, list[Tensor]]:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    s = te.create_schedule([c.op])
    cfg = autotvm.get_config()
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, num_outputs=2)
    cfg.define_split("tile_j", j, num_outputs=2)
    cfg.define_knob("vectorize", [0, 1])
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(io, jo, s[c].op.reduce_axis[0], ii, ji)
    if cfg["vectorize"].val:
        s[c].vectorize(ji)
    return s, [a, b, c]


@pytest.fixture
def task() -> Task:
    return autotvm.task.create(NAME, args=SHAPE, target=CPU)


def made(task: Task, seconds: float, *, error: Any = None, **changes: Any) -> Record:
    """A record as a tuner would write it, of the configuration with `changes`."""
    decisions = {"tile_i": [3, 4], "tile_j": [2, 8], "vectorize": 1, **changes}
    steps: list[Any] = []
    if error is None:
        space = task.config_space
        steps = task.sketches[0].close(space.index_of(decisions)).to_json()
    result = Result(
        costs=() if error else (seconds,), error=error, message="it broke" if error else "",
        build_s=0.25, run_s=0.5, verified=error is None,
    )  # fmt: skip
    return make_record(
        task_id(task), result, origin=f"template:{NAME}", decisions=decisions, steps=steps
    )


def trial(task: Task, found: Record) -> tuple[list[MeasureInput], list[MeasureResult]]:
    """What a tuner hands to its callbacks."""
    space = task.config_space
    config = space.get(space.index_of(found.decisions))
    return [MeasureInput(task.target, task, config)], [measure_result(found)]


def written(task: Task, log: Path, *records: Record) -> Path:
    write = callback.log_to_file(log)
    for each in records:
        write(None, *trial(task, each))
    return log


def splits(schedule: Schedule) -> list[int]:
    """The factors of a schedule's splits, in order."""
    return [step.factor for step in schedule.steps if step.verb == "split"]  # type: ignore[attr-defined]


# -- templates -------------------------------------------------------------------------------------


def test_a_template_called_directly_uses_the_first_entities() -> None:
    with Target("llvm"):
        schedule, tensors = product(*SHAPE)
    assert splits(schedule) == [1, 1] and len(tensors) == 3
    assert not any(step.verb == "annotate" for step in schedule.steps)


def test_a_template_called_directly_without_a_target_has_its_defaults(
    task: Task, tmp_path: Path
) -> None:
    log = written(task, tmp_path / "log", made(task, 1e-3))
    with autotvm.apply_history_best(log):
        assert splits(product(*SHAPE)[0]) == [1, 1]


def test_history_chooses_the_best_record_of_the_workload(task: Task, tmp_path: Path) -> None:
    log = written(
        task, tmp_path / "log",
        made(task, 3e-3, tile_i=[12, 1]), made(task, 1e-3), made(task, 2e-3, tile_j=[1, 16]),
        made(task, 0.0, error="compile", tile_i=[1, 12]),
    )  # fmt: skip
    with autotvm.apply_history_best(log), CPU:
        schedule, tensors = product(*SHAPE)
        assert splits(schedule) == [4, 8]
        other, _ = product(8, 8, 8)  # another workload: no record
        assert splits(other) == [1, 1]
        func = build(schedule, tensors)
    with autotvm.apply_history_best(log), Target("opencl"):  # another target: no record
        assert splits(product(*SHAPE)[0]) == [1, 1]
    n, m, k = SHAPE
    rng = np.random.default_rng(0)
    a, b = rng.random((n, k), np.float32), rng.random((k, m), np.float32)
    out = nd.empty((n, m), device=cpu())
    func(nd.array(a), nd.array(b), out)
    assert np.allclose(out.numpy(), a @ b, rtol=1e-5)


def test_the_inner_history_counts_first_and_the_outer_one_where_it_knows_nothing(
    task: Task, tmp_path: Path
) -> None:
    small = autotvm.task.create(NAME, args=(8, 8, 8), target=CPU)
    outer = written(task, tmp_path / "outer", made(task, 1e-6, tile_i=[6, 2]))
    written(small, outer, made(small, 1e-6, tile_i=[4, 2], tile_j=[4, 2]))
    inner = written(task, tmp_path / "inner", made(task, 1e-3))
    with autotvm.apply_history_best(outer), autotvm.apply_history_best(inner), CPU:
        assert splits(product(*SHAPE)[0]) == [4, 8]
        assert splits(product(8, 8, 8)[0]) == [2, 2]


def test_query_gives_the_configuration_and_prints_as_users_know_it(
    task: Task, tmp_path: Path
) -> None:
    log = written(task, tmp_path / "log", made(task, 1e-3))
    history = autotvm.apply_history_best(log)
    best = history.query(task.target, task.workload)
    assert best is not None and best.cost == 1e-3
    index = task.config_space.index_of(best)
    text = "[('tile_i', [3, 4]), ('tile_j', [2, 8]), ('vectorize', 1)]"
    assert repr(best) == f"{text},,None,{index}"
    assert history.query(task.target, (NAME, 8, 8, 8)) is None


def test_records_of_other_ways_to_schedule_are_passed_over(task: Task) -> None:
    """A template reads the configurations it wrote: others have other knobs."""
    known = Database()
    known.append(made(task, 1e-3))
    other = Result(costs=(1e-6,), verified=True)
    known.append(make_record(task_id(task), other, origin="rules:0", decisions={"x": 1}))
    best = autotvm.apply_history_best(known).query(task.target, task.workload)
    assert best is not None and best.cost == 1e-3


def test_a_missing_log_is_told() -> None:
    with pytest.raises(RecordError, match="no-such-file"):
        autotvm.apply_history_best("no-such-file")


def test_a_template_must_exist() -> None:
    with pytest.raises(SpaceError, match=rf"no template of that name. Registered: .*{NAME}"):
        autotvm.task.create("tests/none", args=(1,), target="llvm")


# -- tasks and spaces ------------------------------------------------------------------------------


def test_what_a_task_tells(task: Task) -> None:
    assert task.workload == (NAME, *SHAPE) and task.name == NAME and task.args == SHAPE
    assert task.flop == 2 * 12 * 16 * 8
    assert task.target == CPU and len(task.config_space) == 6 * 5 * 2
    assert repr(task) == f"Task(name={NAME}, args={SHAPE}, target={CPU})"


def test_flops_may_be_given_by_the_template() -> None:
    @autotvm.template("tests/autotvm/counted")
    def counted(n: int) -> tuple[Schedule, list[Tensor]]:
        a = te.placeholder((n,), name="a")
        b = te.compute((n,), lambda i: te.exp(a[i]), name="b")
        autotvm.get_config().add_flop(20 * n)
        return te.create_schedule([b.op]), [a, b]

    assert autotvm.task.create("tests/autotvm/counted", args=(8,), target="llvm").flop == 160


def test_a_space_is_usable_alone() -> None:
    cfg = autotvm.ConfigSpace()
    handles = cfg.define_split("tile", 64, num_outputs=3)
    cfg.define_knob("flag", ["no", "yes"])
    assert len(handles) == 3 and len(cfg) == 28 * 2
    last = cfg.get(len(cfg) - 1)
    assert last["flag"].val == "yes" and np.prod(last["tile"].size) == 64
    assert cfg.index_of(last) == len(cfg) - 1
    assert "0 tile: Split(policy=factors, product=64, num_outputs=3) len=28" in str(cfg)
    with pytest.raises(SpaceError, match="flag"):
        last["other"]


def test_outside_a_template_there_is_an_empty_space() -> None:
    assert len(autotvm.get_config().space_map) == 0


# -- logs ------------------------------------------------------------------------------------------


def test_a_log_keeps_every_trial_and_pick_best_keeps_the_best(task: Task, tmp_path: Path) -> None:
    small = autotvm.task.create(NAME, args=(8, 8, 8), target=CPU)
    log, best = tmp_path / "all.log", tmp_path / "best.log"
    first = [made(task, 2e-3), made(task, 1e-3, vectorize=0), made(task, 0.0, error="timeout")]
    written(task, log, *first)
    written(small, log, made(small, 5e-4, tile_i=[2, 4], tile_j=[1, 8]))
    read = list(record.load_from_file(log))
    assert [r.candidate for r in read[:3]] == [r.candidate for r in first]
    assert [r.result for r in read[:3]] == [r.result for r in first]
    assert read[2].result.message == "it broke"
    with CPU:
        pairs = [(inp.config, result) for inp, result in record.load_from_file(log)]
        assert read[0][0].config.to_json_dict() == pairs[0][0].to_json_dict()
    assert [result.record for _, result in pairs] == read and pairs[2][1].error_no
    assert [config["vectorize"].val for config, _ in pairs[:2]] == [1, 0]
    assert pairs[3][0]["tile_i"].size == [2, 4] and pairs[3][0]["tile_j"].size == [1, 8]
    assert record.pick_best(log, best) == 2
    assert [r.seconds for r in record.load_from_file(best)] == [1e-3, 5e-4]
    written(task, log, made(task, 1e-4))
    assert record.pick_best(log, best) == 2  # merged into what was there
    assert min(r.seconds for r in record.load_from_file(best)) == 1e-4
    with autotvm.apply_history_best(best), CPU:
        assert splits(product(*SHAPE)[0]) == [4, 8]


def test_a_damaged_line_costs_itself_only(task: Task, tmp_path: Path) -> None:
    log = written(task, tmp_path / "log", made(task, 1e-3))
    log.write_text(log.read_text() + '{"kind": "record", "v"\n')
    told = r"log '.*log': skipped 1 line \(\d+\): not JSON, or cut off"
    with pytest.warns(RuntimeWarning, match=told):
        assert len(list(record.load_from_file(log))) == 1
    with pytest.warns(RuntimeWarning, match=told):
        autotvm.apply_history_best(log)


ANSOR = '{"i": [["[\\"x\\"]", "llvm"], [[], []]], "r": [[1e-3], 0, 1.0, 1], "v": "v0.6"}\n'
AUTOTVM = '{"input": ["llvm", "x", [], {}], "config": {}, "result": [[1], 0, 1, 1], "v": 0.2}\n'


def test_a_log_of_tvm_without_a_line_of_use_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "old"
    log.write_text(ANSOR)
    with pytest.raises(RecordError, match="a line of TVM's auto-scheduler log.*records import"):
        autotvm.apply_history_best(log)
    for line in (ANSOR, AUTOTVM):
        log.write_text(line)
        with pytest.raises(RecordError, match="no line can be used.*records import"):
            record.load_from_file(log)


def test_a_tuner_learns_from_a_log(task: Task, tmp_path: Path) -> None:
    records = [made(task, 1e-3, tile_i=[12 // f, f]) for f in (1, 2, 3, 4, 6, 12)]
    log = written(task, tmp_path / "log", *records)
    tuner = autotvm.tuner.XGBTuner(task)
    tuner.load_history(record.load_from_file(log))
    space = task.config_space
    known = {space.index_of(r.decisions) for r in records}
    assert not known & {space.index_of(c) for c in tuner.next_batch(40)}
    tuner.model.close()


def test_an_operator_that_nobody_tuned_takes_the_fastest_similar_record(
    task: Task, tmp_path: Path
) -> None:
    small = autotvm.task.create(NAME, args=(7, 5, 8), target=CPU)
    log = written(
        task, tmp_path / "log",
        made(task, 3e-3, tile_i=[12, 1], vectorize=0), made(task, 1e-3),
        made(task, 2e-3, tile_j=[16, 1], vectorize=0),
        made(task, 0.0, error="wrong", tile_i=[1, 12]),
    )  # fmt: skip
    written(small, log, made(small, 1e-9, tile_i=[7, 1], tile_j=[1, 5], vectorize=0))
    for known in (
        record.load_from_file(log),
        [(g, r) for x in record.load_from_file(log) if x.task.args == [*SHAPE]
         for g, r in zip(*trial(task, x), strict=True)],
        trial(task, made(task, 1e-3))[0],
    ):  # fmt: skip
        cfg = autotvm.FallbackConfigEntity()
        cfg.define_split("tile_i", 24, num_outputs=2)
        cfg.define_split("tile_j", 48, num_outputs=2)
        cfg.define_knob("vectorize", [0, 1])
        cfg.fallback_with_reference_log(known)
        assert (cfg["tile_i"].size, cfg["tile_j"].size) == ([6, 4], [6, 8])
        assert cfg["vectorize"].val == 1


def test_logs_are_json() -> None:
    with pytest.raises(SpaceError, match="only JSON lines are written"):
        callback.log_to_file("log", protocol="pickle")


# -- progress --------------------------------------------------------------------------------------

BAR = re.compile(
    r"\r\[Task  1/12\]  Current/Best: +(\d+\.\d\d)/ *(\d+\.\d\d) ([kMGT]?)FLOPS "
    r"\| Progress: \((\d+)/(\d+)\) \| \d+\.\d\d s( Done\.\n)?"
)


def bar(
    task: Task, capsys: pytest.CaptureFixture[str], si_prefix: str = "G"
) -> list[re.Match[str]]:
    """Two good trials and one that failed, of three."""
    show = callback.progress_bar(3, prefix=f"[Task {1:2d}/{12:2d}] ", si_prefix=si_prefix)
    best = 0.0
    for found in (made(task, 2e-6), made(task, 1e-6), made(task, 0.0, error="run")):
        best = max(best, task.flop / found.seconds)
        show(SimpleNamespace(best_flops=best), *trial(task, found))
    show.finish()  # type: ignore[attr-defined]
    lines = re.findall(r"\r[^\r]*", capsys.readouterr().out)
    matches = [BAR.fullmatch(line) for line in lines]
    assert len(lines) == 3 and None not in matches, lines
    return matches  # type: ignore[return-value]


def test_the_progress_bar(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    lines = bar(task, capsys)
    assert [m[1] for m in lines] == ["1.54", "3.07", "0.00"]  # 3072 operations in 2 and 1 us
    assert [m[2] for m in lines] == ["1.54", "3.07", "3.07"]
    assert [m[4] for m in lines] == ["1", "2", "3"] and {m[5] for m in lines} == {"3"}
    assert [bool(m[6]) for m in lines] == [False, False, True]


def test_the_progress_bar_in_other_units(task: Task, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = bar(task, capsys, "M")
    assert (first[1], first[3]) == ("1536.00", "M")
    with pytest.raises(SpaceError, match="no such prefix"):
        callback.progress_bar(3, si_prefix="X")


@pytest.mark.parametrize(
    ("n_trial", "early_stopping", "tried"),
    [(1000, None, 60), (1000, 5, None), (12, None, 12)],  # the space is exhausted; no gain; all
)
def test_the_progress_bar_is_closed_once_whatever_ends_the_run(
    n_trial: int, early_stopping: int | None, tried: int | None, task: Task,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def measured(job: Job) -> RunResult:
        return RunResult(costs=(1e-6,), verified=True)

    builder, runner = NullBuilder(2), ReplayRunner(measured)
    tuner = autotvm.tuner.GridSearchTuner(task)
    report = tuner.tune(
        n_trial, {"builder": builder, "runner": runner}, early_stopping=early_stopping,
        callbacks=[callback.progress_bar(n_trial)],
    )  # fmt: skip
    builder.close()
    runner.close()
    out = capsys.readouterr().out
    assert out.endswith(" Done.\n") and out.count("Done.") == out.count("\n") == 1
    assert f"Progress: ({report.trials}/{n_trial})" in out.rpartition("\r")[2]
    assert report.trials == tried if tried else 5 < report.trials < 60


# -- runners of one's own -------------------------------------------------------------------------


class Counting(Runner):
    """Costs by the index of a configuration; those of `bad` fail."""

    def __init__(self, bad: tuple[int, ...] = (), result: Any = None) -> None:
        super().__init__(1, 2)
        self.bad, self.result, self.seen = bad, result, list[int]()

    def run(self, measure_inputs: Any, build_results: Any) -> Any:
        (given,), (built,) = measure_inputs, build_results
        self.seen.append(given.config.index)
        assert built.arg_info == [((12, 8), "float32"), ((8, 16), "float32"), ((12, 16), "float32")]
        if self.result is not None:
            return self.result
        if given.config.index in self.bad:
            return [MeasureResult(("broken",), MeasureErrorNo.RUN_TIMEOUT, 0.1, 1.0)]
        return [MeasureResult((1e-3 / (1 + given.config.index),), 0, 0.1, 1.0)]


@pytest.mark.parametrize("name", ["RandomTuner", "GridSearchTuner"])
def test_a_runner_of_ones_own_is_believed_by_the_tuner_alone(
    name: str, task: Task, tmp_path: Path
) -> None:
    log, builder, runner = tmp_path / "log.jsonl", NullBuilder(2), Counting(bad=(12,))
    tuner = getattr(autotvm.tuner, name)(task, range_idx=(8, 15))
    assert (tuner.range_length, tuner.index_offset, tuner.space) == (8, 8, task.config_space)
    option = autotvm.measure_option(builder, runner)
    tuner.tune(8, option, callbacks=[callback.log_to_file(log)])
    builder.close()
    runner.close()
    assert sorted(runner.seen) == sorted(tuner.visited) == list(range(8, 16))
    assert tuner.counter == 8 and not tuner.has_next()
    assert tuner.best_config.index == 15 and tuner.best_flops == pytest.approx(task.flop * 16e3)
    written = list(Database(log))
    assert {r.result.error for r in written} == {None, "timeout"}
    assert not any(r.result.verified for r in written)
    history = autotvm.apply_history_best(log)
    assert history.query(CPU, task.workload).index == 15  # good for the template, ...
    assert history.lookup(task.dag, CPU) is None  # ... but not for networks


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ([], "it gave"), (["x"], "it gave"), ([MeasureResult((0.0,), 0, 0, 0)], "costs of"),
        ([MeasureResult((float("nan"),), 0, 0, 0)], "costs of"), (3, "it gave"),
    ],
)  # fmt: skip
def test_what_a_runner_may_not_give(result: Any, reason: str, task: Task) -> None:
    builder, runner = NullBuilder(2), Counting(result=result)
    with pytest.raises(SpaceError, match=f"Counting.run: {reason}"):
        autotvm.tuner.RandomTuner(task).tune(4, autotvm.measure_option(builder, runner))
    builder.close()
    runner.close()


@pytest.mark.parametrize("options", [{"timeout": 0}, {"n_parallel": 0}, {"timeout": "long"}])
def test_refused_options_of_a_runner(options: dict[str, Any]) -> None:
    class Own(Counting):
        def __init__(self) -> None:
            Runner.__init__(self, **options)

    with pytest.raises(SpaceError, match="Runner"):
        Own()


def test_results_made_by_hand_are_logged_and_recommended(task: Task, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    inputs = [MeasureInput(CPU, task, task.config_space.get(i)) for i in range(3)]
    results = [MeasureResult((cost,), 0, 0.0, 1.0) for cost in (1.0, 2.0, 0.5)]
    callback.log_to_file(log)(None, inputs, results)
    for source in (log, list(zip(inputs, results, strict=True))):
        assert record.ApplyHistoryBest(source).query(CPU, task.workload).index == 2


# -- options ---------------------------------------------------------------------------------------


def test_measure_option() -> None:
    option = autotvm.measure_option(builder="local", runner="local")
    assert isinstance(option["builder"], autotvm.LocalBuilder)
    assert isinstance(option["runner"], autotvm.LocalRunner)
    runner = autotvm.LocalRunner(repeat=3, min_repeat_ms=100, timeout=4)
    assert autotvm.measure_option(builder=option["builder"], runner=runner)["runner"] is runner


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: autotvm.measure_option(builder="remote", runner="local"),
            r"measure_option\(builder='remote'\): not a builder. Use autotvm.LocalBuilder\(\)",
        ),
        (
            lambda: autotvm.measure_option(builder="local", runner=3),
            r"measure_option\(runner=3\): not a runner",
        ),
        (lambda: autotvm.LocalBuilder(timeout=0), r"LocalBuilder\(timeout=0\): it must be pos"),
        (lambda: autotvm.LocalBuilder(n_parallel=0), r"LocalBuilder\(n_parallel=0\)"),
        (lambda: autotvm.LocalRunner(number=0), r"LocalRunner\(number=0, repeat=3\): both must"),
        (lambda: autotvm.LocalRunner(timeout=-1), r"LocalRunner\(timeout=-1\)"),
    ],
)
def test_refused_options(make: Any, reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason):
        make()


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        (autotvm.callback, "Moniter", "no attribute 'Moniter'"),
        (autotvm.record, "encoder", "no attribute 'encoder'"),
        (autotvm, "LocalRuner", "autotvm has no attribute 'LocalRuner'"),
    ],
)
def test_names_that_are_not_there(module: Any, name: str, reason: str) -> None:
    with pytest.raises(AttributeError, match=reason):
        getattr(module, name)


def test_numbers_with_prefixes() -> None:
    from tilewright_tvm.autotvm import utils

    for number, prefix, expected in ((1024, "k", 1.024), (3e-6, "\N{MICRO SIGN}", 3), (7, " ", 7)):
        assert utils.format_si_prefix(number, prefix) == pytest.approx(expected)
    with pytest.raises(SpaceError, match=r"there is no such prefix. Use one of y z a f p n"):
        utils.format_si_prefix(1, "q")
