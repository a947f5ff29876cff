"""Norms and softmax by rows on GPUs: every member is right, and every knob does what it says."""

import numpy as np
import pytest

from strategies import assert_computes
from tilewright import te, topi
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp

GPU = Target("cuda")
OPERATORS = {
    "softmax": topi.nn.softmax,
    "log_softmax": topi.nn.log_softmax,
    "layer norm": topi.nn.standardize,
    "rms norm": lambda x: topi.nn.standardize(x, center=False),
    "what follows": lambda x: topi.tanh(topi.nn.standardize(topi.multiply(x, 0.5))),
    "softmax of a sum": lambda x: topi.nn.softmax(topi.add(x, topi.exp(x))),
}


def dag(name: str, *shape: int, dtype: str = "float32") -> ComputeDAG:
    x = te.placeholder(shape, dtype, "x")
    return ComputeDAG([x, OPERATORS[name](x)])


def rows(computation: ComputeDAG) -> Sketch:
    found = {sketch.origin: sketch for sketch in anchor_sketches(computation, GPU)}
    return found["template:rows.gpu"]


def member(sketch: Sketch, **values: object) -> int:
    """The first member with these values of knobs."""
    held = {name: values.get(name, knob[0].val) for name, knob in sketch.space.space_map.items()}
    positions = [
        [[e.val for e in knob].index(held[name])] for name, knob in sketch.space.space_map.items()
    ]
    return int(sketch.space.indices(np.array(positions))[0])


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("shape", [(6, 96), (2, 3, 37), (1, 5, 64)], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_member_is_one_right_kernel(name, shape):
    computation = dag(name, *shape)
    sketch = rows(computation)
    count = len(sketch.space)
    drawn = np.random.default_rng(0).integers(0, count, 3).tolist()
    for index in {0, count - 1, sketch.fallback(), *drawn}:
        schedule = sketch.close(index)
        assert_computes(lower_schedule(schedule, GPU), computation)
        roots = [s for s in schedule.stages if s.attach_kind == "root"]
        assert sum(isinstance(s.op, ComputeOp) for s in roots) == 1


def test_rows_of_halves_are_right():
    computation = dag("softmax", 4, 80, dtype="float16")
    sketch = rows(computation)
    assert max(e.val for e in sketch.space.space_map["vector"]) == 8
    index = member(sketch, vector=8, fetch=True, keep=True, rows=4)
    assert_computes(lower_schedule(sketch.close(index), GPU), computation)


def test_knobs_have_their_effects():
    sketch = rows(dag("softmax", 8, 96))

    def text(**values: object) -> str:
        return str(sketch.close(member(sketch, **values)))

    plain = text(threads=32, rows=1)
    assert "blockIdx.x for i0.outer in 8" in plain
    assert "x.shared" not in plain and "T_softmax_exp: inlined" in plain
    assert "threadIdx.x" in plain and " in 32" in plain
    assert "blockIdx.x for i0.outer in 2" in text(rows=4)
    assert "x.shared" in text(fetch=True)
    assert "T_softmax_exp: inlined" not in text(keep=True)
    assert "vectorized for i1.inner in 4" in text(vector=4)


def test_untuned_a_block_has_a_row_or_several_short_ones():
    def values(*shape: int) -> dict[str, object]:
        sketch = rows(dag("layer norm", *shape))
        return {n: sketch.space.get(sketch.fallback())[n].val for n in ("threads", "rows")}

    assert values(128, 768) == {"threads": 256, "rows": 1}
    assert values(12, 49, 49) == {"threads": 32, "rows": 2}
    assert "threadIdx.y" in str(default_schedule(dag("softmax", 40, 20), GPU))


@pytest.mark.parametrize(
    "computation",
    [
        dag("softmax", 40, 10),  # fewer elements than threads
        dag("softmax", 2, 1 << 17),
        ComputeDAG([x := te.placeholder((4, 96), name="x"), topi.sum(x, 1)]),
        ComputeDAG([x := te.placeholder((4, 96), name="x"), topi.nn.softmax(x, 0)]),
    ],
)
def test_what_has_no_such_rows_is_left_to_others(computation):
    assert anchor_sketches(computation, GPU) == []
