"""Where something is written is worked out in the kernel that writes it."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import canonicalize, fuse, work_out_indices
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare
from tilewright.te.evaluate import evaluate as te_evaluate
from tilewright.te.evaluate import random_inputs
from tilewright_tvm import relay

SIZE = 6
PLACES = relay.const(np.arange(SIZE, dtype="int64").reshape(SIZE, 1))


def index(i: Expr) -> Expr:
    """Counted from the end where it is negative, in a shape of its own."""
    zero, end = (relay.const(np.array(n, "int64")) for n in (0, SIZE))
    return relay.reshape(relay.where(relay.less(i, zero), relay.add(i, end), i), (1, 1))


def choice(here: Expr, name: str) -> Expr:
    return relay.where(here, tensor(f"{name}_new", 1, 4), tensor(name, SIZE, 4))


def two(i: Expr) -> Expr:
    here = relay.equal(PLACES, index(i))
    return relay.Tuple([choice(here, "keys"), choice(here, "values")])


def values(mod: IRModule, at: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    given = {
        p.name_hint: np.full(p.shape, at, "int64") if p.name_hint == "i"
        else rng.standard_normal(p.shape).astype("float32")
        for p in sorted(mod["main"].params, key=lambda p: p.name_hint)
    }  # fmt: skip
    found = evaluate(mod, given)
    return list(found) if isinstance(found, list | tuple) else [found]


def test_each_choice_has_an_index_of_its_own() -> None:
    mod = canonicalize(IRModule.from_expr(function(two(tensor("i", 1, dtype="int64")))))
    made = work_out_indices(mod)
    names = [op_name(n) for n in post_order(made["main"].body)]
    assert names.count("equal") == 2
    groups = [g for g in fused_groups(fuse(made)["main"]) for _ in g.calls]
    assert len(groups) == 2
    for at in (0, SIZE - 1, -1, -SIZE, SIZE):
        for one, other in zip(values(made, at), values(mod, at), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_mask_is_worked_out_behind_a_view_of_fewer_axes() -> None:
    """As a step of a decoder has it, whose heads of queries are rows."""
    every = relay.const(np.arange(SIZE, dtype="int64").reshape(1, 1, 1, SIZE))
    here = relay.less(every, relay.reshape(index(tensor("i", 1, dtype="int64")), (1, 1, 1, 1)))
    rows = relay.where(
        relay.reshape(here, (1, 1, SIZE)), tensor("x", 2, 3, SIZE), tensor("y", 2, 3, SIZE)
    )
    columns = relay.where(
        relay.reshape(here, (1, SIZE, 1)), tensor("x", 2, SIZE, 3), tensor("y", 2, SIZE, 3)
    )
    for body, count in ((rows, 1), (columns, 3)):  # a mask that is moved keeps its kernel
        mod = canonicalize(IRModule.from_expr(function(body)))
        made = work_out_indices(mod)
        assert len(fused_groups(fuse(made)["main"])) == count
        for at in (0, 3, -1):
            for one, other in zip(values(made, at), values(mod, at), strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_mask_that_is_stretched_has_as_many_axes_as_the_choice() -> None:
    every = relay.const(np.arange(SIZE, dtype="int64").reshape(1, SIZE))
    i = relay.reshape(tensor("i", 1, dtype="int64"), (1, 1))
    before = relay.less(every, relay.broadcast_to(i, (1, SIZE)))
    behind = relay.broadcast_to(relay.less(every, i), (3, SIZE))
    for here in (before, behind):
        body = relay.where(here, tensor("x", 2, 3, SIZE), tensor("y", 2, 3, SIZE))
        mod = canonicalize(IRModule.from_expr(function(body)))
        made = work_out_indices(mod)
        for at in (0, 3, -1):
            np.testing.assert_array_equal(*values(made, at), *values(mod, at))


def tables(*places: np.ndarray) -> Expr:
    i = relay.reshape(tensor("i", 1, dtype="int64"), (1, 1))
    apart = [relay.subtract(relay.const(p), i) for p in places]
    return relay.Tuple([relay.less(a, relay.const(1, "int64")) for a in apart])


def test_tables_that_count_are_worked_out_and_told_apart() -> None:
    rows, columns = np.arange(3).reshape(-1, 1), np.arange(5).reshape(1, -1)
    places = [columns - rows, 2 * columns - rows + 7, columns * rows]
    mod = fuse(canonicalize(IRModule.from_expr(function(tables(*places)))))
    groups = fused_groups(mod["main"])
    assert [len(g.dag.args) for g in groups] == [2, 2, 3]  # what is no sum of counts is read
    for one, place in zip(values(mod, 2), places, strict=True):
        np.testing.assert_array_equal(one, place - 2 < 1)
    for group, place in zip(groups[:2], places, strict=False):
        (found,) = te_evaluate(group.dag, [np.full((1, 1), 2, "int64")])
        np.testing.assert_array_equal(found, place - 2 < 1)


def test_what_is_compared_with_counts_is_drawn_among_them() -> None:
    mod = fuse(canonicalize(IRModule.from_expr(function(tables(np.arange(900).reshape(1, -1))))))
    (group,) = fused_groups(mod["main"])
    drawn = [random_inputs(group.dag, seed)[0].item() for seed in range(20)]
    assert min(drawn) >= 0 and 300 < max(drawn) < 900


@pytest.mark.parametrize("places, count", [(np.arange(SIZE), 1), (np.zeros(SIZE), 2)])
def test_what_is_written_at_one_place_is_computed_there(places: np.ndarray, count: int) -> None:
    """At several places it would be computed again for each."""
    every = relay.const(places.astype("int64").reshape(SIZE, 1))
    new = relay.exp(tensor("new", 1, 4)) * tensor("other", 1, 4)
    body = relay.where(
        relay.equal(every, tensor("i", 1, 1, dtype="int64")), new, tensor("x", SIZE, 4)
    )
    mod = IRModule.from_expr(function(body))
    made = prepare(mod)
    assert len(fused_groups(made["main"])) == count
    for at in (0, SIZE - 1, SIZE):
        for one, other in zip(values(made, at), values(mod, at), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


OTHERS = {
    "of several numbers": lambda: choice(
        relay.equal(PLACES, tensor("i", 1, 4, dtype="int64")), "x"
    ),
    "of a float": lambda: choice(
        relay.less(relay.const(np.ones((SIZE, 1), "float32")), tensor("f", 1, 1)), "x"
    ),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_stay(make) -> None:
    mod = canonicalize(IRModule.from_expr(function(make())))
    assert work_out_indices(mod)["main"].body is mod["main"].body


def test_an_index_that_others_read_is_computed_once() -> None:
    """A sum reads it, too: that has a kernel, which a choice does not do again."""
    i = tensor("i", 1, dtype="int64")
    body = relay.Tuple([relay.sum(index(i), axis=0), relay.cast(index(i), "float32")])
    groups = [g.name for g in fused_groups(prepare(function(body))["main"]) for _ in g.calls]
    assert not any("where" in name and "sum" in name for name in groups)
