"""A device for as long as one likes: files, arrays, computations and networks on it."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from farm.processes import Farm, farm
from tilewright import cpu, te
from tilewright.base.errors import DeviceError
from tilewright.farm.runner import FarmRunner
from tilewright.farm.session import RemoteSession
from tilewright.network.build import State, build
from tilewright.targets.target import Target
from tilewright_tvm import nd, relay, rpc
from tilewright_tvm.auto_scheduler import HardwareParams
from tilewright_tvm.auto_scheduler.utils import request_remote
from tilewright_tvm.contrib import graph_executor


@pytest.fixture(scope="module")
def remote(shared_farm: Farm) -> Iterator[RemoteSession]:
    with request_remote("titanx", "127.0.0.1", shared_farm.port, timeout=120) as made:
        yield made


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    """A file, an input, what must come out."""
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((4, 8)).astype("float32")
    value = rng.standard_normal((2, 8)).astype("float32")
    path = tmp_path_factory.mktemp("library") / "net.tar"
    relay.build(mod, "llvm", {"w": weights}).export_library(path)
    return path, value, np.maximum(value @ weights.T, 0)


def test_a_network_runs_there(remote: RemoteSession, network: tuple[Path, np.ndarray, np.ndarray]):
    path, value, expected = network
    remote.upload(path)
    assert remote.listdir() == ["net.tar"]
    device = remote.cpu()
    module = graph_executor.GraphModule(remote.load_module("net.tar")["default"](device))
    module.set_input("x", nd.array(value))
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-6)
    module.run(x=2 * value)
    np.testing.assert_allclose(module.get_output(0).numpy(), 2 * expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(module.get_input("x").numpy(), 2 * value)
    assert (module.get_num_inputs(), module.get_num_outputs()) == (1, 1)
    assert module.get_input_index("x") == 0 and module.get_input_index("y") == -1
    timed = module.benchmark(device, repeat=3, number=2)
    assert len(timed.results) == 3 and timed.min > 0
    below = module.module.time_evaluator("run", device, number=2, repeat=3)()
    assert len(below.results) == 3 and below.min > 0
    remote.remove("net.tar")
    assert remote.listdir() == []


def test_a_network_there_has_the_methods_that_one_here_has(
    remote: RemoteSession, network: tuple[Path, np.ndarray, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    path, value, expected = network
    remote.upload(path)
    library, device = remote.load_module("net.tar"), remote.cpu()
    module = graph_executor.GraphModule(library["default"](device))
    here = graph_executor.GraphModule(tilewright.runtime.load_module(path)["default"](cpu()))
    public = {name for name in dir(here) if not name.startswith("_")} - {"planned_bytes"}
    assert public <= {name for name in dir(module) if not name.startswith("_")}
    assert module.get_input_info() == here.get_input_info() == ({"x": (2, 8)}, {"x": "float32"})
    mine = nd.array(value, device)
    module.set_input_zero_copy("x", mine)
    module["run"]()
    np.testing.assert_allclose(module["get_output"](0).numpy(), expected, rtol=1e-5, atol=1e-6)
    mine.copyfrom(3 * value)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), 3 * expected, rtol=1e-5, atol=1e-6)
    module.load_params(tilewright.runtime.save_param_dict({"x": nd.array(value)}))
    module.share_params(module, tilewright.runtime.save_param_dict({}))
    np.testing.assert_array_equal(module.get_input("x").numpy(), value)
    for wrong in (value, nd.array(value)):
        with pytest.raises(DeviceError, match="it is no array on cpu"):
            module.set_input_zero_copy("x", wrong)
    with pytest.raises(DeviceError, match="no such function"):
        _ = module["no method"]

    found = module.profile(number=1)
    assert [k.name for k in found] == [k.name for k in here.profile(1, x=value)]
    assert found.seconds > 0 and found.call_seconds > 0 and "titanx" in found.device
    began = time.monotonic()
    module.benchmark(device, repeat=3, number=1, cooldown_interval_ms=400)
    assert time.monotonic() - began > 0.8
    with pytest.raises(DeviceError, match="repeats_to_cooldown"):
        module.benchmark(device, repeats_to_cooldown=0)

    calls: list[tuple[str, int]] = []
    call = RemoteSession.call

    def noted(session: RemoteSession, function: str, **given: Any) -> Any:
        calls.append((function, given.get("held", 0)))
        return call(session, function, **given)

    monkeypatch.setattr(RemoteSession, "call", noted)
    numbers = {("drop", module._held), ("drop", library.held)}
    del module, library
    gc.collect()
    end = time.monotonic() + 30
    while not numbers <= set(calls):
        assert time.monotonic() < end
        time.sleep(0.02)
    remote.remove("net.tar")


def test_states_live_there(remote: RemoteSession, tmp_path: Path):
    x, total = relay.var("x", shape=(2,)), relay.var("total", shape=(2,))
    f = relay.Function([x, total], relay.Tuple([total + x, total * relay.const(2.0)]))
    library = build(f, "llvm", states={"total": State(0, np.ones(2, "float32"))}, verify=False)
    library.export_library(tmp_path / "sum.tar")
    remote.upload(tmp_path / "sum.tar")
    module = graph_executor.GraphModule(remote.load_module("sum.tar")["default"](remote.cpu()))
    assert [(s.name, s.shape, s.dtype) for s in module.states] == [("total", (2,), "float32")]
    three = np.array([3, 4], "float32")
    module.run(x=three)
    other = module.fork()
    other.run(x=three)
    assert list(module.state()["total"]) == [4, 5] and list(other.state()["total"]) == [7, 9]
    for wrong, words in (
        ({"sum": three}, "no state 'sum'"), ({"total": np.ones(3, "float32")}, "the state float32"),
        ({"total": np.ones(2, "int32")}, "the state float32"),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=words):
            module.set_state(wrong)
    module.set_state({"total": three})
    assert list(module.state()["total"]) == [3, 4]
    module.reset()
    assert list(module.state()["total"]) == [1, 1] and list(other.state()["total"]) == [7, 9]
    remote.remove("sum.tar")


def test_arrays_live_there(remote: RemoteSession):
    values = np.arange(24, dtype="int16").reshape(4, 6)
    there = nd.array(values, remote.cpu())
    assert str(there.device).startswith("cpu(0) of titanx at")
    np.testing.assert_array_equal(there.numpy(), values)
    again = there.copyto(remote.cpu())
    again.copyfrom(values + 1)
    np.testing.assert_array_equal(again.numpy(), values + 1)
    np.testing.assert_array_equal(there.copyto(tilewright.cpu()).numpy(), values)
    assert nd.empty((0, 3), "float32", remote.cpu()).numpy().shape == (0, 3)


def test_a_computation_runs_there(remote: RemoteSession, tmp_path: Path):
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 3.0, name="B")
    tilewright.build(te.create_schedule(b.op), [a, b], "llvm").save(tmp_path / "triple.tw")
    remote.upload(tmp_path / "triple.tw", target="t.tw")
    module = remote.load_module("t.tw")
    x = np.linspace(0, 1, 64, dtype="float32")
    arrays = [nd.array(x, remote.cpu()), nd.empty((64,), "float32", remote.cpu())]
    module(*arrays)
    np.testing.assert_array_equal(arrays[1].numpy(), x * np.float32(3))
    timed = module.time_evaluator("default", remote.cpu(), number=3, repeat=2)(*arrays)
    assert len(timed.results) == 2
    with pytest.raises(DeviceError, match="no device of this session"):
        module(nd.array(x), arrays[1])


def test_limits_of_the_device_are_hardware_parameters(remote: RemoteSession):
    device = remote.cl()
    if not device.exist:
        pytest.skip(f"there is no OpenCL device: {device.why_not()}")
    shared, threads = device.max_shared_memory_per_block, device.max_threads_per_block
    vthread = int(device.warp_size / 4) if int(device.warp_size / 4) > 1 else device.warp_size
    params = HardwareParams(-1, 16, 64, shared, 2**31 - 1, threads, vthread, device.warp_size)
    assert params.max_threads_per_block == threads >= 64 and shared >= 16 << 10


def test_what_the_device_is(remote: RemoteSession):
    assert remote.cpu().exist and remote.cpu().name == tilewright.cpu().name
    assert remote.cpu().limits == tilewright.cpu().limits
    assert "titanx" in repr(remote)
    assert remote.cpu() == remote.cpu() != tilewright.cpu()


def test_a_script_for_a_board_runs_here_and_there(shared_farm: Farm, tmp_path: Path):
    """By the names of TVM's rpc, with this machine as the board, and with one of a tracker."""
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    tilewright.build(te.create_schedule(b.op), [a, b], "llvm", name="one").save(
        tmp_path / "one.tar"
    )
    tracker = rpc.connect_tracker("127.0.0.1", shared_farm.port)
    assert "titanx" in tracker.text_summary()
    for session in (rpc.LocalSession(), tracker.request("1080ti")):
        with session as board:
            board.upload(tmp_path / "one.tar")
            board.upload(b"x", target="x.bin")
            assert board.listdir() == ["one.tar", "x.bin"]
            board.remove("x.bin")
            dev, module = board.cpu(), board.load_module("one.tar")
            x, y = nd.array(np.arange(8, dtype="float32"), dev), nd.empty((8,), device=dev)
            module(x, y)
            np.testing.assert_array_equal(y.numpy(), np.arange(1, 9))
            assert module.time_evaluator(module.entry_name, dev, number=2)(x, y).mean > 0
            for name in ("../one.tar", "absent.tar"):
                with pytest.raises(DeviceError, match="no plain name|no such file|cannot be read"):
                    board.load_module(name)
            with pytest.raises(DeviceError, match="no plain name"):
                board.upload(b"x", target="a/b")
    with pytest.raises(DeviceError, match="cannot be reached"):
        rpc.connect_tracker("127.0.0.1", 1)
    with pytest.raises(AttributeError, match="connect_tracker"):
        _ = rpc.connect


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.so", "no such file"), ("../etc/passwd", "no plain name"), ("", "no plain name")],
)
def test_files_that_cannot_be_loaded(remote: RemoteSession, name: str, reason: str):
    with pytest.raises(DeviceError, match=reason):
        remote.load_module(name)


