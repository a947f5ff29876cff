"""What the first pass is cut into: each part says one thing and changes nothing of the others."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowering.test_overhang import product, tiled
from schedule.drawing import draw_schedule
from tests import strategies as S
from tests.tiers import examples
from tilewright.ir import expr as E
from tilewright.lowering.guards import SPATIAL, Guards
from tilewright.lowering.overhang import let_overhang
from tilewright.lowering.placement import Placement, place
from tilewright.lowering.storage import row_major, store_tensors
from tilewright.schedule.tree.loop_tree import LoopTree, Node

MAX_POINTS = 3000


def iterations(own: Placement, node: Node) -> list[dict[E.Expr, E.Value]]:
    """The values of all variables that the leaves of `node` take, in every iteration."""
    variables = [own.leaf[ax] for ax in node.stage.leaf_iter_vars if own.leaf[ax].op == "var"]
    ranges = [range(own.simplify.ranges[v][1] + 1) for v in variables]
    return [dict(zip(variables, at, strict=True)) for at in itertools.product(*ranges)]


@pytest.mark.slow
@examples(40)
@given(st.integers(0, 10_000), st.booleans())
@example(97, True)  # another stage wants more threads than the root has
def test_guarded_iterations_of_a_root_are_its_elements_each_once(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    dag = rng.choice((S.matmul(5, 7, 6), S.transpose((4, 6), (1, 0)), S.softmax(3, 5)))
    tree = LoopTree(draw_schedule(dag, rng, gpu=gpu))
    bounds = tree.bounds()
    for root in tree.roots:
        own = place(tree, bounds, root)
        axes = (*root.op.axis, *root.op.reduce_axis)
        guards = Guards(own)  # other stages may want more threads: `lanes`
        others = dict.fromkeys(own.thread_var.values(), 0)
        guard = E.all_of(guards.lanes(root, once=False), guards.of(root, ("spatial", "reduce")))
        points = iterations(own, root)
        if len(points) > MAX_POINTS:
            return
        met = [
            tuple(int(own.simplify(E.substitute(own.coordinate(root, ax), at))) for ax in axes)
            for at in points
            if own.simplify(E.substitute(guard, {**others, **at})).value
        ]
        assert sorted(met) == list(itertools.product(*(range(ax.size) for ax in axes)))


@pytest.mark.parametrize("shape, order, expected", [
    ((2, 3, 5), None, (15, 5, 1)), ((2, 3, 5), (2, 0, 1), (3, 1, 6)), ((), None, ()),
])  # fmt: skip
def test_row_major(
    shape: tuple[int, ...], order: tuple[int, ...] | None, expected: tuple[int, ...]
) -> None:
    assert row_major(shape, order) == expected


def test_overhang_gives_new_guards_and_storage_and_leaves_the_given_ones() -> None:
    tree = LoopTree(tiled(product(5, 13, 3, copies=True), 2, 2, 4))
    bounds = tree.bounds()
    storage = store_tensors(tree, bounds)
    before = dict(storage.buffers), dict(storage.layouts)
    places = [place(tree, bounds, root) for root in tree.roots]
    found = let_overhang(places, storage)
    assert (storage.buffers, storage.layouts) == before
    grown = [t.name for t in storage.buffers if found.storage.buffers[t] is not storage.buffers[t]]
    assert grown == ["x", "y", "c.local"]
    (local,) = found.guards[-1].dropped
    kept = Guards(places[-1])
    assert local.name == "c.local"
    assert found.guards[-1].dropped[local] == set(kept.tests(local, SPATIAL))
    assert found.guards[-1].of(local, SPATIAL).op == "const" != kept.of(local, SPATIAL).op
