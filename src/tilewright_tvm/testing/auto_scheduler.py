"""`testing.auto_scheduler`: small computations to try the auto-scheduler with, registered.

In: sizes.  Out: the tensors of each, inputs first, and by the name of the function a workload for
`SearchTask(func=)`.  Read next: `auto_scheduler/workload_registry.py`, `topi/nn/winograd.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te, topi
from tilewright.base.errors import SpaceError, absent
from tilewright.te.tensor import Tensor
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.loop_state import State
from tilewright_tvm.auto_scheduler.workload_registry import register_workload
from tilewright_tvm.topi.nn.winograd import winograd_transform_matrices

__all__ = [
    "conv2d_nchw_bn_relu_auto_scheduler_test", "conv2d_winograd_nhwc_auto_scheduler_test",
    "double_matmul_auto_scheduler_test", "get_tiled_matmul", "invalid_compute_definition",
    "matmul_auto_scheduler_test", "matmul_auto_scheduler_test_rename_0",
    "max_pool2d_auto_scheduler_test", "min_nm_auto_scheduler_test",
    "parallel_matmul_auto_scheduler_test", "softmax_abcd_auto_scheduler_test",
    "softmax_nm_auto_scheduler_test", "zero_rank_compute_auto_scheduler_test",
    "zero_rank_reduce_auto_scheduler_test",
]  # fmt: skip

_UNROLLED = "auto_scheduler_simplify_const_tensor_indices"


def _product(a: Tensor, b: Tensor, name: str, **options: Any) -> Tensor:
    """a [n, k] x b [k, m], float32."""
    r = te.reduce_axis((0, a.shape[1]), name="k")
    shape = (a.shape[0], b.shape[1])
    return te.compute(shape, lambda i, j: te.sum(a[i, r] * b[r, j], axis=[r]), name=name, **options)


def _inputs(names: str, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [te.placeholder(s, name=n) for n, s in zip(names, shapes, strict=True)]


@register_workload
def matmul_auto_scheduler_test(N: int, M: int, K: int) -> list[Tensor]:
    """[a, b, product]: [N, K] x [K, M], whose second input may be stored in another layout."""
    a, b = _inputs("AB", (N, K), (K, M))
    return [a, b, _product(a, b, "C", attrs={"layout_free_placeholders": [b]})]


@register_workload("matmul_auto_scheduler_test_rename_1")
def matmul_auto_scheduler_test_rename_0(N: int, M: int, K: int) -> list[Tensor]:
    """[a, b, product]: registered by a name that is not the function's."""
    a, b = _inputs("AB", (N, K), (K, M))
    return [a, b, _product(a, b, "C")]


@register_workload
def double_matmul_auto_scheduler_test(N: int) -> list[Tensor]:
    """[a, b, c, (a x b) x c], all [N, N]."""
    a, b, c = _inputs("ABC", *[(N, N)] * 3)
    return [a, b, c, _product(_product(a, b, "D"), c, "E")]


@register_workload
def parallel_matmul_auto_scheduler_test(N: int) -> list[Tensor]:
    """[a, b, c, a x b, a x c], all [N, N]."""
    a, b, c = _inputs("ABC", *[(N, N)] * 3)
    return [a, b, c, _product(a, b, "D"), _product(a, c, "E")]


@register_workload
def conv2d_nchw_bn_relu_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int, strides: int, padding: int,
    dilation: int = 1,
) -> list[Tensor]:  # fmt: skip
    """[data, kernel, bias, offset, scale, relu((conv + bias) * scale + offset)], NCHW."""
    data = te.placeholder((N, CI, H, W), name="Data")
    kernel = te.placeholder((CO, CI, kernel_size, kernel_size), name="Kernel")
    bias, scale, offset = (
        te.placeholder((CO, 1, 1), name=name) for name in ("Bias", "Bn_scale", "Bn_offset")
    )
    conv = topi.nn.conv2d_nchw(data, kernel, strides, padding, dilation)

    def along(x: Tensor, y: Tensor, name: str, join: Any) -> Tensor:
        return te.compute(
            x.shape, lambda n, c, h, w: join(x[n, c, h, w], y[c, 0, 0]), name=name
        )  # fmt: skip

    biased = along(conv, bias, "Bias_add", lambda p, q: p + q)
    scaled = along(biased, scale, "Bn_mul", lambda p, q: p * q)
    moved = along(scaled, offset, "Bn_add", lambda p, q: p + q)
    return [data, kernel, bias, offset, scale, topi.nn.relu(moved)]


@register_workload
def max_pool2d_auto_scheduler_test(N: int, H: int, W: int, CI: int, padding: int) -> list[Tensor]:
    """[data, the greatest of each 2 x 2 window], NCHW."""
    data = te.placeholder((N, CI, H, W), name="Data")
    found = topi.nn.pool2d(data, [2, 2], [1, 1], [1, 1], [padding] * 4, "max")
    return [data, found]


@register_workload
def min_nm_auto_scheduler_test(N: int, M: int) -> list[Tensor]:
    """[a, the least of each row]."""
    (a,) = _inputs("A", (N, M))
    return [a, topi.min(a, axis=-1)]


