"""Fourteen ways to make a kernel wrong, each at one random place of its program.

In: a lowered kernel.  Out: a changed one, or None where it has no such place.  `harmful` says
whether the change changes anything.  Read next: `planted_kernels.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from drills._kernels import Kernel, arrays
from tilewright.ir.expr import (
    Expr,
    all_of,
    broadcast,
    const,
    if_then_else,
    logical_not,
    ramp,
    select,
    substitute,
    transform,
    walk,
)
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Program,
    Seq,
    Stmt,
    Store,
    Thread,
    load,
    map_children,
    seq,
    statements,
)
from tilewright.ir.stmt import Kernel as Launch
from tilewright.te.cases import whole_numbers
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs

Mutation = Callable[[Kernel, random.Random], Kernel | None]
Edit = Callable[[Stmt, random.Random], Stmt | None]
NOTHING = Seq(())


def _edited(kernel: Kernel, which: int, old: Stmt, new: Stmt) -> Kernel:
    def visit(stmt: Stmt) -> Stmt:
        return new if stmt is old else map_children(stmt, visit)

    launch = kernel.program.kernels[which]
    return _with(kernel, which, replace(launch, body=visit(launch.body)))


def _with(kernel: Kernel, which: int, launch: Launch) -> Kernel:
    launches = list(kernel.program.kernels)
    launches[which] = launch
    return replace(kernel, program=replace(kernel.program, kernels=tuple(launches)))


def _somewhere(find: Callable[[Kernel, Stmt, random.Random], Stmt | None]) -> Mutation:
    """The mutation that puts what `find` gives in the place of a random statement."""

    def mutate(kernel: Kernel, rng: random.Random) -> Kernel | None:
        places = [
            (k, s) for k, launch in enumerate(kernel.program.kernels)
            for s in statements(launch.body)
        ]  # fmt: skip
        rng.shuffle(places)
        for which, stmt in places:
            new = find(kernel, stmt, rng)
            if new is not None:
                return _edited(kernel, which, stmt, new)
        return None

    return mutate


# -- single statements -----------------------------------------------------------------------------


def _loads(node: Expr, scope: str = "") -> list[Expr]:
    return [n for n in walk(node) if n.op == "load" and scope in ("", n.attr.scope)]


def _read(step: int) -> Mutation:
    def find(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
        if not isinstance(stmt, Store) or not (found := _loads(stmt.value, "global")):
            return None
        old = rng.choice(found)
        new = load(old.attr, old.args[0] + step)
        return replace(stmt, value=transform(stmt.value, lambda n: new if n is old else None))

    return _somewhere(find)


def _write(step: int) -> Mutation:
    def find(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
        if not isinstance(stmt, Store) or stmt.buffer.scope != "global":
            return None
        return replace(stmt, index=stmt.index + step)

    return _somewhere(find)


def _updates(stmt: Stmt) -> bool:
    """Whether the statement adds to what it stores to."""
    if not isinstance(stmt, Store):
        return False
    return any(n.attr is stmt.buffer and n.args[0] is stmt.index for n in _loads(stmt.value))


def _extents(kernel: Kernel) -> dict[Expr, int]:
    found: dict[Expr, int] = {}
    for launch in kernel.program.kernels:
        found |= {t.var: t.extent for t in launch.threads}
        found |= {s.var: s.extent for s in statements(launch.body) if isinstance(s, For)}
    return found


def _inside(kernel: Kernel, stmt: Stmt) -> dict[Expr, int]:
    """The variables of threads and loops around a statement, with their extents."""

    def path(root: Stmt) -> Iterator[For]:
        if isinstance(root, For) and any(s is stmt for s in statements(root)):
            yield root
        for part in (s for s in statements(root) if s is not root and isinstance(s, For)):
            if any(s is stmt for s in statements(part)):
                yield part

    for launch in kernel.program.kernels:
        if any(s is stmt for s in statements(launch.body)):
            around = {t.var: t.extent for t in launch.threads}
            return around | {f.var: f.extent for f in path(launch.body)}
    return {}


def _but_once(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt:
    """`stmt` in every iteration but one."""
    here = [var.equal(rng.randrange(n)) for var, n in _inside(kernel, stmt).items()]
    return If(logical_not(all_of(*here)), stmt) if here else NOTHING


def _missing_term(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    """One term of one sum.  A maximum shows a missing term only where it is the greatest."""
    return _but_once(kernel, stmt, rng) if _updates(stmt) and not _is_extreme(stmt) else None


def _is_extreme(stmt: Stmt) -> bool:
    return isinstance(stmt, Store) and stmt.value.op in ("max", "min")


def _wrong_tap(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    """One term of a sum reads what its neighbour reads."""
    if not (_updates(stmt) and isinstance(stmt, Store)) or _is_extreme(stmt):
        return None
    fixed = set(walk(stmt.index))
    around = _inside(kernel, stmt)
    sums = {v: n for v, n in around.items() if v not in fixed and n > 1}
    found = [n for n in _loads(stmt.value) if any(v in sums for v in walk(n.args[0]))]
    if not found:
        return None
    old = rng.choice(found)
    var = rng.choice([v for v in walk(old.args[0]) if v in sums])
    at = rng.randrange(1, sums[var])
    other = substitute(old.args[0], {var: select(var.equal(at), at - 1, var)})
    new = load(old.attr, other)
    return replace(stmt, value=transform(stmt.value, lambda n: new if n is old else None))


def _missing_guard(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    if isinstance(stmt, If):
        return stmt.then
    if not isinstance(stmt, Store):
        return None
    guards = [n for n in walk(stmt.value) if n.op == "if_then_else"]
    if not guards:
        return None
    old = rng.choice(guards)
    return replace(stmt, value=transform(stmt.value, lambda n: old.args[1] if n is old else None))


def _missing_barrier(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    return NOTHING if isinstance(stmt, Barrier) else None


def _stale_workspace(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    """One element of a buffer between two stages keeps what was there before."""
    if not isinstance(stmt, Store) or stmt.buffer not in kernel.program.workspaces:
        return None
    return _but_once(kernel, stmt, rng)


def _uninitialised(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    """A sum starts at whatever is there."""
    if not isinstance(stmt, Store) or stmt.value.op not in ("const", "broadcast"):
        return None
    updated = (
        s.buffer for launch in kernel.program.kernels for s in statements(launch.body)
        if isinstance(s, Store) and _updates(s)
    )  # fmt: skip
    return NOTHING if any(b is stmt.buffer for b in updated) else None


def _wrong_constant(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    if not isinstance(stmt, Store):
        return None
    found = [
        n for n in walk(stmt.value) if n.op == "const" and n.dtype.is_float and np.isfinite(n.attr)
    ]
    if not found:
        return None
    old = rng.choice(found)
    new = const(old.attr * 1.125 if old.attr else 0.5, old.dtype)
    return replace(stmt, value=transform(stmt.value, lambda n: new if n is old else None))


def _wrong_lane(kernel: Kernel, stmt: Stmt, rng: random.Random) -> Stmt | None:
    """The lanes of a vector are read in another order, or all lanes read the first."""
    if not isinstance(stmt, Store):
        return None
    found = [n for n in _loads(stmt.value) if n.args[0].op == "ramp"]
    if not found:
        return None
    old = rng.choice(found)
    index, stride = old.args[0].args
    if rng.random() < 0.5:
        new = load(old.attr, ramp(index + stride * (old.lanes - 1), -stride, old.lanes))
    else:
        new = broadcast(load(old.attr, index), old.lanes)
    return replace(stmt, value=transform(stmt.value, lambda n: new if n is old else None))


# -- whole kernels ---------------------------------------------------------------------------------

_DISTANCES = (0, 1, 15, 1023, 1024, 1500, 8000)  # elements; with eight bytes still in the zones


def _write_outside(kernel: Kernel, rng: random.Random) -> Kernel | None:
    which = rng.randrange(len(kernel.program.kernels))
    launch = kernel.program.kernels[which]
    buffer: Buffer = rng.choice(launch.params)
    far = rng.choice([d for d in _DISTANCES if d * buffer.dtype.bytes < 15_000])
    at = buffer.size + far if rng.random() < 0.5 else -1 - far
    stray = Store(buffer, const(at, "int32"), const(1, buffer.dtype))
    return _with(kernel, which, replace(launch, body=seq(launch.body, stray)))


def _race(kernel: Kernel, rng: random.Random) -> Kernel | None:
    """Threads, or blocks of a GPU, add to the same elements."""
    launch = kernel.program.kernels[0]
    sums = [
        s for s in statements(launch.body)
        if isinstance(s, For) and any(_updates(i) and s.var not in set(walk(i.index))  # type: ignore[attr-defined]
                                      for i in statements(s))
    ]  # fmt: skip
    if not sums:
        return None
    loop = sums[0]
    if kernel.kind == "llvm":
        return _edited(kernel, 0, loop, replace(loop, kind="parallel"))
    changed = _edited(kernel, 0, loop, loop.body)
    threads = (*launch.threads, Thread("blockIdx.x", loop.var, loop.extent))
    return _with(changed, 0, replace(changed.program.kernels[0], threads=threads))


MUTATIONS: dict[str, Mutation] = {
    "read one behind": _read(1),
    "read one before": _read(-1),
    "write one behind": _write(1),
    "write one before": _write(-1),
    "missing term": _somewhere(_missing_term),
    "wrong tap": _somewhere(_wrong_tap),
    "missing guard": _somewhere(_missing_guard),
    "missing barrier": _somewhere(_missing_barrier),
    "stale workspace": _somewhere(_stale_workspace),
    "uninitialised read": _somewhere(_uninitialised),
    "wrong constant": _somewhere(_wrong_constant),
    "wrong lane": _somewhere(_wrong_lane),
    "write outside": _write_outside,
    "race": _race,
}


# -- does it matter? -------------------------------------------------------------------------------


def harmful(wrong: Kernel, seed: int, races: bool) -> bool:
    """Whether the interpreter finds a fault, or a result further off than rounding explains, on
    some of several inputs.

    What is read outside a buffer counts if it changes a result.  A kernel that leaves an array of
    its own, or reads in one of a single thread what was not written, does not count: it has no
    meaning, and the compiler may well have made it right.
    races: count them even if no result shows them; threads that compute the same and those of one
    vector may race as they like on most devices
    """
    launches = tuple(replace(k, body=_bounded(k.body)) for k in wrong.program.kernels)
    program = replace(wrong.program, kernels=launches)
    given = [random_inputs(wrong.dag, seed + k) for k in (11, 12)]
    given += [list(whole_numbers(wrong.dag, seed + k).inputs) for k in (13, 14)]
    kept = tuple(replace(k, body=_kept_inside(k.body)) for k in program.kernels)
    if _undefined(wrong, _fault(replace(program, kernels=kept), arrays(wrong, given[0]))):
        return False
    for inputs in given:
        values = arrays(wrong, inputs)
        fault = _fault(program, values)
        if fault:
            if _undefined(wrong, fault):
                return False
            if races or "no barrier lies between" not in fault:
                return True
            try:
                run_fast(program, values, check=False)
            except IndexError:  # of shared memory, behind a race: no meaning either
                return False
        outputs = [v for v, r in zip(values, program.roles, strict=True) if r == "output"]
        expected, bounds = evaluate_with_tolerance(wrong.dag, inputs)
        for found, want, bound in zip(outputs, expected, bounds, strict=True):
            if not agrees(found.reshape(want.shape), want, bound).all():
                return True
    return False


def _fault(program: Program, values: list[np.ndarray]) -> str:
    try:
        run_fast(program, values)
    except InterpreterError as fault:
        return str(fault)
    return ""


def _undefined(kernel: Kernel, fault: str) -> bool:
    """Whether the fault is outside an array of the kernel's own, or any of a single thread's."""
    own = {
        s.buffer.name: s.buffer.scope for launch in kernel.program.kernels
        for s in statements(launch.body) if isinstance(s, Allocate)
    }  # fmt: skip
    place, _, reason = fault.partition("]: ")
    scope = own.get(place.partition(": ")[2].rpartition("[")[0])
    return scope == "local" or (scope == "shared" and reason.startswith("outside"))


def _kept_inside(stmt: Stmt) -> Stmt:
    """The same, where what is written outside an argument goes to its first element: what the value
    reads is looked at nevertheless."""
    new = map_children(stmt, _kept_inside)
    if not isinstance(new, Store) or new.buffer.scope != "global":
        return new
    index, lanes = new.index, new.index.lanes
    first, stride = index.args if index.op == "ramp" else (index, const(0, index.dtype))
    last = first + stride * (lanes - 1)
    inside = all_of(first >= 0, first < new.buffer.size, last >= 0, last < new.buffer.size)
    return replace(new, index=ramp(select(inside, first, 0), stride, lanes))


def _bounded(stmt: Stmt) -> Stmt:
    """The same, where a read outside an argument or a workspace gives a large number."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "load" or node.attr.scope != "global":
            return None
        index, kind = node.args[0], node.dtype
        inside = all_of(index >= 0, index < node.attr.size)
        odd = const(kind.greatest if kind.is_float else int(kind.greatest), kind)
        return if_then_else(inside, node, broadcast(odd, node.lanes))

    return map_children(stmt, _bounded, lambda e: transform(e, rule))
