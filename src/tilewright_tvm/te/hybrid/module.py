"""A schedule as a hybrid script: Python that anybody can read, run on numpy, and give to `te`.

In: a schedule and its arguments.  Out: a `HybridModule`.
Read next: `te/hybrid/__init__.py`, what scripts are.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import LoweringError
from tilewright.base.output import FileKind, write
from tilewright.driver.build import kernel_name
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.operations import BINARY
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Rules,
    Seq,
    Stmt,
    Store,
    While,
    statements,
)
from tilewright.ir.symbols import last
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor
from tilewright_tvm.te.hybrid import from_text
from tilewright_tvm.te.hybrid.words import CALLS

__all__ = ["HybridModule", "build"]

_LOOPS = {"parallel": "parallel", "vectorized": "vectorize", "unrolled": "unroll"}
_FUNCTIONS = {"pow": "power"}
_PAD = "    "


class HybridModule:
    """A hybrid script that was written, or read from a file: call it as one.

    name, src: of its function
    """

    def __init__(self, src: str | None = None, name: str | None = None) -> None:
        self.src, self.name = src, name
        self._script = None if src is None else from_text(src, f"HybridModule {name}")

    def __call__(self, *args: Any) -> Any:
        """On tensors of te its outputs are tensors, on arrays of numpy arrays."""
        if self._script is None:
            raise LoweringError("HybridModule", "nothing was loaded", "Call load(path) first.")
        return self._script(*args)

    def get_source(self) -> str:
        return self.src or ""

    def save(self, path: str) -> None:
        """Write its text; `.py` is added where it is missing.

        Raises LoweringError where it cannot be written, and where a file is there that is more than
        one function.
        """
        file = _python(path)
        write(file, self.get_source().encode(), _SCRIPT, f"save({file!r})", LoweringError)

    def load(self, path: str) -> None:
        """Takes the function that a file defines last."""
        self.src = Path(_python(path)).read_text(encoding="utf-8")
        self._script = from_text(self.src, path)
        self.name = self._script.__name__


def _is_script(path: Path) -> bool:
    try:
        body = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return len(body) == 1 and isinstance(body[0], ast.FunctionDef)


_SCRIPT = FileKind("the text of one function", _is_script)


def _python(path: str) -> str:
    return path if path.endswith(".py") else f"{path}.py"


@door(LoweringError, "te.hybrid.build")
def build(
    sch: Schedule,
    inputs: Sequence[Tensor | Expr],
    outputs: Sequence[Tensor],
    name: str = "hybrid_func",
) -> HybridModule:
    """The loops of a schedule, as a script of the arguments `inputs` that returns `outputs`.

    Raises LoweringError for threads that share memory, and for what scripts have no word for.
    """
    target = Target("cuda" if sch.binds_threads else "llvm").native()
    program = lower_schedule(sch, target, kernel_name(name), [*inputs, *outputs], passes=())
    return HybridModule(_Text(program, len(inputs)).whole(), program.name)


class _Text:
    """The text of a program.  count: how many of its arguments are those of the script."""

    def __init__(self, program: Program, count: int) -> None:
        self.program, self.count = program, count
        self.place = f"te.hybrid.build({program.name})"
        self.names: dict[Any, str] = {}
        self.taken = {*CALLS, *keyword.kwlist, *dir(builtins), program.name}
        self.simplify = Simplifier({})

    def whole(self) -> str:
        program = self.program
        if program.calls:
            raise LoweringError(
                self.place, f"{program.calls[0][1].name} is a Python function", "Call it yourself."
            )
        ins = [b for b, role in zip(program.args, program.roles, strict=True) if role == "input"]
        outs = [b for b, role in zip(program.args, program.roles, strict=True) if role == "output"]
        symbols = {g.var: g.buffer for k in program.kernels for g in k.given}
        for v, buffer in symbols.items():
            self.names[v] = self.name_of(buffer)
        head = f"def {program.name}({', '.join(map(self.name_of, ins))}):"
        lines = [head, *self.extents(ins, symbols)]
        for b in outs:
            lines.append(f'{self.name_of(b)} = output_tensor({self.shape(b.shape)}, "{b.dtype}")')
        for b in program.workspaces:
            lines.append(f'{self.name_of(b)} = allocate({self.shape((b.size,))}, "{b.dtype}")')
        for kernel in program.kernels:
            lines += self.kernel(kernel)
        lines.append(f"return {', '.join(map(self.name_of, outs))}")
        return "\n".join([lines[0], *(_PAD + line for line in lines[1:])]) + "\n"

    def extents(self, ins: Sequence[Buffer], symbols: dict[Expr, Buffer]) -> Iterator[str]:
        """Variables that follow from shapes."""
        for v, buffer in symbols.items():
            if buffer in ins:
                continue
            found = [(b, k) for b in ins for k, n in enumerate(b.shape) if n is v]
            if not found:
                raise LoweringError(
                    self.place, f"no input has {v} as a dimension", f"Give {v} among the inputs."
                )
            b, k = found[0]
            yield f"{self.names[v]} = {self.name_of(b)}.shape[{k}]"

    def name_of(self, thing: Any) -> str:
        """A name of Python's for a buffer or a variable, of one thing only."""
        if thing not in self.names:
            word = thing.name if isinstance(thing, Buffer) else str(thing.attr)
            plain = "".join(c if c.isalnum() or c == "_" else "_" for c in word) or "x"
            plain = f"v{plain}" if plain[0].isdigit() else plain
            name, k = plain, 0
            while name in self.taken:
                k += 1
                name = f"{plain}_{k}"
            self.taken.add(name)
            self.names[thing] = name
        return self.names[thing]

    def shape(self, extents: Sequence[Any]) -> str:
        return f"({', '.join(map(self.size, extents))},)" if extents else "()"

    def size(self, extent: Any) -> str:
        return self.value(extent) if isinstance(extent, Expr) else str(extent)

    # -- statements --------------------------------------------------------------------------------
    def kernel(self, kernel: Kernel) -> list[str]:
        own = list(statements(kernel.body))
        shared = [s.buffer for s in own if isinstance(s, Allocate) and s.buffer.scope == "shared"]
        if shared:
            raise LoweringError(
                self.place, f"threads share {shared[0].name}, and Python runs one after the other",
                "Print lower(s, args) to read it.",
            )  # fmt: skip
        extents = {t.var: t.extent for t in kernel.threads}
        extents |= {s.var: s.extent for s in own if isinstance(s, For)}
        ranges = {v: (0, last(n)) for v, n in extents.items()}
        self.simplify = Simplifier(ranges | {g.var: (1, 2**31 - 1) for g in kernel.given})
        loops = [
            f'for {self.name_of(t.var)} in bind("{t.tag}", {self.size(t.extent)}):'
            for t in kernel.threads
        ]
        pads = [_PAD * k for k in range(len(loops) + 1)]
        lines = [pad + text for pad, text in zip(pads, loops, strict=False)]
        return lines + [pads[-1] + line for line in self.statement(kernel.body)]

    def statement(self, s: Stmt) -> list[str]:
        return _RULES[type(s)](self, s)

    def inside(self, s: Stmt) -> list[str]:
        return [_PAD + line for line in self.statement(s)] or [f"{_PAD}pass"]

    def loop(self, s: For) -> list[str]:
        kind = _LOOPS.get(s.kind, "range")
        head = f"for {self.name_of(s.var)} in {kind}({self.size(s.extent)}):"
        return [head, *self.inside(s.body)]

    def store(self, s: Store) -> list[str]:
        return [f"{self.element(s.buffer, s.index)} = {self.value(s.value)}"]

    def branch(self, s: If) -> list[str]:
        lines = [f"if {self.value(s.condition)}:", *self.inside(s.then)]
        return lines if s.orelse is None else [*lines, "else:", *self.inside(s.orelse)]

    def repeat(self, s: While) -> list[str]:
        return [f"while {self.value(s.condition)}:", *self.inside(s.body)]

    def several(self, s: Seq) -> list[str]:
        return [line for part in s.body for line in self.statement(part)]

    def allocate(self, s: Allocate) -> list[str]:
        b = s.buffer
        words = f'{self.shape((b.size,))}, "{b.dtype}", "{b.scope}"'
        return [f"{self.name_of(b)} = allocate({words})", *self.statement(s.body)]

    def wait(self, s: Barrier) -> list[str]:
        return []

    # -- values ------------------------------------------------------------------------------------
    def element(self, buffer: Buffer, index: Expr) -> str:
        """By an index for each dimension of arguments; all other memory is one row."""
        if buffer not in self.program.args:
            return f"{self.name_of(buffer)}[{self.value(index)}]"
        if not buffer.shape:  # a variable, or a tensor without dimensions
            symbol = buffer in {g.buffer for k in self.program.kernels for g in k.given}
            return self.name_of(buffer) + ("" if symbol else "[()]")
        indices, stride = [], E.const(1)
        for k, n in reversed(list(enumerate(buffer.shape))):
            part = E.binary("floordiv", index, stride)
            indices.append(self.simplify(E.binary("floormod", part, n) if k else part))
            stride = stride * n
        return f"{self.name_of(buffer)}[{', '.join(map(self.value, reversed(indices)))}]"

    def value(self, node: Expr) -> str:
        if node.op == "var":
            return self.name_of(node)
        if node.op == "const":
            return _number(node)
        if node.op == "load":
            return self.element(node.attr, node.args[0])
        parts = [self.value(a) for a in node.args]
        if node.op in ("min", "max"):
            return f"{node.op}({parts[0]}, {parts[1]})"
        if node.op in BINARY:
            sign = {"and": "and", "or": "or"}.get(node.op, BINARY[node.op][0])
            return f"({parts[0]} {sign} {parts[1]})"
        if node.op in ("select", "if_then_else"):
            return f"({parts[1]} if {parts[0]} else {parts[2]})"
        if node.op == "not":
            return f"(not {parts[0]})"
        if node.op == "cast" and node.dtype in CALLS:
            return f"{node.dtype}({parts[0]})"
        word = _FUNCTIONS.get(str(node.attr), str(node.attr))
        if node.op != "call" or word not in CALLS:
            raise LoweringError(self.place, f"scripts have no word for {node.op} {word}")
        return f"{word}({', '.join(parts)})"


def _number(node: Expr) -> str:
    if node.dtype == "bool" or node.dtype == "int32":
        return str(node.attr)
    finite = not node.dtype.is_float or math.isfinite(node.attr)
    return f"{node.dtype}({node.attr!r})" if finite else f'{node.dtype}(float("{node.attr}"))'


_RULES: Rules[Callable[..., list[str]]] = Rules(
    "te.hybrid.build",
    {
        For: _Text.loop,
        Store: _Text.store,
        If: _Text.branch,
        While: _Text.repeat,
        Seq: _Text.several,
        Allocate: _Text.allocate,
        Barrier: _Text.wait,
    },
)
