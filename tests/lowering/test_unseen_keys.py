"""Keys that a mask hides from all rows of a block are neither brought nor multiplied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph.case import function
from lowering.split_sums import backwards, joins
from strategies import agrees
from tilewright.codegen import generate
from tilewright.graph.expr import Expr
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Allocate, AsyncCopy, If, Program, Store, statements
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.models.decoders.read import load
from tilewright.network.extract import fused_groups, groupings
from tilewright.schedule.sketch import Sketch
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.topi.templates import attention_rows
from tilewright_tvm import relay
from tilewright_tvm.relay import nn
from topi.test_attention_rows import members, sketch_of

CUDA = Target("cuda -arch=sm_90")
HEADS, KEYS, SIZE = 2, 128, 32
LOW = relay.const(np.float32(-1e38))
PARTS = 4  # copies of keys and of values, and what is done with them
SPELLINGS = {
    "<=": relay.less_equal,
    ">": lambda key, row: relay.greater(row, key),
    ">=": lambda key, row: relay.greater_equal(row, key),
    "not <": lambda key, row: relay.logical_not(relay.less(row, key)),
    "not <=": lambda key, row: relay.logical_not(relay.less_equal(row, key)),
    "not >": lambda key, row: relay.logical_not(relay.greater(key, row)),
    "not >=": lambda key, row: relay.logical_not(relay.greater_equal(key, row)),
    "not and": lambda key, row: relay.where(
        relay.greater(key, row), relay.const(False), relay.greater(key, row - relay.const(10))
    ),
    "not or": lambda key, row: relay.logical_not(
        relay.logical_or(relay.greater(key, row), relay.greater_equal(row - relay.const(10), key))
    ),
}


def places(count: int, axis: int, scale: int = 1, dtype: str = "int32") -> Expr:
    shape = [1, 1, 1]
    shape[axis] = count
    return relay.const((scale * np.arange(count, dtype=dtype)).reshape(shape))


def masked(rows: int, mask: str = "places", dtype: str = "int32") -> ComputeDAG:
    """Rows from position `at` - 1 on, over keys and values of a cache."""
    q, k, v = (
        relay.var(name, shape=(HEADS, n, SIZE), dtype="float16")
        for name, n in zip("qkv", (rows, KEYS, KEYS), strict=True)
    )
    at = relay.var("at", shape=(1, 1, 1), dtype=dtype)
    key, row = places(KEYS, 2, dtype=dtype), places(rows, 1, dtype=dtype) + at
    score = relay.cast(nn.batch_matmul(q, k, transpose_b=True), "float32") * relay.const(0.25)
    seen = relay.less(key, row)
    if mask == "behind a prompt":  # of 40 keys, which are elsewhere
        key = key - relay.const(40)
        seen = relay.less(key, row)
    elif mask == "from the row":
        key, row = key - places(rows, 1, dtype=dtype), at
        seen = relay.less(key, row)
    if mask in ("window", "behind a prompt", "from the row"):
        seen = relay.where(seen, relay.less(row - relay.const(10), key), relay.const(False))
    elif mask == "capped":
        score = relay.tanh(score) * relay.const(8.0)
    elif mask == "behind":
        seen = relay.less(row, key)
    elif mask == "every second":
        seen = relay.less(places(KEYS, 2, 2), row)
    elif mask in SPELLINGS:
        seen = SPELLINGS[mask](key, row)
    elif mask == "data":
        seen = relay.var("m", shape=(1, rows, KEYS), dtype="bool")
    elif mask == "chosen":
        score = relay.where(relay.var("m", shape=(HEADS, rows, KEYS), dtype="bool"), score, LOW)
    elif mask == "added":
        score = score + relay.cast(
            relay.var("m", shape=(HEADS, rows, KEYS), dtype="float16"), "float32"
        )
    if mask == "filled":
        score = relay.where(relay.greater_equal(key, row), LOW, score)
    else:
        score = relay.where(seen, score, LOW)
    share = relay.cast(nn.softmax(score, -1), "float16")
    whole = groupings(function(nn.batch_matmul(share, v, transpose_b=False)))[1]["main"]
    (found,) = [g for g in fused_groups(whole) if g.name == "attention"]
    return found.dag


def step(tokens: int = 1, cache: int = KEYS, batch: tuple[int, ...] = ()) -> ComputeDAG:
    """The attention of a decoder's step, which has its new row and its mask inside."""
    made = load("llama-tiny", batch, {"tokens": [tokens], "cache": cache}, "bfloat16").modules[0]
    whole = groupings(made, target=CUDA)[1]["main"]
    return next(g.dag for g in fused_groups(whole) if g.name == "attention")


