"""Text of expressions, statements and kernels, for people and golden tests.

In: ir nodes.  Out: one-line expressions in the notation of the TVM tutorials, indented loop nests.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.expr import BINARY, Expr
from tilewright.ir.stmt import Allocate, Barrier, For, If, Kernel, Rules, Seq, Stmt, Store


def _number(node: Expr) -> str:
    if node.dtype == "bool":
        return "(bool)1" if node.attr else "(bool)0"
    if node.dtype in ("float32", "float64"):
        return f"{node.attr:g}f" if node.dtype == "float32" else f"{node.attr:g}"
    return str(node.attr)


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
    if op == "reduce":
        combiner, axes = node.attr
        names = ", ".join(ax.var.name for ax in axes)
        return f"{combiner.name}({parts[0]}, axis=[{names}])"
    if op == "ramp":
        return f"ramp({parts[0]}, {parts[1]}, {node.lanes})"
    return f"x{node.lanes}({parts[0]})"  # broadcast


def statement_text(stmt: Stmt, indent: int = 0) -> str:
    return _TEXTS[type(stmt)](stmt, indent)


def _for(stmt: For, indent: int) -> str:
    kind = "" if stmt.kind == "serial" else f"{stmt.kind} "
    head = f"{_pad(indent)}{kind}for {stmt.var.name} in {stmt.extent}:"
    return f"{head}\n{statement_text(stmt.body, indent + 1)}"


def _store(stmt: Store, indent: int) -> str:
    return f"{_pad(indent)}{stmt.buffer.name}[{stmt.index}] = {stmt.value}"


def _if(stmt: If, indent: int) -> str:
    text = f"{_pad(indent)}if {stmt.condition}:\n{statement_text(stmt.then, indent + 1)}"
    if stmt.orelse is not None:
        text += f"\n{_pad(indent)}else:\n{statement_text(stmt.orelse, indent + 1)}"
    return text


def _seq(stmt: Seq, indent: int) -> str:
    return "\n".join(statement_text(s, indent) for s in stmt.body) or f"{_pad(indent)}pass"


def _allocate(stmt: Allocate, indent: int) -> str:
    return f"{_pad(indent)}alloc {stmt.buffer!r}\n{statement_text(stmt.body, indent)}"


def _barrier(stmt: Barrier, indent: int) -> str:
    return f"{_pad(indent)}barrier"


_TEXTS: Rules[Callable[..., str]] = Rules(
    "printer",
    {For: _for, Store: _store, If: _if, Seq: _seq, Allocate: _allocate, Barrier: _barrier},
)


def _pad(indent: int) -> str:
    return "  " * indent


def kernel_text(kernel: Kernel) -> str:
    params = ", ".join(repr(p) for p in kernel.params)
    launch = " ".join(f"{t.tag}={t.var.name}:{t.extent}" for t in kernel.threads)
    head = f"kernel {kernel.name}({params})" + (f" launch {launch}" if launch else "")
    return f"{head}\n{statement_text(kernel.body, 1)}"
