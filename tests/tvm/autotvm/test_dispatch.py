"""Which configuration a kernel gets: logs of AutoTVM, contexts, templates in two parts, lines."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from graph.small import close_to_reference, database_of, residual
from tilewright import te, topi
from tilewright.base.errors import ModelError, RecordError, SpaceError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import import_lines
from tilewright.measure.record import Result, make_record
from tilewright.network.extract import fused_tasks
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor
from tilewright_tvm import autotvm, relay
from tilewright_tvm.autotvm import callback, record
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult, measure_result

CPU = Target("llvm -num-cores=2 -vector-bytes=32")
CONV = [["TENSOR", [1, 8, 6, 6], "float32"], ["TENSOR", [8, 8, 3, 3], "float32"],
        [1, 1], [1, 1, 1, 1], [1, 1]]  # fmt: skip
KNOBS = {"tile_ic": [-1, 4], "tile_oc": [-1, 8], "tile_ow": [-1, 4], "unroll_kw": True}


def line(
    name: str = "conv2d_NCHWc.x86", args: Any = None, target: str = "llvm -keys=cpu -link-params=0",
    seconds: float = 1e-3, error: int = 0, only: Any = None, **knobs: Any,
) -> str:  # fmt: skip
    """As TVM wrote it.  only: instead of the knobs of the convolution"""
    chosen = only or KNOBS | knobs
    entity = [[n, "sp" if isinstance(v, list) else "ot", v] for n, v in chosen.items()]
    return json.dumps({
        "input": [target, name, args or [*CONV, "NCHW", "NCHW", "float32"], {}],
        "config": {"index": 7, "code_hash": None, "entity": entity},
        "result": [[seconds], error, 1.5, 1.7e9], "version": 0.2, "tvm_version": "0.10.0",
    })  # fmt: skip


def written(path: Path, *lines: str) -> str:
    path.write_text("".join(one + "\n" for one in lines))
    return str(path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Two configurations of the 3x3 convolutions of the network, and a dense layer for CUDA."""
    dense = [["TENSOR", [1, 16], "float32"], ["TENSOR", [10, 16], "float32"], None, "float32"]
    cuda = line(
        "dense_small_batch.gpu", dense, "cuda -keys=cuda,gpu -arch=sm_75", only={"tile_k": [-1, 4]}
    )
    fast = line(seconds=1e-4, tile_ow=[-1, 3])
    return written(tmp_path / "old.json", "# kept", line(), fast, line(error=4), cuda)


def conv_task() -> Task:
    return autotvm.create("conv2d_NCHWc.x86", (*CONV, "NCHW", "NCHW", "float32"), "llvm")


# -- logs of AutoTVM -------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:log.*skipped 1 line:RuntimeWarning")
def test_a_log_of_autotvm_answers_with_its_best_configuration(log: str) -> None:
    task = conv_task()
    found = autotvm.apply_history_best(log).query("llvm", task.workload)
    assert found is not None and found.cost == 1e-4
    values = {name: entity.value for name, entity in found.items()}
    assert values == {
        "tile_ic": [2, 4], "tile_oc": [1, 8], "tile_ow": [2, 3], "unroll_kw": True
    }  # fmt: skip
    assert autotvm.apply_history_best(log).query("cuda", task.workload) is None


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:log.*skipped 1 line:RuntimeWarning")
@pytest.mark.parametrize("entered", [True, False])
def test_a_network_is_built_from_a_log_of_autotvm_and_verified(log: str, entered: bool) -> None:
    mod, params = residual()
    if entered:
        with autotvm.apply_history_best(log):
            lib = relay.build(mod, "llvm", params)
    else:
        lib = relay.build(mod, "llvm", params, schedules=log)
    (told,) = (note for note in lib.report.notes if "AutoTVM" in note)
    assert told.startswith("3 configurations of AutoTVM's logs; 1 line") and "failed in" in told
    sources = {k.label: k.source for k in lib.report.kernels}
    taken = [label for label, source in sources.items() if source == "record"]
    assert taken and all("8x8x3x3 1x1" in label for label in taken)
    assert all(k.verified for k in lib.report.kernels)
    close_to_reference(lib)


