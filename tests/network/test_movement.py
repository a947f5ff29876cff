"""A build tells which kernels only move elements, and what keeps each from joining another."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.network.build import State, build
from tilewright_tvm import relay


@pytest.mark.slow
def test_what_only_moves_is_told_with_what_reads_it() -> None:
    x, w = relay.var("x", shape=(4, 6)), relay.const(np.ones((8, 4), "float32"))
    turned = relay.transpose(x)
    made = relay.nn.softmax(relay.nn.dense(turned, w))
    body = relay.Tuple([made, relay.transpose(relay.nn.relu(made)), relay.reverse(x, 0)])
    report = build(relay.Function([x], body), "llvm", verify=False).report
    assert {(row.why, row.calls, row.nbytes) for row in report.moved} == {
        ("nn.dense reads it, more than once an element", 1, 96),
        ("it is a result of the network", 1, 96),
    }
    assert "2 launches only move elements" in str(report)


def test_a_network_without_such_kernels_says_nothing() -> None:
    x = relay.var("x", shape=(4, 6))
    report = build(relay.Function([x], relay.nn.relu(x)), "llvm", verify=False).report
    assert report.moved == () and "only move" not in str(report)


def step(rows: int) -> relay.Function:
    x, cache = relay.var("x", shape=(rows, 4)), relay.var("cache", shape=(6, 4))
    at = relay.var("at", shape=(1, rows), dtype="int64")
    new = relay.scatter_nd(cache, at, x)
    return relay.Function([x, cache, at], relay.Tuple([new, relay.nn.dense(x, new)]))


@pytest.mark.slow
def test_what_is_written_to_an_input_is_told_apart_and_shapes_have_their_own_count() -> None:
    states = {"cache": State(0)}
    made = build([step(1), step(2)], "llvm", states=states, verify=False)
    over = [row for row in made.report.moved if "memory of an input" in row.why]
    assert {row.each for row in over} == {(1, 0)}  # of two rows it is not in place
    assert [bool(plan.in_place) for plan in made.plans] == [True, False]
    first = made.report.moved_told()[0]
    counts = [sum(n) for n in zip(*(row.each for row in made.report.moved), strict=True)]
    assert f"launches ({counts[0]} and {counts[1]}, for 2 shapes of inputs) only move" in first
