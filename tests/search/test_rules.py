"""Sketch rules: as many sketches as Ansor derives, and whatever they close into is right.

Every sketch of every small computation is drawn from, interpreted, compiled where there is a
device, compared with the reference, and rebuilt from its printed Python.
"""

from __future__ import annotations

import numpy as np
import pytest

from schedule.computations import matmul
from schedule.test_schedules import assert_right, interpret, lowered, run_on
from search.workloads import COUNTED, SMALL, Declare
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import device
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.steps.names import identifier
from tilewright.search.rules.derive import (
    MAX_SKETCHES,
    ansor_rules,
    derive,
    rule_sketches,
    rules_for,
)
from tilewright.search.rules.rules import Condition, SketchRule, SkipStage
from tilewright.search.rules.state import Hardware, RuleState
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs

CPU = Target("llvm -num-cores=2 -vector-bytes=32")
CUDA, OPENCL, MALI = Target("cuda"), Target("opencl"), Target("opencl -device=mali")

# workload -> sketches for a CPU of 20 cores, for CUDA, for Mali.  The first two are what TVM's unit
# tests expect of Ansor.  Mali: a CPU's rules, but a GPU fuses in one way, and always where it can;
# every reduction that is not tiled may be split (Ansor also splits the pool's, of four steps).
COUNTS = {
    "matmul": (3, 1, 1),
    "few points": (5, 2, 1),
    "two matmuls": (9, 1, 1),
    "conv2d": (3, 1, 1),
    "pool": (1, 1, 1),
    "min": (3, 2, 3),
    "softmax": (9, 4, 9),
    "winograd": (3, 1, 1),
    "rank 0": (3, 2, 3),
}


def drawn(sketch: Sketch, wanted: int, seed: int) -> list[int]:
    """Indices of legal configurations."""
    rng, found = np.random.default_rng(seed), np.empty(0, np.int64)
    for size in (4 * wanted, 2048):  # few structures to trace where most configurations are legal
        some = sketch.space.sample(size, rng)
        found = some[sketch.legal(some)]
        if len(found) >= wanted:
            break
    return found[:wanted].tolist()


@pytest.mark.sampled(13)
@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize(
    ("column", "text"), [(0, "llvm -num-cores=20"), (1, "cuda"), (2, "opencl -device=mali")]
)
def test_as_many_sketches_as_ansor_derives(name: str, column: int, text: str) -> None:
    dag, target = ComputeDAG(COUNTED[name]()), Target(text)
    derivations = derive(dag, target, ansor_rules(target), Hardware.of(target))
    sketches = rule_sketches(dag, target, ansor_rules(target))
    assert len(derivations) == len(sketches) == COUNTS[name][column]
    assert len({s.origin for s in sketches}) == len(sketches)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, CUDA, MALI], ids=str)
@pytest.mark.parametrize("name", COUNTED)
def test_legal_configurations_of_real_shapes_become_text(name: str, target: Target) -> None:
    for sketch in rule_sketches(ComputeDAG(COUNTED[name]()), target):
        (index,) = drawn(sketch, 1, seed=1)
        program = lower_schedule(sketch.close(index), target)
        verify(program)
        assert generate(program, target).text


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, CUDA, MALI], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_interpreted_sketches_equal_the_reference(name: str, target: Target) -> None:
    check(SMALL[name], target, lambda program, inputs: interpret(program, inputs), wanted=2)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, OPENCL, MALI], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_compiled_sketches_equal_the_reference(name: str, target: Target) -> None:
    if not device(target.kind).exist:
        pytest.skip(f"no {target.kind} device here")
    check(SMALL[name], target, lambda program, inputs: run_on(target, program, inputs), wanted=1)


def check(declare: Declare, target: Target, run, wanted: int) -> None:
    dag = ComputeDAG(declare())
    sketches = rule_sketches(dag, target)
    assert sketches
    for seed, sketch in enumerate(sketches):
        indices = drawn(sketch, wanted, seed)
        assert indices, f"{sketch} has no legal configuration"
        for index in indices:
            program = lowered(sketch.close(index), target)
            if program is None:  # too long for the interpreter
                continue
            inputs = random_inputs(dag, index % 1000)
            assert_right(dag, program, run(program, inputs), inputs)


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, CUDA, MALI], ids=str)
@pytest.mark.parametrize("name", SMALL)
def test_printed_python_rebuilds_every_sketch(name: str, target: Target) -> None:
    dag = ComputeDAG(SMALL[name]())
    tensors = {identifier(n): op.output_tensor for op, n in dag.unique_names().items()}
    for seed, sketch in enumerate(rule_sketches(dag, target)):
        schedule = sketch.close(drawn(sketch, 1, seed)[0])
        again = Schedule(dag)
        exec(schedule.to_python(), {"te": te}, {"s": again, **tensors})
        assert again.to_json() == schedule.to_json()
        first, second = (generate(lower_schedule(s, target), target) for s in (schedule, again))
        assert first.text == second.text


