"""Trackers and devices that begin with everything imported, which is most of what a start takes.

One process for each that runs tests imports what they need and then forks, once for each that is
asked for: the child gets its own arguments, environment and output, and ends as any program does.
Run as a program it is that process: jobs as JSON on standard input, answers on standard output.
In: a module, its arguments.  Out: a `Forked`, with what `subprocess.Popen` has.
Read next: `processes.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTED = (
    "tilewright.farm.board", "tilewright.farm.command", "tilewright.farm.server",
    "tilewright.farm.tracker",
)  # fmt: skip


class Forked:
    """A process of `parent`, which alone can be told how it ended."""

    def __init__(self, parent: Parent, pid: int) -> None:
        self._parent, self.pid = parent, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._parent.ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Parent:
    """The process that forks; it ends with the one that asks."""

    def __init__(self, path: str) -> None:
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip

    def start(self, module: str, arguments: Sequence[str], log: Path, before: str = "") -> Forked:
        """Run a module; before: Python that runs first, to spoil it."""
        job = {"module": module, "arguments": list(arguments), "before": before}
        where = {"env": dict(os.environ), "cwd": os.getcwd(), "log": str(log)}
        return Forked(self, self.ask(**job, **where))

    def close(self) -> None:
        """Until it ends, which it does once nobody asks any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def ask(self, **job: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._turn:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


@functools.cache
def parent(path: str) -> Parent:
    """The one of this process; path: where it imports from."""
    made = Parent(path)
    atexit.register(made.close)
    return made


# -- in the process that forks ---------------------------------------------------------------------


def serve() -> dict[str, Any] | None:
    """Fork for each job; give it in the child, None once nobody asks any more."""
    ended: dict[int, int] = {}
    for line in sys.stdin:
        job = json.loads(line)
        if "poll" in job:
            answer = _how_it_ended(job["poll"], ended)
        else:
            answer = os.fork()
            if not answer:
                return dict(job)
        print(json.dumps(answer), flush=True)
    return None


def _how_it_ended(pid: int, ended: dict[int, int]) -> int | None:
    if pid not in ended:
        done, status = os.waitpid(pid, os.WNOHANG)
        if not done:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


def run(job: dict[str, Any], path: str) -> None:
    """As `python -m MODULE ARGUMENTS`, in its environment and with its output in a file."""
    with open(os.devnull, "rb") as nothing, open(job["log"], "wb") as out:
        for file, number in ((nothing, 0), (out, 1), (out, 2)):
            os.dup2(file.fileno(), number)
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["env"] | {"PYTHONPATH": path})
    sys.argv = [job["module"], *job["arguments"]]
    exec(job["before"], {"__name__": "before"})
    runpy.run_module(job["module"], run_name="__main__", alter_sys=True)


def main() -> None:
    path = os.environ["PYTHONPATH"]
    sys.path.remove(str(Path(__file__).parent))  # which the child would not have
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            import_module(name)
    assert threading.active_count() == 1
    gc.freeze()
    job = serve()
    if job is not None:
        run(job, path)


if __name__ == "__main__":
    main()
