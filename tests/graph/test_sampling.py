"""Images read where data says: properties, refusals, kernels on devices, any data at all."""

import numpy as np
import onnxruntime
import pytest

import tilewright
from models.test_onnx import model, node
from tilewright import te, topi
from tilewright.base.errors import ExpressionError, ModelError
from tilewright.topi.sampling import METHODS, PADDINGS
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import image, nn, vision
from tilewright_tvm.topi import testing

RNG = np.random.default_rng(0)


def var(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape=shape)


def evaluated(body: relay.Expr, **values: np.ndarray) -> np.ndarray:
    return relay.evaluate(relay.Function(relay.free_vars(body), body), values)


def run(body: relay.Expr, target: str, verify: bool = True, **values: np.ndarray) -> np.ndarray:
    function = relay.Function(relay.free_vars(body), body)
    library = relay.build(relay.IRModule.from_expr(function), target, verify=verify)
    module = graph_executor.GraphModule(library["default"](tilewright.device(target)))
    module.set_input(**values)
    module.run()
    return module.get_output(0).numpy()


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("method", METHODS)
def test_the_identity_grid_gives_the_image_back(method):
    x = random(2, 3, 4, 5)
    theta = relay.const(np.eye(2, 3, dtype="float32")[None].repeat(2, 0))
    for corners in (False, True):
        grid = image.affine_grid(theta, (4, 5), corners)
        made = image.grid_sample(var("x", *x.shape), grid, method, align_corners=corners)
        np.testing.assert_allclose(evaluated(made, x=x), x, atol=1e-5)


@pytest.mark.parametrize("padding", PADDINGS)
def test_values_are_the_reference(padding):
    x, g = random(1, 2, 4, 5), 2 * random(1, 2, 3, 3)
    for method in METHODS:
        for corners in (False, True):
            made = image.grid_sample(
                var("x", *x.shape), var("g", *g.shape), method, "NCHW", padding, corners
            )
            wanted = testing.grid_sample_python(
                x, g, method, padding_mode=padding, align_corners=corners
            )
            np.testing.assert_allclose(evaluated(made, x=x, g=g), wanted, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["avg", "max", "max_weighted"])
def test_regions_are_the_reference(mode):
    x = random(2, 3, 5, 6)
    rois = np.array([[1, 0.6, 0.9, 9, 7], [0, -4, -2, 3.5, 4], [1, 4, 4, 4, 4]], "float32")
    made = vision.roi_align(
        var("x", *x.shape), var("r", *rois.shape), (3, 2), 0.5, 3, mode=mode, aligned=True
    )
    wanted = testing.roi_align_python(x, rois, (3, 2), 0.5, 3, mode, True)
    np.testing.assert_allclose(evaluated(made, x=x, r=rois), wanted, atol=1e-5)
    np.testing.assert_allclose(run(made, "llvm", x=x, r=rois), wanted, atol=1e-5)


def test_offsets_of_zero_are_a_convolution():
    x, w = random(2, 4, 6, 7), random(6, 2, 3, 3)
    options = {"strides": (2, 1), "padding": (1, 0, 2, 1), "dilation": (1, 2), "groups": 2}
    plain = nn.conv2d(var("x", *x.shape), var("w", *w.shape), **options)
    offset = relay.const(np.zeros((2, 18, *plain.shape[2:]), "float32"))
    moved = nn.deformable_conv2d(var("x", *x.shape), offset, var("w", *w.shape), **options)
    assert moved.shape == plain.shape
    np.testing.assert_allclose(evaluated(moved, x=x, w=w), evaluated(plain, x=x, w=w), atol=1e-5)


def test_an_offset_of_one_is_a_shift():
    x, w = random(1, 2, 6, 6), random(3, 2, 3, 3)
    offset = np.zeros((1, 9, 2, 4, 4), "float32")
    offset[:, :, 1] = 1  # along W
    moved = nn.deformable_conv2d(
        var("x", *x.shape), relay.const(offset.reshape(1, 18, 4, 4)), var("w", *w.shape)
    )
    ahead = np.pad(x[..., 1:], ((0, 0), (0, 0), (0, 0), (0, 1)))
    plain = nn.conv2d(var("x", *x.shape), var("w", *w.shape))
    np.testing.assert_allclose(
        evaluated(moved, x=x, w=w), evaluated(plain, x=ahead, w=w), atol=1e-5
    )


def test_offsets_without_a_type_get_that_of_the_result():
    x, offset, mask = var("x", 2, 4, 6, 7), relay.var("offset"), relay.var("mask")
    moved = nn.deformable_conv2d(
        x, offset, relay.var("w"), strides=(2, 1), padding=1, deformable_groups=2, channels=3,
        kernel_size=(3, 2), mask=mask,
    )  # fmt: skip
    assert moved.shape == (2, 3, 3, 8)
    assert offset.shape == (2, 2 * 2 * 6, 3, 8) and mask.shape == (2, 2 * 6, 3, 8)


