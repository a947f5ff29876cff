"""Networks that keep state: it stays on the device, is begun anew, saved and forked."""

from __future__ import annotations

import copy
import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import DeviceError, ModelError
from tilewright.network.build import State, build
from tilewright.runtime.network.compiled import Compiled
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor

LENGTH, SIZE = 6, 4


def step() -> tuple[relay.Function, dict[str, State]]:
    """A row is written to a cache, which is read; the position goes on; two numbers swap."""
    x, cache = relay.var("x", shape=(1, SIZE)), relay.var("cache", shape=(LENGTH, SIZE))
    at = relay.var("at", shape=(1, 1), dtype="int64")
    first, second = (relay.var(n, shape=(1,)) for n in ("first", "second"))
    new = relay.scatter_nd(cache, at, x)
    scores = relay.nn.softmax(relay.nn.dense(x, new))
    made = relay.nn.dense(scores, relay.transpose(new))
    further = at + relay.const(np.array([[1]], "int64"))
    body = relay.Tuple([new, further, second, first, made])
    states = {
        "cache": State(0), "at": State(1), "first": State(2, np.array([1], "float32")),
        "second": State(3, np.array([2], "float32")),
    }  # fmt: skip
    return relay.Function([x, cache, at, first, second], body), states


@pytest.fixture(scope="module")
def library() -> Any:
    f, states = step()
    return build(f, "llvm", states=states)


def expected(rows: list[np.ndarray]) -> np.ndarray:
    cache = np.zeros((LENGTH, SIZE))
    cache[: len(rows)] = rows
    scores = np.exp(cache @ rows[-1])
    return (scores / scores.sum()) @ cache


def rows(count: int, seed: int = 0) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).standard_normal((count, SIZE)).astype("float32"))


def run(net: Compiled, given: list[np.ndarray]) -> list[np.ndarray]:
    return [net(row[None])[0] for row in given]


def close(found: list[np.ndarray], given: list[np.ndarray], known: int = 0) -> None:
    for k, one in enumerate(found, known + 1):
        np.testing.assert_allclose(one, expected(given[:k]), rtol=1e-5)


def test_state_stays_and_begins_anew(library: Any) -> None:
    net = Compiled(library)
    assert [s.name for s in net.inputs] == ["x"] and len(net.outputs) == 1
    assert [s.name for s in net.states] == ["cache", "at", "first", "second"]
    for seed in (0, 1):
        given = rows(LENGTH, seed)
        close(run(net, given), given)
        assert net.state()["at"] == LENGTH and net.state()["first"] == 1
        net.reset()
        assert net.state()["at"] == 0 and not net.state()["cache"].any()


def test_relay_and_its_executor_have_them() -> None:
    x, total = relay.var("x", shape=(2,)), relay.var("total", shape=(2,))
    at = relay.var("at", shape=(1,), dtype="int64")
    f = relay.Function([x, total, at], relay.Tuple([total + x, x * relay.cast(at, "float32")]))
    made = relay.build(f, "llvm", states={"total": 0}, bounds={"at": (0, 3)}, verify=False)
    module = graph_executor.GraphModule(made["default"](tw.cpu()))
    for k in range(3):
        module.run(x=np.ones(2, "float32"), at=np.array([k]))
        assert module.get_output(1).numpy().tolist() == [k, k]
    assert module.state()["total"].tolist() == [3, 3]
    with pytest.raises(DeviceError, match="4 is not from 0 to 3"):
        module.set_input("at", np.array([4]))
    with pytest.raises(DeviceError, match="4 is not from 0 to 3"):
        module.set_inputs({"x": np.zeros(2, "float32"), "at": np.array([4])})
    assert module.get_input("x").numpy().tolist() == [1, 1]  # neither is set
    module.reset()
    assert module.state()["total"].tolist() == [0, 0]


def test_the_cache_is_written_where_it_is(library: Any) -> None:
    plan = library.plan
    assert list(plan.written_over.values()) == [1]
    module = GraphModule(library.load_on(tw.cpu()))
    held = module._now
    assert held.outputs[0].memory is held.inputs[1].memory


