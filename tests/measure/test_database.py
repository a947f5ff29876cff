"""The log: best, counts, damage, two writers, a full disk, merging, speed."""

import os
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from tilewright.base.errors import RecordError
from tilewright.measure import Database, Result, TaskId, pick_best
from tilewright.measure.record import Key, encode, make_record

A = TaskId("conv2d", [1], "aaaa", "llvm")
B = TaskId("dense", [2], "bbbb", "llvm")


def ok(seconds, task=A, **fields):
    decisions = fields.pop("decisions", {"t": seconds})
    result = Result(costs=(seconds,), verified=fields.pop("verified", True), **fields)
    return make_record(task, result, decisions=decisions)


def bad(error, message, task=A, decisions=None):
    return make_record(task, Result(error=error, message=message), decisions=decisions)


def test_records_come_back_from_the_file(tmp_path):
    path = tmp_path / "log.jsonl"
    records = [ok(3.0), bad("run", "crash"), ok(2.0), ok(5.0, B)]
    with Database(path) as database:
        for record in records:
            database.append(record, {"ops": [1]})
        database.note_run(seed=4, model="resnet-18")
    again = Database.load(path)
    assert again.records == records
    assert [r.options for r in again.runs] == [{"seed": 4, "model": "resnet-18"}]
    assert again.tasks() == [A, B]
    assert again.dag("aaaa") == {"ops": [1]} and again.dag("cccc") is None
    assert path.read_text().count('"kind":"dag"') == 2  # each computation once
    c = again.counts()
    assert (c.records, c.ok, c.failed, c.tasks, c.skipped) == (4, 3, 1, 2, {})


def test_best_is_the_fastest_verified_record():
    database = Database()
    assert database.best(A) is None
    database.append(bad("run", "crash"))
    assert database.best(A) is None
    database.append(ok(3.0))
    database.append(ok(1.0, verified=False))
    database.append(ok(2.0))
    database.append(ok(0.1, B))
    assert database.best(A).seconds == 2.0
    assert database.best(("aaaa", "llvm")).seconds == 2.0
    assert database.best(("aaaa", "cuda")) is None


def test_a_final_timing_replaces_earlier_ones_of_its_candidate():
    database = Database()
    database.append(ok(1.0, decisions={"t": "lucky"}))
    database.append(ok(2.0, decisions={"t": "steady"}))
    assert database.best(A).decisions == {"t": "lucky"}
    database.append(ok(2.5, decisions={"t": "lucky"}, final=True))
    assert database.best(A).decisions == {"t": "steady"}
    database.append(ok(1.9, decisions={"t": "steady"}, final=True))
    assert (database.best(A).seconds, database.best(A).decisions) == (1.9, {"t": "steady"})


def test_one_whose_final_timing_failed_is_not_best_until_another_succeeds():
    database = Database()
    lucky = {"t": "lucky"}
    database.append(ok(1.0, decisions=lucky))
    database.append(ok(2.0, decisions={"t": "steady"}))
    failed = Result(error="timeout", message="the trial took more than 10 s", final=True)
    database.append(make_record(A, failed, decisions=lucky))
    assert database.best(A).decisions == {"t": "steady"}
    database.append(ok(1.5, decisions=lucky, final=True))
    assert database.best(A).seconds == 1.5


def test_a_candidate_that_was_wrong_once_is_never_best():
    database = Database()
    database.append(ok(1.0, decisions={"t": "racy"}))
    database.append(ok(2.0, decisions={"t": "sound"}))
    database.append(bad("wrong", "output C is wrong", decisions={"t": "racy"}))
    database.append(ok(0.9, decisions={"t": "racy"}))
    assert database.best(A).decisions == {"t": "sound"}


def test_query_selects():
    database = Database()
    for record in (ok(1.0), bad("run", "x"), ok(2.0, B)):
        database.append(record)
    assert len(database.query()) == 3
    assert [r.seconds for r in database.query(A, ok=True)] == [1.0]
    assert database.query(name="dense")[0].task == B
    assert database.query(target="cuda") == [] and database.query(origin="default", ok=False)
    assert database.query(("zzzz", "llvm")) == []
    assert database.tally(A) == (2, 1) and database.tally(("zzzz", "llvm")) == (0, 0)


