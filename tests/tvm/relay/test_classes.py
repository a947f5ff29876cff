"""Classes of TVM that scripts make themselves: of results, shapes, places in texts, variables."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import DeviceError, ModelError
from tilewright_tvm import relay, te
from tilewright_tvm.runtime import ShapeTuple
from tilewright_tvm.runtime.container import ADT, tuple_object


def test_results_and_shapes_have_classes():
    made = ADT(2, [4, 5])
    assert (made, made.tag, made[1:]) == ([4, 5], 2, [5])
    assert isinstance(made, ADT) and isinstance([1], ADT) and not isinstance((1,), ADT)
    assert isinstance(tuple_object([1]), list) and tuple_object([1]).tag == 0
    assert ShapeTuple([3, np.int64(4), -1]) == (3, 4, -1) and ShapeTuple([3, 4]).ndim == 2
    assert isinstance((3, 4), ShapeTuple) and not isinstance((3, 0.5), ShapeTuple)
    with pytest.raises(DeviceError, match="0.5 is no whole number"):
        ShapeTuple([3, 0.5])


def test_calls_may_say_where_they_were_written():
    x = relay.var("x", shape=(2, 3))
    made = relay.exp(x)
    place = relay.Span(relay.SourceName("Add0"), 1, 1, 0, 9)
    again = relay.Call(made.op, made.args, made.attrs, made.type_args, place)
    assert relay.analysis.structural_equal(relay.Function([x], again), relay.Function([x], made))
    with pytest.raises(ModelError, match="not a SourceName"):
        relay.Span("Add0", 1, 1, 0, 9)


def test_tests_of_passes_may_have_the_prelude():
    seen = []

    def change(mod):
        seen.append({"map", "foldl"} <= {v.name_hint for v in mod.get_global_vars()})
        return mod

    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.exp(x))
    assert relay.testing.run_opt_pass(function, change, import_prelude=True) is function
    assert relay.testing.run_opt_pass(function, change) is function and seen == [True, False]


def test_variables_have_the_names_of_tvm():
    names = [te.var(), te.size_var(), te.var("k")]
    assert [v.name for v in names] == ["tindex", "size", "k"]
