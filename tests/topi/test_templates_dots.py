"""Products of bytes by threads: `dense.dots` and `conv*.dots`, where no matrix unit fits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.topi.test_templates_atoms import computed, integers
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

OLD = Target("cuda -arch=sm_61")


def dense(m: int, n: int, k: int, left: str = "int8", right: str = "int8") -> list[Tensor]:
    a, b = te.placeholder((m, k), left, "A"), te.placeholder((n, k), right, "B")
    r = te.reduce_axis((0, k), "r")

    def term(i: Any, j: Any) -> Any:
        return a[i, r].astype("int32") * b[j, r].astype("int32")

    c = te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), "C", tag="dense")
    return [a, b, te.compute((m, n), lambda *i: te.maximum(c[i], 0), "D")]


def conv(size: int, inputs: int, outputs: int, **how: Any) -> list[Tensor]:
    channels = inputs // how.get("groups", 1)
    x = te.placeholder((1, inputs, size, size), "int8", "X")
    w = te.placeholder((outputs, channels, 3, 3), "int8", "W", constant=True)
    stride = how.pop("stride", 1)
    return [x, w, topi.nn.conv2d(x, w, stride, 1, 1, "NCHW", out_dtype="int32", **how)]


CASES = {
    "uneven": (dense, 9, 13, 21), "two types": (dense, 32, 24, 64, "uint8", "int8"),
    "the other way round": (dense, 8, 8, 16, "int8", "uint8"), "image": (conv, 5, 7, 12),
    "groups": (lambda: conv(6, 8, 8, groups=2),), "steps": (lambda: conv(9, 3, 8, stride=2),),
}  # fmt: skip


def dots_of(tensors: list[Tensor], target: Target = OLD) -> Sketch:
    dag = ComputeDAG(tensors)
    found = (t for t in anchor_templates(dag, target) if t.name.endswith(".dots"))
    return sketch_of_anchor(next(found), dag, target)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_members_are_what_the_reference_says(case: tuple[Any, ...]) -> None:
    make, *sizes = case
    tensors = make(*sizes)
    sketch, rng = dots_of(tensors), np.random.default_rng(3)
    given = [integers(rng, t) for t in tensors[:-1]]
    (expected,) = evaluate(ComputeDAG(tensors), given)
    for index in (sketch.fallback(), int(sketch.space.sample(1, rng)[0])):
        np.testing.assert_array_equal(computed(sketch, index, tensors, given), expected)


def test_words_come_through_rings_where_copies_go_on_alone() -> None:
    """Groups of a few channels fill no unit, so that newer devices have the template for these."""
    tensors = conv(6, 8, 8, groups=2)
    assert "wait" not in str(dots_of(tensors).space)
    new = dots_of(tensors, Target("cuda -arch=sm_90"))
    assert any("m1n1k4.int8" in str(step) for step in new.close(new.fallback()).steps)


def test_it_is_for_devices_whose_units_multiply_no_bytes() -> None:
    tensors = dense(32, 32, 64)
    with pytest.raises(ScheduleError, match="matrix units multiply it"):
        dots_of(tensors, Target("cuda -arch=sm_90"))
    with pytest.raises(ScheduleError, match="add up no products of int8"):
        dots_of(tensors, Target("cuda -arch=sm_53"))
    with pytest.raises(ScheduleError, match="add up no products of float16"):
        dots_of([*dense(32, 32, 64, "float16", "float16")][:3])


# -- CPUs ------------------------------------------------------------------------------------------

CPU = Target("llvm -mcpu=icelake-server -mtriple=x86_64-linux-gnu")
PRODUCTS = {"wide": (12, 64, 32), "narrow": (7, 24, 20), "one vector": (33, 4, 8)}


def packable(m: int, n: int, k: int, constant: bool = True) -> list[Tensor]:
    a = te.placeholder((m, k), "uint8", "A")
    b = te.placeholder((n, k), "int8", "B", constant=constant)
    r = te.reduce_axis((0, k), "r")

    def term(i: Any, j: Any) -> Any:
        return a[i, r].astype("int32") * b[j, r].astype("int32")

    return [a, b, te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), "C", tag="dense")]


def first_dots(tensors: list[Tensor], target: Target) -> Sketch:
    dag = ComputeDAG(tensors)
    first, *_ = anchor_templates(dag, target)
    assert first.name == "dense.dots.llvm"
    return sketch_of_anchor(first, dag, target)


@pytest.mark.parametrize("sizes", PRODUCTS.values(), ids=PRODUCTS)
def test_vectors_of_a_cpu_are_what_the_reference_says(sizes: tuple[int, int, int]) -> None:
    tensors, rng = packable(*sizes), np.random.default_rng(4)
    sketch, given = first_dots(tensors, CPU), [integers(rng, t) for t in tensors[:-1]]
    (expected,) = evaluate(ComputeDAG(tensors), given)
    for index in (sketch.fallback(), int(sketch.space.sample(1, rng)[0])):
        np.testing.assert_array_equal(computed(sketch, index, tensors, given), expected)


@pytest.mark.parametrize(
    ("tensors", "target", "why"),
    [
        (packable(8, 64, 32), "llvm -mcpu=haswell", "add.* up no products of uint8 and int8"),
        (packable(8, 63, 32), CPU, "63 columns of 32 numbers are no whole vectors"),
        (packable(8, 64, 30), CPU, "64 columns of 30 numbers are no whole vectors"),
        (packable(8, 64, 32, constant=False), CPU, "its weight .* is used too seldom"),
        (dense(32, 64, 32), CPU, "no .* of int8 and int8 four"),
    ],
)
def test_a_cpu_product_that_has_other_templates(tensors: Any, target: Any, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        first_dots(tensors, Target(target))
