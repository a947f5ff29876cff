"""Convolutions of data and kernels in blocks of TVM's compute what those without blocks do."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, Function, TensorType
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

rng = np.random.default_rng(0)

# convolution, data, kernel, layouts (data, kernel, out), the result's shape, options
CASES = [
    (nn.conv2d, (1, 2, 5, 5, 2), (3, 4, 3, 3), ("NCHW2c", "OIHW", "NCHW"), (1, 3, 3, 3), {}),
    (nn.conv2d, (1, 2, 5, 5, 2), (6, 4, 3, 3), ("NCHW2c", "OIHW", ""), (1, 3, 3, 3, 2), {}),
    (nn.conv2d, (1, 2, 5, 5, 2, 2), (2, 2, 3, 3, 2, 2), ("NCHW2n2c", "OIHW2o2i", ""),
     (1, 2, 3, 3, 2, 2), {}),
    (nn.conv2d, (2, 4, 5, 5), (2, 2, 3, 3, 2, 2), ("NCHW", "OIHW2i2o", ""), (2, 4, 3, 3), {}),
    (nn.conv3d, (1, 2, 4, 5, 5, 2), (2, 4, 3, 3, 3), ("NCDHW2c", "OIDHW", ""),
     (1, 1, 2, 3, 3, 2), {}),
    (nn.conv3d, (1, 2, 4, 5, 5, 2), (2, 2, 3, 3, 3, 2, 2), ("NCDHW2c", "OIDHW2i2o", "NCDHW"),
     (1, 4, 2, 3, 3), {}),
    (nn.conv2d_transpose, (1, 2, 5, 5, 2), (4, 6, 3, 3), ("NCHW2c", "IOHW", ""),
     (1, 3, 11, 11, 2), {"strides": (2, 2)}),
    (nn.conv1d, (1, 2, 5, 2), (3, 4, 3), ("NCW2c", "OIW", "NCW"), (1, 3, 3), {}),
]  # fmt: skip


def _whole(array: np.ndarray, layout: str) -> np.ndarray:
    """`array` without its blocks."""
    value = relay.var("x", shape=array.shape)
    plain = "".join(filter(str.isupper, layout))
    return _value(relay.layout_transform(value, layout, plain), {"x": array})


def _value(expr: Expr, given: dict[str, np.ndarray]) -> np.ndarray:
    function = Function(relay.free_vars(expr), expr)
    return evaluate(function, given)


@pytest.mark.parametrize("case", CASES, ids=lambda c: " ".join([c[0].__name__, *c[3]]))
def test_blocks_change_no_value(case):
    convolution, shape, kernel, (held, weights, out), result, options = case
    x, w = (rng.standard_normal(s).astype("float32") for s in (shape, kernel))
    layouts = {"data_layout": held, "kernel_layout": weights, "out_layout": out}
    made = convolution(
        relay.var("x", shape=shape), relay.var("w", shape=kernel), **layouts, **options
    )
    assert made.checked_type == TensorType(result, "float32")
    plain = {k: "".join(filter(str.isupper, v)) for k, v in layouts.items() if k != "out_layout"}
    arrays = {"x": _whole(x, held), "w": _whole(w, weights)}
    values = [relay.var(n, shape=a.shape) for n, a in arrays.items()]
    expected = _value(convolution(*values, **plain, **options), arrays)
    found = _value(made, {"x": x, "w": w})
    assert np.allclose(_whole(found, out or held), expected, atol=1e-5)


def test_a_kernel_without_a_type_takes_its_blocks():
    x = relay.var("x", shape=(1, 8, 6, 6, 4, 4), dtype="int8")
    w = relay.var("w")
    made = nn.conv2d(
        x, w, kernel_size=(3, 3), padding=(1, 1), channels=64, data_layout="NCHW4n4c",
        kernel_layout="OIHW4o4i", out_dtype="int32",
    )  # fmt: skip
    assert made.checked_type == TensorType((1, 16, 6, 6, 4, 4), "int32")
    assert w.checked_type == TensorType((16, 8, 3, 3, 4, 4), "int8")
    with pytest.raises(ModelError, match="Give channels= and kernel_size="):
        nn.conv2d(x, relay.var("w"), data_layout="NCHW4n4c", kernel_layout="OIHW4o4i")


def test_blocks_that_a_kernel_is_for_stay_its_own():
    x, w = relay.var("x", shape=(1, 2, 5, 5, 8)), relay.var("w", shape=(2, 2, 3, 3, 8, 16))
    made = nn.conv2d(x, w, data_layout="NCHW8c", kernel_layout="OIHW8i16o")
    assert made.op.name == "nn.conv2d" and made.attrs.data_layout == "NCHW8c"
