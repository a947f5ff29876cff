"""Well-formedness of lowered programs: what every pass must keep and every printer may assume.

In: a `Program`.  Out: nothing, or an `InternalError` naming the kernel and the statement.
It looks at structure only; `fast_interpreter.py` finds what depends on values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

from tilewright.base.errors import InternalError
from tilewright.ir.atoms import GROUP, WARP, Atom, Tile
from tilewright.ir.bulk import (
    GATE_TYPE,
    MOST_ARRIVALS,
    Arrive,
    Await,
    BulkCopy,
    Expect,
    Fence,
    MakeGates,
    gates_of,
)
from tilewright.ir.expr import Expr, walk
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import (
    ASYNC_BYTES,
    BLOCK_TAGS,
    LOOP_KINDS,
    ROW,
    SCOPES,
    STATEMENTS,
    THREAD_TAGS,
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Exchange,
    For,
    If,
    Join,
    Kernel,
    LoadRows,
    Mma,
    MmaBegin,
    MmaEnd,
    Prefetch,
    Program,
    Region,
    Rules,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    expressions,
    read_buffers,
    read_regions,
    statements,
    written_buffers,
    written_regions,
)


def verify(program: Program) -> None:
    """Raise InternalError unless `program` is well formed.

    Program: one role per argument; every buffer a kernel names is an argument or a workspace.
    Kernel: launch tags known and used once; every variable bound once, and only where no enclosing
    binding has it; buffers used inside their scope; all global buffers it touches among `params`.
    Statement: stored types match; lanes agree; indices are integers; nothing unlowered is left;
    no barrier under a condition on thread indices or in a parallel loop; an asynchronous copy
    moves 4, 8 or 16 bytes from global memory that the kernel does not store to into shared memory;
    no Mma, LoadRows or Exchange of several lanes under a condition on threadIdx.x, whose extent is
    a multiple of these; tiles of a group in swizzled rows; gates are words of shared memory that
    nothing else touches, bulk copies the only ones that write to their buffers; a Join outside of
    loops and branches, the only statement that touches its counters, whose body uses no index of a
    block that its own index does not tell.
    """
    if len(program.roles) != len(program.args):
        counts = f"{len(program.roles)} roles for {len(program.args)} arguments"
        raise InternalError(program.name, counts)
    unknown = [r for r in program.roles if r not in ("input", "output", "extent")]
    if unknown:
        raise InternalError(program.name, f"an argument has the role {unknown[0]!r}")
    owned = (*program.args, *program.workspaces)
    for buffer in owned:
        if buffer.scope != "global":
            raise InternalError(program.name, f"{buffer!r} is an argument or a workspace")
    if len(set(owned)) != len(owned):
        raise InternalError(program.name, "a buffer is listed twice among arguments and workspaces")
    for kernel in program.kernels:
        for buffer in kernel.params:
            if buffer not in owned:
                raise InternalError(
                    kernel.name, f"the parameter {buffer!r} is no argument and no workspace"
                )
        verify_kernel(kernel)


def verify_kernel(kernel: Kernel) -> None:
    """The part of `verify` that concerns one kernel."""
    _Checker(kernel).run()


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.bound: set[Expr] = set()  # every variable bound so far, to find a second binding
        self.live: set[Expr] = set()  # variables bound here
        self.threaded: set[Expr] = set()  # variables that differ between the threads of a block
        self.buffers: set[Buffer] = set(kernel.params)
        self.allocated: set[Buffer] = set()
        self.current: Stmt = kernel.body
        self.divergent = ""  # why threads may not all be here
        self.split = ""  # why the lanes of a warp may not all be here
        self.lanes = {t.var for t in kernel.threads if t.tag == "threadIdx.x"}
        self.sources: dict[Buffer, Stmt] = {}  # of asynchronous copies
        self.gates: set[Buffer] = set()  # buffers of gates
        self.vector = False  # in a loop that becomes one, so that small copies become large
        self.again = ""  # why a block may not come here once

    def run(self) -> None:
        tags = [t.tag for t in self.kernel.threads]
        if len(set(tags)) != len(tags) or any(t not in (*BLOCK_TAGS, *THREAD_TAGS) for t in tags):
            raise InternalError(self.kernel.name, f"the launch tags {tags} are unknown or repeated")
        for given in self.kernel.given:
            self._use(given.buffer)
            self._bind(given.var)
        for thread in self.kernel.threads:
            if _empty(thread.extent):
                raise InternalError(self.kernel.name, f"{thread.tag} has extent {thread.extent}")
            self._bind(thread.var)
            if thread.tag in THREAD_TAGS:
                self.threaded.add(thread.var)
        self._statement(self.kernel.body)
        self._alone()
        for source in written_buffers(self.kernel.body).intersection(self.sources):
            self.current = self.sources[source]
            raise self._fail(f"the kernel stores to {source!r}, too, while the copy is under way")

    def _fail(self, reason: str) -> InternalError:
        place = str(self.current).splitlines()[0].strip()
        return InternalError(f"{self.kernel.name}: {place}", reason)

    def _statement(self, stmt: Stmt) -> None:
        self.current = stmt
        _CHECKS[type(stmt)](self, stmt)

    def _seq(self, stmt: Seq) -> None:
        for s in stmt.body:
            self._statement(s)

    def _barrier(self, stmt: Barrier) -> None:
        if self.divergent:
            raise self._fail(f"a barrier {self.divergent}")

    def _for(self, stmt: For) -> None:
        if stmt.kind not in LOOP_KINDS:
            raise self._fail(f"unknown loop kind {stmt.kind!r}")
        if stmt.kind == "parallel" and self.kernel.threads:
            raise self._fail("a parallel loop in a kernel that has launch dimensions")
        if isinstance(stmt.extent, Expr):
            self._expression(stmt.extent)
        if _empty(stmt.extent):
            raise self._fail(f"a loop of extent {stmt.extent}")
        self._bind(stmt.var)
        before = self.divergent, self.vector, self.again
        if isinstance(stmt.extent, Expr) or stmt.extent != 1:
            self.again = self.again or "in a loop"
        if stmt.kind == "parallel":
            self.divergent = self.divergent or "in a parallel loop"
        self.vector = self.vector or stmt.kind == "vectorized"
        self._statement(stmt.body)
        self.divergent, self.vector, self.again = before
        self.live.discard(stmt.var)

    def _if(self, stmt: If) -> None:
        self._expression(stmt.condition)
        if stmt.condition.dtype != "bool":
            raise self._fail(f"a condition must be a bool, not {stmt.condition.dtype}")
        if stmt.condition.lanes != 1:
            self._mask(stmt)
        before = self.divergent, self.split, self.again
        self.again = self.again or f"under the condition {stmt.condition}"
        if any(n in self.threaded for n in walk(stmt.condition)):
            reason = f"under the condition {stmt.condition}, which differs between threads"
            self.divergent = self.divergent or reason
        if any(n in self.lanes for n in walk(stmt.condition)):
            reason = f"under the condition {stmt.condition}, which differs between lanes"
            self.split = self.split or reason
        self._statement(stmt.then)
        if stmt.orelse is not None:
            self._statement(stmt.orelse)
        self.divergent, self.split, self.again = before

    def _while(self, stmt: While) -> None:
        self._expression(stmt.condition)
        if stmt.condition.dtype != "bool" or stmt.condition.lanes != 1:
            raise self._fail("a loop goes on by a bool")
        before, reason = (self.divergent, self.split, self.again), "in a loop that data end"
        self.divergent, self.split = self.divergent or reason, self.split or reason
        self.again = self.again or reason
        self._statement(stmt.body)
        self.divergent, self.split, self.again = before

    def _mask(self, stmt: If) -> None:
        """A condition of several lanes: every store under it has as many."""
        lanes = stmt.condition.lanes
        if self.kernel.threads:
            raise self._fail(f"a condition of {lanes} lanes in a kernel that has launch dimensions")
        for s in statements(stmt):
            if isinstance(s, Store) and s.index.lanes != lanes:
                raise self._fail(f"{s.index.lanes} lanes are stored under a condition of {lanes}")

    def _store(self, stmt: Store) -> None:
        self._use(stmt.buffer)
        self._expression(stmt.index)
        self._expression(stmt.value)
        self._check_index(stmt.index)
        if stmt.value.dtype != stmt.buffer.dtype:
            raise self._fail(f"a {stmt.value.dtype} is stored to {stmt.buffer!r}")
        if stmt.value.lanes != stmt.index.lanes:
            raise self._fail(f"{stmt.value.lanes} lanes are stored to {stmt.index.lanes} places")

    def _async_copy(self, stmt: AsyncCopy) -> None:
        self._regions(stmt)
        self._expression(stmt.condition)
        to, source = stmt.to.buffer, stmt.source.buffer
        if stmt.condition.dtype != "bool" or stmt.condition.lanes != 1:
            raise self._fail("a copy depends on a bool")
        if to.scope != "shared" or source.scope != "global" or not self.kernel.threads:
            raise self._fail(f"a copy from {source!r} to {to!r} cannot be asynchronous")
        self.sources.setdefault(source, stmt)
        if to.dtype != source.dtype or stmt.to.count != stmt.source.count:
            raise self._fail(f"{source!r} is copied to {to!r} in {stmt.source.count} elements")
        if stmt.to.count * to.dtype.bytes not in ASYNC_BYTES and not self.vector:
            raise self._fail(f"a copy of {stmt.to.count * to.dtype.bytes} bytes: not 4, 8 or 16")

    def _prefetch(self, stmt: Prefetch) -> None:
        self._regions(stmt)
        if stmt.source.buffer.scope != "global":
            raise self._fail(f"{stmt.source.buffer!r} is near already")

    def _wait(self, stmt: Wait) -> None:
        if stmt.pending < 0:
            raise self._fail(f"{stmt.pending} groups are left pending")

    def _mma(self, stmt: Mma) -> None:
        if stmt.atom.by_thread:
            self._regions(stmt)
        else:
            self._together(stmt, stmt.atom.lanes)
        for region, fragment in stmt.operands:
            buffer = region.buffer
            if isinstance(fragment, Tile):
                self._tile(region, fragment, stmt.atom)
                continue
            fits = buffer.dtype == fragment.dtype and region.count == fragment.elements
            if not fits or buffer.scope != "local":
                raise self._fail(
                    f"{region.count} elements of {buffer!r} are no fragment of {stmt.atom}:"
                    f" each lane holds {fragment.elements} of {fragment.dtype}"
                )

    def _tile(self, region: Region, tile: Tile, atom: Atom) -> None:
        buffer, swizzle = region.buffer, region.buffer.swizzle
        wide = swizzle >= tile.shape[1] * tile.dtype.bytes
        fits = buffer.dtype == tile.dtype and wide and region.count == tile.span(swizzle)
        if not fits or buffer.scope != "shared":
            raise self._fail(
                f"{region.count} elements of {buffer!r} are no {tile.axes} tile of {atom}, which is"
                f" {tile.shape} of {tile.dtype} in swizzled rows of shared memory"
            )

    def _mma_batch(self, stmt: MmaBegin | MmaEnd) -> None:
        self._together(stmt, GROUP)
        if isinstance(stmt, MmaEnd) and stmt.pending < 0:
            raise self._fail(f"{stmt.pending} batches are left pending")

    def _load_rows(self, stmt: LoadRows) -> None:
        self._together(stmt)
        to, source = stmt.to.buffer, stmt.source.buffer
        same = to.dtype == source.dtype and (to.dtype.is_float or to.dtype.bytes == 1)
        if to.scope != "local" or source.scope != "shared" or not same:
            raise self._fail(f"lanes get no elements of {to!r} from {source!r} together")
        if stmt.source.count * source.dtype.bytes != ROW or stmt.matrices not in (1, 2, 4):
            raise self._fail(f"{stmt.source.count} elements are no row, or {stmt.to.count} no part")
        if stmt.transposed and to.dtype.bytes != 2:
            raise self._fail(f"columns of {to.dtype} are not loaded together")

    def _bulk_copy(self, stmt: BulkCopy) -> None:
        self._gates(stmt)
        for e in stmt.at:
            self._expression(e)
            self._check_index(e)
        to, source, box = stmt.to.buffer, stmt.source.buffer, stmt.box
        if to.scope != "shared" or source.scope != "global" or not self.kernel.threads:
            raise self._fail(f"a bulk copy from {source!r} to {to!r}")
        self.sources.setdefault(source, stmt)
        if to.dtype != source.dtype or stmt.to.count != box.elements:
            raise self._fail(f"a box of {box.elements} elements of {source!r} goes to {to!r}")
        if stmt.rounded and to.dtype != "float32":
            raise self._fail(f"{to.dtype} is not rounded on the way")
        ranks = {len(n) for n in (box.shape, box.strides, box.extents, box.steps, stmt.at)}
        if len(ranks) > 1 or (why := box.fault(to.dtype.bytes, to.swizzle)):
            raise self._fail("a box of several ranks" if len(ranks) > 1 else why)
        last = sum((n - 1) * s for n, s in zip(box.shape, box.strides, strict=True))
        if isinstance(source.size, Expr) or last >= source.size:
            raise self._fail(f"{source!r} has no element {last}")

    def _arrive(self, stmt: Arrive) -> None:
        self._gates(stmt)
        threads = prod(self.kernel.block)
        if threads % WARP:
            raise self._fail(f"a block of {threads} threads, no multiple of {WARP} lanes")

    def _expect(self, stmt: Expect) -> None:
        self._gates(stmt)
        if not 0 < stmt.nbytes <= MOST_ARRIVALS:
            raise self._fail(f"{stmt.nbytes} bytes are expected, of 1 to {MOST_ARRIVALS}")

    def _await(self, stmt: Await) -> None:
        self._gates(stmt)
        self._expression(stmt.parity)
        self._check_index(stmt.parity)

    def _gates(self, stmt: Stmt) -> None:
        self._regions(stmt)
        region = gates_of(stmt)
        assert region is not None
        buffer = region.buffer
        if buffer.scope != "shared" or buffer.dtype != GATE_TYPE:
            raise self._fail(f"{buffer!r} holds no gates, which are shared words of {GATE_TYPE}")
        if not isinstance(stmt, MakeGates) and region.count != 1:
            raise self._fail(f"{region.count} gates, of one")
        if isinstance(stmt, MakeGates) and not 0 < stmt.arrivals <= MOST_ARRIVALS:
            raise self._fail(f"{stmt.arrivals} arrivals, of 1 to {MOST_ARRIVALS}")
        self.gates.add(buffer)

    def _alone(self) -> None:
        """What is a gate, or filled by bulk copies, is nothing else."""
        everything = list(statements(self.kernel.body))
        filled = {s.to.buffer for s in everything if isinstance(s, BulkCopy)}
        if not self.gates:
            return
        for s in everything:
            self.current = s
            if isinstance(s, (For, If, While, Seq, Allocate)):
                continue
            touched = (written_buffers(s) | read_buffers(s)) & self.gates
            if touched and gates_of(s) is None:
                raise self._fail(f"{touched.pop()!r} holds gates, and is read or stored to")
            if not isinstance(s, BulkCopy) and written_buffers(s) & filled:
                raise self._fail("bulk copies fill the buffer, and nothing else")

    def _exchange(self, stmt: Exchange) -> None:
        self._together(stmt)
        to, source = stmt.to.buffer, stmt.source.buffer
        own = to.scope == source.scope == "local"
        if not own or to.dtype != source.dtype or stmt.to.count != stmt.source.count:
            raise self._fail(f"lanes exchange no elements of {source!r} for those of {to!r}")
        if stmt.apart not in (1, 2, 4, 8, 16):
            raise self._fail(f"lanes that are {stmt.apart} apart do not exchange what they have")

    def _together(
        self, stmt: Mma | LoadRows | Exchange | MmaBegin | MmaEnd, lanes: int = WARP
    ) -> None:
        self._regions(stmt)
        width = self.kernel.block[0]
        if isinstance(width, Expr) or width % lanes:
            raise self._fail(f"threadIdx.x has {width} steps, not a multiple of {lanes} lanes")
        if self.split:
            unit = "a warp" if lanes == WARP else "a group"
            raise self._fail(f"what all lanes of {unit} do, {self.split}")

    def _regions(self, stmt: Stmt) -> None:
        for region in (*written_regions(stmt), *read_regions(stmt)):
            self._region(region)

    def _region(self, region: Region) -> None:
        self._use(region.buffer)
        self._expression(region.index)
        self._check_index(region.index)
        if region.index.lanes != 1 or region.count < 1:
            raise self._fail(f"{region.count} elements from {region.index} on are no region")

    def _join(self, stmt: Join) -> None:
        counters = stmt.counters
        self._use(counters)
        self._expression(stmt.index)
        self._check_index(stmt.index)
        if counters.scope != "global" or counters.dtype != "int32" or not self.kernel.threads:
            raise self._fail(f"blocks are not counted in {counters!r}")
        if self.again or self.divergent:
            raise self._fail(f"blocks are counted {self.again or self.divergent}")
        if isinstance(stmt.blocks, Expr) or stmt.blocks < 1 or stmt.index.lanes != 1:
            raise self._fail(f"{stmt.blocks} blocks of index {stmt.index} are no number of them")
        if any(n in self.threaded for n in walk(stmt.index)):
            raise self._fail("threads of a block count it at different places")
        touched = (s for s in statements(self.kernel.body) if s is not stmt)
        if any(counters in _touched(s) for s in touched):
            raise self._fail(f"another statement touches {counters!r}")
        told = set(walk(stmt.index))
        blocks = (t for t in self.kernel.threads if t.tag in BLOCK_TAGS and t.var not in told)
        used = {n for root in expressions(stmt.body) for n in walk(root)}
        for thread in blocks:
            if thread.var in used:
                raise self._fail(f"which block is the last shows in {thread.var}")
        self.again = "behind another"
        self._statement(stmt.body)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if buffer.scope not in SCOPES:
            raise self._fail(f"unknown scope {buffer.scope!r}")
        if buffer.scope == "global" and self.kernel.threads:
            raise self._fail("global memory cannot be allocated inside a kernel that is launched")
        if buffer in self.allocated or buffer in self.kernel.params:
            raise self._fail(f"{buffer!r} is allocated twice or is a parameter")
        if _empty(buffer.size):
            raise self._fail(f"{buffer!r} has no elements")
        self.allocated.add(buffer)
        self.buffers.add(buffer)
        self._statement(stmt.body)
        self.buffers.discard(buffer)

    def _expression(self, root: Expr) -> None:
        unlowered = next((n for n in walk(root) if n.op in ("read", "reduce")), None)
        if unlowered is not None:
            raise self._fail(f"{unlowered} has not been lowered")
        for node in walk(root):
            if node.op == "var" and node not in self.live:
                raise self._fail(f"the variable {node} is not bound here")
            if node.op == "load":
                self._use(node.attr)
                self._check_index(node.args[0])
                if node.dtype != node.attr.dtype or node.lanes != node.args[0].lanes:
                    raise self._fail(f"{node} has type {node.dtype}x{node.lanes}")
            elif any(a.lanes != node.lanes for a in _elementwise(node)):
                raise self._fail(f"the operands of {node} differ in lanes")

    def _check_index(self, index: Expr) -> None:
        if index.dtype not in ("int32", "int64"):
            raise self._fail(f"the index {index} is {index.dtype}")

    def _use(self, buffer: Buffer) -> None:
        if buffer in self.buffers:
            return
        if buffer in self.allocated:
            raise self._fail(f"{buffer!r} is used outside its allocation")
        raise self._fail(f"{buffer!r} is neither a parameter nor allocated")

    def _bind(self, var: Expr) -> None:
        if var.op != "var":
            raise self._fail(f"{var} is bound but is no variable")
        if var in self.bound:
            raise self._fail(f"the variable {var} is bound twice")
        self.bound.add(var)
        self.live.add(var)


_CHECKS: Rules[Callable[..., None]] = Rules(
    "verifier",
    {
        Seq: _Checker._seq,
        For: _Checker._for,
        If: _Checker._if,
        While: _Checker._while,
        Store: _Checker._store,
        Allocate: _Checker._allocate,
        Barrier: _Checker._barrier,
        AsyncCopy: _Checker._async_copy,
        Prefetch: _Checker._prefetch,
        Commit: lambda checker, stmt: None,
        Wait: _Checker._wait,
        Mma: _Checker._mma,
        LoadRows: _Checker._load_rows,
        Show: lambda checker, stmt: None,
        MmaBegin: _Checker._mma_batch,
        MmaEnd: _Checker._mma_batch,
        BulkCopy: _Checker._bulk_copy,
        MakeGates: _Checker._gates,
        Fence: lambda checker, stmt: None,
        Expect: _Checker._expect,
        Arrive: _Checker._arrive,
        Await: _Checker._await,
        Join: _Checker._join,
        Exchange: _Checker._exchange,
        Foreign: lambda checker, stmt: checker._statement(stmt.means),
    },
)


def _touched(stmt: Stmt) -> set[Buffer]:
    """Buffers that a statement itself names, those under it left out."""
    parts = STATEMENTS[type(stmt)]
    named = [getattr(stmt, name) for name in (*parts.written, *parts.read)]
    roots = [e for name in parts.expressions if isinstance(e := getattr(stmt, name), Expr)]
    loads = {n.attr for n in walk(*roots) if n.op == "load"}
    return loads.union(p.buffer if isinstance(p, Region) else p for p in named)


def _empty(extent: Any) -> bool:
    return not isinstance(extent, Expr) and extent < 1


def _elementwise(node: Expr) -> Iterator[Expr]:
    """The arguments that must have as many lanes as `node`."""
    if node.op == "ramp":
        return iter(())
    return iter(() if node.op == "broadcast" else node.args)


__all__ = ["verify", "verify_kernel"]
