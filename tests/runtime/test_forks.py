"""A forked child works, or gets an error; nothing that another thread held holds it up."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from llvmlite import binding

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import (
    cached_property,
    finish_first,
    importing,
    lock,
    once,
)
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device, Module, array, cpu, device, empty
from tilewright.runtime.drivers import ForkGuard, cuda, opencl
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

Build = Callable[..., Artifact]
ADD = (2, 0, "+", 1)
SECONDS = 20.0

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")


def in_child(function: Callable[[], object]) -> str:
    """What became of a child that called it: "worked", the error it raised, or "hung"."""
    source, sink = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            function()
            os.write(sink, b"worked")
        except BaseException as error:
            os.write(sink, f"{type(error).__name__}: {error}".encode()[:2000])
        finally:
            os._exit(0)
    os.close(sink)
    deadline, ended = time.monotonic() + SECONDS, 0
    while not ended and time.monotonic() < deadline:
        ended, _ = os.waitpid(child, os.WNOHANG)
        time.sleep(0.005)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    with os.fdopen(source, "rb") as said:
        return said.read().decode() if ended else "hung"


def while_held(guard: object, function: Callable[[], object], seconds: float) -> str:
    """The same, forked while another thread holds `guard`, for so long."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with guard:  # type: ignore[attr-defined]
            held.set()
            done.wait(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    try:
        return in_child(function)
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
def test_a_build_while_another_thread_is_inside_llvm(elementwise: Build) -> None:
    """The child is made when that thread has left LLVM."""
    elementwise(cpu(), [ADD])

    def build() -> None:
        module = Module(elementwise(cpu(), [(2, 0, "*", 7.0)]))
        x, out = array(np.ones(1000, np.float32)), empty(1000)
        module(x, x, out)
        assert (out.numpy() == 7).all()

    assert while_held(binding.ffi.lib._lock, build, 0.3) == "worked"


@pytest.mark.slow
def test_an_import_under_way_ends_first() -> None:
    def enter() -> None:
        with importing:
            pass

    assert while_held(importing, enter, 0.3) == "worked"


def test_locks_are_free_in_a_child() -> None:
    held = lock()

    def enter() -> None:
        assert held.acquire(timeout=5)
        with held:  # reentrant
            pass

    assert while_held(held, enter, 60) == "worked"


def test_what_is_made_once_can_be_made_in_a_child_of_a_process_that_is_at_it() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @once
    def make() -> int:
        begun.set()
        go_on.wait(60)
        return os.getpid()

    def parent_makes() -> None:
        make()

    thread = threading.Thread(target=parent_makes)
    thread.start()
    assert begun.wait(10)

    def child_makes() -> None:
        go_on.set()
        assert make() == os.getpid()

    try:
        assert in_child(child_makes) == "worked"
    finally:
        go_on.set()
        thread.join()


class Slow:
    """A value that is computed until `go_on` is set, in both of the ways that the package uses."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.cached = cache(self.compute)

    def compute(self) -> int:
        self.begun.set()
        self.go_on.wait(60)
        return os.getpid()

    @cached_property
    def value(self) -> int:
        return self.compute()


@pytest.mark.parametrize("ask", [lambda slow: slow.value, lambda slow: slow.cached()])
def test_what_is_cached_can_be_computed_in_a_child_of_a_process_that_computes_it(
    ask: Callable[[Slow], int],
) -> None:
    slow = Slow()
    thread = threading.Thread(target=ask, args=(slow,))
    thread.start()
    assert slow.begun.wait(10)

    def child_asks() -> None:
        slow.go_on.set()
        assert ask(slow) == os.getpid()

    try:
        assert in_child(child_asks) == "worked"
    finally:
        slow.go_on.set()
        thread.join()


def test_threads_that_ask_at_once_get_one_value() -> None:
    class Fresh:
        @cached_property
        def value(self) -> object:
            """What it is."""
            met.wait(10)  # each of the two is inside
            return object()

    fresh, met, found = Fresh(), threading.Barrier(2), []
    threads = [threading.Thread(target=lambda: found.append(fresh.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] is fresh.value
    assert Fresh.value.__doc__ == "What it is."


def test_a_fork_waits_for_what_must_finish() -> None:
    guard, steps = threading.RLock(), []
    finish_first(guard)

    class Begun:
        def __enter__(self) -> None:
            guard.acquire()
            steps.append("begun")

        def __exit__(self, *_: object) -> None:
            steps.append("finished")
            guard.release()

    def look() -> None:
        assert steps == ["begun", "finished"]

    assert while_held(Begun(), look, 0.2) == "worked"


def test_a_network_in_a_child() -> None:
    x = relay.var("x", shape=(2, 3))
    module = GraphModule(relay.build(relay.Function([x], relay.exp(x)), "llvm")["default"](cpu()))
    module.run()

    def run() -> None:
        module.run(x=np.zeros((2, 3), "float32"))
        assert (module.get_output(0).numpy() == 1).all()

    assert in_child(run) == "worked"


def test_opencl_refuses_in_a_child(elementwise: Build) -> None:
    dev = device("opencl")
    if not dev.exist:
        pytest.skip("no OpenCL device")
    arrays = [array(np.ones(1000, np.float32), dev) for _ in range(3)]
    module = Module(elementwise(dev, [ADD]), dev)
    module(*arrays)
    for refused in (
        lambda: module(*arrays), lambda: arrays[0].numpy(), lambda: empty(4, "float32", dev),
        dev.sync, lambda: Module(module.artifact, dev),
    ):  # fmt: skip
        said = in_child(refused)
        assert said.startswith("DeviceError: OpenCL: it was in use when this process was forked")

    def ask() -> None:
        assert not dev.exist and "spawn" in str(dev.why_not())

    assert in_child(ask) == "worked"


@pytest.mark.parametrize(("library", "dev"), [(opencl._fork, "opencl"), (cuda._fork, "cuda")])
def test_a_driver_says_what_a_fork_broke(
    library: ForkGuard, dev: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no such device: nothing of the library is asked."""
    monkeypatch.setattr(library, "broken", True)
    with pytest.raises(DeviceError, match="does not survive that.*spawn") as refused:
        Device(dev, 5).sync()
    assert refused.value.fatal


@pytest.mark.slow
def test_what_a_library_holds_is_never_taken_down_in_a_child() -> None:
    """Not when it is forgotten, and not at the end: it would be a call of a broken library."""
    ended: list[int] = []

    class Held:
        def __del__(self) -> None:
            ended.append(os.getpid())

    guard, held, gone = ForkGuard("a library"), Held(), Held()
    guard.watch()
    guard.keep(held)
    guard.keep(gone)
    del gone
    assert len(ended) == 1  # in the process that loaded it nothing is kept alive

    def drop() -> None:
        nonlocal held
        del held
        gc.collect()
        assert len(ended) == 1

    assert in_child(drop) == "worked"
