"""Winograd's convolutions F(m x m, r x r): tiles of m x m outputs from products in another basis.

In: data and a kernel, as it is or transformed.  Out: transforms around one batched matrix product,
which carries the workload.  Stride and dilation are 1.

    tile = data[m*y .. m*y + alpha, m*x .. m*x + alpha]              alpha = m + r - 1
    out  = A^T ((G kernel G^T) * sum over channels (B^T tile B)) A   * element by element

A transform multiplies by a small constant matrix along one axis.  It is stated as the sums that it
is, chosen by the index: where the loop of that index is unrolled, no constant is read and no zero
is added.  Read next: `topi/templates/winograd.py`, `network/alternatives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from math import prod
from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.tensor import CONSTANTS_ATTR, Tensor
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    is_integer,
    product_dtype,
    require,
    require_float,
    stage,
    sum_of_products,
    workload,
)

Matrix = tuple[tuple[Fraction, ...], ...]
MAX_POINTS = 9  # finite ones; beyond them float32 loses half of its digits
# Where polynomials are evaluated, in the order in which points are taken; the last is infinity.
# Few digits, and each with its reciprocal rather than its negative: that rounds least.
POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "-1/2", "2", "1/4", "-4")))
DEFAULT_TILE = 4


@dataclass(frozen=True)
class Matrices:
    """Of F(m, r): inverse [alpha, m] (A), data [alpha, alpha] (B), kernel [alpha, r] (G).

    data and inverse have powers of two as denominators, so that small whole numbers stay exact.
    """

    inverse: Matrix
    data: Matrix
    kernel: Matrix


@cache
def matrices(m: int, r: int) -> Matrices:
    """The construction of Cook and Toom, transposed, over the first m + r - 2 of `POINTS`."""
    points = POINTS[: m + r - 2]
    others = [[b for b in points if b != a] for a in points]
    scale = [prod((a - b for b in rest), start=Fraction(1)) for a, rest in
             zip(points, others, strict=True)]  # fmt: skip
    last = Fraction(1)
    inverse = [tuple(a**i for i in range(m)) for a in points]
    inverse.append((*[Fraction(0)] * (m - 1), last))
    kernel = [tuple(a**k / s for k in range(r)) for a, s in zip(points, scale, strict=True)]
    kernel.append((*[Fraction(0)] * (r - 1), last))
    rows = [(*_expanded(rest), Fraction(0)) for rest in others]
    rows.append(tuple(_expanded(points)))
    return Matrices(tuple(inverse), tuple(zip(*rows, strict=True)), tuple(kernel))


def _expanded(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the product of x - root, that of x^0 first."""
    zero, found = Fraction(0), [Fraction(1)]
    for root in roots:
        found = [b - root * a for a, b in zip([*found, zero], [zero, *found], strict=True)]
    return found


# -- transforms ------------------------------------------------------------------------------------


def _combined(row: Sequence[Fraction], read: Callable[[int], Expr], dtype: DType) -> Expr:
    """The sum of row[k] * read(k): no term for a zero, no product for a one."""
    terms = [(k, c) for k, c in enumerate(row) if c]
    terms.sort(key=lambda term: term[1] < 0)  # begin with one to add, if there is one

    def term(k: int, c: Fraction) -> Expr:
        return read(k) if c == 1 else read(k) * te.const(float(c), dtype)

    def add(total: Expr, one: tuple[int, Fraction]) -> Expr:
        k, c = one
        return total - term(k, -c) if c < 0 else total + term(k, c)

    (first, factor), *rest = terms
    return reduce(add, rest, term(first, factor))


def chosen(index: Expr, values: Sequence[Expr]) -> Expr:
    """values[index]; of a loop that is unrolled only one of them remains."""
    *rest, found = values
    for k in reversed(range(len(rest))):
        found = te.select(index.equal(k), rest[k], found)
    return found


def _along(
    matrix: Matrix, axis: int, source: Tensor, name: str, names: Sequence[str], dtype: DType
) -> Tensor:
    """result[.., i, ..] = sum over k of matrix[k][i] * source[.., k, ..], i and k being index
    number `axis`; axes 0 and 1 are those of a tile."""
    columns = list(zip(*matrix, strict=True))
    shape = [len(columns) if d == axis else n for d, n in enumerate(source.shape)]

    def body(i: Indices) -> Expr:
        def read(k: int) -> Expr:
            at = tuple(te.const(k, "int32") if d == axis else x for d, x in enumerate(i))
            return source[at].astype(dtype)

        return chosen(i[axis], [_combined(column, read, dtype) for column in columns])

    return stage(
        shape, body, name, f"winograd_{name}", axes=names, attrs={CONSTANTS_ATTR: list(names[:2])}
    )


