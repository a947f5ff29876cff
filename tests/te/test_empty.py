"""Tensors without elements: they are declared, scheduled, built and run like others."""

import numpy as np
import pytest

from tilewright import build, te, topi
from tilewright.base.errors import SpaceError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.task import task_of_dag
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright_tvm import nd

CASES = {
    "copy": ([(0, 3)], lambda a: a + 1.0, lambda a: a + 1),
    "inner": ([(3, 0)], lambda a: a + 1.0, lambda a: a + 1),
    "reshape": ([(4, 0)], lambda a: topi.reshape(a, (0, 7)), lambda a: a.reshape(0, 7)),
    "sum": ([(4, 0)], lambda a: topi.sum(a, axis=1), lambda a: a.sum(1)),
    "max": ([(4, 0)], lambda a: topi.max(a, axis=0), lambda a: a.max(0)),
    "concatenate": (
        [(0, 2), (3, 2)], lambda a, b: topi.concatenate([a, b], 0), lambda a, b: np.vstack([a, b]),
    ),
    "slice": ([(4, 2)], lambda a: topi.strided_slice(a, [2], [1]), lambda a: a[2:1]),
    "product": (
        [(3, 0), (0, 5)], lambda a, b: topi.nn.matmul(a, b), lambda a, b: a @ b,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ["llvm", "opencl", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_what_has_no_elements(name: str, kind: str) -> None:
    shapes, make, expected = CASES[name]
    inputs = [te.placeholder(shape, name=f"X{k}") for k, shape in enumerate(shapes)]
    rng = np.random.default_rng(0)
    given = [rng.random(shape, "float32") for shape in shapes]
    dag = ComputeDAG([*inputs, make(*inputs)])
    wanted = expected(*given)
    np.testing.assert_allclose(evaluate(dag, given)[0], wanted)
    assert ComputeDAG.from_json(dag.to_json()).hash == dag.hash
    schedule = default_schedule(dag, Target(kind))
    out = np.full(wanted.shape, 7, "float32")
    run_fast(lower_schedule(schedule, Target(kind)), [*given, out])
    np.testing.assert_allclose(out, wanted, rtol=1e-6)
    if kind == "llvm":
        result = nd.array(np.full(wanted.shape, 7, "float32"))
        build(schedule, target=kind)(*map(nd.array, given), result)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-6)


def test_loops_over_nothing_are_scheduled_like_others() -> None:
    a = te.placeholder((0, 6), name="A")
    b = te.compute((0, 6), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((0, 6), lambda i, j: b[i, j] * 2.0, name="C")
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(s[c].fuse(*c.op.axis), factor=4)
    s[c].vectorize(inner)
    s[b].compute_at(s[c], outer)
    program = lower_schedule(s, Target("llvm"))
    assert program.kernels == ()
    run_fast(program, [np.zeros((0, 6), "float32")] * 2)


def test_nothing_is_not_tuned() -> None:
    a = te.placeholder((0, 6), name="A")
    with pytest.raises(SpaceError, match="nothing to tune"):
        task_of_dag(ComputeDAG([a, a + 1.0]), "llvm")
