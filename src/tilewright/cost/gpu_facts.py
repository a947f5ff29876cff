"""What a GPU kernel will do, counted from the loop tree: threads, instructions, bytes, conflicts.

In: `Resources`.  Out: a `GpuKernel` per kernel, each field one number per candidate.  Nothing is
lowered.  Read next: `machine_model.py` (seconds), `features.py` (columns).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilewright.base.dtype import FLOAT32, DType
from tilewright.codegen.c_family import COPIES_IN_FLIGHT
from tilewright.cost.addresses import (
    BANK_BYTES,
    BANKS,
    SECTOR_BYTES,
    WIDEST_BYTES,
    Lanes,
    Point,
    floor_mod,
    vector,
)
from tilewright.cost.atom_facts import (
    ACCUMULATORS,
    accumulators,
    beside,
    conversions,
    counted,
    in_pairs,
    in_rows,
    joined,
    joined_lanes,
    lanes_at,
    multiply_adds,
)
from tilewright.cost.nest import Nest, footprint, mix
from tilewright.ir.atoms import Atom
from tilewright.ir.stmt import PLACE
from tilewright.schedule.copies import MOST_SLOTS
from tilewright.schedule.space.decision import ceil_div, maximum, minimum, where
from tilewright.schedule.tree.chains import unit_terms
from tilewright.schedule.tree.joins import group, joined_in
from tilewright.schedule.tree.layout import Held
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.resources import KernelResources, Resources
from tilewright.schedule.tree.rings import is_asynchronous, lag, loaders, ring_axis, slots
from tilewright.schedule.tree.rounding import ARRIVED
from tilewright.schedule.tree.touch import Touch, anatomy, whole_work
from tilewright.te.tensor import Tensor

# Instructions.
LOOP_COST = 3  # of a loop that stays one, per iteration
DIVIDE_COST = 7  # of a division by a constant with its remainder
TEST_COST = 3  # of a condition around a read
INTEGER = 2  # issue slots of one that works out an index: GPUs have half as many integer units
INSTRUCTION_BYTES = 16
HELD = 64  # loads whose results the registers of a thread hold
GATE_COST = 12  # instructions of a warp that waits for a tile and says that it has read it
BOX_COST = 24  # of the one that asks for a tile
COMPILER_UNROLL = 4  # that compilers write out of any loop, as long as these are no more than
SMALL_BODY = 64  # instructions


@dataclass
class Memory:
    """Accesses to one memory, of all warps of a block together.

    requests: instructions; passes: what they cost there (sectors of global memory, wavefronts of
    shared); ideal: what they would cost without waste
    """

    requests: Any = 0
    passes: Any = 0
    ideal: Any = 0

    def add(self, requests: Any, each: Any, ideal: Any) -> None:
        self.requests = self.requests + requests
        self.passes = self.passes + requests * each
        self.ideal = self.ideal + requests * ideal

    @property
    def waste(self) -> Any:
        """How many times more passes than needed, at least 1; 1 where there is no access."""
        return maximum(self.passes / maximum(self.ideal, 1e-9), 1.0) * (self.requests > 0) + (
            self.requests <= 0
        )


@dataclass(frozen=True)
class Ring:
    """Asynchronous copies at one loop.

    waits:  iterations that wait for copies, 0 where there are none; starts: times that nothing was
            asked for yet
    ahead:  iterations between asking and waiting
    """

    waits: Any
    starts: Any
    ahead: Any


@dataclass
class GpuKernel:
    """Counts are per thread unless a name or a comment says otherwise.

    dtype:   the type that the busiest stage computes in
    work:    useful arithmetic of the whole kernel; executed: with repeats and overhang
    divisions: of fused indices, for one element of each copy into shared memory
    code:    bytes of instructions
    shared_waits: bodies of loops that begin with loads from shared memory and so wait for them;
    global_waits: the same for global memory, or as often as registers are full
    spills:  loads of copies that registers cannot hold until they are stored
    anchor_share: useful share of the busiest stage's iterations
    phases:  times that a block fills its shared memory; copy_trips: loads of a thread in one
    barriers: of these, for a block; rings: where asynchronous copies are waited for
    body:    statements of the busiest stage that are written out; rolled: iterations around it
    tile:    results of the busiest stage that a thread computes at once; chain: its reduction loop
    atoms:   matrix instructions of a warp; atom_fma: multiply-adds that they do for each lane
    tensor:  seconds that these of a block keep their unit of a core busy; tensor_wait: cycles that
             a warp waits in all for the sum that it adds to, where nothing else is in its way
    accumulators: independent sums of a warp, each as large as an atom's; terms: added up in one
    operands: loads of a lane for operands of atoms
    loading: threads of a block beside `threads`, which do nothing but load
    joins:   times that a block is counted, behind all that it has stored
    traffic: bytes between the cores and L2; unique: bytes of all tensors it reads and writes
    """

    node: Node
    dtype: DType
    threads: Any
    warps: Any
    blocks: Any
    block_dims: tuple[Any, Any, Any]
    vthreads: Any
    registers: Any
    shared_bytes: Any
    work: float
    executed: Any = 0
    fma: Any = 0
    instructions: Any = 0  # issue slots that all warps of a block take
    divisions: Any = 0
    code: Any = 0
    shared_waits: Any = 0
    global_waits: Any = 0
    spills: Any = 0
    anchor_share: Any = 1
    phases: Any = 0
    barriers: Any = 0
    copy_trips: Any = 0
    copy_lanes: Any = 1
    body: Any = 1
    rolled: Any = 1
    tile: Any = 1
    chain: Any = 1
    atoms: Any = 0
    atom_fma: Any = 0
    tensor: Any = 0
    tensor_wait: Any = 0
    accumulators: Any = 0
    terms: Any = 0
    operands: Any = 0
    loading: Any = 0
    joins: Any = 0
    width: Any = 1
    epilogue: Any = 0
    traffic: Any = 0
    unique: float = 0.0

    @property
    def has_atoms(self) -> bool:
        """Whether stages of it are run by matrix instructions, whatever the numbers."""
        return not isinstance(self.atoms, int) or self.atoms > 0

    def __post_init__(self) -> None:
        self.rings: list[Ring] = []
        self.global_load, self.global_store = Memory(), Memory()
        self.shared_load, self.shared_store = Memory(), Memory()


def gpu_kernels(resources: Resources, rows: int) -> list[GpuKernel]:
    """Facts of every kernel of the schedule, in order."""
    return [_Counter(kernel, rows).run() for kernel in resources.kernels]


class _Counter:
    def __init__(self, kernel: KernelResources, rows: int) -> None:
        self.kernel, self.bounds, self.rows = kernel, kernel.bounds, rows
        self.limits, self.nodes = kernel.target.limits, kernel.nodes
        self.warp = self.limits.warp_size
        self.lanes = Lanes(self.bounds, kernel.launch, rows, self.warp)
        self.origin = Point(self.bounds, {})
        self.nests = {node: Nest(node, kernel, self.origin) for node in self.nodes}
        for node, nest in self.nests.items():
            if nest.operand is not None:
                self.lanes.place(node, lanes_at(node, nest.operand))
        self.anchor = max(self.nodes, key=whole_work)
        self.anatomy = anatomy(self.bounds.tree)
        self.joined = joined_in(self.nodes)
        self._sectors_of: dict[Touch, Any] = {}
        self._asked: set[Any] = set()  # places where operands are copied, and from which memory

    def run(self) -> GpuKernel:
        x, y, z = (vector(self.kernel.launch.get(f"threadIdx.{d}", 1)) for d in "xyz")
        threads = x * y * z
        blocks: Any = 1
        for d in "xyz":
            blocks = blocks * vector(self.kernel.launch.get(f"blockIdx.{d}", 1))
        k = GpuKernel(
            node=self.anchor,
            dtype=arithmetic_of(self.anchor),
            threads=threads,
            warps=ceil_div(threads, self.warp),
            blocks=blocks,
            block_dims=(x, y, z),
            vthreads=self._vthreads(),
            registers=vector(self.kernel.registers),
            shared_bytes=vector(self.kernel.shared_bytes),
            loading=vector(self.kernel.loading_threads),
            work=sum(mix(n).flops * whole_work(n) for n in self.nodes),
        )
        for node in self.nodes:
            self._count(k, node)
        self._anchor(k)
        self._phases(k)
        k.joins = int(self.joined is not None)
        k.unique = float(sum(tensor_bytes(t) for t in self._tensors()))
        return k

    # -- sizes -------------------------------------------------------------------------------------
    def _vthreads(self) -> Any:
        total: Any = 1
        for node in self.nodes:
            for ax, tag in node.stage.binds.items():
                if tag == "vthread":
                    total = total * vector(self.bounds.extent[ax])
        return total

    def _slots(self, node: Node) -> float:
        """Issue slots of one arithmetic instruction of the node's type, float32 being 1."""
        return max(1.0, self.limits.rate(FLOAT32) / self.limits.rate(arithmetic_of(node)))

    def _tensors(self) -> set[Tensor]:
        """Tensors in global memory that the kernel reads or writes."""
        touches = [t for n in self.nodes for t in (*self.anatomy.reads[n], self.anatomy.write[n])]
        return {t.tensor for t in touches if t.scope == "global"}

    # -- one stage ---------------------------------------------------------------------------------
    def _engine(self, k: GpuKernel, node: Node) -> None:
        """What a copy engine brings: no load of a thread, but bytes to shared memory."""
        runs = self.nests[node].executions
        moved = runs * vector(self.bounds.elements(node)) * node.op.bytes
        k.instructions = k.instructions + runs * (BOX_COST + GATE_COST * k.warps)
        k.shared_store.add(moved / (BANKS * BANK_BYTES), 1.0, 1.0)
        k.traffic = k.traffic + moved * k.blocks

    def _count(self, k: GpuKernel, node: Node) -> None:
        if node.view is not None:
            self._engine(k, node)
            return
        nest, ops = self.nests[node], mix(node)
        own = nest.product(lp for lp in nest.own if lp.tag.startswith("threadIdx"))
        mine = own if node.scope == "shared" else k.threads
        warps = minimum(ceil_div(mine, self.warp), k.warps)
        runs, trips = nest.executions, nest.trips * nest.executions
        plain = 1 if node.product is not None else ops.fma + ops.other  # of an atom one is issued
        flops, fma = counted(node, ops)
        if node.product is not None and not node.product.atom.by_thread:
            self._atoms(k, node, node.product.atom, trips)
        else:
            k.executed = k.executed + trips * flops * mine * k.blocks
            k.fma = k.fma + trips * fma
        (divisions, tests), width = nest.index_work(), self._width(nest)
        k.width = maximum(k.width, width)
        index = trips / width * (DIVIDE_COST * divisions + TEST_COST * tests)
        if node.scope == "shared":
            k.divisions = k.divisions + divisions
        loops = runs * nest.rolled * LOOP_COST if nest.operand is None else 0
        loops = loops + runs * joined_lanes(node, self.bounds)
        issued = trips * plain * self._slots(node) + loops
        issued = issued + trips * conversions(node)
        for load in (True, *[False] * node.parts) if node.rounds == ARRIVED else ():  # in place
            self._note(k, nest.write, trips / width * warps, width, load=load)
            issued = issued + trips / width
        far = near = 0
        alone = self._alone(node)
        for touch in (*nest.reads, nest.write):
            count = self._access(k, nest, touch, runs, warps, width)
            issued = issued + count  # of a copy: itself, and its address, which has no offset
            if touch.tensor.dtype.compute is not touch.tensor.dtype and not self._copies(node):
                issued = issued + count * width  # each element is converted
            if beside(nest.node, touch):
                continue
            if touch is not nest.write and touch.scope in ("global", "shared"):
                far = far + count * (touch.scope == "global") * (1 - alone)
                near = near + count * (touch.scope == "shared")
        k.instructions = k.instructions + (issued + INTEGER * index) * warps
        self._bodies(k, nest, issued + index, far, near)

    def _copies(self, node: Node) -> bool:
        """Whether a stage moves bits for matrix units, which take narrow numbers as they are."""
        same = node.body.op == "read" and node.body.attr.dtype is node.op.dtype
        return same and any(other.product is not None for other in self.nodes)

    def _atoms(self, k: GpuKernel, node: Node, atom: Atom, trips: Any) -> None:
        """What the matrix unit does.  trips: atoms of a warp"""
        rate, each = self.kernel.target.atom(atom.name), multiply_adds(atom)
        sums = accumulators(node, self.bounds)
        k.atoms = k.atoms + vector(trips)
        k.atom_fma = k.atom_fma + trips * each / atom.lanes
        units = k.warps * self.warp / atom.lanes
        k.executed = k.executed + trips * 2 * each * units * k.blocks
        alone = 2 * each * self.limits.cores / rate.rate if rate.rate else rate.latency
        k.tensor = k.tensor + trips * units * alone
        wait = rate.latency / minimum(maximum(sums, 1), ACCUMULATORS)
        k.tensor_wait = k.tensor_wait + trips * wait
        k.accumulators = maximum(k.accumulators, sums)
        k.terms = maximum(k.terms, vector(unit_terms(node, self.bounds)))

    def _bodies(self, k: GpuKernel, nest: Nest, issued: Any, far: Any, near: Any) -> None:
        """Size of the code, and how often a thread begins anew with loads it must wait for.

        issued: instructions of a thread; far, near: its loads from global and from shared memory
        """
        shared = nest.node.scope == "shared"
        bodies = nest.executions / vector(self.bounds.replicas(nest.node)) * nest.rolled
        each = issued / bodies
        alone = self._alone(nest.node)
        held = shared * (1 - alone) > 0  # loads that wait together
        together = where(held, COPIES_IN_FLIGHT, COMPILER_UNROLL)
        small = held | (each * COMPILER_UNROLL <= SMALL_BODY)
        factor = where(small, minimum(nest.rolled, together), 1)
        texts = 1 + (vector(slots(nest.node, self.bounds)) > 1)  # in front of the loop, too
        k.code = k.code + each * factor * texts * self._written_around(nest) * INSTRUCTION_BYTES
        bodies = bodies / factor
        if nest.operand is not None:  # straight-line code asks for all operands at once
            bodies = bodies / self._written_around(nest)
            read = frozenset(touch.scope for touch in nest.reads)  # a mask's, too
            at = nest.node.parent, nest.node.attach_axis, read
            near, far = (near, far) if at not in self._asked else (0, 0)
            self._asked.add(at)
        burst = far / bodies
        k.shared_waits = k.shared_waits + minimum(bodies, near)
        k.global_waits = k.global_waits + bodies * minimum(burst, maximum(burst / HELD, 1))
        if shared and nest.node.op.combiner is None:
            k.spills = k.spills + bodies * maximum(burst - HELD, 0)

    def _lag(self, node: Node) -> Any:
        """Iterations by which what is read of the stage's ring is behind."""
        if node.parent is None or node.attach_axis is None:
            return 0
        return vector(lag(node.parent, node.attach_axis, self.bounds))

    def _alone(self, node: Node) -> Any:
        """1 where the stage's copies are asynchronous, else 0."""
        mask = is_asynchronous(node, self.bounds)
        return mask.astype(np.float64) if isinstance(mask, np.ndarray) else int(mask)

    def _written_around(self, nest: Nest) -> Any:
        """Copies of the whole stage in the code: loops of its consumer that are written out."""
        if nest.node.parent is None:
            return 1
        around = {lp.axis: lp for lp in self.nests[nest.node.parent].own}
        total: Any = 1
        for lp in nest.path:
            if not lp.tag and lp.axis in around:
                total = total * where(around[lp.axis].unrolled, lp.extent, 1)
        return total

    def _access(
        self, k: GpuKernel, nest: Nest, touch: Touch, runs: Any, warps: Any, width: Any
    ) -> Any:
        """Instructions of a thread for one read or write; adds to the kernel's memory counts."""
        if touch.scope in ("local", "fragment") or beside(nest.node, touch):
            return 0
        lanes_of_vector = nest.vector.extent / width if nest.vector is not None else 1
        count = nest.loads(touch, vector_factor=lanes_of_vector) * runs
        if nest.operand is not None and touch.scope == "shared":
            return self._operand(k, nest.operand, touch, count, warps)
        if nest.operand is not None:
            width = self._side_by_side(nest.operand, touch)
            count = count / width
            k.operands = k.operands + count
        elif touch.scope == "shared" and not touch.write and nest.vector is None:
            width = self._together(nest, touch)
            count = count / width
        if touch.write and nest.node.op.combiner is not None:
            count = runs * nest.trips / _inner_reduction(nest)
            self._note(k, touch, count * warps, width, load=True)
        self._note(k, touch, count * warps, width, load=not touch.write)
        if touch.scope == "global":
            k.traffic = k.traffic + self._traffic(k, nest, touch, count * warps, width)
        return count

    def _note(self, k: GpuKernel, touch: Touch, requests: Any, width: Any, *, load: bool) -> None:
        size = touch.bytes
        if touch.scope == "global":
            memory = k.global_load if load else k.global_store
            ideal = maximum(minimum(k.threads, self.warp) * size * width / SECTOR_BYTES, 1.0)
            memory.add(requests, self._sectors(touch), ideal)
            return
        memory = k.shared_load if load else k.shared_store
        ideal = maximum(width * size / WIDEST_BYTES, 1.0)
        memory.add(requests, self._wavefronts(touch, width), ideal)

    def _sectors(self, touch: Touch) -> Any:
        if touch not in self._sectors_of:
            self._sectors_of[touch] = self.lanes.sectors(touch)
        return self._sectors_of[touch]

    def _wavefronts(self, touch: Touch, width: Any) -> Any:
        """Mixed widths over the population: each is evaluated where it occurs."""
        if not isinstance(width, np.ndarray):
            return self.lanes.wavefronts(touch, int(width))
        result = np.ones(self.rows)
        for w in np.unique(width):
            rows = np.flatnonzero(width == w)
            result[rows] = self.lanes.wavefronts(touch, int(w), rows)
        return result

    def _traffic(self, k: GpuKernel, nest: Nest, touch: Touch, requests: Any, width: Any) -> Any:
        """Bytes between L2 and the cores: every sector asked for, unless L1 holds a block's."""
        moved = requests * self._sectors(touch) * SECTOR_BYTES
        blocks = self._blocks(k, nest.node)
        if touch.write:
            return moved * blocks
        inside = [lp for lp in nest.loops if not lp.tag.startswith("blockIdx")]
        room = self.limits.l1_bytes - k.shared_bytes
        once = footprint(nest, touch, inside, SECTOR_BYTES)
        kept = where(once <= room / 2, minimum(moved, once), moved)
        return kept * blocks

    def _blocks(self, k: GpuKernel, node: Node) -> Any:
        """Blocks that run a stage: of those that are joined the last of each tile runs some."""
        if self.joined is None or self._is_before(node, self.joined):
            return k.blocks
        return k.blocks / vector(group(self.joined, self.bounds))

    def _is_before(self, node: Node, joined: Node) -> bool:
        """Whether the stage is computed by all blocks of the joined one."""
        above = node
        while above.parent not in (None, joined.parent):
            above = above.parent
        return above.parent is not None and self.nodes.index(above) <= self.nodes.index(joined)

    def _width(self, nest: Nest) -> Any:
        """Elements of one access where the vectorised loop became one, else 1."""
        if nest.vector is None:
            return 1
        lanes = nest.vector.extent
        good: Any = nest.apart == 0
        for touch in (*nest.reads, nest.write):
            if nest.vector.axis not in nest.moves[touch]:
                continue
            size = lanes * touch.bytes
            fits = (size == WIDEST_BYTES) | (size == WIDEST_BYTES // 2)
            if touch.scope == "local":  # registers, which no access has to cover at once
                fits = fits | (size == 2 * WIDEST_BYTES) | (size == 4 * WIDEST_BYTES)
            else:
                fits = fits & (nest.stride(touch, nest.vector.axis) == 1)
            good = good & fits
        return where(good, lanes, 1)

    def _operand(self, k: GpuKernel, held: Held, touch: Touch, elements: Any, warps: Any) -> Any:
        """Loads of a lane for an operand in shared memory: one for a tile that lies in rows, else
        of what lies side by side.  elements: that a lane gets"""
        width = self._side_by_side(held, touch)
        passes = self._wavefronts(touch, width)
        ideal = maximum(width * touch.bytes / WIDEST_BYTES, 1)
        count = elements / width
        if not self.nests[touch.node].guards:
            pairs = where(in_pairs(held, touch.node, self.bounds), 2, 1)
            tile = held.fragment.elements * pairs
            rows, together = in_rows(held, touch, self.origin)
            count = where(rows, elements / tile, count)
            passes = where(rows, together * pairs, passes)
            ideal = where(rows, tile * touch.bytes / PLACE, ideal)
        k.shared_load.add(count * warps, passes, ideal)
        k.operands = k.operands + count
        return count

    def _side_by_side(self, operand: Held, touch: Touch) -> Any:
        """Elements of one load of what a lane holds for an atom."""
        most = minimum(self.lanes.alignment(touch), max(1, WIDEST_BYTES // touch.bytes))
        return minimum(joined(operand, touch, self.origin), most)

    def _together(self, nest: Nest, touch: Touch) -> Any:
        """Elements of one load where compilers join loads of neighbours that are written out."""
        least = self.lanes.alignment(touch)
        if np.max(least) == 1:
            return 1
        run: Any = 1
        rest: list[Any] = []
        for lp in reversed(nest.loops):
            if not lp.serial or lp.axis not in nest.moves[touch] or np.max(lp.extent) == 1:
                continue
            step = nest.stride(touch, lp.axis)
            joins = (lp.unrolled & (step == run)) | (lp.extent == 1)
            rest.append(where(joins, 0, step))
            run = where(joins, run * lp.extent, run)
        result: Any = 1
        for width in (2, 4, 8, 16):
            if touch.bytes * width > WIDEST_BYTES:
                break
            fits = (floor_mod(run, width) == 0) & (least >= width)
            for step in rest:
                fits = fits & (floor_mod(step, width) == 0)
            result = where(fits, width, result)
        return result

    # -- the kernel --------------------------------------------------------------------------------
    def _anchor(self, k: GpuKernel) -> None:
        nest = self.nests[self.anchor]
        runs = nest.trips * nest.executions
        mine = k.threads if self.anchor.scope != "shared" else 1
        if self.anchor.product is not None:
            atom = self.anchor.product.atom
            mine = k.warps * self.warp / atom.lanes * multiply_adds(atom)
        k.anchor_share = minimum(whole_work(self.anchor) / maximum(runs * mine * k.blocks, 1), 1.0)
        k.body, k.rolled = nest.body, nest.rolled * nest.executions
        k.chain = maximum(nest.tile("reduce"), 1)
        k.tile = nest.product(lp for lp in nest.own if lp.serial and lp.axis.kind == "spatial")
        if self.anchor.scope in ("local", "fragment"):
            k.tile = vector(self.bounds.elements(self.anchor)) * vector(
                self.bounds.replicas(self.anchor)
            )
        if self.anchor.product is not None:
            k.chain = k.chain * self.anchor.product.atom.extents["k"]
        others = [n for n in self.nodes if n is not self.anchor and n.parent is None]
        k.epilogue = sum(mix(n).other for n in others)

    def _phases(self, k: GpuKernel) -> None:
        places: dict[Any, Any] = {}
        copied: dict[Any, list[Node]] = {}
        trips: Any = 0
        lanes: Any = 0
        total: Any = 0
        by_threads = False
        for node in self.nodes:
            if node.scope != "shared":
                continue
            nest = self.nests[node]
            at = node.parent, node.attach_axis
            places[at] = nest.executions
            copied.setdefault(at, []).append(node)
            if node.view is not None:
                continue
            by_threads = True
            own = nest.product(lp for lp in nest.own if lp.tag.startswith("threadIdx"))
            trips = trips + nest.trips
            size = vector(self.bounds.elements(node))
            slots = nest.trips * maximum(own, k.threads)
            lanes, total = lanes + size, total + slots
        k.phases = sum(places.values()) if places else 0
        for at, nodes in copied.items():
            self._ring(k, nodes, places[at])
        k.copy_trips = trips
        k.copy_lanes = minimum(lanes / maximum(total, 1), 1.0) if by_threads else 1

    def _ring(self, k: GpuKernel, nodes: list[Node], executions: Any) -> None:
        """Barriers and waits of the stages that fill shared memory at one loop."""
        first, held = nodes[0], [vector(slots(node, self.bounds)) for node in nodes]
        least, alone = reduce(minimum, held), reduce(maximum, map(self._alone, nodes))
        if any(node.view is None for node in nodes):
            k.barriers = k.barriers + executions * where(least > 1, 1, 2)
        if any(node.stage.is_copied for node in nodes):
            axis = ring_axis(first)
            turns = 1 if axis is None else vector(self.bounds.extent[axis])
            least = reduce(minimum, [where(n > 0, n, MOST_SLOTS) for n in held])
            ahead = maximum(least - 1 - self._lag(first), 0)
            own = vector(loaders(first, self.bounds)) > 0  # they go on while others store
            starts = where(own, 1, executions / where(ahead > 0, turns, 1))
            k.rings.append(Ring(executions * alone, starts * alone, ahead))


def arithmetic_of(node: Node) -> DType:
    """The type that the stage's arithmetic is done in."""
    return node.op.accumulator.compute


def tensor_bytes(tensor: Tensor) -> int:
    size = tensor.dtype.bytes
    for n in tensor.shape:
        size *= n
    return size


def _inner_reduction(nest: Nest) -> Any:
    """Innermost reduction loops: while they run, the result stays in a register."""
    total: Any = 1
    for lp in reversed(nest.own):
        if lp.axis.kind != "reduce":
            break
        total = total * lp.extent
    return total
