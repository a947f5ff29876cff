"""Long sums: blocks in every schedule that is ours, a mask for the rest, numbers far from zero."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from schedule import test_resources as account
from schedule.test_schedules import assert_right, drawn, interpret, lowered
from tilewright import te, topi
from tilewright.driver.build import build
from tilewright.ir.stmt import Allocate, Program, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import device
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule import sums
from tilewright.schedule.default import default_schedule, open_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.tree import chains as tree_chains
from tilewright.schedule.tree.legality import check, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te import chains
from tilewright.te.chains import LONGEST, WHOLE
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs
from tilewright.te.tensor import Tensor

TARGETS = [Target("llvm -num-cores=2 -vector-bytes=32"), Target("cuda"), Target("opencl")]


def given(*shape: int, dtype: str = "float32", constant: bool = False) -> Tensor:
    return te.placeholder(shape, dtype, name="x", constant=constant)


def weight(*shape: int) -> Tensor:
    return te.placeholder(shape, name="w", constant=True)


def mean(x: Tensor, axis: tuple[int, ...]) -> Tensor:
    share = 1.0 / np.prod([x.shape[k] for k in axis])
    return topi.multiply(topi.sum(x, axis=axis), te.const(float(share), str(x.dtype)))


PLAIN = {
    "all": lambda: topi.sum(given(1 << 18)),
    "all, prime": lambda: topi.sum(given(100_003)),
    "mean NCHW": lambda: mean(given(1, 3, 512, 512), (2, 3)),
    "mean NHWC": lambda: mean(given(1, 512, 512, 3), (1, 2)),
    "columns": lambda: topi.sum(given(1 << 15, 64), axis=0),
    "global pool": lambda: topi.nn.global_pool(given(1, 4, 256, 256), "avg", layout="NCHW"),
    "softmax": lambda: topi.nn.softmax(given(4, 1 << 16)),
    "long softmax": lambda: topi.nn.softmax(given(4, 1 << 17)),
    "instance norm": lambda: topi.nn.standardize(given(1, 4, 256, 256), axis=(2, 3)),
    "halves": lambda: mean(given(4, 1 << 16, dtype="float16"), (1,)),
}
PRODUCTS = {
    "dense": lambda: topi.nn.dense(given(1, 25088), weight(64, 25088)),
    "dense, prime": lambda: topi.nn.dense(given(16, 10_007), weight(64, 10_007)),
    "matmul": lambda: topi.matmul(given(64, 65536), weight(65536, 32)),
    "conv": lambda: topi.nn.conv2d_nchw(given(1, 1024, 7, 7), weight(64, 1024, 3, 3), 1, 1),
    "gradient of a weight": lambda: topi.nn.conv2d_nchw(
        given(4, 4, 128, 128), weight(8, 4, 126, 126), 1, 0
    ),
}


def longest(schedule: Schedule, target: Target) -> int:
    kernels = Resources(LoopTree(schedule).bounds(), target).kernels
    return max(int(kernel.longest_chain) for kernel in kernels)


@pytest.mark.sampled(20)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("name", [*PLAIN, *PRODUCTS])
def test_no_default_schedule_has_a_long_chain(name: str, target: Target) -> None:
    dag = ComputeDAG([(PLAIN | PRODUCTS)[name]()])
    assert longest(default_schedule(dag, target), target) <= (WHOLE if name in PLAIN else LONGEST)


def closed(dag: ComputeDAG, target: Target) -> Iterator[tuple[str, int, int]]:
    """Of some sensible members of every sketch: the longest chain as of one among many, and as of
    the schedule alone."""
    for sketch in with_rules(task_of_dag(dag, target)).sketches:
        indices = sketch.space.sample(24, np.random.default_rng(0))
        for group in sketch.groups(indices):
            rows = len(group.rows)
            sensible = group.verdict.sensible(rows)
            for k in np.flatnonzero(sensible)[:2]:
                own = [np.broadcast_to(r.longest_chain, rows)[k] for r in group.resources.kernels]
                alone = sketch.close(int(indices[group.rows[k]]))
                yield sketch.origin, max(map(int, own)), longest(alone, target)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("name", ["all, prime", "mean NHWC", "softmax", "dense, prime", "conv"])
def test_search_proposes_no_long_chain(name: str, target: Target) -> None:
    found = list(closed(ComputeDAG([(PLAIN | PRODUCTS)[name]()]), target))
    assert len({origin for origin, *_ in found}) >= 1
    for origin, among_many, alone in found:
        assert among_many == alone <= LONGEST, origin


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_chains_of_usual_networks_stay_whole(target: Target) -> None:
    usual = [
        topi.nn.conv2d_nchw(given(1, 512, 7, 7), weight(64, 512, 3, 3), 1, 1),
        topi.nn.dense(given(4, 4096), weight(64, 4096)),
        topi.nn.global_pool(given(1, 64, 14, 14), "avg", layout="NCHW"),
        topi.nn.softmax(given(64, 512)),
    ]
    for tensor in usual:
        program = lower_schedule(default_schedule(ComputeDAG([tensor]), target), target)
        assert not blocks(program), tensor


def blocks(program: Program) -> list[str]:
    made = (s for k in program.kernels for s in statements(k.body) if isinstance(s, Allocate))
    return [s.buffer.name for s in made if ".block" in s.buffer.name]


@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@pytest.mark.parametrize("shape, axis", [
    ((1, 512, 512, 3), (1, 2)), ((1, 3, 512, 512), (2, 3)), ((1 << 18,), (0,)),
])  # fmt: skip
def test_a_mean_far_from_zero(kind: str, shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    x = te.placeholder(shape, name="x")
    out = mean(x, axis)
    module = build(default_schedule(ComputeDAG([x, out]), Target(kind)), [x, out], kind)
    drawn = (100 + 0.01 * np.random.default_rng(0).random(shape)).astype("float32")
    where = device(kind)
    result = empty(out.shape, "float32", where)
    module(array(drawn, where), result)
    expected = drawn.mean(axis=axis, dtype="float64")
    assert np.abs(result.numpy() / expected - 1).max() < 1e-6


def in_one_loop(terms: int) -> Schedule:
    x, k = te.placeholder((terms, 8), name="x"), te.reduce_axis((0, terms), "k")
    return create_schedule(te.compute((8,), lambda i: te.sum(x[k, i], axis=k), name="C").op)


def test_a_chain_that_is_too_long_is_discouraged_but_builds() -> None:
    for terms, hit in ((LONGEST, False), (LONGEST + 1, True)):
        resources = Resources(LoopTree(in_one_loop(terms)).bounds(), TARGETS[0])
        verdict = judge(resources)
        assert bool(np.any(verdict.discouraged["long_sums"])) == hit
        check(resources, "C")
    s = in_one_loop(LONGEST + 1)
    stage = s.find("C")
    stage.split(stage.op.reduce_axis[0], factor=64)
    assert longest(s, TARGETS[0]) == -(-(LONGEST + 1) // 64)
    assert (
        "C: float32[8] global, 8 elements, 32 bytes, added up in blocks from k.inner inwards"
        in (str(s))
    )


def test_no_block_is_shared_by_parallel_loops() -> None:
    s = in_one_loop(1 << 14)
    stage = s.find("C")
    (i,), (k,) = stage.op.axis, stage.op.reduce_axis
    outer, inner = stage.split(k, factor=64)
    stage.reorder(outer, inner, i)
    stage.parallel(i)
    assert blocks(lower_schedule(s, TARGETS[0])) == [] and longest(s, TARGETS[0]) == 1 << 14


def test_a_reduction_of_a_batch_that_calls_give() -> None:
    n = te.var("n")
    x, k = te.placeholder((n, 1 << 14), name="x"), te.reduce_axis((0, 1 << 14), "k")
    dag = ComputeDAG([te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="C")])
    for target in TARGETS:
        assert blocks(lower_schedule(open_schedule(dag, target), target))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that any sum of a test exceeds."""
    for name, value in {"WHOLE": 1, "LONGEST": 2, "BLOCK": 2, "PRODUCT_BLOCK": 2}.items():
        for module in (chains, tree_chains, sums):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("gpu", [True, False])
