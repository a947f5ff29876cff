"""Rings of asynchronous copies in templates and rules: right, where they fit, and not elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright.topi.templates  # noqa: F401  (registers them)
from tilewright import te, topi
from tilewright.base.errors import SpaceError
from tilewright.codegen import generate
from tilewright.cost.features import features_and_seconds
from tilewright.cost.machine_model import seconds
from tilewright.driver import nvrtc
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Barrier, Wait, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.search.rules.derive import rule_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor

CUDA = Target("cuda")


def conv(first: Callable[[Tensor], Tensor] | None = None, dtype: str = "float32") -> ComputeDAG:
    data = te.placeholder((1, 12, 6, 5), dtype, name="data")
    weight = te.placeholder((8, 12, 3, 3), dtype, name="weight", constant=True)
    product = topi.nn.conv2d_nchw(data if first is None else first(data), weight, 1, 1)
    return ComputeDAG([topi.nn.relu(product)])


def dense() -> ComputeDAG:
    a, b = te.placeholder((9, 40), name="a"), te.placeholder((12, 40), name="b")
    return ComputeDAG([topi.nn.dense(a, b)])


def template(dag: ComputeDAG, target: Target = CUDA) -> Sketch:
    (sketch,) = (s for s in task_of_dag(dag, target).sketches if s.origin.endswith(".gpu"))
    return sketch


def rules(dag: ComputeDAG, target: Target = CUDA) -> Sketch:
    return rule_sketches(dag, target)[0]


SKETCHES = {"template": template, "rules": rules}
COMPUTATIONS = {"conv": conv, "dense": dense}


def knob(sketch: Sketch) -> str:
    (name,) = (n for n in sketch.space.space_map if n.rpartition(":")[2] == "stages")
    return name


def drawn(sketch: Sketch, count: int, sizes: tuple[int, ...] = (2, 3, 4)) -> list[int]:
    """Legal members with rings."""
    some = sketch.space.sample(512, np.random.default_rng(0))
    some = some[sketch.legal(some)]
    name = knob(sketch)
    return [i for i in some.tolist() if sketch.space.get(i)[name].val in sizes][:count]


def plain(sketch: Sketch, index: int) -> dict[str, object]:
    return {n: entity.value for n, entity in sketch.space.get(index).items()}


@pytest.mark.slow
@pytest.mark.parametrize("dag", COMPUTATIONS.values(), ids=COMPUTATIONS)
@pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
def test_members_with_rings_give_the_reference(
    make: Callable[..., Sketch], dag: Callable[[], ComputeDAG]
) -> None:
    """In the interpreter, which finds a wait, a barrier or a slot that is missing."""
    sketch = make(dag())
    inputs = random_inputs(sketch.dag, 0)
    (expected,), (tolerance,) = evaluate_with_tolerance(sketch.dag, inputs)
    found = drawn(sketch, 6)
    assert found
    rings = 0
    for index in found:
        program = lower_schedule(sketch.close(index), CUDA)
        verify(program)
        out = np.zeros(expected.shape, "float32")
        run_fast(program, [*inputs, out])
        assert np.all(np.abs(out - expected) <= tolerance), sketch.space.get(index)
        body = [s for kernel in program.kernels for s in statements(kernel.body)]
        rings += any(isinstance(s, Wait) for s in body)
        assert any(isinstance(s, AsyncCopy) for s in body)
    assert rings


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_their_text_compiles(arch: str) -> None:
    target = Target(f"cuda -arch={arch}")
    sketch = template(conv(), target)
    for index in drawn(sketch, 2):
        nvrtc.build(generate(lower_schedule(sketch.close(index), target), target), target)


def test_an_iteration_has_one_barrier_where_it_had_two() -> None:
    sketch = template(dense())
    index = next(
        i for i in drawn(sketch, 64, (3,)) if plain(sketch, i)["threads_k"] == 1
        and plain(sketch, i)["split_k"] == 1 and plain(sketch, i)["step_k"] in (4, 8)
    )  # fmt: skip
    counts = []
    for stages in (0, 3):
        at = sketch.space.index_of({**plain(sketch, index), "stages": stages})
        (kernel,) = lower_schedule(sketch.close(at), CUDA).kernels
        counts.append(sum(isinstance(s, Barrier) for s in statements(kernel.body)))
    assert counts == [2, 1]


@pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
@pytest.mark.parametrize("target", ["opencl", "cuda -arch=sm_75", "cuda -arch=sm_61"])
def test_devices_without_such_copies_have_no_knob(make: Callable[..., Sketch], target: str) -> None:
    assert not any("stages" in name for name in make(dense(), Target(target)).space.space_map)


def test_what_computes_on_the_way_has_no_knob() -> None:
    assert "stages" not in template(conv(topi.nn.relu)).space.space_map
    assert "stages" not in template(conv(dtype="float16")).space.space_map
    assert "stages" in template(conv()).space.space_map


@pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
def test_older_configurations_mean_plain_copies(make: Callable[..., Sketch]) -> None:
    sketch = make(conv())
    name = knob(sketch)
    (index,) = drawn(sketch, 1)
    older = plain(sketch, index)
    del older[name]
    meant = sketch.space.get(sketch.space.index_of(older))
    assert meant[name].val == 0
    schedule = sketch.close(sketch.space.index_of(older))
    assert "pipeline" not in {step[0] for step in schedule.to_json()}
    first = next(iter(older))
    del older[first]
    with pytest.raises(SpaceError):
        sketch.space.index_of(older)


@pytest.mark.parametrize("make", SKETCHES.values(), ids=SKETCHES)
def test_one_candidate_is_what_it_is_among_many(make: Callable[..., Sketch]) -> None:
    sketch = make(conv())
    some = sketch.space.sample(128, np.random.default_rng(3))
    seen = 0
    for group in sketch.groups(some):
        rows, predicted = features_and_seconds(group)
        masks = {**group.verdict.refused, **group.verdict.discouraged}
        for k in range(0, len(group.rows), 7):
            tree = LoopTree(sketch.close(int(some[group.rows[k]])))
            resources = Resources(tree.bounds(), CUDA)
            assert seconds(resources, 1)[0] == pytest.approx(predicted[k], rel=1e-6)
            alone = judge(resources)
            for reason, mask in {**alone.refused, **alone.discouraged}.items():
                among = np.broadcast_to(masks.get(reason, False), len(group.rows))
                assert bool(np.any(mask)) == bool(among[k]), reason
            seen += 1
        assert np.isfinite(rows).all()
    assert seen > 5


def test_the_model_hides_latency_behind_slots_and_counts_their_memory() -> None:
    a, b = te.placeholder((1024, 1024), name="a"), te.placeholder((1024, 1024), name="b")
    sketch = template(ComputeDAG([topi.nn.dense(a, b)]))
    config = {
        "tile_f": [-1, 1, 16, 4], "tile_x": [-1, 16, 4], "vthread_x": 1, "split_k": 1,
        "threads_k": 1, "step_k": 8, "align_data": 1, "auto_unroll_max_step": 512,
    }  # fmt: skip
    found, shared = [], []
    for stages in (0, 2, 3, 4):
        index = sketch.space.index_of({**config, "stages": stages})
        resources = Resources(LoopTree(sketch.close(index)).bounds(), CUDA)
        found.append(float(seconds(resources, 1)[0]))
        shared.append(int(resources.kernels[0].shared_bytes))
    assert shared == [shared[0] * n for n in (1, 2, 3, 4)]
    assert found[0] > found[1] >= found[2] >= found[3]
