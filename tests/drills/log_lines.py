"""Lines of logs, mutated, through every loader there is.

A file holds a sound line, a mutated one and a sound one.  Every loader must give the sound ones, or
say why it takes none of the file; nothing it raises may be anything but a `TilewrightError`, and
nothing that it prints may hold a control character.  The loaders run in a child process: what
crashes or hangs costs that process, and is counted.

What is then built from such records is another drill.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import select
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from drills._processes import import_path
from drills.drill import Drill
from schedule import seed003
from schedule.ansor_logs import MATMUL, matmul
from tilewright import te, topi
from tilewright.base.dtype import json_name
from tilewright.base.errors import TilewrightError
from tilewright.cli.tables import print_import, print_records
from tilewright.measure.database import Database
from tilewright.measure.formats import Workloads
from tilewright.measure.importing import import_lines, log_lines
from tilewright.measure.lines import LINE_BYTES
from tilewright.measure.record import DagLine, Result, RunLine, TaskId, encode, make_record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.search.jobs import decisions_of
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.proposers import Candidate
from tilewright.search.transfer import recall, teach
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright_tvm import auto_scheduler, autotvm
from tilewright_tvm.auto_scheduler.workload_registry import knows, workload_key_to_tensors

DEADLINE = 10.0  # seconds for one line and all loaders
MEMORY = 2 << 30
READ, SKIPPED = "read in spite of the change", "skipped, and told"
LOST, FOREIGN = "a sound line was lost", "a foreign exception"
CRASH, HANG, LARGE = "a crash", "a hang", "more than 2 GB"
ESCAPE, SILENT = "a control character on the terminal", "ignored without a word"

AUTOTVM, ANSOR, DAG, RECORD = 0, 1, 2, 3  # kinds of lines in `sound_lines`, ours behind them
OPERATORS = 6  # where those of operators begin that templates know by their attributes
_EXTREMES = (
    "0", "-1", "-0.0", "1.5", "17", "1e18", "1e308", "1e999", "1e-400", "NaN", "-Infinity", "null",
    "true", '""', '"x"', '"\\ud800"', '"\\u001b[31m"', "[]", "{}", "1000000000000000000",
    "9223372036854775808", "9" * 400, "9" * 6000,
)  # fmt: skip
_UNPRINTABLE = (
    rb"\u001b[2J\u001b]0;x\u0007", b"\x1b[31m", rb"\u0000", b"\xff\xfe", rb"\ud800", rb"\u202e",
    b"\xc2\x9b31m", rb"\r", rb"\u0008", b"\xc3\xbc",
)  # fmt: skip
_KEY = re.compile(rb'"\w+":')
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e[-+]?\d+)?")


def sound_lines() -> list[bytes]:
    """One line of every kind that a loader may meet."""
    dag = ComputeDAG(matmul(32, 48, 24))
    schedule = Schedule(dag)
    stage = schedule[dag.outputs[0]]
    stage.split(stage.op.axis[0], factor=8)
    result = Result(costs=(1e-3, 2e-3, 3e-3), verified=True, build_s=0.5, run_s=0.25)
    task = TaskId("matmul", [32, 48, 24], dag.hash, "llvm", "a cpu")
    record = make_record(
        task, result, origin="template:t", decisions={"tile": [4, 8], "unroll": 16},
        steps=schedule.to_json(), device="cpu", trial=3,
    )  # fmt: skip
    failed = make_record(task, Result(error="compile", message="it did not\n compile"), trial=4)
    target = "llvm -keys=cpu -mcpu=x -num-cores=2"
    key = json.dumps(["matmul", 32, 48, 24])
    old = {
        "i": [[key, target, [16, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], MATMUL]],
        "r": [[0.002, 0.0021], 0, 1.25, 1714270206], "v": "v0.6",
    }  # fmt: skip
    sizes = {"tile_f": [-1, 32, 8, 1], "tile_y": [-1, 1, 1, 7], "tile_x": [-1, 1, 1, 1],
             "tile_rc": [-1, 4, 2], "tile_ry": [-1, 1, 3], "tile_rx": [-1, 1, 3]}  # fmt: skip
    knobs = [[name, "sp", sizes[name]] for name in sizes]
    knobs += [["auto_unroll_max_step", "ot", 0], ["unroll_explicit", "ot", 0]]
    older = {
        "input": ["cuda -keys=cuda,gpu -arch=sm_70", "tests/conv2d_no_batching",
                  list(seed003.FLAGSHIP), {}],
        "config": {"index": 430132, "code_hash": None, "entity": knobs},
        "result": [[0.0016], 0, 3.7, 1553483919.8], "version": 0.2, "tvm_version": "0.8.0",
    }  # fmt: skip
    return [
        json.dumps(older).encode() + b"\n", json.dumps(old).encode() + b"\n",
        encode(DagLine(hash=dag.hash, dag=_raw(dag.to_json()))), encode(record), encode(failed),
        encode(RunLine(options={"seed": 1, "tuner": "xgb"}, timestamp=1.7e9)),
        *(line for tensors in _operators() for line in _tuned(tensors)),
    ]  # fmt: skip


def _operators() -> list[list[Tensor]]:
    """Computations whose templates read the attribute `workload`."""
    image, kernel = te.placeholder((1, 8, 9, 9), name="x"), te.placeholder((8, 8, 3, 3), name="w")
    each, rows = te.placeholder((8, 1, 3, 3), name="w"), te.placeholder((16, 32), name="x")
    return [
        [image, kernel, topi.nn.conv2d_nchw(image, kernel, 1, 1, 1)],
        [image, each, topi.nn.depthwise_conv2d_nchw(image, each, 1, 1)],
        [rows, w := te.placeholder((24, 32), name="w"), topi.nn.dense(rows, w)],
    ]


def _tuned(tensors: list[Tensor]) -> list[bytes]:
    """A computation and a record of the first member of its template, as a search writes them."""
    task = task_of_dag(ComputeDAG(tensors), Target("llvm"))
    sketch = next(s for s in task.sketches if s.origin.startswith("template:"))
    record = make_record(
        TaskId("operator", [], task.dag.hash, "llvm"), Result(costs=(1e-3,), verified=True),
        origin=sketch.origin, decisions=decisions_of(Candidate(sketch, 0)),
        steps=sketch.close(0).to_json(),
    )  # fmt: skip
    return [encode(DagLine(hash=task.dag.hash, dag=_raw(task.dag.to_json()))), encode(record)]


def _raw(data: Any) -> Any:
    return msgspec.Raw(msgspec.json.encode(data, enc_hook=json_name))


# -- mutations -------------------------------------------------------------------------------------


def mutated(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """The line with one to three things changed; it stays one line."""
    line = line.rstrip(b"\n")
    for _ in range(rng.choice((1, 1, 2, 3))):
        line = rng.choices(list(_CHANGES), list(_CHANGES.values()))[0](line, others, rng)
    return line.replace(b"\n", b" ") + b"\n"


def _byte(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    at = rng.randrange(len(line) + 1)
    return line[:at] + bytes([rng.randrange(256)]) + line[at + rng.randrange(2) :]


def _cut(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    return line[: rng.randrange(len(line) + 1)]


def _part(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A part is gone, twice there, or another line's."""
    a, b = sorted(rng.randrange(len(line) + 1) for _ in range(2))
    other = rng.choice(others)
    c = rng.randrange(len(other))
    return rng.choice((line[:a] + line[b:], line[:b] + line[a:], line[:a] + other[c:]))