def test_failures_are_grouped_by_kind_and_reason():
    database = Database()
    for n in range(3):
        database.append(bad("wrong", f"output C is wrong in {n} of 3136 elements\nmore {n}"))
    database.append(bad("timeout", "the build took more than 10 s"))
    database.append(bad("run", ""))
    rows = [(f.kind, f.reason, f.count) for f in database.failures()]
    assert rows == [
        ("wrong", "output C is wrong in # of # elements", 3),
        ("run", "no message", 1),
        ("timeout", "the build took more than # s", 1),
    ]
    assert database.failures()[0].example.result.message.endswith("more 0")


def test_damage_is_skipped_counted_and_written_past(tmp_path):
    path = tmp_path / "log.jsonl"
    good = encode(ok(1.0))
    path.write_bytes(
        b"\n" + good + b"garbage\n" + good.replace(b'"v":1', b'"v":9') + b"\x80\x81\n" + good[:50]
    )
    with Database(path) as database:
        assert len(database) == 1
        assert database.skipped == {
            "not JSON, or cut off": 2, "not UTF-8 text": 1, "schema version 9, this is version 1": 1
        }  # fmt: skip
        database.append(ok(0.5))  # must not be glued to the line that was cut off
    again = Database.load(path)
    assert [r.seconds for r in again] == [1.0, 0.5]
    assert again.counts().skipped["not JSON, or cut off"] == 2
    assert again.skipped.told() == [
        "2 lines (3, 6): not JSON, or cut off",
        "1 line (4): schema version 9, this is version 1",
        "1 line (5): not UTF-8 text",
    ]


def _write_many(path, name, count):
    with Database(path) as database:
        for n in range(count):
            task = TaskId(name, ["x" * 3000], name, "llvm")
            database.append(make_record(task, Result(costs=(1.0 + n,), verified=True)))


@pytest.mark.slow
def test_two_processes_write_one_file(tmp_path):
    path = tmp_path / "log.jsonl"
    code = (
        "import sys; from tests.measure.test_database import _write_many; "
        "_write_many(sys.argv[1], sys.argv[2], 300)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], env=env) for name in "ab"
    ]
    assert [w.wait(60) for w in writers] == [0, 0]
    database = Database.load(path)
    assert (len(database), database.skipped) == (600, {})
    assert {t.name for t in database.tasks()} == {"a", "b"}


class FullDisk:
    """Stands in for os.write: takes `room` bytes, then has no space left."""

    def __init__(self, room):
        self.room = room
        self.real = os.write

    def __call__(self, fd, data):
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        written = self.real(fd, bytes(data)[: self.room])
        self.room -= written
        return written


def test_a_full_disk_is_one_error_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    database = Database(path)
    database.append(ok(5.0))
    disk = FullDisk(room=40)
    monkeypatch.setattr(os, "write", disk)
    with pytest.raises(RecordError, match="1 lines are in memory only.*Free some space"):
        database.append(ok(4.0))
    database.append(ok(3.0))  # quiet: the same trouble
    assert database.unwritten == 2 and database.best(A).seconds == 3.0
    with pytest.raises(RecordError, match="No space left"):
        database.flush()
    disk.room = 1 << 30
    database.append(ok(2.0))
    assert database.unwritten == 0
    database.close()
    again = Database.load(path)
    assert [r.seconds for r in again] == [5.0, 4.0, 3.0, 2.0]
    assert again.skipped == {"not JSON, or cut off": 1}  # the fragment of 40 bytes


def test_the_error_can_go_to_a_listener(tmp_path, monkeypatch):
    heard = []
    database = Database(tmp_path / "log.jsonl", on_error=heard.append)
    monkeypatch.setattr(os, "write", FullDisk(room=0))
    database.append(ok(4.0))
    database.append(ok(3.0))
    assert len(heard) == 1 and "No space left" in str(heard[0])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_device_that_is_really_full():
    database = Database("/dev/full")
    with pytest.raises(RecordError, match="No space left"):
        database.append(ok(4.0))


def test_a_log_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(RecordError, match=r"cannot be written \(No such file.*Name a file"):
        Database(tmp_path / "missing" / "log.jsonl")
    with pytest.raises(RecordError, match="Is a directory"):
        Database(tmp_path)


def test_a_missing_log_cannot_be_loaded(tmp_path):
    with pytest.raises(RecordError, match=r"No such file.*Check the path"):
        Database.load(tmp_path / "log.jsonl")
    with pytest.raises(RecordError, match="it is not a file"):
        Database.load(tmp_path)


