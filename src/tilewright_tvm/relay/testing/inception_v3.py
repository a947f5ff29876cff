"""Inception v3 (Szegedy et al., "Rethinking the Inception Architecture", 2015).

In: batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `densenet.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo.layers import (
    batch_norm,
    conv2d,
    dense,
    image,
    network,
    workload_of,
)

EPSILON = 2e-5


@dataclass(frozen=True)
class Conv:
    """A convolution, normalised and activated.  It keeps the size where its stride is 1."""

    channels: int
    size: tuple[int, int] = (1, 1)
    strides: int = 1

    @property
    def padding(self) -> tuple[int, int]:
        return (self.size[0] // 2, self.size[1] // 2) if self.strides == 1 else (0, 0)


@dataclass(frozen=True)
class Block:
    """Towers of convolutions, side by side; one that is a list of lists ends in a fork.

    pool: "avg" or "max", of 3x3, which is the last tower; project: channels of the 1x1 behind it,
    0: none, and the pooling has stride 2
    """

    towers: tuple[tuple[Conv | tuple[Conv, ...], ...], ...]
    pool: str
    project: int = 0


def _a(project: int) -> Block:
    five = (Conv(48), Conv(64, (5, 5)))
    three = (Conv(64), Conv(96, (3, 3)), Conv(96, (3, 3)))
    return Block(((Conv(64),), five, three), "avg", project)


def _c(width: int) -> Block:
    row, column = (1, 7), (7, 1)
    once = (Conv(width), Conv(width, row), Conv(192, column))
    twice = (
        Conv(width), Conv(width, column), Conv(width, row), Conv(width, column), Conv(192, row)
    )  # fmt: skip
    return Block(((Conv(192),), once, twice), "avg", 192)


def _e(pool: str) -> Block:
    fork = (Conv(384, (1, 3)), Conv(384, (3, 1)))
    return Block(((Conv(320),), (Conv(384), fork), (Conv(448), Conv(384, (3, 3)), fork)), pool, 192)


_B = Block(((Conv(384, (3, 3), 2),), (Conv(64), Conv(96, (3, 3)), Conv(96, (3, 3), 2))), "max")
_D = Block(
    ((Conv(192), Conv(320, (3, 3), 2)),
     (Conv(192), Conv(192, (1, 7)), Conv(192, (7, 1)), Conv(192, (3, 3), 2))), "max",
)  # fmt: skip
BLOCKS = (
    _a(32), _a(64), _a(64), _B, _c(128), _c(160), _c(160), _c(192), _D, _e("avg"), _e("max"),
)  # fmt: skip


def _active(data: Expr, name: str, made: Conv, padding: tuple[int, int] | None = None) -> Expr:
    x = conv2d(
        data, f"{name}_conv1", made.channels, made.size, made.strides,
        made.padding if padding is None else padding,
    )  # fmt: skip
    return nn.relu(batch_norm(x, f"{name}_bn", epsilon=EPSILON))


def _pool(data: Expr, kind: str, strides: int) -> Expr:
    sides = (strides, strides)
    if kind == "max":
        return nn.max_pool2d(data, (3, 3), sides, padding=(2 - strides, 2 - strides))
    return nn.avg_pool2d(data, (3, 3), sides, padding=(1, 1), count_include_pad=True)


def mixed(data: Expr, name: str, block: Block) -> Expr:
    """The towers of `block` and its pooling, concatenated."""
    ends: list[Expr] = []
    for t, tower in enumerate(block.towers):
        x = data
        for k, made in enumerate(tower):
            if isinstance(made, tuple):
                ends += [_active(x, f"{name}_tower_{t}_mixed_{i}", c) for i, c in enumerate(made)]
                break
            x = _active(x, f"{name}_tower_{t}_{k}", made)
        else:
            ends.append(x)
    pooled = _pool(data, block.pool, 1 if block.project else 2)
    ends.append(_active(pooled, f"{name}_pool", Conv(block.project)) if block.project else pooled)
    return tensor.concatenate(tuple(ends), 1)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 299, 299),
    dtype: str = "float32",
) -> Function:
    """The function data -> class probabilities.

    image_shape: (3, H, W); its last pooling is of 8x8, which an image of 299x299 leaves
    """
    data = image(batch_size, image_shape, "NCHW", dtype, "relay.testing.inception_v3")
    x = _active(data, "conv", Conv(32, (3, 3), 2))
    x = _active(x, "conv_1", Conv(32, (3, 3)), padding=(0, 0))
    x = _active(x, "conv_2", Conv(64, (3, 3)))
    x = _pool(x, "max", 2)
    x = _active(x, "conv_3", Conv(80))
    x = _active(x, "conv_4", Conv(192, (3, 3)), padding=(0, 0))
    x = _pool(x, "max", 2)
    for k, block in enumerate(BLOCKS):
        x = mixed(x, f"mixed_{k}", block)
    x = nn.avg_pool2d(x, (8, 8), (1, 1), count_include_pad=True)
    x = nn.softmax(dense(nn.batch_flatten(x), "fc1", num_classes))
    return network(data, x)


get_workload = workload_of(get_net)
