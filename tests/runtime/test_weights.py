"""Weights are held once: in place on a CPU, shared by libraries on any device."""

import gc
import weakref

import numpy as np
import pytest

import tilewright
from tilewright.runtime.drivers import ALIGNMENT
from tilewright.runtime.network import weights
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor


def at(offset: int, count: int = 256) -> np.ndarray:
    """Random float32 so many bytes behind an aligned address."""
    raw = np.zeros(count * 4 + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT + offset
    made = raw[start : start + count * 4].view("float32")
    made[:] = np.random.default_rng(0).standard_normal(count)
    return made


def library(weight: np.ndarray) -> relay.Library:
    x, w = relay.var("x", shape=(16, 16)), relay.var("w", shape=weight.shape)
    body = relay.nn.softmax(x + relay.reshape(w, (16, 16)))
    return relay.build(relay.IRModule.from_expr(body), "llvm", {"w": weight})


@pytest.mark.slow
def test_an_aligned_array_is_used_where_it_is():
    weight = at(0)
    held = weights.on_device(weight, tilewright.cpu())
    assert held.memory.pointer == weight.ctypes.data
    reference = weakref.ref(weight)
    del weight
    gc.collect()
    assert reference() is not None and held.numpy().any()


@pytest.mark.parametrize("offset", [0, 16])
def test_a_library_holds_no_second_copy(offset):
    lib = library(at(offset))
    loaded = lib["default"](tilewright.cpu())
    (ours,), (held,) = lib.constants, loaded.constants
    assert ours.ctypes.data == held.memory.pointer and not held.memory.pointer % ALIGNMENT
    module = graph_executor.GraphModule(loaded)
    module.run(x=np.zeros((16, 16), "float32"))
    shifted = np.exp(at(offset).reshape(16, 16))
    found = module.get_output(0).numpy()
    np.testing.assert_allclose(found, shifted / shifted.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(lib.get_params()["p0"].reshape(-1), at(offset))


def test_libraries_with_equal_weights_share_them(device):
    weight = at(16)
    first = weights.on_device(weight, device)
    second = weights.on_device(at(16).reshape(16, 16), device)  # as little aligned
    assert first.memory is second.memory and second.shape == (16, 16)
    np.testing.assert_array_equal(second.numpy(), weight.reshape(16, 16))
    assert weights.on_device(weight.view("int32"), device).memory is not first.memory


def test_a_changed_array_is_another(device):
    weight = at(16)
    first = weights.on_device(weight, device)
    weight[3] += 1
    second = weights.on_device(weight, device)
    assert first.memory is not second.memory
    np.testing.assert_array_equal(second.numpy(), weight)


@pytest.mark.slow
def test_nobody_keeps_weights_alive(device):
    held = weights.on_device(at(16), device)
    memory = weakref.ref(held.memory)
    del held
    gc.collect()
    assert memory() is None


def test_strided_and_empty_weights(device):
    weight = at(0).reshape(16, 16).T[::2]
    np.testing.assert_array_equal(weights.on_device(weight, device).numpy(), weight)
    assert weights.on_device(np.zeros((0, 3), "float32"), device).numpy().shape == (0, 3)
