"""Statements, buffers, kernels and programs: what lowering makes and code generation prints.

Extents are Python ints, or expressions of the kernel's symbols, which each call gives a value
(`ir/symbols.py`).  Every buffer access has one flat index.
Statements are frozen; rewriting returns the same object when nothing changed.

The statements are a closed set, `STATEMENTS`, which says where each class keeps its parts.  What
walks over all parts alike reads that table; what treats classes differently has a table of `Rules`.
Both refuse a class that they do not know.  To add a statement: its class, its line in `STATEMENTS`,
a row in the tables that must treat it specially.
Read next: `fast_interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewright.base.artifact import Packing
from tilewright.base.dtype import DType
from tilewright.base.errors import InternalError
from tilewright.base.printed import Printed
from tilewright.ir.atoms import Atom, Fragment, Tile
from tilewright.ir.expr import Expr, binary, convert, make, rebuild, walk
from tilewright.ir.swizzle import period, swizzled

SCOPES = ("global", "shared", "local")
LOOP_KINDS = ("serial", "unrolled", "vectorized", "parallel", "vthread")
BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
TAGS = (*BLOCK_TAGS, *THREAD_TAGS, "vthread")  # what a schedule can bind a loop to
ROW, PLACE = 16, 4  # bytes of a row of `LoadRows`, and of what a lane gets of a matrix
ASYNC_BYTES = (4, 8, 16)  # what one asynchronous copy may move
SHARED_ALIGNMENT = 16  # bytes: shared buffers begin at places that the widest access may have


@dataclass(frozen=True, eq=False)
class Buffer:
    """`size` elements of `dtype`.  A buffer starts at a multiple of 64 bytes (on a GPU: of 16).

    size, shape: of arguments, workspaces and a CPU's scratch also expressions of symbols

    scope: "global" (arguments, workspaces), "shared" (one per block) or "local" (one per thread).
    shape: the logical shape, for readers only.
    packing: for a constant argument stored in another layout.
    slots: of a ring (`lowering/ring.py`), which are neighbours in it; 1 for what is no ring
    swizzle: of shared memory: one of SWIZZLES.  Indices count elements as if there were none; who
             reads and writes by them alone sees no difference, and may do without.  The size is a
             multiple of the period
    """

    name: str
    dtype: DType
    size: Any
    scope: str = "global"
    shape: tuple[Any, ...] = ()
    packing: Packing | None = None
    slots: int = 1
    swizzle: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype, f"buffer {self.name}"))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{self.size}] {self.scope}"

    @property
    def alignment(self) -> int:
        """Of the first byte of a shared buffer."""
        return max(SHARED_ALIGNMENT, int(period(self.swizzle)))

    def at(self, index: Any) -> Any:
        """Where memory has the element of a flat index."""
        return swizzled(index, self.swizzle, self.dtype.bytes)


@dataclass(frozen=True, eq=False)
class Region:
    """`count` neighbouring elements of `buffer`, from the flat `index`, a scalar, on."""

    buffer: Buffer
    index: Expr
    count: int


def load(buffer: Buffer, index: Expr) -> Expr:
    """The value of `buffer` at the flat `index`; a ramp index loads a vector."""
    return make("load", (index,), buffer, buffer.dtype, index.lanes)


class Stmt(Printed):
    """Base of all statements."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class For(Stmt):
    """`for var in range(extent): body`.  kind: one of LOOP_KINDS; extent: an int or an Expr.

    "unrolled" loops are written out or fully unrolled by pragma, as the back end prefers.
    """

    var: Expr
    extent: Any
    body: Stmt
    kind: str = "serial"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Store(Stmt):
    """`buffer[index] = value`; a ramp index stores a vector."""

    buffer: Buffer
    index: Expr
    value: Expr


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class If(Stmt):
    condition: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class While(Stmt):
    """`body` again and again as long as `condition`, a scalar of what is loaded, holds.  Only the
    statements that users wrote have it; no barrier is inside."""

    condition: Expr
    body: Stmt


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Seq(Stmt):
    body: tuple[Stmt, ...]


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Allocate(Stmt):
    """`buffer` (shared or local; on a CPU also small scratch) lives during `body`."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Barrier(Stmt):
    """All threads of the block wait; shared memory written before is visible after."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class AsyncCopy(Stmt):
    """`to[...] = source[...]`, some time before a `Wait` of this thread that covers it.

    to:        in shared memory; 4, 8 or 16 bytes that begin at a multiple of as many.  Until the
               wait nobody may touch them; after it this thread may, and others behind a barrier
    source:    in global memory that the kernel does not store to, aligned alike
    condition: where it does not hold, zeros are written and `source`, which may then lie anywhere,
               is not read
    """

    to: Region
    source: Region
    condition: Expr


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Prefetch(Stmt):
    """Asks for `source`, in global memory, to come near: it will be read.  It changes nothing, and
    nobody waits for it."""

    source: Region


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Commit(Stmt):
    """The copies that this thread has begun since its last commit are one group, maybe empty."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Wait(Stmt):
    """This thread goes on when all but the last `pending` of its groups of copies are there."""

    pending: int


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Mma(Stmt):
    """`sum += a * b`: a product of small matrices, by the lanes of a warp, or of a group, together;
    an atom of a thread by that alone.

    Each lane gives what it holds, in buffers of its own, as the atom's fragments say.  The lanes
    of a warp, or group, are those of threadIdx.x, whose extent is a multiple of theirs, and all of
    them come here.
    Of a group a and b are tiles in shared memory (regions: from the first element to the last) that
    writers have shown by `Show`.  It begins some time after an `MmaBegin` and ends some time before
    an `MmaEnd` that covers it: meanwhile nobody touches its sums, and nobody writes to its tiles.
    """

    atom: Atom
    sum: Region
    a: Region
    b: Region

    @property
    def operands(self) -> tuple[tuple[Region, Fragment | Tile], ...]:
        """a, b and the sum."""
        atom = self.atom
        return (self.a, atom.a), (self.b, atom.b), (self.sum, atom.sum)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Show(Stmt):
    """What this thread has written to shared memory is shown to units that read it beside the
    threads, as groups do for an `Mma`; to those of other threads behind a barrier."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class MmaBegin(Stmt):
    """A group may multiply: what this thread has stored to `sum` counts from here on."""

    sum: Region


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class MmaEnd(Stmt):
    """The `Mma`s that the group has begun since its last `MmaEnd` are one batch, maybe empty; this
    thread goes on when all but the last `pending` batches have ended.  sum: as of `MmaBegin`."""

    pending: int
    sum: Region


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class LoadRows(Stmt):
    """Small matrices from shared memory into the lanes of a warp, by its 32 lanes together.

    A matrix has 8 rows of 16 bytes.  Lane 8 * i + r points to row r of matrix i, and lane 4 * g + q
    gets, of each matrix in turn, the 4 bytes of place q in row g; transposed, which is for elements
    of 2 bytes: the elements of rows 2 * q and 2 * q + 1 in column g.
    to:     what the lane gets, in a buffer of its own: of 1, 2 or 4 matrices
    source: the row it points to; lanes for which there is no matrix point to some row
    """

    to: Region
    source: Region
    transposed: bool = False

    @property
    def matrices(self) -> int:
        return self.to.count * self.to.buffer.dtype.bytes // PLACE


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Join(Stmt):
    """`body`, by the last of `blocks` blocks to come here with the same `index`; others go on.

    The first thread of a block counts it, and what it finds is told to all, which is a barrier.
    What the first thread of each of these blocks has done, and what barriers put before that, is
    before `body`, where all their stores to global memory are seen.  In what order blocks come is
    open: `body` depends on no index of a block that `index` does not tell.
    counters: int32 in global memory, which nothing else touches; the element `index` counts, is 0
              before the first block comes, and again when the last one has come
    """

    counters: Buffer
    index: Expr
    blocks: Any
    body: Stmt


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Exchange(Stmt):
    """What another lane of the warp holds, by its 32 lanes together.

    Lane l gets what lane l ^ apart has, and that lane what lane l has.
    to, source: buffers of a lane's own; apart: 1, 2, 4, 8 or 16
    """

    to: Region
    source: Region
    apart: int


