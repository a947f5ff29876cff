"""Layouts: what a network computes does not depend on them, and little is moved for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.cases import CASES
from graph.drawing import networks
from graph.test_passes import compare, inputs_of, names
from tests.tiers import examples
from tilewright import Target, cpu
from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import Call, post_order
from tilewright.graph.functions import nn
from tilewright.graph.passes.data_layout import (
    AxisLayout,
    axis_layout,
    convert,
    is_same_memory,
    plain,
)
from tilewright.graph.passes.layout_propagation import operands, propagate
from tilewright_tvm import relay, topi, transform
from tilewright_tvm.contrib.graph_executor import GraphModule
from tilewright_tvm.relay import testing
from tilewright_tvm.relay.transform import AlterOpLayout, ConvertLayout

RNG = np.random.default_rng(0)
SMALL = {
    "mobilenet": {"image_shape": (3, 32, 32)}, "resnet": {"image_shape": (3, 32, 32)},
    "squeezenet": {"image_shape": (3, 64, 64)}, "vgg": {"image_shape": (3, 32, 32)}, "dcgan": {},
    "unet": {"image_shape": (3, 32, 32)}, "dqn": {}, "mlp": {}, "lstm": {},
}  # fmt: skip
LARGE = ("densenet", "inception_v3", "mobilenet_v2", "resnext")  # too slow for the evaluator
LAYOUTS = (["NHWC", "default"], ["NCHW8c", "default"], ["NCHW16c"])


@pytest.mark.parametrize("layout", ["NHWC", "NCHW8c"])
def test_what_has_other_axes_than_a_form_does_not_follow_it(layout):
    form = axis_layout("NCHW", layout, "test")
    for case in CASES:
        for node in post_order(case.build()):
            if not isinstance(node, Call) or not operands(node):
                continue
            types = [v.checked_type for v in (node, *operands(node))]
            if all(isinstance(t, relay.TensorType) for t in types):
                propagate(node, form)  # nothing is raised
    narrow = nn.pad(relay.var("x", shape=(2, 3, 8)), ((0, 0), (1, 1), (0, 0)))
    assert propagate(narrow, form) is None


def module(*body) -> relay.IRModule:
    return relay.IRModule.from_expr(relay.Tuple(body) if len(body) > 1 else body[0])


def const(*shape: int) -> relay.Constant:
    return relay.const(RNG.uniform(-1, 1.5, shape))


def image(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape or (2, 8, 6, 6), dtype="float64")


def converted(mod, *layouts: str, op: str = "nn.conv2d") -> relay.IRModule:
    """The network in another layout, checked to compute the same, also when it is optimised."""
    made = ConvertLayout({op: list(layouts)})(mod)
    inputs = inputs_of(mod["main"])
    wanted = relay.evaluate(mod, inputs)
    compare(wanted, relay.evaluate(made, inputs))
    compare(wanted, relay.evaluate(relay.optimize(made), inputs))
    return made


# -- forms -----------------------------------------------------------------------------------------

FORMS = ("NCHW", "NHWC", "CNWH", "NCHW2c", "NCHW4c", "NCHW3c", "NHWC4c", "NCHW6c2h", "HWNC12c")
SHAPES = ((2, 12, 4, 3), (1, 12, 2, 1))


@given(
    st.sampled_from(FORMS), st.sampled_from(FORMS), st.sampled_from(((2, 12, 4, 3), (1, 12, 2, 1)))
)
@examples(40)
def test_a_value_is_the_same_in_every_form(source, wanted, shape):
    data = RNG.standard_normal(shape)
    forms = [axis_layout("NCHW", layout, "test") for layout in (source, wanted)]
    own, other = (topi.testing.layout_transform_python(data, "NCHW", k) for k in (source, wanted))
    assert forms[1].shape(shape) == other.shape and forms[1].layout("NCHW") == wanted
    found = convert(relay.const(own), shape, *forms)
    np.testing.assert_array_equal(found.data, other)
    x = relay.var("x", shape=own.shape, dtype="float64")
    graph = convert(x, shape, *forms)
    np.testing.assert_array_equal(relay.evaluate(graph, {"x": own}), other)
    moved = names(graph).count("transpose")
    assert moved == (not is_same_memory(shape, *forms)) or (moved == 2 and source != wanted)


def test_forms_say_what_lies_where():
    form = axis_layout("NCHW", "NCHW8c", "test")
    assert form == AxisLayout((0, 1, 2, 3, ~1), ((1, 8),)) and form.rank == 4 and not form.is_plain
    assert form.shape((1, 32, 7, 7)) == (1, 4, 7, 7, 8) and form.shape((1, 1, 7, 7))[-1] == 1
    assert form.fits((1, 16, 2, 2)) and not form.fits((1, 12, 2, 2)) and not form.fits((1, 16))
    assert is_same_memory((2, 16, 1, 1), plain(4), form)
    assert not is_same_memory((2, 16, 2, 1), plain(4), form)
    x = image(2, 8, 6, 6)
    there = convert(x, x.shape, plain(4), axis_layout("NCHW", "NHWC", "test"))
    assert convert(there, x.shape, axis_layout("NCHW", "NHWC", "test"), plain(4)) is x


# -- graphs ----------------------------------------------------------------------------------------


@pytest.mark.slow
@given(networks(), st.sampled_from(("NHWC", "NCHW2c", "NCHW4c", "NCHW8c")))
@examples(40)
def test_random_networks_are_the_same_there_and_back(mod, layout):
    made = converted(mod, layout, "default")
    if "c" not in layout:
        back = converted(made, "NCHW")
        assert 'data_layout="NHWC"' not in str(back)


def test_what_is_between_convolutions_follows_them():
    x, w = image(), const(8, 8, 3, 3)
    y = nn.conv2d(x, w, padding=1)
    y = nn.relu(nn.bias_add(y, const(8)) + relay.const(0.5, "float64")) * const(8, 1, 1)
    y = nn.batch_norm(y, *(relay.const(RNG.uniform(0.5, 1, 8)) for _ in range(4)))[0]
    y = y + nn.avg_pool2d(nn.max_pool2d(y, 3, 1, padding=1), 3, 1, padding=1)
    y = y * nn.adaptive_avg_pool2d(y, 1) * relay.sigmoid(relay.mean(y, axis=(2, 3), keepdims=True))
    y = relay.concatenate([y, nn.pad(y, ((0, 0), (0, 0), (0, 0), (0, 0)))], axis=1)
    y = relay.strided_slice(y, [0, 4, 0, 0], [2, 12, 6, 5])
    y = relay.where(relay.greater(y, const(8, 1, 1)), y, y * relay.const(2.0, "float64"))
    y = relay.image.resize2d(
        nn.pad(y, ((0, 0), (0, 0), (1, 1), (2, 0))), (8, 9), method="nearest_neighbor"
    )
    y = nn.conv2d(nn.leaky_relu(y, 0.1), const(4, 8, 1, 1))
    y = relay.maximum(y, nn.conv2d(y, const(4, 1, 3, 3), padding=1, groups=4))
    mod = module(relay.mean(y, axis=(2, 3)))
    for layout, moved in (("NHWC", 1), ("NCHW4c", 1), ("NCHW2c", 1)):
        made = relay.optimize(converted(mod, layout), passes=relay.PASSES[:-1])
        assert names(made["main"].body).count("transpose") == moved, layout


def test_a_transposition_of_the_networks_own_is_no_work():
    x = image(2, 6, 6, 8)  # a network exported with channels last, around channels first
    y = nn.conv2d(relay.transpose(x, (0, 3, 1, 2)), const(8, 8, 3, 3))
    mod = module(relay.transpose(nn.relu(y), (0, 2, 3, 1)))
    made = relay.optimize(converted(mod, "NHWC"), passes=relay.PASSES[:-1])
    assert "transpose" not in names(made["main"].body)


def test_what_cannot_follow_gets_its_axes_as_they_were():
    x = image()
    y = nn.conv2d(x, const(8, 8, 1, 1))
    mod = module(
        nn.softmax(y, axis=1), relay.cumsum(y, axis=2), relay.mean(y, axis=1),
        nn.pad(y, ((0, 0), (2, 1), (0, 0), (0, 0))), relay.strided_slice(y, [0, 1], [2, 7]),
        relay.concatenate([y, relay.mean(y, 1, keepdims=True)], axis=1), y,
    )  # fmt: skip
    for layout in ("NHWC", "NCHW4c"):
        converted(mod, layout)


def test_blocks_are_for_channels_that_fill_them():
    x = image(1, 3, 8, 8)
    y = nn.conv2d(x, const(8, 3, 3, 3))
    z = nn.conv2d(y, const(8, 2, 3, 3), groups=4)
    made = converted(module(nn.conv2d(z, const(6, 8, 1, 1))), "NCHW8c")
    text = str(made)
    assert "OIHW1i8o" in text and "OIHW8i1o" in text and "groups=4" in text
    assert text.count("NCHW8c") == 1 and text.count("NCHW1c") == 1


def test_layouts_of_other_operators():
    deep = image(1, 4, 5, 6, 6)
    mod = module(nn.relu(nn.conv3d(deep, const(4, 4, 1, 3, 3))))
    assert "NDHWC" in str(converted(mod, "NDHWC", op="nn.conv3d"))
    up = module(nn.relu(nn.conv2d_transpose(image(), const(8, 4, 3, 3), strides=(2, 2))))
    assert "NHWC" in str(converted(up, "NHWC", op="nn.conv2d_transpose"))
    pool = module(nn.relu(nn.max_pool2d(image(), 2)))
    assert "NCHW4c" in str(converted(pool, "NCHW4c", op="nn.max_pool2d"))


def test_altered_for_a_target():
    mod = module(nn.relu(nn.conv2d(image(1, 16, 6, 6), const(32, 16, 3, 3))))
    lanes = resolve_target("llvm").limits.vector_bytes // 4
    with Target("llvm"):
        for made in (AlterOpLayout()(mod), AlterOpLayout("llvm")(mod)):
            assert f"NCHW{lanes}c" in str(made)
            compare(
                relay.evaluate(mod, inputs_of(mod["main"])),
                relay.evaluate(made, inputs_of(mod["main"])),
            )
    assert AlterOpLayout("cuda")(mod) is mod
    sequence = transform.Sequential([AlterOpLayout("llvm"), ConvertLayout({"nn.conv2d": ["NHWC"]})])
    with transform.PassContext(opt_level=2):
        assert sequence(mod) is mod


# -- whole networks --------------------------------------------------------------------------------


def prepared(name: str, **options) -> relay.IRModule:
    mod, params = getattr(testing, name).get_workload(batch_size=1, **options)
    return relay.optimize(mod, params, relay.PASSES[:-1])


def moves_of(mod: relay.IRModule) -> int:
    return names(relay.optimize(mod, passes=relay.PASSES[:-1])["main"].body).count("transpose")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_networks_are_the_same_in_every_layout(name):
    mod = prepared(name, **SMALL[name])
    inputs = inputs_of(mod["main"])
    wanted = relay.evaluate(mod, inputs)
    for layouts in LAYOUTS:
        made = ConvertLayout({"nn.conv2d": layouts})(mod)
        found = relay.evaluate(made, inputs)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        if name not in ("unet", "dcgan"):  # whose transposed convolutions stay
            assert moves_of(made) <= moves_of(mod) + 2
        if "c" not in layouts[0]:
            back = ConvertLayout({"nn.conv2d": ["NCHW"]})(made)
            np.testing.assert_array_equal(relay.evaluate(back, inputs), wanted)
            assert moves_of(back) == moves_of(mod)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_no_network_moves_more_than_its_image_and_its_result(name):
    mod = prepared(name)
    for layouts in LAYOUTS[: 1 if name == "resnext" else 3]:  # which has convolutions in groups
        made = ConvertLayout({"nn.conv2d": layouts})(mod)
        assert moves_of(made) <= 2 and layouts[0] in str(made)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("layouts", LAYOUTS, ids=lambda k: k[0])
def test_a_built_network_computes_the_same(layouts):
    x = relay.var("x", shape=(1, 3, 12, 12))
    rng = np.random.default_rng(1)

    def weight(*shape: int) -> relay.Constant:
        return relay.const(rng.uniform(-0.3, 0.4, shape).astype("float32"))

    y = nn.relu(nn.conv2d(x, weight(16, 3, 3, 3), padding=1) * weight(16, 1, 1))
    y = nn.relu(nn.conv2d(y, weight(16, 1, 3, 3), padding=1, groups=16))
    y = nn.max_pool2d(y + nn.conv2d(y, weight(16, 16, 3, 3), padding=1), 2, 2)
    y = nn.dense(nn.batch_flatten(nn.global_avg_pool2d(y)), weight(5, 16))
    mod = module(y)
    made = ConvertLayout({"nn.conv2d": layouts})(mod)
    data = rng.standard_normal((1, 3, 12, 12)).astype("float32")
    run = GraphModule(relay.build(made, "llvm")["default"](cpu()))
    run.set_input("x", data)
    run.run()
    np.testing.assert_allclose(
        run.get_output(0).numpy(), relay.evaluate(mod, {"x": data}), rtol=1e-5, atol=1e-6
    )


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "desired, reason",
    [
        ({"nn.conv2d": ["NHCW", "default"]}, "there is no such convolution"),
        ({"nn.conv2d": ["NCDHW", "default"]}, "they are not the axes of NCHW"),
        ({"nn.conv2d": ["NHWC8c", "default"]}, "has blocks, of channels, which are innermost"),
        ({"nn.conv2d": ["NCHW8h", "default"]}, "has blocks, of channels, which are innermost"),
        ({"nn.conv2d": ["NCHWc", "default"]}, "needs a size"),
        ({"nn.conv2d": ["NHWC", "HWI"]}, "they are not the axes of OIHW"),
        ({"nn.conv2d": ["NHWC", "OIHW8o"]}, "has none in blocks"),
        ({"nn.conv2d": ["NCHW8c", "OIHW4i8o"]}, "it reads OIHW8i8o"),
        ({"nn.conv2d": ["default"]}, "the layout of the data is open"),
        ({"nn.conv2d": "NHWC"}, "one string is given"),
        ({"nn.conv2d": []}, "0 layouts are given"),
        ({"nn.relu": ["NHWC"]}, "no layout to choose"),
        ({"nn.unknown": ["NHWC"]}, "no layout to choose"),
        ({"nn.max_pool2d": ["NHCW"]}, "it cannot have this layout"),
        ({"nn.max_pool2d": ["NHWC", "default"]}, "2 layouts are given"),
    ],
)
def test_a_layout_that_an_operator_cannot_have_is_refused(desired, reason):
    mod = module(nn.max_pool2d(nn.conv2d(image(), const(8, 8, 3, 3)), 2))
    with pytest.raises(ModelError, match=reason):
        ConvertLayout(desired)(mod)


def test_blocks_are_not_converted_again():
    mod = ConvertLayout({"nn.conv2d": ["NCHW8c"]})(module(nn.conv2d(image(), const(8, 8, 3, 3))))
    with pytest.raises(ModelError, match="NCHW8c is one of blocks"):
        ConvertLayout({"nn.conv2d": ["NHWC"]})(mod)


def test_blocked_operands_that_do_not_fit_are_refused():
    x, w = relay.var("x", shape=(1, 2, 6, 6, 4)), relay.var("w", shape=(2, 2, 3, 3, 4, 4))
    blocks = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
    assert nn.conv2d(x, w, **blocks, channels=8, kernel_size=(3, 3)).shape == (1, 2, 4, 4, 4)
    assert nn.conv2d(x, w, **blocks, out_layout="NCHW8c").shape == (1, 1, 4, 4, 8)
    cases = [
        ({**blocks, "out_layout": "NCHW3c"}, "NCHW3c"),
        ({**blocks, "channels": 4}, "the weight has channels 8"),
        ({**blocks, "groups": 2}, "no 2 groups in blocks"),
        ({**blocks, "kernel_layout": "OIHW"}, "does not go with NCHW4c"),
        ({**blocks, "kernel_layout": "OIHW2i4o"}, "extent 4, not 2"),
        ({**blocks, "data_layout": "NCHW8c"}, "extent 4, not 8"),
        ({**blocks, "data_layout": "NHWC4c"}, "is not known"),
    ]
    for options, reason in cases:
        with pytest.raises(ModelError, match=reason):
            nn.conv2d(x, w, **options)
    with pytest.raises(ModelError, match="meet kernels for blocks of 2"):
        nn.conv2d(
            x, relay.var("w", shape=(2, 4, 3, 3, 2, 4)), data_layout="NCHW4c",
            kernel_layout="OIHW2i4o",
        )  # fmt: skip
    with pytest.raises(ModelError, match="one of nn.conv2d only"):
        nn.conv2d_transpose(x, relay.var("v", shape=(8, 8, 3, 3)), data_layout="NCHW4c")
