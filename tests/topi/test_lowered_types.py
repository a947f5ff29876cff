"""Every operator in every element type it takes, lowered: by the interpreter, and compiled for this
CPU."""

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tests import strategies as S
from tests.topi.operators import ROWS
from tilewright import te
from tilewright.base.dtype import TYPES
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs

by_type = pytest.mark.parametrize("dtype", TYPES)


def rows_of(dtype):
    for name, row in ROWS.items():
        if dtype in row.types:
            dag = row.dag(dtype)
            yield name, dag, te.create_schedule(dag.outputs[0].op)


@pytest.mark.sampled(3)
@pytest.mark.slow
@by_type
def test_interpreted(dtype):
    for name, dag, schedule in rows_of(dtype):
        try:
            S.assert_computes(tilewright.lower(schedule, list(dag.args)), dag)
        except Exception as error:
            raise AssertionError(f"{name} in {dtype}") from error


@pytest.mark.sampled(1)
@pytest.mark.slow
@by_type
def test_compiled(dtype):
    for name, dag, schedule in rows_of(dtype):
        kernel = tilewright.build(schedule, list(dag.args), target="llvm")
        inputs = random_inputs(dag, 1)
        (value,), (bound,) = evaluate_with_tolerance(dag, inputs)
        out = tilewright_tvm.nd.array(np.zeros(value.shape, dag.outputs[0].dtype.storage))
        kernel(*map(tilewright_tvm.nd.array, inputs), out)
        assert agrees(out.numpy(), value, bound).all(), f"{name} in {dtype}"