def test_distill_and_pick_best_keep_the_best_of_each_task(tmp_path):
    first, second, out = (tmp_path / name for name in ("1.jsonl", "2.jsonl", "out.jsonl"))
    with Database(first) as database:
        for record in (ok(3.0), ok(2.0), bad("run", "x"), ok(7.0, B)):
            database.append(record, {"hash": record.task.dag})
    with Database(second) as database:
        database.append(ok(9.0))
        database.append(ok(6.0, B))
    small = Database.load(first).distill()
    assert [r.seconds for r in small] == [2.0, 7.0]
    assert pick_best(first, out) == 2
    assert pick_best(second, out) == 2
    merged = Database.load(out)
    assert sorted(r.seconds for r in merged) == [2.0, 6.0]
    assert merged.dag("bbbb") == {"hash": "bbbb"}
    assert sorted(os.listdir(tmp_path)) == ["1.jsonl", "2.jsonl", "out.jsonl"]


def test_lookup_replays_the_best_schedule():
    from tilewright import te
    from tilewright.schedule.schedule import create_schedule
    from tilewright.targets.target import Target

    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] + 1.0, name="y")
    dag = te.ComputeDAG([x, y])
    schedule = create_schedule(dag)
    stage = schedule[dag.outputs[0]]
    stage.split(stage.op.axis[0], factor=8)
    target = Target("llvm")
    task = TaskId("add", [], dag.hash, str(target))
    database = Database()
    assert database.lookup(dag, target) is None
    result = Result(costs=(1.0,), verified=True)
    database.append(make_record(task, result, steps=schedule.to_json()))
    found = database.lookup(dag, target)
    assert found is not None and found.to_json() == schedule.to_json()
    assert database.lookup(dag, Target("cuda")) is None


def scheduled(name, factor):
    """A computation whose operation has that name, and steps on it."""
    from tilewright import te
    from tilewright.schedule.schedule import create_schedule

    x = te.placeholder((64,), name="x")
    dag = te.ComputeDAG([x, te.compute((64,), lambda i: x[i] + 1.0, name=name)])
    schedule = create_schedule(dag)
    stage = schedule[dag.outputs[0]]
    stage.split(stage.op.axis[0], factor=factor)
    return dag, schedule.to_json()


def test_records_of_equal_computations_under_other_names_replay(tmp_path):
    """A hash says nothing of names, steps do: of a script and of a network in one log."""
    from tilewright.search.publish import publish

    made = [scheduled(name, factor) for name, factor in (("mine", 8), ("yours", 16))]
    (first, _), (second, steps) = made
    assert first.hash == second.hash and first.to_json() != second.to_json()
    task = TaskId("add", [], first.hash, "llvm")
    path, site = tmp_path / "log.jsonl", tmp_path / "site"
    with Database(path) as log:
        for seconds, (dag, closed) in zip((2.0, 1.0), made, strict=True):
            result = Result(costs=(seconds,), verified=True)
            log.append(
                make_record(task, result, decisions={"t": seconds}, steps=closed), dag.to_json()
            )
    publish([path], site, "some-class")
    databases = (log, Database.load(path), Database.load(path).distill())
    for database in (*databases, Database.load(site / "some-class" / "records.jsonl")):
        for dag, _ in made:  # whoever asks, the best record is the one under the other names
            assert database.replay(database.best(task), dag).to_json() == steps
        assert database.dag_of(database.best(task)) == second.to_json()
    slow = next(r for r in log if r.seconds == 2.0)
    assert log.dag_of(slow) == first.to_json() == log.dag(task.dag)


def test_a_long_log_loads_fast(tmp_path):
    path = tmp_path / "log.jsonl"
    steps = [["Split", "conv", "ff", n, 2, "x"] for n in range(12)]
    decisions = {f"tile_{n}": [4, 1, 16, n] for n in range(6)}
    result = Result(costs=(1e-4, 2e-4, 3e-4), verified=True)
    line = encode(make_record(A, result, decisions=decisions, steps=steps))
    count = 20_000
    path.write_bytes(line * count)
    seconds = []
    for _ in range(3):
        began = time.process_time()
        assert len(Database.load(path)) == count
        seconds.append(time.process_time() - began)
    assert min(seconds) * 100_000 / count < 2.0  # alone on a machine: under 1 s


