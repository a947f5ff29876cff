from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright import build, cuda, te
from tilewright.base.artifact import Artifact, Packing
from tilewright.base.errors import DeviceError, TargetError
from tilewright.runtime import (
    Device,
    LaunchSequence,
    Module,
    array,
    artifact_file,
    cpu,
    device,
    empty,
    load_module,
)
from tilewright.runtime.timing import BenchmarkResult, measure, show_seconds
from tilewright.runtime.trial import trial

Build = Callable[..., Artifact]
SIZE = 1000
ADD = (2, 0, "+", 1)


def operands(dev: Device) -> tuple[np.ndarray, np.ndarray, list]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, SIZE)).astype(np.float32)
    return x, y, [array(x, dev), array(y, dev), empty(SIZE, "float32", dev)]


def test_call(device: Device, elementwise: Build) -> None:
    x, y, arrays = operands(device)
    module = Module(elementwise(device, [ADD]), device)
    module(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), x + y)
    module(arrays[0], arrays[0], arrays[2])  # bound anew
    np.testing.assert_array_equal(arrays[2].numpy(), x + x)
    assert module.entry_name == "elementwise" and "k0" in module.get_source()


def test_kernels_run_in_order_through_a_workspace(device: Device, elementwise: Build) -> None:
    x, y, arrays = operands(device)
    steps = [(3, 0, "+", 1), (2, 3, "*", 2.0)]
    module = Module(elementwise(device, steps, "iiow"), device)
    module(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), (x + y) * 2)


def test_time_evaluator(device: Device, elementwise: Build) -> None:
    _, _, arrays = operands(device)
    module = Module(elementwise(device, [ADD]), device)
    result = module.time_evaluator(module.entry_name, device, number=3, repeat=4)(*arrays)
    assert len(result.results) == 4 and 0 < result.min <= result.median <= result.max < 1
    cold = module.time_evaluator("default", device, number=3, cache_flush_bytes=1 << 16)(*arrays)
    assert cold.mean > 0
    long = module.time_evaluator("default", device, number=1, min_repeat_ms=2)(*arrays)
    assert long.mean < 1


def test_sequence_of_two_modules(device: Device, elementwise: Build) -> None:
    x, y, arrays = operands(device)
    out = empty(SIZE, "float32", device)
    add = Module(elementwise(device, [ADD]), device)
    double = Module(elementwise(device, [(3, 1, "*", 2.0), (2, 3, "+", 0)], "iiow"), device)
    calls = [*add.launches(*arrays), *double.launches(arrays[0], arrays[2], out)]
    sequence = LaunchSequence(device, calls)
    sequence.run()
    np.testing.assert_array_equal(out.numpy(), (x + y) * 2 + x)
    arrays[0].copyfrom(y)  # the same buffers, new contents
    sequence.run()
    np.testing.assert_array_equal(out.numpy(), (y + y) * 2 + y)
    assert len(sequence) == 3 and 0 < sequence.time(number=3, repeat=2).mean < 1


def test_packed_constant(device: Device, elementwise: Build) -> None:
    """The kernel reads b1 transposed; callers pass it as they know it."""
    packing = Packing((20, 50), (1, 1), (1, 0))
    artifact = elementwise(device, [ADD], "iio", packing)
    x, y, (a, _, out) = operands(device)
    grid = y.reshape(20, 50)
    constant = array(grid, device)
    module = Module(artifact, device)
    module(a, constant, out)
    np.testing.assert_array_equal(out.numpy(), x + grid.T.reshape(-1))
    constant.copyfrom(-grid)
    module(a, constant, out)
    np.testing.assert_array_equal(out.numpy(), x - grid.T.reshape(-1))
    LaunchSequence(device, module.launches(a, array(grid, device), out)).run()
    np.testing.assert_array_equal(out.numpy(), x + grid.T.reshape(-1))
    with pytest.raises(DeviceError, match=r"its shape is \(1000,\), not \(20, 50\)"):
        module(a, array(y, device), out)
    for given in (grid, constant.copyfrom(grid)):
        assert trial(artifact, device, [x, given], [x + grid.T.reshape(-1)]).error is None
    assert artifact_file.from_bytes(artifact_file.to_bytes(artifact)) == artifact