def test_blocks_of_random_schedules_are_right(gpu: bool, short: None) -> None:
    seen = 0
    for seed in range(70):
        dag, schedule = drawn(seed, gpu)
        program = lowered(schedule, "cuda" if gpu else "llvm")
        if program is None or not blocks(program):
            continue
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, interpret(program, inputs), inputs)
        seen += 1
    assert seen > 8


def tile(seed: int, dtype: str, gpu: bool) -> Schedule:
    """A product in some order of loops, its parts dividing, in the output or in registers."""
    rng = random.Random(seed)
    a, b = te.placeholder((8, 24), dtype, name="A"), te.placeholder((24, 8), dtype, name="B")
    k = te.reduce_axis((0, 24), "k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c.op)
    stage = s[c]
    if dtype == "float32" and rng.random() < 0.5:
        stage = s[s.cache_write(c, "local")]
        block = s[c].fuse(*s[c].op.axis[: rng.randint(0, 1)])
        if gpu:
            s[c].bind(block, "blockIdx.x")
        stage.compute_at(s[c], block)
    i, j = stage.op.axis
    loops = [i, *stage.split(j, factor=4)]
    rest, inner = stage.split(stage.op.reduce_axis[0], factor=rng.choice([2, 4]))
    loops += [*stage.split(rest, factor=rng.choice([2, 3])), inner]
    rng.shuffle(loops)
    stage.reorder(*loops)
    if gpu and rng.random() < 0.7:
        stage.bind(
            i, "vthread" if stage.scope == "local" else rng.choice(["vthread", "threadIdx.x"])
        )
    last = loops[-1]
    if last.kind == "spatial" and rng.random() < 0.7 and stage.mark(last) is None:
        (stage.unroll if gpu else stage.vectorize)(last)
    return s


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("gpu", [True, False])
def test_resources_count_blocks(gpu: bool, dtype: str, short: None) -> None:
    """Memory and written loops; without registers, nothing but what was asked for is text."""
    kind, seen = "cuda" if gpu else "llvm", 0
    for seed in range(60):
        found = account.lowered(tile(seed, dtype, gpu), account.ASKED[kind])
        if found is None or not blocks(found[1]):
            continue
        kernels, program = found
        if not account.plain(program) or account.fell_apart(kernels, program):
            continue
        assert [int(k.body) for k in kernels] == [account.text(k.body) for k in program.kernels]
        kernels, program = account.lowered_or_fail(tile(seed, dtype, gpu), Target(kind))
        account.agree_on_loops(kernels, program)
        if gpu:
            words = list(map(account.local_words, program.kernels))
            assert [int(k.local_words) for k in kernels] == words
        else:
            held = sum(int(k.stack_bytes) for k in kernels)
            assert held == account.scratch_bytes(program)
        dag = tile(seed, dtype, gpu).dag
        inputs = random_inputs(dag, seed)
        assert_right(dag, program, interpret(program, inputs), inputs)
        seen += 1
    assert seen > 20


def test_blocks_of_several_values_and_of_virtual_threads(short: None) -> None:
    """Sums that are joined, lanes outside their reduction, a tile of virtual threads."""
    x, k = te.placeholder((12, 24), name="x"), te.reduce_axis((0, 24), "k")
    both = te.compute(
        (12,), lambda i: (te.sum(x[i, k], axis=k), te.sum(x[i, k] * x[i, k], axis=k)), name="C"
    )
    for change in ("lanes", "vthread", "threads"):
        s = create_schedule(both[0].op)
        stage = s[both[0]]
        (i,), (r,) = stage.op.axis, stage.op.reduce_axis
        _, inner = stage.split(r, factor=4)
        target = "llvm" if change == "lanes" else "cuda"
        if change == "threads":
            stage.bind(i, "blockIdx.x")
            stage.bind(stage.split(inner, factor=2)[1], "threadIdx.x")
        else:
            whole, part = stage.split(i, factor=4)
            if change == "lanes":
                stage.vectorize(part)
            else:
                stage.bind(whole, "threadIdx.x")
                stage.bind(part, "vthread")
        program = lower_schedule(s, Target(target))
        assert blocks(program)
        dag = s.dag
        inputs = random_inputs(dag, 0)
        assert_right(dag, program, interpret(program, inputs), inputs)
