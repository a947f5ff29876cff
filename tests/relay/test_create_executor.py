"""`relay.create_executor` and `relay.vm`: functions of a network as functions of Python."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import relay, te
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime.vm import VirtualMachine

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


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: relay.create_executor("aot"), ("'aot'", "graph, vm, debug")),
        (lambda: relay.create_executor("vm").evaluate(), ("no module", "mod=")),
        (lambda: relay.create_executor().evaluate(relay.var("x", shape=(1,))), ("x has no value",)),
        (lambda: relay.create_executor("graph").evaluate(doubled(te.var("n"))), ("open: n",)),
        (lambda: relay.create_executor("vm").evaluate(nested())(1), ("y is missing", "x, y")),
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
