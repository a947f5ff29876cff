"""Types of values that wait: what is told of them, and that it is no more than is known."""

import numpy as np
import pytest

from tilewright import IRModule, te
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay.testing import run_infer_type

ANY = relay.Any()


def type_of(value):
    return run_infer_type(value).checked_type


def shape_var(rank: int, name: str = "shape", dtype: str = "int64"):
    return relay.var(name, shape=(rank,), dtype=dtype)


def image(*shape, dtype: str = "float32"):
    return relay.var("x", shape=shape, dtype=dtype)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (lambda: relay.zeros(shape_var(3), "int32"), ((ANY, ANY, ANY), "int32")),
        (lambda: relay.broadcast_to(image(4, 1), shape_var(3)), ((ANY, ANY, ANY), "float32")),
        (lambda: relay.reshape(image(2, 3, 4), shape_var(2)), ((ANY, ANY), "float32")),
        (lambda: relay.nn.pad(image(2, 7), relay.var("w", shape=(2, 2), dtype="int64")),
         ((ANY, ANY), "float32")),
        (lambda: relay.nn.pad(image(2, 7), relay.var("w", shape=(2, 2), dtype="int64"),
                              relay.var("v", "float32")), ((ANY, ANY), "float32")),
        (lambda: relay.nn.upsampling(image(2, 3, 4, 5), 2.0, relay.var("s", "float32")),
         ((2, 3, 8, ANY), "float32")),
        (lambda: relay.image.resize2d(image(2, 3, 4, 5), shape_var(2)),
         ((2, 3, ANY, ANY), "float32")),
        (lambda: relay.strided_slice(image(3, 4, 5), shape_var(2, "b"), shape_var(2, "e")),
         ((ANY, ANY, 5), "float32")),
        (lambda: relay.argwhere(image(3, 4, dtype="bool")), ((ANY, 2), "int32")),
        (lambda: relay.exp(relay.zeros(shape_var(2), "float32")), ((ANY, ANY), "float32")),
    ],
)  # fmt: skip
def test_extents_that_values_decide_are_any_and_all_others_are_told(value, wanted):
    assert type_of(value()) == relay.TensorType(*wanted)


def test_names_of_open_extents_stay_and_arithmetic_of_them_is_any():
    n, c, h, w = (te.size_var(name) for name in "nchw")
    x = relay.var("x", relay.TensorType((n, c, h, w)))
    made = relay.nn.upsampling(x, 2.0, relay.var("s", "float32"))
    assert type_of(made) == relay.TensorType((n, c, ANY, ANY))


def test_open_extents_that_have_to_be_equal_are_taken_for_equal():
    n, depth, units = te.size_var("n"), te.size_var("depth"), te.size_var("units")
    x = relay.var("x", relay.TensorType((n, 2)))
    w = relay.var("w", relay.TensorType((units, depth)))
    assert type_of(relay.nn.dense(x, w)) == relay.TensorType((n, units))


def test_values_of_a_tuple_that_waits_have_types():
    x = relay.var("x", shape=(5,), dtype="int32")
    several = run_infer_type(relay.unique(x).astuple())
    kinds = several.checked_type.fields
    assert [k.dtype for k in kinds] == ["int32"] * len(kinds)
    assert len(several) == len(kinds)
    assert [v.checked_type for v in several] == list(kinds)


def test_what_is_told_fits_every_result():
    """Extents that are numbers in the type are those of all results."""
    x, begin, end = image(6, 5), shape_var(1, "b"), shape_var(1, "e")
    value = relay.strided_slice(x, begin, end)
    told = type_of(value)
    run = relay.create_executor("vm", IRModule.from_expr(relay.Function([x, begin, end], value)))
    for first, last in ((0, 6), (2, 5), (3, 4)):
        found = run.evaluate()(
            np.zeros((6, 5), "float32"), np.array([first]), np.array([last])
        ).numpy()
        assert found.shape[1] == told.shape[1] == 5
        assert found.shape[0] == last - first


def test_a_value_that_waits_is_still_built_for_what_it_is_called_with():
    x, shape = image(4, 1), shape_var(3)
    value = relay.broadcast_to(x, shape)
    assert value.checked_type == value.checked_type
    with pytest.raises(ModelError, match="values decide a shape"):
        value.shape  # noqa: B018
    run = relay.create_executor("vm", IRModule.from_expr(relay.Function([x, shape], value)))
    assert run.evaluate()(np.ones((4, 1), "float32"), np.array([2, 4, 3])).numpy().shape == (
        2,
        4,
        3,
    )


def test_where_not_even_the_rank_is_known_it_says_so():
    with pytest.raises(ModelError, match="values decide a shape"):
        type_of(relay.squeeze(image(1, 1, 3), shape_var(1, "axis")) + relay.zeros(
            relay.var("r", relay.TensorType((ANY,), "int64")), "float32"))  # fmt: skip