def test_files_that_are_no_libraries_are_refused_and_the_session_goes_on(remote: RemoteSession):
    remote.upload(b"not a library", target="x.tar")
    with pytest.raises(DeviceError, match=r"x\.tar"):
        remote.load_module("x.tar")
    with pytest.raises(DeviceError, match="cannot be read"):
        remote.upload("absent.so")
    with pytest.raises(DeviceError, match="no plain name"):
        remote.upload(b"x", target="a/b")
    assert "x.tar" in remote.listdir()
    remote.remove("x.tar")


def test_code_is_not_sent_by_loading_it_there(remote: RemoteSession):
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    artifact = tilewright.build(te.create_schedule(b.op), [a, b], "llvm").artifact
    with pytest.raises(DeviceError, match="export_library"):
        tilewright.runtime.module.Module(artifact, remote.cpu())


def test_while_a_session_lasts_nobody_else_gets_the_device(
    remote: RemoteSession, shared_farm: Farm
):
    kept = nd.array(np.ones(3, "float32"), remote.cpu())
    told = "all 1 devices of the key are in use after 1 s, held by this process itself, .* Close"
    with pytest.raises(DeviceError, match=told):
        request_remote("titanx", "127.0.0.1", shared_farm.port, timeout=1)
    assert kept.numpy().sum() == 3


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Farm]:
    """A farm of one device."""
    with farm(tmp_path, ["k"]) as made:
        yield made


