"""Launches of kernels that may begin before the last one has ended, on the simulated driver."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.simulated_cuda import ADD, GPU, Simulation, X, Y, artifact
from tests.runtime.simulated_cuda import simulation as simulation
from tilewright.base.artifact import AWAIT_ONLY
from tilewright.runtime import LaunchSequence, Module, array
from tilewright.runtime.drivers import Launch, cuda

WAITS = f"  {AWAIT_ONLY}();\n"  # of a chained kernel
BOTH = 2 * WAITS  # of two of them
TWO = [ADD, (2, 2, "*", 2.0)]


@pytest.fixture(autouse=True)
def _asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEPENDENT_LAUNCH", "on")


def in_graphs(simulation: Simulation, text: str, times: int = 1) -> list[str]:
    """Kernels of a sequence that may begin early, in the order in which they were captured."""
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact(TWO, text=text), GPU)
    sequence = LaunchSequence(GPU, module.launches(*arrays) * times)
    sequence.run()
    np.testing.assert_array_equal(arrays[2].numpy(), (X + Y) * 2)
    assert all(stream == "capture" for _, stream in simulation.early)
    return [name for name, _ in simulation.early]


@pytest.mark.slow
def test_all_but_the_first_of_a_chain_begin_early(simulation: Simulation) -> None:
    assert in_graphs(simulation, BOTH, 2) == ["k1", "k0", "k1"]


@pytest.mark.slow
def test_of_a_program_alone_those_behind_its_first_begin_early(simulation: Simulation) -> None:
    assert in_graphs(simulation, WAITS, 2) == ["k1", "k1"]


@pytest.mark.slow
def test_the_first_of_each_pass_that_is_timed_follows_the_one_before(
    simulation: Simulation,
) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact(TWO, text=BOTH), GPU)
    sequence = LaunchSequence(GPU, module.launches(*arrays))
    simulation.early.clear()
    sequence.time(number=64)
    assert {name for name, _ in simulation.early} == {"k1"}


@pytest.mark.slow
@pytest.mark.parametrize("why", ["text", "driver", "device", "switch"])
def test_nothing_begins_early_where_it_must_not(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    if why == "driver":
        simulation.version = 12020
    elif why == "device":
        monkeypatch.setattr(GPU.driver, "_major", 8)
    elif why == "switch":
        monkeypatch.setenv("TILEWRIGHT_DEPENDENT_LAUNCH", "off")
    assert in_graphs(simulation, "" if why == "text" else BOTH) == []


@pytest.mark.slow
def test_a_kernel_that_does_not_wait_follows_whole_kernels(simulation: Simulation) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    chained, plain = (Module(artifact([ADD], text=text), GPU) for text in (WAITS, ""))
    calls = [call for m in (chained, plain, chained) for call in m.launches(*arrays)]
    LaunchSequence(GPU, calls)
    assert len(simulation.early) == 1


@pytest.mark.slow
def test_launches_one_by_one_and_those_that_somebody_captures_begin_early(
    simulation: Simulation,
) -> None:
    held = [array(v, GPU).memory for v in (X, Y, X)]
    kernels = Module(artifact(TWO, text=BOTH), GPU).kernels
    plan = GPU.driver.plan(tuple(Launch(k, tuple(held)) for k in kernels))
    plan.run()
    assert simulation.early == [("k1", "work")]
    simulation.user = 77
    plan.record(77, ())
    assert simulation.early[1:] == [("k1", 77)] and len(simulation.recorded) == 2
    simulation.user = None
    assert not simulation.spoilt


def test_what_the_bindings_call_it() -> None:
    """The names that the simulation has, in cuda-bindings themselves; no driver is needed."""
    bindings = pytest.importorskip("cuda.bindings.driver")
    config, attribute = bindings.CUlaunchConfig(), bindings.CUlaunchAttribute()
    for name in (*cuda._SIZES, "numAttrs"):
        setattr(config, name, 1)
    found = bindings.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.id, attribute.value.programmaticStreamSerializationAllowed = found, 1
    config.attrs = [attribute]
    for stream in (77, bindings.CUstream(77)):
        config.hStream = stream
        assert int(config.hStream) == 77
    assert config.attrs[0].value.programmaticStreamSerializationAllowed == 1
    assert config.attrs[0].id == found and callable(bindings.cuLaunchKernelEx)