def lowered(dag: ComputeDAG, **wanted: int) -> Program:
    sketch: Sketch = sketch_of(dag)
    return lower_schedule(sketch.close(members(sketch, **wanted)[0]), CUDA)


def left_out(program: Program) -> list[If]:
    """What is done for keys that some row sees."""
    return [
        s for s in statements(program.kernels[0].body)
        if isinstance(s, If)
        and any(n.op == "load" and n.attr.name.endswith(".last") for n in E.walk(s.condition))
    ]  # fmt: skip


def is_right(
    program: Program, dag: ComputeDAG, at: int | np.ndarray, hidden: float | None = None
) -> bool:
    """Whether it gives what the reference does, where rows see keys up to `at` - 1 or are alone.

    hidden: what is in keys and values behind these meanwhile
    """
    inputs = [t for t in dag.args if t not in dag.outputs]
    given = []
    for tensor, values in zip(inputs, random_inputs(dag, 0), strict=True):
        if values.dtype.kind == "i":
            values = np.full(tensor.shape, at, values.dtype)
        given.append(values)
    (want,), (bound,) = evaluate_with_tolerance(dag, given)
    if hidden is not None:
        given = [_spoilt(v, at + 1, hidden) for v in given]
    out = np.full(dag.outputs[0].shape, 99, dag.outputs[0].dtype.storage)
    of = dict(zip([t.name for t in inputs], given, strict=True))
    verify(program)
    run_fast(program, [of.get(b.name, out) for b in program.args])
    return bool(agrees(out.reshape(want.shape), want, bound).all())


def _spoilt(values: np.ndarray, first: int, hidden: float) -> np.ndarray:
    if values.ndim < 3 or values.shape[-2] != KEYS:
        return values
    made = values.copy()
    bfloat16 = np.float32(hidden).view(np.uint32) >> 16
    made[..., first:, :] = bfloat16 if made.dtype == np.uint16 else hidden
    return made


POSITIONS = (-40, 0, 1, 32, 33, 80, KEYS, 3 * KEYS)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 2, 4])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("mask", ["places", "window"])
def test_what_rows_see_is_computed(
    mask: str, rows: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where pieces see nothing, and where a row sees no key at all: the mean of all values."""
    monkeypatch.setattr(attention_rows, "SHORTEST", 32)
    dag = masked(rows, mask)
    program = lowered(dag, pieces=pieces, warps=2, rows=min(rows, 2))
    assert len(left_out(program)) == PARTS
    assert bool(joins(program)) == (pieces > 1)
    for at in POSITIONS:
        assert is_right(program, dag, at), at
    assert is_right(backwards(program), dag, 33)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", [*SPELLINGS, "filled"])
def test_comparisons_in_every_spelling(spelling: str) -> None:
    program = lowered(dag := masked(2, spelling), pieces=1, warps=2, rows=2)
    assert len(left_out(program)) == PARTS
    for at in POSITIONS:
        assert is_right(program, dag, at), at


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("spelling", ["<=", ">", "not <", "not <="])
def test_positions_at_the_ends_of_their_type(spelling: str, dtype: str) -> None:
    """One more than the last is none; a row at the first one sees nothing."""
    program = lowered(dag := masked(1, spelling, dtype), pieces=1, warps=2, rows=1)
    assert len(left_out(program)) == PARTS
    for at in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        assert is_right(program, dag, at), at


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["behind a prompt", "from the row"])
def test_rows_without_a_key_of_places_below_0(mask: str) -> None:
    """All keys count then, those before the first place, too."""
    dag = masked(2, mask)
    program = lowered(dag, pieces=1, warps=2, rows=1)
    assert len(left_out(program)) == PARTS
    for at in (-60, 5, 30, 3 * KEYS):
        assert is_right(program, dag, at), at


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [np.nan, np.inf])
@pytest.mark.parametrize("pieces", [1, 4])
def test_hidden_numbers_are_not_met(
    pieces: int, hidden: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be NaN in all results, times a share of 0."""
    monkeypatch.setattr(attention_rows, "SHORTEST", 32)
    dag = step()
    program = lowered(dag, pieces=pieces, warps=2)
    for at in (0, 17, KEYS - 1):
        assert is_right(program, dag, at, hidden), at


@pytest.mark.slow
@pytest.mark.parametrize("cache, pieces, warps", [(KEYS, 1, 4), (KEYS, 1, 8), (640, 8, 8)])
def test_a_step_writes_its_row_and_meets_it(cache: int, pieces: int, warps: int) -> None:
    """Also where a block has more threads than keys, or copies go beyond its last one."""
    dag = step(cache=cache)
    program = lowered(dag, pieces=pieces, warps=warps)
    assert len(left_out(program)) >= PARTS
    for at in (0, 31, 32, 79, 80, cache - 1):
        assert is_right(program, dag, at), at


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["behind", "every second", "data", "chosen", "added"])
def test_of_other_masks_nothing_is_left_out(mask: str) -> None:
    dag = masked(2, mask)
    program = lowered(dag, pieces=1, warps=2)
    assert left_out(program) == []
    for at in (1, 20):
        assert is_right(program, dag, at), at


