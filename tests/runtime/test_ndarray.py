import gc

import numpy as np
import pytest

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device, array, cpu, dlpack, empty, from_dlpack


@pytest.mark.parametrize("dtype", TYPES)
def test_round_trip(device: Device, dtype: str) -> None:
    x = (np.arange(24).reshape(2, 3, 4) % 5).astype(dtype)
    a = array(x, device)
    assert (a.shape, a.dtype, a.device, a.nbytes) == ((2, 3, 4), dtype, device, x.nbytes)
    np.testing.assert_array_equal(a.numpy(), x)
    assert a.numpy().dtype == x.dtype == DType(dtype).storage


def test_arrays_are_made_of_the_type_that_is_asked_for(device: Device) -> None:
    a = array([1, 2.5, 3], device, dtype="bfloat16")
    assert a.dtype == "bfloat16" and a.numpy().tolist() == [1, 2.5, 3]
    assert array(a, dtype="float32").dtype == "float32"
    assert array(a, device).dtype == "bfloat16"


def test_strided_scalar_and_empty_sources(device: Device) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    np.testing.assert_array_equal(array(x.T[::2], device).numpy(), x.T[::2])
    assert array(np.float32(3), device).numpy() == 3
    assert array(np.zeros((0, 3), np.float32), device).numpy().shape == (0, 3)


def test_copies_between_arrays_and_devices(device: Device) -> None:
    x = np.arange(10, dtype=np.float32)
    a = array(x, device)
    host = a.copyto(cpu())
    back = empty(10, "float32", device).copyfrom(host)
    np.testing.assert_array_equal(back.copyto(empty((10,), "float32", device)).numpy(), x)
    host.copyfrom(x + 1)
    np.testing.assert_array_equal(a.numpy(), x)  # copies, not views


def test_cpu_memory_is_aligned() -> None:
    assert all(empty(n).memory.pointer % 64 == 0 for n in (1, 7, 1000))


def test_refused_arrays() -> None:
    with pytest.raises(DeviceError, match=r"dtype 'complex64' .*astype"):
        array(np.zeros(3, np.complex64))
    with pytest.raises(DeviceError, match=r"array\(dtype='half'\)"):
        array([1.0], dtype="half")
    with pytest.raises(DeviceError, match="negative"):
        empty((2, -1))
    with pytest.raises(DeviceError, match=r"float32\[4\] but the target is float32\[3\]"):
        empty((3,)).copyfrom(np.zeros(4, "float32"))
    with pytest.raises(DeviceError, match="only all of an array can be set"):
        empty((3,))[0] = 1.0


def test_contents_are_set_as_in_numpy() -> None:
    a = empty((3,))
    a[:] = np.arange(3.0)
    assert a.asnumpy().tolist() == [0, 1, 2] and a.ctx == a.device
    a[:] = 7
    assert a.numpy().tolist() == [7, 7, 7]
    b = empty((3,))
    b[:] = a
    assert b.numpy().tolist() == [7, 7, 7]


@pytest.mark.slow
def test_dlpack_shares_memory_with_numpy() -> None:
    a = array(np.zeros(32, np.float32))
    view = np.from_dlpack(a)
    view[5] = 7
    assert a.numpy()[5] == 7
    del a
    gc.collect()
    assert view[5] == 7

    raw = np.zeros(64 + 16, np.float32)
    aligned = raw[(-raw.ctypes.data % 64) // 4 :][:64]
    taken = from_dlpack(aligned)
    aligned[3] = 4
    assert taken.numpy()[3] == 4
    strided = aligned.reshape(8, 8).T
    np.testing.assert_array_equal(from_dlpack(strided).numpy(), strided)


def test_dlpack_with_torch(device: Device) -> None:
    torch = pytest.importorskip("torch")
    if device.kind == "opencl":
        with pytest.raises(DeviceError, match="numpy"):
            array(np.zeros(1), device).__dlpack_device__()
        return
    if device.kind == "cuda" and not torch.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    a = array(np.arange(6, dtype=np.float32).reshape(2, 3), device)
    t = torch.from_dlpack(a)
    t += 1
    np.testing.assert_array_equal(a.numpy(), [[1, 2, 3], [4, 5, 6]])
    np.testing.assert_array_equal(from_dlpack(t * 2).numpy(), [[2, 4, 6], [8, 10, 12]])


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_dlpack_keeps_every_type_in_both_directions(dtype: str) -> None:
    """bfloat16 by our own capsules, since numpy has none."""
    x = (np.arange(64) % 2).astype(DType(dtype).storage)
    a = array(x)
    taken = from_dlpack(a)
    assert taken.dtype == dtype and taken.memory.pointer == a.memory.pointer
    del a
    gc.collect()
    np.testing.assert_array_equal(taken.numpy(), x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "int16"])
def test_dlpack_with_torch_in_narrow_types(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    a = array(np.arange(48), dtype=dtype)
    t = torch.from_dlpack(a)
    assert t.dtype == getattr(torch, dtype)
    t += 1
    np.testing.assert_array_equal(a.numpy().astype(np.int32), np.arange(1, 49))
    back = from_dlpack(t * 2)
    assert back.dtype == dtype
    np.testing.assert_array_equal(back.numpy().astype(np.int32), 2 * np.arange(1, 49))
    odd = t[1::2]  # strided: copied
    assert from_dlpack(odd).numpy().tolist() == list(range(2, 49, 2))


class Exporter:
    """What a CUDA array does, over host memory."""

    def __init__(self, x: np.ndarray, owner: object) -> None:
        self.x, self.owner = x, owner

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: object) -> object:
        return dlpack.export_capsule(
            self.x.ctypes.data, self.x.shape, self.x.dtype.name, (1, 0), self.owner
        )


@pytest.mark.slow
def test_own_capsules() -> None:
    x = np.arange(12, dtype=np.int64).reshape(3, 4)
    held = len(dlpack._exported)
    seen = np.from_dlpack(Exporter(x, x))
    np.testing.assert_array_equal(seen, x)
    assert len(dlpack._exported) == held + 1
    del seen
    capsule = Exporter(x, x).__dlpack__()
    view = dlpack.import_capsule(capsule)
    assert (view.pointer, view.shape, view.dtype) == (x.ctypes.data, (3, 4), "int64")
    assert view.contiguous
    with pytest.raises(DeviceError, match="used already"):
        dlpack.import_capsule(capsule)
    del view
    Exporter(x, x).__dlpack__()  # never consumed
    gc.collect()
    assert len(dlpack._exported) == held
    assert not dlpack.import_capsule(x.T.__dlpack__()).contiguous
