"""Nodes of networks by themselves: what they say where no language over them is registered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.graph.answers import Networks
from tilewright.graph.deferred import NotYet, branch, computed
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Call, Expr, Function, IRModule, Var
from tilewright.graph.extension import extend, extension
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const, var
from tilewright.graph.passes import optimize
from tilewright.graph.traversal import substitute
from tilewright_tvm.relay.equality import first_difference
from tilewright_tvm.relay.stages import Stages


@pytest.fixture(params=["alone", "with relay"])
def language(request) -> Iterator[str]:
    before = extension()
    if request.param == "alone":
        extend(Networks())
    yield request.param
    extend(before)


def chosen() -> Function:
    """The places of what is positive in a sum, or in a difference."""
    x, flag = var("x", shape=(4,)), var("flag", shape=(), dtype="bool")
    value = branch(flag, x + 1.0, x - 1.0)
    places = computed("places", lambda a: np.argwhere(a > 0).astype("int32"), value)
    return Function([x, flag], places)


def test_a_network_with_a_branch_runs_in_stages_and_by_the_evaluator(language):
    main = chosen()
    given = {"x": np.array([-2, 0.5, -0.5, 3], "float32"), "flag": np.array(True)}
    wanted = [[1], [2], [3]]
    assert evaluate(main, given).tolist() == wanted

    def compute(part, values):
        return evaluate(part, dict(zip([p.name_hint for p in part.params], values, strict=True)))

    bound = {p: given[p.name_hint] for p in main.params}
    (found,), body = Stages(main).run(bound, compute)
    assert found.tolist() == wanted and body.checked_type.shape == (3, 1)


def test_it_prints_and_compares(language):
    text = str(IRModule({"main": chosen()}))
    assert "if (%flag) {" in text and "places(" in text
    assert first_difference(chosen(), chosen()) == ""
    assert "def @main(%x: Tensor[(4), float32], %flag: bool) {" in text


def test_functions_are_called_and_inlined(language):
    x, y = var("x", shape=(2,)), var("y", shape=(2,))
    double = Function([x], x + x)
    main = Function([y], double(y) * 2.0)
    assert isinstance(double(y), Call)
    (out,) = (n for n in [optimize(main)["main"]])
    np.testing.assert_array_equal(evaluate(out, {"y": np.ones(2, "float32")}), [4, 4])


def test_values_in_the_place_of_variables(language):
    x, y = var("x", shape=(2,)), var("y", shape=(2,))
    made = substitute(tensor.exp(x) + x, {x: y})
    assert str(made) == str(tensor.exp(y) + y)


def test_alone_a_value_is_no_function_and_a_type_that_values_decide_is_not_told():
    before = extension()
    extend(Networks())
    try:
        x: Expr = Var("x", const(1.0).checked_type)
        with pytest.raises(ModelError, match="it is no operator"):
            x(x)
        with pytest.raises(NotYet, match="how many results there are depends on the data"):
            _ = chosen().body.checked_type
        with pytest.raises(ModelError, match="%w: its shape is not known"):
            _ = Var("w").shape
    finally:
        extend(before)
