"""Elements that a result keeps of an argument: no stores where both share their memory.

In: a program of a chain, or a kernel of a CPU.  Out: the same, where what chooses between a new
element and the one that is there, as a write to a cache does, asks first whether the result lies in
that argument's memory.  Where it does, whoever keeps all elements neither reads nor writes any: of
a cache of thousands of rows one is touched.  Elsewhere the kernel does what it did.
Read next: `reads_first.py`, `network/in_place.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import groupby

from tilewright.base.dtype import BOOL
from tilewright.codegen.c_value import APART
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Stmt,
    Store,
    load,
    map_children,
    read_buffers,
    seq,
    written_buffers,
)


def kept_in_place(program: Program) -> Program:
    """`program` with such stores under a condition; without `Program.steady` it stays as it is."""
    if program.steady is None:
        return program
    kernels = (kept(k, program.steady, ahead=True) for k in program.kernels)
    return replace(program, kernels=tuple(kernels))


MOST = 8  # new elements that a thread holds: more of them leave fewer threads on a core


@dataclass(frozen=True)
class _Change:
    """When a store changes an element: where `test` holds, which says so of a select, or `apart`.

    negated: the select keeps the element where its own test holds
    """

    test: Expr
    apart: Expr
    negated: bool


_Part = tuple[Stmt, _Change | None]  # a statement, and when it changes anything; None: always


def kept(
    kernel: Kernel, steady: frozenset[Buffer] = frozenset(), least: int = 0, ahead: bool = False
) -> Kernel:
    """The same of one kernel.

    least: bytes of arguments; of shorter ones elements are stored
    ahead: what several stores take is worked out before the first of them, so that its reads, which
           may be of what is stored for all that compilers know, wait for the memory together
    """
    written = written_buffers(kernel.body)
    others = {
        p for p in kernel.params
        if p not in steady and p not in written
        if not least or (isinstance(p.size, int) and p.size * p.dtype.bytes >= least)
    }  # fmt: skip
    if not others:
        return kernel
    results = written & set(kernel.params) - read_buffers(kernel.body)

    def visit(stmt: Stmt) -> list[_Part]:
        if isinstance(stmt, Store) and stmt.buffer in results:
            return [(stmt, _change(stmt, others))]
        if isinstance(stmt, For):
            parts = visit(stmt.body)
            if all(c is not None and stmt.var not in E.free_variables(c.test) for _, c in parts):
                # nobody reads what they store, so each may have the loop for itself
                return [(fresh_loops(replace(stmt, body=body), {}), c) for body, c in parts]
            return [(replace(stmt, body=_held(parts, ahead)), None)]
        if isinstance(stmt, Seq):
            return [part for s in stmt.body for part in visit(s)]
        if isinstance(stmt, (If, Allocate)):
            return [(map_children(stmt, lambda s: _held(visit(s), ahead)), None)]
        return [(stmt, None)]

    return replace(kernel, body=_held(visit(kernel.body), ahead))


def _change(stmt: Store, others: set[Buffer]) -> _Change | None:
    """Where a store keeps an element of one of `others` or has a new one."""
    value = _uncast(stmt.value)
    if value.op not in ("select", "if_then_else"):
        return None
    test, first, second = value.args
    if test.op == "broadcast":
        (test,) = test.args
    if test.lanes > 1:
        return None
    for side, negated in ((second, False), (first, True)):
        kept = _uncast(side)
        same = kept.op == "load" and kept.attr in others and _is_same(kept.args[0], stmt.index)
        if same and kept.attr.dtype is stmt.buffer.dtype and kept.attr.size == stmt.buffer.size:
            return _Change(test, E.make(APART, (), (stmt.buffer, kept.attr), BOOL), negated)
    return None


def _held(parts: list[_Part], ahead: bool) -> Stmt:
    """Statements one behind the other, each where it changes something; what all their tests read
    is asked for together."""
    changes = [change for _, change in parts if change is not None]
    held = Buffer("changes", BOOL, len(changes), "local")
    first = [Store(held, E.const(k), change.test) for k, change in enumerate(changes)]
    rest: list[Stmt] = []
    guarded: set[Stmt] = set()
    for stmt, change in parts:
        if change is not None:
            known = load(held, E.const(changes.index(change)))
            test = E.logical_not(known) if change.negated else known
            stmt = _substituted(stmt, {change.test: known})
            stmt = If(E.binary("or", test, change.apart), stmt)
            guarded |= {stmt} if isinstance(stmt.then, Store) else set()
        rest.append(stmt)
    made = _worked_out(rest, guarded) if ahead else seq(*rest)
    return Allocate(held, seq(*first, made)) if first else made


def _worked_out(stmts: list[Stmt], guarded: set[Stmt]) -> Stmt:
    """What stores under conditions take before the first of them, as much as registers hold.

    guarded: those under conditions of ours; under one of the program's own a value may be computed
             only where it holds, and behind what stands before it
    """
    done: list[Stmt] = []
    for alike, some in groupby(stmts, lambda s: s in guarded):
        run = list(some)
        for k in range(0, len(run), MOST) if alike else ():
            done.append(_ahead([s for s in run[k : k + MOST] if isinstance(s, If)]))
        done += [] if alike else run
    return seq(*done)


def _ahead(stores: list[If]) -> Stmt:
    if len(stores) == 1:
        return stores[0]
    owns: list[Buffer] = []
    first: list[Stmt] = []
    then: list[Stmt] = []
    for guarded in stores:
        store = guarded.then
        assert isinstance(store, Store)
        lanes = store.value.lanes
        own = Buffer(f"{store.buffer.name}_new", store.buffer.dtype, lanes, "local")
        at = E.ramp(E.const(0), 1, lanes)
        owns.append(own)
        first.append(Store(own, at, store.value))
        then.append(replace(guarded, then=replace(store, value=load(own, at))))
    wanted = reduce(partial(E.binary, "or"), [guarded.condition for guarded in stores])
    made = seq(If(wanted, seq(*first)), *then)
    for own in owns:
        made = Allocate(own, made)
    return made


def _substituted(stmt: Stmt, values: dict[Expr, Expr]) -> Stmt:
    return map_children(stmt, lambda s: _substituted(s, values), lambda e: E.substitute(e, values))


def _is_same(a: Expr, b: Expr) -> bool:
    """Whether two indices are equal, of vectors those of all lanes."""
    if a.op == b.op == "ramp":
        return a.lanes == b.lanes and all(map(_is_same, a.args, b.args))
    if a.lanes > 1 or b.lanes > 1:
        return a is b
    apart = Simplifier({})(E.binary("sub", a, b))
    return apart.op == "const" and apart.attr == 0


def _uncast(value: Expr) -> Expr:
    """What goes to another type and back is what it was."""
    while value.op == "cast":
        (value,) = value.args
    return value
