"""Computations, and steps as Ansor's log lines hold them, that the tests of old logs share."""

from __future__ import annotations

from typing import Any

from tilewright import te, topi
from tilewright.te.tensor import Tensor

Steps = list[list[Any]]


def conv2d_layer(
    n: int, h: int, w: int, co: int, ci: int, kh: int, kw: int, stride: Any, padding: Any
) -> list[Tensor]:
    """The workload of the auto-scheduler's tutorial for GPUs."""
    data = te.placeholder((n, ci, h, w), name="data")
    kernel = te.placeholder((co, ci, kh, kw), name="kernel")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, padding, dilation=1, out_dtype="float32")
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


def matmul(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


# Matrix product 32 x 48 x 24 on a CPU: cache_write, tiles SSRSRS, the copy follows the tiles.
MATMUL: Steps = [
    ["CHW", 2, "local"],
    ["SP", 2, 0, 32, [2, 4, 2], 1],
    ["SP", 2, 4, 48, [3, 1, 8], 1],
    ["SP", 2, 8, 24, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]],
    ["FSP", 3, 0, 1, 2],
    ["FSP", 3, 3, 2, 2],
    ["RE", 3, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 3, 3],
    ["FU", 3, [0, 1, 2, 3]],
    ["AN", 3, 0, 3],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
    ["AN", 2, 9, 2],
    ["AN", 3, 2, 2],
]


def conv2d_gpu(ci: int, co: int, tiles: dict[str, list[int]], fetch: tuple[int, int]) -> Steps:
    """The GPU sketch of `conv2d_layer` at 7 x 7 pixels with a 3 x 3 window: tiles SSSRRSRS, which
    relu follows; all threads fetch the inputs, `fetch` elements of kernel and data at once."""
    order = [0, 5, 10, 15, 1, 6, 11, 16, 2, 7, 12, 17, 20, 23, 26, 21, 24, 27, 3, 8, 13, 18, 22, 25]
    order += [28, 4, 9, 14, 19]
    extents = {"n": 1, "f": co, "y": 7, "x": 7, "rc": ci, "ry": 3, "rx": 3}
    starts = (0, 5, 10, 15, 20, 23, 26)
    steps: Steps = [["CI", 5]]
    steps += [
        ["SP", 3, start, extents[axis], tiles[axis], 1]
        for start, axis in zip(starts, extents, strict=True)
    ]
    steps.append(["RE", 3, order])
    steps += [["FSP", 6, 4 * k, k + 1, 3] for k in range(4)]
    steps += [
        ["RE", 6, [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]],
        ["CA", 3, 6, 11],
        ["CHR", 2, "shared", [3]],
        ["CA", 3, 4, 14],
        ["CHR", 1, "shared", [4]],
        ["CA", 2, 5, 14],
        ["CI", 1],
    ]
    for at, tag in enumerate((5, 4, 6)):  # blockIdx.x, vthread, threadIdx.x
        steps += [["FU", 8, [at, at + 1, at + 2, at + 3]], ["AN", 8, at, tag]]
    for stage, lanes in zip((4, 2), fetch, strict=True):
        steps += [
            ["FU", stage, [0, 1, 2, 3]],
            ["SP", stage, 0, 0, [lanes], 1],
            ["AN", stage, 1, 2],
            ["FFSP", stage, 0, [1, 2, 3, 4], 1, 1],
            ["AN", stage, 1, 6],
        ]
    return [*steps, ["PR", 5, 0, "auto_unroll_max_step$1024"]]


# What the tutorial's best record held, by the schedule it prints.
SEED001_TILES = {
    "n": [1, 1, 1, 1], "f": [1, 16, 1, 1], "y": [1, 7, 1, 1], "x": [1, 1, 7, 1], "rc": [2, 8],
    "ry": [1, 3], "rx": [3, 1],
}  # fmt: skip
SEED001 = conv2d_gpu(512, 512, SEED001_TILES, (2, 9))
SMALL_TILES = {
    "n": [1, 1, 1, 1], "f": [2, 4, 1, 2], "y": [1, 7, 1, 1], "x": [1, 1, 7, 1], "rc": [2, 2],
    "ry": [1, 3], "rx": [3, 1],
}  # fmt: skip