def test_save_and_load(device: Device, tmp_path: Path, elementwise: Build) -> None:
    x, y, arrays = operands(device)
    artifact = elementwise(device, [ADD])
    Module(artifact, device).save(tmp_path / "add.tw")
    loaded = load_module(tmp_path / "add.tw", device)
    loaded(*arrays)
    np.testing.assert_array_equal(arrays[2].numpy(), x + y)
    assert loaded.artifact == artifact
    (tmp_path / "add.tw").write_bytes((tmp_path / "add.tw").read_bytes()[:-1])
    with pytest.raises(DeviceError, match="damaged"):
        load_module(tmp_path / "add.tw")


def test_arguments_that_do_not_fit(device: Device, elementwise: Build) -> None:
    _, _, (a, b, c) = operands(device)
    module = Module(elementwise(device, [ADD]), device)
    with pytest.raises(DeviceError, match=r"takes 3 arrays, not 2. Pass b0, b1, b2"):
        module(a, b)
    with pytest.raises(DeviceError, match=r"argument 1 \(b1\): its shape is \(5,\)"):
        module(a, empty(5, "float32", device), c)
    with pytest.raises(DeviceError, match=r"argument 0 \(b0\): its dtype is int32"):
        module(empty(SIZE, "int32", device), b, c)
    with pytest.raises(DeviceError, match=r"argument 2 \(b2\): it is a ndarray"):
        module(a, b, np.zeros(SIZE, np.float32))
    with pytest.raises(DeviceError, match="this module's function is"):
        module.time_evaluator("nothing", device)
    with pytest.raises(DeviceError, match="at least 1"):
        module.time_evaluator("default", device, number=0)(a, b, c)
    with pytest.raises(DeviceError, match="at least 1"):
        module.time_evaluator("default", device, repeats_to_cooldown=0)(a, b, c)
    kernel = module.kernels[0]
    with pytest.raises(DeviceError, match="2 arrays were given"):
        LaunchSequence(device, [(kernel, [a, b])])
    if device != cpu():
        with pytest.raises(DeviceError, match=r"lives on cpu\(0\)"):
            module(empty(SIZE), b, c)
        with pytest.raises(DeviceError, match="compiled for"):
            Module(module.artifact, cpu())


def test_devices() -> None:
    assert device("llvm") == cpu() and str(device("cuda", 1)) == "cuda(1)"
    limits = cpu().limits
    assert cpu().target.limits.cores == limits["cores"] >= 1
    with pytest.raises(DeviceError, match="unknown kind"):
        device("tpu")
    for missing in (device("opencl", 63), device("cuda", 63), cpu(1)):
        reason = missing.why_not()
        assert not missing.exist and reason is not None and reason.way_out


class Clock:
    """A plan that takes `pass_seconds` for each pass."""

    def __init__(self, pass_seconds: float) -> None:
        self.pass_seconds, self.asked = pass_seconds, []

    def run(self) -> None: ...

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        self.asked.append(number)
        return self.pass_seconds


def test_number_grows_to_min_repeat_and_stays() -> None:
    clock = Clock(1e-3)
    result = measure(clock, number=2, repeat=3, min_repeat_ms=10)
    assert result.results == (1e-3,) * 3
    assert clock.asked[0] == 2 and clock.asked[1] >= 10 and len(set(clock.asked[1:])) == 1
    still = Clock(0.0)  # a clock that never moves must not loop for ever
    measure(still, number=1, min_repeat_ms=1, limit_zero_time_iterations=4)
    assert len(still.asked) == 5


def test_benchmark_result() -> None:
    result = BenchmarkResult((1e-6, 2e-6, 6e-6))
    assert (result.mean, result.median, result.max) == (3e-6, 2e-6, 6e-6)
    assert "3 us" in str(result) and show_seconds(0.0025) == "2.5 ms"


def test_functions_and_texts_by_name() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    module = build(te.create_schedule(b.op), [a, b], "llvm", name="add")
    assert module["add"] is module and module.get_function("default") is module
    assert module.get_source() == module.get_source("ll") and "ret" in module.get_source("asm")
    with pytest.raises(DeviceError, match="this module's function is 'add'"):
        module["sub"]
    with pytest.raises(DeviceError, match="no such text of a kernel for llvm. Use 'll' or 'asm'"):
        module.get_source("ptx")


def test_text_can_be_read_where_there_is_no_device() -> None:
    if cuda().exist:
        pytest.skip("there is one")
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], "threadIdx.x")
    module = build(s, [a, b], "cuda", name="add")
    assert "__global__" in module.get_source("cu") and "kernels: add" in repr(module)
    with pytest.raises(DeviceError, match="argument 0"):
        module(empty((64,)), empty((64,)))
    with pytest.raises((DeviceError, TargetError)):
        _ = module.kernels