def test_repr_tells_the_story(tmp_path):
    database = Database(tmp_path / "log.jsonl")
    database.append(ok(1.0))
    database.append(bad("run", "x"))
    assert repr(database).endswith("log.jsonl: 2 records of 1 tasks, 1 failed)")


def test_threads_share_a_database(tmp_path):
    import threading

    path = tmp_path / "log.jsonl"
    with Database(path) as database:
        threads = [
            threading.Thread(target=lambda: [database.append(ok(1.0)) for _ in range(200)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    again = Database.load(path)
    assert (len(again), again.skipped) == (800, {})


def test_the_best_of_a_foreign_log_are_refused(tmp_path):
    """Else an empty file would replace what was expected."""
    foreign, best = tmp_path / "tvm.json", tmp_path / "best.jsonl"
    foreign.write_text('{"input": ["cuda", "conv2d", []], "result": [[1.0], 0, 1.0, 1.0]}\n')
    with pytest.raises(RecordError, match="no line can be read.*records import"):
        pick_best(foreign, best)
    assert not best.exists()


# -- devices ---------------------------------------------------------------------------------------


HERE, THERE = (replace(A, fingerprint=f) for f in ("this cpu", "that cpu"))


def test_two_devices_of_one_target_do_not_share_a_best(tmp_path):
    database = Database()
    database.append(ok(1.0, THERE))
    assert database.best(HERE) is None and database.query(HERE) == []
    database.append(ok(2.0, HERE))
    assert (database.best(HERE).seconds, database.best(THERE).seconds) == (2.0, 1.0)
    assert database.best(A).seconds == 1.0  # who names no device, asks for any
    assert database.best(Key("aaaa", "llvm", "this cpu")).seconds == 2.0
    assert len(database.query(A)) == 2 and len(database.query(HERE)) == 1
    assert database.tasks() == [THERE, HERE]
    small = database.distill()
    assert {r.task.fingerprint: r.seconds for r in small} == {"this cpu": 2.0, "that cpu": 1.0}


def test_records_without_a_device_count_for_any_until_it_has_its_own(tmp_path):
    """As logs have them that are older than fingerprints."""
    path = tmp_path / "old.jsonl"
    old = encode(ok(1.0))
    assert b"fingerprint" not in old  # such a line is as it was before
    path.write_bytes(old + encode(ok(3.0, THERE)))
    database = Database.load(path)
    assert database.best(HERE).seconds == 1.0
    assert [r.seconds for r in database.query(HERE)] == [1.0]
    database.append(ok(2.0, HERE))
    assert database.best(HERE).seconds == 2.0  # the older one never beats it
    assert [r.seconds for r in database.query(HERE)] == [1.0, 2.0]
    assert database.best(A).seconds == 1.0
    assert database.best(THERE).seconds == 3.0


def test_a_wrong_result_elsewhere_does_not_refute_ours():
    database = Database()
    database.append(ok(1.0, HERE, decisions={"t": 1}))
    database.append(bad("wrong", "nan", THERE, decisions={"t": 1}))
    assert database.best(HERE).seconds == 1.0


def test_a_computation_is_believed_only_where_its_hash_is_its_key():
    from tilewright import te

    x = te.placeholder((4,), name="x")
    dag, other = (
        te.ComputeDAG(te.compute((4,), lambda i, k=k: x[i] * k, name="y")) for k in (2.0, 3.0)
    )
    for stored, believed in ((dag.to_json(), True), (other.to_json(), False), ({"ops": 3}, False)):
        database = Database()
        database.append(ok(1.0, TaskId("t", [], dag.hash, "llvm")), stored)
        found = database.computation(dag.hash)
        assert (found is not None and found.hash == dag.hash) is believed


def test_leaders_are_the_best_of_different_candidates():
    database = Database()
    for record in (
        ok(3.0), ok(2.0), ok(2.5, decisions={"t": 2.0}), ok(1.0, verified=False), bad("run", "x"),
        ok(4.0, B), ok(0.5, same_as=1), ok(1.5), bad("wrong", "x", decisions={"t": 1.5}),
    ):  # fmt: skip
        database.append(record)
    assert [r.seconds for r in database.leaders(A, 5)] == [2.0, 3.0]
    assert database.leaders(A, 1) == [database.best(A)]
    assert database.leaders(("none", "llvm"), 3) == []
