"""Trackers and devices as processes of a test, on ports that the system chooses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tilewright
from farm import forked
from farm.proxy import Proxy

SECONDS = 200.0  # to start, on a busy machine, an emulated one too
SOURCE = str(Path(tilewright.__file__).parents[1])


class Process:
    """A command of `tilewright_tvm.exec` that has said where it listens; `port` is that.

    before: Python that runs in the process first, to spoil it; path: where it imports from;
    python: by which interpreter it is run
    fresh: it imports everything itself, which takes most of its start; default: where something
    runs first that modules may have to find when they are imported
    """

    def __init__(
        self, command: str, *arguments: str, log: Path, wait: bool = True, before: str = "",
        path: str = SOURCE, python: str = sys.executable, fresh: bool | None = None,
    ) -> None:  # fmt: skip
        self.log = log
        self.name = command
        module = f"tilewright_tvm.exec.{command}"
        fresh = bool(before) if fresh is None else fresh
        self._process: subprocess.Popen[bytes] | forked.Forked
        if fresh or (path, python) != (SOURCE, sys.executable) or not hasattr(os, "fork"):
            run = f"{before}\nimport runpy\nrunpy.run_module({module!r}, run_name='__main__')"
            with open(log, "wb") as out:
                self._process = subprocess.Popen(
                    [python, *(["-c", run] if before else ["-m", module]), *arguments],
                    stdout=out, stderr=subprocess.STDOUT,
                    env=os.environ | {"PYTHONPATH": path},
                )  # fmt: skip
        else:
            log.write_bytes(b"")
            self._process = forked.parent(path).start(module, arguments, log, before)
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
        said = self.text()
        self.kill()  # nobody else knows of it yet
        raise AssertionError(f"{self.name} does not say {text!r} but:\n{said}")

    def text(self) -> str:
        return self.log.read_text()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Until it ends by itself; its exit code."""
        return self._process.wait(SECONDS)

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

    def __init__(
        self, folder: Path, host: str = "127.0.0.1", *options: str, before: str = "",
        pages: str | None = None,
    ) -> None:  # fmt: skip
        self.folder, self.options = folder, options
        self.started: list[Process] = []
        self.proxies: list[Proxy] = []
        self.host = host
        self.tracker = self._start(
            "rpc_tracker", "--host", host, "--port", "0", *options,
            *(("--dashboard", pages) if pages else ()), before=before,
        )  # fmt: skip
        self.port = self.tracker.port
        self.address = f"127.0.0.1:{self.port}"

    def serve(self, *keys: str) -> list[Process]:
        """One device for each key; they start at the same time."""
        made = [self._server(key, wait=False) for key in keys]
        for one in made:
            one.port = one.wait_for("bind to")
        return made

    def build(self, key: str, count: int) -> Process:
        """A process that builds, as so many builders."""
        made = self._server(key, False, "--builders", str(count))
        end = time.monotonic() + SECONDS
        while made.text().count("bind to") < count:
            assert time.monotonic() < end, made.text()
            time.sleep(0.05)
        return made

    def restart_tracker(self) -> None:
        self.tracker = self._start(
            "rpc_tracker", "--host", self.host, "--port", str(self.port), "--port-end",
            str(self.port), *self.options,
        )  # fmt: skip

    def serve_at(
        self, key: str, port: int, *options: str, tracker: int | None = None, **how: Any
    ) -> Process:
        """A device at a port, that reaches the tracker by another one; how: see `Process`."""
        return self._start(
            "rpc_server", "--tracker", f"127.0.0.1:{tracker or self.port}", "--key", key,
            "--port", str(port), "--port-end", str(port), *self.options, *options, **how,
        )  # fmt: skip

    def serve_behind(
        self, key: str, delay: float = 0.0, loss: float = 0.0, seed: int = 0
    ) -> tuple[Process, Proxy, Proxy]:
        """A device with a bad network; both ways to it."""
        port = free_port()
        out, into = Proxy(self.port, delay, loss, seed), Proxy(port, delay, loss, seed + 1)
        self.proxies += [out, into]
        made = self.serve_at(key, port, "--custom-addr", f"127.0.0.1:{into.port}", tracker=out.port)
        return made, out, into

    def _server(self, key: str, wait: bool, *options: str) -> Process:
        return self._start(
            "rpc_server", "--tracker", self.address, "--key", key, "--port", "0", "--port-end", "0",
            *self.options, *options, wait=wait,
        )  # fmt: skip

    def _start(self, command: str, *arguments: str, wait: bool = True, **how: Any) -> Process:
        log = self.folder / f"{command}-{len(self.started)}.log"
        made = Process(command, *arguments, log=log, wait=wait, **how)
        self.started.append(made)
        return made

    def stop(self) -> None:
        for process in reversed(self.started):
            process.stop()
        for proxy in self.proxies:
            proxy.close()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@contextmanager
def farm(folder: Path, keys: Sequence[str] = (), *options: str) -> Iterator[Farm]:
    made = Farm(folder, "127.0.0.1", *options)
    try:
        made.serve(*keys)
        yield made
    finally:
        made.stop()


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