@register_workload
def softmax_nm_auto_scheduler_test(N: int, M: int) -> list[Tensor]:
    """[a, softmax of each row]."""
    (a,) = _inputs("A", (N, M))
    return [a, topi.nn.softmax(a, axis=1)]


@register_workload
def softmax_abcd_auto_scheduler_test(a: int, b: int, c: int, d: int) -> list[Tensor]:
    """[x, softmax along its last axis]."""
    (x,) = _inputs("A", (a, b, c, d))
    return [x, topi.nn.softmax(x, axis=-1)]


@register_workload
def invalid_compute_definition() -> list[Tensor]:
    """[a, b], where two axes of b's sum have one name."""
    (a,) = _inputs("A", (10, 10))
    axes: list[Any] = [te.reduce_axis((0, 2), name="r1") for _ in range(2)]
    b = te.compute((10,), lambda i: te.sum(a[i, axes[0] + axes[1]], axis=axes), name="B")
    return [a, b]


@register_workload
def zero_rank_reduce_auto_scheduler_test(N: int) -> list[Tensor]:
    """[a, the sum of all], which has no axis."""
    (a,) = _inputs("A", (N,))
    r = te.reduce_axis((0, N), name="k")
    return [a, te.compute((), lambda: te.sum(a[r], axis=r), name="B")]


@register_workload
def zero_rank_compute_auto_scheduler_test(N: int) -> list[Tensor]:
    """[a, its first element], which has no axis."""
    (a,) = _inputs("A", (N,))
    return [a, te.compute((), lambda: a[0], name="B")]


@register_workload
def conv2d_winograd_nhwc_auto_scheduler_test(
    N: int, H: int, W: int, CI: int, CO: int, kernel_size: int = 3, stride: int = 1,
    padding: int = 0, dilation: int = 1,
) -> list[Tensor]:  # fmt: skip
    """[data, transformed kernel, conv], NHWC, by tiles of 4 x 4 and matrices that are stages."""
    if stride != 1 or dilation != 1:
        raise SpaceError(
            f"conv2d_winograd_nhwc_auto_scheduler_test(stride={stride}, dilation={dilation})",
            "tiles of Winograd's overlap by one step", "Use 1 for both.",
        )  # fmt: skip
    m, r = 4, kernel_size
    alpha = m + r - 1
    inverse_matrix, data_matrix, _ = winograd_transform_matrices(m, r, "float32")
    data = te.placeholder((N, H, W, CI), name="inputs")
    sides = (0, padding, padding, 0)
    padded = topi.nn.pad(data, sides, sides, name="data_pad")
    height, width = (size + 2 * padding - r + 1 for size in (H, W))
    down, across = -(-height // m), -(-width // m)
    tiles = N * down * across
    weight = te.placeholder((alpha, alpha, CI, CO), name="weight")

    def tile(y: Any, x: Any, p: Any, c: Any) -> Any:
        image, row, column = p // (down * across), p // across % down, p % across
        return padded[image, row * m + y, column * m + x, c]

    def axes(extent: int, *names: str) -> list[Any]:
        return [te.reduce_axis((0, extent), name=name) for name in names]

    def turned(source: Tensor, matrix: Tensor, size: int, name: str, indices: list[str]) -> Tensor:
        """M^T source M of each tile."""
        a, b = axes(alpha, "r_a", "r_b")
        return te.compute(
            (size, size, tiles, source.shape[-1]),
            lambda y, x, p, c: te.sum(
                source[a, b, p, c] * matrix[a, y] * matrix[b, x], axis=[a, b]
            ),
            name=name, attrs={_UNROLLED: [*indices, "r_a", "r_b"]},
        )  # fmt: skip

    cut = te.compute((alpha, alpha, tiles, CI), tile, name="input_tile")
    packed = turned(cut, data_matrix, alpha, "data_pack", ["y", "x"])
    (ci,) = axes(CI, "ci")
    product = te.compute(
        (alpha, alpha, tiles, CO),
        lambda y, x, p, co: te.sum(packed[y, x, p, ci] * weight[y, x, ci, co], axis=[ci]),
        name="bgemm",
    )
    back = turned(product, inverse_matrix, m, "inverse", ["y", "x"])
    conv = te.compute(
        (N, height, width, CO),
        lambda n, h, w, co: back[
            h % m, w % m, n * down * across + h // m * across + w // m, co
        ],
        name="conv2d_winograd",
    )  # fmt: skip
    return [data, weight, conv]


def get_tiled_matmul() -> tuple[ComputeDAG, State]:
    """A product of 512, and a state in which rows and columns are tiled four deep."""
    tensors = matmul_auto_scheduler_test(512, 512, 512)
    dag, c = ComputeDAG(tensors), tensors[-1]
    state = dag.get_init_state()
    rows = state.split(c, state[c].iters[0], [4, 8, 8])
    columns = state.split(c, state[c].iters[4], [8, 4, 4])
    nested = [it for pair in zip(rows, columns, strict=True) for it in pair]
    state.reorder(c, [*nested, state[c].iters[8]])
    return dag, state


def __getattr__(name: str) -> object:
    raise absent("testing.auto_scheduler", name, {})
