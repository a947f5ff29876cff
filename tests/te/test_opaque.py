"""Stages whose kernels somebody wrote, in another class than te.extern's."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import build
from tilewright.base.errors import ExpressionError, LoweringError, ScheduleError, SpaceError
from tilewright.ir import expr as E
from tilewright.ir.stmt import Allocate, Barrier, Buffer, For, If, Store, Thread, load, seq
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.opaque import Body, Launch, OpaqueOp, Words
from tilewright_tvm import nd, te

GPU = Target("cuda -arch=sm_90")


class Written(OpaqueOp):
    """Kernels by hand."""

    words = Words(name="stage by hand", loops="Write them so.", inside="Stop earlier.")


def shifted(a: te.Tensor, count: int = 8, threads: int = 0) -> te.Tensor:
    """a[i] + 1, in turn; of threads each stores what its neighbour read."""
    x, y = Buffer("x", "float32", 8, "global", (8,)), Buffer("y", "float32", 8, "global", (8,))
    i = E.var("i")
    one = E.const(1.0)
    body = For(i, count, Store(y, i, load(x, i) + one))
    launch = Launch((), body)
    if threads:
        held = Buffer("held", "float32", threads, "shared", (threads,))
        other = (i + 1) % threads
        body = Allocate(held, seq(
            Store(held, i, load(x, i % 8)), Barrier(),
            If(other < 8, Store(y, other, load(held, other) + one)),
        ))  # fmt: skip
        launch = Launch((Thread("threadIdx.x", i, threads),), body)
    return Written("by_hand", [(a, x)], [y], Body((launch,))).outputs[0]


def around(**named: int) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """(2 a, that + 1 by hand, the sum of both)"""
    a = te.placeholder((8,), name="A")
    twice = te.compute((8,), lambda i: a[i] * 2.0, name="twice")
    mid = shifted(twice, **named)
    return a, mid, te.compute((8,), lambda i: mid[i] + twice[i], name="C")


def test_it_is_a_kernel_between_kernels():
    a, _, c = around()
    s = te.create_schedule(c.op)
    program = lower_schedule(s, Target("llvm"), "main")
    assert [k.name for k in program.kernels] == ["main_0", "main_1", "main_2"]
    assert [b.name for b in program.workspaces] == ["twice", "by_hand"]
    x, out = np.arange(8, dtype="float32"), nd.array(np.zeros(8, "float32"))
    build(s, [a, c], "llvm")(nd.array(x), out)
    np.testing.assert_array_equal(out.numpy(), 4 * x + 1)
    np.testing.assert_array_equal(evaluate(ComputeDAG([a, c]), [x])[0], 4 * x + 1)


def test_the_tree_has_no_node_of_it():
    _, mid, c = around()
    s = te.create_schedule(c.op)
    tree = LoopTree(s)
    assert list(tree.opaque) == [s[mid]] and [n.name for n in tree.roots] == ["twice", "C"]
    assert [stage.name for stage in tree.stored_alone] == ["twice", "by_hand", "C"]
    assert "by_hand: float32[8] global, statements" in str(s)


def test_its_own_words_refuse():
    a, mid, c = around()
    s = te.create_schedule(c.op)
    twice = s.stages[1].tensor
    with pytest.raises(ScheduleError, match="stage by hand is computed on its own.*Write them"):
        s[mid].compute_inline()
    with pytest.raises(ScheduleError, match="statements of stage by hand by_hand read the whole"):
        s[twice].compute_inline()
    with pytest.raises(SpaceError, match="by_hand is a stage by hand, which is not"):
        task_of_dag(ComputeDAG([a, c]), Target("llvm"))
    with pytest.raises(ExpressionError, match="statements of stage by hand have no hash"):
        _ = ComputeDAG([a, c]).hash
    with pytest.raises(LoweringError, match="it is at 8 of 8 elements. Stop earlier."):
        lower_schedule(te.create_schedule(around(count=9)[2].op), Target("llvm"))
    threaded = te.create_schedule(around(threads=16)[1].op)
    with pytest.raises(LoweringError, match="which a CPU does not have. Use loops, or build for"):
        lower_schedule(threaded, Target("llvm"))
    s[mid].set_scope("shared")
    with pytest.raises(ScheduleError, match="stage by_hand: a shared buffer ends with its kernel"):
        LoopTree(s)


@pytest.mark.parametrize(("threads", "shared"), [(32, False), (2048, False), (1 << 16, True)])
def test_what_it_takes_of_a_device_counts(threads, shared):
    dag = ComputeDAG([around(threads=threads)[1]])
    s = Schedule(dag)
    resources = Resources(LoopTree(s).bounds(), GPU)
    (own,) = resources.opaque
    assert own.threads == threads and own.shared_bytes == 4 * threads
    too_many = ["block_dim", "threads"] if threads > 1024 else []
    assert judge(resources).reasons() == too_many + ["shared_memory"] * shared


def test_what_a_scan_and_statements_read_is_there_from_the_first_step():
    a = te.placeholder((8,), name="A")
    twice = te.compute((8,), lambda t: a[t] * 2.0, name="twice")
    mid = shifted(twice)
    state = te.placeholder((8,), name="state")
    begin = te.compute((1,), lambda t: 0.0, name="begin")
    step = te.compute((8,), lambda t: state[t - 1] + twice[t], name="step")
    dag = ComputeDAG([a, mid, te.scan(begin, step, state)])
    assert dag.late == {}
    np.testing.assert_array_equal(evaluate(dag, [np.ones(8, "float32")])[0], np.full(8, 3.0))
