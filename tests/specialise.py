"""Programs with numbers in the place of their symbols: what the interpreter can run.

In: a `Program` and the numbers.  Out: the same without symbols.  Kernels of devices are not made
so: they get the numbers in each call.  Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    Kernel,
    Program,
    Stmt,
    Store,
    load,
    map_children,
    map_regions,
)
from tilewright.ir.symbols import one_of, symbols_of


def specialised(program: Program, values: Mapping[str, int]) -> Program:
    """`program` for these values of its symbols, by their names; its buffers of symbols are gone.

    Raises ExpressionError for a symbol without a value.
    """
    given = [g for k in program.kernels for g in k.given]
    # A kernel is given what its text reads: of some, only launches and buffers speak.
    known = symbols_of(n for b in program.args for n in b.shape)
    numbers = {
        v: int(values[str(v.attr)])
        for v in dict.fromkeys((*known, *(g.var for g in given)))
        if str(v.attr) in values
    }
    gone = {g.buffer for g in given}
    made = _Numbers(numbers)
    kept = [(b, r) for b, r in zip(program.args, program.roles, strict=True) if b not in gone]
    return Program(
        program.name,
        tuple(made.buffer(b) for b, _ in kept),
        tuple(role for _, role in kept),
        tuple(made.kernel(k) for k in program.kernels),
        tuple(map(made.buffer, program.workspaces)),
        program.calls,
    )


class _Numbers:
    def __init__(self, numbers: dict[Expr, int]) -> None:
        self.numbers = numbers
        self._constants = {v: E.const(n, v.dtype) for v, n in numbers.items()}
        self._buffers: dict[Buffer, Buffer] = {}

    def buffer(self, buffer: Buffer) -> Buffer:
        if buffer not in self._buffers:
            shape = tuple(one_of(self.numbers, n) for n in buffer.shape)
            size = one_of(self.numbers, buffer.size)
            self._buffers[buffer] = replace(buffer, size=size, shape=shape)
        return self._buffers[buffer]

    def kernel(self, kernel: Kernel) -> Kernel:
        gone = {g.buffer for g in kernel.given}
        threads = tuple(replace(t, extent=one_of(self.numbers, t.extent)) for t in kernel.threads)
        params = tuple(self.buffer(b) for b in kernel.params if b not in gone)
        return Kernel(kernel.name, params, self._statement(kernel.body), threads)

    def _statement(self, stmt: Stmt) -> Stmt:
        new = map_children(stmt, self._statement, self._expression)
        changed: dict[str, Any] = {}
        if isinstance(new, For):
            changed = {"extent": one_of(self.numbers, new.extent)}
        elif isinstance(new, (Store, Allocate)):
            changed = {"buffer": self.buffer(new.buffer)}
        new = replace(new, **changed) if changed else new  # type: ignore[type-var]
        return map_regions(new, lambda r: replace(r, buffer=self.buffer(r.buffer)))

    def _expression(self, node: Expr) -> Expr:
        def rule(n: Expr) -> Expr | None:
            return load(self.buffer(n.attr), n.args[0]) if n.op == "load" else None

        return E.transform(E.substitute(node, self._constants), rule)
