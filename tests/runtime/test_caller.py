"""A network runs on memory of somebody else, and never on memory that does not belong to it."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import ALIGNMENT
from tilewright.runtime.network.caller import Caller
from tilewright_tvm import relay


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    raw = np.empty(int(np.prod(shape)) * 4 + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + int(np.prod(shape)) * 4].view("float32").reshape(shape)


def caller_of(body: relay.Expr) -> Caller:
    library = relay.build(relay.IRModule.from_expr(body), "llvm")
    return Caller(library.load_on(tilewright.cpu()), int)


def test_inputs_are_read_and_outputs_written_where_they_are():
    x, y = relay.var("x", shape=(4, 8)), relay.var("y", shape=(4, 8))
    total = relay.add(x, y)
    caller = caller_of(relay.Tuple([total, relay.nn.softmax(total)]))
    rng = np.random.default_rng(0)
    for _ in range(3):  # other memory each time
        arrays = [aligned((4, 8)) for _ in range(2)]
        for put, array in zip(caller.inputs, arrays, strict=True):
            array[:] = rng.standard_normal((4, 8))
            put(array.ctypes.data)
        outs = [aligned((4, 8)) for _ in range(2)]
        for output, out in zip(caller.outputs, outs, strict=True):
            assert output.put is not None and output.same is None
            output.put(out.ctypes.data)
        caller.run()
        np.testing.assert_allclose(outs[0], arrays[0] + arrays[1], rtol=1e-6)
        shifted = np.exp(outs[0] - outs[0].max(1, keepdims=True))
        np.testing.assert_allclose(outs[1], shifted / shifted.sum(1, keepdims=True), rtol=1e-5)


def test_a_slice_of_an_input_is_read_where_it_lies():
    x = relay.var("x", shape=(16, 16))
    parts = [relay.strided_slice(x, [k, 0], [k + 8, 16]) for k in (8, 0)]
    caller = caller_of(relay.add(*parts))
    for seed in range(2):
        array, out = aligned((16, 16)), aligned((8, 16))
        array[:] = np.random.default_rng(seed).standard_normal((16, 16))
        caller.inputs[0](array.ctypes.data)
        caller.outputs[0].put(out.ctypes.data)
        caller.run()
        np.testing.assert_array_equal(out, array[8:] + array[:8])


def test_an_output_that_is_another_under_a_new_shape_is_named():
    y = relay.nn.relu(relay.var("x", shape=(4, 8)))
    caller = caller_of(relay.Tuple([y, relay.reshape(y, (32,))]))
    assert [o.same for o in caller.outputs] == [None, 0] and caller.outputs[1].put is None


def test_an_output_in_memory_larger_than_itself_is_left_there():
    x = relay.var("x", shape=(64, 64))
    made = relay.build(relay.IRModule.from_expr(relay.nn.softmax(relay.sum(x, axis=0))), "llvm")
    larger = replace(made.plan, slot_bytes=tuple(n + 64 for n in made.plan.slot_bytes))
    library = relay.Library(larger, made.kernels, made.constants, made.report)
    caller = Caller(library.load_on(tilewright.cpu()), int)
    output = caller.outputs[0]
    assert output.put is None and output.same is None
    array = aligned((64, 64))
    array[:] = 1
    caller.inputs[0](array.ctypes.data)
    caller.run()
    found = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 64).from_address(
        output.memory.pointer))  # fmt: skip
    np.testing.assert_allclose(found, np.full(64, 1 / 64), rtol=1e-5)


@pytest.mark.slow
def test_the_call_keeps_alive_what_it_needs():
    caller = caller_of(relay.nn.relu(relay.var("x", shape=(4, 8))))
    put, output, run = caller.inputs[0], caller.outputs[0].put, caller.run
    del caller
    gc.collect()
    x, out = aligned((4, 8)), aligned((4, 8))
    x[:] = -1
    put(x.ctypes.data)
    output(out.ctypes.data)
    litter = [np.full(1000, 7) for _ in range(100)]
    run()
    assert not out.any() and litter


def test_what_nothing_computes_is_told():
    x, made = relay.var("x", shape=(4, 8)), relay.const(np.arange(3, dtype="float32"))
    relu = relay.nn.relu(x)
    caller = caller_of(relay.Tuple([relu, relay.reshape(x, (32,)), made, relu]))
    computed, given, constant, again = caller.outputs
    assert computed.put and given.given == 0 and again.same == 0
    assert not given.put and not constant.put and not again.put
    found = (np.ctypeslib.ctypes.c_float * 3).from_address(constant.memory.pointer)
    assert list(found) == [0, 1, 2]


@pytest.mark.opencl
def test_memory_without_addresses_is_refused():
    device = tilewright.opencl()
    if not device.exist:
        pytest.skip(str(device.why_not()))
    x = relay.var("x", shape=(4, 8))
    library = relay.build(relay.IRModule.from_expr(relay.nn.relu(x)), "opencl")
    with pytest.raises(DeviceError, match="GraphModule"):
        Caller(library.load_on(device), int)
