"""Winograd's convolutions in two halves, against the convolution that they stand for."""

import numpy as np
import pytest
from tilewright_tvm.topi.cuda.conv3d_winograd import _infer_tile_size

from tilewright.base.errors import ModelError
from tilewright_tvm import relay

RNG = np.random.default_rng(0)


def halves(rank: int):
    name = f"contrib_conv{rank}d_winograd"
    return getattr(relay.nn, f"{name}_weight_transform"), getattr(
        relay.nn, f"{name}_without_weight_transform"
    )


@pytest.mark.parametrize("tile", [1, 2, 4])
@pytest.mark.parametrize(
    ("data", "kernel", "padding", "transformed"),
    [
        ((2, 3, 9, 10), (4, 3, 3, 3), (1, 1), (2, 2)),
        ((1, 2, 8, 8), (3, 2, 5, 5), (2, 2), (4, 4)),
        ((1, 2, 7, 9), (3, 2, 3, 3), (0, 1, 2, 0), (2, 2)),
        ((1, 2, 6, 7, 9), (3, 2, 3, 3, 3), (1, 1, 1), (2, 2, 2)),
        ((1, 2, 6, 7, 9), (3, 2, 1, 3, 3), (0, 1, 1), (2, 2)),
        ((1, 2, 6, 7, 9), (3, 2, 2, 3, 3), (1, 1, 1), (2, 2)),
    ],
)
def test_both_halves_are_the_convolution(data, kernel, padding, transformed, tile):
    x = relay.var("x", shape=data, dtype="float64")
    w = relay.var("w", shape=kernel, dtype="float64")
    rank = len(data) - 2
    transform, convolve = halves(rank)
    packed = transform(w, tile)
    depth = kernel[2:3] if len(transformed) < rank else ()
    assert packed.shape == (*(tile + n for n in transformed), *depth, *kernel[:2])
    made = convolve(x, packed, tile, padding=padding, kernel_size=kernel[2:], channels=kernel[0])
    direct = getattr(relay.nn, f"conv{rank}d")(x, w, padding=padding)
    assert made.checked_type == direct.checked_type
    arrays = {"x": RNG.standard_normal(data), "w": RNG.standard_normal(kernel)}
    found, wanted = (
        relay.evaluate(relay.Function([x, w], value), arrays, "float64") for value in (made, direct)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_without_kernel_size_a_transform_of_all_axes_is_meant():
    transform, convolve = halves(2)
    x, w = relay.var("x", shape=(1, 2, 6, 6)), relay.var("w", shape=(3, 2, 3, 3))
    assert convolve(x, transform(w, 2), 2).shape == (1, 3, 4, 4)
    transform, convolve = halves(3)
    x, w = relay.var("x", shape=(1, 2, 6, 6, 6)), relay.var("w", shape=(3, 2, 1, 3, 3))
    assert convolve(x, transform(w, 2), 2).shape == (1, 3, 6, 4, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"strides": 2}, "strides is not"),
        ({"dilation": (1, 2)}, "dilation is not"),
        ({"groups": 2}, "groups is not"),
        ({"channels": 5}, "channels is not"),
        ({"data_layout": "NHWC"}, "data_layout is not"),
        ({"kernel_size": 5}, "when it is transformed"),
    ],
)
def test_what_has_no_form_of_winograds_is_refused(options, words):
    transform, convolve = halves(2)
    packed = transform(relay.var("w", shape=(4, 2, 3, 3)), 2)
    with pytest.raises(ModelError, match=words):
        convolve(relay.var("x", shape=(1, 2, 6, 6)), packed, 2, **options)


def test_kernels_of_integers_and_tiles_that_round_too_much_are_refused():
    transform, _ = halves(2)
    with pytest.raises(ModelError, match="no floating-point type"):
        transform(relay.var("w", shape=(4, 2, 3, 3), dtype="int8"), 2)
    with pytest.raises(ModelError, match="points"):
        transform(relay.var("w", shape=(4, 2, 3, 3)), 20)


def test_tile_sizes_are_tvms():
    kernel = relay.var("w", shape=(4, 2, 3, 3, 3))
    assert _infer_tile_size(relay.var("x", shape=(1, 2, 5, 16, 9)), kernel) == 4
    assert _infer_tile_size(relay.var("x", shape=(1, 2, 8, 15, 8)), kernel) == 2
