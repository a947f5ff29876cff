"""Gates on GPUs: small products of a row, and the image that they scale, are one kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")


def gate(
    size: int, channels: int, hidden: int | None, dtype: str = "float16", along: int = 3
) -> list[Tensor]:
    """An image times factors; hidden: elements between two products, or there is one product."""

    def named(name: str, *shape: int, constant: bool = True) -> Tensor:
        return te.placeholder(shape, dtype, name, constant=constant)

    row = [named("means", 1, channels, constant=False)]
    args = list(row)
    for k, (n, depth) in enumerate(
        [(channels, channels)] if hidden is None else [(hidden, channels), (channels, hidden)]
    ):
        weight, bias = named(f"weight{k}", n, depth), named(f"bias{k}", 1, n)
        args += [weight, bias]
        row = [topi.nn.relu(topi.add(topi.nn.dense(row[0], weight), bias))]
    shape = [1, size, size, size]
    shape[along] = channels
    image = named("image", *shape, constant=False)
    factor = topi.reshape(row[0], [n if d == along else 1 for d, n in enumerate(shape)])
    return [*args, image, topi.multiply(image, factor)]


CASES = {
    "two products": gate(5, 48, 24),
    "odd": gate(6, 24, 7),
    "one product": gate(4, 40, None),
    "no vectors": gate(5, 15, 9),
    "float32": gate(4, 32, 12, "float32"),
}


def sketch_of(tensors: list[Tensor]) -> Sketch:
    dag = ComputeDAG(tensors)
    (registered,) = (t for t in anchor_templates(dag, CUDA) if t.name == "dense.gate")
    return sketch_of_anchor(registered, dag, CUDA)


def check(schedule: Schedule, tensors: list[Tensor]) -> None:
    rng = np.random.default_rng(0)
    given = [rng.integers(-1, 2, t.shape).astype(t.dtype.storage) for t in tensors[:-1]]
    program = lower_schedule(schedule, CUDA, args=tensors)
    assert len(program.kernels) == 1
    out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
    run_fast(program, [*given, out])
    np.testing.assert_array_equal(out, evaluate(schedule.dag, given)[0])


@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_the_reference_says(name: str) -> None:
    tensors = CASES[name]
    sketch = sketch_of(tensors)
    some = sketch.space.sample(64, np.random.default_rng(0))
    legal = some[sketch.legal(some, sensible=False)]
    for index in legal[:: max(len(legal) // 4, 1)]:
        check(sketch.close(int(index)), tensors)
    check(default_schedule(sketch.dag, CUDA), tensors)


def test_it_is_the_one_for_gates() -> None:
    dag = ComputeDAG(CASES["two products"])
    assert [s.origin for s in anchor_sketches(dag, CUDA)] == ["template:dense.gate"]


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        (gate(16, 48, 24, along=1), "one factor for each channel"),
        (gate(48, 48, 24, along=2), "along its last axis"),
    ],
)
def test_factors_of_other_axes_are_refused(tensors: list[Tensor], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        sketch_of(tensors)
