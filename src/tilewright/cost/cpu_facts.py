"""What a CPU kernel will do, counted from the loop tree: vectors, loads, footprints, cores.

In: `Resources`.  Out: a `CpuKernel` per kernel with its stages, each field
one number per candidate.  Read next: `machine_model.py` (seconds), `features.py` (columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.cost.addresses import Point, vector
from tilewright.cost.gpu_facts import arithmetic_of, tensor_bytes
from tilewright.cost.nest import Loop, Nest, footprints, mix
from tilewright.ir import expr as E
from tilewright.schedule.space.decision import ceil_div, maximum, minimum, where
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.resources import KernelResources, Resources
from tilewright.schedule.tree.touch import Touch, whole_work
from tilewright.targets.target import Limits
from tilewright.te.tensor import Tensor

LINE_BYTES = 64
INSTRUCTION_BYTES = 10  # of a vector instruction with its address


@dataclass
class CpuStage:
    """Vector operations of one stage, all of its runs together.

    bodies:   times the written-out body runs; chain: reduction steps in it, one after the other
    arithmetic, loads, stores: vector instructions; gathers: elements loaded or stored one by one
    accumulators, operands: vector registers the body needs
    l2_bytes, memory_bytes: moved into L1, into L2
    footprint: bytes used by the written-out body, by the next loop around it, by one parallel part
    parallel: iterations of its parallel loop, 1 without; forks: times that loop starts
    contiguous: share of its accesses that are whole vectors or broadcasts
    """

    node: Node
    is_reduction: bool
    work: float
    flops: float
    executed: Any
    bodies: Any
    body: Any
    chain: Any
    arithmetic: Any
    loads: Any = 0
    stores: Any = 0
    gathers: Any = 0
    accumulators: Any = 0
    operands: Any = 0
    l2_bytes: Any = 0
    memory_bytes: Any = 0
    footprint: tuple[Any, Any, Any] = (0, 0, 0)
    parallel: Any = 1
    forks: Any = 1
    lanes: Any = 1
    contiguous: Any = 1


@dataclass
class CpuKernel:
    """anchor: the busiest stage; dtype: the type it computes in; stack: bytes of scratch arrays;
    unique: of all tensors used."""

    dtype: DType
    stages: list[CpuStage]
    anchor: CpuStage
    stack: Any
    unique: float
    work: float

    @property
    def code(self) -> Any:
        """Bytes of instructions in the written-out bodies."""
        issued = ((s.arithmetic + s.loads + s.stores + s.gathers) / s.bodies for s in self.stages)
        return sum(issued) * INSTRUCTION_BYTES


def cpu_kernels(resources: Resources) -> list[CpuKernel]:
    """Facts of every kernel of the schedule, in order."""
    return [_kernel(kernel) for kernel in resources.kernels]


def _kernel(kernel: KernelResources) -> CpuKernel:
    limits = kernel.target.limits
    origin = Point(kernel.bounds, {})
    nests = {node: Nest(node, kernel, origin) for node in kernel.nodes}
    stages = {node: _stage(nest, limits) for node, nest in nests.items()}
    tensors: set[Tensor] = set()
    for nest in nests.values():
        tensors |= {t.tensor for t in (*nest.reads, nest.write) if t.scope == "global"}
    anchor = max(kernel.nodes, key=whole_work)
    return CpuKernel(
        arithmetic_of(anchor), list(stages.values()), stages[anchor], vector(kernel.stack_bytes),
        float(sum(tensor_bytes(t) for t in tensors)), sum(s.flops for s in stages.values()),
    )  # fmt: skip


def _stage(nest: Nest, limits: Limits) -> CpuStage:
    node, ops = nest.node, mix(nest.node)
    lanes = max(1, limits.vector_bytes // arithmetic_of(node).bytes)
    scalar = nest.vector is None or _scalarised(nest)
    width = 1 if scalar or nest.vector is None else nest.vector.extent
    vectors = ceil_div(width, lanes)  # arithmetic instructions for one vectorised loop
    runs = nest.executions
    steps = nest.trips / width * runs
    spatial, chain = nest.tile("spatial"), nest.tile("reduce")
    reduction = node.op.combiner is not None
    bodies = nest.rolled * runs
    stage = CpuStage(
        node=node, is_reduction=reduction, work=float(whole_work(node)),
        flops=float(ops.flops * whole_work(node)), executed=nest.trips * runs * ops.flops,
        bodies=bodies, body=nest.body * vectors, chain=chain if reduction else 1,
        arithmetic=steps * vectors * (ops.fma + ops.other + ops.tests),
        lanes=minimum(width / (vectors * lanes), 1.0),
    )  # fmt: skip
    if reduction:
        stage.accumulators = spatial * vectors
    good: Any = 0
    if node.held is not None:
        good = len(nest.reads)
        _by_atoms(stage, nest, nest.trips * runs, limits)
    for touch in nest.reads if node.held is None else ():
        each = _vectors(touch, width, limits)
        good = good + _read(stage, nest, touch, scalar, width, each, runs)
    stage.contiguous = good / max(1, len(nest.reads))
    if node.held is None:
        _write(stage, nest, scalar, width, _vectors(nest.write, width, limits), runs)
    _parallel(stage, nest)
    _caches(stage, nest, limits)
    return stage


def _by_atoms(stage: CpuStage, nest: Nest, tiles: Any, limits: Limits) -> None:
    """An atom of a thread is an instruction for each vector of sums; what it multiplies comes in
    whole vectors, and stays in registers."""
    node = nest.node
    assert node.held is not None
    held = node.held.fragment
    vectors = ceil_div(held.elements * held.dtype.bytes, limits.vector_bytes)
    if node.product is None:
        stage.arithmetic, stage.loads = 0, tiles * vectors
        return
    each = prod(node.product.atom.extents.values())
    stage.arithmetic, stage.lanes = tiles * vectors, 1.0
    stage.executed, stage.accumulators = tiles * 2 * each, nest.tile("spatial") * vectors


def _vectors(touch: Touch, width: Any, limits: Limits) -> Any:
    """Instructions that load or store `width` neighbours."""
    return ceil_div(width * touch.bytes, limits.vector_bytes)


def _scalarised(nest: Nest) -> bool:
    """A condition that differs between lanes keeps the loop from becoming vectors."""
    assert nest.vector is not None
    for e in E.walk(nest.node.body):
        if e.op == "if_then_else":
            for v in E.free_variables(e.args[0]):
                axis = nest.anatomy.axis_of.get(v)
                if axis is not None and nest.vector.axis in nest.bounds.tree.leaves_under[axis]:
                    return True
    return False


def _read(
    stage: CpuStage, nest: Nest, touch: Touch, scalar: bool, width: Any, vectors: Any, runs: Any
) -> Any:
    """Adds the loads of one read, and what converts them; returns whether they are whole vectors or
    broadcasts."""
    before = stage.loads
    good = _load(stage, nest, touch, scalar, width, vectors, runs)
    if touch.tensor.dtype.compute is not touch.tensor.dtype:
        stage.arithmetic = stage.arithmetic + (stage.loads - before)
    return good


def _load(
    stage: CpuStage, nest: Nest, touch: Touch, scalar: bool, width: Any, vectors: Any, runs: Any
) -> Any:
    in_registers = touch.scope == "local" and stage.is_reduction
    moved = nest.vector is not None and nest.vector.axis in nest.moves[touch]
    if scalar or not moved:
        factor = nest.vector.extent if moved and nest.vector is not None else 1
        stage.loads = stage.loads + nest.loads(touch, vector_factor=factor) * runs
        stage.operands = stage.operands + 1
        return not scalar or nest.vector is None
    assert nest.vector is not None
    step = nest.stride(touch, nest.vector.axis)
    whole: Any = step == 1
    each = nest.loads(touch, vector_factor=1) * runs
    stage.loads = stage.loads + each * vectors * where(whole, 1, 0) * (0.5 if in_registers else 1)
    stage.gathers = stage.gathers + each * width * where(whole, 0, 1)
    stage.operands = stage.operands + vectors
    return where(whole, 1, 0)


def _write(stage: CpuStage, nest: Nest, scalar: bool, width: Any, vectors: Any, runs: Any) -> None:
    """A reduction in a local array keeps its tile in registers; others go through memory."""
    touch = nest.write
    count = nest.loads(touch, vector_factor=1) * runs
    if stage.is_reduction:
        inner: Any = 1
        for lp in reversed(nest.own):
            if lp.axis.kind != "reduce" and lp.how != "vectorize":
                break
            inner = inner * (lp.extent if lp.axis.kind == "reduce" else 1)
        if touch.scope == "local":
            inner = maximum(inner, stage.chain)
        count = nest.trips / width * runs / inner
        stage.loads = stage.loads + count * vectors
    if nest.vector is not None and not scalar and nest.vector.axis in nest.moves[touch]:
        whole: Any = nest.stride(touch, nest.vector.axis) == 1
        stage.stores = stage.stores + count * vectors * where(whole, 1, 0)
        stage.gathers = stage.gathers + count * width * where(whole, 0, 1)
        return
    stage.stores = stage.stores + count * (1 if nest.vector is None else nest.vector.extent / width)


def _parallel(stage: CpuStage, nest: Nest) -> None:
    outside: Any = 1
    for lp in nest.loops:
        if lp.how == "parallel":
            stage.parallel, stage.forks = lp.extent, outside
            return
        outside = outside * lp.extent


def _caches(stage: CpuStage, nest: Nest, limits: Limits) -> None:
    """Bytes moved: all data of the outermost loop whose data fit a cache, each time it runs."""
    touches = [t for t in (*nest.reads, nest.write) if t.scope != "local" or t.producer is not None]
    loops = nest.loops
    l1, l2 = limits.l1_bytes, limits.l2_bytes
    found: list[Any] = [0, 0]
    open_: list[Any] = [True, True]
    parts = [footprints(nest, t, loops, LINE_BYTES) for t in touches]
    sizes: list[Any] = [sum(level) for level in zip(*parts, strict=True)]
    outside: Any = 1
    for depth in range(len(loops) + 1):
        size = sizes[depth]
        for level, room in ((0, l1), (1, l2)):
            fits: Any = (size <= room * 0.75) if depth < len(loops) else True
            take = open_[level] & fits
            found[level] = where(take, outside * size, found[level])
            open_[level] = open_[level] & _invert(take)
        if depth < len(loops):
            outside = outside * loops[depth].extent
    floor = sizes[0]
    stage.l2_bytes = maximum(found[0], floor)
    # what does not fit L2 mostly comes from a last level that `Limits` does not know of
    stage.memory_bytes = maximum(found[1], floor) * where(floor > l2, 0.4, 0.1)
    stage.footprint = _levels(nest, loops, sizes)


def _levels(nest: Nest, loops: list[Loop], sizes: list[Any]) -> tuple[Any, Any, Any]:
    """Footprints of the written-out body, of the loop around it, and inside the parallel loop."""
    body: Any = sizes[-1]
    around: Any = sizes[-1]
    for depth in range(len(loops) - 1, -1, -1):
        body = where(loops[depth].unrolled, sizes[depth], body)
        inner = loops[depth + 1].unrolled if depth + 1 < len(loops) else True
        edge = _invert(loops[depth].unrolled) & inner
        around = where(edge, sizes[depth], around)
    part = next((sizes[d + 1] for d, lp in enumerate(loops) if lp.how == "parallel"), sizes[0])
    return body, around, part


def _invert(mask: Any) -> Any:
    return ~mask if hasattr(mask, "dtype") else not mask
