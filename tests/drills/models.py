"""ONNX models that were changed at random are imported, built and run, each in a child process.

What comes out of one that is still valid is what onnxruntime computes; every other is refused in
words.  To see one try: `echo "SEED INDEX" | python -m drills._model_child`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from typing import Any

from drills._processes import import_path
from drills.drill import Counts, Drill

SECONDS = 10  # of the processor, which other processes of the machine do not take away
PATIENCE = 100  # seconds until a child that does not answer is killed
MEMORY = 2 * 10**9
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}  # numpy's threads wait busily, on 64 cores for seconds


class _Child:
    """A process that tries models."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "drills._model_child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "PYTHONPATH": import_path(), **_ONE_THREAD},
        )  # fmt: skip
        self.broken = False
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def ask(self, seed: int, index: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seed} {index}\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | str:
        """What it says next, "hung" or "crashed"."""
        try:
            line = self.lines.get(timeout=PATIENCE)
        except queue.Empty:
            self.broken = True
            return "hung"
        self.broken = not line
        return json.loads(line) if line else "crashed"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def _happened(child: _Child, seed: int, index: int) -> str:
    child.ask(seed, index)
    began = child.answer()
    if isinstance(began, str):
        return f"{began} before it began"
    made = child.answer()
    if isinstance(made, str):
        return made
    if made["seconds"] > SECONDS:
        return "hung"
    if made["peak"] > MEMORY:
        return "too much memory"
    if made["outcome"] != "built":
        return str(made["outcome"])
    compared = child.answer()
    if isinstance(compared, str):
        return "no reference"  # it was onnxruntime that did not come back
    return str(compared["compared"]).partition(":")[0]


def _run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    child = _Child()
    for index in range(tries):
        happened = _happened(child, seed, index)
        counts[happened] += 1
        if unwanted := happened not in ("right", "refused", "no reference"):
            print(f"  models: seed {seed}, try {index}: {happened}", file=sys.stderr)
        if unwanted or child.broken:
            child.close()
            child = _Child()
    child.close()
    return counts


DRILL = Drill(
    name="models",
    tried="changed models",
    run=_run,
    never=(
        "wrong", "foreign exception", "crashed", "hung", "too much memory",
        "crashed before it began", "hung before it began",
    ),
    always=("right", "refused"),
    short=40,
    long=5000,
)  # fmt: skip
