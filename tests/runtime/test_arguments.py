"""What is passed to kernels: byte order, size, memory that is shared; and one refusal each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base.artifact import Artifact
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import DeviceError
from tilewright.runtime import (
    Device,
    LaunchSequence,
    Module,
    NDArray,
    array,
    cpu,
    empty,
    from_dlpack,
)
from tilewright.runtime.drivers import ALIGNMENT

Build = Callable[..., Artifact]
SIZE = 1000
ADD = (2, 0, "+", 1)
BIG_ENDIAN = [">f2", ">f4", ">f8", ">i2", ">i4", ">i8"]


def of(value: float, dev: Device) -> NDArray:
    return array(np.full(SIZE, value, np.float32), dev)


def aligned(count: int) -> np.ndarray:
    """float32 at an address that kernels may be given."""
    raw = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * 4].view(np.float32)


@pytest.mark.parametrize("dtype", BIG_ENDIAN)
def test_values_count_not_their_byte_order(device: Device, dtype: str) -> None:
    given = np.arange(24).astype(dtype).reshape(4, 6)
    native = given.astype(given.dtype.newbyteorder("="))
    for view in (given, given.T, given[::-2, ::3], given[2, 3]):
        want = np.asarray(view).astype(native.dtype)
        for made in (array(view, device), empty(want.shape, want.dtype, device).copyfrom(view)):
            assert made.dtype == native.dtype.name
            np.testing.assert_array_equal(made.numpy(), want)
    np.testing.assert_array_equal(from_dlpack(given).numpy(), native)


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (aligned(64).reshape(8, 8).T, "it is strided"),
        (aligned(64).astype(">f4"), "byte order"),
        (aligned(64)[1:], "not aligned to 64 bytes"),
        (np.broadcast_to(aligned(1), (64,)), "it is strided"),
    ],
)
def test_memory_that_cannot_be_shared(tensor: np.ndarray, reason: str) -> None:
    with pytest.raises(DeviceError, match=reason):
        from_dlpack(tensor, copy=False)
    np.testing.assert_array_equal(from_dlpack(tensor).numpy(), tensor)


def test_a_copy_only_where_it_is_asked_for() -> None:
    tensor = aligned(64)
    for copy, seen in ((False, 1), (None, 1), (True, 0)):
        tensor[:] = 0
        taken = from_dlpack(tensor, copy=copy)
        tensor[:] = 1
        assert taken.numpy().max() == seen
    tensor.flags.writeable = False
    with pytest.raises(DeviceError, match="read-only"):
        from_dlpack(tensor, copy=False)


def test_an_output_that_shares_memory_is_refused(device: Device, elementwise: Build) -> None:
    module = Module(elementwise(device, [ADD]), device)
    a, b, c = (of(k, device) for k in range(3))
    for given in ((a, b, a), (a, b, b)):
        with pytest.raises(DeviceError, match=r"argument 2 \(b2\): the kernel writes it.*argument"):
            module(*given)
    sequence = module.launches(a, b, c)
    with pytest.raises(DeviceError, match=r"k0: argument 2 \(b2\): the kernel writes it"):
        LaunchSequence(device, [(sequence[0][0], [a, b, a])])
    module(a, a, c)  # inputs may
    np.testing.assert_array_equal(c.numpy(), 0)


def test_two_outputs_that_share_memory_are_refused(device: Device, elementwise: Build) -> None:
    module = Module(elementwise(device, [(2, 0, "+", 1), (3, 0, "+", 1)], "iioo"), device)
    a, b, c = (of(k, device) for k in range(3))
    with pytest.raises(DeviceError, match=r"argument 2 \(b2\).*the memory of argument 3"):
        module(a, b, c, c)


def test_memory_that_overlaps_in_part(elementwise: Build) -> None:
    module = Module(elementwise(cpu(), [ADD]), cpu())
    step = ALIGNMENT // 4
    memory = aligned(4 * SIZE)
    a, shifted, apart = (
        from_dlpack(memory[at : at + SIZE], copy=False) for at in (0, step, 128 * step)
    )
    with pytest.raises(DeviceError, match="memory in common with argument 0"):
        module(a, apart, shifted)
    module(a, shifted, apart)


def test_a_sequence_checks_what_its_kernels_are_given(device: Device, elementwise: Build) -> None:
    kernel = Module(elementwise(device, [ADD]), device).kernels[0]
    a, b = of(1, device), of(2, device)
    for wrong, reason in (
        (empty(5, "float32", device), r"argument 2 \(b2\): its shape is \(5,\), not \(1000,\)"),
        (empty(SIZE, "int32", device), r"argument 2 \(b2\): its dtype is int32"),
        (np.zeros(SIZE, np.float32), r"argument 2 \(b2\): it is a ndarray"),
    ):
        with pytest.raises(DeviceError, match=f"LaunchSequence: k0: {reason}"):
            LaunchSequence(device, [(kernel, [a, b, wrong])])


def test_a_kernel_of_another_kind_of_device(gpu: Device, elementwise: Build) -> None:
    kernel = Module(elementwise(gpu, [ADD]), gpu).kernels[0]
    with pytest.raises(DeviceError, match=rf"it is a kernel for {gpu.kind}, not for cpu\(0\)"):
        LaunchSequence(cpu(), [(kernel, [of(k, cpu()) for k in range(3)])])


def test_an_array_needs_memory_of_its_size(device: Device) -> None:
    memory = empty(10, "float32", device).memory
    with pytest.raises(DeviceError, match="it takes 44 bytes, the memory has 40"):
        NDArray((11,), FLOAT32, device, memory)