def _number(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    found = list(_NUMBER.finditer(line))
    if not found:
        return line
    at = rng.choice(found)
    return line[: at.start()] + rng.choice(_EXTREMES).encode() + line[at.end() :]


def _value(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Some value of the JSON becomes another, or goes."""
    try:
        return _with_another_value(line, rng)
    except (ValueError, RecursionError):  # it is none, or nests deeper than calls may
        return _byte(line, others, rng)


def _with_another_value(line: bytes, rng: random.Random) -> bytes:
    data = json.loads(line)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, (dict, list)):
            for key in list(node) if isinstance(node, dict) else range(len(node)):
                places.append((node, key))
                walk(node[key])

    walk(data)
    if not places:
        return line
    node, key = rng.choice(places)
    if rng.random() < 0.2:
        del node[key]
        return json.dumps(data).encode()
    node[key] = "@@"
    text = rng.choice((*_EXTREMES, *(json.dumps(n[k]) for n, k in places[:8] if n is not node)))
    return json.dumps(data).replace('"@@"', text).encode()


def _twice(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A key comes twice in an object: before the other with a value of its own, or behind it."""
    found = list(_KEY.finditer(line))
    if not found:
        return line
    at = rng.choice(found)
    value = rng.choice((*_EXTREMES, '{"a":1}', "[1]")).encode()
    if rng.random() < 0.5:
        return line[: at.start()] + at.group() + value + b"," + line[at.start() :]
    end = line.rfind(b"}")
    return line[:end] + b"," + at.group() + value + line[end:]


def _deep(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Lists in lists somewhere, closed or not; in strings they are harmless."""
    depth = rng.choice((50, 150, 250, 400, 990, 5_000, 200_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    found = list(_NUMBER.finditer(line))
    at = rng.choice(found) if found else None
    a, b = (at.start(), at.end()) if at else (0, 0)
    return line[:a] + opened * depth + b"1" + closed * (depth * (rng.random() < 0.7)) + line[b:]


def _text(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Something unprintable in a string."""
    at = line.find(b'"', rng.randrange(len(line) + 1)) + 1
    odd = rng.choice(_UNPRINTABLE)
    return line[:at] + odd + line[at:]


def _huge(line: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """A field that is as long as a line may be, or longer."""
    most = LINE_BYTES - len(line) - 10
    size = rng.choice((1 << 16, 1 << 20, most, LINE_BYTES + 1, 3 * LINE_BYTES))
    found = list(_NUMBER.finditer(line))
    if not found:
        return line
    at = rng.choice(found)
    with_ = rng.choice((b"7", b'"', b"[],", b"\\", b"1,", b"0.", b"[", b'"a":1,'))
    return line[: at.start()] + with_ * (max(size, 1) // len(with_)) + line[at.end() :]


# Change -> how often.
_CHANGES: dict[Callable[[bytes, list[bytes], random.Random], bytes], float] = {
    _byte: 20, _cut: 6, _part: 12, _number: 20, _value: 25, _twice: 8, _deep: 5, _text: 8,
    _huge: 0.5,
}  # fmt: skip


# -- the loaders -----------------------------------------------------------------------------------


def _told(call: Callable[[], Any]) -> bool:
    """Whether the call gave something; no: it was refused in words.  What else it raises passes."""
    try:
        call()
    except TilewrightError as error:
        _check_text(str(error))
        return False
    return True


class _OnTerminal(Exception):
    pass


class _Lost(Exception):
    pass


class _Silent(Exception):
    pass


def _check_text(text: str) -> None:
    if any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text):
        raise _OnTerminal(repr(text))


def _own(path: Path, wanted: int) -> bool:
    """Every reader of our logs.  wanted: sound records.  Returns whether nothing was skipped."""
    database = Database.load(path)
    if len(database) < wanted:
        raise _Lost(f"{len(database)} of {wanted} records")
    shown = io.StringIO()
    print_records(database, console=Console(file=shown, width=200))
    _check_text(shown.getvalue())
    for record in database:
        _check_text(repr(record))
        _told(lambda r=record: (r.decisions, r.steps))  # type: ignore[misc]
    for task in database.tasks():
        best = database.best(task)
        assert best is None or 0 < best.seconds < 1e9
        _told(lambda t=task: database.computation(t.dag))  # type: ignore[misc]
    counts = database.counts()
    database.failures()
    _ = database.runs
    database.distill()
    whole = list(autotvm.record.load_from_file(path))
    assert len(whole) == counts.records
    with autotvm.apply_history_best(path) as history:
        _told(lambda: history.query("llvm", ["matmul", 32, 48, 24]))
    for given, _ in auto_scheduler.load_records(path):
        _told(lambda g=given: g.state)  # type: ignore[misc]
        _told(lambda g=given: g.task)  # type: ignore[misc]
    auto_scheduler.RecordReader(path).read_lines(max_lines=2)
    _told(lambda: auto_scheduler.load_best_record(path)[0].state)
    _told(lambda: auto_scheduler.load_best_record(path, include_compatible=True))
    with auto_scheduler.ApplyHistoryBest(path):
        for task in database.tasks():
            computed = database.computation(task.dag)
            if computed is not None:
                _told(lambda c=computed: database.lookup(c, Target("llvm")))  # type: ignore[misc]
    past = recall(database)
    _told(lambda: teach(CostModel(), past))
    autotvm.record.pick_best(path, path.with_suffix(".best"))
    return not database.skipped


def _foreign(path: Path, wanted: int) -> bool:
    """TVM's logs: imported line by line; everything else refuses them by name, or tells what it
    left out."""
    database = Database()
    workloads = Workloads(functions={"matmul": matmul})
    report = import_lines(log_lines(path), database, workloads)
    if report.lines - report.unusable.total() < wanted:
        raise _Lost(dict(report.unusable))
    shown = io.StringIO()
    print_import(report, Console(file=shown, width=200))
    _check_text(shown.getvalue())
    for read in (autotvm.apply_history_best, autotvm.record.load_from_file,
                 auto_scheduler.load_records, auto_scheduler.ApplyHistoryBest):  # fmt: skip
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if _told(lambda read=read: read(path)) and not said:  # type: ignore[misc]
                raise _Silent(read.__name__)
        for warning in said:
            _check_text(str(warning.message))
    return not report.unusable


def _keys(line: bytes) -> None:
    """Workload keys, as a line has them."""
    text = line.decode(errors="replace")
    for key in (text, text[text.find("[") :][:100]):
        _told(lambda key=key: knows(key) and workload_key_to_tensors(key))  # type: ignore[misc]


def _try(number: int, seed: int, lines: list[bytes], folder: Path) -> str:
    rng = random.Random(f"{seed}/{number}")
    kind = DAG if number % 10 == 0 else rng.randrange(len(lines))
    changed = mutated(lines[kind], lines, rng)
    path = folder / "log"
    if kind in (AUTOTVM, ANSOR):
        path.write_bytes(lines[ANSOR] + changed + lines[ANSOR])
        load, wanted = _foreign, 2
    else:
        together = [changed]
        if kind >= OPERATORS:  # a computation, or the record of the one before
            is_record = (kind - OPERATORS) % 2
            together = [lines[kind - 1], changed] if is_record else [changed, lines[kind + 1]]
        path.write_bytes(b"".join([lines[DAG], lines[RECORD], *together, lines[RECORD]]))
        load, wanted = _own, 2
    try:
        unharmed = load(path, wanted)
        _keys(changed[:10_000])
    except _OnTerminal as shown:
        return _said(ESCAPE, shown, number)
    except _Lost as lost:
        return _said(LOST, lost, number)
    except _Silent as silent:
        return _said(SILENT, silent, number)
    except TilewrightError as refused:  # of a file that has sound lines
        return _said(LOST, refused, number)
    except Exception as foreign:
        return _said(FOREIGN, foreign, number)
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MEMORY:
        return LARGE
    return READ if unharmed else SKIPPED


def _said(outcome: str, error: Exception, number: int) -> str:
    print(f"try {number}: {outcome}: {error!r:.500}", file=sys.stderr, flush=True)
    return outcome


def _child(first: int, end: int, seed: int) -> None:
    """Tries in this process; a line of output for each."""
    warnings.simplefilter("ignore")
    lines = sound_lines()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, end):
            print(_try(number, seed, lines, Path(folder)), flush=True)


def run(tries: int, seed: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    while counts.total() < tries:
        done = _watched(counts.total(), tries, seed)
        counts.update(done)
    return counts


def _watched(first: int, end: int, seed: int) -> list[str]:
    """What a child says of its tries, until it is through, crashes or hangs."""
    env = {**os.environ, "PYTHONPATH": import_path()}
    code = f"from drills.log_lines import _child; _child({first}, {end}, {seed})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env)
    assert child.stdout is not None
    outcomes: list[str] = []
    rest, deadline = b"", DEADLINE + 60  # the first has the imports, too
    while True:
        ready, _, _ = select.select([child.stdout], [], [], deadline)
        if not ready:
            child.kill()
            child.wait()
            print(f"try {first + len(outcomes)}: {HANG}", file=sys.stderr)
            return [*outcomes, HANG]
        data = os.read(child.stdout.fileno(), 1 << 16)
        if not data:
            break
        *whole, rest = (rest + data).split(b"\n")
        outcomes += [line.decode() for line in whole]
        deadline = DEADLINE
    child.wait()
    return outcomes if len(outcomes) == end - first else [*outcomes, CRASH]


DRILL = Drill(
    name="log_lines",
    tried="mutated lines of logs, through every loader",
    run=run,
    never=(LOST, FOREIGN, CRASH, HANG, LARGE, ESCAPE, SILENT),
    always=(READ, SKIPPED),
    short=150,
    long=10_000,
)
