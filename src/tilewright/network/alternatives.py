"""Other ways to compute a fused group: its convolution by Winograd's transforms.

In: the function of a group, a target.  Out: computations that give the same to rounding, and how
each reads its constants.  They are kernels of their own: with their own hash, records, reference
and verification; what was measured decides which one a network gets.
Read next: `extract.py`, `decide.py`, `topi/nn/winograd.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.dtype import FLOAT32
from tilewright.graph.expr import Array, Call, Function, Type, Var, post_order
from tilewright.graph.op.window import is_blocked, to_order
from tilewright.graph.traversal import is_call, users
from tilewright.network.computation import Instead, compute_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.winograd import matrices, winograd

TILES = (2, 4)  # outputs along one axis of a tile
MAX_TILE_READ = 6  # inputs: from 8 on float32 loses too many digits
LEAST_CHANNELS = 8  # with fewer the transforms are most of the work


@dataclass(frozen=True)
class Transformed:
    """A kernel of a convolution as F(tile, size) reads it: [alpha, alpha, I, O], or O before I.

    layout: of the kernel, an order of OIHW
    """

    tile: int
    layout: str
    inputs_first: bool

    def shape(self, weight: Sequence[int]) -> tuple[int, ...]:
        size = dict(zip(self.layout, weight, strict=True))
        alpha = self.tile + size["H"] - 1
        channels = (size["I"], size["O"]) if self.inputs_first else (size["O"], size["I"])
        return (alpha, alpha, *channels)

    def apply(self, weight: Array) -> Array:
        """Give the kernel in that form, computed in float64 and rounded once."""
        taps = to_order(weight, self.layout, "HWIO" if self.inputs_first else "HWOI")
        size = taps.shape[0]
        g = np.array(matrices(self.tile, size).kernel, "float64")
        both = np.einsum("ey,ux->euyx", g, g).reshape(len(g) ** 2, size * size)
        flat = taps.astype("float64").reshape(size * size, -1)
        made = (both @ flat).reshape(self.shape(weight.shape))
        return np.ascontiguousarray(made, weight.dtype)


@dataclass(frozen=True)
class Alternative:
    """dag: of the whole group; transformed: number of a parameter -> how it is read"""

    dag: ComputeDAG
    transformed: Mapping[int, Transformed]


def alternatives(
    function: Function, constant: Sequence[bool], target: Target
) -> Iterator[Alternative]:
    """Give Winograd's computations of the one convolution in `function` that has them.

    constant: for each parameter, whether its value is known when the network is built
    """
    calls = [n for n in post_order(function.body) if isinstance(n, Call)]
    convolutions = [n for n in calls if is_call(n, "nn.conv2d")]
    if len(convolutions) != 1:
        return
    (node,) = convolutions
    data, weight = node.args
    if weight not in function.params or len(users(function.body)[weight]) != 1 or data is weight:
        return
    assert isinstance(weight, Var)
    at = function.params.index(weight)
    if not constant[at] or not _has_winograd(node):
        return
    size = weight.shape[node.attrs.kernel_layout.index("H")]
    for tile in TILES:
        if tile + size - 1 <= MAX_TILE_READ:
            how = Transformed(tile, node.attrs.kernel_layout, node.attrs.data_layout == "NCHW")
            instead = Instead(node, {weight: how.shape(weight.shape)}, _Lower(node, tile, target))
            yield Alternative(compute_dag(function, constant, instead), {at: how})


def _has_winograd(node: Call) -> bool:
    a = node.attrs
    data, weight = node.args
    if is_blocked(a.data_layout):
        return False
    size = dict(zip(a.kernel_layout, weight.shape, strict=True))
    one = (1, 1)
    return (
        tuple(a.strides) == tuple(a.dilation) == one
        and a.groups == 1
        and size["H"] == size["W"] >= 3
        and min(size["I"], size["O"]) >= LEAST_CHANNELS
        and {data.dtype, weight.dtype, node.dtype} == {FLOAT32}
    )


@dataclass(frozen=True)
class _Lower:
    """The value of a convolution, from its data and its transformed kernel.

    On CPUs vectors run along channels, whatever the layout of the image.
    """

    node: Call
    tile: int
    target: Target

    def __call__(self, tensors: Sequence[Any], result: Type) -> Tensor:
        a = self.node.attrs
        data, weight = tensors
        first = None if self.target.has_threads else True
        return winograd(data, weight, a.padding, self.tile, a.data_layout, first, None, True)