def test_moved_taps_are_written_for_onnxruntime():
    body = nn.deformable_conv2d(
        var("x", 2, 4, 5, 6), var("o", 2, 36, 3, 3), var("w", 6, 2, 3, 3), 2, 1,
        deformable_groups=2, groups=2, mask=var("m", 2, 18, 3, 3),
    )  # fmt: skip
    function = relay.Function(relay.free_vars(body), body)
    values = {p.name_hint: random(*p.shape) for p in function.params}
    session = onnxruntime.InferenceSession(relay.to_onnx(function).SerializeToString())
    (wanted,) = session.run(None, values)
    np.testing.assert_allclose(evaluated(body, **values), wanted, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_kernels_are_verified(target):
    x, g, o = var("x", 1, 4, 6, 5), var("g", 1, 2, 6, 5), var("o", 1, 18, 6, 5)
    cubic = image.grid_sample(x, g, "bicubic", padding_mode="reflection")
    moved = nn.deformable_conv2d(nn.relu(cubic), o, var("w", 3, 4, 3, 3), padding=1)
    rois = relay.const(np.array([[0, 1, 1, 4, 3.5]], "float32"))
    body = vision.roi_align(moved, rois, 2, 1.0, 2)
    values = {p.name_hint: random(*p.shape) for p in relay.free_vars(body)}
    wanted = evaluated(body, **values)
    np.testing.assert_allclose(run(body, target, **values), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("method", METHODS)
def test_places_that_are_no_numbers_read_inside(method, target):
    """NaN, infinities and the largest numbers give some element, or zero, never a crash."""
    x = np.ones((1, 1, 3, 4), "float32")
    wild = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, -1e10, 0.1], "float32")
    grid = np.stack(np.meshgrid(wild, wild))[None]
    for padding in PADDINGS:
        made = image.grid_sample(
            var("x", *x.shape), var("g", *grid.shape), method, padding_mode=padding
        )
        found = run(made, target, x=x, g=grid)
        assert np.abs(found[np.isfinite(found)]).max() < 2
        outside = 0.0 if padding == "zeros" else 1.0
        np.testing.assert_allclose(found[0, 0, 1, 1:3], outside, atol=1e-5)  # infinite both ways


def test_regions_that_are_no_numbers_read_inside():
    x = np.ones((2, 1, 3, 4), "float32")
    rois = np.array([
        [np.nan] * 5, [np.inf, 0, 0, 2, 2], [-5, 0, 0, 2, 2], [9, 0, 0, 1, 1],
        [0, -np.inf, 0, np.inf, 1], [0, 3e38, 0, 3e38, 3e38],
    ], "float32")  # fmt: skip
    made = vision.roi_align(var("x", *x.shape), var("r", *rois.shape), 2, 1.0, 2)
    found = run(made, "llvm", x=x, r=rois)
    np.testing.assert_allclose(found[1:4], 1, atol=1e-6)  # the first image or the last
    np.testing.assert_allclose(found[5], 0)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_determinants(size):
    x = random(4, 2, size, size)
    x[0, 0], x[1, 1, 0] = 0, 0  # singular; one whose first row needs a pivot elsewhere
    made = relay.frontend.from_onnx(model([node("Det", ["x"])], {"x": list(x.shape)}))[0]
    wanted = np.linalg.det(x.astype("float64"))
    np.testing.assert_allclose(relay.evaluate(made, {"x": x}), wanted, rtol=1e-4, atol=1e-4)


def test_a_pivot_is_looked_for():
    x = np.array([[0, 1, 2], [1, 0, 3], [4, -3, 8]], "float32")
    made = relay.frontend.from_onnx(model([node("Det", ["x"])], {"x": [3, 3]}))[0]
    np.testing.assert_allclose(relay.evaluate(made, {"x": x}), -2, rtol=1e-5)


