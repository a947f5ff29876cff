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
