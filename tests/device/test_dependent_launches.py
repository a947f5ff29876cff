"""Chains of kernels that begin before the one before has ended, on a GPU that can do that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from graph.small import image, residual, wanted
from tilewright import te
from tilewright.base import environment
from tilewright.driver.build import generate_source
from tilewright.driver.compilers import compile_source
from tilewright.network.build import build
from tilewright.runtime import LaunchSequence, Module, array
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import Launch
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.sequence import KernelCall
from tilewright.schedule.default import default_schedule

SIZES = (1 << 10, 100_003, 1 << 22)  # a few blocks; an uneven end; many times what fits at once
LINKS, RUNS = 20, 100
WAIT = "griddepcontrol.wait;"

pytestmark = [pytest.mark.cuda, pytest.mark.slow]


@pytest.fixture(params=["on", "early"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Device:
    monkeypatch.setenv("TILEWRIGHT_DEPENDENT_LAUNCH", request.param)
    found = device("cuda")
    if not found.exist or not found.driver.launches_early:
        pytest.skip("no CUDA device that launches kernels early")
    return found


class Chain:
    """x and y in turn, each from the other: every block reads what blocks at the other end wrote,
    and writes what they have read."""

    def __init__(self, gpu: Device, size: int) -> None:
        x = te.placeholder((size,), name="x")
        w = te.placeholder((size,), name="w", constant=True)
        y = te.compute((size,), lambda i: x[size - 1 - i] + w[i], name="y")
        schedule = default_schedule(te.ComputeDAG([x, w, y]), gpu.target)
        chained = environment.dependent_launch()
        source = generate_source(schedule, gpu.target, "link", chained=chained)
        assert source.waits and WAIT in source.text
        self.gpu, rng = gpu, np.random.default_rng(size)
        self.weights = rng.integers(-8, 8, size).astype("float32")  # so that all sums are exact
        self.held = [array(np.zeros(size, "float32"), gpu) for _ in "xy"]
        module = Module(compile_source(source, gpu.target), gpu)
        w_there, (a, b) = array(self.weights, gpu), self.held
        self.calls: list[KernelCall] = [
            call
            for k in range(LINKS)
            for call in module.launches(*((a, w_there, b) if k % 2 == 0 else (b, w_there, a)))
        ]

    def wrong(self, run: Callable[[], object]) -> int:
        """How many of the runs compute something else than numpy."""
        rng, found = np.random.default_rng(1), 0
        for _ in range(RUNS):
            given = rng.integers(-64, 64, self.weights.size).astype("float32")
            want = given
            for _ in range(LINKS):
                want = want[::-1] + self.weights
            self.held[0].copyfrom(given)
            run()
            found += not np.array_equal(self.held[LINKS % 2].numpy(), want)
        return found

    def in_a_graph(self) -> int:
        return self.wrong(LaunchSequence(self.gpu, self.calls).run)

    def on_a_stream(self) -> int:
        launches = (Launch(k, tuple(a.memory for a in arrays)) for k, arrays in self.calls)
        return self.wrong(self.gpu.driver.plan(tuple(launches)).run)


@pytest.mark.parametrize("size", SIZES)
def test_a_chain_computes_what_its_kernels_compute(gpu: Device, size: int) -> None:
    chain = Chain(gpu, size)
    assert chain.in_a_graph() == 0
    assert chain.on_a_stream() == 0


def test_runs_follow_each_other_wholly(gpu: Device) -> None:
    """Many runs are enqueued, and what they read is copied in between, without a stop."""
    chain = Chain(gpu, SIZES[1])
    sequence, copies = LaunchSequence(gpu, chain.calls), []
    given = array(np.arange(SIZES[1], dtype="float32") % 64, gpu)
    for _ in range(RUNS):
        given.copyto(chain.held[0])
        sequence.run()
        copies.append(chain.held[LINKS % 2].copyto(gpu))
    first = copies[0].numpy()
    assert all(np.array_equal(each.numpy(), first) for each in copies)


@pytest.mark.parametrize("size", SIZES)
def test_programs_of_two_kernels_let_their_own_in(gpu: Device, size: int) -> None:
    """y from x by way of w, and x from y: the second kernel reads at once what neither writes."""
    x = te.placeholder((size,), name="x")
    w = te.compute((size,), lambda i: x[size - 1 - i] + 1.0, name="w")
    y = te.compute((size,), lambda i: w[size - 1 - i] * 2.0 - x[i], name="y")
    schedule = te.create_schedule(y.op)
    for tensor in (w, y):
        block, thread = schedule[tensor].split(tensor.op.axis[0], factor=128)
        schedule[tensor].bind(block, "blockIdx.x")
        schedule[tensor].bind(thread, "threadIdx.x")
    source = generate_source(schedule, gpu.target, "two", [x, y])
    assert source.waits_inside and not source.waits
    module = Module(compile_source(source, gpu.target), gpu)
    given = np.random.default_rng(size).integers(-64, 64, size).astype("float32")
    held = [array(given, gpu), array(np.zeros(size, "float32"), gpu)]
    calls = [
        c for k in range(LINKS) for c in module.launches(*(held if k % 2 == 0 else held[::-1]))
    ]
    sequence = LaunchSequence(gpu, calls)
    for run in range(RUNS):
        held[0].copyfrom(given + run)
        sequence.run()
        want = given + run + 2.0 * LINKS  # each program adds 2
        np.testing.assert_array_equal(held[LINKS % 2].numpy(), want)


@pytest.mark.parametrize("switch", ["on", "early", "off"])
def test_a_network(gpu: Device, monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEPENDENT_LAUNCH", switch)
    mod, params = residual()
    library = build(mod, gpu.target, params)
    assert {kernel.source.waits for kernel in library.kernels} == {switch != "off"}
    assert all(kernel.verified for kernel in library.report.kernels)
    module = GraphModule(library["default"](gpu))
    for seed in range(RUNS):
        data = image(seed)
        module.run(data=data)
        found = module.get_output(0).numpy()
        np.testing.assert_allclose(found, wanted(mod, params, data), rtol=1e-4, atol=1e-5)
