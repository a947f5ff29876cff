"""Rows of what a warp holds, reduced by its lanes; sums that follow a maximum while it grows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedule.step_cases import masked_shares, shares, softmax_of_products
from strategies import assert_computes
from tests import interpreter
from tests.tiers import examples
from tilewright.base.errors import LegalityError, ScheduleError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Exchange, Program, statements
from tilewright.lowering import folds
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.thread_loops import lanes
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

TARGET = Target("cuda -arch=sm_90")
ATOM = "m16n8k16.float16"


def softmax(
    rows: int, keys: int, columns: int, *, slices: int = 16, warps: int = 1, each: int = 1,
    running: bool = True, even: bool = False,
) -> tuple[Schedule, ComputeDAG]:  # fmt: skip
    """softmax(Q K) V, slices of keys at a time.

    warps, each: of a block, atoms of rows of a warp; running: maxima and sums go along with the
    slices, else they are complete before the first
    """
    dag = ComputeDAG(softmax_of_products(rows, keys, columns, even))
    s = Schedule(dag)
    of = {op.name: op for op in dag.ops}
    q, k, v = (of[name].output_tensor for name in "QKV")
    scores, largest, total, share, out, result = (s[of[name]] for name in "SMTPOC")
    block, rest = result.split(of["C"].axis[0], factor=16 * each * warps)
    warp, own = result.split(rest, factor=16 * each)
    result.reorder(block, warp, own, of["C"].axis[1])
    result.bind(block, "blockIdx.x")
    result.bind(warp, "threadIdx.y")
    lane, *_ = lanes(result, own, of["C"].axis[1], ATOM)
    held = {t: s[s.cache_read(t, "fragment", [reader.tensor])]
            for t, reader in ((v, out), (q, scores), (k, scores))}  # fmt: skip
    for stage in (scores, largest, total, share, out):
        stage.set_scope("fragment")
    out.compute_at(result, lane)
    (x,) = of["O"].reduce_axis
    part, inside = out.split(x, factor=slices)
    step = tensorized(out, [part], inside)
    held[v].compute_at(out, step)
    share.compute_at(out, step)
    if running:
        scores.compute_at(out, part)
        largest.accumulate_at(out, part)
        total.accumulate_at(out, part)
    else:
        for stage in (scores, largest, total):
            stage.compute_at(result, lane)
    step = tensorized(scores, [], of["S"].reduce_axis[0])
    for t in (q, k):
        held[t].compute_at(scores, step)
    return s, dag


def tensorized(stage, outside, depth):
    m, n = stage.op.axis
    step, k = stage.split(depth, factor=16)
    (rows, i), (columns, j) = stage.split(m, factor=16), stage.split(n, factor=8)
    stage.reorder(*outside, step, rows, columns, i, j, k)
    stage.tensorize(i, ATOM)
    return step


def lowered(s: Schedule) -> Program:
    return lower_schedule(s, TARGET, args=s.dag.args)


CASES = {
    "one slice": {"keys": 16},
    "some slices": {"keys": 64},
    "slices of several steps": {"keys": 96, "slices": 32},
    "the last slice is short": {"keys": 45, "slices": 32},
    "warps with rows beyond the end": {"rows": 37, "warps": 2, "each": 2},
    "columns beyond the end": {"columns": 11},
}


@pytest.mark.parametrize("running", [True, False], ids=["running", "whole"])
@pytest.mark.parametrize("name", CASES)
def test_a_softmax_between_two_products(name: str, running: bool) -> None:
    s, dag = softmax(**{"rows": 16, "keys": 40, "columns": 8, **CASES[name], "running": running})
    assert_computes(lowered(s), dag)


def test_both_interpreters_agree_to_the_last_bit() -> None:
    s, dag = softmax(21, 40, 8, warps=2)
    program, rng = lowered(s), np.random.default_rng(0)
    assert any(isinstance(st, Exchange) for st in statements(program.kernels[0].body))
    given = [rng.standard_normal(t.shape).astype(np.float16) for t in dag.args[:3]]
    results = []
    for run in (run_fast, interpreter.run):
        results.append(np.zeros(dag.args[3].shape, np.float32))
        run(program, [*given, results[-1]])
    np.testing.assert_array_equal(*results)


@given(
    st.integers(2, 40), st.integers(2, 70), st.integers(2, 20), st.sampled_from([16, 32, 48]),
    st.sampled_from([(1, 1), (2, 1), (1, 2)]), st.booleans(), st.integers(0, 99),
)  # fmt: skip
@examples(12)
def test_every_extent(rows, keys, columns, slices, tiles, running, seed) -> None:
    warps, each = tiles
    s, dag = softmax(
        rows, keys, columns, slices=slices, warps=warps, each=each, running=running
    )  # fmt: skip
    assert_computes(lowered(s), dag, seed)


def growing(rows: int, keys: int) -> list[np.ndarray]:
    """Scores that grow from key to key, so that each slice has a new maximum."""
    q, k = np.zeros((rows, 16), np.float16), np.zeros((keys, 16), np.float16)
    q[:, 0], k[:, 0] = 1, np.arange(keys) / 4
    return [q, k, np.random.default_rng(0).standard_normal((keys, 8)).astype(np.float16)]


def computed(s: Schedule, given: list[np.ndarray]) -> np.ndarray:
    out = np.zeros((given[0].shape[0], 8), np.float32)
    run_fast(lowered(s), [*given, out])
    return out


def expected(given: list[np.ndarray]) -> np.ndarray:
    q, k, v = (x.astype(np.float64) for x in given)
    e = np.exp(q @ k.T - (q @ k.T).max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ v


def test_sums_follow_a_maximum_that_grows(monkeypatch) -> None:
    s, _ = softmax(16, 64, 8)
    given = growing(16, 64)
    np.testing.assert_allclose(computed(s, given), expected(given), rtol=2e-3, atol=2e-3)
    monkeypatch.setattr(folds, "followed", lambda emission, node, newer: newer)  # they do not
    assert np.abs(computed(s, given) - expected(given)).max() > 0.01


def test_slices_without_a_key_add_nothing() -> None:
    """The first scores are -inf, as a mask gives them; a row without any key is no number."""
    s, _ = softmax(16, 48, 8)
    given = growing(16, 48)
    given[0][:, 1], given[1][:20, 1] = 1, -np.inf
    given[0][3, 2], given[1][:, 2] = 1, -np.inf
    given[0][given[0] == 0] = 1e-7  # 0 * inf is none
    out = computed(s, given)
    with np.errstate(invalid="ignore"):
        wanted = expected(given)
    kept = np.arange(16) != 3
    np.testing.assert_allclose(out[kept], wanted[kept], rtol=2e-3, atol=2e-3)
    assert np.isnan(out[3]).all() and np.isnan(wanted[3]).all()


@pytest.mark.parametrize("make", [shares, masked_shares])
def test_the_divisor_last(make) -> None:
    dag = ComputeDAG(make(5, 6, 7))
    s = Schedule(dag)
    s.divide_last(dag.outputs[0])
    assert_computes(lower_schedule(s, Target("llvm"), args=dag.args), dag)


def test_a_sum_of_nothing_is_zero_whatever_divides_it() -> None:
    dag = ComputeDAG(masked_shares(3, 2, 4))
    s = Schedule(dag)
    s.divide_last(dag.outputs[0])
    program = lower_schedule(s, Target("llvm"), args=dag.args)
    given = {"A": np.ones((3, 4), np.float32), "T": np.float32([0, np.nan, 2]),
             "B": np.ones((4, 2), np.float32), "W": np.zeros(4, bool),
             "C": np.ones((3, 2), np.float32)}  # fmt: skip
    run_fast(program, [given[b.name] for b in program.args])
    np.testing.assert_array_equal(given["C"], np.zeros((3, 2)))


REFUSED = {
    "terms that do not follow": (lambda: softmax(16, 32, 8, even=True)[0], "not proportional"),
    "slices that cut an atom": (lambda: softmax(16, 32, 8, slices=24)[0], "split"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make, words: str) -> None:
    with pytest.raises((ScheduleError, LegalityError), match=words):
        lowered(make())


def test_a_reader_of_a_maximum_that_is_not_complete() -> None:
    """A sum behind the loop would be right; a stage that keeps the terms is not."""
    s, _ = softmax(16, 32, 8)
    share = next(st for st in s.stages if st.name == "P")
    out, result = (next(st for st in s.stages if st.name == n) for n in "OC")
    share.compute_at(result, out.attach[1])
    with pytest.raises(ScheduleError, match="accumulate_at|outside"):
        LoopTree(s)