@dataclass(frozen=True, eq=False)
class Thread:
    """One launch dimension.  tag: in BLOCK_TAGS or THREAD_TAGS; var is bound in the whole body.

    extent: an int; of blocks also an expression of symbols
    """

    tag: str
    var: Expr
    extent: Any


@dataclass(frozen=True, eq=False)
class Given:
    """A symbol, bound in the whole body of a kernel to the one element of `buffer`.

    sized: whether it is of an extent, and so at least 1
    """

    var: Expr
    buffer: Buffer
    sized: bool = True


@dataclass(frozen=True, eq=False)
class Kernel(Printed):
    """One launch.  params: the global buffers it touches; threads: empty on a CPU.

    given: the symbols it uses, whose buffers are among `params`
    """

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    threads: tuple[Thread, ...] = ()
    given: tuple[Given, ...] = ()

    def _dims(self, tags: tuple[str, ...]) -> tuple[Any, Any, Any]:
        extents = {t.tag: t.extent for t in self.threads}
        x, y, z = (extents.get(tag, 1) for tag in tags)
        return x, y, z

    @property
    def grid(self) -> tuple[Any, Any, Any]:
        return self._dims(BLOCK_TAGS)

    @property
    def block(self) -> tuple[int, int, int]:
        return self._dims(THREAD_TAGS)


