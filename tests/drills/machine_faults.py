"""The machine fails under a search: no space, killed and frozen workers, busy processors.

No candidate may be blamed, and all must be measured that an undisturbed search measures: costs
depend on programs only, so the best is then the same.
"""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from drills._processes import Tuner, signal_each
from drills.drill import Counts, Drill
from search.spaces import Instant, cpu_task
from tilewright.measure.database import Database
from tilewright.measure.run_folder import PREFIX, sweep
from tilewright.search.loop import tune
from tilewright.search.report import Options

SIZES = (2, 4, 2)
SECONDS = 1.0  # for a trial
Fault = Callable[[Tuner, Path, random.Random], None]


def run(tries: int, seed: int) -> Counts:
    rng = random.Random(seed)
    counts: Counts = Counter()
    for n in range(tries):
        name = list(FAULTS)[n % len(FAULTS)]
        with tempfile.TemporaryDirectory() as folder:
            counts[_tried(name, Path(folder), rng)] += 1
    return counts


def _tried(name: str, folder: Path, rng: random.Random) -> str:
    log, temporary = folder / "log.jsonl", folder / "tmp"
    temporary.mkdir()
    tuner = Tuner(log, SECONDS, SIZES, TMPDIR=str(temporary))
    with _fault(FAULTS[name], tuner, temporary, rng):
        code = tuner.end(300)
    if code == 1 and any("Error: " in line for line in tuner.said):  # it told what was the matter
        tuner = Tuner(log, SECONDS, SIZES, TMPDIR=str(temporary))
        code = tuner.end(300)
    if code != 0:
        return "search stopped"
    known = Database.load(log)
    if known.counts().failed:
        return "candidate blamed"
    if {str(sorted(record.decisions.items())) for record in known} != _undisturbed():
        return "not all measured"
    if [path for path in temporary.iterdir() if path.name.startswith(PREFIX)]:
        return "leftovers kept"
    return f"{name}: all measured"


@cache
def _undisturbed() -> set[str]:
    """All that is measured where nothing fails."""
    task = cpu_task(*SIZES)
    measurer = Instant([task])
    tune([task], measurer, options=Options(tuner="grid", leaders=0, negligible=0), verify=False)
    return {str(sorted(record.decisions.items())) for record in measurer.records}


@contextmanager
def _fault(fault: Fault, tuner: Tuner, temporary: Path, rng: random.Random) -> Iterator[None]:
    """The fault, up to three times, until the search is over."""
    over = threading.Event()

    def work() -> None:
        for _ in range(3):
            if not over.is_set():
                fault(tuner, temporary, rng)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def _full_disk(tuner: Tuner, temporary: Path, rng: random.Random) -> None:
    """No file of the search, its log included, can grow for some time."""
    _limit(tuner, 0)
    time.sleep(rng.uniform(0.1, 1.0))
    _limit(tuner, resource.RLIM_INFINITY)
    time.sleep(1.0)


def _limit(tuner: Tuner, size: int) -> None:
    try:
        resource.prlimit(tuner.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    except ProcessLookupError:
        time.sleep(0.1)


def _shared_folder(tuner: Tuner, temporary: Path, rng: random.Random) -> None:
    """Other runs begin in the same folder, and remove what they take for left behind."""
    tuner.wait_for("trial")
    for _ in range(20):
        sweep(temporary)
        time.sleep(rng.uniform(0, 0.05))


def _killed_workers(tuner: Tuner, temporary: Path, rng: random.Random) -> None:
    time.sleep(rng.uniform(0.5, 1.5))
    workers = tuner.workers()
    signal_each(rng.sample(workers, min(1, len(workers))))


def _busy(tuner: Tuner, temporary: Path, rng: random.Random) -> None:
    spin = "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4)]
    for process in spinning:
        process.wait()


def _frozen_worker(tuner: Tuner, temporary: Path, rng: random.Random) -> None:
    tuner.wait_for("trial")
    time.sleep(rng.uniform(0, 1.0))
    workers = tuner.workers()
    signal_each(rng.sample(workers, min(1, len(workers))), signal.SIGSTOP)
    time.sleep(3.0)  # the frozen one is found by its deadline


FAULTS: dict[str, Fault] = {
    "full disk": _full_disk, "shared folder": _shared_folder, "killed workers": _killed_workers,
    "busy processors": _busy, "frozen worker": _frozen_worker,
}  # fmt: skip

DRILL = Drill(
    name="machine_faults",
    tried="searches on a failing machine",
    run=run,
    never=("candidate blamed", "not all measured", "search stopped", "leftovers kept"),
    always=("full disk: all measured",),
    short=2,
    long=50,
)
