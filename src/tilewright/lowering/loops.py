"""Vectorising and unrolling.

In: kernels whose loops are marked.  Out: ramps for vectorized loops (or plain unrolled loops where
the target or the access does not allow a vector), and loops marked unrolled, by annotation or by
pragma.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.bulk import GATED
from tilewright.ir.expr import Expr
from tilewright.ir.foreign import Foreign
from tilewright.ir.loops import loop_ranges
from tilewright.ir.stmt import (
    ASYNC_BYTES,
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
    Region,
    Rules,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    load,
    map_children,
    read_regions,
    seq,
    statements,
    written_buffers,
    written_regions,
)
from tilewright.lowering.ring import settled

WORD = 4  # bytes of a register of a GPU


def vectorize(kernel: Kernel, gpu: bool) -> Kernel:
    """Loops of kind "vectorized" become vector statements.

    rewrite:  vectorized for i in 4: A[4*x + i] = B[4*x + i]
              ->   A[ramp(4*x, 1, 4)] = B[ramp(4*x, 1, 4)]
    On a GPU only accesses of 8 or 16 aligned bytes become vectors, where there are atoms also of 4;
    anything else unrolls.  A local buffer is registers, so 16 bytes of halves may be added to 32 of
    floats there.  An asynchronous copy becomes one of all lanes where both places are aligned and
    one condition is that of all.
    """
    simplify = Simplifier(loop_ranges(kernel))
    by_warps = any(isinstance(s, Mma) for s in statements(kernel.body))
    shortest = WORD if by_warps else 2 * WORD

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, visit)
        if not (isinstance(stmt, For) and stmt.kind == "vectorized"):
            return stmt
        lanes = Lanes(stmt.var, stmt.extent, simplify, gpu, shortest)
        body = lanes.statement(stmt.body)
        return body if body is not None else replace(stmt, kind="unrolled")

    body = settled(visit(kernel.body))
    return kernel if body is kernel.body else replace(kernel, body=body)


class Lanes:
    """Turns one loop into vectors; every method gives None where that is impossible."""

    def __init__(
        self, var: Expr, lanes: int, simplify: Simplifier, gpu: bool, shortest: int = 2 * WORD
    ) -> None:
        self.var, self.lanes, self.simplify, self.gpu = var, lanes, simplify, gpu
        self.shortest = shortest  # bytes of an access, on a GPU
        self._values: dict[Expr, Expr | None] = {}  # inlined stages share what they read twice

    def statement(self, stmt: Stmt) -> Stmt | None:
        return _LANES[type(stmt)](self, stmt)

    def _scalar(self, stmt: Stmt) -> None:
        """A statement that has no form over lanes."""

    def _store(self, stmt: Store) -> Stmt | None:
        index = self.index(stmt.index, stmt.buffer)
        value = self.value(stmt.value)
        if index is None or value is None or index.lanes == 1:
            return None
        return Store(stmt.buffer, index, E.broadcast(value, self.lanes))

    def _async_copy(self, stmt: AsyncCopy) -> Stmt | None:
        to, source = self._region(stmt.to), self._region(stmt.source)
        wanted = same_for_all(stmt.condition, self.var, self.lanes, self.simplify)
        if to is None or source is None or wanted is None:
            return None
        return AsyncCopy(to, source, wanted)

    def _region(self, region: Region) -> Region | None:
        """The neighbouring elements of all lanes, aligned as a copy must be."""
        line = self._line(region.index)
        if line is None or line[1] != 1 or region.count != 1:
            return None
        fits = self.lanes * region.buffer.dtype.bytes in ASYNC_BYTES
        aligned = self.simplify.is_multiple(line[0], self.lanes)
        return replace(region, index=line[0], count=self.lanes) if fits and aligned else None

    def _seq(self, stmt: Seq) -> Stmt | None:
        parts = [self.statement(s) for s in stmt.body]
        return None if any(p is None for p in parts) else seq(*parts)

    def _for(self, stmt: For) -> Stmt | None:
        if stmt.kind not in ("serial", "unrolled"):
            return None
        body = self.statement(stmt.body)
        return None if body is None else replace(stmt, body=body)

    def _if(self, stmt: If) -> Stmt | None:
        if stmt.orelse is not None:
            return None
        simplify = self.simplify.assuming(stmt.condition)
        inside = Lanes(self.var, self.lanes, simplify, self.gpu, self.shortest)
        test, then = self.condition(stmt.condition), inside.statement(stmt.then)
        return None if test is None or then is None else If(test, then)

    def condition(self, node: Expr) -> Expr | None:
        """A guard: itself, or on a CPU a mask with one bool per lane; on a GPU one for all."""
        if not self._uses(node):
            return node
        if not self.gpu:
            return self.value(node)
        return same_for_all(node, self.var, self.lanes, self.simplify)

    def _uses(self, node: Expr) -> bool:
        return any(n is self.var for n in E.walk(node))

    def index(self, node: Expr, buffer: Buffer) -> Expr | None:
        """The index over all lanes: itself, or a ramp."""
        if not self._uses(node):
            return node
        line = self._line(node)
        if line is None:
            return None
        base, stride = line
        width = self.lanes * buffer.dtype.bytes
        fits = width in (WORD, 2 * WORD, 4 * WORD) and width >= self.shortest
        fits = fits or (buffer.scope == "local" and width in (32, 64))
        if self.gpu and not (stride == 1 and fits and self.simplify.is_multiple(base, self.lanes)):
            return None
        return E.ramp(base, stride, self.lanes)

    def _line(self, node: Expr) -> tuple[Expr, int] | None:
        """The index in lane 0, and its steps, if these are all alike and not 0."""
        form = self.simplify.linear(node)
        stride = form.terms.get(self.var, 0)
        rest = {a: c for a, c in form.terms.items() if a is not self.var}
        if stride == 0 or any(self._uses(a) for a in rest):
            return None
        return self.simplify.to_expr(type(form)(rest, form.constant), node.dtype), stride

    def value(self, node: Expr) -> Expr | None:
        if node not in self._values:
            self._values[node] = self._value(node)
        return self._values[node]

    def _value(self, node: Expr) -> Expr | None:
        if not self._uses(node):
            return node
        if node is self.var:
            return E.ramp(E.const(0, node.dtype), 1, self.lanes)
        if node.op == "load":
            index = self.index(node.args[0], node.attr)
            return None if index is None else load(node.attr, index)
        if node.op == "if_then_else" and self.gpu:
            return None
        args = [self.value(a) for a in node.args]
        if any(a is None for a in args):
            return None
        return E.rebuild(node, tuple(args))  # type: ignore[arg-type]


def same_for_all(test: Expr, lane: Expr, lanes: int, simple: Simplifier) -> Expr | None:
    """The test of a whole vector, of which variable `lane` counts the elements; None where its
    elements may differ in it.

    rewrite:  8*x + lane < 24   ->   8*x < 24       (4 lanes: both sides are multiples of 4)
    """
    parts = []
    for part in E.conjuncts(test):
        if not any(n is lane for n in E.walk(part)):
            parts.append(part)
            continue
        if part.op not in ("lt", "ge"):
            return None
        first = E.substitute(part.args[0] - part.args[1], {lane: E.const(0)})
        steps = simple(part.args[0] - part.args[1] - first - lane)
        if steps.op != "const" or steps.attr or not simple.is_multiple(first, lanes):
            return None
        parts.append(E.substitute(part, {lane: E.const(0)}))
    return E.all_of(*parts)


_LANES: Rules[Callable[..., Stmt | None]] = Rules(
    "vectorize",
    {
        Store: Lanes._store,
        AsyncCopy: Lanes._async_copy,
        Seq: Lanes._seq,
        For: Lanes._for,
        If: Lanes._if,
    },
    otherwise=Lanes._scalar,
)


def unroll(
    kernel: Kernel, limits: Mapping[Expr, int], max_body: int, register_bytes: int
) -> Kernel:
    """Marks loops unrolled: those inside an auto_unroll_max_step pragma whose total steps stay
    within it, and those that index a register tile, which is a local buffer of no more than
    `register_bytes` whose indices are all constants, up to `max_body` steps.

    limits: loop variable -> the pragma in force there
    """

    return replace(kernel, body=_Unroll(limits, max_body, register_bytes).visit(kernel.body)[0])


@dataclass(frozen=True)
class _Unroll:
    """Its rules give the statement and how many innermost ones it repeats when written out."""

    limits: Mapping[Expr, int]
    max_body: int
    register_bytes: int

    def visit(self, stmt: Stmt) -> tuple[Stmt, int]:
        return _UNROLL[type(stmt)](self, stmt)

    def _for(self, stmt: For) -> tuple[Stmt, int]:
        body, steps = self.visit(stmt.body)
        if isinstance(stmt.extent, Expr):
            return replace(stmt, body=body), 1 << 40  # nothing around it is unrolled
        total, kind = steps * stmt.extent, stmt.kind
        if kind == "serial":
            wanted = total <= self.limits.get(stmt.var, 0)
            if wanted or (
                total <= self.max_body and _indexes_registers(body, stmt.var, self.register_bytes)
            ):
                kind = "unrolled"
        return replace(stmt, body=body, kind=kind), total

    def _while(self, stmt: While) -> tuple[Stmt, int]:
        return self._parts(stmt)[0], 1 << 40  # as often as data say

    def _parts(self, stmt: Stmt) -> tuple[Stmt, int]:
        counts = [0]

        def part(s: Stmt) -> Stmt:
            new, steps = self.visit(s)
            counts.append(steps)
            return new

        return map_children(stmt, part), sum(counts)

    def _step(self, stmt: Stmt) -> tuple[Stmt, int]:
        return stmt, 1


_UNROLL: Rules[Callable[..., tuple[Stmt, int]]] = Rules(
    "unroll",
    {
        For: _Unroll._for,
        **dict.fromkeys((Store, AsyncCopy, Mma, LoadRows, Exchange), _Unroll._step),
        While: _Unroll._while,
        **dict.fromkeys(
            (Seq, If, Allocate, Barrier, Commit, Wait, Show, MmaBegin, MmaEnd, Join, Foreign),
            _Unroll._parts,
        ),
        **dict.fromkeys(GATED, _Unroll._step),
    },
)


def _indexes_registers(body: Stmt, var: Expr, register_bytes: int) -> bool:
    def indexed(buffer: Buffer, index: Expr) -> bool:
        small = not isinstance(buffer.size, Expr) and buffer.scope == "local"
        small = small and buffer.size * buffer.dtype.bytes <= register_bytes
        return small and var in E.free_variables(index)

    for s in statements(body):
        if any(indexed(r.buffer, r.index) for r in (*written_regions(s), *read_regions(s))):
            return True
        if not isinstance(s, Store):
            continue
        if indexed(s.buffer, s.index):
            return True
        if any(n.op == "load" and indexed(n.attr, n.args[0]) for n in E.walk(s.value)):
            return True
    return False


def simplify_indices(kernel: Kernel) -> Kernel:
    """Every index and condition once more, under the final loop ranges and the guards around it."""
    body = _simplified(kernel.body, Simplifier(loop_ranges(kernel)))
    return replace(kernel, body=body)


def _simplified(s: Stmt, simplify: Simplifier) -> Stmt:
    return _SIMPLIFIED[type(s)](s, simplify)


def _simplified_parts(s: Stmt, simplify: Simplifier) -> Stmt:
    def on_expr(e: Expr) -> Expr:
        return simplify(e) if e.lanes == 1 and e.dtype.is_index else _expression(e, simplify)

    return map_children(s, lambda part: _simplified(part, simplify), on_expr)


def _simplified_store(s: Store, simplify: Simplifier) -> Stmt:
    index = simplify(s.index) if s.index.lanes == 1 else _expression(s.index, simplify)
    return Store(s.buffer, index, _expression(s.value, simplify))


def _simplified_if(s: If, simplify: Simplifier) -> Stmt:
    test = simplify(_expression(s.condition, simplify))
    orelse = _simplified(s.orelse, simplify) if s.orelse is not None else None
    if test.op == "const":
        return _simplified(s.then, simplify) if test.attr else (orelse or seq())
    return If(test, _simplified(s.then, simplify.assuming(lasting(test, s.then))), orelse)


def lasting(test: Expr, body: Stmt) -> Expr:
    """The parts of a condition that hold all through `body`: it stores to nothing they load."""
    if not any(n.op == "load" for n in E.walk(test)):
        return test
    written = written_buffers(body)
    parts = E.conjuncts(test)
    return E.all_of(
        *(p for p in parts if not any(n.op == "load" and n.attr in written for n in E.walk(p)))
    )


_SIMPLIFIED: Rules[Callable[..., Stmt]] = Rules(
    "simplify", {Store: _simplified_store, If: _simplified_if}, otherwise=_simplified_parts
)


def _expression(e: Expr, simplify: Simplifier) -> Expr:
    """`e` with its indices and conditions simplified."""

    def rule(n: Expr) -> Expr | None:
        if n.op == "load" and n.args[0].lanes == 1:
            return load(n.attr, simplify(n.args[0]))
        if n.op == "ramp":
            return E.ramp(simplify(n.args[0]), n.args[1], n.lanes)
        return simplify(n) if n.dtype == "bool" and n.lanes == 1 else None

    return E.transform(e, rule)