@dataclass(frozen=True, eq=False)
class PackedCall:
    """A call of a Python function by its name.  args: buffers, extents, numbers, texts."""

    name: str
    args: tuple[Any, ...]

    def __str__(self) -> str:
        told = (a.name if isinstance(a, Buffer) else repr(a) for a in self.args)
        return f"call {self.name}({', '.join(told)})"


@dataclass(frozen=True, eq=False)
class Program(Printed):
    """A lowered schedule: kernels run in order on the caller's `args` and on `workspaces`.

    roles: for each of `args` "input", "output", or "extent": an integer that is not given by the
           caller, but follows from the shapes of what is
    calls: functions of the host, each with how many of the kernels run before it
    steady: None, or of a program that is one link of a chain of launches (a network's) the
            arguments that nothing writes as long as the chain runs, or only what comes behind all
            that read them.  Where the device can, a kernel of it may begin before the one before
            has ended, and reads these meanwhile
    lets_in: whether it lets the kernel behind begin when all of its blocks have; else that
            begins when all blocks have ended; begins: whether the chain begins with it
    """

    name: str
    args: tuple[Buffer, ...]
    roles: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    workspaces: tuple[Buffer, ...] = ()
    calls: tuple[tuple[int, PackedCall], ...] = ()
    steady: frozenset[Buffer] | None = None
    lets_in: bool = False
    begins: bool = False

    @property
    def counters(self) -> frozenset[Buffer]:
        """The workspaces that are zero before and after each run: those that count blocks."""
        found = (s for kernel in self.kernels for s in statements(kernel.body))
        return frozenset(s.counters for s in found if isinstance(s, Join))


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, flattened; a single one stays itself."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.body)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


