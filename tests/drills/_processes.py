"""Processes for drills: a search that can be watched and hurt, and what is left when it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

_MARK = "DRILL_OF_TILEWRIGHT"
_TUNER = Path(__file__).with_name("_tuner.py")


def import_path() -> str:
    """What a child needs as PYTHONPATH to import what this process can."""
    return os.pathsep.join(p for p in sys.path if p)


class Tuner:
    """A running `_tuner.py`.  said: its lines so far"""

    def __init__(self, log: Path, seconds: float, sizes: tuple[int, ...], **variables: str) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [sys.executable, str(_TUNER), str(log), str(seconds), *map(str, sizes)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PYTHONPATH": import_path(), _MARK: self.mark, **variables},
        )  # fmt: skip
        self.said: list[str] = []
        self.heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, word: str, count: int = 1, seconds: float = 60.0) -> bool:
        """Whether so many lines began with `word` before the process ended or the time was over."""

        def enough() -> bool:
            told = sum(line.startswith(word) for line in self.said)
            return told >= count or not self._reader.is_alive()

        with self.heard:
            self.heard.wait_for(enough, seconds)
        return sum(line.startswith(word) for line in self.said) >= count

    def workers(self) -> list[int]:
        """Its builder and its device process, as far as they run."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def end(self, seconds: float) -> int | None:
        """The exit code; None for one that had to be killed."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self._reader.join(10)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self.heard:
                self.said.append(line.strip())
                self.heard.notify_all()


def marked(mark: str) -> list[int]:
    """The processes that a tuner and its workers are, or have left."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it ended, or is another user's
            continue
        if mine and state != "Z":
            found.append(int(folder.name))
    return found


def signal_each(pids: list[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
