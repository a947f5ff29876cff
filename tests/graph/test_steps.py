"""Pixels of a step as channels: the same convolution, in steps of one, and only where it gains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright.base.dtype import DType
from tilewright.graph.passes.steps import steps_to_channels
from tilewright.graph.traversal import op_name
from tilewright.network.extract import ungrouped
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

FILLED = {DType("float16"): 16}


def network(
    size: int, window: int, stride: int, padding: int, channels: int, batch: int = 1,
    dtype: str = "float16",
) -> relay.IRModule:  # fmt: skip
    """A first layer in halves of an image in floats; all numbers are whole, so that it is exact."""
    rng = np.random.default_rng(size)
    shape = (batch, channels, size, size + stride)
    shift = rng.integers(-2, 3, (channels, 1, 1)).astype("float32")
    weight = rng.integers(-2, 3, (6, channels, window, window)).astype(dtype)
    x = relay.var("x", shape=shape, dtype="float32") + relay.const(shift)
    x = relay.cast(x, dtype) if dtype != "float32" else x
    y = nn.conv2d(x, relay.const(weight), strides=stride, padding=padding)
    return relay.IRModule.from_expr(nn.relu(y))


def convolution(mod: relay.IRModule) -> relay.Call:
    nodes = relay.analysis.post_order(mod["main"].body)
    (found,) = (n for n in nodes if isinstance(n, relay.Call) and op_name(n) == "nn.conv2d")
    return found


def same(mod: relay.IRModule, made: relay.IRModule) -> None:
    x = mod["main"].params[0]
    data = np.random.default_rng(0).integers(-3, 4, x.shape).astype("float32")
    found, wanted = (relay.evaluate(m, {"x": data}) for m in (made, mod))
    np.testing.assert_array_equal(found, wanted)


@given(
    st.sampled_from([8, 12, 16]), st.integers(2, 7), st.integers(2, 4), st.integers(0, 3),
    st.integers(1, 4), st.integers(1, 2),
)  # fmt: skip
@examples(25)
def test_it_means_the_same(
    size: int, window: int, stride: int, padding: int, channels: int, batch: int
) -> None:
    mod = network(size, max(window, 3), stride, padding, channels, batch)
    made = steps_to_channels(mod, FILLED)
    same(mod, made)
    assert tuple(convolution(made).attrs.strides) in ((1, 1), (stride, stride))


def test_a_first_layer_has_twelve_channels_and_a_view_of_its_image() -> None:
    mod = network(16, 7, 2, 3, 3)
    made = steps_to_channels(mod, FILLED)
    conv = convolution(made)
    assert conv.args[0].shape == (1, 12, 8, 9) and conv.args[1].shape == (6, 12, 4, 4)
    names = [op_name(n) for n in relay.analysis.post_order(made["main"].body)]
    assert [n for n in names if n] == [
        "reshape", "add", "cast", "transpose", "reshape", "transpose", "nn.conv2d", "nn.relu",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        (16, 3, 1, 1, 3), (16, 3, 2, 1, 5), (15, 3, 2, 1, 3), (16, 2, 3, 0, 3), (16, 4, 4, 2, 3),
        (16, 7, 2, 3, 3, 1, "float32"),
    ],
    ids=["steps of one", "many channels", "odd image", "no overlap", "beyond edges", "floats"],
)  # fmt: skip
def test_others_stay(arguments: tuple[int, ...]) -> None:
    mod = network(*arguments)
    assert convolution(steps_to_channels(mod, FILLED)) is convolution(mod)


@pytest.mark.parametrize("channels", [3, 20])
def test_patches_of_an_input_are_products_of_pixels(channels: int) -> None:
    mod = network(16, 4, 4, 0, channels, 2)
    made = steps_to_channels(mod, FILLED)
    conv = convolution(made)
    assert conv.args[0].shape == (2, 16 * channels, 4, 5) and conv.args[1].shape[2:] == (1, 1)
    same(mod, made)


def test_patches_of_what_is_computed_stay() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float16")
    weight = relay.const(np.ones((4, 3, 2, 2), "float16"))
    mod = relay.IRModule.from_expr(nn.conv2d(nn.max_pool2d(x), weight, strides=2))
    assert convolution(steps_to_channels(mod, FILLED)) is convolution(mod)


def test_what_others_read_too_is_computed_once() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8), dtype="float16")
    weight = relay.const(np.ones((4, 3, 3, 3), "float16"))
    y = nn.relu(x)
    body = relay.Tuple([nn.conv2d(y, weight, strides=2, padding=1), y])
    made = steps_to_channels(relay.IRModule.from_expr(body), FILLED)
    names = [op_name(n) for n in relay.analysis.post_order(made["main"].body)]
    assert names.count("nn.relu") == 1 and names.count("reshape") == 2


@pytest.mark.parametrize(("precision", "dense"), [("float32", False), ("tf32", True)])
def test_a_first_layer_of_float32_follows_the_precision(precision: str, dense: bool) -> None:
    target = Target(f"cuda -arch=sm_90 -precision={precision}")
    made, _ = ungrouped(network(16, 7, 2, 3, 3, 1, "float32"), None, target=target)
    assert convolution(made).args[0].shape[1] == (12 if dense else 3)
    same(network(16, 7, 2, 3, 3, 1, "float32"), made)
