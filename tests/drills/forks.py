"""Processes that fork at random moments while threads of theirs build and call modules.

Each child then builds modules and networks, calls those of its parent and of its own, and asks for
OpenCL and CUDA, which must refuse: those libraries do not survive a fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from drills._processes import import_path
from drills.drill import Counts, Drill
from drills.threads import call, infer, module, network
from tilewright.base.errors import DeviceError
from tilewright.runtime import Module, array, cpu, cuda, opencl
from tilewright.runtime.drivers.cpu_native import set_num_threads
from tilewright.runtime.network.graph_executor import GraphModule

BUSY_THREADS = 3
CHILD_SECONDS = 20.0
FORKS_PER_PROCESS = 25
WORKED, WRONG, CRASHED = 0, 1, 2
_SLEEPS = (0.0, 0.06)  # before a fork: a build takes about as long


class Parent:
    """What children find: modules, a network, and threads that are busy with all of them."""

    def __init__(self) -> None:
        set_num_threads(2)
        self.stop = False
        self.threads = [
            threading.Thread(target=self.be_busy, args=(k,), daemon=True)
            for k in range(BUSY_THREADS)
        ]
        for thread in self.threads:
            thread.start()  # the first build, too, is forked into
        self.on_cpu, self.library = module(cpu(), 3), network()
        self.elsewhere = [module(dev, 3) for dev in (opencl(), cuda()) if dev.exist]
        self.net = GraphModule(self.library["default"](cpu()))

    def be_busy(self, k: int) -> None:
        rng, factor = random.Random(k), 1000 * k
        while not self.stop:
            factor += 1
            if not k:  # one of them builds networks
                network(factor)
                continue
            built = module(cpu(), factor)  # never the same text: LLVM has something to do
            for _ in range(20):
                call(built, factor, rng)

    def child(self, rng: random.Random) -> bool:
        """Whether everything works that must, and everything else refuses."""
        factor = rng.randrange(10**6)
        own = GraphModule(self.library["default"](cpu()))
        jobs: list[Callable[[], bool]] = [
            lambda: call(module(cpu(), factor % 1000), factor % 1000, rng),
            lambda: call(self.on_cpu, 3, rng),
            lambda: infer(own, rng),
            lambda: infer(
                GraphModule(network(factor % 1000)["default"](cpu())), rng, factor % 1000
            ),
            lambda: infer(self.net, rng),
            lambda: all(refuses(called, rng) for called in self.elsewhere),
        ]
        rng.shuffle(jobs)
        return all(job() for job in jobs)


def refuses(called: Module, rng: random.Random) -> bool:
    dev = called.device
    tries: list[Callable[[], object]] = [
        lambda: call(called, 3, rng),
        lambda: call(module(dev, 3), 3, rng),  # without its device it is text
        lambda: array(np.zeros(4), dev),
    ]
    for attempt in tries:
        try:
            attempt()
        except DeviceError as error:
            if "fork" not in str(error):
                return False
        else:
            return False
    return "fork" in str(dev.why_not())


def work(tries: int, seed: int) -> Counts:
    parent, rng, counts = Parent(), random.Random(seed), Counts()
    for _ in range(tries):
        time.sleep(rng.uniform(*_SLEEPS))
        child = os.fork()
        if not child:
            _end(parent, rng)
        counts[_outcome(child)] += 1
    parent.stop = True
    return counts


def _end(parent: Parent, rng: random.Random) -> None:
    """The child's life."""
    status = CRASHED
    try:
        status = WORKED if parent.child(rng) else WRONG
    except BaseException as error:
        print(repr(error), file=sys.stderr)
    finally:
        os._exit(status)


def _outcome(child: int) -> str:
    deadline = time.monotonic() + CHILD_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return {WORKED: "worked", WRONG: "wrong"}.get(code, "crashed")
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def run(tries: int, seed: int) -> Counts:
    """Every process forks for the first time while its own first builds are under way."""
    counts: Counts = Counter()
    while left := tries - counts.total():
        count = min(left, FORKS_PER_PROCESS)
        code = f"from drills.forks import main; main({count}, {seed + counts.total()})"
        environment = os.environ | {"TILEWRIGHT_CACHE": "off", "PYTHONPATH": import_path()}
        ended = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
            stdout=subprocess.PIPE, text=True, env=environment,
            timeout=60 + count * (CHILD_SECONDS + 1),
        )  # fmt: skip
        counts += Counter(
            {"the parent died": count} if ended.returncode else json.loads(ended.stdout)
        )
    return counts


def main(tries: int, seed: int) -> None:
    print(json.dumps(work(tries, seed)), flush=True)
    os._exit(0)  # the busy threads are in the middle of something


DRILL = Drill(
    name="forks",
    tried="children forked during builds and calls",
    run=run,
    never=("wrong", "crashed", "hung", "the parent died"),
    always=("worked",),
    short=6,
    long=500,
)
