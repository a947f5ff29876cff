"""Logs that lie: mutated lines of computations and records, and the kernels that are built by them.

In: a log of a network of small kernels, several records each.  One line of each kernel is changed,
the network is built with the log, run, and compared; some kernels are built by themselves, too.
Each build runs in a process that may be lost.  Read next: `drill.py`, `relay/compile/kernels.py`.
"""

from __future__ import annotations

import copy
import json
import resource
import tempfile
from collections import Counter
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from drills.drill import Counts, Drill
from tilewright.base.errors import TilewrightError
from tilewright.driver.build import build, resolve_target
from tilewright.measure.database import Database
from tilewright.measure.pool import WorkerCrash, WorkerFailure, WorkerPool, WorkerTimeout
from tilewright.measure.record import Result, make_record
from tilewright.network.extract import fused_tasks
from tilewright.runtime import cpu
from tilewright.runtime.ndarray import array, empty
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.task import Task
from tilewright.search.jobs import decisions_of, task_id
from tilewright.search.propose.proposers import Candidate
from tilewright.search.rules.derive import with_rules
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright_tvm import relay

_RECORDS = 3  # of each kernel
_DAG_LINES = 10  # one mutated line in so many tells a computation
_SECONDS = 60.0  # for a network, of which each kernel may take 10
_ALONE = 4  # one kernel in so many is built by itself, too
_BYTES = 2 << 30

WRONG, CRASH, HANG, FOREIGN, MEMORY = "wrong", "crash", "hang", "foreign exception", "over 2 GB"
SHIPPED, REFUSED, UNUSED, ERROR = "right by a record", "refused", "not used", "one clear error"

_NUMBERS = [
    0, -1, 1, 2, 3, 7, 16, 100, 1000, 65536, 10**9, 2**31, 10**18, 2**63, 10**30, 1.5, 1e300, True,
    None, "x", [], {}, [[]],
]  # fmt: skip
_WORDS = {
    "max": "min", "min": "max", "add": "mul", "mul": "add", "sub": "add", "sum": "max",
    "lt": "ge", "ge": "lt", "float32": "int32", "select": "max", "vectorize": "parallel",
    "parallel": "vectorize", "unroll": "vectorize", "split": "fuse", "local": "shared",
    "reorder": "fuse", "compute_at": "compute_inline", "global": "local", "exp": "sqrt",
}  # fmt: skip


# -- the network and its log -----------------------------------------------------------------------


@cache
def _network() -> tuple[relay.IRModule, dict[str, Any], dict[str, Any], list[Any]]:
    """Kernels that each give one result: module, weights, inputs, what it computes."""
    rng = np.random.default_rng(0)
    variables, params, inputs, results = [], {}, {}, []

    def value(name: str, *shape: int, weight: bool = False) -> Any:
        variables.append(relay.var(name, shape=shape))
        into = params if weight else inputs
        into[name] = rng.standard_normal(shape).astype("float32")
        return variables[-1]

    for k, size in enumerate((6, 9)):
        x, w = value(f"x{k}", 1, 8, size, size), value(f"w{k}", 8, 8, 3, 3, weight=True)
        results.append(relay.nn.relu(relay.nn.conv2d(x, w, padding=1)))
        x, w = value(f"d{k}", 4, 5 + size), value(f"v{k}", 16, 5 + size, weight=True)
        results.append(relay.nn.relu(relay.nn.dense(x, w)))
        results.append(relay.nn.max_pool2d(value(f"p{k}", 1, 8, size, size), 3, 2, padding=1))
        results.append(relay.sum(value(f"s{k}", 16, 10 + size), axis=1))
    mod = relay.IRModule.from_expr(relay.Function(variables, relay.Tuple(results)))
    wanted = relay.evaluate(mod, {**params, **inputs}, "float64")
    return mod, params, inputs, list(wanted)


@cache
def _tasks() -> list[Task]:
    mod, params, _, _ = _network()
    return [with_rules(t) for t in fused_tasks(mod, params, "llvm", include_simple=True)]


def _lines() -> list[list[bytes]]:
    """Of each kernel the line of its computation, and its records."""
    rng, found = np.random.default_rng(0), []
    for task in _tasks():
        with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "log") as database:
            for trial in range(_RECORDS):
                sketch = task.sketches[trial % len(task.sketches)]
                drawn = sketch.space.sample(64, rng)
                candidate = Candidate(sketch, int(drawn[sketch.legal(drawn)][0]))
                database.append(
                    make_record(
                        task_id(task), Result(costs=(1e-3 * (1 + trial),), verified=True),
                        origin=sketch.origin, decisions=decisions_of(candidate),
                        steps=sketch.close(candidate.index).to_json(),
                    ),
                    task.dag.to_json(),
                )  # fmt: skip
            found.append((Path(folder) / "log").read_bytes().splitlines(keepends=True))
    return found


# -- what is changed -------------------------------------------------------------------------------


def _mutated(line: bytes, rng: Random) -> bytes:
    """The line with one thing in it changed, mostly so that it still reads as one."""
    if rng.random() < 0.1:
        return _torn(line, rng)
    data = json.loads(line)
    part = data["dag"] if data["kind"] == "dag" else rng.choice(
        [*[data["steps"]] * 6, data["decisions"], data["task"], data["result"], data]
    )  # fmt: skip
    for _ in range(rng.choice((1, 1, 1, 2))):
        _change(part, rng)
    return json.dumps(data).encode() + b"\n"


