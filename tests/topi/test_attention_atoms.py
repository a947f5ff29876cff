"""Attention on matrix units: every form of it that networks have, in halves, at random members."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph.case import function
from graph.test_grouped_heads import attention as step_over_a_cache
from network.test_attention_kernel import SCALED, WHOLE
from strategies import agrees, assert_computes
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.graph.expr import IRModule
from tilewright.graph.passes.mixed_precision import to_mixed_precision
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Exchange, If, Mma, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.models.decoders.read import load
from tilewright.network.extract import fused_groups, groupings
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import ComputeOp
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

CUDA = Target("cuda -arch=sm_90")


def group(f) -> ComputeDAG:
    """The attention of a network, its products in halves."""
    halved = to_mixed_precision(IRModule({"main": f}))
    _, whole = groupings(halved["main"])
    (found,) = [g for g in fused_groups(whole["main"]) if g.name == "attention"]
    return found.dag


def attention(
    heads: int, rows: int, keys: int, depth: int, columns: int, dtype: str = "float16", **options
) -> ComputeDAG:
    shapes = ((rows, depth), (keys, depth), (keys, columns))
    q, k, v = (
        relay.var(n, shape=(1, heads, *shape), dtype=dtype)
        for n, shape in zip("qkv", shapes, strict=True)
    )
    _, whole = groupings(function(nn.attention(q, k, v, **options)))
    (found,) = [g for g in fused_groups(whole["main"]) if g.name == "attention"]
    return found.dag


def sketch_of(dag: ComputeDAG) -> Sketch:
    (registered,) = (t for t in anchor_templates(dag, CUDA) if t.name == "attention.tensor")
    return sketch_of_anchor(registered, dag, CUDA)


def members(sketch: Sketch, **wanted) -> list[int]:
    """Those with these values of knobs."""
    found = []
    for index in range(len(sketch.space)):
        values = sketch.space.get(index)
        if all(values[name].val == value for name, value in wanted.items()):
            found.append(index)
    return found


def check(dag: ComputeDAG, count: int = 3, seed: int = 0, **wanted) -> None:
    sketch = sketch_of(dag)
    found = members(sketch, **wanted)
    assert found
    rng = np.random.default_rng(seed)
    for index in {found[0], found[-1], *rng.choice(found, count).tolist()}:
        program = lower_schedule(sketch.close(index), CUDA)
        kinds = {type(s) for kernel in program.kernels for s in statements(kernel.body)}
        assert len(program.kernels) == 1 and kinds >= {Mma, Exchange}
        assert_computes(program, dag, seed)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE | SCALED)
def test_every_form_that_networks_have(name: str) -> None:
    check(group(function((WHOLE | SCALED)[name]())))


def test_heads_that_share_keys_are_rows_of_one_product() -> None:
    """One position that meets a cache: a mask in front of the softmax, and zeros behind it."""
    check(group(function(step_over_a_cache())), count=1)


SHAPES = {
    "as many keys as rows": (2, 32, 32, 16, 16),
    "rows and keys of no atoms": (2, 21, 37, 20, 24),
    "heads of no atoms": (1, 16, 40, 20, 40),
    "few rows, many keys": (1, 3, 300, 16, 16),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_extent(shape: tuple[int, ...]) -> None:
    check(attention(*shape))


@pytest.mark.parametrize("shape", [(1, 16, 1, 16, 16), (1, 1, 32, 16, 16), (1, 16, 32, 1, 1)])
def test_vectors_are_for_other_templates(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match="a vector"):
        sketch_of(attention(*shape))


@pytest.mark.parametrize("running", [True, False])
def test_slices_come_by_asynchronous_copies(running: bool) -> None:
    dag = attention(1, 32, 64, 16, 16)
    (index, *_) = members(sketch_of(dag), stages=3, keys=16, warps=2, running=running)
    program = lower_schedule(sketch_of(dag).close(index), CUDA)
    copies = [s for s in statements(program.kernels[0].body) if isinstance(s, AsyncCopy)]
    assert {s.to.count * s.to.buffer.dtype.bytes for s in copies} == {16}
    assert_computes(program, dag)


def test_bfloat16_and_causal() -> None:
    check(attention(1, 20, 24, 16, 16, "bfloat16", is_causal=True), 1, stages=1)


@pytest.mark.slow
def test_prompts_over_a_cache() -> None:
    """Heads that share keys, queries that are turned, masks by places: nothing else is read."""
    (made,) = load("llama-tiny", (), {"tokens": [20], "cache": 40}, "bfloat16").modules
    whole = groupings(made, target=CUDA)[1]["main"]
    (found,) = [g for g in fused_groups(whole) if g.name == "attention"]
    waves, (position, *rest) = 2, [t for t in found.dag.args if t not in found.dag.outputs]
    assert position.shape == (1, 1, 1, 1) and len(rest) == 1 + waves + 2
    check(found.dag, 1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [32, 20])
def test_slices_that_no_row_of_a_block_sees_are_not_multiplied(rows: int) -> None:
    """Also where a row sees no key at all, whose result is a mean of all values."""
    (made,) = load("llama-tiny", (), {"tokens": [rows], "cache": 128}, "bfloat16").modules
    whole = groupings(made, target=CUDA)[1]["main"]
    (dag,) = [g.dag for g in fused_groups(whole) if g.name == "attention"]
    sketch, position = sketch_of(dag), dag.args[0]
    (index, *_) = members(sketch, running=True, warps=1, each=1, keys=16, stages=2)
    program = lower_schedule(sketch.close(index), CUDA)
    unseen = [
        s for s in statements(program.kernels[0].body)
        if isinstance(s, If) and any(isinstance(inside, Mma) for inside in statements(s))
    ]  # fmt: skip
    assert len(unseen) == 1
    for at in (0, 3, 50, 127, -5, -40):
        drawn = random_inputs(dag, 0, given={position: np.full(position.shape, at, "int64")})
        few = [np.clip(0.3 * v, -1, 1).astype(v.dtype) for v in drawn]  # no score is far above all
        given = [v if v.dtype.kind == "i" else small for v, small in zip(drawn, few, strict=True)]
        (want,), (bound,) = evaluate_with_tolerance(dag, given)
        out = np.full(dag.outputs[0].shape, 99, dag.outputs[0].dtype.storage)
        of = dict(zip([t.name for t in dag.args if t not in dag.outputs], given, strict=True))
        run_fast(program, [of.get(b.name, out) for b in program.args])
        assert agrees(out.reshape(want.shape), want, bound).all(), at


def masked_twice(other: str, seen: Any = relay.less) -> ComputeDAG:
    """Keys before `at` and a row's own place, and another mask of data: inside the first or
    added.  seen: the comparison of a key and a row"""
    rows, keys = 32, 64
    q, k, v = (
        relay.var(name, shape=(2, n, 16), dtype="float16")
        for name, n in zip("qkv", (rows, keys, keys), strict=True)
    )
    kind = "bool" if other == "chosen" else "float16"
    m = relay.var("m", shape=(2, rows, keys), dtype=kind)
    score = relay.cast(nn.batch_matmul(q, k, transpose_b=True), "float32") * relay.const(0.25)
    low = relay.const(np.float32(-1e38))
    if other == "capped":
        score = relay.tanh(score) * relay.const(8.0)
    elif other == "chosen":
        score = relay.where(m, score, low)
    elif other == "added":
        score = score + relay.cast(m, "float32") * relay.const(np.float32(1e38))
    key = relay.const(np.arange(keys, dtype="int32").reshape(1, 1, -1))
    row = relay.const(np.arange(rows, dtype="int32").reshape(1, -1, 1))
    row = row + relay.var("at", shape=(1, 1, 1), dtype="int32")
    if other == "filled":
        score = relay.where(relay.greater_equal(key, row), low, score)
    else:
        score = relay.where(seen(key, row), score, low)
    share = relay.cast(nn.softmax(score, -1), "float16")
    whole = groupings(function(nn.batch_matmul(share, v, transpose_b=False)))[1]["main"]
    (found,) = [g for g in fused_groups(whole) if g.name == "attention"]
    return found.dag


@pytest.mark.slow
@pytest.mark.parametrize(
    "other, skipped", [("none", 1), ("filled", 1), ("capped", 1), ("chosen", 0), ("added", 0)]
)
def test_with_a_second_mask_a_row_that_sees_nothing_is_a_mean_of_all(
    other: str, skipped: int
) -> None:
    dag = masked_twice(other)
    sketch = sketch_of(dag)
    (index, *_) = members(sketch, running=True, warps=1, each=1, keys=16, stages=2)
    program = lower_schedule(sketch.close(index), CUDA)
    under = [
        s for s in statements(program.kernels[0].body)
        if isinstance(s, If) and any(isinstance(inside, Mma) for inside in statements(s))
    ]  # fmt: skip
    assert len(under) == skipped
    given = []
    for tensor, values in zip(dag.args, random_inputs(dag, 0), strict=False):
        if tensor.dtype == "int32":
            values = np.ones(tensor.shape, "int32")
        elif tensor.shape == (2, 32, 64):
            values[:, [0, 5, 9]] = False if tensor.dtype == "bool" else -1  # these see no key
        given.append(np.clip(values, -1, 1) if tensor.dtype == "float16" else values)
    (want,), (bound,) = evaluate_with_tolerance(dag, given)
    out = np.full(dag.outputs[0].shape, 99, "float16")
    of = dict(zip([t.name for t in dag.args if t not in dag.outputs], given, strict=True))
    run_fast(program, [of.get(b.name, out) for b in program.args])
    assert agrees(out.reshape(want.shape), want, bound).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "seen",
    [
        relay.less_equal,
        lambda key, row: relay.greater(row, key),
        lambda key, row: relay.greater_equal(row, key),
        lambda key, row: relay.logical_not(relay.greater(key, row)),
    ],
)
def test_slices_are_skipped_however_the_mask_is_written(seen: Any) -> None:
    dag = masked_twice("none", seen)
    sketch = sketch_of(dag)
    (index, *_) = members(sketch, running=True, warps=1, each=1, keys=16, stages=2)
    program = lower_schedule(sketch.close(index), CUDA)
    assert sum(
        isinstance(s, If) and any(isinstance(inside, Mma) for inside in statements(s))
        for s in statements(program.kernels[0].body)
    ) == 1  # fmt: skip
    for at in (-40, 0, 16, 40):
        given = []
        for tensor, values in zip(dag.args, random_inputs(dag, 0), strict=False):
            few = np.full_like(values, at) if tensor.dtype == "int32" else np.clip(values, -1, 1)
            given.append(few)
        (want,), (bound,) = evaluate_with_tolerance(dag, given)
        out = np.full(dag.outputs[0].shape, 99, "float16")
        of = dict(zip([t.name for t in dag.args if t not in dag.outputs], given, strict=True))
        run_fast(program, [of.get(b.name, out) for b in program.args])
        assert agrees(out.reshape(want.shape), want, bound).all(), at


def test_where_a_mask_is_data_all_slices_are_multiplied() -> None:
    mask = relay.var("m", shape=(32, 64), dtype="bool")
    dag = attention(1, 32, 64, 16, 16, "bfloat16", mask=mask)
    (index, *_) = members(sketch_of(dag), running=True, warps=1, each=1, keys=16, stages=2)
    (kernel,) = lower_schedule(sketch_of(dag).close(index), CUDA).kernels
    assert not any(
        isinstance(s, If) and any(isinstance(inside, Mma) for inside in statements(s))
        for s in statements(kernel.body)
    )


def test_scores_of_long_rows_are_forgotten() -> None:
    """A warp keeps no more than what its registers hold."""
    assert members(sketch_of(attention(1, 16, 1024, 16, 16)), running=False) == []
    assert members(sketch_of(attention(1, 16, 128, 16, 16)), running=False) != []


def test_a_sum_keeps_more_digits_than_halves() -> None:
    """What lies between both products is rounded once, where the second one reads it."""
    dag = attention(1, 16, 64, 16, 16)
    schedule = sketch_of(dag).close(0)
    kinds = {st.op.name: st.op.dtype for st in schedule.stages if isinstance(st.op, ComputeOp)}
    assert [str(kinds[n]) for n in kinds if n.startswith("T_softmax")].count("float16") == 0


def test_float32_is_for_other_templates() -> None:
    """Lanes hold other sums of the atom for tf32 than they need of an operand."""
    dag = attention(1, 16, 32, 16, 16, "float32")
    tf32 = Target("cuda -arch=sm_90 -precision=tf32")
    (registered,) = (t for t in anchor_templates(dag, tf32) if t.name == "attention.tensor")
    with pytest.raises(ScheduleError, match="does not hold those sums"):
        sketch_of_anchor(registered, dag, tf32)


def test_it_is_what_runs_untuned() -> None:
    origins = [sketch.origin for sketch in anchor_sketches(attention(2, 32, 32, 16, 16), CUDA)]
    assert origins[0] == "template:attention.tensor"


@pytest.mark.slow
def test_nvrtc_accepts() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    dag = attention(2, 128, 512, 64, 64)
    sketch = sketch_of(dag)
    (index, *_) = members(sketch, warps=4, keys=64, stages=2)
    made = nvrtc.build(generate(lower_schedule(sketch.close(index), CUDA), CUDA), CUDA)
    assert all(use["spill_bytes"] == 0 for use in made.resources.values())
