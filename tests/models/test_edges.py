"""Extents of nothing, places far outside, infinities beside zeros: what standards say of them."""

import numpy as np
import pytest
from onnx import helper

from models.test_onnx import INT64, check, model, node
from tilewright import cpu, te, topi
from tilewright.base.errors import ModelError
from tilewright.graph.functions import tensor
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

X = np.arange(3, dtype="float32")


def values(made, *arrays):
    """Evaluated and compiled, which agree: of one result."""
    params = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    f = relay.Function(params, made(*params))
    with np.errstate(all="ignore"):
        wanted = relay.evaluate(f, {f"x{k}": a for k, a in enumerate(arrays)})
    module = GraphModule(relay.build(relay.IRModule.from_expr(f), "llvm")["default"](cpu()))
    module.run(**{f"x{k}": a for k, a in enumerate(arrays)})
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-6)
    return wanted


def onnx_value(nodes, x, constants):
    mod, _ = relay.frontend.from_onnx(model(nodes, {"x": list(x.shape)}, constants, opset=18))
    with np.errstate(all="ignore"):
        return relay.evaluate(mod, {"x": x})


def clamped(extent, start, end, step):
    """Places of a slice by the text of ONNX's standard."""
    start, end = (v + extent if v < 0 else v for v in (start, end))
    start = min(max(start, 0), extent if step > 0 else extent - 1)
    end = min(max(end, 0 if step > 0 else -1), extent if step > 0 else extent - 1)
    return list(range(start, end, step))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_slices_of_onnx_are_clamped(step):
    for start in range(-8, 9):
        for end in (-(2**63) + 1, *range(-8, 9), 2**63 - 1):
            at = {"s": [start], "e": [end], "a": [0], "t": [step]}
            found = onnx_value(
                [node("Slice", ["x", *at])], X, {k: np.array(v) for k, v in at.items()}
            )
            assert found.tolist() == X[clamped(3, start, end, step)].tolist(), (start, end)


@pytest.mark.parametrize("step", [1, -1, -2])
def test_slices_of_relay_are_those_of_python(step):
    for begin in range(-5, 6):
        for end in range(-5, 6):
            found = relay.evaluate(
                relay.Function([v := relay.var("x", shape=(3,))],
                               relay.strided_slice(v, [begin], [end], [step])), {"x": X},
            )  # fmt: skip
            assert found.tolist() == X[begin:end:step].tolist(), (begin, end)


def test_no_axes_are_none():
    one = np.ones((1, 3, 1), "float32")
    assert values(lambda v: relay.squeeze(v, []), one).shape == (1, 3, 1)
    assert values(lambda v: relay.squeeze(v), one).shape == (3,)
    assert topi.squeeze(te.placeholder((1, 3, 1)), axis=[]).shape == (1, 3, 1)
    empty = {"a": np.zeros(0, "int64")}
    assert onnx_value([node("Squeeze", ["x", "a"])], one, empty).shape == (1, 3, 1)


@pytest.mark.slow
def test_signs():
    edges = np.array([np.nan, -0.0, 0.0, -2.0, np.inf, -np.inf], "float32")
    found = values(relay.sign, edges)
    np.testing.assert_array_equal(found, [np.nan, 0, 0, -1, 1, -1])
    assert not np.signbit(found[1])
    check(model([node("Sign", ["x"])], {"x": [6]}, {}), {"x": edges})


@pytest.mark.slow
def test_the_sign_of_pytorch():
    """It counts comparisons: NaN has none."""
    torch = pytest.importorskip("torch")

    class Sign(torch.nn.Module):
        def forward(self, x):
            return torch.sign(x)

    x = torch.tensor([float("nan"), -0.0, -3.0, 2.0])
    mod, _ = relay.frontend.from_exported_program(torch.export.export(Sign(), (x,)))
    found = relay.evaluate(mod, {mod["main"].params[0].name_hint: x.numpy()})
    np.testing.assert_array_equal(found, torch.sign(x).numpy())
    assert not np.signbit(found[:2]).any()