def test_what_is_forked_or_set_goes_on_by_itself(library: Any) -> None:
    net, given = Compiled(library), rows(4)
    close(run(net, given[:2]), given)
    other, saved = net.fork(), net.state()
    close(run(other, given[2:]), given, 2)
    assert net.state()["at"] == 2 and other.state()["at"] == 4
    another = [*given[:2], *rows(2, 5)]
    close(run(net, another[2:]), another, 2)
    net.set_state(saved)
    close(run(net, given[2:]), given, 2)


def test_timing_leaves_it_as_it_was(library: Any) -> None:
    net, given = Compiled(library), rows(3)
    run(net, given[:2])
    before = net.state()
    net.benchmark(given[2][None], number=2, repeat=1)
    net.profile(given[2][None], number=1)
    for name, value in net.state().items():
        np.testing.assert_array_equal(value, before[name])
    close(run(net, given[2:]), given, 2)


def test_a_file_has_it(library: Any, tmp_path: Any) -> None:
    Compiled(library).save(tmp_path / "net.tar")
    net, given = tw.open(tmp_path / "net.tar"), rows(2)
    close(run(net, given), given)


def test_results_that_are_states_are_as_the_run_found_them() -> None:
    x, total = relay.var("x", shape=(2,)), relay.var("total", shape=(2,))
    body = relay.Tuple([total + x, total, relay.reshape(total, (1, 2)), total + x])
    f = relay.Function([x, total], body)
    net = Compiled(build(f, "llvm", states={"total": State(0)}, verify=False))
    for k in range(3):
        before, flat, after = net(np.ones(2, "float32"))
        assert before.tolist() == [k, k] and flat.tolist() == [[k, k]]
        assert after.tolist() == net.state()["total"].tolist() == [k + 1, k + 1]


def rows_at_once(count: int) -> relay.Function:
    """Several rows are written to a cache, and the position goes on behind them."""
    x, cache = relay.var("x", shape=(count, SIZE)), relay.var("cache", shape=(LENGTH, SIZE))
    at = relay.var("at", shape=(1, 1), dtype="int64")
    places = at + relay.const(np.arange(count, dtype="int64").reshape(1, count))
    further = at + relay.const(np.array([[count]], "int64"))
    new = relay.scatter_nd(cache, places, x)
    return relay.Function([x, cache, at], relay.Tuple([new, further, relay.nn.dense(x, new)]))


@pytest.mark.slow
def test_steps_of_one_row_and_of_several_go_on_from_each_other(tmp_path: Any) -> None:
    states = {"cache": State(0), "at": State(1)}
    both = build([rows_at_once(1), rows_at_once(3)], "llvm", states=states, verify=False)
    both.export_library(tmp_path / "net.tar")
    for net in (Compiled(both), tw.open(tmp_path / "net.tar")):
        given = np.stack(rows(LENGTH))
        for begin, end in ((0, 1), (1, 4), (4, 5)):
            cache = np.zeros((LENGTH, SIZE), "float32")
            cache[:end] = given[:end]
            np.testing.assert_allclose(net(given[begin:end]), given[begin:end] @ cache.T, rtol=1e-5)
            np.testing.assert_array_equal(net.state()["cache"], cache)
        other = net.fork()
        assert other.state()["at"] == 5
        net.reset()
        net(given[:3])
        assert (net.state()["at"], other.state()["at"]) == (3, 5)


def test_states_of_two_shapes_are_refused() -> None:
    longer = rows_at_once(2)
    cache = relay.var("cache", shape=(LENGTH + 1, SIZE))
    other = relay.Function([longer.params[0], cache, longer.params[2]], relay.Tuple([
        cache, longer.params[2], longer.params[0],
    ]))  # fmt: skip
    states = {"cache": State(0), "at": State(1)}
    with pytest.raises(ModelError, match="state cache: .* is cache: "):
        build([rows_at_once(1), other], "llvm", states=states, verify=False)


