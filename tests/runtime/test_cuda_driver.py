"""The CUDA driver against a simulated driver API (`simulated_cuda.py`), as there may be no GPU.

On a machine with one the other tests run on the real one as well.
"""

import gc
from collections import Counter
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.simulated_cuda import (
    ADD,
    GPU,
    OK,
    SIZE,
    Simulation,
    Status,
    X,
    Y,
    a_network,
    artifact,
)
from tests.runtime.simulated_cuda import simulation as simulation
from tilewright.base.case import Case
from tilewright.base.errors import DeviceError
from tilewright.runtime import LaunchSequence, Module, array, from_dlpack
from tilewright.runtime import trial as trials
from tilewright.runtime.dlpack import export_capsule
from tilewright.runtime.drivers import Launch, Spot, cuda, cuda_ahead
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.trial import trial


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("built_for", "runs"),
    [("sm_90", True), ("sm_90a", True), ("sm_80", False), ("sm_100", False), ("sm_91", False)],
)
def test_a_cubin_for_another_architecture(
    simulation: Simulation, built_for: str, runs: bool
) -> None:
    made = replace(artifact([ADD]), meta={"arch": built_for})
    if runs:
        assert Module(made, GPU).kernels
        return
    with pytest.raises(DeviceError, match=rf"compiled for {built_for}, this device .* is sm_90"):
        Module(made, GPU)
    assert "cuModuleLoadData" not in simulation.log


def test_a_cubin_of_the_same_generation() -> None:
    assert cuda._runs("sm_80", "sm_86") and cuda._runs("sm_100f", "sm_100")
    assert not cuda._runs("sm_86", "sm_80") and not cuda._runs("sm_90a", "sm_100")


