"""Sketch rules of a user that give several states: each is a sketch with decisions of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.auto_scheduler.loop_state import State

M, N, K = 12, 16, 8
Rule = auto_scheduler.PreloadCustomSketchRule


def tensors() -> list[te.Tensor]:
    a, b = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((M, N), lambda i, j: c[i, j] + 1.0, name="D")]


def policy_of(apply: Callable[..., Any], args: list[te.Tensor], at: str = "C") -> Any:
    task = auto_scheduler.SearchTask(compute_dag=args, target="llvm -num-cores 2")

    def meets(policy: Any, state: Any, k: int) -> int:
        return Rule.APPLY_AND_SKIP_REST if state.schedule.stages[k].name == at else Rule.PASS

    callbacks = [Rule(meets, apply, "own")]
    return auto_scheduler.SketchPolicy(task, init_search_callbacks=callbacks, verbose=0)


def in_tiles(policy: Any, state: Any, stage_id: int) -> Any:
    """Both axes in two levels, the rows in three, or nothing but another order."""
    dag = policy.search_task.compute_dag
    both = State(state, dag)
    rows, plain = both.copy(), both.copy()
    stage = both.stage_ops[stage_id]
    for axis in both[stage].iters[:2]:
        both.split(stage, axis, [None])
    deeper = rows.copy()  # another name for what comes next; `rows` itself is not given back
    i, j, k = deeper[stage].iters
    deeper.split(stage, i, [None, None])
    i, j, k = plain[stage].iters
    plain.reorder(stage, [k, i, j])
    return [[s.state_object, stage_id - 1] for s in (both, deeper, plain)]


@pytest.mark.slow
def test_each_state_becomes_a_sketch_and_every_member_is_right() -> None:
    args = tensors()
    policy = policy_of(in_tiles, args)
    sketches = policy.generate_sketches()
    assert [s.origin for s in sketches] == ["rules:own", "rules:own1", "rules:own2"]
    tiles = [[n for n in s.space.space_map if n in ("C:i", "C:j")] for s in sketches]
    assert tiles == [["C:i", "C:j"], ["C:i"], []]
    assert [s.space.space_map["C:i"].num_output for s in sketches[:2]] == [2, 3]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(t.shape).astype("float32") for t in args[:2])
    for sketch in sketches:
        assert sketch.legal(np.arange(len(sketch.space))).any()
        for index in (0, len(sketch.space) // 2, len(sketch.space) - 1):
            func = tilewright.build(sketch.close(index), args, "llvm")
            out = nd.empty((M, N))
            func(nd.array(a), nd.array(b), out)
            np.testing.assert_allclose(out.numpy(), a @ b + 1, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_a_search_measures_several_states(tmp_path: Any) -> None:
    args = tensors()
    policy = policy_of(in_tiles, args)
    policy.templates = False
    options = auto_scheduler.TuningOptions(
        num_measure_trials=8, measure_callbacks=[auto_scheduler.RecordToFile(tmp_path / "l")]
    )
    policy.search_task.tune(options, policy)
    found = list(auto_scheduler.load_records(tmp_path / "l"))
    assert len(found) == 8 and all(result.error_no == 0 for _, result in found)


def test_rules_before_and_after_keep_their_own() -> None:
    """A rule at the reader forks, then another at the producer: every pair of them."""

    def fork(policy: Any, state: Any, stage_id: int) -> Any:
        twin = state.copy()
        for s, options in ((state, [1, 2]), (twin, [3, 4, 6])):
            stage = s.schedule.stages[stage_id]
            stage.split(stage.op.axis[0], factor=s.choose(stage, "rows", options))
        return [[state, stage_id - 1], [twin, stage_id - 1]]

    args = tensors()
    task = auto_scheduler.SearchTask(compute_dag=args, target="llvm -num-cores 2")
    rule = Rule(lambda _, s, k: 2 if s.schedule.stages[k].name in "CD" else 0, fork, "fork")
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule], verbose=0)
    sketches = policy.generate_sketches()
    numbers = [tuple(len(s.space.space_map[f"{name}:rows"]) for name in "DC") for s in sketches]
    assert sorted(numbers) == [(2, 2), (2, 3), (3, 2), (3, 3)]
    for sketch, sizes in zip(sketches, numbers, strict=True):
        last = sketch.close(sketch.space.range_length - 1).to_json()
        factors = {step[1]: step[3] for step in last if step[0] == "split" and step[2] == "i"}
        assert factors == {n: 6 if k == 3 else 2 for n, k in zip("DC", sizes, strict=True)}


def test_what_a_rule_may_not_return() -> None:
    calls: list[int] = []

    def fewer(policy: Any, state: Any, stage_id: int) -> Any:
        calls.append(stage_id)
        return [[state, -1]] * (2 if len(calls) == 1 else 1)

    with pytest.raises(SpaceError, match="another number of states"):
        policy_of(fewer, tensors()).generate_sketches()
    for wrong in ([], [["state", 0]], [[0, 0]], None):
        with pytest.raises(SpaceError, match="of the state and its copies"):
            policy_of(lambda *_, wrong=wrong: wrong, tensors()).generate_sketches()
