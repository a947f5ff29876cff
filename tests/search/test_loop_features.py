"""AutoTVM's features: their layout, and that a population's rows are those of its members."""

import numpy as np
import pytest

from search.spaces import CPU, cpu_task, flagship
from tilewright import te
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.te.dag import ComputeDAG
from tilewright_tvm.autotvm.feature_types import knob_features, rows_of
from tilewright_tvm.autotvm.loop_features import (
    MARKS,
    SAMPLES,
    curve_features,
    itervar_features,
)

HEAD = 4 + len(MARKS) + 3  # of a loop, before its accesses


def only_group(build, tensors):
    dag = ComputeDAG(tensors)
    sketch = Sketch("test", dag, ConfigSpace(), lambda cfg: build(), CPU)
    (group,) = sketch.groups(np.zeros(1, np.int64))
    return group


def matmul_group():
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 8), name="B")
    r = te.reduce_axis((0, 6), "r")
    c = te.compute((4, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")

    def build():
        s = create_schedule([c.op])
        s[c].parallel(s[c].op.axis[0])
        return s

    return only_group(build, [a, b, c])


def test_itervar_rows_of_a_matmul():
    """Loops i (parallel), j, r; accesses of A, B, and two of C."""
    (row,) = itervar_features(matmul_group())
    loops = row.reshape(3, HEAD + 4 * 6)
    lengths, depths, topdown, bottomup = loops[:, :4].T
    assert np.allclose(2**lengths - 1, [4, 8, 6]) and list(depths) == [1, 2, 3]
    assert np.allclose(2**topdown - 1, [4, 32, 192])
    assert np.allclose(2**bottomup - 1, [192, 48, 6])
    marks = [MARKS[int(np.argmax(loop[4 : 4 + len(MARKS)]))] for loop in loops]
    assert marks == ["parallel", "", ""]
    arithmetic = 2 ** loops[:, 4 + len(MARKS) : HEAD] - 1
    assert np.allclose(arithmetic, [[0, 0, 0], [0, 0, 0], [1, 1, 0]])
    a, b, c, _ = loops[0, HEAD:].reshape(4, 6)  # of the loop i
    assert np.allclose(2 ** a[[0, 2, 3]] - 1, [6, 24, 8])  # stride, count, reuse
    assert np.allclose(2 ** b[[0, 2, 3]] - 1, [0, 48, 4])
    assert np.allclose(2 ** c[[0, 2, 3]] - 1, [8, 32, 6])
    assert np.allclose(2 ** a[4:] - 1, [4, 1]) and np.allclose(2 ** b[4:] - 1, [1, 4])
    assert row[HEAD + 1] == -1  # no modulus


def test_curves_of_a_matmul():
    """A: its count is 6 in the innermost loop, with reuse 1; then 6 with 8; then 24 with 8."""
    (row,) = curve_features(matmul_group())
    tables = row.reshape(3, 4, SAMPLES, 2)
    count_to_reuse = tables[0, 0]
    assert count_to_reuse[0].tolist() == [0, 0]
    assert count_to_reuse[3][0] == pytest.approx(3)  # log2 8 at count 8 >= 6
    assert count_to_reuse[3][1] == pytest.approx(3 - np.log2(6))
    assert tables[0, 2, 19, 0] == pytest.approx(np.log2(192))


@pytest.mark.slow
@pytest.mark.parametrize("task", [cpu_task, flagship])
@pytest.mark.parametrize("kind", ["itervar", "curve", "knob"])
def test_rows_of_a_population_are_those_of_its_members(task, kind):
    (sketch,) = task().sketches
    indices = sketch.space.sample(40, np.random.default_rng(0))
    rows, sensible = rows_of(kind, sketch, indices)
    assert np.isfinite(rows).all() and (sensible == sketch.legal(indices)).all()
    assert len(np.unique(rows, axis=0)) > 30
    for k in range(0, 40, 13):
        (alone,), mask = rows_of(kind, sketch, indices[k : k + 1])
        assert mask[0] == sensible[k]
        assert np.allclose(alone, rows[k, : len(alone)], atol=1e-5)
        assert not rows[k, len(alone) :].any()  # wider are other structures


def test_knob_features_are_those_of_the_entities():
    space = flagship().config_space
    indices = space.sample(16, np.random.default_rng(1))
    want = [space.get(int(i)).get_flatten_feature() for i in indices]
    assert np.array_equal(knob_features(space, indices), np.array(want))