# -- traversal -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Where a class of statements keeps its parts: names of its fields.

    statements:  each holds a statement, None, or a tuple of statements
    expressions: each holds an expression, a number that is none, or a tuple of expressions
    written:     each holds a buffer, or a region of one, that it stores to
    read:        each holds a region that it reads, besides what its expressions load
    """

    statements: tuple[str, ...] = ()
    expressions: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    read: tuple[str, ...] = ()


Rule = TypeVar("Rule")


class Rules(dict[type[Stmt], Rule]):
    """What one pass does with each class of statements: `rules[type(stmt)](stmt, ...)`.

    A class without a row takes `otherwise`, if it is one of `STATEMENTS`.  Any other is refused
    with an InternalError that names the pass and the class.
    """

    def __init__(
        self, name: str, rows: Mapping[type[Stmt], Rule], otherwise: Rule | None = None
    ) -> None:
        super().__init__(rows)
        self.name, self.otherwise = name, otherwise

    def __missing__(self, kind: type[Stmt]) -> Rule:
        if self.otherwise is not None and kind in STATEMENTS:
            return self.otherwise
        raise InternalError(
            self.name, f"{kind.__name__} is no statement that this pass knows",
            "A new statement needs a line in STATEMENTS and a row in the rules of such passes.",
        )  # fmt: skip


STATEMENTS: Rules[Parts] = Rules(
    "traversal",
    {
        For: Parts(statements=("body",), expressions=("extent",)),
        Store: Parts(expressions=("index", "value"), written=("buffer",)),
        If: Parts(statements=("then", "orelse"), expressions=("condition",)),
        While: Parts(statements=("body",), expressions=("condition",)),
        Seq: Parts(statements=("body",)),
        Allocate: Parts(statements=("body",)),
        Barrier: Parts(),
        AsyncCopy: Parts(expressions=("condition",), written=("to",), read=("source",)),
        Prefetch: Parts(read=("source",)),
        Commit: Parts(),
        Wait: Parts(),
        Mma: Parts(written=("sum",), read=("a", "b", "sum")),
        LoadRows: Parts(written=("to",), read=("source",)),
        Show: Parts(),
        MmaBegin: Parts(read=("sum",)),
        MmaEnd: Parts(read=("sum",)),
        Join: Parts(statements=("body",), expressions=("index",), written=("counters",)),
        Exchange: Parts(written=("to",), read=("source",)),
    },
)


def map_children(
    stmt: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr] | None = None
) -> Stmt:
    """`stmt` with its direct parts replaced; the same object if none changed."""
    parts = STATEMENTS[type(stmt)]
    changed: dict[str, Any] = {}
    for name in parts.expressions if on_expr is not None else ():
        node = getattr(stmt, name)
        if isinstance(node, tuple):
            nodes = tuple(map(on_expr, node))  # type: ignore[arg-type]
            if any(a is not b for a, b in zip(nodes, node, strict=True)):
                changed[name] = nodes
            continue
        if not isinstance(node, Expr):
            continue
        new_node = on_expr(node)  # type: ignore[misc]
        if new_node is not node:
            changed[name] = new_node
    for name, region in _regions(stmt) if on_expr is not None else ():
        index = on_expr(region.index)  # type: ignore[misc]
        if index is not region.index:
            changed[name] = replace(region, index=index)
    for name in parts.statements:
        part = getattr(stmt, name)
        if part is None:
            continue
        if not isinstance(part, tuple):
            new = on_stmt(part)
            if new is not part:
                changed[name] = new
            continue
        several = tuple(map(on_stmt, part))
        if any(a is not b for a, b in zip(several, part, strict=True)):
            changed[name] = several
    if not changed:
        return stmt
    return seq(*changed["body"]) if isinstance(stmt, Seq) else replace(stmt, **changed)  # type: ignore[type-var]


def map_regions(stmt: Stmt, on_region: Callable[[Region], Region]) -> Stmt:
    """`stmt` with the regions that it writes and reads itself replaced."""
    changed: dict[str, Any] = {name: on_region(region) for name, region in _regions(stmt)}
    return replace(stmt, **changed) if changed else stmt  # type: ignore[type-var]


def _regions(stmt: Stmt) -> list[tuple[str, Region]]:
    """The regions of `stmt` itself, each once, with the names of their fields."""
    parts = STATEMENTS[type(stmt)]
    fields = ((n, getattr(stmt, n)) for n in dict.fromkeys((*parts.written, *parts.read)))
    return [(name, part) for name, part in fields if isinstance(part, Region)]


def children(stmt: Stmt) -> list[Stmt]:
    """The statements directly under `stmt`, in order."""
    found: list[Stmt] = []
    for name in STATEMENTS[type(stmt)].statements:
        part = getattr(stmt, name)
        if isinstance(part, tuple):
            found += part
        elif part is not None:
            found.append(part)
    return found


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` and everything under it, outer first, in order."""
    todo = [stmt]
    while todo:
        s = todo.pop()
        yield s
        todo += reversed(children(s))


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The root expressions of every statement under `stmt`, indices of regions among them."""
    for s in statements(stmt):
        for name in STATEMENTS[type(s)].expressions:
            part = getattr(s, name)
            if isinstance(part, Expr):
                yield part
            elif isinstance(part, tuple):
                yield from part
        yield from (region.index for _, region in _regions(s))


def written_regions(stmt: Stmt) -> list[Region]:
    """What `stmt` itself writes as a whole; a `Store` writes elements of its buffer."""
    parts = (getattr(stmt, name) for name in STATEMENTS[type(stmt)].written)
    return [p for p in parts if isinstance(p, Region)]


def read_regions(stmt: Stmt) -> list[Region]:
    """What `stmt` itself reads, besides what its expressions load."""
    return [getattr(stmt, name) for name in STATEMENTS[type(stmt)].read]


def written_buffers(stmt: Stmt) -> set[Buffer]:
    """What the statements under `stmt` store to."""
    parts = (getattr(s, n) for s in statements(stmt) for n in STATEMENTS[type(s)].written)
    return {p.buffer if isinstance(p, Region) else p for p in parts}


def read_buffers(stmt: Stmt) -> set[Buffer]:
    """What the statements under `stmt` load or read."""
    loads = {n.attr for n in walk(*expressions(stmt)) if n.op == "load"}
    return loads.union(r.buffer for s in statements(stmt) for r in read_regions(s))


# -- lanes of vectors ------------------------------------------------------------------------------


def vector_loads(node: Expr) -> Iterator[Expr]:
    """Loads of several lanes that are certainly executed."""
    if node.op == "load":
        yield node
    elif node.lanes > 1:
        for a in node.args[:1] if node.op == "if_then_else" else node.args:
            yield from vector_loads(a)


def lane(node: Expr, k: int | Expr) -> Expr:
    """Lane `k` of a vector expression, as a scalar expression."""
    if node.lanes == 1:
        return node
    if node.op == "ramp":
        base, stride = node.args
        return binary("add", base, binary("mul", stride, convert(k, stride)))
    if node.op == "broadcast":
        return node.args[0]
    if node.op == "load":
        return load(node.attr, lane(node.args[0], k))
    return rebuild(node, tuple(lane(a, k) for a in node.args))
