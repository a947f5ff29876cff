"""Matrix units asked for what they lack: refused with place, reason and way out, never guessed; and
sums of halves that leave their range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lowering.tensor_products import Product, product
from tests.topi.test_templates_atoms import CUDA, computed, plain_dense, sketch_of
from tilewright import te
from tilewright.base.errors import LegalityError, LoweringError, ScheduleError
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.schedule.thread_loops import lanes
from tilewright.schedule.tree.legality import check
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance

FLOATS = {"tf32": "m16n8k8.tf32", "3xtf32": "m16n8k8.3xtf32"}


def checked(schedule: Any, target: Target) -> None:
    check(Resources(LoopTree(schedule).bounds(), target), "product")


@pytest.mark.parametrize("precision", FLOATS)
def test_fewer_digits_than_the_target_allows(precision: str) -> None:
    """The way out names the precision that would do."""
    schedule, _ = product(Product(atom=FLOATS[precision], block=(64, 64, 16)))
    with pytest.raises(LegalityError, match=rf"\(precision\).*-precision={precision}\."):
        checked(schedule, CUDA)
    checked(schedule, CUDA.with_precision(precision))
    checked(schedule, CUDA.with_precision("tf32"))


def test_3xtf32_is_no_tf32() -> None:
    schedule, _ = product(Product(atom="m16n8k8.tf32", block=(64, 64, 16)))
    with pytest.raises(LegalityError, match=r"\(precision\).*-precision=tf32\."):
        checked(schedule, CUDA.with_precision("3xtf32"))


@pytest.mark.parametrize("atom", ["m16n8k32.int8", "m16n8k32.uint8.int8", "m16n8k16.float16"])
@pytest.mark.parametrize("target", ["cuda -arch=sm_75", "opencl"])
def test_an_instruction_that_the_device_lacks(atom: str, target: str) -> None:
    depth = 64 if "k32" in atom else 32
    schedule, _ = product(Product(atom=atom, block=(64, 64, depth)))
    with pytest.raises(LegalityError, match=r"\(atom\)"):
        checked(schedule, Target(target))
    with pytest.raises(LoweringError, match="has no such instruction"):
        lower_schedule(schedule, Target(target))


def test_an_instruction_that_nobody_has() -> None:
    a, b = (te.placeholder((32, 32), "int8", name=name) for name in "AB")
    r = te.reduce_axis((0, 32), "r")
    c = te.compute((32, 32), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r, acc_dtype="int32"))
    s = te.create_schedule(c.op)
    with pytest.raises(ScheduleError, match="no such atom. There are .*m16n8k32.int8"):
        s[c].tensorize(s[c].op.axis[0], "m16n8k32.int4")
    with pytest.raises(ScheduleError, match="no such atom. There are .*m16n8k32.int8"):
        lanes(s[c], *s[c].op.axis, "m16n8k32.int4")


def test_sums_of_another_type() -> None:
    """Bytes are added up in int32, and no template takes an atom for sums in something else."""
    a, b = (te.placeholder((32, 32), "int8", name=name) for name in "AB")
    r = te.reduce_axis((0, 32), "r")
    c = te.compute((32, 32), lambda i, j: te.sum(
        a[i, r].astype("int64") * b[j, r].astype("int64"), axis=r), tag="dense")  # fmt: skip
    (registered,) = (t for t in anchor_templates(ComputeDAG([a, b, c]), CUDA) if "tensor" in t.name)
    with pytest.raises(ScheduleError, match="multiplies no matrices of int8 with sums in int64"):
        sketch_of_anchor(registered, ComputeDAG([a, b, c]), CUDA)


@pytest.mark.parametrize("kind", ["float64", "int16", "int32"])
def test_a_type_that_no_unit_multiplies_has_other_templates(kind: str) -> None:
    a, b = (te.placeholder((32, 32), kind, name=name) for name in "AB")
    r = te.reduce_axis((0, 32), "r")
    c = te.compute((32, 32), lambda i, j: te.sum(
        a[i, r].astype("int32" if kind == "int16" else kind) * b[j, r], axis=r), tag="dense",
    )  # fmt: skip
    sketches = anchor_sketches(ComputeDAG([a, b, c]), CUDA.with_precision("tf32"))
    assert sketches and not any("tensor" in s.origin for s in sketches)


def test_a_tile_that_does_not_fit_the_atom() -> None:
    schedule, _ = product(Product(atom="m16n8k32.int8", block=(64, 64, 48)))
    with pytest.raises(LegalityError, match=r"\(atom\)"):
        checked(schedule, CUDA)
    with pytest.raises(LegalityError, match="split by 48, and k of m16n8k32.int8 is 32"):
        lower_schedule(schedule, CUDA)


def test_a_ring_that_does_not_fit_shared_memory() -> None:
    p = Product(m=256, n=256, k=4096, block=(256, 256, 64), warps=(4, 2))
    schedule, _ = product(p)
    checked(schedule, CUDA)
    for stage in schedule.stages:
        if stage.scope == "shared":
            stage.pipeline(4)
    with pytest.raises(LegalityError, match=r"more shared memory.*shared_bytes=262144"):
        checked(schedule, CUDA)


# -- halves beyond their range ---------------------------------------------------------------------


def large(last: float) -> list[np.ndarray]:
    """Rows whose sums pass 65,504 on the way, and end at `last` times 256."""
    data = np.full((16, 32), 256.0, np.float16)
    weight = np.full((8, 32), 128.0, np.float16)
    weight[:, 16:] = -128.0
    weight[:, -1] = -128.0 + last
    return [data, weight]


@pytest.mark.parametrize("last", [1.0, 255.0, 257.0])
def test_sums_of_halves_pass_what_a_half_holds(last: float) -> None:
    """16 terms of 32,768 are 524,288, which no half holds; what is left does, or becomes infinite
    at the store: the check expects that."""
    data = te.placeholder((16, 32), "float16", "data")
    weight = te.placeholder((8, 32), "float16", "weight")
    r = te.reduce_axis((0, 32), "r")

    def term(i: Any, j: Any) -> Any:
        return data[i, r].astype("float32") * weight[j, r].astype("float32")

    sums = te.compute((16, 8), lambda i, j: te.sum(term(i, j), axis=r), name="S", tag="dense")
    out = te.compute((16, 8), lambda *i: sums[i].astype("float16"), name="O")
    tensors, given = [data, weight, out], large(last)
    (value,), (bound,) = evaluate_with_tolerance(ComputeDAG(tensors), given)
    sketch = sketch_of(tensors)
    found = computed(sketch, sketch.fallback(), tensors, given)
    assert (found == (256 * last if last < 256 else np.inf)).all()
    assert agrees(found, value, bound).all()
    wrong = np.full_like(found, np.inf if last < 256 else 65504.0)
    assert not agrees(wrong, value, bound).any()


def test_inputs_that_are_drawn_show_sums_that_are_halves() -> None:
    """A kernel that adds up in halves is found out, at the latest by whole numbers."""
    tensors = plain_dense(16, 8, 4096, "float16")
    for case in cases(ComputeDAG(tensors)):
        a, b = case.inputs
        total = np.zeros((16, 8), np.float16)
        for k in range(a.shape[1]):
            total = total + a[:, k, None] * b.T[k, None]
        if not agrees(total.astype(np.float32), case.expected[0], case.tolerance[0]).all():
            return
    raise AssertionError("both cases allow it")