def test_what_cannot_be_used_is_counted_and_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    some = written(tmp_path / "some", line(), line(error=4), line(target="vulkan"), "{")
    with pytest.warns(RuntimeWarning, match=r"1 line .*failed in TVM.*1 line .*target kind"):
        autotvm.apply_history_best(some)
    none = written(tmp_path / "none", line(error=4))
    with pytest.raises(RecordError, match="no line can be used: 1 line .*failed in TVM: running"):
        autotvm.apply_history_best(none)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "spoiled",
    [{"name": "conv2d_NCHWc.unknown"}, {"args": [1]}, {"tile_ic": [-1, 5]}, {"more": 1},
     {"args": [["TENSOR", [1], "float32"], 3]}],
    ids=["template", "arguments", "entity", "knob", "tensors"],
)  # fmt: skip
def test_a_line_of_another_template_or_of_other_knobs_is_passed_over(
    spoiled: dict[str, Any], tmp_path: Path
) -> None:
    mod, params = residual()
    path = written(tmp_path / "old", line(**spoiled))
    lib = relay.build(mod, "llvm", params, autotvm.apply_history_best(path), verify=False)
    assert {k.source for k in lib.report.kernels} == {"default"}


def test_lines_become_records_of_the_kernels_that_have_their_anchor(log: str) -> None:
    mod, params = residual()
    tasks = fused_tasks(mod, params, "llvm", include_simple=True)
    database = Database()
    report = import_lines(Path(log).read_text().splitlines(), database, Workloads(tasks=tasks))
    names = {task.name for task in report.tasks.values()}
    assert {"conv2d_NCHWc.x86", "conv2d_nchw+add+relu", "dense_small_batch.gpu"} <= names
    assert sum(report.unusable.values()) == 1
    fused = next(r for r in database if r.task.name == "conv2d_nchw+add+relu")
    assert fused.decisions["tile_oc"] == [1, 8] and fused.steps
    assert {r.task.dag for r in database} <= {
        *(t.key for t in tasks),
        *(r.dag for r in report.tasks),
    }


def test_open_files_pairs_and_lists_are_sources_too(log: str, tmp_path: Path) -> None:
    task = conv_task()
    config = task.config_space.get(3)
    own = record.encode(
        MeasureInput(task.target, task, config), MeasureResult((2e-5,), 0, 1.0, 5.0)
    )
    both = autotvm.apply_history_best([io.StringIO(own + "\n"), io.BytesIO(line().encode())])
    assert len(both.database) == 1 and len(both.foreign) == 1
    pair = record.decode(line(seconds=3e-6))
    found = autotvm.apply_history_best([pair]).query("llvm", task.workload)
    assert found is not None and found.cost == 3e-6
    history = autotvm.ApplyHistoryBest([pair])
    history.load(written(tmp_path / "more", line(seconds=1e-6, tile_ow=[-1, 2])))
    assert history.query("llvm", task.workload)["tile_ow"].size == [3, 2]
    with pytest.raises(RecordError, match="neither a log nor records"):
        autotvm.apply_history_best([3])


# -- contexts --------------------------------------------------------------------------------------


