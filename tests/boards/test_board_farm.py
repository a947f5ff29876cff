"""A board of a farm, emulated: kernels made here are measured on it, and the tuned network runs
there.  It has numpy, Dask and the runtime's archive, no compiler and no OpenCL."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from boards.emulated import BOARDS, FOLDER, made
from farm.processes import Farm, farm
from tilewright.base.errors import DeviceError
from tilewright.driver.archive import write_runtime
from tilewright.farm.session import RemoteSession
from tilewright.measure.database import Database
from tilewright.targets.target import Target
from tilewright_tvm import auto_scheduler, nd, relay, transform
from tilewright_tvm.auto_scheduler.utils import request_remote
from tilewright_tvm.contrib import graph_executor

BOARD = BOARDS[0]
BOARDS_AT = made()
KEY = "rk3399"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        BOARDS_AT is None or not BOARD.packages(BOARDS_AT).is_dir(),
        reason=f"no board with a farm's server: `tests/boards/emulated.py FOLDER` makes it for "
        f"{FOLDER}=FOLDER, where Debian's packages and wheels for {BOARD.name} can be had",
    ),
]
pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    """A tracker, and the board as its only device."""
    assert BOARDS_AT is not None
    folder = tmp_path_factory.mktemp("board")
    archive = folder / "tilewright-runtime.pyz"
    write_runtime(archive, server=True)
    path = os.pathsep.join(map(str, (archive, BOARD.packages(BOARDS_AT))))
    with pytest.MonkeyPatch.context() as patched, farm(folder) as tracker:
        patched.setenv("QEMU_CPU", "cortex-a72")
        tracker.serve_at(KEY, 0, python=str(BOARD.python(BOARDS_AT)), path=path)
        yield tracker


def network() -> tuple[relay.IRModule, dict[str, np.ndarray]]:
    """A convolution, a depthwise one and a dense layer."""
    rng = np.random.default_rng(0)
    shapes = {"w": (3, 3, 4, 8), "deep": (3, 3, 8, 1), "last": (10, 8)}
    params = {n: rng.standard_normal(shape).astype("float32") for n, shape in shapes.items()}
    w, deep, last = (relay.var(name, shape=shape) for name, shape in shapes.items())
    data = relay.var("data", shape=(1, 12, 12, 4))
    nhwc = {"kernel_size": (3, 3), "padding": (1, 1), "data_layout": "NHWC"}
    y = relay.nn.relu(relay.nn.conv2d(data, w, channels=8, kernel_layout="HWIO", **nhwc))
    y = relay.nn.relu(relay.nn.conv2d(y, deep, channels=8, groups=8, kernel_layout="HWOI", **nhwc))
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y, layout="NHWC"))
    body = relay.nn.dense(y, last)
    return relay.IRModule.from_expr(relay.Function([data, w, deep, last], body)), params


@pytest.fixture(scope="module")
def tuned(board: Farm, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log: each task of the network tried three times on the board."""
    folder = tmp_path_factory.mktemp("log")
    log = folder / "board.json"
    mod, params = network()
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], params, Target(BOARD.target))
    with (
        pytest.MonkeyPatch.context() as patched,
        auto_scheduler.RPCRunner(
            KEY, host="127.0.0.1", port=board.port, repeat=1, number=1, timeout=120
        ) as runner,
    ):
        patched.chdir(folder)  # a table of the tasks is written there
        auto_scheduler.TaskScheduler(tasks, weights).tune(
            auto_scheduler.TuningOptions(
                num_measure_trials=3 * len(tasks),
                builder=auto_scheduler.LocalBuilder(timeout=120), runner=runner,
                measure_callbacks=[auto_scheduler.RecordToFile(str(log))], verbose=0,
            )
        )  # fmt: skip
    return log


@pytest.fixture(scope="module")
def session(board: Farm, tuned: Path) -> Iterator[RemoteSession]:
    """Of the board, after those trials: it has it alone."""
    with request_remote(KEY, "127.0.0.1", board.port, timeout=120) as made:
        yield made


def test_kernels_are_measured_on_the_board(tuned: Path) -> None:
    records = [r for r in Database.load(tuned) if not r.result.final]
    assert set(Counter(r.task.name for r in records).values()) == {3} and len(records) == 12
    assert all(r.result.ok and r.result.verified for r in records), records
    assert all(r.device == "aarch64 generic" for r in records)


def test_the_tuned_network_runs_there(tuned: Path, session: RemoteSession, tmp_path: Path) -> None:
    """The CPU's half of the tutorial for a Mali beside an ARM processor."""
    mod, params = network()
    with (
        auto_scheduler.ApplyHistoryBest(str(tuned)),
        transform.PassContext(opt_level=3, config={"relay.backend.use_auto_scheduler": True}),
    ):
        library = relay.build(mod, target=BOARD.target, params=params)
    assert "(4 record)" in str(library.report)
    library.export_library(tmp_path / "net.so")
    session.upload(tmp_path / "net.so")
    device = session.cpu()
    module = graph_executor.GraphModule(session.load_module("net.so")["default"](device))
    value = np.random.default_rng(1).standard_normal((1, 12, 12, 4)).astype("float32")
    module.set_input("data", nd.array(value))
    module.run()
    expected = relay.evaluate(mod["main"], {"data": value, **params})
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5, atol=1e-5)
    assert module.benchmark(device, repeat=2, number=1).min > 0


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("llvm", "was compiled for x86_64.*-mtriple=aarch64-linux-gnu"),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", "was compiled for armv7l"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76", "with dotprod.* this one lacks"),
    ],
)
def test_a_library_for_another_processor_is_one_error(
    session: RemoteSession, tmp_path: Path, target: str, reason: str
) -> None:
    x = relay.var("x", shape=(4, 4))
    relay.build(relay.Function([x], x + x), target).export_library(tmp_path / "other.so")
    session.upload(tmp_path / "other.so")
    loaded = session.load_module("other.so")
    with pytest.raises(DeviceError, match=reason):
        graph_executor.GraphModule(loaded["default"](session.cpu()))
