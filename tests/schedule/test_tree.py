"""The loop tree: arrays agree with ints; regions cover what is touched, exactly if tiles divide."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schedule import seed003
from schedule.computations import conv2d, draw_computation, matmul
from schedule.drawing import draw_schedule
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright.ir import expr as E
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Allocate, Buffer, For, If, Kernel, Seq, Stmt, Store
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import Assignment, var
from tilewright.schedule.steps.loops import Split
from tilewright.schedule.task import Task, create
from tilewright.schedule.tree.legality import judge
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate

SEEDS = st.integers(0, 10**9)


@pytest.fixture(scope="module")
def task() -> Task:
    return create(
        "tests/conv2d_no_batching", seed003.FLAGSHIP, "cuda -shared-bytes-per-block=49152"
    )


def row(value: Any, index: int) -> Any:
    array = np.asarray(value)
    return array[index].item() if array.ndim else array.item()


def assert_row_equals(bounds: Bounds, index: int, single: Bounds) -> None:
    """Candidate `index` of a population has exactly the numbers of its own tree."""
    for node, alone in zip(bounds.tree.nodes, single.tree.nodes, strict=True):
        assert [row(e, index) for e in bounds.region(node)] == single.region(alone)
        assert [row(e, index) for e in bounds.strides(node)] == single.strides(alone)
        assert row(bounds.replicas(node), index) == single.replicas(alone)
        axes = zip(node.stage.all_iter_vars, alone.stage.all_iter_vars, strict=True)
        for a, b in axes:
            assert row(bounds.extent[a], index) == single.extent[b], (node.name, a.name)
            assert row(bounds.reach[a], index) == single.reach[b], (node.name, a.name)
        flags = {a.name: bool(row(f, index)) for a, f in bounds.guards[node].items()}
        assert {k for k, v in flags.items() if v} == {
            a.name for a, f in single.guards[alone].items() if f
        }
        for (low, high), (one_low, one_high) in zip(
            bounds.outside[node], single.outside[alone], strict=True
        ):
            assert (bool(row(low, index)), bool(row(high, index))) == (
                bool(one_low),
                bool(one_high),
            )
    for root, alone in zip(bounds.tree.roots, single.tree.roots, strict=True):
        assert {t: row(e, index) for t, e in bounds.launch(root).items()} == single.launch(alone)


@pytest.mark.slow
@examples(40)
@given(SEEDS, st.booleans())
def test_arrays_equal_ints_over_random_structures(seed: int, gpu: bool) -> None:
    rng = random.Random(seed)
    dag = ComputeDAG(draw_computation(rng)[1])
    drawn = draw_schedule(dag, rng, gpu=gpu)
    sizes = [k for k, step in enumerate(drawn.steps) if isinstance(step, Split)]
    assume(sizes)
    rows = 5
    values = {f"d{k}": np.array([rng.randint(1, 6) for _ in range(rows)]) for k in sizes}

    def with_sizes(choose: Any) -> Schedule:
        steps: list[Any] = list(drawn.steps)
        for k in sizes:
            step = steps[k]
            chosen = choose(f"d{k}")
            factor, nparts = (chosen, None) if step.nparts is None else (None, chosen)
            steps[k] = Split(step.stage, step.axis, factor, nparts)
        return Schedule.replay(dag, steps)

    try:
        bounds = LoopTree(with_sizes(var)).bounds(Assignment(values))
    except SpaceError:  # rfactor needs a factor as a number: that structure is traced apart
        assume(False)
    for index in range(rows):
        single = LoopTree(with_sizes(lambda name, i=index: int(values[name][i]))).bounds()
        assert_row_equals(bounds, index, single)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["factors", "verbose"])
def test_arrays_equal_ints_on_the_tutorial_template(policy: str) -> None:
    stride_two = (1, 14, 13, 24, 20, 3, 3, 2, 1, policy)
    sketch = create("tests/conv2d_no_batching", stride_two, "cuda").sketches[0]
    indices = sketch.space.sample(60, np.random.default_rng(3))
    (group,) = sketch.groups(indices)
    for k, index in enumerate(indices):
        single = LoopTree(sketch.close(int(index)))
        assert_row_equals(group.bounds, k, single.bounds())
        alone = judge(Resources(single.bounds(), sketch.target))
        refused = {name for name, mask in group.verdict.refused.items() if row(mask, k)}
        assert refused == {name for name, mask in alone.refused.items() if mask}


def test_exactly_the_failed_trials_of_the_tutorial_are_refused(task: Task) -> None:
    indices = np.array(list(seed003.TRIALS))
    legal = task.sketches[0].legal(indices, sensible=False)
    assert legal.tolist() == list(seed003.TRIALS.values())
    assert sum(not ok for ok in seed003.TRIALS.values()) == 13


def test_the_tutorial_space(task: Task) -> None:
    assert len(task.config_space) == 10454400
    assert task.flop == 231501312


def test_permuting_a_population_permutes_its_verdict(task: Task) -> None:
    sketch = task.sketches[0]
    rng = np.random.default_rng(0)
    indices = sketch.space.sample(5000, rng)
    order = rng.permutation(len(indices))
    assert (sketch.legal(indices)[order] == sketch.legal(indices[order])).all()
    assert (sketch.legal(indices)[:700] == sketch.legal(indices[:700])).all()


# -- regions against brute force -------------------------------------------------------------------


def touched(kernel: Kernel) -> dict[Buffer, tuple[set[int], set[int]]]:
    """Elements stored to and loaded from every local and shared buffer, by running all loops."""
    found: dict[Buffer, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    env: dict[E.Expr, int] = {}

    def value(e: E.Expr) -> Any:
        if e.op == "var":
            return env[e]
        if e.op == "const":
            return e.attr
        return E.BINARY[e.op][1](*(value(a) for a in e.args))

    def visit(s: Stmt) -> None:
        if isinstance(s, For):
            for i in range(s.extent):
                env[s.var] = i
                visit(s.body)
        elif isinstance(s, Seq):
            for part in s.body:
                visit(part)
        elif isinstance(s, Allocate):
            visit(s.body)
        elif isinstance(s, If):
            if value(s.condition):
                visit(s.then)
        elif isinstance(s, Store):
            if s.buffer.scope != "global":
                found[s.buffer][0].add(value(s.index))
            for e in E.walk(s.value):
                if e.op == "load" and e.attr.scope != "global":
                    found[e.attr][1].add(value(e.args[0]))

    threads = [t for t in kernel.threads if not t.tag.startswith("block")]
    env.update({t.var: 0 for t in kernel.threads})
    for point in itertools.product(*(range(t.extent) for t in threads)):
        env.update(zip((t.var for t in threads), point, strict=True))
        visit(kernel.body)
    return found


@pytest.mark.slow
def test_regions_are_exact_on_perfect_tiles() -> None:
    """Every stage of the tutorial's template: each element of each buffer is written and read."""
    sketch = create("tests/conv2d_no_batching", (1, 4, 4, 8, 6, 3, 3, 1, 1), "cuda").sketches[0]
    indices = sketch.space.sample(400, np.random.default_rng(1))
    indices = indices[sketch.legal(indices)][:12]
    assert len(indices) == 12
    for index in indices:
        program = lower_schedule(sketch.close(int(index)), sketch.target)
        for buffer, (stores, loads) in touched(program.kernels[0]).items():
            everything = set(range(buffer.size))
            assert stores == everything, (index, buffer)
            assert loads == everything, (index, buffer)


