"""Sums of products by matrix instructions: what they compute, in both interpreters and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from lowering.tensor_products import Product, product
from tests import interpreter
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Mma, Program, statements
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
    """Small numbers of few digits, so that sums are exact in any order."""
    return (rng.integers(-8, 9, shape) / 8).astype(dtype.storage)


PRODUCTS = {
    "the example": Product(),
    "bfloat16": Product(atom="m16n8k16.bfloat16"),
    "tf32": Product(atom="m16n8k8.tf32", block=(64, 64, 16)),
    "columns in a row": Product(order="nk"),
    "one warp": Product(m=16, n=8, k=16, block=(16, 8, 16), warps=(1, 1)),
    "straight from global memory": Product(
        m=32, n=16, k=48, staged=False, block=(32, 16, 16), warps=(2, 1)
    ),
    "uneven": Product(m=50, n=45, k=37, warps=(2, 1)),
    "uneven, straight": Product(m=50, n=45, k=37, staged=False, order="nk"),
    "less than an atom": Product(m=5, n=3, k=7, block=(16, 8, 16), warps=(1, 1)),
    "halves as sums": Product(halved=True),
}  # fmt: skip


@pytest.mark.parametrize("p", PRODUCTS.values(), ids=PRODUCTS)
def test_a_product_is_what_numpy_says(p: Product) -> None:
    schedule, args = product(p)
    program = lowered(schedule, args)
    assert any(isinstance(s, Mma) for k in program.kernels for s in statements(k.body))
    rng = np.random.default_rng(0)
    arrays = [drawn([int(n) for n in t.shape], t.dtype, rng) for t in args]
    a, b, bias = (x.astype(np.float64) for x in arrays[:3])
    expected = np.maximum(a @ (b if p.order == "kn" else b.T) + bias, 0).astype(arrays[3].dtype)
    outputs = []
    for run in (run_fast, interpreter.run):
        arrays[3] = np.zeros_like(arrays[3])
        run(program, arrays)
        np.testing.assert_array_equal(arrays[3].astype(np.float32), expected.astype(np.float32))
        outputs.append(arrays[3])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["the example", "bfloat16", "tf32", "uneven", "uneven, straight"])
def test_nvrtc_accepts(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(lowered(*product(PRODUCTS[name])), TARGET), TARGET)
    assert "warning" not in made.meta["log"] and "0 bytes spill stores" in made.meta["log"]
