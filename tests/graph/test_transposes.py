"""Two transpositions after each other are one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import merge_transposes
from tilewright.graph.traversal import is_call
from tilewright_tvm import relay


def count(mod: IRModule) -> int:
    return sum(is_call(n, "transpose") for n in post_order(mod["main"].body))


def merged(value: Expr, wanted: int) -> None:
    mod = IRModule.from_expr(value)
    made = merge_transposes(mod)
    assert count(made) == wanted
    shape = mod["main"].params[0].shape
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    both = (evaluate(m, {"x": x}) for m in (mod, made))
    one, other = (v if isinstance(v, tuple) else (v,) for v in both)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_pixels_of_a_step_become_channels_first_in_one_move() -> None:
    x = relay.var("x", shape=(1, 3, 4, 2, 5, 2))
    last = relay.reshape(relay.transpose(x, (0, 2, 4, 3, 5, 1)), (1, 4, 5, 12))
    merged(relay.transpose(last, (0, 3, 1, 2)), 1)


def test_axes_that_were_cut_stay_two_moves() -> None:
    x = relay.var("x", shape=(4, 6))
    cut = relay.reshape(relay.transpose(x, (1, 0)), (3, 8))
    merged(relay.transpose(cut, (1, 0)), 2)


def test_what_others_read_is_moved_for_them() -> None:
    x = relay.var("x", shape=(4, 6, 5))
    first = relay.transpose(x, (1, 0, 2))
    merged(relay.Tuple([relay.transpose(first, (2, 1, 0)), first]), 2)


@given(st.permutations(range(4)), st.permutations(range(3)), st.integers(0, 2), st.booleans())
@examples(30)
def test_any_two_are_one(first: list[int], then: list[int], at: int, ones: bool) -> None:
    x = relay.var("x", shape=(2, 1 if ones else 3, 4, 5))
    value = relay.transpose(x, first)
    shape = list(value.checked_type.shape)
    shape[at : at + 2] = [shape[at] * shape[at + 1]]
    merged(relay.transpose(relay.reshape(value, shape), then), 1)


@pytest.mark.parametrize("axes", [(2, 0, 1), (1, 2, 0)])
def test_directly_behind_each_other(axes: tuple[int, ...]) -> None:
    x = relay.var("x", shape=(2, 3, 4))
    merged(relay.transpose(relay.transpose(x, (1, 0, 2)), axes), 1)
