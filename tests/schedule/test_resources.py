"""`Resources` against what lowering makes: shared memory, local arrays, loops written out, text.

Random schedules of every element type, and members of template spaces.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

import tilewright.topi.templates  # noqa: F401  (registers them)
from schedule.drawing import draw_schedule
from tilewright import te, topi
from tilewright.base.dtype import DType
from tilewright.base.errors import LoweringError
from tilewright.codegen import generate
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    statements,
)
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import KernelResources, Resources, pragma_in_force
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

CUDA, LLVM = Target("cuda"), Target("llvm -num-cores=2 -vector-bytes=32")
# Without registers nothing is written out but what was asked for.
ASKED = {
    "cuda": CUDA.with_limits(registers_per_thread=0, vector_registers=0),
    "llvm": LLVM.with_limits(vector_registers=0),
}
TYPES = ("float32", "float16", "int8")


def draw(seed: int, dtype: str, *, gpu: bool) -> Schedule:
    """A random schedule of a product with a prologue, a row sum with a reader, or a maximum.

    Most factors that are drawn divide these sizes, so that many schedules have no guards.
    """
    rng = random.Random(seed)
    n, m, k = (rng.choice([4, 12, 60]) for _ in range(3))
    a, b = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis((0, k), "r")
    if seed % 3 == 0:
        both = te.compute((n, k), lambda i, j: a[i, j] + a[i, j], name="D")
        out = te.compute((n, m), lambda i, j: te.sum(both[i, r] * b[r, j], axis=r), name="C")
    elif seed % 3 == 1:
        row = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="R")
        out = te.compute((n, k), lambda i, j: row[i].astype(dtype) + a[i, j], name="C")
    else:
        out = te.compute((n, m), lambda i, j: te.max(a[i, r] + b[r, j], axis=r), name="C")
    return draw_schedule(ComputeDAG([out]), rng, gpu=gpu)


def lowered_or_fail(s: Schedule, target: Target) -> tuple[list[KernelResources], Program]:
    """Both accounts."""
    return Resources(LoopTree(s).bounds(), target).kernels, lower_schedule(s, target)


def lowered(s: Schedule, target: Target) -> tuple[list[KernelResources], Program] | None:
    """The same; None for what lowering refuses."""
    try:
        return lowered_or_fail(s, target)
    except LoweringError:
        return None


def text(s: Stmt) -> int:
    """Innermost statements once loops marked unrolled are written out."""
    if isinstance(s, For):
        return text(s.body) * (s.extent if s.kind == "unrolled" else 1)
    if isinstance(s, Seq):
        return sum(map(text, s.body))
    if isinstance(s, If):
        return text(s.then) + (text(s.orelse) if s.orelse is not None else 0)
    if isinstance(s, Allocate):
        return text(s.body)
    return int(isinstance(s, (Store, AsyncCopy)))


def plain(program: Program) -> bool:
    """Without guards: these may make an index a constant, or a nest two of them."""
    return not any(isinstance(s, If) for k in program.kernels for s in statements(k.body))


def guarded_by_threads_alone(program: Program) -> bool:
    """A guard on a virtual thread makes copies of statements that are the same for all of them."""
    return all(
        set(E.free_variables(s.condition)) <= {t.var for t in kernel.threads}
        for kernel in program.kernels
        for s in statements(kernel.body)
        if isinstance(s, If)
    )


def fell_apart(kernels: list[KernelResources], program: Program) -> bool:
    """Whether some vectorized loop became a loop that is written out."""
    vectors = {
        ax.name
        for kernel in kernels
        for node in kernel.nodes
        for ax, how in node.stage.annotations.items()
        if how == "vectorize"
    }
    return any(name in vectors for k in program.kernels for name, _ in loops(k))


def loops(kernel: Kernel) -> list[tuple[str, bool]]:
    """Name of every loop, and whether it is written out."""
    found = [s for s in statements(kernel.body) if isinstance(s, For)]
    return [(str(s.var.attr), s.kind == "unrolled") for s in found]


def told(kernels: list[KernelResources]) -> dict[str, bool]:
    """The same for the loops that no annotation decides, by resources.  A name that several stages
    use is left out."""
    nodes = [(kernel, node) for kernel in kernels for node in kernel.nodes]
    names = Counter(ax.name for _, node in nodes for ax in node.stage.leaf_iter_vars)
    return {
        ax.name: bool(written)
        for kernel, node in nodes
        for ax, written in kernel.written_out(node).items()
        if names[ax.name] == 1
        and kernel.bounds.extent[ax] > 1
        and ax not in node.stage.annotations
        and ax not in node.stage.binds
    }


def agree_on_loops(kernels: list[KernelResources], program: Program) -> int:
    """Asserts that resources say what lowering did; how many loops that were."""
    expected = told(kernels)
    found = [pair for k in program.kernels for pair in loops(k) if pair[0] in expected]
    for name, written in found:
        assert expected[name] == written, name
    return len(found)


def allocated(kernel: Kernel, scope: str) -> set[Buffer]:
    made = (s.buffer for s in statements(kernel.body) if isinstance(s, Allocate))
    return {buffer for buffer in made if buffer.scope == scope}


def local_words(kernel: Kernel) -> int:
    return sum(b.size * max(1, b.dtype.bytes // 4) for b in allocated(kernel, "local"))


def scratch_bytes(program: Program) -> int:
    made = (s for k in program.kernels for s in statements(k.body) if isinstance(s, Allocate))
    return sum(b.size * b.dtype.bytes for b in {s.buffer for s in made})


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_random_gpu_schedules(dtype: str) -> None:
    loops_seen = plain_seen = boards = 0
    for seed in range(150):
        found = lowered(draw(seed, dtype, gpu=True), CUDA)
        if found is None:
            continue
        kernels, program = found
        infos = generate(program, CUDA).kernels
        for kernel, made, info in zip(kernels, program.kernels, infos, strict=True):
            shared = allocated(made, "shared")
            boards += any(b.name.endswith(".board") for b in shared)
            less = int(kernel.shared_bytes) - info.shared_bytes
            assert less >= 0 and (less < 16 or len(shared) > 1), "only buffers share their place"
            assert kernel.launch == {t.tag: t.extent for t in made.threads}
        if not plain(program) or fell_apart(kernels, program):
            continue
        plain_seen += 1
        loops_seen += agree_on_loops(kernels, program)
        assert [int(k.local_words) for k in kernels] == list(map(local_words, program.kernels))
    assert plain_seen > 10 and loops_seen > 10 and boards > 5


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_random_cpu_schedules(dtype: str) -> None:
    seen = 0
    for seed in range(150):
        kernels, program = lowered_or_fail(draw(seed, dtype, gpu=False), LLVM)
        if not plain(program) or fell_apart(kernels, program):
            continue
        if sum(int(k.stack_bytes) for k in kernels) == scratch_bytes(program):  # nothing overhangs
            seen += agree_on_loops(kernels, program)
    assert seen > 30


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("gpu", [True, False])
def test_the_text_that_was_asked_for(gpu: bool) -> None:
    target, seen = ASKED["cuda" if gpu else "llvm"], 0
    for seed in range(150):
        found = lowered(draw(seed, "float32", gpu=gpu), target)
        if found is None or not plain(found[1]) or fell_apart(*found):
            continue
        kernels, program = found
        assert sum(int(k.body) for k in kernels) == sum(text(k.body) for k in program.kernels)
        seen += 1
    assert seen > 10


def convolution(dtype: str) -> ComputeDAG:
    data = te.placeholder((1, 8, 8, 8), dtype, name="data")
    weight = te.placeholder((16, 8, 3, 3), dtype, name="weight", constant=True)
    return ComputeDAG([topi.nn.conv2d_nchw(data, weight, 1, 1)])


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", [CUDA, LLVM], ids=str)
def test_members_of_templates(target: Target, dtype: str) -> None:
    """Loops of every member; on a GPU also its memory, and as vectors what it is one by one."""
    for sketch in task_of_dag(convolution(dtype), target).sketches:
        indices = sketch.space.sample(60, np.random.default_rng(0))
        indices = indices[sketch.legal(indices)][:8]
        seen = 0
        for group in sketch.groups(indices):
            for k, row in enumerate(group.rows):
                kernels, program = lowered_or_fail(sketch.close(int(indices[row])), target)
                if not fell_apart(kernels, program):
                    seen += agree_on_loops(kernels, program)
                if target.has_threads:
                    infos = generate(program, target).kernels
                    for kernel, info in zip(kernels, infos, strict=True):
                        assert 0 <= kernel.shared_bytes - info.shared_bytes < 16
                for one, all_ in zip(kernels, group.resources.kernels, strict=True):
                    for name in ("shared_bytes", "local_words", "stack_bytes", "body", "threads"):
                        whole = np.broadcast_to(getattr(all_, name), len(group.rows))
                        assert whole[k] == getattr(one, name), name
        assert seen > 10


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
def test_the_text_that_members_of_a_gpu_template_ask_for(dtype: str) -> None:
    """Virtual threads copy statements, accumulators are set and stored, stages lie in stages."""
    a, b = te.placeholder((16, 32), dtype, name="A"), te.placeholder((32, 32), dtype, name="B")
    sketches = task_of_dag(ComputeDAG([topi.nn.dense(a, b)]), CUDA).sketches
    (sketch,) = (s for s in sketches if s.origin == "template:dense.gpu")
    indices = sketch.space.sample(100, np.random.default_rng(1))
    seen = 0
    for index in indices[sketch.legal(indices)][:20]:
        kernels, program = lowered_or_fail(sketch.close(int(index)), ASKED["cuda"])
        if not fell_apart(kernels, program) and guarded_by_threads_alone(program):
            assert [int(k.body) for k in kernels] == [text(k.body) for k in program.kernels]
            seen += 1
    assert seen > 5


def test_a_pragma_holds_from_its_loop_inwards() -> None:
    a = te.placeholder((4, 8, 16), name="A")
    c = te.compute((4, 8, 16), lambda i, j, k: a[i, j, k] + 1.0, name="C")
    s = create_schedule([c.op])
    i, j, k = s[c].op.axis
    s[c].pragma(j, "auto_unroll_max_step", 1024)
    (node,) = LoopTree(s).nodes
    assert [pragma_in_force(node, ax, {}) for ax in (i, j, k)] == [0, 1024, 1024]
    kernels, program = lowered_or_fail(s, LLVM)
    assert dict(loops(program.kernels[0])) == told(kernels) == {"i": False, "j": True, "k": True}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_board_has_the_type_of_the_accumulator(dtype: str) -> None:
    a = te.placeholder((4, 128), dtype, name="A")
    r = te.reduce_axis((0, 128), "r")
    c = te.compute((4,), lambda i: te.sum(a[i, r], axis=r), name="C")
    s = create_schedule([c.op])
    s[c].bind(s[c].op.axis[0], "blockIdx.x")
    s[c].bind(r, "threadIdx.x")
    (kernel,) = Resources(LoopTree(s).bounds(), CUDA).kernels
    assert kernel.shared_bytes == 128 * DType(dtype).accumulator.bytes
    (info,) = generate(lower_schedule(s, CUDA), CUDA).kernels
    assert info.shared_bytes == kernel.shared_bytes