@pytest.mark.parametrize("dtype", ["int8", "int16"])
@pytest.mark.parametrize("rows", [1, 2])
def test_places_that_wrap_around_are_not_compared_ahead(dtype: str, rows: int) -> None:
    dag = masked(rows, dtype=dtype)
    program = lowered(dag, pieces=1, warps=2, rows=rows)
    assert left_out(program) == []
    for at in (5, np.iinfo(dtype).max):
        assert is_right(program, dag, at), at


def test_scores_that_are_capped_are_chosen_as_others_are() -> None:
    program = lowered(dag := masked(1, "capped"), pieces=1, warps=2)
    assert len(left_out(program)) == PARTS
    assert is_right(program, dag, 33)


@pytest.mark.slow
def test_positions_of_a_batch() -> None:
    """A block has rows of one text, and brings what these see of one head's keys."""
    dag = step(batch=(2,))
    program, alone = (lowered(d, pieces=1, warps=2, rows=1) for d in (dag, step()))
    assert len(left_out(program)) == PARTS
    assert _shared_bytes(program) <= _shared_bytes(alone)
    for at in (1, 20, KEYS):
        assert is_right(program, dag, at), at
    assert is_right(program, dag, np.array([3, 77]).reshape(2, 1, 1, 1))


def _shared_bytes(program: Program) -> int:
    made = [s.buffer for s in statements(program.kernels[0].body) if isinstance(s, Allocate)]
    return sum(b.size * b.dtype.bytes for b in made if b.scope == "shared")


def test_no_more_is_read_than_what_is_seen() -> None:
    """As many copies begin as there are keys that a row sees, in windows, too."""
    for mask, at, seen in (("places", 17, 17), ("window", 40, 9)):
        program = lowered(masked(1, mask), pieces=1, warps=2, rows=1)
        copied = [s for s in left_out(program) if isinstance(s.then, AsyncCopy)]
        assert len(copied) == 2
        (kernel,) = program.kernels
        bounds = {
            s.buffer: s.value for s in statements(kernel.body)
            if isinstance(s, Store) and s.buffer.name.endswith((".first", ".last"))
        }  # fmt: skip
        ends = [_number(value, at) for value in bounds.values()]
        assert max(ends) + 1 - min([0, *ends][len(ends) - 1 :]) == seen


def _number(value: Expr, at: int) -> int:
    loads = {n: E.const(at, str(n.dtype)) for n in E.walk(value) if n.op == "load"}
    return int(E.substitute(value, loads).attr)


@pytest.mark.slow
def test_a_kernel_of_a_chain_asks_for_all_that_may_be_seen() -> None:
    """Its position may be written by the kernel before."""
    program = replace(lowered(step(), pieces=1, warps=2), steady=frozenset(), lets_in=True)
    text = generate(program, CUDA).text
    body = text[text.index('extern "C"') :]
    order = [body.index(word) for word in ("tw_prefetch(", "tw_await_kernel", "_last[0] =")]
    assert order == sorted(order)


@pytest.mark.slow
def test_caches_that_nothing_writes_before_are_copied_before_the_wait() -> None:
    """And the position says how much of them."""
    made = lowered(dag := step(), pieces=1, warps=2)
    names = [t.name for t in dag.args if t.dtype == "int64" or t.shape[-2:] == (KEYS, SIZE)]
    steady = frozenset(b for b in made.args if b.name in names)
    assert len(steady) == 4
    text = generate(replace(made, steady=steady, lets_in=True), CUDA).text
    body = text[text.index('extern "C"') :]
    end, copies, waits = body.index("_last[0] ="), body.index("tw_copy_16("), body.index("tw_await")
    assert end < copies < waits and "tw_prefetch(" not in body
    assert body[:waits].count("tw_copy_16(") == 2