def _torn(line: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(line))
    new = [
        bytes([rng.randrange(256)]),
        b"",
        b"[" * 5000,
        b"9" * 400,
        b"\\ud800",
        line[at : at + 40],
    ]
    return (line[:at] + rng.choice(new) + line[at + rng.randrange(3) :]).replace(b"\n", b"") + b"\n"


def _change(part: Any, rng: Random) -> None:
    """Another number, word or order somewhere in a tree of lists and tables."""
    places = list(_places(part))
    if not places:
        return
    owner, key = rng.choice(places)
    value = owner[key]
    if isinstance(owner, list) and rng.random() < 0.2:
        rng.choice([
            partial(owner.pop, key), partial(owner.insert, key, copy.deepcopy(value)),
            owner.reverse, partial(rng.shuffle, owner), owner.clear,
        ])()  # fmt: skip
    elif isinstance(value, str) and value in _WORDS and rng.random() < 0.8:
        owner[key] = _WORDS[value]
    elif isinstance(value, str):
        others = [o[k] for o, k in places if isinstance(o[k], str)]
        owner[key] = rng.choice([*others, value + "x", ""])
    elif isinstance(value, (int, float)) and rng.random() < 0.4:
        owner[key] = value + rng.choice((-1, 1)) if rng.random() < 0.5 else value * 2
    else:
        owner[key] = copy.deepcopy(rng.choice(_NUMBERS))


def _places(part: Any) -> Any:
    keys = part if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
    for key in keys:
        yield part, key
        yield from _places(part[key])


# -- what follows ----------------------------------------------------------------------------------


def attempt(log: str, seed: int) -> list[str]:
    """Build and run the network with a log: what became of each kernel.  In a process of its own.

    The last entry tells whether the memory of the process stayed within its limit.
    """
    mod, params, inputs, wanted = _network()
    rng = Random(seed)
    try:
        lib = relay.build(mod, "llvm", params, log)
        module = GraphModule(lib["default"](cpu()))
        module.run(**inputs)
        got = [module.get_output(k).numpy() for k in range(len(wanted))]
        found = list(map(_became, lib.report.kernels, got, wanted))
        for k, task in enumerate(_tasks()):
            if rng.randrange(_ALONE) == 0 and not _right_alone(log, task):
                found[k] = WRONG
    except TilewrightError:
        found = [ERROR] * len(wanted)
    except Exception:
        found = [FOREIGN] * len(wanted)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [*found, MEMORY if peak > _BYTES else ""]


def _became(kernel: Any, got: Any, wanted: Any) -> str:
    if np.abs(got - wanted).max() > 1e-4 * np.abs(wanted).max():
        return WRONG
    if not kernel.verified:
        return "unverified"
    if kernel.note:
        return REFUSED
    return SHIPPED if kernel.source == "record" else UNUSED


def _right_alone(log: str, task: Task) -> bool:
    """`build` of what the log has for one kernel; an error is right, too."""
    try:
        found = Database.load(log).lookup(task.dag, resolve_target("llvm"))
        if found is None:
            return True
        function = build(found, found.dag.args, "llvm")
    except TilewrightError:
        return True
    given = random_inputs(task.dag, 1)
    expected, tolerance = evaluate_with_tolerance(task.dag, given)
    outputs = [empty(t.shape, t.dtype) for t in task.dag.outputs]
    function(*(array(np.asarray(a)) for a in given), *outputs)
    return all(
        bool(np.all(np.abs(out.numpy() - want) <= slack))
        for out, want, slack in zip(outputs, expected, tolerance, strict=True)
    )


def run(tries: int, seed: int) -> Counts:
    rng, counts, original = Random(seed), Counter(), _lines()
    with tempfile.TemporaryDirectory() as folder, WorkerPool(1) as pool:
        log = Path(folder) / "log.jsonl"
        while (left := tries - counts.total()) > 0:
            lines = copy.deepcopy(original)
            for own in lines[:left]:
                best = 1 if rng.random() < 0.7 else rng.randrange(1, len(own))
                at = 0 if rng.randrange(_DAG_LINES) == 0 else best
                own[at] = _mutated(own[at], rng)
            log.write_bytes(b"".join(line for own in lines for line in own))
            try:
                *found, memory = pool.submit(
                    attempt, str(log), rng.randrange(1 << 30), timeout=_SECONDS
                ).result()
                counts.update(found[:left])
                if memory:
                    counts[memory] += 1
                    counts[found[0]] -= 1
            except WorkerFailure as failure:
                kinds = {WorkerTimeout: HANG, WorkerCrash: CRASH}
                counts[kinds.get(type(failure), FOREIGN)] += 1
                counts[ERROR] += min(left, len(lines)) - 1
    return +counts


DRILL = Drill(
    name="log_builds",
    tried="mutated lines of logs, and what is built by them",
    run=run,
    never=(WRONG, CRASH, HANG, FOREIGN, MEMORY, "unverified"),
    always=(SHIPPED, REFUSED),
    short=8,
    long=10_000,
)
