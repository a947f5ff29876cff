"""Sums of products by matrix instructions: what they compute, in both interpreters and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowering.tensor_products import Convolution, Product, convolution, product
from tests import interpreter
from tests.tiers import examples
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.ir.atoms import ATOMS
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import LoadRows, Mma, Program, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.tree.legality import check
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

TARGET = Target("cuda -arch=sm_90 -precision=tf32")


def lowered(schedule, args) -> Program:
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    check(Resources(bounds, TARGET), "test")
    program = lower_schedule(schedule, TARGET, args=args, tree=tree, bounds=bounds)
    verify(program)
    return program


def drawn(shape, dtype, rng):
    """Small numbers of few digits, so that sums are exact in any order; of bytes all."""
    if not dtype.is_float:
        least, greatest = (dtype.least, dtype.greatest) if dtype.bits == 8 else (-1000, 1000)
        return rng.integers(least, greatest, shape, endpoint=True).astype(dtype.storage)
    return (rng.integers(-8, 9, shape) / 8).astype(dtype.storage)


PRODUCTS = {
    "the example": Product(),
    "bfloat16": Product(atom="m16n8k16.bfloat16"),
    "tf32": Product(atom="m16n8k8.tf32", block=(64, 64, 16)),
    "columns in a row": Product(order="nk"),
    "rows apart": Product(skew=8, order="nk"),
    "tf32, rows apart": Product(atom="m16n8k8.tf32", block=(64, 64, 16), skew=4, order="nk"),
    "one warp": Product(m=16, n=8, k=16, block=(16, 8, 16), warps=(1, 1)),
    "straight from global memory": Product(
        m=32, n=16, k=48, staged=False, block=(32, 16, 16), warps=(2, 1)
    ),
    "uneven": Product(m=50, n=45, k=37, warps=(2, 1)),
    "uneven, straight": Product(m=50, n=45, k=37, staged=False, order="nk"),
    "less than an atom": Product(m=5, n=3, k=7, block=(16, 8, 16), warps=(1, 1)),
    "halves as sums": Product(halved=True),
    "swizzled": Product(swizzle=64, order="nk"),
    "swizzled, in a ring": Product(block=(32, 32, 64), k=192, slots=2, swizzle=128),
    "tf32, swizzled": Product(
        atom="m16n8k8.tf32", block=(64, 64, 16), swizzle=32, order="nk", slots=3
    ),
    "3xtf32": Product(atom="m16n8k8.3xtf32", block=(64, 64, 16), skew=4, order="nk"),
    "bytes": Product(atom="m16n8k32.int8", block=(64, 64, 32), order="nk", skew=16),
    "bytes of two types": Product(
        m=50, n=45, k=70, atom="m16n8k32.uint8.int8", block=(32, 32, 64), order="nk", skew=16
    ),
    "bytes, columns apart": Product(m=32, n=32, atom="m16n8k32.uint8", block=(32, 32, 32)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("p", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_what_numpy_says(p: Product) -> None:
    agrees(p, run_fast, interpreter.run)


def test_a_product_of_one_atom_is_what_numpy_says() -> None:
    agrees(PRODUCTS["less than an atom"], run_fast, interpreter.run)


def agrees(p: Product, *runs) -> None:
    schedule, args = product(p)
    program = lowered(schedule, args)
    assert any(isinstance(s, Mma) for k in program.kernels for s in statements(k.body))
    rng = np.random.default_rng(0)
    arrays = [drawn([int(n) for n in t.shape], t.dtype, rng) for t in args]
    a, b, bias = (x.astype(np.float64) for x in arrays[:3])
    sums = a @ (b if p.order == "kn" else b.T)
    if p.halved:  # readers get them rounded
        sums = sums.astype(arrays[0].dtype).astype(np.float64)
    expected = np.maximum(sums + bias, 0).astype(arrays[3].dtype)
    for run in runs:
        arrays[3] = np.zeros_like(arrays[3])
        run(program, arrays)
        np.testing.assert_array_equal(arrays[3].astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("the example", {(4, False), (4, True)}), ("bfloat16", {(4, False), (4, True)}),
        ("columns in a row", {(4, False)}), ("rows apart", {(4, False)}),
        ("one warp", {(4, False), (2, True)}), ("straight from global memory", set()),
        ("tf32", {(4, False)}), ("tf32, rows apart", {(4, False)}), ("uneven", set()),
        ("swizzled", {(4, False)}), ("tf32, swizzled", {(4, False)}),
        ("3xtf32", {(4, False)}), ("bytes", {(4, False)}), ("bytes, columns apart", {(4, False)}),
    ],
)  # fmt: skip
def test_rows_of_shared_memory_are_loaded_as_matrices(name: str, loads) -> None:
    program = lowered(*product(PRODUCTS[name]))
    found = [s for s in statements(program.kernels[0].body) if isinstance(s, LoadRows)]
    assert {(s.matrices, s.transposed) for s in found} == loads


@st.composite
def products(draw) -> Product:
    """Up to some atoms in each direction, in tiles of which the last are not full."""
    atom = draw(st.sampled_from(sorted(ATOMS)))
    size = ATOMS[atom].extents
    warps = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    tiles = [draw(st.integers(1, 2)) for _ in "mnk"]
    block = tuple(
        n * size[x] * w for n, x, w in zip(tiles, "mnk", (*warps, 1), strict=True)
    )  # fmt: skip
    extents = [draw(st.integers(2, 2 * size[x])) for x in "mnk"]
    staged, halved = draw(st.booleans()), draw(st.booleans()) and ATOMS[atom].sum.dtype.is_float
    order = draw(st.sampled_from(["kn", "nk"]))
    skew = draw(st.sampled_from([0, 4, 8]))
    swizzle, slots = draw(st.sampled_from([0, 0, 32, 64, 128])), draw(st.integers(0, 3))
    return Product(*extents, atom, block, warps, order, staged, halved, skew, swizzle, slots)


@pytest.mark.slow
@given(products())
@examples(30)
def test_products_of_any_size_are_what_numpy_says(p: Product) -> None:
    agrees(p, run_fast)


@pytest.mark.slow
@pytest.mark.parametrize("name", [
    "the example", "bfloat16", "tf32", "uneven", "tf32, rows apart", "3xtf32", "bytes",
    "bytes of two types", "tf32, swizzled",
])  # fmt: skip
def test_nvrtc_accepts(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(lowered(*product(PRODUCTS[name])), TARGET), TARGET)
    assert "warning" not in made.meta["log"] and "0 bytes spill stores" in made.meta["log"]


CONVOLUTIONS = {
    "as it is": Convolution(),
    "few channels": Convolution(batch=1, channels=5, outputs=20, size=9, columns=16),
    "straight from global memory": Convolution(batch=1, staged=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("p", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_a_convolution_is_what_numpy_says(p: Convolution) -> None:
    program = lowered(*(made := convolution(p)))
    rng = np.random.default_rng(0)
    image, weights, out = (drawn([int(n) for n in t.shape], t.dtype, rng) for t in made[1])
    around = np.pad(image.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    expected = np.einsum("bcyxij,ocij->boyx", windows, weights.astype(np.float64))
    for run in (run_fast, interpreter.run):
        out = np.zeros_like(out)
        run(program, [image, weights, out])
        np.testing.assert_array_equal(out, np.maximum(expected, 0).astype(np.float16))