@pytest.mark.parametrize("extent", [0, 3])
def test_the_first_none_of_many(extent):
    nodes = [helper.make_node("TopK", ["x", "k"], ["v", "i"])]
    made = model(nodes, {"x": [2, extent]}, {"k": np.array([0])}, outputs=["v", "i"])
    made.graph.output[1].type.tensor_type.elem_type = INT64
    found = relay.evaluate(
        relay.frontend.from_onnx(made)[0], {"x": np.ones((2, extent), "float32")}
    )
    assert [v.shape for v in found] == [(2, 0), (2, 0)]
    assert [str(v.dtype) for v in found] == ["float32", "int64"]


@pytest.mark.slow
def test_what_nothing_makes():
    none = np.zeros((0, 3), "float32")
    assert [p.shape for p in relay.split(relay.var("x", shape=(0, 3)), 2, 0).fields] == [(0, 3)] * 2
    assert np.isnan(values(lambda v: relay.variance(v, 0), none)).all()
    assert np.isnan(values(lambda v: relay.std(v, 0), none)).all()
    assert np.isnan(values(lambda v: relay.variance(v, unbiased=True), np.ones(1, "float32")))
    for soft in (nn.softmax, nn.log_softmax):
        assert values(lambda v, soft=soft: soft(v, 0), none).shape == (0, 3)
    grid = values(lambda a, b: relay.meshgrid([a, b])[1], X, none[:, 0])
    assert grid.shape == (3, 0)
    groups = values(
        lambda v, w: nn.conv2d(v, w, groups=2), np.zeros((0, 2, 3, 3), "float32"),
        np.ones((2, 1, 2, 2), "float32"),
    )  # fmt: skip
    assert groups.shape == (0, 2, 2, 2)


def test_a_computed_shape_may_have_an_extent_of_nothing():
    """Of a user 0 keeps an extent; what converters compute is meant as it stands."""
    at = lambda *shape: relay.var("x", shape=shape)  # noqa: E731
    assert relay.reshape(at(2, 0), (0, 0)).shape == (2, 0)
    assert tensor.as_shape(at(2, 0), (0, 0)).shape == (0, 0)
    assert tensor.as_shape(at(2, 6), (3, -1)).shape == (3, 4)
    with pytest.raises(ModelError, match="no input extent to keep"):
        relay.reshape(at(3), (1, 0))
    image = np.zeros((2, 9, 5, 0), "float32")
    assert relay.nn.depth_to_space(at(*image.shape), 3).shape == (2, 1, 15, 0)


def test_celu_of_a_negative_alpha():
    x = np.array([-3.0, -0.5, 0.0, 0.5, 3.0], "float32")
    wanted = np.maximum(x, 0) + np.minimum(0, -0.9 * (np.exp(x / -0.9) - 1))
    np.testing.assert_allclose(values(lambda v: nn.celu(v, -0.9), x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_nothing_is_multiplied_by_a_zero_that_was_made_up(bad):
    """Columns back in an image, an image at its own places: one element in, one place out."""
    columns = np.ones((1, 4, 4), "float32")
    columns[0, 1, 2] = bad
    found = onnx_value(
        [node("Col2Im", ["x", "i", "b"])], columns, {"i": np.array([3, 3]), "b": np.array([2, 2])}
    )
    assert (~np.isfinite(found)).sum() == 1
    image = np.ones((1, 1, 4), "float32")
    image[0, 0, 2] = bad
    for size in (4, 7):  # both with all places of the image among their own
        resized = values(
            lambda v, size=size: relay.image.resize1d(v, size, layout="NCW", method="linear",
                coordinate_transformation_mode="align_corners"), image,
        )  # fmt: skip
        assert (~np.isfinite(resized)).sum() == (1 if size == 4 else 3)
