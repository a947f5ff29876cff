"""Attention of few rows: every form that steps of decoders have, at random members."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graph.case import function
from graph.test_grouped_heads import attention as step_over_a_cache
from lowering.split_sums import backwards, joins
from strategies import assert_computes
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate
from tilewright.ir.stmt import AsyncCopy, Barrier, Exchange, Program, Wait, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.topi.templates import attention_rows
from topi.test_attention_atoms import attention, group

CUDA = Target("cuda -arch=sm_90")


def sketch_of(dag: ComputeDAG) -> Sketch:
    (registered,) = (t for t in anchor_templates(dag, CUDA) if t.name == "attention.rows")
    return sketch_of_anchor(registered, dag, CUDA)


def check(dag: ComputeDAG, count: int = 2, seed: int = 0) -> list[Program]:
    sketch, found = sketch_of(dag), []
    drawn = np.random.default_rng(seed).choice(len(sketch.space), count).tolist()
    for index in {sketch.fallback(), *drawn}:
        found.append(lower_schedule(sketch.close(index), CUDA))
        assert len(found[-1].kernels) == 1
        assert_computes(found[-1], dag, seed)
    return found


SHAPES = {
    "one row": (2, 1, 32, 16, 16, "float16"),
    "keys and columns of no vectors": (2, 3, 37, 20, 24, "bfloat16"),
    "odd heads": (2, 3, 21, 5, 7, "float16"),
    "float32": (2, 4, 33, 8, 8, "float32"),
    "as many rows as there may be": (1, 16, 20, 8, 8, "float16"),
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_extent(shape: tuple[int, ...]) -> None:
    check(attention(*shape))


def test_causal_rows() -> None:
    check(attention(1, 4, 24, 16, 16, "bfloat16", is_causal=True))


@pytest.mark.slow
def test_a_step_over_a_cache_asks_for_all_that_it_reads_at_once() -> None:
    """Keys, values and the mask are under way before anything waits; lanes exchange maxima."""
    dag = group(function(step_over_a_cache()))
    for program in check(dag):
        kernel = program.kernels[0]
        order = list(statements(kernel.body))
        at = next(k for k, s in enumerate(order) if isinstance(s, Wait))
        assert not any(isinstance(s, Barrier) for s in order[:at])
        copied = {s.source.buffer.name for s in order[:at] if isinstance(s, AsyncCopy)}
        assert len(copied) == 2 and any(isinstance(s, Exchange) for s in order)
        assert "undivided" in str(program)  # the mask behind the softmax is no obstacle


def test_it_is_what_runs_untuned() -> None:
    (first, *_) = anchor_sketches(attention(2, 4, 32, 16, 16), CUDA)
    assert first.origin == "template:attention.rows"


@pytest.mark.parametrize("shape", [(1, 17, 16, 16, 16), (1, 4, 1, 16, 16), (1, 4, 32, 1, 16)])
def test_more_rows_and_vectors_are_for_other_templates(shape: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match="more than 16 rows, or a factor is a vector"):
        sketch_of(attention(*shape))


def members(sketch: Sketch, **wanted: int) -> list[int]:
    values = [sketch.space.get(index) for index in range(len(sketch.space))]
    return [k for k, v in enumerate(values) if all(v[name].val == n for name, n in wanted.items())]


PIECES = {
    "rows of a causal mask": (attention(1, 3, 32, 16, 16, "bfloat16", is_causal=True), 2),
    "columns of no vectors": (attention(2, 2, 64, 12, 12), 4),
    "float32": (attention(2, 2, 32, 8, 8, "float32"), 2),
}


@pytest.mark.slow
@pytest.mark.parametrize("near", [1, 32])
@pytest.mark.parametrize(("dag", "pieces"), PIECES.values(), ids=PIECES)
def test_keys_in_pieces_are_one_kernel(
    dag: ComputeDAG, pieces: int, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks of their own compute them; the last of a row puts them together, whichever it is."""
    monkeypatch.setattr(attention_rows, "NEAR", near)
    monkeypatch.setattr(attention_rows, "SHORTEST", 16)
    sketch = sketch_of(dag)
    found = members(sketch, pieces=pieces, warps=2)
    for index in (found[0], found[-1]):
        program = lower_schedule(sketch.close(index), CUDA)
        assert len(program.kernels) == 1 and joins(program)
        assert_computes(program, dag, 0)
        assert_computes(backwards(program), dag, 0)


@pytest.mark.slow
def test_kernels_that_begin_early_ask_for_the_cache_before_they_wait() -> None:
    """The kernel before may still write a row of it: memory is asked for, nothing is read."""
    sketch = sketch_of(attention(2, 4, 64, 64, 64))
    program = lower_schedule(sketch.close(sketch.fallback()), CUDA)
    text = generate(replace(program, steady=frozenset(), lets_in=True), CUDA).text
    body = text[text.index('extern "C"') :]
    order = [body.index(word) for word in ("tw_prefetch(", "tw_await_kernel", "tw_copy_16(")]
    assert order == sorted(order)
    assert "tw_prefetch(" not in generate(replace(program, steady=frozenset()), CUDA).text
