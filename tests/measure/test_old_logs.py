"""Logs of TVM: each line becomes a record that tells the truth, or is counted by reason."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schedule.ansor_logs import MATMUL, SMALL_TILES, conv2d_gpu, conv2d_layer, matmul
from schedule.seed003 import FLAGSHIP
from tilewright import te
from tilewright.driver.build import build
from tilewright.measure.database import Database
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import ImportReport, import_lines
from tilewright.runtime.device import device
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task, create, task_of_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

CPU, CUDA = "llvm -keys=cpu -link-params=0 -mcpu=x -num-cores=2", "cuda -keys=cuda,gpu -arch=sm_70"
OLD_CUDA = CUDA + " -max_num_threads=1024 -thread_warp_size=32"
TEMPLATE = "tests/conv2d_no_batching"
FUNCTIONS = {"matmul": matmul, "conv2d_layer": conv2d_layer}
CONV = [1, 7, 7, 32, 8, 3, 3, [1, 1], [1, 1]]
DAMAGED = "a damaged line of TVM's auto-scheduler log"
DAMAGED_OLD = "a damaged line of TVM's AutoTVM log"
MD5 = "8a830aeb28cc45b189200eb204fd8825"


def ansor(key: Any, steps: Any, target: str = CPU, **changes: Any) -> str:
    """A line as log version v0.6 has it."""
    result = changes.get("result", [[0.002, 0.0021], 0, 1.25, 1714270206])
    task = [json.dumps(key), target, [16, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    line = {"i": [task, [[], steps]], "r": result, "v": changes.get("version", "v0.6")}
    return json.dumps(line) + "\n"


def autotvm(values: dict[str, Any], index: int = 0, **changes: Any) -> str:
    """A line as version 0.2 has it."""
    entities = [[k, "sp" if isinstance(v, list) else "ot", v] for k, v in values.items()]
    args = changes.get("args", list(FLAGSHIP))
    line = {
        "input": [changes.get("target", OLD_CUDA), changes.get("name", TEMPLATE), args,
                  changes.get("kwargs", {})],
        "config": {"index": index, "code_hash": None, "entity": entities},
        "result": changes.get("result", [[0.0016], 0, 3.7, 1553483919.8]),
        "version": changes.get("version", 0.2), "tvm_version": "0.8.0",
    }  # fmt: skip
    return json.dumps(line) + "\n"


def knobs(f: Any, y: Any, x: Any, rc: Any, ry: Any, rx: Any, step: int, explicit: int) -> Any:
    """As AutoTVM writes them: the outermost size is -1."""
    sizes = {"tile_f": f, "tile_y": y, "tile_x": x, "tile_rc": rc, "tile_ry": ry, "tile_rx": rx}
    plain = {"auto_unroll_max_step": step, "unroll_explicit": explicit}
    return {k: [-1, *v[1:]] for k, v in sizes.items()} | plain


# Configurations that the tutorial prints with their index.
PRINTED = {
    2135585: knobs([8, 1, 64, 1], [1, 1, 1, 7], [1, 1, 7, 1], [256, 2, 1], [1, 1, 3], [3, 1, 1],
                   512, 0),
    430132: knobs([2, 32, 8, 1], [1, 1, 1, 7], [7, 1, 1, 1], [64, 4, 2], [1, 1, 3], [3, 1, 1],
                  0, 0),
}  # fmt: skip


def imported(*lines: str, **given: Any) -> tuple[Database, ImportReport]:
    database = Database()
    target = given.pop("target", None)
    workloads = Workloads(functions=FUNCTIONS, **given)
    return database, import_lines(lines, database, workloads, target and Target(target))


def reasons(*lines: str, **given: Any) -> dict[str, int]:
    database, report = imported(*lines, **given)
    assert len(database) == 0 and report.lines == report.unusable.total() == len(lines)
    return dict(report.unusable)


# -- the auto-scheduler ----------------------------------------------------------------------------


def test_an_ansor_line_becomes_a_record_that_is_not_verified() -> None:
    database, report = imported(ansor(["matmul", 32, 48, 24], MATMUL), target="llvm")
    (record,) = database
    dag = ComputeDAG(matmul(32, 48, 24))
    assert (record.task.name, record.task.args) == ("matmul", [32, 48, 24])
    assert record.key == (dag.hash, "llvm", "") and database.dag(dag.hash) == dag.to_json()
    assert (record.origin, record.result.costs) == ("import:ansor-v0.6", (0.002, 0.0021))
    assert (record.timestamp, record.device) == (1714270206.0, CPU)
    assert not record.result.verified and record.versions["log"] == "v0.6"
    assert database.best(record.key) is None and database.lookup(dag, Target("llvm")) is None
    assert (report.lines, dict(report.imported)) == (1, {record.key: 1})


def test_its_steps_build_a_right_kernel() -> None:
    database, _ = imported(ansor(["matmul", 32, 48, 24], MATMUL), target="llvm")
    dag, dev = ComputeDAG(matmul(32, 48, 24)), device("llvm")
    s = Schedule.replay(dag, database.records[0].steps)
    a, b = random_inputs(dag, 5)
    c = empty((32, 48), "float32", dev)
    build(s, list(dag.args), "llvm")(array(a, dev), array(b, dev), c)
    expected, bound = evaluate_with_tolerance(dag, [a, b])
    assert (np.abs(c.numpy() - expected[0]) <= bound[0]).all()


def test_a_gpu_line_keeps_its_architecture() -> None:
    steps = conv2d_gpu(8, 32, SMALL_TILES, (2, 9))
    line = ansor(["conv2d_layer", *CONV], steps, OLD_CUDA)
    database, _ = imported(line)
    assert database.records[0].task.target == "cuda -arch=sm_70"
    database, _ = imported(line, target="cuda -arch=sm_90")
    assert database.records[0].task.target == "cuda -arch=sm_90"


def test_a_log_is_imported_once(tmp_path: Path) -> None:
    lines = [ansor(["matmul", 32, 48, 24], MATMUL), autotvm(PRINTED[430132])]
    for known in (0, 2):
        with Database(tmp_path / "log.jsonl") as database:
            report = import_lines(lines, database, Workloads(FUNCTIONS))
        assert (report.known, report.imported.total()) == (known, 2 - known)
    assert len(Database.load(tmp_path / "log.jsonl")) == 2


@pytest.mark.parametrize("version", ["v0.1", "v0.5"])
def test_older_lines_have_shorter_heads(version: str) -> None:
    head = [json.dumps(["matmul", 32, 48, 24]), "llvm"]
    line = {"i": [head, [[], MATMUL]], "r": [[0.1], 0, 0.2, 1], "v": version}
    database, _ = imported(json.dumps(line))
    assert database.records[0].origin == f"import:ansor-{version}"


def test_hashed_keys_match_what_is_given() -> None:
    dag = ComputeDAG(matmul(32, 48, 24))
    line = ansor([MD5, [32, 24], [24, 48], [32, 48]], MATMUL)
    spaced = json.loads(line)["i"][0][0].replace(", ", ",")
    for given in ({"dags": {spaced: dag}}, {"lookup": lambda key: dag if MD5 in key else None}):
        database, _ = imported(line, **given)
        assert database.records[0].task.dag == dag.hash
    unknown = {"a hashed workload key that matches nothing given": 1}
    assert reasons(line) == unknown
    assert reasons(line, lookup=lambda key: None) == unknown


def test_hashed_keys_match_tasks_of_a_network_by_their_shapes() -> None:
    def task(name: str, tensors: Any) -> Task:
        return task_of_dag(ComputeDAG(tensors), "llvm", name)

    a, b = te.placeholder((32, 24), name="A"), te.placeholder((24, 48), name="B")
    k = te.reduce_axis((0, 24), name="k")
    top = te.compute((32, 48), lambda i, j: te.max(a[i, k] * b[k, j], axis=k), name="C")
    product, other = task("product", matmul(32, 48, 24)), task("other", matmul(8, 8, 8))
    flat = ansor([MD5, 32, 24, 24, 48, 32, 48], MATMUL)
    database, _ = imported(flat, tasks=[product, other, product])
    assert database.records[0].task.dag == product.key
    found = reasons(flat, tasks=[product, task("top", [a, b, top])])
    assert found == {"several tasks of the network have its shapes": 1}


# -- AutoTVM ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", PRINTED)
def test_an_autotvm_line_is_the_same_configuration(index: int) -> None:
    database, _ = imported(autotvm(PRINTED[index], index))
    (record,) = database
    task = create(TEMPLATE, FLAGSHIP, "cuda -arch=sm_70")
    space = task.config_space
    assert space.index_of(record.decisions) == index
    assert record.steps == task.sketches[0].close(index).to_json()
    assert record.key == (task.key, "cuda -arch=sm_70", "")
    assert (record.origin, record.result.costs) == ("import:autotvm-0.2", (0.0016,))
    assert record.versions["tvm"] == "0.8.0" and not record.result.verified
    assert database.best(record.key) is None


def test_an_autotvm_line_finds_a_task_that_is_given() -> None:
    real = create(TEMPLATE, FLAGSHIP, "cuda -arch=sm_90")
    args = (["TENSOR", [1, 512, 7, 7], "float32"], (1, 1))
    task = Task("conv2d_nchw.mine", args, real.dag, real.target, real.sketches)
    line = autotvm(PRINTED[430132], name=task.name, args=json.loads(json.dumps(args)))
    database, _ = imported(line, tasks=[task], target="cuda -arch=sm_90")
    assert database.records[0].task.args == [["TENSOR", [1, 512, 7, 7], "float32"], [1, 1]]
    found = reasons(line, target="cuda -arch=sm_90")
    assert found == {"no template of that name": 1}


# -- what cannot be used ---------------------------------------------------------------------------

GOOD = ["matmul", 32, 48, 24]
UNROLLED = [["AN", 2, axis, 1] for axis in range(3)]
SOME = PRINTED[430132]

UNUSABLE: dict[str, tuple[str, str]] = {
    "cut off": (ansor(GOOD, MATMUL)[:90] + "\n", "not JSON, or cut off"),
    "foreign": ('{"a": 1}\n', "no line of AutoTVM or of the auto-scheduler"),
    "a list": ("[1, 2]\n", "no line of AutoTVM or of the auto-scheduler"),
    "ansor version": (
        ansor(GOOD, MATMUL, version="v0.7"),
        "auto-scheduler log version 'v0.7', known are v0.1 to v0.6",
    ),
    "autotvm version": (
        autotvm(SOME, version=0.1), "AutoTVM log version 0.1, known is 0.2"
    ),
    "old autotvm": ('{"i": [], "r": [], "v": 0.1}\n', "AutoTVM log version 0.1, known is 0.2"),
    "damaged": (ansor(GOOD, MATMUL, result=[[0.1], 0]), DAMAGED),
    "endless": ("[" * 100_000 + "\n", "nested more than 200 deep"),
    "infinite error number": (
        ansor(GOOD, MATMUL, result=[[0.1], float("inf"), 1.0, 1]), DAMAGED
    ),
    "huge tile": (
        autotvm(SOME | {"tile_y": [-1, 10**30, 1, 1]}), "the knob has no such entity"
    ),
    "knob without a kind": (
        autotvm(SOME).replace('"ot", ', "", 1), DAMAGED_OLD
    ),
    "no list of steps": (ansor(GOOD, 7), DAMAGED),
    "target kind": (
        ansor(GOOD, MATMUL, "hexagon -keys=hexagon"),
        "target kind 'hexagon', known are llvm, cuda, opencl",
    ),
    "architecture": (autotvm(SOME, target="cuda -arch=sm_37"), "arch 'sm_37' is not supported"),
    "failed": (
        ansor(GOOD, MATMUL, result=[[1e10], 4, 1.0, 1]), "a trial that failed in TVM: running"
    ),
    "failed oddly": (
        ansor(GOOD, MATMUL, result=[[1e10], 44, 1.0, 1]), "a trial that failed in TVM: error 44"
    ),
    "no time": (ansor(GOOD, MATMUL, result=[[float("nan")], 0, 1, 1]), "no costs that are times"),
    "no times": (autotvm(SOME, result=[[], 0, 1.0, 1.0]), "no costs that are times"),
    "unknown function": (ansor(["dense", 8], []), "no workload function 'dense'"),
    "function fails": (
        ansor(["matmul", 8], []),
        "the workload function matmul failed (matmul() missing 2 required positional arguments: "
        "'m' and 'k')",
    ),
    "unknown step": (
        ansor(GOOD, [["XY", 2]]), "Ansor step XY: unknown step code 'XY'"
    ),
    "refused step": (ansor(GOOD, [["AN", 2, 0, 11]]),
                     "Ansor step AN: tensorize has no meaning without an intrinsic"),
    "another computation": (
        ansor(GOOD, [["SP", 2, 0, 512, [4], 1]]),
        "Ansor step SP: it splits a loop of #, C.i has #",
    ),
    "illegal": (
        ansor(GOOD, UNROLLED),
        "not legal on llvm -mcpu=x -num-cores=2: straight-line code so long that compiling takes "
        "seconds",
    ),
    "template": (autotvm(SOME, name="conv2d_nchw.mine"), "no template of that name"),
    "template fails": (autotvm(SOME, args=[1]), "missing a required argument: 'h' (1 given)"),
    "keywords": (autotvm(SOME, kwargs={"a": 1}), "a task with keyword arguments"),
    "knobs": (
        autotvm({"tile_f": [-1, 4]}), f"{TEMPLATE} has other knobs here than tile_f"
    ),
    "entity": (
        autotvm({**SOME, "auto_unroll_max_step": 7}), "the knob has no such entity"
    ),
    "kind of knob": (
        autotvm(SOME).replace('"sp"', '"xx"'), "unknown kind of knob 'xx'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_line_that_cannot_be_used_is_counted_by_its_reason(name: str) -> None:
    line, reason = UNUSABLE[name]
    assert reasons(line, line) == {reason: 2}


def test_lines_of_another_kind_of_target_are_counted() -> None:
    lines = ansor(GOOD, MATMUL), autotvm(SOME)
    assert reasons(*lines, target="opencl") == {
        "of target kind llvm, not opencl": 1, "of target kind cuda, not opencl": 1,
    }  # fmt: skip


def test_good_and_bad_lines_mix() -> None:
    lines = ["# a comment\n", "\n", " indented is skipped\n", ansor(GOOD, MATMUL), "{", "\x00\n"]
    database, report = imported(*lines, autotvm(PRINTED[2135585]))
    assert (report.lines, len(database)) == (4, 2)
    assert dict(report.unusable) == {"not JSON, or cut off": 2}
    assert [t.name for t in report.tasks.values()] == ["matmul", TEMPLATE]


@pytest.mark.parametrize("line", [
    autotvm(SOME, args=[1, 10**18, 7, 512, 512, 3, 3, 1, 1]),  # whose divisors nobody can list
    autotvm(SOME, target=CUDA + "x" * 500_000),
    ansor(GOOD, MATMUL, target=CPU + " [" * 200_000),
    ansor(GOOD, [["SP", 2, 0, 32, [1] * 30_000, 1]]),
    ansor(GOOD, [["CI", 2]] * 50_000),
    ansor(GOOD, MATMUL, result=[[-0.002], 0, 1.25, 1714270206]),
    ansor(GOOD, MATMUL, result=[[0.002], 0, 1.25, 1e300]),
    ansor([[[]] * 300], MATMUL), "[" * 5_000 + "]" * 5_000 + "\n", '{"i": "\ud800"}\n',
    json.dumps({"i": [["[" * 900 + "]" * 900, CPU], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}),
])  # fmt: skip
def test_a_line_made_to_harm_costs_itself_and_no_time(line: str) -> None:
    began = time.process_time()
    assert sum(reasons(line).values()) == 1
    assert time.process_time() - began < 2


def test_unusable_lines_are_told_with_their_numbers() -> None:
    good, bad = ansor(GOOD, MATMUL), "{}\n"
    _, report = imported("# a comment\n", bad, good, bad)
    assert report.unusable.told() == ["2 lines (2, 4): no line of AutoTVM or of the auto-scheduler"]
    _, report = imported('{"kind": "record", "v": 1}\n')
    assert list(report.unusable) == ["a line of Tilewright's own log, which needs no import"]