def test_tiles_divide_axes_unless_no_block_of_a_warp_is_left() -> None:
    def splits(n: int, m: int) -> dict[str, bool]:
        (sketch,) = rule_sketches(ComputeDAG(matmul(n, m, 4)), CUDA)
        return {k: s.exact for k, s in sketch.space.space_map.items() if hasattr(s, "exact")}

    assert splits(37, 41) == {"C.local:i.c": True, "C.local:j.c": True, "C.local:r": True}
    assert splits(2, 1031) == {"C.local:i.c": True, "C.local:j.c": False, "C.local:r": True}


@pytest.mark.long
def test_long_chains_of_contractions_are_cut_off() -> None:
    """Each stage alone has three sketches."""
    tensors = matmul(8, 8, 8)
    for n in range(6):
        w, r = te.placeholder((8, 8), name=f"W{n}"), te.reduce_axis((0, 8), "r")

        def body(i: te.Expr, j: te.Expr, x=tensors[-1], w=w, r=r) -> te.Expr:
            return te.sum(x[i, r] * w[r, j], axis=r)

        tensors = [*tensors[:-1], w, te.compute((8, 8), body, name=f"product{n}")]
    trials = []

    class Counted(SkipStage):
        def meets(self, state: RuleState, stage: Stage) -> Condition:
            trials.append(stage.name)
            return Condition.PASS

    found = derive(ComputeDAG(tensors), CPU, (Counted(), *rules_for(CPU)), Hardware.of(CPU))
    assert len(found) == MAX_SKETCHES and len(trials) < 2000


class SplitRows(SketchRule):
    """A user's rule: the product as it is, or its rows in two levels; nothing else is tried."""

    name = "rows"

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        return Condition.ONLY if stage.name == "C" else Condition.PASS

    def variants(self, state: RuleState, stage: Stage) -> int:
        return 2

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        before = state.before(stage)
        if variant == 1:
            stage.split(stage.op.axis[0], factor=state.choose(stage, "rows", [2, 3]))
        return before


@pytest.mark.parametrize("target", [CPU, CUDA], ids=str)
def test_a_rule_of_the_user_comes_first(target: Target) -> None:
    dag = ComputeDAG(SMALL["matmul"]())
    sketches = rule_sketches(dag, target, (SplitRows(), *rules_for(target)))
    assert [s.origin for s in sketches] == ["rules:rows", "rules:rows1"]
    assert ["C:rows" in s.space for s in sketches] == [False, True]
    for sketch in sketches:
        for index in drawn(sketch, 2, seed=0):
            program = lowered(sketch.close(index), target)
            inputs = random_inputs(dag, 0)
            assert_right(dag, program, interpret(program, inputs), inputs)


def test_a_rule_that_applies_leaves_the_others_their_turn() -> None:
    class Also(SplitRows):
        def meets(self, state: RuleState, stage: Stage) -> Condition:
            return Condition.APPLY if stage.name == "C" else Condition.PASS

    dag = ComputeDAG(SMALL["matmul"]())
    plain = [s.origin for s in rule_sketches(dag, CPU)]
    more = [s.origin for s in rule_sketches(dag, CPU, (Also(), *rules_for(CPU)))]
    assert more == ["rules:rows", "rules:rows1", *plain]


class Forever(SplitRows):
    """It never moves on."""

    def variants(self, state: RuleState, stage: Stage) -> int:
        return 1

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        return stage.name


def test_rules_that_never_end_are_refused() -> None:
    dag = ComputeDAG(SMALL["matmul"]())
    with pytest.raises(ScheduleError, match="rule rows at C: the rules do not come to an end"):
        derive(dag, CPU, (Forever(), *rules_for(CPU)), Hardware.of(CPU))


@pytest.mark.parametrize("target", [CPU, CUDA], ids=str)
def test_inner_loops_that_an_attribute_names_are_unrolled(target: Target) -> None:
    a, b = (te.placeholder((32, 32), name=n) for n in "ab")
    k = te.reduce_axis((0, 32), "k")
    attrs = {"auto_scheduler_always_unroll_inner": ["k", "j"]}
    made = te.compute(
        (32, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C", attrs=attrs
    )
    sketches = [s for s in rule_sketches(ComputeDAG([a, b, made]), target) if "tile" in s.origin
                or "fuse" in s.origin]  # fmt: skip
    assert sketches
    for sketch in sketches:
        (index,) = drawn(sketch, 1, seed=0)
        unrolled = {
            ax.name.split(".")[0] for stage in sketch.close(index).stages
            for ax, how in stage.annotations.items() if how == "unroll"
        }  # fmt: skip
        assert "k" in unrolled and unrolled <= {"k", "j"}, sketch.origin
