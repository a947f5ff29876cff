"""Text of expressions, statements and kernels, for people and golden tests.

In: ir nodes.  Out: one-line expressions in the notation of the TVM tutorials, and indented loop
nests, whose expressions have only the parentheses they need.  `a[i +: 4]` are the four elements
from i on, `x4(v)` is v in four lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.base.printed import text_of
from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.expr import BINARY, Expr
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import (
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
    load,
)


def _number(node: Expr) -> str:
    if node.dtype == "bool":
        return "(bool)1" if node.attr else "(bool)0"
    if node.dtype.is_float:
        return f"{node.attr:g}{node.dtype.spelling.suffix}"
    return str(node.attr)


@text_of.register(Expr)
def expression_text(node: Expr) -> str:
    """Fully parenthesised, as in ``((i2 >= 1) && (i2 < 8))``."""
    op = node.op
    if op == "var":
        return str(node.attr)
    if op == "const":
        return _number(node)
    parts = [expression_text(a) for a in node.args]
    if op in ("min", "max"):
        return f"{op}({parts[0]}, {parts[1]})"
    if op in BINARY:
        sign = BINARY[op][0]
        tight = sign in ("*", "/")
        return f"({parts[0]}{sign}{parts[1]})" if tight else f"({parts[0]} {sign} {parts[1]})"
    if op == "not":
        return f"!{parts[0]}"
    if op == "cast":
        return f"{node.dtype}({parts[0]})"
    if op == "if_then_else":
        return f"tir.if_then_else({', '.join(parts)})"
    if op == "select":
        return f"select({', '.join(parts)})"
    if op == "call":
        return f"tir.{node.attr}({', '.join(parts)})"
    if op in ("read", "load"):
        return f"{node.attr.name}[{', '.join(parts)}]"
    if op == "tuple":
        return f"({', '.join(parts)})"
    if op == "reduce":
        combiner, axes = node.attr
        names = ", ".join(ax.var.name for ax in axes)
        return f"{combiner.name}({parts[0]}, axis=[{names}])"
    if op == "ramp":
        return f"ramp({parts[0]}, {parts[1]}, {node.lanes})"
    return f"x{node.lanes}({parts[0]})"  # broadcast


# Operators from the weakest to the strongest, as in Python.
_STRENGTH = {
    "or": 1, "and": 2, "eq": 4, "ne": 4, "lt": 4, "le": 4, "gt": 4, "ge": 4, "bitor": 5,
    "bitxor": 6, "bitand": 7, "shl": 8, "shr": 8, "add": 9, "sub": 9, "mul": 10, "div": 10,
    "floordiv": 10, "floormod": 10,
}  # fmt: skip
_INFIX = {"or": " or ", "and": " and ", "floordiv": "//", "floormod": "%"}


def infix_text(node: Expr, strength: int = 0) -> str:
    """As people write it, ``i.outer*8 + i.inner < 20``: parentheses only where they are needed.

    strength: of the operator around it
    """
    op = node.op
    if op in ("var", "const"):
        plain = op == "var" or node.dtype == "bool" or not node.dtype.is_float
        return str(node.attr) if plain else repr(float(node.attr))
    if op in ("read", "load"):
        return f"{node.attr.name}[{', '.join(map(infix_text, node.args))}]"
    if op in _STRENGTH:
        own = _STRENGTH[op]
        tight = own == _STRENGTH["mul"]
        sign = _INFIX.get(op) or (BINARY[op][0] if tight else f" {BINARY[op][0]} ")
        chained = own == _STRENGTH["eq"]  # a < b < c would mean something else
        left, right = infix_text(node.args[0], own + chained), infix_text(node.args[1], own + 1)
        if op == "add" and node.args[1].op == "const" and right.startswith("-"):
            sign, right = " - ", right[1:]
        return f"({left}{sign}{right})" if own < strength else left + sign + right
    if op == "not":
        return f"not {infix_text(node.args[0], _STRENGTH['mul'] + 1)}"
    named = {"cast": str(node.dtype), "call": str(node.attr)}
    return f"{named.get(op, op)}({', '.join(map(infix_text, node.args))})"


@text_of.register(Stmt)
def statement_text(stmt: Stmt, indent: int = 0) -> str:
    return _TEXTS[type(stmt)](stmt, indent)


def _for(stmt: For, indent: int) -> str:
    kind = "" if stmt.kind == "serial" else f"{stmt.kind} "
    head = f"{_pad(indent)}{kind}for {stmt.var.name} in {stmt.extent}:"
    return f"{head}\n{statement_text(stmt.body, indent + 1)}"


def _store(stmt: Store, indent: int) -> str:
    place, value = load(stmt.buffer, stmt.index), stmt.value
    if value.op in ("add", "mul") and value.args[0] is place:  # x = x + y
        return f"{_pad(indent)}{_text(place)} {BINARY[value.op][0]}= {_text(value.args[1])}"
    return f"{_pad(indent)}{_text(place)} = {_text(value)}"


def _if(stmt: If, indent: int) -> str:
    text = f"{_pad(indent)}if {_text(stmt.condition)}:\n{statement_text(stmt.then, indent + 1)}"
    if stmt.orelse is not None:
        text += f"\n{_pad(indent)}else:\n{statement_text(stmt.orelse, indent + 1)}"
    return text


def _while(stmt: While, indent: int) -> str:
    head = f"{_pad(indent)}while {_text(stmt.condition)}:"
    return f"{head}\n{statement_text(stmt.body, indent + 1)}"


def _seq(stmt: Seq, indent: int) -> str:
    return "\n".join(statement_text(s, indent) for s in stmt.body) or f"{_pad(indent)}pass"


def _allocate(stmt: Allocate, indent: int) -> str:
    head = f"{_pad(indent)}alloc {_declared(stmt.buffer)} {_size(stmt.buffer)}"
    return f"{head}\n{statement_text(stmt.body, indent)}"


def _barrier(stmt: Barrier, indent: int) -> str:
    return f"{_pad(indent)}barrier"


def _async_copy(stmt: AsyncCopy, indent: int) -> str:
    test = stmt.condition
    guard = "" if test.op == "const" and test.attr else f" if {_text(test)}"
    return f"{_pad(indent)}async {_region(stmt.to)} = {_region(stmt.source)}{guard}"


def _prefetch(stmt: Prefetch, indent: int) -> str:
    return f"{_pad(indent)}prefetch {_region(stmt.source)}"


def _commit(stmt: Commit, indent: int) -> str:
    return f"{_pad(indent)}commit"


def _wait(stmt: Wait, indent: int) -> str:
    return f"{_pad(indent)}wait {stmt.pending}"


def _mma(stmt: Mma, indent: int) -> str:
    a, b = _region(stmt.a), _region(stmt.b)
    return f"{_pad(indent)}{stmt.atom.name} {_region(stmt.sum)} += {a} * {b}"


def _foreign(stmt: Foreign, indent: int) -> str:
    places, numbers = iter(zip(stmt.places, stmt.offsets, strict=True)), iter(stmt.numbers)
    texts = []
    for word in stmt.form:
        if word == "p":
            buffer, offset = next(places)
            texts.append(f"&{buffer.name}[{_text(offset)}]")
        else:
            texts.append(_text(next(numbers)))
    return f"{_pad(indent)}{stmt.name}({', '.join(texts)})"


def _show(stmt: Show, indent: int) -> str:
    return f"{_pad(indent)}show"


def _mma_begin(stmt: MmaBegin, indent: int) -> str:
    return f"{_pad(indent)}begin multiplying into {_region(stmt.sum)}"


def _mma_end(stmt: MmaEnd, indent: int) -> str:
    return f"{_pad(indent)}end multiplying into {_region(stmt.sum)}, {stmt.pending} pending"


def _load_rows(stmt: LoadRows, indent: int) -> str:
    how = "columns" if stmt.transposed else "rows"
    to, source = _region(stmt.to), _region(stmt.source)
    return f"{_pad(indent)}{to} = {how} of {stmt.matrices} from {source}"


def _join(stmt: Join, indent: int) -> str:
    place = f"{stmt.counters.name}[{_text(stmt.index)}]"
    head = f"{_pad(indent)}last of {stmt.blocks} blocks at {place}:"
    return f"{head}\n{statement_text(stmt.body, indent + 1)}"


def _exchange(stmt: Exchange, indent: int) -> str:
    return f"{_pad(indent)}{_region(stmt.to)} = {_region(stmt.source)} of lane ^ {stmt.apart}"


def _bulk_copy(stmt: BulkCopy, indent: int) -> str:
    shape, box = (" x ".join(map(str, n)) for n in (stmt.box.shape, stmt.box.extents))
    steps = "" if max(stmt.box.steps) == 1 else f" in steps of {stmt.box.steps}"
    at = ", ".join(map(_text, stmt.at))
    rounded = " rounded," if stmt.rounded else ""
    return (
        f"{_pad(indent)}bulk {_region(stmt.to)} ={rounded} {box} of {stmt.source.buffer.name}[{at}]"
        f" ({shape}){steps}, {_gate(stmt.gate)}"
    )


def _make_gates(stmt: MakeGates, indent: int) -> str:
    return f"{_pad(indent)}gates {_region(stmt.gates)} for {stmt.arrivals} arrivals"


def _fence(stmt: Fence, indent: int) -> str:
    return f"{_pad(indent)}fence"


def _expect(stmt: Expect, indent: int) -> str:
    return f"{_pad(indent)}arrive {_gate(stmt.gate)}, expect {stmt.nbytes} bytes"


def _arrive(stmt: Arrive, indent: int) -> str:
    return f"{_pad(indent)}arrive {_gate(stmt.gate)}, the warp"


def _await(stmt: Await, indent: int) -> str:
    return f"{_pad(indent)}await {_gate(stmt.gate)} of {_text(stmt.parity)}"


def _gate(region: Region) -> str:
    return f"{region.buffer.name}[{_text(region.index)}]"


def _region(region: Region) -> str:
    return f"{region.buffer.name}[{_text(region.index)} +: {region.count}]"


_TEXTS: Rules[Callable[..., str]] = Rules(
    "printer",
    {
        For: _for,
        Store: _store,
        If: _if,
        While: _while,
        Seq: _seq,
        Allocate: _allocate,
        Barrier: _barrier,
        AsyncCopy: _async_copy,
        Prefetch: _prefetch,
        Commit: _commit,
        Wait: _wait,
        Foreign: _foreign,
        Mma: _mma,
        LoadRows: _load_rows,
        Show: _show,
        MmaBegin: _mma_begin,
        MmaEnd: _mma_end,
        BulkCopy: _bulk_copy,
        MakeGates: _make_gates,
        Fence: _fence,
        Expect: _expect,
        Arrive: _arrive,
        Await: _await,
        Join: _join,
        Exchange: _exchange,
    },
)


def _pad(indent: int) -> str:
    return "  " * indent


@text_of.register(Kernel)
def kernel_text(kernel: Kernel) -> str:
    lines = [f"kernel {kernel.name}({', '.join(map(_declared, kernel.params))})"]
    if kernel.threads:
        named = ", ".join(f"{t.var.name} = {t.tag}" for t in kernel.threads)
        grid, block = _product(kernel.grid), _product(kernel.block)
        lines.append(f"  launch {grid} blocks of {block} threads: {named}")
    lines += [f"  {g.var.name} = {g.buffer.name}[0]" for g in kernel.given]
    return "\n".join([*lines, statement_text(kernel.body, 1)])


@text_of.register(Program)
def program_text(program: Program) -> str:
    spaces = [f"workspace {_declared(b)} {_size(b)}" for b in program.workspaces]
    steps = [*map(kernel_text, program.kernels)]
    for before, call in reversed(program.calls):
        steps.insert(before, str(call))
    return "\n".join([*spaces, *steps])


def _declared(buffer: Buffer) -> str:
    whole = buffer.shape and (_open(buffer) or buffer.size == math.prod(buffer.shape))
    extents = ", ".join(map(str, buffer.shape)) if whole else str(buffer.size)
    return f"{buffer.name}: {buffer.dtype}[{extents}]"


def _size(buffer: Buffer) -> str:
    swizzle = f", swizzled by {buffer.swizzle}" if buffer.swizzle else ""
    return f"{buffer.scope}, {buffer.size * buffer.dtype.bytes} bytes{swizzle}"


def _open(buffer: Buffer) -> bool:
    return any(isinstance(n, Expr) for n in (buffer.size, *buffer.shape))


def _product(extents: tuple[Any, ...]) -> str:
    """4 x 2, without the ones at the end."""
    sized = enumerate(extents, 1)
    count = max((k for k, n in sized if isinstance(n, Expr) or n > 1), default=1)
    return " x ".join(map(str, extents[:count]))


# -- expressions of statements ---------------------------------------------------------------------

_SUM, _PRODUCT, _ATOM = 9, 10, 12
_BINDING = {"||": 1, "&&": 2, "==": 3, "!=": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6,
            "&": 7, "<<": 8, ">>": 8, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT,
            "//": _PRODUCT, "%": _PRODUCT}  # fmt: skip


def _text(node: Expr, binding: int = 0) -> str:
    """`node` where whatever binds less than `binding` needs parentheses."""
    op = node.op
    if op in BINARY and op not in ("min", "max"):
        sign = BINARY[op][0]
        own = _BINDING[sign]
        a, b = _text(node.args[0], own), _text(node.args[1], own + 1)
        text = f"{a}{sign}{b}" if sign in ("*", "/") else f"{a} {sign} {b}"
        return f"({text})" if own < binding else text
    if op == "not":
        return f"!{_text(node.args[0], _ATOM)}"
    if op in ("var", "const", "reduce", "read"):
        return expression_text(node)
    if op == "load" and node.args[0].op == "ramp" and node.args[0].args[1].attr == 1:
        return f"{node.attr.name}[{_text(node.args[0].args[0])} +: {node.lanes}]"
    inside = ", ".join(_text(a) for a in node.args)
    if op == "load":
        return f"{node.attr.name}[{inside}]"
    if op == "ramp":
        return f"ramp({inside}, {node.lanes})"
    names = {"cast": node.dtype, "call": node.attr, "broadcast": f"x{node.lanes}"}
    return f"{names.get(op, op)}({inside})"
