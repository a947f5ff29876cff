"""Knowledge: folders by class of device, where they count, how they are installed, hostile ones."""

from __future__ import annotations

import functools
import http.server
import json
import threading

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from graph.small import database_of, image, residual, wanted
from tilewright import cpu, knowledge
from tilewright.base.errors import ModelError, RecordError
from tilewright.cli.app import cli
from tilewright.cost.features import FEATURES, PLAIN
from tilewright.knowledge import install, store
from tilewright.knowledge.device_class import device_classes
from tilewright.knowledge.trees import Trees
from tilewright.measure.database import Database
from tilewright.measure.record import task_label
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_tasks
from tilewright.runtime.device import local_target
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.search.jobs import decisions_of
from tilewright.search.publish import publish
from tilewright.search.warm_start import recalled
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.autotvm.contractions import extract_from_program

LLVM = local_target(Target("llvm"))[0]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Records of a small network's kernels, one for each."""
    mod, params = residual()
    tasks = [t for t in fused_tasks(mod, params, "llvm") if t.sketches]
    path = tmp_path_factory.mktemp("logs") / "log.jsonl"
    database_of(tasks).save(path)
    return path


@pytest.fixture(scope="module")
def site(log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    publish([log], folder, knowledge.device_class(LLVM))
    return folder


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TILEWRIGHT_KNOWLEDGE")
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "nothing ships")


def sources(**options):
    mod, params = residual()
    return relay.build(mod, "llvm", params, verify=False, **options).report.sources


# -- classes of devices ----------------------------------------------------------------------------


def test_classes_of_devices():
    h200 = DeviceSpec("cuda", "NVIDIA H200", "NVIDIA H200 / 132 cores", "sm_90")
    assert knowledge.device_class(Target("cuda").on(h200)) == "cuda-sm_90"
    assert knowledge.device_class(Target("cuda -arch=sm_86")) == "cuda-sm_86"
    board = Target("llvm -mtriple=aarch64-linux-gnu")
    assert knowledge.device_class(board) == "llvm-aarch64-128"
    wide = Target("llvm -mtriple=x86_64-linux-gnu").with_limits(vector_bytes=64)
    assert knowledge.device_class(wide) == "llvm-x86_64-512"
    gpu = DeviceSpec("opencl", "Intel(R) Arc(TM) A770", "some")
    assert knowledge.device_class(Target("opencl").on(gpu)) == "opencl-intel-r-arc-tm-a770"
    assert knowledge.device_class(Target("opencl -device=mali")) == "opencl-mali"
    narrower = [f"llvm-x86_64-{bits}" for bits in (512, 256, 128)]
    assert device_classes(wide) == narrower
    assert device_classes(wide.with_limits(vector_bytes=32)) == narrower[1:]
    assert device_classes(board) == ["llvm-aarch64-128"]
    for threads in (Target("cuda -arch=sm_86"), Target("opencl -device=mali")):
        assert device_classes(threads) == [knowledge.device_class(threads)]


# -- where it counts -------------------------------------------------------------------------------


@pytest.mark.slow
def test_untuned_kernels_are_those_of_the_site(site, log, monkeypatch):
    assert sources().keys() == {"default"}
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(site))
    known = sources()
    assert known["knowledge"] == len(Database.load(log).tasks())
    mod, params = residual()
    lib = relay.build(mod, "llvm", params)
    module = GraphModule(lib["default"](cpu()))
    data = image()
    module.run(data=data)
    want = wanted(mod, params, data)
    assert np.abs(module.get_output(0).numpy() - want).max() <= 1e-4 * np.abs(want).max()
    assert all(k.verified for k in lib.report.kernels)
    assert sources(use_knowledge=False).keys() == {"default"}
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", "off")
    assert sources().keys() == {"default"}


@pytest.mark.slow
def test_a_log_counts_more(site, log, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(site))
    found = sources(schedules=str(log))
    assert "knowledge" not in found and found["record"] == len(Database.load(log).tasks())


@pytest.mark.long
def test_a_search_begins_with_what_a_build_takes_over_from_the_same_anchor(tmp_path, monkeypatch):
    mod, params = residual()
    database_of(extract_from_program(mod, params, "llvm")).save(tmp_path / "log.jsonl")
    publish([tmp_path / "log.jsonl"], tmp_path / "site", knowledge.device_class(LLVM))
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(tmp_path / "site"))
    lib = relay.build(mod, "llvm", params, verify=False)
    taken = {k.label for k in lib.report.kernels if k.source == "re-instantiated"}
    known, begun = recalled(LLVM), set()
    held = [(r.origin, r.decisions) for d in known.databases for r in d]
    for task in fused_tasks(mod, params, "llvm"):
        found = known.of_anchor(task)
        assert all((c.sketch.origin, decisions_of(c)) in held for c in found)
        begun |= {task_label(task)} if found else set()
    assert taken and taken <= begun


@pytest.mark.slow
def test_what_is_known_of_another_class_does_not_count(log, tmp_path, monkeypatch):
    publish([log], tmp_path / "other", "llvm-m68k-32")
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(tmp_path / "other"))
    assert sources().keys() == {"default"}