@pytest.mark.slow
def test_memory_that_is_not_aligned_is_copied(simulation: Simulation) -> None:
    block = array(X, GPU)

    class Shifted:
        """X without its first element, where it lies."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, stream: int) -> object:
            at = block.memory.pointer + 4
            return export_capsule(at, (SIZE - 1,), "float32", (2, 0), block)

    taken = from_dlpack(Shifted())
    np.testing.assert_array_equal(taken.numpy(), X[1:])
    assert taken.memory.pointer != block.memory.pointer + 4
    with pytest.raises(DeviceError, match="not aligned to 64 bytes"):
        from_dlpack(Shifted(), copy=False)


@pytest.mark.slow
def test_a_part_of_memory_keeps_the_whole(simulation: Simulation) -> None:
    driver = GPU.driver
    block = array(np.arange(64, dtype="float32"), GPU).memory
    part = driver.part(driver.part(block, 64, 192), 64, SIZE)
    assert (part.pointer, part.offset, part.whole) == (block.pointer + 128, 128, block)
    del block
    gc.collect()
    assert "cuMemFree" not in simulation.log
    found = np.empty(SIZE, np.uint8)
    driver.read(part, found)
    np.testing.assert_array_equal(found.view("float32"), np.arange(32, 32 + SIZE // 4))


@pytest.mark.slow
def test_an_open_plan_passes_parts_of_what_it_is_given(simulation: Simulation) -> None:
    driver, module = GPU.driver, Module(artifact([ADD]), GPU)
    (kernel,) = module.kernels
    held = [driver.allocate(4 * SIZE) for _ in range(3)]
    plan = driver.plan((Launch(kernel, tuple(held)),))
    put = plan.argument([Spot(0, 0, 64), Spot(0, 1, 0)])
    given = array(np.arange(SIZE + 16, dtype="float32"), GPU)
    put(given.memory.pointer)
    plan.run()
    found = np.empty(4 * SIZE, np.uint8)
    driver.read(held[2], found)
    np.testing.assert_array_equal(found.view("float32"), 2 * np.arange(SIZE) + 16)


@pytest.mark.slow
def test_a_graph_that_somebody_captures_takes_up_a_run(simulation: Simulation) -> None:
    stream = 9
    caller = Caller(a_network(), lambda: stream)
    hosts = [np.zeros(SIZE + 16, np.float32) for _ in range(6)]
    a, b, y, room, x, z = (h[-h.ctypes.data % 64 // 4 :][:SIZE] for h in hosts)

    def place(first: np.ndarray, last: np.ndarray) -> None:
        for put, array_ in zip(caller.inputs, (first, b), strict=True):
            put(array_.ctypes.data)
        caller.outputs[0].put(last.ctypes.data)

    place(a, y)
    caller.run()
    assert caller.rooms == [4 * SIZE] and not caller.captured()
    stream = 0
    assert not caller.captured()
    litter = GPU.driver.allocate(8)
    stream = simulation.user = 77
    del litter  # as whenever Python collects garbage
    gc.collect()
    assert caller.captured()
    caller.record([room.ctypes.data])
    caller.copy(z.ctypes.data, y.ctypes.data, 4 * SIZE)
    simulation.user, stream = None, 9
    assert not simulation.spoilt and [f and f[0] for f, _ in simulation.recorded] == [
        "k0",
        "k0",
        None,
    ]
    kept = set(simulation.memory)
    before = len(simulation.log)
    for seed in range(3):  # runs of its own in between, also from a graph, disturb nothing
        place(x, x)
        b[:], room[:] = 1, 5
        caller.run()
        assert (room == 5).all()
        a[:], b[:] = np.random.default_rng(seed).normal(size=(2, SIZE)).astype(np.float32)
        simulation.replay()
        np.testing.assert_array_equal(y, (a + b) * 2)
        np.testing.assert_array_equal(z, y)
        np.testing.assert_array_equal(room, a + b)
    assert "graph2" in simulation.log[before:]
    caller = None
    gc.collect()
    assert set(simulation.memory) == kept  # the graph may be replayed after that


@pytest.mark.slow
def test_module_call_and_release(simulation: Simulation) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact([(3, 0, "+", 1), (2, 3, "*", 2.0)], "iiow", shared=50 << 10), GPU)
    module(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), (X + Y) * 2)
    assert simulation.shared == {"k0": 50 << 10, "k1": 50 << 10}
    assert len(simulation.memory) == 4
    del arrays, module
    gc.collect()
    assert not simulation.memory and "cuModuleUnload" in simulation.log


@pytest.mark.slow
def test_sequence_is_one_graph(simulation: Simulation) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact([ADD, (2, 2, "*", 2.0)]), GPU)
    sequence = LaunchSequence(GPU, module.launches(*arrays) * 3)
    simulation.log.clear()
    sequence.run()
    assert simulation.log == ["graph6", *["k0", "k1"] * 3]
    assert sequence.time(number=7).mean == pytest.approx(6e-3)


@pytest.mark.slow
def test_timing_counts_every_pass(simulation: Simulation) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact([ADD]), GPU)
    for number in (1, 64, 100):
        result = module.time_evaluator("default", GPU, number=number)(*arrays)
        assert result.mean == pytest.approx(1e-3)
    cold = module.time_evaluator("default", GPU, number=70, cache_flush_bytes=1 << 10)(*arrays)
    assert cold.mean == pytest.approx(1e-3)
    assert {"graph1", "graph64"} <= set(simulation.log)


@pytest.mark.slow
def test_what_is_small_travels_in_one_piece(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate that loses its race costs three fillings, and a look at all after each."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        real = getattr(cuda.CudaDriver, name)

        def call(self: cuda.CudaDriver, *args: Any) -> None:
            counts[name] += 1
            real(self, *args)

        monkeypatch.setattr(cuda.CudaDriver, name, call)

    counted("read")
    counted("write")
    also = [Case.of([Y, X], [X + Y], [0.0])]
    monkeypatch.setattr(trials, "_ROUNDS", 0)
    monkeypatch.setattr(trials, "_CHEAP_SECONDS", 60.0)  # also where the machine is busy
    assert trial(artifact([ADD]), GPU, [X, Y], [X + Y], None, 1e-9, also=also).raced
    assert counts == {"write": 3 * 3, "read": 3 * 3}


@pytest.mark.slow
def test_a_poisoned_context_is_fatal(simulation: Simulation) -> None:
    module = artifact([ADD])
    assert trial(module, GPU, [X, Y], [X + Y]).error is None
    simulation.broken = Status(700)
    result = trial(module, GPU, [X, Y], [X + Y])
    assert result.error == "run" and result.fatal and "ILLEGAL_ADDRESS" in result.message
    simulation.broken = Status(1)
    assert not trial(module, GPU, [X, Y]).fatal
    with pytest.raises(DeviceError, match=r"cuda\(0\)\.sync: CUDA_ERROR_INVALID_VALUE"):
        GPU.sync()
    simulation.broken = OK


@pytest.mark.slow
def test_a_graph_that_cannot_be_uploaded_is_given_back(simulation: Simulation) -> None:
    arrays = [array(X, GPU), array(Y, GPU), array(np.zeros_like(X), GPU)]
    module = Module(artifact([ADD]), GPU)
    simulation.broken = Status(1)
    with pytest.raises(DeviceError, match="upload graph"):
        LaunchSequence(GPU, module.launches(*arrays))
    assert simulation.log.count("cuGraphExecDestroy") == 1
    simulation.broken = OK


@pytest.mark.slow
def test_target_and_dlpack(simulation: Simulation) -> None:
    assert GPU.target.arch == "sm_90" and GPU.target.limits.l2_bytes == 1024
    a = array(X, GPU)
    taken = from_dlpack(a)
    assert taken.memory.pointer == a.memory.pointer and taken.device == GPU
    del a
    gc.collect()
    np.testing.assert_array_equal(taken.numpy(), X)
    assert taken.__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match="exported there only"):
        taken.__dlpack__(dl_device=(1, 0))


@pytest.mark.slow
@pytest.mark.parametrize("can_load", [True, False])
def test_weights_are_asked_for_ahead(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch, can_load: bool
) -> None:
    """Those of the third launch beside the first, which is the one before with weights."""
    for name in ("SMALLEST", "LEAST"):
        monkeypatch.setattr(cuda_ahead, name, 1)
    monkeypatch.setattr(cuda_ahead, "HELD", 0.2)
    simulation.asker = Status(0 if can_load else 1)
    x, w, v, out = (array(a, GPU) for a in (X, Y, Y, np.zeros_like(X)))
    module = Module(artifact([ADD]), GPU)
    calls = [c for a in (w, x, v) for c in module.launches(x, a, out)]
    sequence = LaunchSequence(GPU, calls, constants=[w, v])
    threads = -(-Y.nbytes // (4096 * 32)) * 32
    asked = [(0, v.memory.pointer, Y.nbytes, threads)] if can_load else []
    assert simulation.asked == asked
    sequence.run()
    np.testing.assert_array_equal(out.numpy(), X + Y)


def test_what_is_asked_for() -> None:
    """Nothing where weights stay in the cache; else each part as the one before it begins."""
    place = count(1 << 40, 1 << 30)

    def launch(*sizes: int, early: bool = False) -> Launch:
        memory = tuple(cuda.CudaMemory(next(place), n, None) for n in sizes)
        kernel: Any = SimpleNamespace(source=SimpleNamespace(lets_in=early))
        return Launch(kernel, memory, memory)

    cache = 50 << 20
    large, half = 40 << 20, cuda_ahead.LEAST // 2
    assert cuda_ahead.asked([launch(cache // 2)], cache) == {}
    assert cuda_ahead.asked([launch(large), launch(cuda_ahead.SMALLEST - 1)], cache) == {}
    launches = [launch(n) if n else launch() for n in (large, 0, half, half, large)]
    first, second, third = (launches[k].buffers[0].pointer for k in (2, 3, 4))
    assert cuda_ahead.asked(launches, cache) == {
        0: [(first, half), (second, half)], 2: [(third, int(cache * cuda_ahead.MOST))]
    }  # fmt: skip
    assert cuda_ahead.asked(launches, 8 * large) == {}
    assert cuda_ahead.asked([*launches, launch(early=True)], cache) == {}
