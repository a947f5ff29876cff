"""`relay.create_executor` and `relay.vm`: functions of a network as functions of Python."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tilewright import cpu, te
from tilewright.base.errors import DeviceError, ModelError, TilewrightError
from tilewright_tvm import relay, runtime
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import scope_builder
from tilewright_tvm.runtime.vm import VirtualMachine

KINDS = ("graph", "vm", "debug")


def nested() -> relay.Function:
    """(exp(x) + y, (the columns of x))"""
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(3,))
    return relay.Function([x, y], relay.Tuple([relay.exp(x) + y, relay.split(x, 3, axis=1)]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_by_position_and_by_name(kind):
    x, y = np.random.default_rng(0).random((2, 3)), np.float32([1, 2, 3])
    run = relay.create_executor(kind).evaluate(nested())
    for found in (run(x, y), run(x, y=y), run(y=y, x=x.tolist())):
        np.testing.assert_allclose(found[0].numpy(), np.exp(x) + y, rtol=1e-6)
        columns = [part.numpy()[:, 0] for part in found[1]]
        np.testing.assert_array_equal(columns, x.T.astype("float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_not_overwritten_by_the_next_call(kind):
    x = relay.var("x", shape=(4,))
    run = relay.create_executor(kind).evaluate(relay.Function([x], x * 2.0))
    first = run(np.ones(4))
    run(np.zeros(4))
    np.testing.assert_array_equal(first.numpy(), np.full(4, 2, "float32"))


@pytest.mark.parametrize("kind", KINDS)
def test_main_of_a_module_with_weights(kind):
    mod, params = relay.testing.synthetic.get_workload((1, 2, 4, 4))
    data = np.random.default_rng(0).random((1, 2, 4, 4))
    found = relay.create_executor(kind, mod, params=params).evaluate()(data)
    want = relay.evaluate(mod, {**params, "data": data}, "float64")
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)


def test_an_expression_has_its_value_at_once():
    x = relay.var("x", shape=(2,))
    executor = relay.create_executor("graph")
    given = executor.evaluate(x + 1.0, {x: np.float32([1, 2])})
    np.testing.assert_array_equal(given.numpy(), [2, 3])
    constant = executor.evaluate(relay.const(np.float32([4])) * 2.0)
    np.testing.assert_array_equal(constant.numpy(), [8])


def doubled(extent) -> relay.Function:
    x = relay.var("x", shape=(extent, 4))
    return relay.Function([x], relay.nn.relu(x) * 2.0)


@pytest.mark.parametrize("extent", [te.var("n"), relay.Any("n")])
@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_open_extents_are_those_of_the_call(kind, extent):
    run = relay.create_executor(kind, relay.IRModule.from_expr(doubled(extent))).evaluate()
    for n in (3, 5, 3):
        data = np.random.default_rng(n).standard_normal((n, 4)).astype("float32")
        np.testing.assert_array_equal(run(data).numpy(), np.maximum(data, 0) * 2)


def test_one_library_for_each_set_of_extents():
    exe = relay.vm.compile(doubled(relay.Any()), "llvm")
    assert exe.library_for([(3, 4)]) is exe.library_for([(3, 4)])
    assert exe.library_for([(5, 4)]) is not exe.library_for([(3, 4)])
    with pytest.raises(ModelError, match="its extents are open: batch.*sizes="):
        exe.export_library("net.so")


def test_a_virtual_machine_of_what_was_saved(tmp_path):
    exe, dev = relay.vm.compile(nested(), "llvm"), tilewright.cpu()
    x, y = np.ones((2, 3), "float32"), np.zeros(3, "float32")
    exe.export_library(tmp_path / "net.zip")
    loaded = tilewright.runtime.load_module(tmp_path / "net.zip")
    for made in (exe, loaded):
        machine = VirtualMachine(made, dev)
        machine.set_input("main", x, y=y)
        machine.invoke_stateful("main")
        outputs = [out.numpy() for out in machine.get_outputs()]
        assert [out.shape for out in outputs] == [(2, 3), (2, 1), (2, 1), (2, 1)]
        np.testing.assert_array_equal(machine.run()[0].numpy(), outputs[0])
        assert machine.benchmark(dev, x, y, number=1, repeat=1).mean > 0
        assert machine.get_input_index("y") == 1


def twice(run):
    """What was given to one call does not count for the next."""
    run(np.ones((2, 4), "float32"))
    run()


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: relay.create_executor("aot"), ("'aot'", "graph, vm, debug")),
        (lambda: relay.create_executor("vm").evaluate(), ("no module", "mod=")),
        (lambda: relay.create_executor().evaluate(relay.var("x", shape=(1,))), ("x has no value",)),
        (lambda: relay.create_executor("graph").evaluate(doubled(te.var("n"))), ("open: n",)),
        (lambda: relay.create_executor("vm").evaluate(nested())(1), ("y is missing", "x, y")),
        (lambda: twice(relay.create_executor("vm").evaluate(doubled(2))), ("x is missing",)),
        (lambda: relay.create_executor("vm").evaluate(nested())(1, 2, 3), ("3 inputs",)),
        (lambda: relay.create_executor("vm").evaluate(nested())(1, 2, z=3), ("z is no input",)),
        (
            lambda: VirtualMachine(relay.vm.compile(doubled(2), "llvm"), tilewright.cpu()).invoke(
                "other", 1
            ),
            ("'other'", '"main"'),
        ),
        (
            lambda: VirtualMachine(relay.vm.compile(doubled(2), "llvm"), tilewright.cpu()).run(),
            ("no input was set",),
        ),
        (lambda: VirtualMachine("net.so", tilewright.cpu()), ("no compiled network",)),
    ],
)
def test_refusals(call, parts):
    with pytest.raises((ModelError, DeviceError)) as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


PAIR = relay.TupleType([relay.TensorType((2, 3)), relay.TensorType((3,))])


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_may_be_a_tuple_of_tuples(kind):
    both = relay.var("both", type_annotation=relay.TupleType([PAIR, relay.TensorType((3,))]))
    both_0, x = relay.var("both_0_0", shape=(3,)), relay.var("x", shape=(3,))
    inner = relay.TupleGetItem(both, 0)
    first, second = relay.TupleGetItem(inner, 0), relay.TupleGetItem(inner, 1)
    body = first * second - relay.TupleGetItem(both, 1) + both_0 / x
    mod = relay.IRModule.from_expr(relay.Function([both_0, both, x], body))
    run = relay.create_executor(kind, mod=mod).evaluate()
    a, (b, c, d, e) = np.ones((2, 3), "float32"), np.arange(1, 13, dtype="float32").reshape(4, 3)
    for value in (((a, b), c), runtime.container.tuple_object([[a, b], c])):
        np.testing.assert_allclose(run(d, value, e).numpy(), a * b - c + d / e, rtol=1e-6)
        np.testing.assert_allclose(run(d, x=e, both=value).numpy(), a * b - c + d / e, rtol=1e-6)
    with pytest.raises(TilewrightError, match="it has 3"):
        run(d, (a, b), e)


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_tensors_of_a_tuple_may_have_open_extents(kind):
    pair = relay.TupleType([relay.TensorType((relay.Any(), 3))] * 2)
    x = relay.var("x", type_annotation=pair)
    f = relay.Function([x], relay.TupleGetItem(x, 0) + relay.TupleGetItem(x, 1))
    run = relay.create_executor(kind, mod=relay.IRModule.from_expr(f)).evaluate()
    for n in (2, 5):
        a = np.arange(n * 3, dtype="float32").reshape(n, 3)
        np.testing.assert_array_equal(run((a, a)).numpy(), a + a)


def test_the_least_and_the_greatest_bool():
    given = np.array([[True, False], [True, True]])
    x = relay.var("x", shape=(2, 2), dtype="bool")
    for function, reference in ((relay.min, np.min), (relay.max, np.max)):
        found = relay.evaluate(function(x, axis=1), {"x": given})
        np.testing.assert_array_equal(found, reference(given, 1))
        assert found.dtype == bool


def test_a_library_by_the_names_of_factory_modules():
    x = relay.var("x", shape=(3,))
    lib = relay.build(relay.IRModule.from_expr(relay.Function([x], x + 1.0)), "llvm")
    module = graph_executor.create(lib.graph_json, lib.lib, cpu())
    module.set_input(**lib.params)
    module.run(x=np.zeros(3, "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), 1)
    assert scope_builder.ScopeBuilder is relay.ScopeBuilder


def test_inputs_of_a_machine_are_set_one_by_one():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    exe = relay.vm.compile(relay.Function([x, y], x - y), "llvm")
    machine = VirtualMachine(exe, tilewright.cpu())
    a, b = np.float32([5, 7]), np.float32([1, 2])
    for one, other in (((1, b), (0, a)), (("x", a), ("y", b))):
        machine.set_one_input("main", *one)
        machine.set_one_input("main", *other)
        np.testing.assert_array_equal(machine.invoke("main").numpy(), a - b)
    machine.set_one_input("main", x=b)
    machine.set_one_input("main", y=a)
    np.testing.assert_array_equal(machine.invoke("main").numpy(), b - a)
    there = tilewright_tvm.nd.empty((2,), "float32")
    machine.invoke_with_outputs("main", input_args={"x": a, "y": a}, output_args=[there])
    np.testing.assert_array_equal(there.numpy(), [0, 0])
    with pytest.raises(DeviceError, match="z is no input.*x, y"):
        machine.set_one_input("main", "z", a)
    with pytest.raises(DeviceError, match="0 arrays for 1 results"):
        machine.invoke_with_outputs("main", input_args={"x": a, "y": a}, output_args=[])


def test_a_compiler_in_steps_is_compile():
    x, w = relay.var("x", shape=(2,)), relay.var("w", shape=(2,))
    mod = relay.IRModule.from_expr(relay.Function([x, w], x * w))
    compiler = relay.vm.VMCompiler()
    with pytest.raises(ModelError, match="nothing was lowered"):
        compiler.get_exec()
    compiler.set_params({"w": np.float32([2, 3])})
    optimized, left = compiler.optimize(mod, "llvm")
    assert [p.name_hint for p in optimized["main"].params] == ["x"] and left == {}
    compiler.lower(mod, "llvm")
    compiler.codegen()
    machine = VirtualMachine(compiler.get_exec(), tilewright.cpu())
    np.testing.assert_array_equal(machine.invoke("main", np.float32([1, 1])).numpy(), [2, 3])
    assert compiler.get_exec().mod is compiler.get_exec().library


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_variables_that_nothing_tells_a_type_have_those_of_each_call(kind):
    b, x = relay.var("b"), relay.var("x")
    run = relay.create_executor(kind).evaluate(relay.Function([b, x], relay.If(b, x + x, x)))
    for value in (np.float32([1, 2]), np.int32([[3]])):
        np.testing.assert_array_equal(run(True, value).numpy(), 2 * value)
        np.testing.assert_array_equal(run(False, value).numpy(), value)
    with pytest.raises(ModelError, match="%b"):
        relay.create_executor("graph").evaluate(relay.Function([b], relay.If(b, b, b)))


@pytest.mark.parametrize(
    ("name", "part"), [("save", "export_library"), ("bytecode", "report"), ("nothing", "no attr")]
)
def test_what_executables_of_tvm_have_besides_says_what_to_use(name, part):
    with pytest.raises(AttributeError, match=part):
        getattr(relay.vm.compile(doubled(2), "llvm"), name)
