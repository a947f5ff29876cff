"""The sign of a zero: the same on every device, in the interpreter, and where constants fold."""

import numpy as np
import pytest

from graph.cases import function, tensor
from tests.interpreter import run as interpret
from tilewright import cpu, te, topi
from tilewright.driver.build import lower
from tilewright.runtime import cuda, opencl
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

DEVICES = {"llvm": cpu(), "opencl": opencl(), "cuda": cuda()}
X = np.array([1.0, -1.0, 0.0, -0.0, np.inf, -np.inf], "float32")


def zeros(sign: float) -> relay.Constant:
    return relay.const(np.full(6, sign * 0.0, "float32"))


# name -> an expression of x and of a zero of either sign
EXPRESSIONS = {
    "x / c": lambda x, c: x / c,
    "x / number": lambda x, c: x / relay.const(c.data[0]),
    "x / copy(c)": lambda x, c: x / relay.copy(c),
    "x / -c": lambda x, c: x / relay.negative(c),
    "1 / -x": lambda x, c: 1.0 / relay.negative(x),
    "x * c": lambda x, c: x * c,
    "1 / (x * c)": lambda x, c: 1.0 / (x * c),
    "abs": lambda x, c: 1.0 / relay.abs(x * c),
    "select": lambda x, c: 1.0 / relay.where(relay.less(x, c), x * c, c),
    "leaky": lambda x, c: 1.0 / nn.leaky_relu(x, 0.5),
}


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(found, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


@pytest.mark.slow
@pytest.mark.parametrize("target", [name for name, dev in DEVICES.items() if dev.exist])
@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_zeros_keep_their_sign(kind, target):
    """Both signs in one process: what remembers numbers must tell them apart."""
    for sign in (1, -1, 1):
        f = function(EXPRESSIONS[kind](tensor("x", 6), zeros(sign)))
        with np.errstate(all="ignore"):
            wanted = relay.evaluate(f, {"x": X})
        module = GraphModule(relay.build(f, target)["default"](DEVICES[target]))
        module.run(x=X)
        same(module.get_output(0).numpy(), wanted)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_interpreter_and_constants_in_expressions(sign):
    a = te.placeholder((6,), name="a")
    b = te.compute((6,), lambda i: (a[i] / (sign * 0.0)) + -a[i] * 0.0, name="b")
    c = topi.negative(a)
    target = Target("llvm")
    program = lower(default_schedule(te.ComputeDAG([a, b, c]), target), target=target)
    quotient, negated = np.zeros_like(X), np.zeros_like(X)
    interpret(program, [X.copy(), quotient, negated])
    with np.errstate(all="ignore"):
        same(quotient, X / np.float32(sign * 0.0) + -X * np.float32(0))
    same(negated, -X)


def test_constants_fold_with_their_sign():
    f = function(tensor("x", 6) / relay.negative(relay.sqrt(zeros(1))))
    with np.errstate(all="ignore"):
        wanted = X / np.float32(-0.0)
        same(relay.evaluate(relay.optimize(f), {"x": X}), wanted)


@pytest.mark.parametrize("divisor", [1e-39, 3e38, -2.0, np.inf])
def test_a_division_becomes_a_product_only_where_that_is_the_same(divisor):
    """1 / 1e-39 overflows, 1 / 3e38 has fewer digits."""
    f = function(tensor("x", 6) / relay.const(np.float32(divisor)))
    data = np.array([1.0, -1.0, 0.0, 1e-38, 3e38, -0.0], "float32")
    same(relay.evaluate(relay.optimize(f), {"x": data}), relay.evaluate(f, {"x": data}))


def test_scales_join_only_where_their_product_is_a_number():
    x, tiny = tensor("x", 2), relay.const(np.full(2, 1e-30, "float32"))
    f = function((x * tiny) * tiny)
    data = np.array([1e30, 3.4e38], "float32")
    np.testing.assert_allclose(
        relay.evaluate(relay.optimize(f), {"x": data}), relay.evaluate(f, {"x": data}), rtol=1e-5
    )
