"""Windows of every rank and resizing: properties, refusals, kernels on devices."""

import numpy as np
import pytest

import tilewright
from graph.cases_window import IMAGE
from models.test_onnx import check, model, node, refused
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import image, nn
from tilewright_tvm.relay.frontend import from_onnx

RNG = np.random.default_rng(0)


def evaluated(body: relay.Expr, **values: np.ndarray) -> np.ndarray:
    return relay.evaluate(relay.Function(relay.free_vars(body), body), values)


@pytest.mark.parametrize("rank", IMAGE)
def test_indices_of_a_maximum_point_at_it(rank):
    x = RNG.standard_normal((2, 3, *IMAGE[rank])).astype("float32")
    data = relay.var("x", shape=x.shape)
    pool = getattr(nn, f"max_pool{rank}d")
    best = evaluated(pool(data, 3, 2, 1, 1), x=x)
    where = evaluated(nn.max_pool_indices(data, 3, 2, 1, 1), x=x)
    np.testing.assert_array_equal(x.reshape(-1)[where], best)


@pytest.mark.parametrize("rank", IMAGE)
def test_a_transposed_convolution_is_the_gradient_of_a_convolution(rank):
    """<conv(x), y> = <x, conv_transpose(y)> for every x and y."""
    x = RNG.standard_normal((1, 4, *IMAGE[rank]))
    w = RNG.standard_normal((6, 2, *(3,) * rank))
    options = {"strides": 2, "padding": 1, "dilation": 1, "groups": 2}
    data, weight = (relay.var(n, shape=v.shape, dtype="float64") for n, v in (("x", x), ("w", w)))
    made = getattr(nn, f"conv{rank}d")(data, weight, **options)
    y = RNG.standard_normal(made.shape)
    extra = tuple((n - 1) % 2 for n in IMAGE[rank])
    back = getattr(nn, f"conv{rank}d_transpose")(
        relay.var("y", shape=y.shape, dtype="float64"), weight, output_padding=extra, **options
    )
    forth = np.vdot(evaluated(made, x=x, w=w), y)
    np.testing.assert_allclose(forth, np.vdot(x, evaluated(back, y=y, w=w)), rtol=1e-9)


def test_local_response_normalisation_is_its_definition():
    x = RNG.standard_normal((2, 6, 3, 2)).astype("float32")
    found = evaluated(nn.lrn(relay.var("x", shape=x.shape), 4, 1, 1.5, 0.3, 0.6), x=x)
    sums = [np.square(x[:, max(c - 1, 0) : c + 3]).sum(1) for c in range(6)]
    wanted = x / (1.5 + 0.3 / 4 * np.stack(sums, 1)) ** 0.6
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_the_identity_moves_no_corner():
    theta = np.broadcast_to(np.eye(2, 3, dtype="float32"), (3, 2, 3))
    grid = evaluated(image.affine_grid(relay.var("t", shape=theta.shape), (4, 5)), t=theta)
    assert grid.shape == (3, 2, 4, 5)
    np.testing.assert_allclose(grid[1, 0, 2], np.linspace(-1, 1, 5), atol=1e-6)
    np.testing.assert_allclose(grid[1, 1, :, 0], np.linspace(-1, 1, 4), atol=1e-6)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiased_shrinking_keeps_a_constant_and_the_mean(mode):
    x = RNG.standard_normal((1, 2, 32)).astype("float32")
    small = image.resize(relay.var("x", shape=x.shape), (2,), (8,), mode=mode, antialias=True)
    np.testing.assert_allclose(evaluated(small, x=np.ones_like(x)), 1, rtol=1e-5)
    inner = evaluated(small, x=x)
    assert np.abs(inner).max() < np.abs(x).max()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_kernels_are_verified(target):
    x = relay.var("x", shape=(1, 4, 5, 6))
    up = nn.conv2d_transpose(x, relay.var("w", shape=(4, 6, 3, 3)), 2, 1, output_padding=1)
    large = image.resize(nn.relu(up), (2, 3), (13, 7), mode="cubic", coordinates="align_corners")
    small = image.resize(large, (2,), (5,), antialias=True)
    body = relay.Tuple([small, nn.max_pool_indices(large, 3, 2, 1, 1)])
    function = relay.Function(relay.free_vars(body), body)
    values = {p.name_hint: RNG.standard_normal(p.shape).astype("float32") for p in function.params}
    wanted = relay.evaluate(function, values)
    library = relay.build(relay.IRModule.from_expr(function), target, verify=True)
    module = graph_executor.GraphModule(library["default"](tilewright.device(target)))
    module.set_input(**values)
    module.run()
    for k, value in enumerate(wanted):
        np.testing.assert_allclose(module.get_output(k).numpy(), value, rtol=1e-4, atol=1e-4)


SQUARE = {"x": [1, 4, 6, 6]}
REFUSALS = {
    "col2im": (
        model([node("Col2Im", ["x", "s", "b"])], {"x": [1, 5, 4]},
              {"s": np.array([3, 3]), "b": np.array([2, 2])}, 18), "not whole blocks",
    ),
    "unpool": (
        model([node("MaxUnpool", ["x", "i"], kernel_shape=[2, 2])], SQUARE,
              {"i": np.zeros((1, 4, 6, 5), "int64")}), "an index for each element",
    ),
    "resize": (
        model([node("Resize", ["x", "", "s"])], SQUARE, {"s": np.ones(3, "float32")}),
        "a number per axis",
    ),
    "output-shape": (
        model([node("ConvTranspose", ["x", "w"], output_shape=[3])], SQUARE,
              {"w": np.ones((4, 2, 3, 3), "float32")}), "not those of 2 axes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSALS)
def test_models_that_do_not_hold_are_refused(kind):
    proto, words = REFUSALS[kind]
    refused(lambda: from_onnx(proto), words)


@pytest.mark.parametrize(("make", "words"), [
    (lambda x: image.resize(x, (2, 2), (3, 3)), "name one twice"),
    (lambda x: image.resize(x, (2,), (3,), mode="area"), "mode 'area' is not known"),
    (lambda x: image.resize(x, (2,), (0,)), "are not extents"),
    (lambda x: image.resize(x, (2,), (3,), (-1.0,)), "out of range"),
    (lambda x: image.resize2d(x, 3, layout="NCW"), "Use NCHW or NHWC"),
    (lambda x: image.affine_grid(x, (3, 3)), "two rows and three columns"),
    (lambda x: nn.upsampling(x, 2, 2, method="area"), "method 'area' is not known"),
    (lambda x: nn.lrn(x, axis=7), "no such axis"),
])  # fmt: skip
def test_mistakes_are_refused(make, words):
    refused(lambda: make(relay.var("x", shape=(1, 4, 6, 6))), words)


@pytest.mark.slow
@pytest.mark.parametrize("image", [5, 6, 7])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 2]], ids=str)
def test_columns_that_do_not_reach_the_padded_end_are_laid_at_their_places(image, pads):
    counts = [(image + pads[k] + pads[k + 2] - 3) // 2 + 1 for k in (0, 1)]
    columns = np.random.default_rng(0).standard_normal((1, 2 * 9, counts[0] * counts[1]))
    nodes = [node("Col2Im", ["x", "s", "b"], "y", strides=[2, 2], pads=pads)]
    constants = {"s": np.array([image, image]), "b": np.array([3, 3])}
    check(model(nodes, {"x": list(columns.shape)}, constants, 18),
          {"x": columns.astype("float32")})  # fmt: skip
