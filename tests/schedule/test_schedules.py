"""Random schedules of random computations mean what the computation says.

The interpreter runs the lowered program with bounds, poison and race checks; the reference is the
numpy evaluator, which shares no code with lowering.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedule.computations import draw_computation
from schedule.drawing import draw_schedule
from tests.tiers import examples
from tilewright.base.errors import LoweringError
from tilewright.codegen import generate
from tilewright.driver.compilers import compile_source
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Allocate, For, If, Program, Seq, Stmt
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import device
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

SEEDS = st.integers(0, 10**9)


def drawn(seed: int, gpu: bool) -> tuple[ComputeDAG, Schedule]:
    rng = random.Random(seed)
    _, tensors = draw_computation(rng)
    dag = ComputeDAG(tensors)
    return dag, draw_schedule(dag, rng, gpu=gpu)


MAX_STEPS = 300_000  # of the interpreter; what recomputes more than that adds time, not coverage


def lowered(schedule: Schedule, kind: str | Target) -> Program | None:
    """The verified program; None where lowering refuses it, no device has blocks as large, or
    running it would take long."""
    target = Target(kind)
    try:
        program = lower_schedule(schedule, target)
    except LoweringError:  # a reduction over threads in a shape that is refused with a way out
        return None
    verify(program)
    if target.has_threads and any(
        np.any(np.greater(kernel.block, target.limits.max_block)) for kernel in program.kernels
    ):
        return None
    steps = sum(math.prod((*k.grid, *k.block)) * _steps(k.body) for k in program.kernels)
    return program if steps <= MAX_STEPS else None


def _steps(stmt: Stmt) -> int:
    if isinstance(stmt, For):
        return stmt.extent * _steps(stmt.body)
    if isinstance(stmt, Allocate):
        return _steps(stmt.body)
    if isinstance(stmt, Seq):
        return sum(map(_steps, stmt.body))
    return _steps(stmt.then) if isinstance(stmt, If) else 1


def interpret(program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    values = iter(inputs)
    arrays = [
        next(values) if role == "input" else np.full(b.shape or (1,), np.nan, b.dtype)
        for b, role in zip(program.args, program.roles, strict=True)
    ]
    run_fast(program, arrays)
    return [a for a, role in zip(arrays, program.roles, strict=True) if role == "output"]


def assert_right(
    dag: ComputeDAG, program: Program, outputs: list[np.ndarray], inputs: list[np.ndarray]
) -> None:
    expected, tolerance = evaluate_with_tolerance(dag, inputs)
    for out, reference, bound in zip(outputs, expected, tolerance, strict=True):
        wrong = ~(np.abs(out.reshape(reference.shape) - reference) <= bound)
        assert not wrong.any(), f"{int(wrong.sum())} of {wrong.size} elements are wrong\n{program}"


@pytest.mark.long
@examples(40)
@given(SEEDS, st.booleans())
# Reads of overhanging iterations, rarely drawn: regions must cover `reach`, not only `extent`.
@example(9043, True)
@example(9232, True)
def test_interpreted_schedule_equals_the_reference(seed: int, gpu: bool) -> None:
    dag, schedule = drawn(seed, gpu)
    program = lowered(schedule, "cuda" if gpu else "llvm")
    if program is None:
        return
    inputs = random_inputs(dag, seed)
    assert_right(dag, program, interpret(program, inputs), inputs)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_steps_replay_from_json_to_the_same_program(seed: int, gpu: bool) -> None:
    dag, schedule = drawn(seed, gpu)
    kind = "cuda" if gpu else "llvm"
    again = Schedule.replay(ComputeDAG.from_json(dag.to_json()), schedule.to_json())
    first, second = lowered(schedule, kind), lowered(again, kind)
    assert str(first) == str(second)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_python_text_rebuilds_the_schedule(seed: int, gpu: bool) -> None:
    from tilewright import te
    from tilewright.schedule.steps.names import identifier

    dag, schedule = drawn(seed, gpu)
    fresh = Schedule(dag)
    names = {identifier(name): op.output_tensor for op, name in dag.unique_names().items()}
    exec(schedule.to_python(), {"te": te}, {"s": fresh, **names})
    assert fresh.to_json() == schedule.to_json()


def run_on(kind: str | Target, program: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    target = Target(kind)
    module = Module(compile_source(generate(program, target), target), device(target.kind))
    values = iter(inputs)
    arrays = [
        array(next(values), module.device)
        if role == "input"
        else empty(b.shape, b.dtype, module.device)
        for b, role in zip(program.args, program.roles, strict=True)
    ]
    module(*arrays)
    return [a.numpy() for a, role in zip(arrays, program.roles, strict=True) if role == "output"]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@examples(25)
@given(seed=SEEDS)
def test_compiled_schedule_equals_the_reference(seed: int, kind: str) -> None:
    if not device(kind).exist:
        pytest.skip(f"no {kind} device here")
    dag, schedule = drawn(seed, gpu=kind == "opencl")
    program = lowered(schedule, kind)
    if program is None:
        return
    inputs = random_inputs(dag, seed)
    assert_right(dag, program, run_on(kind, program, inputs), inputs)