X, G = var("x", 1, 2, 4, 4), var("g", 1, 2, 3, 3)
REFUSED = {
    "method": (lambda: image.grid_sample(X, G, "linear"), "Use nearest, bilinear"),
    "layout": (lambda: image.grid_sample(X, G, layout="NHWC"), "Use NCHW, NCDHW"),
    "padding": (lambda: image.grid_sample(X, G, padding_mode="edge"), "Use zeros, border"),
    "grid": (lambda: image.grid_sample(X, var("g", 1, 3, 3, 2)), "does not name 2 coordinates"),
    "integers": (
        lambda: image.grid_sample(*(relay.var(n, shape=(1, 2, 4, 4), dtype="int32") for n in "xg")),
        "not a floating-point type",
    ),
    "adaptive": (lambda: vision.roi_align(X, var("r", 3, 5), 2, 1.0), "depends on the data"),
    "rois": (lambda: vision.roi_align(X, var("r", 3, 4), 2, 1.0, 2), "regions of 4 numbers"),
    "pooled": (lambda: vision.roi_align(X, var("r", 3, 5), 0, 1.0, 2), "is no extent"),
    "mode": (lambda: vision.roi_align(X, var("r", 3, 5), 2, 1.0, 2, mode="sum"), "Use avg, max"),
    "samples": (lambda: vision.roi_align(X, var("r", 3, 5), 2, 1.0, 10**6), "at most 64"),
    "scale": (lambda: vision.roi_align(X, var("r", 3, 5), 2, 0.0, 2), "out of range"),
    "region layout": (
        lambda: vision.roi_align(X, var("r", 3, 5), 2, 1.0, 2, "NHWC"), "only NCHW",
    ),
    "offset": (
        lambda: nn.deformable_conv2d(X, var("o", 1, 18, 4, 4), var("w", 3, 2, 3, 3)),
        r"Give \(1, 18, 2, 2\)",
    ),
    "groups": (
        lambda: nn.deformable_conv2d(X, var("o", 1, 18, 2, 2), var("w", 3, 1, 3, 3)),
        "does not fit 2 channels",
    ),
    "offset groups": (
        lambda: nn.deformable_conv2d(
            X, var("o", 1, 54, 2, 2), var("w", 3, 2, 3, 3), deformable_groups=3
        ),
        "do not divide 2 channels",
    ),
    "window": (
        lambda: nn.deformable_conv2d(X, var("o", 1, 18, 2, 2), var("w", 3, 2, 5, 5)),
        "does not fit",
    ),
    "deformable layout": (
        lambda: nn.deformable_conv2d(X, G, var("w", 3, 2, 3, 3), data_layout="NHWC"),
        "Use NCHW and OIHW",
    ),
    "determinant": (
        lambda: relay.frontend.from_onnx(model([node("Det", ["x"])], {"x": [2, 3]})), "no square",
    ),
    "large determinant": (
        lambda: relay.frontend.from_onnx(model([node("Det", ["x"])], {"x": [33, 33]})),
        "others need a factorisation",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    build, words = REFUSED[name]
    with pytest.raises(ModelError, match=words):
        build()


@pytest.mark.parametrize("scale", (1.0, 0.5))
def test_pooled_regions_are_onnxruntime_s(scale):
    x, rois = random(2, 3, 9, 7), RNG.uniform(0, 8, (12, 5)).astype("float32")
    rois[:, 0] = np.arange(12) % 2
    rois[:, 3:] = rois[:, 1:3] + RNG.uniform(0, 6, (12, 2))
    proto = model(
        [node("MaxRoiPool", ["x", "r"], pooled_shape=[3, 2], spatial_scale=scale)],
        {"x": x.shape, "r": rois.shape}, opset=16,
    )  # fmt: skip
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(None, {"x": x, "r": rois})
    mod, params = relay.frontend.from_onnx(proto)
    found = relay.evaluate(mod, {"x": x, "r": rois, **params})
    np.testing.assert_allclose(found, wanted)


IMAGE = {"x": [1, 2, 4, 4], "r": [3, 4]}
BATCH = {"b": np.zeros(3, "int64")}
ONNX = {
    "adaptive": (
        model([node("RoiAlign", ["x", "r", "b"])], IMAGE, BATCH, 16), "Export it with sampling",
    ),
    "regions": (
        model([node("RoiAlign", ["x", "r", "b"])], IMAGE, {"b": np.zeros(2, "int64")}, 16),
        r"\[regions, 4\] and \[regions\]",
    ),
    "mode": (
        model([node("RoiAlign", ["x", "r", "b"], mode="sum")], IMAGE, BATCH, 16),
        "Use avg or max",
    ),
    "bins": (
        model([node("MaxRoiPool", ["x", "r"], pooled_shape=[2])], {**IMAGE, "r": [3, 5]}, opset=16),
        "not two numbers",
    ),
    "shift": (
        model(
            [node("RoiAlign", ["x", "r", "b"], coordinate_transformation_mode="no")], IMAGE, BATCH,
            16,
        ),
        "Use half_pixel",
    ),
    "signal": (
        model([node("GridSample", ["x", "g"])], {"x": [1, 2, 4], "g": [1, 3, 1]}, opset=20),
        "Images of two or three axes",
    ),
    "volume": (
        model([node("DeformConv", ["x", "w", "o"])], {"x": [1, 1, 2, 2, 2], "o": [1, 1, 1, 1, 1]},
              {"w": np.ones((1, 1, 1, 1, 1), "float32")}, 19),
        "Images of two axes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONNX)
def test_refused_from_onnx(name):
    proto, words = ONNX[name]
    with pytest.raises(ModelError, match=words):
        relay.frontend.from_onnx(proto)


def test_a_plain_maximum_has_no_words_in_onnx():
    made = vision.roi_align(X, var("r", 3, 5), 2, 1.0, 2, mode="max")
    with pytest.raises(ModelError, match="max_weighted"):
        relay.to_onnx(relay.Function(relay.free_vars(made), made))


def test_topi_refuses_by_itself():
    data, grid = te.placeholder((1, 2, 4, 4)), te.placeholder((1, 2, 3, 3))
    with pytest.raises(ExpressionError, match="Use one of nearest"):
        topi.grid_sample(data, grid, "linear")
    with pytest.raises(ExpressionError, match=r"\[regions, 5\]"):
        topi.roi_align(data, grid, 2, 1.0, 2)
    with pytest.raises(ExpressionError, match="sample_ratio=2"):
        topi.roi_align(data, te.placeholder((3, 5)), 2, 1.0, 0)
