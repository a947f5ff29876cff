"""Groups of stages: what is attached is what single calls attach, and kernels stay right."""

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import ScheduleError
from tilewright_tvm import nd, te


def chain(n=12):
    a = te.placeholder((n, n), name="a")
    b = te.compute((n, n), lambda i, j: a[i, j] + 1, name="b")
    c = te.compute((n, n), lambda i, j: b[i, j] * 2, name="c")
    d = te.compute((n, n), lambda i, j: c[i, j] + a[i, j], name="d")
    e = te.compute((n, n), lambda i, j: d[i, j] - 1, name="e")
    return te.create_schedule(e.op), (a, b, c, d, e)


def run(s, *args):
    x = np.random.default_rng(0).standard_normal(tuple(map(int, args[0].shape))).astype("float32")
    out = nd.array(np.zeros(x.shape, "float32"))
    tilewright.build(s, list(args), "llvm")(nd.array(x), out)
    return x, out.numpy()


def test_a_group_is_attached_as_a_whole():
    s, (a, b, c, d, e) = chain()
    group = s.create_group(outputs=d, inputs=b, include_inputs=True)
    assert [st.name for st in group.stages()] == ["b", "c", "d"] and group.num_child_stages == 3
    assert s[b].group is s[d].group is group and s[e].group is None and s.groups == [group]
    s[b].compute_at(s[c], c.op.axis[1])  # stays inside the group
    group.compute_at(s[e], e.op.axis[0])
    assert group.attach_stage is s[e]
    assert (s[b].attach_stage, s[c].attach_stage, s[d].attach_stage) == (s[c], s[e], s[e])
    assert s[d].attach_ivar is s[e].leaf_iter_vars[0] and s[d].attach_type == 4
    alone, (_, b1, c1, d1, e1) = chain()
    alone[b1].compute_at(alone[c1], c1.op.axis[1])
    for t in (d1, c1):
        alone[t].compute_at(alone[e1], e1.op.axis[0])
    assert str(s) == str(alone)
    x, out = run(s, a, e)
    np.testing.assert_allclose(out, 3 * x + 1, rtol=1e-5)
    group.compute_root()
    assert [s[t].attach_type for t in (b, c, d)] == [4, 1, 1]


def test_groups_inside_groups():
    s, (_, b, c, d, e) = chain()
    inner = s.create_group(outputs=c, inputs=b)
    outer = s.create_group(outputs=[d], inputs=[b], include_inputs=True)
    assert list(inner.stages()) == [s[c]]
    assert inner.group is outer and s[c].group is inner and s[b].group is outer
    assert outer.num_child_stages == 3 and set(outer.stages()) == {s[b], s[c], s[d]}
    third = s.create_group(outputs=d, inputs=c)
    assert third.group is outer and s[d].group is third and outer.num_child_stages == 3
    outer.compute_at(s[e], e.op.axis[0])
    assert all(s[t].attach_stage is s[e] for t in (b, c, d))


def test_what_steps_of_a_scan_compute_is_a_group():
    m, n = 5, 6
    x = te.placeholder((m, n), name="x")
    state = te.placeholder((m, n), name="state")
    first = te.compute((1, n), lambda _, i: x[0, i], name="first")
    one = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="one")
    two = te.compute((m, n), lambda t, i: one[t, i] + 1, name="two")
    three = te.compute((m, n), lambda t, i: two[t, i] + 1, name="three")
    out = te.scan(first, three, state, inputs=x)
    assert isinstance(out.op, te.ScanOp) and not isinstance(one.op, te.ScanOp)
    s = te.create_schedule(out.op)
    assert s[one].group is s[two].group is s[three].group is not None
    s[one].compute_at(s[two], two.op.axis[1])
    group = s.create_group(outputs=two, inputs=[state, x])
    assert group.group is s[three].group and s[one].group is group
    group.compute_at(s[three], three.op.axis[1])
    assert s[two].attach_ivar.name == "i" and s[one].attach_stage is s[two]
    given, found = run(s, x, out)
    want = given.copy()
    for t in range(1, m):
        want[t] = want[t - 1] + given[t] + 2
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_refusals():
    s, (a, b, c, d, _) = chain()
    with pytest.raises(ScheduleError, match="no stage is between"):
        s.create_group(outputs=b, inputs=b)
    group = s.create_group(outputs=c, inputs=a)
    with pytest.raises(ScheduleError, match="in a group with stages that this one has not"):
        s.create_group(outputs=d, inputs=b)
    with pytest.raises(ScheduleError, match="it is in the group itself"):
        group.compute_at(s[c], c.op.axis[0])
    with pytest.raises(AttributeError, match=r"s.steps has the steps"):
        _ = s.schedule_record