def test_uneven_reduction_counts_every_point_once() -> None:
    """Inner split of an uneven reduction: a guard at the root alone would count points twice."""
    *_, c = matmul(1, 1, 8)
    s = create_schedule([c.op])
    _, inner = s[c].split(s[c].op.reduce_axis[0], factor=4)
    s[c].split(inner, factor=3)
    (kernel,) = lower_schedule(s, Target("llvm")).kernels
    counted = 0

    def count(stmt: Stmt, env: dict[E.Expr, int]) -> None:
        nonlocal counted
        if isinstance(stmt, For):
            for i in range(stmt.extent):
                count(stmt.body, env | {stmt.var: i})
        elif isinstance(stmt, Seq):
            for part in stmt.body:
                count(part, env)
        elif isinstance(stmt, If):
            test = E.substitute(stmt.condition, env)
            if test.attr:
                count(stmt.then, env)
        elif isinstance(stmt, Store) and any(n.op == "load" for n in E.walk(stmt.value)):
            counted += 1

    count(kernel.body, {})
    assert counted == 8


def test_clipped_region_starts_at_zero() -> None:
    """A tile that covers the whole dimension loses its base: reads must not be shifted by it."""
    tensors = conv2d(1, 2, 5, 5, 4, 3, 3, pad=1)
    s = create_schedule(ComputeDAG(tensors))
    conv, pad = s.find("compute"), s.find("pad_temp")
    outer, _ = conv.split(conv.op.axis[2], factor=4)  # four rows of the result need 6 of the 7
    pad.compute_at(conv, outer)
    tree = LoopTree(s)
    bounds = tree.bounds()
    node = tree.of_stage[pad]
    assert bounds.region(node)[2] == 6
    conv2, pad2 = (t := create_schedule(ComputeDAG(tensors))).find("compute"), t.find("pad_temp")
    outer, _ = conv2.split(conv2.op.axis[2], factor=5)
    pad2.compute_at(conv2, outer)
    tree = LoopTree(t)
    bounds = tree.bounds()
    base = bounds.base[tree.of_stage[pad2]][2]
    assert bounds.region(tree.of_stage[pad2])[2] == 7
    assert not base.terms and base.constant == 0


