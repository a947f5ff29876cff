"""Kernels of statements that somebody wrote, on the buffers of the program, kept inside them.

In: a stage of an `OpaqueOp`, `Storage`.  Out: one kernel for each of its launches, in order.
An index that the ranges of loops and the conditions around it do not show to be inside is limited
where it is read; a store at one happens only where it is inside.  What is surely outside is
refused.
Read next: `nest.py`, which makes kernels of all other stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Buffer,
    For,
    If,
    Kernel,
    PackedCall,
    Rules,
    Stmt,
    Store,
    While,
    load,
    map_children,
    statements,
)
from tilewright.ir.symbols import last
from tilewright.lowering.loops import lasting
from tilewright.lowering.storage import Storage
from tilewright.schedule.state import StageState
from tilewright.te.opaque import Launch, OpaqueOp, rewritten, touched


def opaque_kernels(
    op: OpaqueOp, stage: StageState, storage: Storage, symbols: Simplifier, gpu: bool
) -> list[Kernel | PackedCall]:
    """The kernels of a stage that statements compute, or the call of the function that does.

    symbols: knows the ranges of extents.  Raises LoweringError for loops that the kind of device
    does not have, and for an index that is surely outside.
    """
    place = f"extern {stage.name}"
    own = {b: storage.buffers[tensor] for tensor, b in op.reads}
    own |= {b: storage.buffers[t] for b, t in zip(op.writes, stage.tensors, strict=True)}
    if op.call is not None:
        return [_call(op.call, own, place, gpu)]
    kernels: list[Kernel | PackedCall] = []
    for launch in op.script.launches:
        _check_device(op, launch, gpu, place)
        extents = {t.var: t.extent for t in launch.threads}
        extents |= {s.var: s.extent for s in statements(launch.body) if isinstance(s, For)}
        ranges = dict(symbols.ranges) | {v: (0, last(n)) for v, n in extents.items()}
        fixed = {v for v, n in extents.items() if not isinstance(n, Expr)}
        inside = _Inside(place, op.words.inside, fixed)
        kept = inside.visit(launch.body, Simplifier(ranges), sure=True)
        kept = rewritten(kept, lambda b: own.get(b, b))  # of which some have room behind their end
        kernels.append(Kernel(stage.name, touched(kept), kept, launch.threads))
    return kernels


def _call(call: PackedCall, own: Mapping[Buffer, Buffer], place: str, gpu: bool) -> PackedCall:
    """The call on the buffers of the program."""
    if gpu:
        raise LoweringError(
            place, f"{call.name} is a Python function, of arrays of a CPU",
            "Build for llvm, or call it between modules.",
        )  # fmt: skip
    args = (own.get(a, a) if isinstance(a, Buffer) else a for a in call.args)
    return PackedCall(call.name, tuple(args))


def _check_device(op: OpaqueOp, launch: Launch, gpu: bool, place: str) -> None:
    if launch.threads and not gpu:
        raise LoweringError(
            place, "its statements are run by blocks and threads, which a CPU does not have",
            op.words.serial,
        )  # fmt: skip
    for s in statements(launch.body):
        if isinstance(s, For) and s.kind == "parallel" and gpu:
            raise LoweringError(
                f"{place}: {s.var}", "kernels of this target have no parallel loops",
                op.words.parallel,
            )  # fmt: skip


class _Inside:
    """Statements that stay inside their buffers.

    advice: what to do about an index that is surely outside
    fixed: variables that take all values from 0 to a known one
    sure:  (of methods) whether what is visited runs for all values of variables, so that an index
           that can be outside will be
    """

    def __init__(self, place: str, advice: str, fixed: set[Expr]) -> None:
        self.place, self.advice, self.fixed = place, advice, fixed

    def visit(self, s: Stmt, simplify: Simplifier, *, sure: bool) -> Stmt:
        return _RULES[type(s)](self, s, simplify, sure)

    def parts(self, s: Stmt, simplify: Simplifier, sure: bool) -> Stmt:
        return map_children(
            s,
            lambda part: self.visit(part, simplify, sure=sure),
            lambda e: self.value(e, simplify, sure),
        )

    def branch(self, s: If, simplify: Simplifier, sure: bool) -> Stmt:
        test = self.value(s.condition, simplify, sure)
        holds = simplify.assuming(lasting(test, s.then))
        then = self.visit(s.then, holds, sure=False)
        if s.orelse is None:
            return If(test, then)
        fails = simplify.assuming(lasting(_opposite(test), s.orelse))
        return If(test, then, self.visit(s.orelse, fails, sure=False))

    def repeat(self, s: While, simplify: Simplifier, sure: bool) -> Stmt:
        test = self.value(s.condition, simplify, sure)
        return While(test, self.visit(s.body, simplify.assuming(lasting(test, s.body)), sure=False))

    def store(self, s: Store, simplify: Simplifier, sure: bool) -> Stmt:
        index, value = (self.value(e, simplify, sure) for e in (s.index, s.value))
        low, high = self.outside(s.buffer, index, simplify, sure)
        tests = [index >= 0] if low else []
        tests += [index < s.buffer.size] if high else []
        made = Store(s.buffer, index, value)
        return If(E.all_of(*tests), made) if tests else made

    def value(self, node: Expr, simplify: Simplifier, sure: bool) -> Expr:
        """`node` whose loads stay inside."""
        if node.op == "if_then_else":
            test = self.value(node.args[0], simplify, sure)
            holds, fails = simplify.assuming(test), simplify.assuming(_opposite(test))
            sides = (
                self.value(e, k, False) for e, k in zip(node.args[1:], (holds, fails), strict=True)
            )
            return E.rebuild(node, (test, *sides))
        args = tuple(self.value(a, simplify, sure) for a in node.args)
        if node.op != "load":
            return E.rebuild(node, args) if args else node
        buffer, (index,) = node.attr, args
        low, high = self.outside(buffer, index, simplify, sure)
        if high:
            index = E.minimum(index, E.convert(buffer.size - 1, index))
        return load(buffer, E.maximum(index, E.const(0, index.dtype)) if low else index)

    def outside(
        self, buffer: Buffer, index: Expr, simplify: Simplifier, sure: bool
    ) -> tuple[bool, bool]:
        """Whether an index may be below the buffer, and above it."""
        least, most = simplify.interval(index)
        if isinstance(buffer.size, Expr):
            inside = simplify(E.binary("lt", index, buffer.size))
            return least < 0, inside.op != "const" or not inside.attr
        low, high = least < 0, most >= buffer.size
        if (low or high) and sure and self.fixed.issuperset(simplify.linear(index).terms):
            raise LoweringError(
                f"{self.place}: {buffer.name}[{index}]",
                f"it is at {most if high else least:.0f} of {buffer.size} elements",
                self.advice,
            )  # fmt: skip
        return low, high


def _opposite(test: Expr) -> Expr:
    """What holds where `test` does not."""
    if test.op in _OPPOSITE:
        op, swap = _OPPOSITE[test.op]
        return E.binary(op, *(reversed(test.args) if swap else test.args))
    if test.op == "or":
        return E.all_of(*map(_opposite, test.args))
    return E.logical_not(test)


# a < b fails where b <= a holds
_OPPOSITE = {"lt": ("le", True), "le": ("lt", True), "gt": ("le", False), "ge": ("lt", False)}


_RULES: Rules[Callable[..., Stmt]] = Rules(
    "opaque kernels",
    {Store: _Inside.store, If: _Inside.branch, While: _Inside.repeat},
    otherwise=_Inside.parts,
)
