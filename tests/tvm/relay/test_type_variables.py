"""Type variables of functions and types, bound and free; weights as bytes; builds as of TVM 0.6."""

from __future__ import annotations

import numpy as np

import tilewright_tvm as tvm
from tilewright_tvm import relay
from tilewright_tvm.relay import analysis


def test_type_variables_are_bound_by_functions_that_name_them():
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    x = relay.Var("x", a)
    y = relay.Var("y", relay.TupleType([b, relay.TensorType((2,))]))
    f = relay.Function([x, y], x, a, [a])
    assert analysis.all_type_vars(f) == [a, b]
    assert analysis.bound_type_vars(f) == [a]
    assert analysis.free_type_vars(f) == [b]
    called = relay.Call(f, [relay.Var("z", a), y])
    assert analysis.all_type_vars(called) == [a, b] and analysis.free_type_vars(called) == [b]
    kind = relay.FuncType([a, relay.RefType(b)], a, [a])
    assert analysis.all_type_vars(kind) == [a, b]
    assert analysis.bound_type_vars(kind) == [a] and analysis.free_type_vars(kind) == [b]
    plain = relay.Function([relay.var("v", shape=(2,))], relay.const(1.0))
    assert analysis.all_type_vars(plain) == analysis.free_type_vars(plain) == []


def test_weights_go_through_bytes_and_know_both_spellings():
    value = np.arange(6, dtype="float32").reshape(2, 3)
    for saved in (relay.save_param_dict({"w": value}), tvm.runtime.save_param_dict({"w": value})):
        assert isinstance(saved, bytearray)
        (found,) = relay.load_param_dict(saved).values()
        assert np.array_equal(found.numpy(), value) and np.array_equal(found.asnumpy(), value)
        assert type(found.numpy()) is np.ndarray and np.array_equal(found * 2, value * 2)


def test_a_build_takes_the_host_before_the_weights():
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    weight = np.ones((4, 3), "float32")
    device = {tvm.tir.IntImm("int32", tvm.cpu().device_type): "llvm"}
    for built in (
        relay.build(mod, device, "llvm", params={"w": weight}),
        relay.build(mod, "llvm", "llvm", {"w": weight}),
        relay.build(mod, "llvm", {"w": weight}),
    ):
        run = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
        run.set_input("x", np.ones((2, 3), "float32"))
        run.run()
        assert np.array_equal(run.get_output(0).numpy(), np.full((2, 4), 3, "float32"))
