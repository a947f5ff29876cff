"""Statements, buffers, kernels and programs: what lowering makes and code generation prints.

All extents are Python ints (shapes are static); every buffer access has one flat index.
Statements are frozen; rewriting returns the same object when nothing changed.
Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tilewright.base.artifact import Packing
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr, binary, const, make, rebuild

SCOPES = ("global", "shared", "local")
LOOP_KINDS = ("serial", "unrolled", "vectorized", "parallel", "vthread")
BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
TAGS = (*BLOCK_TAGS, *THREAD_TAGS, "vthread")  # what a schedule can bind a loop to


@dataclass(frozen=True, eq=False)
class Buffer:
    """`size` elements of `dtype`.  A buffer starts at a multiple of 64 bytes (on a GPU: of 16).

    scope: "global" (arguments, workspaces), "shared" (one per block) or "local" (one per thread).
    shape: the logical shape, for readers only.
    packing: for a constant argument stored in another layout.
    """

    name: str
    dtype: DType
    size: int
    scope: str = "global"
    shape: tuple[int, ...] = ()
    packing: Packing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DType(self.dtype, f"buffer {self.name}"))

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{self.size}] {self.scope}"


def load(buffer: Buffer, index: Expr) -> Expr:
    """The value of `buffer` at the flat `index`; a ramp index loads a vector."""
    return make("load", (index,), buffer, buffer.dtype, index.lanes)


class Stmt:
    """Base of all statements."""

    __slots__ = ()

    def __str__(self) -> str:
        from tilewright.ir.printer import statement_text

        return statement_text(self)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class For(Stmt):
    """`for var in range(extent): body`.  kind: one of LOOP_KINDS.

    "unrolled" loops are written out or fully unrolled by pragma, as the back end prefers.
    """

    var: Expr
    extent: int
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


@dataclass(frozen=True, eq=False)
class Thread:
    """One launch dimension.  tag: in BLOCK_TAGS or THREAD_TAGS; var is bound in the whole body."""

    tag: str
    var: Expr
    extent: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """One launch.  params: the global buffers it touches; threads: empty on a CPU."""

    name: str
    params: tuple[Buffer, ...]
    body: Stmt
    threads: tuple[Thread, ...] = ()

    def _dims(self, tags: tuple[str, ...]) -> tuple[int, int, int]:
        extents = {t.tag: t.extent for t in self.threads}
        x, y, z = (extents.get(tag, 1) for tag in tags)
        return x, y, z

    @property
    def grid(self) -> tuple[int, int, int]:
        return self._dims(BLOCK_TAGS)

    @property
    def block(self) -> tuple[int, int, int]:
        return self._dims(THREAD_TAGS)

    def __str__(self) -> str:
        from tilewright.ir.printer import kernel_text

        return kernel_text(self)


@dataclass(frozen=True, eq=False)
class Program:
    """A lowered schedule: kernels run in order on the caller's `args` and on `workspaces`.

    roles: for each of `args` "input" or "output".
    """

    name: str
    args: tuple[Buffer, ...]
    roles: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    workspaces: tuple[Buffer, ...] = ()

    def __str__(self) -> str:
        return "\n".join(str(k) for k in self.kernels)


def seq(*stmts: Stmt | None) -> Stmt:
    """The statements in order, flattened; a single one stays itself."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.body)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def map_children(
    stmt: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: Callable[[Expr], Expr] = lambda e: e
) -> Stmt:
    """`stmt` with its direct children replaced; the same object if none changed."""
    if isinstance(stmt, For):
        body = on_stmt(stmt.body)
        return stmt if body is stmt.body else replace(stmt, body=body)
    if isinstance(stmt, Store):
        index, value = on_expr(stmt.index), on_expr(stmt.value)
        if index is stmt.index and value is stmt.value:
            return stmt
        return Store(stmt.buffer, index, value)
    if isinstance(stmt, If):
        condition, then = on_expr(stmt.condition), on_stmt(stmt.then)
        orelse = on_stmt(stmt.orelse) if stmt.orelse is not None else None
        if condition is stmt.condition and then is stmt.then and orelse is stmt.orelse:
            return stmt
        return If(condition, then, orelse)
    if isinstance(stmt, Seq):
        parts = tuple(on_stmt(s) for s in stmt.body)
        if all(a is b for a, b in zip(parts, stmt.body, strict=True)):
            return stmt
        return seq(*parts)
    if isinstance(stmt, Allocate):
        body = on_stmt(stmt.body)
        return stmt if body is stmt.body else Allocate(stmt.buffer, body)
    return stmt


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """`stmt` and everything under it, outer first."""
    yield stmt
    if isinstance(stmt, (For, Allocate)):
        yield from statements(stmt.body)
    elif isinstance(stmt, If):
        yield from statements(stmt.then)
        if stmt.orelse is not None:
            yield from statements(stmt.orelse)
    elif isinstance(stmt, Seq):
        for s in stmt.body:
            yield from statements(s)


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """The root expressions of every statement under `stmt`."""
    for s in statements(stmt):
        if isinstance(s, Store):
            yield s.index
            yield s.value
        elif isinstance(s, If):
            yield s.condition


def vector_loads(node: Expr) -> Iterator[Expr]:
    """Loads of several lanes that are certainly executed."""
    if node.op == "load":
        yield node
    elif node.lanes > 1:
        for a in node.args[:1] if node.op == "if_then_else" else node.args:
            yield from vector_loads(a)


def lane(node: Expr, k: int) -> Expr:
    """Lane `k` of a vector expression, as a scalar expression."""
    if node.lanes == 1:
        return node
    if node.op == "ramp":
        base, stride = node.args
        return binary("add", base, binary("mul", stride, const(k, stride.dtype)))
    if node.op == "broadcast":
        return node.args[0]
    if node.op == "load":
        return load(node.attr, lane(node.args[0], k))
    return rebuild(node, tuple(lane(a, k) for a in node.args))
