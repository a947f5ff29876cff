"""Softmax and norms are one loop nest over rows, where that is the faster way, and right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies import assert_computes
from tests.tiers import examples
from tilewright import te, topi
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import generic_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

CPU, GPU = Target("llvm -num-cores=2"), Target("cuda")
OPERATORS = {
    "softmax": topi.nn.softmax,
    "log_softmax": topi.nn.log_softmax,
    "layer norm": topi.nn.standardize,
    "rms norm": lambda x: topi.nn.standardize(x, center=False),
    "gelu behind": lambda x: _gelu(topi.nn.standardize(x)),
}


def _gelu(x: te.Tensor) -> te.Tensor:
    return topi.multiply(x, topi.add(topi.erf(topi.multiply(x, 0.7)), 1.0))


def dag(operator, *shape: int, dtype: str = "float32") -> ComputeDAG:
    x = te.placeholder(shape, dtype, "x")
    return ComputeDAG([x, operator(x)])


def kernels(computation: ComputeDAG, target: Target) -> int:
    """Stages that are computed on their own, checked to be right."""
    schedule = generic_schedule(computation, target)
    assert_computes(lower_schedule(schedule, target), computation)
    return sum(
        s.attach_kind == "root" and isinstance(s.op, te.tensor.ComputeOp) for s in schedule.stages
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, GPU], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_row_is_read_while_it_is_near(name, target):
    assert kernels(dag(OPERATORS[name], 3, 100), target) == 1
    assert kernels(dag(OPERATORS[name], 2, 2, 69, dtype="float16"), target) == 1


def test_a_norm_over_several_axes_is_one_nest():
    image = dag(lambda x: topi.nn.standardize(x, (2, 3)), 2, 3, 9, 9)
    assert kernels(image, CPU) == kernels(image, GPU) == 1


def test_where_rows_do_not_pay_stages_are_on_their_own():
    assert kernels(dag(topi.nn.softmax, 40, 10), GPU) > 1  # fewer elements than threads
    assert kernels(dag(topi.nn.softmax, 2, 5000), CPU) > 1  # a row of them is too long to keep
    assert kernels(dag(topi.nn.standardize, 1, 1 << 14), CPU) > 1  # fewer rows than cores
    assert kernels(dag(lambda x: topi.nn.softmax(x, 1), 2, 70, 3), CPU) > 1  # rows are no rows


def test_one_reduction_alone_is_none_of_these():
    assert kernels(dag(lambda x: topi.sum(x, 1), 3, 100), CPU) == 1
    both = dag(lambda x: topi.add(x, topi.sum(x, 0, keepdims=True)), 3, 100)
    assert kernels(both, CPU) == 2  # of columns, read along rows


@pytest.mark.slow
@given(
    st.sampled_from(sorted(OPERATORS)), st.lists(st.integers(1, 5), max_size=2),
    st.integers(1, 150), st.sampled_from([CPU, GPU]),
)  # fmt: skip
@examples(25)
def test_rows_of_every_length_are_right(name, outer, row, target):
    kernels(dag(OPERATORS[name], *outer, row), target)
