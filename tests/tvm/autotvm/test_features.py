"""`autotvm.feature`: what cost models see of a schedule, by name and as one vector."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright.schedule.schedule import Schedule
from tilewright_tvm import autotvm
from tilewright_tvm.autotvm import feature
from tilewright_tvm.autotvm.loop_features import (
    MARKS,
    SAMPLES,
    curve_features,
    itervar_features,
)
from tilewright_tvm.target import Target
from tilewright_tvm.testing.autotvm import get_sample_task


def product(n: int, m: int, k: int) -> Schedule:
    a, b = te.placeholder((n, k), name="a"), te.placeholder((k, m), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    s = te.create_schedule(c.op)
    s[c].parallel(s[c].op.axis[0])
    return s


def test_numbers_of_loops_by_name() -> None:
    found = feature.get_itervar_feature(product(6, 5, 7))
    assert [row[0][1].name for row in found] == ["i", "j", "r"]
    rows = [{name: numbers for name, *numbers in row[1:]} for row in found]
    marks = [[int(mark == own) for mark in MARKS] for own in ("parallel", "", "")]
    # length, depth, iterations around and inside; stride, modulus, count, reuse of each access
    assert rows[0]["_attr_"] == [6, 1, 6, 6 * 5 * 7, *marks[0]]
    assert rows[1]["_attr_"] == [5, 2, 6 * 5, 5 * 7, *marks[1]]
    assert rows[2]["_attr_"] == [7, 3, 6 * 5 * 7, 7, *marks[2]]
    assert rows[0]["a_0"][:4] == [7, -1, 6 * 7, 5] and rows[0]["b_0"][:4] == [0, -1, 5 * 7, 6]
    assert rows[1]["a_0"][:4] == [0, -1, 7, 5] and rows[1]["c_1"][:4] == [1, -1, 5, 7]
    assert rows[2]["b_0"] == [5, -1, 7, 1, 0, 0] and rows[2]["_arith_"] == [1, 1, 0]
    assert rows[0]["_arith_"] == [0, 0, 0]


def test_a_vector_holds_the_same_numbers_and_names_tell_which() -> None:
    s = product(6, 5, 7)
    found = feature.get_itervar_feature(s)
    flat, names = feature.flatten_itervar_feature(found), feature.get_flatten_name(found)
    assert len(names) == len(flat) == len(set(names)) and names[0] == "f0.i._attr_.length"
    by_name = {name.partition(".")[2]: x for name, x in zip(names, flat.tolist(), strict=True)}
    assert by_name["i._attr_.bottomup"] == 210 and by_name["r.b_0.stride"] == 5
    assert by_name["j.a_0.reuse"] == 5 and by_name["r._arith_.mul"] == 1
    logs = feature.get_itervar_feature_flatten(s)
    kept = [("nest_level" in name or "ann_" in name) for name in names]
    logarithms = np.sign(flat) * np.log2(np.abs(flat) + 1)
    np.testing.assert_allclose(logs, np.where(kept, flat, logarithms), rtol=1e-6)
    assert feature.get_itervar_feature_flatten(s, take_log=False).tolist() == flat.tolist()


@pytest.mark.parametrize("given", [[2, 3], "x", [[["_itervar_", 1], ["a"]]], [[]], [None]])
def test_what_is_no_list_of_features_is_refused(given: object) -> None:
    for function in (feature.flatten_itervar_feature, feature.get_flatten_name):
        with pytest.raises(SpaceError):
            function(given)  # type: ignore[arg-type]


def test_features_of_a_schedule_are_those_that_tuners_see() -> None:
    task, target = get_sample_task(32)
    (sketch,) = task.sketches
    closed = sketch.close(3)
    with target:
        rows = feature.get_itervar_feature_flatten(closed, [])
        curve = feature.get_buffer_curve_sample_flatten(closed)
        finer = feature.get_buffer_curve_sample_flatten(closed, sample_n=30)
    (group,) = sketch.groups(np.array([3]))
    assert rows.tolist() == itervar_features(group)[0].tolist()
    assert curve.tolist() == curve_features(group)[0].tolist() and curve.any()
    few, many = (x.reshape(3, 4, n, 2) for x, n in ((curve, SAMPLES), (finer, 30)))
    assert (many[:, :, :SAMPLES] == few).all()
    assert (many[:, :, 29] - many[:, :, 19] == [0, 10]).all()  # the curves have ended before
    with pytest.raises(SpaceError, match="not from 1 to 64"):
        feature.get_buffer_curve_sample_flatten(closed, sample_n=0)


def test_loops_of_every_order_give_vectors_of_one_width() -> None:
    widths = set()
    for target in (Target("cuda"), Target("llvm")):
        for swapped in (False, True):
            a = te.placeholder((64, 32), name="a")
            c = te.compute((64, 32), lambda i, j, a=a: a[i, j] * 2.0, name="c")
            s = te.create_schedule(c.op)
            axes = s[c].op.axis
            s[c].reorder(*(reversed(axes) if swapped else axes))
            if target.kind == "cuda":
                s[c].bind(axes[0], te.thread_axis("blockIdx.x"))
                s[c].bind(axes[1], te.thread_axis("threadIdx.x"))
            with target:
                widths.add(len(autotvm.feature.get_itervar_feature_flatten(s)))
    assert len(widths) == 1