def test_a_fused_axis_is_followed_where_it_is_read() -> None:
    """What reads `P[y*7 + x]` in tiles of the fused loop needs tiles of P, not all of its rows."""
    a = te.placeholder((8, 56), name="A")
    p = te.compute((8, 56), lambda i, j: a[i, j] * 2.0, name="P")
    c = te.compute((8, 7, 7), lambda i, y, x: p[i, y * 7 + x] + 1.0, name="C")
    s = create_schedule(c.op)
    i, y, x = s[c].op.axis
    tiles, inner = s[c].split(s[c].fuse(y, x), factor=16)
    s[c].reorder(tiles, i, inner)
    s[p].compute_at(s[c], tiles)
    tree = LoopTree(s)
    bounds = tree.bounds()
    assert bounds.region(tree.of_stage[s[p]]) == [8, 16]
    given = np.arange(8 * 56, dtype=np.float32).reshape(8, 56)
    got = np.zeros((8, 7, 7), np.float32)
    run_fast(lower_schedule(s, Target("llvm"), args=[a, c]), [given, got])
    np.testing.assert_array_equal(got, (given[:, :49] * 2 + 1).reshape(8, 7, 7))


WAYS = ("flat", "two", "tall", "three", "three, in steps")


def spellings(names: Sequence[str], sizes: tuple[int, int, int], flat: bool) -> list[te.Tensor]:
    """[A, C]: elements of a flat P by places of C in several spellings, some by way of stages that
    have them in several dimensions."""
    x, y, z = sizes
    a = te.placeholder((x * y * z,), name="A")
    p = te.compute(a.shape, lambda i: a[i] * 2.0, name="P")
    two = te.compute((x, y * z), lambda i, j: p[i * y * z + j] + 1.0, name="two")
    tall = te.compute((x * y, z), lambda i, j: p[i * z + j] + 2.0, name="tall")
    three = te.compute(sizes, lambda i, j, k: p[(i * y + j) * z + k] + 3.0, name="three")

    def element(b: E.Expr) -> E.Expr:
        ways = {
            "flat": p[b],
            "two": two[b // (y * z), b % (y * z)],
            "tall": tall[b // z, b % z],
            "three": three[b // (y * z), b // z % y, b % z],
            "three, in steps": three[b // z // y, b // z % y, b % z],
        }
        return sum((ways[name] for name in names), E.const(0.0))

    if flat:
        return [a, te.compute(a.shape, element, name="C")]
    return [a, te.compute((x, y * z), lambda i, j: element(i * y * z + j), name="C")]


def tiled(dag: ComputeDAG, sizes: Any, attached: list[str], fused: bool) -> Schedule:
    """What C reads computed in tiles of it, of its fused loops or of the last."""
    s = create_schedule(dag)
    c = s.find("C")
    if fused and len(c.op.axis) > 1:
        outer, inner = c.split(c.op.axis[1], factor=sizes("d0"))
        loop, last = c.split(c.fuse(c.op.axis[0], outer), factor=sizes("d1"))
        c.reorder(loop, last, inner)
    else:
        loop, _ = c.split(c.op.axis[-1], factor=sizes("d0"))
    for stage in s.stages:
        if stage.name in attached:
            stage.compute_at(c, loop)
    return s


@pytest.mark.slow
@examples(60)
@given(SEEDS)
def test_equal_quotients_over_random_spellings(seed: int) -> None:
    """A population has the numbers of each of its candidates, for some of which quotients are the
    same, and for each of them regions hold all that is read."""
    rng = random.Random(seed)
    shape = rng.choice([(2, 3, 4), (3, 2, 2), (2, 2, 5)])
    tensors = spellings(rng.sample(WAYS, rng.randint(1, 3)), shape, rng.random() < 0.5)
    dag = ComputeDAG(tensors)
    names = [op.name for op in dag.ops if op.name not in ("A", "P", "C")]
    attached, fused = rng.sample(names, rng.randint(0, len(names))), rng.random() < 0.6
    if len(attached) == len(names):  # else some reader of P is outside
        attached.append("P")
    values = {"d0": np.array([1, 2, 3, 4, 5, 6]), "d1": rng.choice([1, 2, np.arange(1, 7)])}
    bounds = LoopTree(tiled(dag, var, attached, fused)).bounds(Assignment(values))
    given_values = np.random.default_rng(seed).standard_normal(dag.args[0].shape).astype("float32")
    (want,) = evaluate(dag, [given_values])
    for index in range(6):
        s = tiled(dag, lambda name, k=index: row(values[name], k), attached, fused)
        assert_row_equals(bounds, index, LoopTree(s).bounds())
        program = lower_schedule(s, Target("llvm"), args=tensors)
        for buffer, (stores, loads) in touched(program.kernels[0]).items():
            assert stores | loads <= set(range(buffer.size)), buffer
        got = np.zeros(want.shape, np.float32)
        run_fast(program, [given_values, got])
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("flat", [False, True])
def test_one_place_in_several_spellings_is_one_element(flat: bool) -> None:
    """Readers that want the same element by other quotients do not want all of them."""
    dag = ComputeDAG(spellings(("flat", "two", "tall"), (2, 3, 4), flat))
    attached = ["P", "two", "tall"]
    s = tiled(dag, lambda name: 1, attached, fused=True)
    tree = LoopTree(s)
    bounds = tree.bounds()
    for name in attached:
        assert set(bounds.region(tree.of_stage[s.find(name)])) == {1}, name
