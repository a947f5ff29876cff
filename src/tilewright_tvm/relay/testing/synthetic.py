"""A small network with a bit of everything: dense, convolution, softmax, bias, batch norm.

In: options.  Out: `(mod, params)`.  Read next: `layers.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Expr, Function, IRModule
from tilewright.graph.functions import nn
from tilewright.graph.functions.tensor import add, reshape
from tilewright.graph.leaves import var
from tilewright.models.zoo import layers


def get_net(
    input_shape: tuple[int, ...] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> Function:
    """Twice the sum of a dense layer of the rows and a convolution; a norm in between.

    input_shape: (N, C, H, W); wtype: the element type of weights, by default `dtype`
    """
    if len(input_shape) != 4:
        raise ModelError(
            f"relay.testing.synthetic(input_shape={input_shape})", "it has not four extents",
            "Example: (1, 3, 24, 12).",
        )  # fmt: skip
    data = var("data", shape=input_shape, dtype=dtype)
    kind = wtype or dtype
    first = _branches(data, "", kind)
    biased = nn.bias_add(first, var("bias", shape=(input_shape[1],), dtype=kind))
    return layers.network(data, _branches(layers.batch_norm(biased, "batch_norm"), "2", kind))


def get_workload(
    input_shape: tuple[int, ...] = (1, 3, 24, 12),
    dtype: str = "float32",
    wtype: str | None = None,
    seed: int = 0,
) -> tuple[IRModule, dict[str, Array]]:
    """The network and its weights."""
    return layers.create_workload(get_net(input_shape, dtype, wtype), seed)


def _branches(data: Expr, number: str, wtype: str) -> Expr:
    channels, width = data.shape[1], data.shape[3]
    weight = var(f"dense{number}_weight", shape=(width, width), dtype=wtype)
    rows = nn.relu(nn.dense(reshape(data, (-1, width)), weight))
    kernel = var(f"conv{number}_weight", shape=(channels, channels, 3, 3), dtype=wtype)
    conv = nn.conv2d(data, kernel, padding=1, kernel_size=3, channels=channels)
    return add(reshape(rows, data.shape), nn.softmax(conv))
