"""Arrays by name as bytes: what is written is read, and nothing else is."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tilewright import runtime
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import DeviceError
from tilewright_tvm import nd


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    made = {name: rng.integers(0, 2, (2, 3)).astype(DType(name).storage) for name in TYPES}
    return {**made, "scalar": np.array(3.5, "float32"), "empty": np.zeros((0, 4), "int8")}


def test_every_element_type_and_rank():
    found = runtime.load_param_dict(bytearray(runtime.save_param_dict(arrays())))
    for name, value in arrays().items():
        assert found[name].dtype == value.dtype and found[name].shape == value.shape
        np.testing.assert_array_equal(found[name], value)


def test_files_and_arrays_of_devices(tmp_path):
    value = np.arange(6, dtype="float32").reshape(2, 3)
    path = tmp_path / "weights.params"
    runtime.save_param_dict_to_file({"w": nd.array(value), "view": value.T}, path)
    found = runtime.load_param_dict_from_file(path)
    np.testing.assert_array_equal(found["w"], value)
    np.testing.assert_array_equal(found["view"], value.T)
    with pytest.raises(DeviceError, match="cannot be used"):
        runtime.load_param_dict_from_file(tmp_path / "none.params")


def test_the_layout_is_that_of_tvm():
    """Byte for byte: list, names, then each array with device, rank, type, shape and size."""
    value = np.float32([[1, 2]])
    want = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, 1) + struct.pack("<Q", 1) + b"w"
    want += struct.pack("<Q", 1) + struct.pack("<QQ", 0xDD5E40F096B4A13F, 0)
    want += struct.pack("<iii", 1, 0, 2) + struct.pack("<BBH", 2, 32, 1)
    want += struct.pack("<qqq", 1, 2, 8) + value.tobytes()
    assert runtime.save_param_dict({"w": value}) == want


def test_damaged_bytes_are_one_error():
    data = runtime.save_param_dict(arrays())
    rng = np.random.default_rng(0)
    for end in rng.integers(0, len(data), 100):
        with pytest.raises(DeviceError, match="load_param_dict"):
            runtime.load_param_dict(data[: int(end)])
    for _ in range(500):
        changed = bytearray(data)
        changed[int(rng.integers(len(data)))] ^= int(rng.integers(1, 256))
        try:
            runtime.load_param_dict(changed)  # a number may have another value
        except DeviceError as error:
            assert "load_param_dict" in str(error)


@pytest.mark.parametrize(
    ("params", "part"),
    [({"w": np.zeros(2, "complex64")}, "complex64"), ({3: np.zeros(2)}, "no string")],
)
def test_what_cannot_be_saved(params, part):
    with pytest.raises(DeviceError, match=part):
        runtime.save_param_dict(params)
