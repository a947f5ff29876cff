"""Copies through a driver's own memory, on a device that works only when somebody waits for it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.runtime.simulated_cuda import GPU, SIZE, Simulation, Status, X, Y, a_network
from tests.runtime.simulated_cuda import simulation as simulation
from tilewright.base.errors import DeviceError
from tilewright.runtime import empty
from tilewright.runtime.drivers import cuda, cuda_pinned
from tilewright.runtime.ndarray import overwrite, to_numpy
from tilewright.runtime.network.compiled import Compiled
from tilewright.runtime.network.graph_executor import GraphModule

pytestmark = pytest.mark.slow


@pytest.fixture
def late(simulation: Simulation) -> Simulation:
    simulation.late = True
    return simulation


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, SIZE)).astype("float32")


def sent(value: np.ndarray) -> Any:
    """An array that was given `value`, which has changed since."""
    held, given = empty(value.shape, value.dtype, GPU), value.copy()
    overwrite([(held, given)])
    given[:] = 7
    return held


def test_what_others_may_read_on_any_stream_is_there(late: Simulation) -> None:
    """`copyfrom` is of memory that other libraries may have; inputs of a module are its own."""
    held = empty((SIZE,), "float32", GPU)
    held.copyfrom(X)
    assert not late.queue


def test_an_input_may_change_as_soon_as_it_is_set(late: Simulation) -> None:
    module = GraphModule(a_network())
    a, b = X.copy(), Y.copy()
    before = late.waits
    module.set_input("a", a)
    module.set_input("b", b)
    a[:] = b[:] = 7
    module.run()
    assert late.waits == before  # nobody waited for the device
    np.testing.assert_array_equal(module.get_output(0).numpy(), (X + Y) * 2)


@pytest.mark.parametrize("size", ["MOST_SENT", "FETCHED"])
def test_what_is_large_goes_as_it_is(
    late: Simulation, monkeypatch: pytest.MonkeyPatch, size: str
) -> None:
    monkeypatch.setattr(cuda_pinned, size, 4 * SIZE - 1)
    held = sent(X)
    np.testing.assert_array_equal(held.numpy(), X)
    assert len(late.pinned) == (size != "FETCHED")


def test_more_is_sent_than_the_block_holds(
    late: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three go in before somebody must wait: memory whose copy is on its way is not used again."""
    monkeypatch.setattr(cuda_pinned, "SENT", 3 * 192)
    many, held = rows(20), [empty((SIZE,), "float32", GPU) for _ in range(20)]
    before = late.waits
    for at, row in zip(held, many, strict=True):
        overwrite([(at, row)])
    assert late.waits - before == 6
    np.testing.assert_array_equal([at.numpy() for at in held], many)


def test_a_wait_that_began_before_a_copy_says_nothing_of_it(
    late: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread sends while this one waits: what it sent is still on its way."""
    many, held = rows(4), [empty((SIZE,), "float32", GPU) for _ in range(4)]
    overwrite([(held[0], many[0])])
    catch_up = late._catch_up

    def overtaken() -> None:
        monkeypatch.setattr(late, "_catch_up", catch_up)
        catch_up()
        overwrite([(held[1], many[1])])

    monkeypatch.setattr(late, "_catch_up", overtaken)
    GPU.sync()
    for at, row in zip(held[2:], many[2:], strict=True):
        overwrite([(at, row)])
    np.testing.assert_array_equal([at.numpy() for at in held], many)


def test_results_come_with_one_wait_and_belong_to_the_user(late: Simulation) -> None:
    net = Compiled(a_network(2).library, GPU)
    net(X, Y)
    before = late.waits
    found = net(X, Y)
    assert late.waits - before == 1
    kept = [result.copy() for result in found]
    others = net(Y, Y)
    for result, copy, expected in zip(found, kept, ((X + Y) * 2, X + Y), strict=True):
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(result, copy)
        blocks = [*late.pinned.values(), *others]
        assert result.flags.writeable and not any(np.shares_memory(result, b) for b in blocks)


def test_pieces_are_copied_while_others_come(
    late: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_pinned, "PIECE", 100)
    values = [*rows(3), np.ones((2, 0), "float32"), np.arange(7, dtype="int8"), *rows(2)]
    held = [sent(value) for value in values]
    before = late.waits
    for found, value in zip(to_numpy(held), values, strict=True):
        np.testing.assert_array_equal(found, value)
    assert late.waits - before == 1
    events = GPU.driver._events  # type: ignore[attr-defined]
    assert events and len({id(event) for event in events}) == len(events)  # they are used again


def test_what_is_pinned_is_bounded_and_freed(late: Simulation) -> None:
    for count in (1, 400, 900, 1800, 7, 5000, 40_000):
        held = sent(np.full(count * 64, count, "float32"))
        assert (held.numpy() == count).all()
    assert [*map(len, late.pinned.values())] == [512 << 10]
    assert sent(np.ones(cuda_pinned.FETCHED // 4, "float32")).numpy().sum() == 1 << 18
    assert [*map(len, late.pinned.values())] == [cuda_pinned.FETCHED]
    driver: Any = GPU.driver
    del driver.__dict__["_passage"], held
    gc.collect()
    assert not late.pinned


def test_where_nothing_can_be_pinned_copies_wait(late: Simulation) -> None:
    late.pins = Status(1)
    held = sent(X)
    np.testing.assert_array_equal(to_numpy([held, held]), [X, X])
    late.pins = Status(0)  # it was asked once
    np.testing.assert_array_equal(sent(Y).numpy(), Y)
    assert not late.pinned


def test_a_forked_child_touches_nothing(late: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call begins with `enter`, which asks; the rest goes by what the driver has kept."""
    module = GraphModule(a_network())
    module.run(a=X, b=Y)
    held, queued = module.get_output(0), len(late.queue)

    def refused() -> None:
        raise DeviceError("CUDA", "it does not survive a fork", "Use spawn.")

    monkeypatch.setattr(cuda, "_cu", refused)
    calls: list[Callable[[], object]] = [
        lambda: module.set_inputs({"a": X, "b": Y}), module.run, held.numpy, GPU.sync,
        lambda: held.copyfrom(X), lambda: held.copyto(held),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DeviceError, match="does not survive a fork"):
            call()
    assert len(late.queue) == queued


def test_threads_have_modules_of_one_device(
    late: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_pinned, "SENT", 5 * 192)
    network = a_network()

    def work(seed: int) -> bool:
        module = GraphModule(network)
        right = True
        for row in rows(20) * seed:
            given = row.copy()
            module.set_input("a", given)
            module.set_input("b", given)
            given[:] = 0
            module.run()
            right &= np.array_equal(module.get_output(0).numpy(), row * 4)
        return right

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(1, 5)))