def test_contexts_nest_and_the_outermost_has_the_usual_configuration(
    log: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, config = conv_task(), conv_task().config_space.get(5)
    current = autotvm.DispatchContext.current
    with caplog.at_level(logging.WARNING, "autotvm"):
        assert current.query("llvm", ("tests/unheard", 1)).is_fallback
        current.query("llvm", ("tests/unheard", 1))
    assert len(caplog.records) == 1 and "Cannot find config for" in caplog.text
    monkeypatch.setattr(autotvm.GLOBAL_SCOPE, "silent", True)
    with caplog.at_level(logging.WARNING, "autotvm"):
        usual = current.query("llvm", ("tests/unheard", 2))
    assert len(caplog.records) == 1
    assert autotvm.DispatchContext.current.query("llvm", ("tests/unheard", 2)) is usual
    autotvm.task.clear_fallback_cache("llvm", ("tests/unheard", 2))
    assert current.query("llvm", ("tests/unheard", 2)) is not usual
    with autotvm.ApplyConfig(config), autotvm.ApplyHistoryBest() as inner:
        assert autotvm.DispatchContext.current is inner
        assert inner.query("llvm", task.workload) is config
        inner.update("llvm", task.workload, task.config_space.get(2))
        assert inner.query("llvm", task.workload).index == 2
    assert isinstance(autotvm.DispatchContext.current, autotvm.FallbackContext)
    forced = autotvm.ApplyConfig(config)
    forced.update("llvm", task.workload, task.config_space.get(3))
    assert forced.query("llvm", ("another", 1)).index == 3
    with pytest.raises(SpaceError, match="not a ConfigEntity"):
        autotvm.ApplyConfig(3)  # type: ignore[arg-type]


@pytest.mark.slow
def test_one_configuration_for_what_has_its_knobs() -> None:
    mod, params = residual()
    config = conv_task().config_space.get(conv_task().config_space.index_of(KNOBS))
    with autotvm.ApplyConfig(config):
        lib = relay.build(mod, "llvm", params)
    taken = [k.label for k in lib.report.kernels if k.source == "record"]
    assert taken and all("8x8x3x3" in label for label in taken)
    close_to_reference(lib)


@pytest.mark.slow
def test_templates_of_a_name_with_their_usual_configuration() -> None:
    mod, params = residual()
    tasks = autotvm.task.extract_from_program(mod, params, "llvm", ops=["nn.dense"])
    named = autotvm.apply_fixed_config([conv_task(), *tasks], ["conv2d_NCHWc.x86"])
    assert named.query("llvm", conv_task().workload).cost < 1
    assert named.query("llvm", (tasks[0].name,)).cost > 1
    assert named.query("llvm", ("unheard",)) is None
    with autotvm.ApplyFixedConfig(tasks, "dense_nopack.x86"):
        lib = relay.build(mod, "llvm", params)
    taken = [k.label.split()[0] for k in lib.report.kernels if k.source == "record"]
    assert taken == ["dense+add"]
    close_to_reference(lib)


@pytest.mark.slow
def test_a_graph_tuners_file_is_taken_in_order(tmp_path: Path) -> None:
    mod, params = residual()
    tasks = fused_tasks(mod, params, "llvm")
    database, log = Database(), str(tmp_path / "graph.log")
    for number, task in enumerate(t for t in tasks if t.sketches):
        sketch = task.sketches[0]
        for seconds in (1e-3, 1e-9):  # the first counts, not the faster one
            index = sketch.fallback() if seconds == 1e-3 else number
            assert index is not None
            database.append(
                make_record(
                    task_id(task), Result(costs=(seconds,), verified=True), origin=sketch.origin,
                    decisions={k: e.value for k, e in sketch.space.get(index).items()},
                    steps=sketch.close(index).to_json(),
                ),
                task.dag.to_json(),
            )  # fmt: skip
    database.save(log)
    best = autotvm.apply_graph_best(log)
    first = tasks[0]
    chosen = first.sketches[0].fallback()
    assert chosen is not None
    found = best.lookup(first.dag, first.target)
    assert found is not None and found.to_json() == first.sketches[0].close(chosen).to_json()
    with best:
        lib = relay.build(mod, "llvm", params, verify=False)
    assert sum(k.source == "record" for k in lib.report.kernels) == len(best.records) // 2
    with pytest.raises(RecordError):
        autotvm.ApplyGraphBest(str(tmp_path / "missing"))
    Path(log).write_text("")
    with pytest.raises(TilewrightError, match="there is no record"):
        autotvm.ApplyGraphBest(log)


# -- templates in two parts ------------------------------------------------------------------------


def scheduled(cfg: Any, outs: list[Tensor]) -> Schedule:
    """As TVM's scripts write it: the operator is found by its tag."""
    s = te.create_schedule([t.op for t in outs])
    last = outs[0]
    op = next(stage.op for stage in s.stages if stage.op.tag == "conv2d_nchw")
    s[op.input_tensors[0]].compute_inline()
    cfg.define_split("tile", last.shape[3], num_outputs=2)
    for stage in s.stages:
        if stage.op not in (op, last.op) and stage.op.tag in ("broadcast", "elemwise"):
            s[stage.op].compute_inline()
    *outer, column = s[last].op.axis
    xo, _ = cfg["tile"].apply(s, last, column)
    if op is not last.op:
        s[op].compute_at(s[last], xo)
    s[last].parallel(s[last].fuse(*outer))
    return s


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    from tilewright.schedule import template
    from tilewright_tvm.autotvm import topi_integration

    for table in (topi_integration._COMPUTES, topi_integration._SCHEDULES):
        monkeypatch.setattr(topi_integration, table_name(topi_integration, table), dict(table))
    monkeypatch.setattr(template, "_ANCHORS", dict(template._anchors()))
    monkeypatch.setattr(template, "_FUNCTIONS", dict(template._FUNCTIONS))

    @autotvm.register_topi_compute("conv2d_nchw.mine")
    def compute(cfg: Any, data: Tensor, kernel: Tensor, *options: Any) -> Tensor:
        return topi.nn.conv2d_nchw(data, kernel, *options)

    return compute, autotvm.register_topi_schedule("conv2d_nchw.mine", scheduled)


def table_name(module: Any, table: Any) -> str:
    return next(name for name, value in vars(module).items() if value is table)


def test_both_parts_make_a_task_and_a_dispatched_kernel(mine: Any) -> None:
    compute, schedule = mine
    args = (*CONV, "float32")
    task = autotvm.task.create("conv2d_nchw.mine", args, CPU)
    assert len(task.config_space) == 4 and task.sketches[0].origin == "template:conv2d_nchw.mine"
    tensors = te.placeholder((1, 8, 6, 6)), te.placeholder((8, 8, 3, 3), name="w")
    with CPU, autotvm.ApplyConfig(task.config_space.get(2)):
        out = compute(*tensors, *CONV[2:], "float32")
        assert autotvm.task.get_workload([out]) == ["conv2d_nchw.mine", *CONV, "float32"]
        assert autotvm.task.get_workload(out) == autotvm.task.get_workload([out])
        made = schedule([out])
    assert [s.factor for s in made.steps if s.verb == "split"] == [3]
    with pytest.raises(TilewrightError, match="nothing among its outputs was computed by"):
        schedule([topi.nn.relu(tensors[0])])


@pytest.mark.slow
def test_kernels_of_a_network_have_the_template_of_their_operator(mine: Any) -> None:
    mod, params = residual()
    tasks = [t for t in fused_tasks(mod, params, "llvm") if "conv2d" in t.name]
    origins = {s.origin for t in tasks for s in t.sketches}
    assert "template:conv2d_nchw.mine" in origins
    (plain,) = autotvm.task.extract_from_program(mod, params, "llvm", ops=["nn.conv2d"])[:1]
    sketch = plain.sketch("template:conv2d_nchw.mine")
    database = Database()
    config = sketch.space.get(1)
    database.append(
        make_record(
            task_id(plain), Result(costs=(1e-9,), verified=True), origin=sketch.origin,
            decisions={k: e.value for k, e in config.items()}, steps=sketch.close(1).to_json(),
        ),
        plain.dag.to_json(),
    )  # fmt: skip
    lib = relay.build(mod, "llvm", params, database)
    assert any(k.source in ("record", "re-instantiated") for k in lib.report.kernels)
    close_to_reference(lib)


@pytest.fixture
def halves(mine: Any) -> None:
    """A dense layer as two sums over half of the inputs each."""

    @autotvm.register_topi_compute("dense.halves")
    def compute(cfg: Any, data: Tensor, weight: Tensor, *_: Any) -> Tensor:
        (m, n), half = (data.shape[0], weight.shape[0]), data.shape[1] // 2
        k = te.reduce_axis((0, half), "k")
        parts = te.compute(
            (m, n, 2), lambda i, j, p: te.sum(data[i, p * half + k] * weight[j, p * half + k], k)
        )
        return te.compute((m, n), lambda i, j: parts[i, j, 0] + parts[i, j, 1], name="halves")

    @autotvm.register_topi_schedule("dense.halves")
    def schedule(cfg: Any, outs: list[Tensor]) -> Schedule:
        cfg.define_knob("unroll", [0, 16])
        s = te.create_schedule([outs[0].op])
        last = s[outs[0]]
        last.pragma(last.op.axis[0], "auto_unroll_max_step", cfg["unroll"].val)
        return s


@pytest.mark.slow
def test_another_computation_is_another_implementation(halves: None) -> None:
    mod, params = residual()
    tasks = fused_tasks(mod, params, "llvm", every_implementation=True)
    (plain,) = (t for t in tasks if t.name == "dense+add" and not t.instead_of)
    (other,) = (t for t in tasks if t.instead_of == plain.key)
    assert "template:dense.halves" in [s.origin for s in other.sketches]
    assert "template:dense.halves" not in [s.origin for s in plain.sketches]
    database = database_of([plain], 1e-3)
    sketch = other.sketch("template:dense.halves")
    for seconds, labels in ((1.0, set()), (1e-6, {"halves"})):
        database.append(
            make_record(
                task_id(other), Result(costs=(seconds,), verified=True), origin=sketch.origin,
                decisions={"unroll": 16}, steps=sketch.close(1).to_json(),
            ),
            other.dag.to_json(),
        )  # fmt: skip
        lib = relay.build(mod, "llvm", params, database)
        kernels = [k for k in lib.report.kernels if k.label.startswith("dense")]
        assert [k.source for k in kernels] == ["record"]
        assert bool(labels) == (kernels[0].name.rpartition("_")[2] == other.key[:10])
        close_to_reference(lib)


def test_a_computation_of_something_else_is_refused(mine: Any) -> None:
    @autotvm.register_topi_compute("dense.wrong")
    def compute(cfg: Any, data: Tensor, weight: Tensor, *_: Any) -> Tensor:
        return topi.add(topi.nn.dense(data, weight), te.const(0.01))

    @autotvm.register_topi_compute("dense.open")
    def opens(cfg: Any, data: Tensor, weight: Tensor, *_: Any) -> Tensor:
        cfg.define_knob("a", [1, 2])
        return topi.nn.dense(data, weight)

    for name in ("dense.open", "dense.wrong"):
        autotvm.register_topi_schedule(name, lambda cfg, outs: te.create_schedule([outs[0].op]))
    mod, params = residual()
    with pytest.raises(ModelError, match="it computes something else than its operator"):
        fused_tasks(mod, params, "llvm", every_implementation=True)


def test_a_schedule_that_fails_is_left_out_with_a_warning(
    mine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @autotvm.register_topi_schedule("dense.broken")
    def schedule(cfg: Any, outs: list[Tensor]) -> Schedule:
        raise KeyError("oh")

    mod, params = residual()
    with caplog.at_level(logging.WARNING, "autotvm"):
        (dense,) = autotvm.task.extract_from_program(mod, params, "llvm", ops=["nn.dense"])
    assert dense.sketches and "template dense.broken failed" in caplog.text
    with pytest.raises(SpaceError, match="not a function"):
        autotvm.register_topi_compute("dense.broken", 3)


def test_what_is_computed_is_collected(mine: Any) -> None:
    compute, _ = mine
    env = autotvm.TaskExtractEnv.get()
    env.reset()
    tensors = te.placeholder((1, 8, 6, 6)), te.placeholder((8, 8, 3, 3), name="w")
    with env:
        for _ in range(2):
            compute(*tensors, *CONV[2:])
    compute(*tensors, *CONV[2:])
    assert env.get_tasks() == [("conv2d_nchw.mine", CONV)]
    env.reset(["dense"])
    with autotvm.TaskExtractEnv.get(allow_duplicate=True):
        compute(*tensors, *CONV[2:])
    assert env.get_tasks() == []


# -- several networks, lines, callbacks ------------------------------------------------------------


@pytest.mark.slow
def test_tasks_of_several_networks_are_one_list() -> None:
    mod, params = residual()
    one = autotvm.task.extract_from_program(mod, params, "llvm")
    two = autotvm.task.extract_from_multiple_program([mod, mod], [params, params], "llvm")
    assert [t.key for t in two] == [t.key for t in one]
    assert [t.weight for t in two] == [2 * t.weight for t in one]
    with pytest.raises(TilewrightError, match="2 networks, and parameters for 1"):
        autotvm.task.extract_from_multiple_program([mod, mod], [params], "llvm")
    with pytest.raises(ModelError):
        autotvm.task.extract_from_multiple_program([mod], [params], "llvm", ops=["nn.conv9"])


def trial(task: Task, index: int, seconds: float, error: Any = None) -> tuple[Any, Any]:
    sketch = task.sketches[0]
    outcome = Result(costs=(seconds,), verified=True) if error is None else Result(error=error)
    found = make_record(
        task_id(task), outcome, origin=sketch.origin, timestamp=float(index),
        decisions={k: e.value for k, e in sketch.space.get(index).items()},
        steps=sketch.close(index).to_json(),
    )  # fmt: skip
    given = MeasureInput(task.target, task, sketch.space.get(index))
    return given, measure_result(found)


def test_a_line_is_read_back_as_it_was_written() -> None:
    task = conv_task()
    for error in (None, "timeout"):
        given, result = trial(task, 4, 2e-3, error)
        again, told = record.decode(record.encode(given, result))
        assert again.task.workload == task.workload and again.config == given.config
        assert (told.costs == result.costs) is (error is None)
        assert (told.error_no, told.timestamp) == (result.error_no, 4.0)
    given, result = record.decode(line(tile_ow=[-1, 6]))
    assert given.task.name == "conv2d_NCHWc.x86" and given.config["tile_ow"].size == [1, 6]
    assert tuple(result) == ((1e-3,), 0, 1.5, 1.7e9)
    assert record.measure_str_key(given) != record.measure_str_key(record.decode(line())[0])
    assert record.measure_str_key(given, False) == record.measure_str_key(
        record.decode(line())[0], False
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"), (line("conv9.x86"), "no template of that name"),
        (line(tile_ic=[-1, 5]), "no such entity"), (line(more=1), "its knobs are more"),
        (line()[:-5] + "}", "not JSON"),
        (line(target="vulkan"), "target kind 'vulkan'"), (line("dense.mali"), "not for llvm"),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_one_error(text: str, reason: str) -> None:
    with pytest.raises(TilewrightError, match=reason):
        record.decode(text)


def test_a_buffer_and_a_split_log(tmp_path: Path) -> None:
    first, second = conv_task(), autotvm.create("dense_nopack.x86", DENSE, "llvm")
    log = tmp_path / "log"
    write = callback.log_to_file(log)
    for task, index in ((first, 1), (second, 2), (first, 1), (first, 3)):
        write(None, *([one] for one in trial(task, index, 1e-3)))
    with open(log) as file:
        assert len(list(record.load_from_buffer(file))) == 4
    assert len(list(record.load_from_buffer(io.StringIO(line())))) == 1
    paths = record.split_workload(log)
    assert [len(list(record.load_from_file(path))) for path in paths] == [2, 1]
    assert [Path(path).name for path in paths] == ["log.000.wkl", "log.001.wkl"]
    assert len(list(record.load_from_file(record.split_workload(log, clean=False)[0]))) == 3
    with pytest.raises(RecordError, match="no open file"):
        record.load_from_buffer(3)


DENSE = (("TENSOR", (4, 8), "float32"), ("TENSOR", (8, 8), "float32"), None, "float32")


def test_a_monitor_and_a_database_take_every_trial() -> None:
    task = conv_task()
    monitor, database = callback.Monitor(), Database()
    keep = callback.log_to_database(database)
    for index, error in ((0, None), (1, "compile")):
        pair = [[one] for one in trial(task, index, 1e-3, error)]
        monitor(None, *pair)
        keep(None, *pair)
    assert monitor.trial_scores().max() == pytest.approx(task.flop / 1e-3)
    assert monitor.trial_scores().argmin() == 1 and monitor.scores[1] == 0.0
    assert monitor.trial_timestamps().tolist() == [0.0, 1.0] and len(database) == 2
    monitor.reset()
    assert monitor.trial_scores().tolist() == []
    with pytest.raises(SpaceError, match="not a Database"):
        callback.log_to_database("x")  # type: ignore[arg-type]