@pytest.mark.slow
def test_a_session_with_nothing_there_gives_way_and_comes_back(alone: Farm):
    """To the tuner of its own process, and to another session of it."""
    place = "127.0.0.1", alone.port
    first = request_remote("k", *place)
    device = first.cpu()
    assert device.exist
    with FarmRunner("k", *place) as runner:
        assert runner.describe(Target("llvm")).kind == "llvm"
        assert first.listdir() == []  # and has the device again
        assert runner.describe(Target("llvm")).kind == "llvm"
    there = nd.array(np.ones(3, "float32"), device)
    with pytest.raises(DeviceError, match="held by this process itself"):
        request_remote("k", *place, timeout=2)
    assert there.numpy().sum() == 3
    del there
    with request_remote("k", *place, timeout=60) as second:
        second.upload(b"x", target="a file")
        assert second.listdir() == ["a file"]
    assert first.listdir() == []
    first.close()
    with pytest.raises(DeviceError, match="device is lost"):
        first.listdir()


@pytest.mark.slow
def test_a_session_ends_with_the_last_that_refers_to_it(alone: Farm):
    """`del` does, without Python's search for what refers to itself in circles."""
    place = "127.0.0.1", alone.port
    gc.disable()
    try:
        session = request_remote("k", *place)
        device = session.cpu()
        there = nd.array(np.ones(3, "float32"), device).copyto(device)
        assert there.numpy().sum() == 3 and device.exist and str(device.name)
        ended = weakref.ref(session)
        del session, device, there
        end = time.monotonic() + 30
        while ended() is not None:  # until the other side has dropped the arrays
            assert time.monotonic() < end, gc.get_referrers(ended())
            time.sleep(0.02)
    finally:
        gc.enable()
    with request_remote("k", *place, timeout=60) as other:
        assert other.listdir() == []


def test_the_device_is_free_after_the_session(shared_farm: Farm):
    for _ in range(3):
        with request_remote("1080ti", "127.0.0.1", shared_farm.port) as one:
            with request_remote("1080ti", "127.0.0.1", shared_farm.port) as two:
                assert one.address != two.address
    with pytest.raises(DeviceError, match="device is lost"):
        one.listdir()


def test_a_key_that_nobody_has_is_one_error(shared_farm: Farm):
    began = time.monotonic()
    with pytest.raises(DeviceError, match="no device of this key"):
        request_remote("rk3399", "127.0.0.1", shared_farm.port, timeout=1)
    assert time.monotonic() - began < 30