def test_a_second_thread_is_one_error_and_a_fork_is_its_own(library: Any) -> None:
    net, given = Compiled(library), rows(2)
    run(net, given[:1])
    other, found = net.fork(), list[Any]()

    def call(which: Compiled) -> None:
        try:
            found.append(run(which, given[1:]))
        except DeviceError as error:
            found.append(error)

    for which in (net, other):
        thread = threading.Thread(target=call, args=(which,))
        thread.start()
        thread.join()
    assert isinstance(found[0], DeviceError) and "fork()" in str(found[0])
    close(found[1], given, 1)
    assert net.state()["at"] == 1


def test_numbers_beyond_the_bounds_of_an_input_are_refused() -> None:
    x = relay.var("x", shape=(2,), dtype="int64")
    made = build(relay.Function([x], x + x), "llvm", bounds={"x": (0, 5)}, verify=False)
    net = Compiled(made)
    assert list(net(np.array([0, 5]))) == [0, 10]
    for wrong in ([0, 6], [-1, 0], np.array([6, 0], "int32")):
        with pytest.raises(DeviceError, match="is not from 0 to 5"):
            net(wrong)
    with pytest.raises(ModelError, match="no input 'y'"):
        build(relay.Function([x], x + x), "llvm", bounds={"y": (0, 5)}, verify=False)
    y = relay.var("y", shape=(2,))
    for place, ends in (("x", (5, 0)), ("x", (0, 2.5)), ("x", (0,)), ("y", (0, 5))):
        with pytest.raises(ModelError, match=f"{place}: .*least and the greatest"):
            given = relay.Function([x, y], relay.Tuple([x + x, y]))
            build(given, "llvm", bounds={place: ends}, verify=False)


WRONG = {
    "no state of that name": ({"caches": np.zeros(1)}, "no state 'caches'"),
    "another shape": ({"cache": np.zeros((1, SIZE), "float32")}, "the state float32\\[6, 4\\]"),
    "another type": ({"at": np.zeros((1, 1), "float32")}, "the state int64"),
}


@pytest.mark.parametrize("values, words", WRONG.values(), ids=WRONG)
def test_what_cannot_be_set_changes_nothing(library: Any, values: Any, words: str) -> None:
    net = Compiled(library)
    run(net, rows(1))
    with pytest.raises(DeviceError, match=words):
        net.set_state({"first": np.array([7], "float32"), **values})
    assert net.state()["first"] == 2


def test_what_is_no_state_is_refused() -> None:
    f, _ = step()
    for states, words in (({"y": State(0)}, "no input 'y'"), ({"x": State(9)}, "no output 9")):
        with pytest.raises(ModelError, match=words):
            build(f, "llvm", states=states, verify=False)
    with pytest.raises(ModelError, match="is to become"):
        build(f, "llvm", states={"x": State(0)}, verify=False)
    with pytest.raises(ModelError, match="two states"):
        two = {"first": State(2), "second": State(2)}
        build(f, "llvm", states=two, verify=False)


@pytest.mark.slow
def test_buffers_that_a_module_writes_to_are_states() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.proj = torch.nn.Linear(SIZE, SIZE)
            self.register_buffer("cache", torch.ones(LENGTH, SIZE))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x: Any) -> Any:
            self.cache.index_copy_(0, self.at, self.proj(x))
            self.at += 1
            return torch.softmax(x @ self.cache.T, -1) @ self.cache

    torch.manual_seed(0)
    module = Step().eval()
    twin = copy.deepcopy(module)
    example = torch.zeros(1, SIZE)
    loaded = tw.load(torch.export.export(module, (example,)))
    assert [s.name for s in loaded.inputs] == ["x"] and list(loaded.states) == ["b_cache", "b_at"]
    for net in (tw.compile(loaded, "llvm"), tw.compile(tw.load(module, example), "llvm")):
        again = copy.deepcopy(twin)
        with torch.no_grad():
            for row in rows(LENGTH):
                x = torch.from_numpy(row[None])
                torch.testing.assert_close(net(x), again(x))
        assert net.state()["b_at"] == LENGTH
    with pytest.raises(ModelError, match="batch="):
        tw.load(module, example, batch=(1, 2))
