"""Trackers and devices as processes of a test, on ports that the system chooses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tilewright

SECONDS = 90.0  # to start, on a busy machine
SOURCE = str(Path(tilewright.__file__).parents[1])


class Process:
    """A command of `tilewright.exec` that has said where it listens; `port` is that."""

    def __init__(self, command: str, *arguments: str, log: Path, wait: bool = True) -> None:
        self.log = log
        self.name = command
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"tilewright.exec.{command}", *arguments],
                stdout=out, stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": SOURCE},
            )  # fmt: skip
        self.port = self.wait_for("bind to") if wait else 0

    def wait_for(self, text: str) -> int:
        """Until it says so; the port in what follows, if there is one."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for line in self.text().splitlines():
                if text in line:
                    number = line.partition(text)[2].partition(",")[0].rpartition(":")[2]
                    return int(number) if number.isdigit() else 0
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{self.name} does not say {text!r} but:\n{self.text()}")

    def text(self) -> str:
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self.send(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


class Farm:
    """A tracker and devices; `address` is the tracker's."""

    def __init__(self, folder: Path, host: str = "127.0.0.1", *options: str) -> None:
        self.folder, self.options = folder, options
        self.started: list[Process] = []
        self.host = host
        self.tracker = self._start("rpc_tracker", "--host", host, "--port", "0", *options)
        self.port = self.tracker.port
        self.address = f"127.0.0.1:{self.port}"

    def serve(self, *keys: str) -> list[Process]:
        """One device for each key; they start at the same time."""
        made = [self._server(key, wait=False) for key in keys]
        for one in made:
            one.port = one.wait_for("bind to")
        return made

    def restart_tracker(self) -> None:
        self.tracker = self._start(
            "rpc_tracker", "--host", self.host, "--port", str(self.port), "--port-end",
            str(self.port), *self.options,
        )  # fmt: skip

    def _server(self, key: str, wait: bool) -> Process:
        return self._start(
            "rpc_server", "--tracker", self.address, "--key", key, "--port", "0", "--port-end", "0",
            *self.options, wait=wait,
        )  # fmt: skip

    def _start(self, command: str, *arguments: str, wait: bool = True) -> Process:
        log = self.folder / f"{command}-{len(self.started)}.log"
        made = Process(command, *arguments, log=log, wait=wait)
        self.started.append(made)
        return made

    def stop(self) -> None:
        for process in reversed(self.started):
            process.stop()


@contextmanager
def farm(folder: Path, keys: Sequence[str] = (), *options: str) -> Iterator[Farm]:
    made = Farm(folder, "127.0.0.1", *options)
    try:
        made.serve(*keys)
        yield made
    finally:
        made.stop()
