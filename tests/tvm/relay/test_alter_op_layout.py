"""Functions that call an operator in other layouts, registered for AlterOpLayout."""

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from tilewright_tvm.relay.testing.temp_op_attr import TempOpAttr


def altered(new, body, **shapes):
    """The network before and after, and the values that both compute."""
    params = [relay.var(name, shape=shape) for name, shape in shapes.items()]
    mod = relay.IRModule({"main": relay.Function(params, body(*params))})

    def change(attrs, inputs, types, result):
        return nn.conv2d(*inputs, **{**attrs, **new})

    with TempOpAttr("nn.conv2d", "FTVMAlterOpLayout", change):
        made = relay.transform.AlterOpLayout()(mod)
    rng = np.random.default_rng(0)
    values = {n: rng.integers(-4, 5, s).astype("float32") for n, s in shapes.items()}
    return made, relay.evaluate(mod, values), relay.evaluate(made, values)


@pytest.mark.parametrize(
    "new",
    [
        {"data_layout": "NHWC"},
        {"data_layout": "NHWC", "kernel_layout": "HWIO"},
        {"data_layout": "NCHW8c", "kernel_layout": "OIHW8i8o"},
        {"kernel_layout": "HWIO"},
    ],
)
@pytest.mark.parametrize("size", [6, 8])  # of 8, other layouts fit the inputs as they are
def test_inputs_are_brought_into_the_layouts_and_the_result_back(new, size):
    def body(x, w):
        return nn.relu(nn.conv2d(nn.conv2d(x, w, padding=1), w, padding=1))

    made, want, found = altered(new, body, x=(8, 8, size, size), w=(8, 8, 3, 3))
    assert np.array_equal(found, want)
    convs = [n for n in relay.analysis.post_order(made["main"].body) if "nn.conv2d(" in str(n)]
    assert all(f'{key}="{layout}"' in made.astext() for key, layout in new.items()) and convs


def test_a_layout_that_does_not_fit_is_refused_with_its_reason():
    with pytest.raises(ModelError, match="NCHW16c"):
        altered(
            {"data_layout": "NCHW16c", "kernel_layout": "OIHW16i16o"}, nn.conv2d,
            x=(1, 6, 5, 5), w=(4, 6, 3, 3),
        )  # fmt: skip
