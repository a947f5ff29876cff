"""Fourier transforms against numpy's, of every length and part."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import ModelError
from tilewright_tvm import relay

RNG = np.random.default_rng(0)


def model(op: str, shape, constants: dict[str, np.ndarray | None], opset: int = 20, **attrs):
    held = {n: v for n, v in constants.items() if v is not None}
    node = helper.make_node(op, ["x", *(n if n in held else "" for n in constants)], ["y"], **attrs)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)],
        [numpy_helper.from_array(v, n) for n, v in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def run(proto, x: np.ndarray) -> np.ndarray:
    mod, params = relay.frontend.from_onnx(proto)
    return relay.evaluate(mod, {"x": x, **params})


def complex_of(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]


def pairs(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 4, 9])
@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_transform_is_numpys(inverse, axis, length, parts):
    x = RNG.standard_normal((2, 6, 5, parts))
    constants = {"n": None if length is None else np.array(length), "axis": np.array(axis)}
    found = run(model("DFT", x.shape, constants, inverse=inverse), x)
    function = np.fft.ifft if inverse else np.fft.fft
    wanted = function(complex_of(x), length, axis % 4)
    np.testing.assert_allclose(found, pairs(wanted), atol=1e-12)


@pytest.mark.parametrize("length", [None, 4, 7, 10])
def test_half_a_transform_is_numpys_and_back(length):
    x = RNG.standard_normal((2, 6, 1))
    constants = {"n": None if length is None else np.array(length), "axis": np.array(1)}
    found = run(model("DFT", x.shape, constants, onesided=1), x)
    wanted = np.fft.rfft(x[..., 0], length, 1)
    np.testing.assert_allclose(found, pairs(wanted), atol=1e-12)
    half = RNG.standard_normal((2, 4, 2))
    found = run(model("DFT", half.shape, constants, onesided=1, inverse=1), half)
    np.testing.assert_allclose(found[..., 0], np.fft.irfft(complex_of(half), length, 1), atol=1e-12)


def test_frames_are_transformed_each():
    x, window = RNG.standard_normal((2, 20, 1)), np.hanning(6)
    constants = {"step": np.array(4), "window": window, "length": np.array(6)}
    found = run(model("STFT", x.shape, constants), x)
    frames = np.stack([x[:, s : s + 6, 0] for s in range(0, 15, 4)], 1) * window
    np.testing.assert_allclose(found, pairs(np.fft.rfft(frames)), atol=1e-12)


def test_what_is_refused():
    with pytest.raises(ModelError, match="no signal"):
        relay.frontend.from_onnx(model("DFT", (2, 6, 3), {"n": None, "axis": np.array(1)}))
    with pytest.raises(ModelError, match="frames of 9"):
        relay.frontend.from_onnx(
            model("STFT", (1, 8, 1), {"step": np.array(2), "w": None, "length": np.array(9)})
        )


def test_filters_are_triangles_between_their_neighbours():
    names = ("count", "length", "rate", "low", "high")
    values = (3, 64, 8000, 100.0, 3000.0)
    held = [
        numpy_helper.from_array(np.array(v, "int64" if k < 3 else "float32"), n)
        for k, (n, v) in enumerate(zip(names, values, strict=True))
    ]
    node = helper.make_node("MelWeightMatrix", names, ["y"])
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    proto = helper.make_model(
        helper.make_graph([node], "g", [], [info], held),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    mod, params = relay.frontend.from_onnx(proto)
    found = relay.evaluate(mod, params)
    assert found.shape == (33, 3) and found.max() == 1 and found.min() == 0
    tops = found.argmax(0)
    assert (np.diff(tops) > 0).all() and (found[tops[:-1], [1, 2]] == 0).all()