@pytest.mark.long
def test_what_is_known_of_narrower_vectors_counts_where_the_class_has_nothing(
    log, tmp_path, monkeypatch
):
    """However the target is spelled; nothing of wider ones does; the own class comes first."""
    folder, narrow = tmp_path / "site", "llvm -mcpu=x86-64"  # vectors of 128 bits
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(folder))
    mod, params = residual()

    def built(target):
        return relay.build(mod, target, params, verify=False).report.sources

    database = Database.load(log)
    count = len(database.tasks())
    publish([log], folder, knowledge.device_class(Target(narrow)))
    assert built("llvm -mcpu=x86-64-v3")["knowledge"] == count == built(narrow)["knowledge"]
    (of_narrow,) = knowledge.records(Target("llvm -mcpu=x86-64-v3"))
    publish([log], folder, "llvm-x86_64-256")
    nearest, next_ = knowledge.records(Target("llvm -mcpu=x86-64-v3"))
    assert next_ == of_narrow and nearest != of_narrow
    assert knowledge.records(Target(narrow)) == [next_]
    of_own = Evidence((), ("llvm",), "", [[slower(database, 3.0)], [database]])
    for task in database.tasks():
        dag = database.computation(task.dag)
        best = database.best(task.key)
        assert of_own.seconds(dag) == pytest.approx(3.0 * best.seconds)


def slower(database, factor):
    """The same records, each `factor` times slower."""
    found = Database()
    for record in database:
        costs = tuple(factor * c for c in record.result.costs)
        result = msgspec.structs.replace(record.result, costs=costs)
        found.append(msgspec.structs.replace(record, result=result), database.dag(record.task.dag))
    return found


def test_a_folder_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(tmp_path / "gone"))
    with pytest.raises(RecordError, match=r"is no folder.*records publish"):
        knowledge.records(LLVM)


# -- publishing and installing ---------------------------------------------------------------------


def test_publishing_again_adds(log, tmp_path):
    database = Database.load(log)
    first, second = Database(), Database()
    for k, record in enumerate(database):
        (first, second)[k % 2].append(record, database.dag(record.task.dag))
    for name, part in (("a", first), ("b", second)):
        part.save(tmp_path / name)
        publish([tmp_path / name], tmp_path / "site", "some-class")
    joined = Database.load(tmp_path / "site" / "some-class" / "records.jsonl")
    assert {t.dag for t in joined.tasks()} == {t.dag for t in database.tasks()}
    assert all(joined.computation(t.dag) is not None for t in joined.tasks())


def test_records_of_a_device_that_is_not_here(log, tmp_path):
    with pytest.raises(RecordError, match="name the class"):
        publish([_elsewhere(log, tmp_path)], tmp_path / "site")


def _elsewhere(log, tmp_path):
    text = log.read_text().replace('"target":"llvm"', '"target":"llvm","fingerprint":"a board"')
    path = tmp_path / "far.jsonl"
    path.write_text(text)
    assert {t.fingerprint for t in Database.load(path).tasks()} == {"a board"}
    return path


@pytest.mark.slow
def test_using_a_folder_and_forgetting_it(site):
    assert sources().keys() == {"default"}
    run = CliRunner().invoke
    assert run(cli, ["records", "use", str(site), "--name", "ours"]).exit_code == 0
    assert "knowledge" in sources()
    told = run(cli, ["records", "use"])
    assert "ours" in told.output and knowledge.device_class(LLVM) in told.output
    assert run(cli, ["records", "use", "--forget", "ours"]).exit_code == 0
    assert sources().keys() == {"default"}
    again = run(cli, ["records", "use", "--forget", "ours"])
    assert isinstance(again.exception, RecordError) or again.exit_code != 0


@pytest.mark.slow
def test_using_an_address(site):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        place = knowledge.use(address, "far")
        with pytest.raises(RecordError, match="cannot be fetched"):
            knowledge.use(f"{address}/nothing", "far")
        server.shutdown()
    assert place.name == "far" and "knowledge" in sources()
    with pytest.raises(RecordError, match="only https and http"):
        knowledge.use("ftp://example.org/site")


def _damaged(change):
    def make(site, tmp_path):
        bad = tmp_path / "bad"
        for path in site.rglob("*"):
            if path.is_file():
                copy = bad / path.relative_to(site)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
        change(bad)
        return bad

    return make


def _index(edit):
    def change(folder):
        path = folder / install.INDEX
        data = json.loads(path.read_text())
        edit(data["files"])
        path.write_text(json.dumps(data))

    return change


def _only(folder):
    return next(folder.glob("*/records.jsonl"))