def _transposed(rows: Matrix) -> Matrix:
    return tuple(zip(*rows, strict=True))


# -- the convolution -------------------------------------------------------------------------------


def winograd(
    data: Tensor,
    weight: Tensor,
    padding: Any = 0,
    tile_size: int = DEFAULT_TILE,
    data_layout: str = "NCHW",
    tiles_first: bool | None = None,
    out_dtype: str | None = None,
    transformed: bool = False,
) -> Tensor:
    """Convolution of stride 1 by tiles of `tile_size` x `tile_size` outputs.

    data:        [N, CI, H, W], or [N, H, W, CI]
    weight:      [CO, CI, R, R] for NCHW, [R, R, CI, CO] for NHWC.  transformed: what
                 `packed_kernel` made, [alpha, alpha, CO, CI] for NHWC, with the last two axes
                 exchanged for NCHW
    tiles_first: whether tiles come before channels in what is computed between; default: as the
                 image does in the data
    """
    place = call_text(
        "conv2d_winograd", data=data, weight=weight, padding=padding, tile_size=tile_size
    )
    require(
        data_layout in ("NCHW", "NHWC"), place, f"data layout {data_layout!r} is unknown",
        "Use NCHW or NHWC.",
    )  # fmt: skip
    check_tensor(data, "data", data_layout, place)
    first = data_layout == "NCHW"
    plain = "OIHW" if first else "HWIO"
    letters = ("E", "U", *("IO" if first else "OI")) if transformed else tuple(plain)
    check_tensor(weight, "weight", " ".join(letters), place)
    size = dict(zip(data_layout, data.shape, strict=True))
    taps = dict(zip(letters, weight.shape, strict=True))
    r = taps["E"] - tile_size + 1 if transformed else taps["H"]
    check_tile(tile_size, r, taps["U" if transformed else "W"], transformed, place)
    require(
        taps["I"] == size["C"], place,
        f"the kernel reads {taps['I']} channels, data has {size['C']}",
        f"Give a kernel of {size['C']} input channels.",
    )  # fmt: skip
    dtype = product_dtype(place, out_dtype, data=data, weight=weight)
    require_float(data, "Winograd's convolution", place)
    window = Window.of([r, r], 1, padding, 1, place)
    height, width = window.output_size([size["H"], size["W"]], place)
    across = (-(-height // tile_size), -(-width // tile_size))
    packed = weight if transformed else packed_kernel(weight, plain, tile_size, first)
    order = "PC" if (data_layout == "NHWC" if tiles_first is None else tiles_first) else "CP"
    tiles = _tiles(data, data_layout, order, window, tile_size, across)
    product = _product(
        tiles, packed, first, order, dtype,
        _workload(data, weight, window, dtype, data_layout, transformed),
    )  # fmt: skip
    return _output(product, order, tile_size, r, data_layout, (size["N"], height, width), across)


def check_tile(m: Any, r: int, other: int, transformed: bool, place: str) -> None:
    """Refuse tiles and kernels that are not offered."""
    require(
        is_integer(m) and m >= 2, place, f"tile_size={m!r} is not an int of at least 2", "Use 4."
    )
    require(
        r == other - m + 1 if transformed else r == other, place, "the kernel is not square",
        "Use conv2d.",
    )  # fmt: skip
    fits = r >= 2 and m + r - 2 <= MAX_POINTS
    require(
        fits, place, f"F({m} x {m}, {r} x {r}) is not offered: a kernel of at least 2 x 2 with "
        f"tile_size + size of the kernel at most {MAX_POINTS + 2}",
        "Use tile_size=2 or 4 with a 3 x 3 kernel; conv2d serves all.",
    )  # fmt: skip


def _workload(
    data: Tensor, weight: Tensor, window: Window, dtype: DType, layout: str, transformed: bool
) -> list[Any]:
    name = f"conv2d_{layout.lower()}_winograd{'_without_weight_transform' * transformed}"
    return workload(name, data, weight, (1, 1), window.padding, (1, 1), dtype)


def packed_kernel(weight: Tensor, layout: str, m: int, inputs_first: bool) -> Tensor:
    """The kernel transformed: [alpha, alpha, I, O], or with O before I."""
    dtype, places = weight.dtype, [layout.index(a) for a in "HWIO"]
    g = _transposed(matrices(m, weight.shape[places[0]]).kernel)
    letters = "HW" + ("IO" if inputs_first else "OI")
    names = ["eps", "nu", "ci", "co"] if inputs_first else ["eps", "nu", "co", "ci"]

    def moved(i: Indices) -> Expr:
        at = dict(zip(letters, i, strict=True))
        return weight[tuple(at[a] for a in layout)]

    shape = [weight.shape[layout.index(a)] for a in letters]
    taps = stage(shape, moved, "kernel_taps", "injective", axes=names)
    rows = _along(g, 0, taps, "kernel_rows", names, dtype)
    return _along(g, 1, rows, "kernel_pack", names, dtype)


def _tiles(
    data: Tensor, layout: str, order: str, window: Window, m: int, across: tuple[int, int]
) -> Tensor:
    """[alpha, alpha, P, C] or [.., C, P]: the data in tiles, transformed."""
    r, alpha = window.kernel[0], m + window.kernel[0] - 1
    before, after = window.pads([layout.index("H"), layout.index("W")], 4)
    for axis, letter in enumerate("HW"):
        at = layout.index(letter)
        after[at] = max(across[axis] * m + r - 1 - data.shape[at] - before[at], 0)
    padded = pad(data, before, after, name="data_pad")
    down, along = across
    count = data.shape[0] * down * along
    extent = {"P": count, "C": data.shape[layout.index("C")]}
    names = ["eps", "nu", *({"P": "p", "C": "ci"}[a] for a in order)]

    def cut(i: Indices) -> Expr:
        eps, nu, *rest = i
        at = dict(zip(order, rest, strict=True))
        image, row, column = _place(at["P"], down, along)
        source = {"N": image, "C": at["C"], "H": row * m + eps, "W": column * m + nu}
        return padded[tuple(source[a] for a in layout)]

    shape = [alpha, alpha, *(extent[a] for a in order)]
    tile = stage(shape, cut, "input_tile", "injective", axes=names)
    b = matrices(m, r).data
    rows = _along(b, 0, tile, "data_rows", names, data.dtype)
    return _along(b, 1, rows, "data_pack", names, data.dtype)


def _place(p: Expr, down: int, along: int) -> tuple[Expr, Expr, Expr]:
    """Image, row and column of a tile."""
    return p // (down * along), p // along % down, p % along


def _product(
    tiles: Tensor, weight: Tensor, inputs_first: bool, order: str, dtype: DType, what: list[Any]
) -> Tensor:
    outputs = weight.shape[3 if inputs_first else 2]
    channel = order.index("C") + 2
    ci = te.reduce_axis((0, tiles.shape[channel]), "ci")
    shape = [outputs if d == channel else n for d, n in enumerate(tiles.shape)]
    names = ["eps", "nu", *({"P": "p", "C": "co"}[a] for a in order)]

    def body(i: Indices) -> Expr:
        eps, nu, co = i[0], i[1], i[channel]
        value = tiles[tuple(ci.as_expr() if d == channel else x for d, x in enumerate(i))]
        weights = (ci.as_expr(), co) if inputs_first else (co, ci.as_expr())
        return sum_of_products(value, weight[(eps, nu, *weights)], dtype, [ci])

    free = {"layout_free_placeholders": [weight.name]}
    return stage(
        shape, body, "bgemm", f"winograd_{order.lower()}", axes=names, workload=what, attrs=free
    )


def _output(
    product: Tensor,
    order: str,
    m: int,
    r: int,
    layout: str,
    size: tuple[int, int, int],
    across: tuple[int, int],
) -> Tensor:
    a, dtype = matrices(m, r).inverse, product.dtype
    names = ["vh", "vw", *({"P": "p", "C": "co"}[x] for x in order)]
    rows = _along(a, 0, product, "inverse_rows", names, dtype)
    inverse = _along(a, 1, rows, "inverse", names, dtype)
    images, height, width = size
    down, along = across
    channels = product.shape[order.index("C") + 2]

    def body(i: Indices) -> Expr:
        at = dict(zip(layout, i, strict=True))
        tile = at["N"] * (down * along) + at["H"] // m * along + at["W"] // m
        place = {"P": tile, "C": at["C"]}
        return inverse[(at["H"] % m, at["W"] % m, *(place[x] for x in order))]

    extent = {"N": images, "C": channels, "H": height, "W": width}
    axes = {"N": "n", "C": "co", "H": "h", "W": "w"}
    shape = [extent[x] for x in layout]
    return stage(
        shape, body, "conv2d_winograd", "conv2d_winograd", axes=[axes[x] for x in layout]
    )  # fmt: skip