HOSTILE = {
    "no index": (lambda f: (f / install.INDEX).unlink(), "No such file"),
    "an index that is none": (lambda f: (f / install.INDEX).write_text("[1]"), "cannot be read"),
    "a deep index": (lambda f: (f / install.INDEX).write_text("[" * 10**5), "cannot be read"),
    "a file outside": (
        _index(lambda files: files.update({"../../x/records.jsonl": {"bytes": 1, "sha256": ""}})),
        "names",
    ),
    "a program": (
        _index(lambda files: files.update({"cuda-sm_90/run.py": {"bytes": 1, "sha256": ""}})),
        "names",
    ),
    "terabytes": (_index(lambda files: [f.update(bytes=10**12) for f in files.values()]), "lists"),
    "less than nothing": (
        _index(lambda files: [f.update(bytes=-1) for f in files.values()]), "lists|names"
    ),
    "many files": (
        _index(lambda files: files.update(
            {f"c{k}/records.jsonl": {"bytes": 0, "sha256": ""} for k in range(300)})), "lists",
    ),
    "another file": (lambda f: _only(f).write_text(_only(f).read_text() + "x"), "not the file"),
    "no log": (lambda f: (_only(f).write_text("x\n"), install.write_index(f)), "no line"),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_folders_change_nothing(site, tmp_path, name):
    change, told = HOSTILE[name]
    bad = _damaged(change)(site, tmp_path)
    knowledge.use(site, "ours")
    before = sources()
    with pytest.raises(RecordError, match=told):
        knowledge.use(bad, "ours")
    assert sources() == before and "knowledge" in before
    assert [p.name for p in store.installed().iterdir()] == ["ours"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/tmp", ".hidden", "x" * 99, "a\n"])
def test_names_that_are_none(site, name):
    knowledge.use(site, "ours")
    beside = store.installed().parent / "other"
    beside.write_text("kept")
    before = sorted(store.installed().parent.rglob("*"))
    with pytest.raises(RecordError, match="no name"):
        knowledge.use(site, name)
    with pytest.raises(RecordError, match="no name"):
        knowledge.forget(name)
    assert sorted(store.installed().parent.rglob("*")) == before and beside.exists()


@pytest.mark.parametrize("name", ["..", "../x", "/etc/x", "a/b"])
def test_a_class_of_devices_that_is_no_folder_of_the_site(tmp_path, name):
    with pytest.raises(RecordError, match="no plain name"):
        publish([tmp_path / "none.jsonl"], tmp_path / "site", name)
    assert list(tmp_path.iterdir()) == []


# -- what ships ------------------------------------------------------------------------------------

SHIPPED = sorted(store.SHIPPED.glob("*/records.jsonl"))
SHIPPED_TREES = sorted(store.SHIPPED.glob("*/trees.msgpack"))  # where they were of use


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.parent.name)
def test_what_ships_can_be_used(path):
    """Every record is the best of a computation that is told, and its steps still fit."""
    database = Database.load(path)
    assert not database.skipped and len(database) == len(database.tasks()) > 30
    for record in database:
        dag = database.computation(record.task.dag)
        assert record.result.ok and record.result.verified and dag is not None
        database.replay(record, dag)


@pytest.mark.parametrize("path", SHIPPED_TREES, ids=lambda p: p.parent.name)
def test_trees_that_ship_can_be_used(path):
    """They may be older than columns that only kernels with matrix instructions have."""
    assert Trees.load(path).features in (PLAIN, FEATURES)


def test_something_ships():
    """It is data of the package: `*.jsonl` is ignored elsewhere."""
    assert SHIPPED and SHIPPED_TREES


# -- trees -----------------------------------------------------------------------------------------


def small_trees(**changes) -> Trees:
    """Two trees: a root with two leaves, and a leaf."""
    arrays = {
        "feature": [1, -1, -1, -1], "threshold": [0.5, 0, 0, 0], "left": [1, 0, 0, 0],
        "right": [2, 0, 0, 0], "value": [0, 1, 2, 10], "roots": [0, 3],
    } | changes  # fmt: skip
    features = arrays.pop("features", ("a", "b"))
    base = arrays.pop("base", 0.25)
    return Trees(**{k: np.array(v) for k, v in arrays.items()}, base=base, features=features)


def test_trees_survive_a_file(tmp_path):
    small_trees().save(tmp_path / "t")
    found = Trees.load(tmp_path / "t")
    assert found.features == ("a", "b") and found.base == 0.25
    assert found.left.tolist() == [1, 0, 0, 0] and found.roots.tolist() == [0, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"left": [0, 0, 0, 0]}, {"left": [3, 0, 0, 0]}, {"right": [99, 0, 0, 0]},
        {"right": [-5, 0, 0, 0]}, {"feature": [2, -1, -1, -1]}, {"feature": [-2, -1, -1, -1]},
        {"threshold": [np.nan, 0, 0, 0]}, {"value": [0, np.inf, 0, 0]}, {"base": np.nan},
        {"roots": [1, 3]}, {"roots": [0, 0]}, {"roots": [0, 9]}, {"roots": []},
        {"roots": [0, -3]}, {"value": [0.0]}, {"features": ()},
    ],
)  # fmt: skip
def test_trees_that_are_none(tmp_path, changes):
    small_trees(**changes).save(tmp_path / "t")
    with pytest.raises(ModelError, match="records publish"):
        Trees.load(tmp_path / "t")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"[]", b"\x81\xa1v\x01", b"\x91" * 10**5])
def test_files_that_hold_no_trees(tmp_path, data):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(ModelError, match="no trees"):
        Trees.load(tmp_path / "t")
