"""CPU kernels as LLVM IR text: explicit vectors, register tiles by expansion, parallel loops.

In: a `Program` without threads.  Out: `Source`; each kernel is ``void NAME(ptr, ...)``, one pointer
per argument.  The text names no triple, cpu or vector width: those are the compiler's target
machine's.  Read next: `llvm_text.py`, `llvm_value.py`.

A register tile is a local buffer that "unrolled" loops index by constants only: LLVM's first pass
(SROA) turns it into values.  Serial loops carry metadata that forbids LLVM to unroll or vectorise
them, since it picks wrong loops.  A parallel loop becomes ``NAME.bodyK(env, begin, end)``, which
unpacks what the loop uses and calls ``NAME.loopK`` with it: as parameters the pointers are known
not to alias, which pointers read from memory are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.artifact import KernelInfo, Source
from tilewright.base.errors import LegalityError
from tilewright.codegen.asked_ahead import DISTANCE, LINE, asked_ahead
from tilewright.codegen.c_value import APART
from tilewright.codegen.kept_in_place import kept
from tilewright.codegen.llvm_atoms import own_function
from tilewright.codegen.llvm_foreign import included
from tilewright.codegen.llvm_index import constant
from tilewright.codegen.llvm_text import ALIGNMENT, FunctionText, Module, refusal, typed
from tilewright.codegen.llvm_value import Values
from tilewright.codegen.signature import arguments_of, source_of
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, broadcast, cast, walk
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Mma,
    Prefetch,
    Program,
    Seq,
    Stmt,
    Store,
    While,
    expressions,
    statements,
    written_buffers,
)
from tilewright.ir.symbols import MOST, last
from tilewright.targets.target import Target

# Functions that compiled code may call: a kernel of that name would take their place.
_LIBRARY = re.compile(
    r"(exp2?|log(2|10)?|sqrt|a?(sin|cos|tan)h?|erf|pow|floor|ceil|rint|fabs|fma|fmod)f?"
    r"|mem(cpy|set|move|cmp)|main|tilewright_\w+"
)
KEPT_BYTES = 1 << 16  # of a result: not to store what it keeps is worth a test of each vector
STACK_BYTES = 2 << 20  # of one function; threads commonly have 8 MiB
_LOOP_METADATA = (
    '!0 = !{!"llvm.loop.unroll.disable"}\n!1 = !{!"llvm.loop.vectorize.enable", i1 false}'
)


def generate(program: Program, target: Target) -> Source:
    """The text of all kernels of `program`.

    Raises LegalityError when local buffers exceed the stack, InternalError for what lowering must
    have removed (threads, barriers, vectorised loops, variables used outside their loops).
    """
    module = Module()
    names = _symbols(program.kernels)
    for kernel, name in zip(program.kernels, names, strict=True):
        _kernel(module, kernel, name)
    infos = [
        KernelInfo(name, arguments_of(k, program))
        for k, name in zip(program.kernels, names, strict=True)
    ]
    return source_of(program, target, _text(module), infos)


def _symbols(kernels: Sequence[Kernel]) -> list[str]:
    """A symbol per kernel: its name where that is an identifier, unique, not the C library's."""
    names: list[str] = []
    for kernel in kernels:
        base = re.sub(r"\W", "_", kernel.name, flags=re.ASCII)
        name = base = f"k_{base}" if not base[:1].isalpha() or _LIBRARY.fullmatch(base) else base
        n = len(names)
        while name in names:
            name, n = f"{base}_{n}", n + 1
        names.append(name)
    return names


def _text(module: Module) -> str:
    loops = [f"!{n} = distinct !{{!{n}, !0, !1}}" for n in range(2, module.loops)]
    metadata = [_LOOP_METADATA, *loops] if loops else []
    functions = [*module.helpers.values(), *module.functions]
    heads = [included(text) for text in dict.fromkeys(module.included)]
    lines = [*heads, *sorted(module.declarations.values()), "", *functions, *metadata]
    return "\n".join(lines) + "\n"


def _kernel(module: Module, kernel: Kernel, name: str) -> None:
    if kernel.threads:
        raise refusal(kernel.name, "a CPU kernel has no launch threads")
    stored = written_buffers(kernel.body)
    body = asked_ahead(kept(kernel, least=KEPT_BYTES)).body
    shared = {b for node in walk(*expressions(body)) if node.op == APART for b in node.attr}
    function = _Function(module, stored, name, shared)
    types = [_pointer_type(p, stored, shared) for p in kernel.params]
    params = [f"{t} %a{i}" for i, t in enumerate(types)]
    function.memory.pointers.update((p, f"%a{i}") for i, p in enumerate(kernel.params))
    for g in kernel.given:
        function.give(g.var, g.buffer, sized=g.sized)
    function.statement(body)
    function.finish(f"define void @{name}({', '.join(params)}) nounwind")


def _pointer_type(buffer: Buffer, stored: set[Buffer], shared: set[Buffer]) -> str:
    """shared: buffers that may lie in the memory of another one"""
    alone = "" if buffer in shared else "noalias "
    access = "" if buffer in stored else "readonly "
    size = 0 if isinstance(buffer.size, Expr) else buffer.size * buffer.dtype.bytes
    known = f" dereferenceable({size})" if size else ""
    return f"ptr {alone}nocapture {access}align {ALIGNMENT}{known}"


class _Function:
    """Statements of one function.

    shared: buffers that may lie in the memory of another one
    inside: in a parallel loop, where another one runs serially
    """

    def __init__(
        self, module: Module, stored: set[Buffer], name: str, shared: set[Buffer],
        inside: bool = False,
    ) -> None:  # fmt: skip
        self.module, self.stored, self.name, self.inside = module, stored, name, inside
        self.shared = shared
        self.text = FunctionText(module)
        self.values = Values(self.text, stored)
        self.index, self.memory = self.values.index, self.values.memory
        self._stack = 0

    def finish(self, head: str) -> None:
        lines = [
            f"{head} {{",
            "entry:",
            *self.text.allocas,
            *self.text.lines,
            "  ret void",
            "}",
            "",
        ]
        self.module.functions.append("\n".join(lines))

    def statement(self, stmt: Stmt) -> None:
        rule = _STATEMENTS.get(type(stmt))
        if rule is None:
            raise refusal(self.name, f"{type(stmt).__name__} has no form on a CPU")
        rule(self, stmt)

    def give(self, symbol: Expr, buffer: Buffer, *, sized: bool) -> None:
        """Bind a symbol to the element of its buffer."""
        low, high = (1, MOST) if sized else (int(symbol.dtype.least), int(symbol.dtype.greatest))
        n, value = self.index.new_variable(low, high)
        kind = typed(symbol.dtype, 1)
        word = self.text.emit(f"load {kind}, ptr {self.memory.pointers[buffer]}")
        wide = f"sext {kind} {word} to i64" if kind != "i64" else f"add i64 {word}, 0"
        self.text.lines.append(f"  %v{n} = {wide}")
        self.index.bind(symbol, value)

    def _extent(self, extent: Any) -> str:
        """The operand of a number of iterations or elements."""
        if not isinstance(extent, Expr):
            return str(extent)
        return self.index.word(self.index.affine(extent))

    # -- blocks ----------------------------------------------------------------------------------
    def _seq(self, stmt: Seq) -> None:
        for s in stmt.body:
            self.statement(s)

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if isinstance(buffer.size, Expr):
            self._allocate_open(stmt)
            return
        if self.memory.allocate(buffer):
            self._stack += buffer.size * buffer.dtype.bytes
            if self._stack > STACK_BYTES:
                raise LegalityError(
                    f"generate({self.name})",
                    f"local buffers up to {buffer!r} need {self._stack} bytes of stack, "
                    f"more than {STACK_BYTES}",
                    "Compute them at an inner loop, or use smaller tiles.",
                )
        self.statement(stmt.body)

    def _allocate_open(self, stmt: Allocate) -> None:
        """As many elements as a call says come from the C library, and go back to it."""
        buffer = stmt.buffer
        self.module.declare("malloc", "ptr", "i64")
        self.module.declare("free", "void", "ptr")
        count = self._extent(buffer.size * E.const(buffer.dtype.bytes))
        whole = self.text.emit(f"add i64 {count}, {2 * ALIGNMENT}")
        block = self.text.emit(f"call ptr @malloc(i64 {whole})")
        address = self.text.emit(f"ptrtoint ptr {block} to i64")
        ahead = self.text.emit(f"add i64 {address}, {ALIGNMENT - 1}")
        start = self.text.emit(f"and i64 {ahead}, -{ALIGNMENT}")
        self.memory.pointers[buffer] = self.text.emit(f"inttoptr i64 {start} to ptr")
        with self.text.scope():
            self.statement(stmt.body)
        self.text.lines.append(f"  call void @free(ptr {block})")

    def _if(self, stmt: If) -> None:
        self.values.forget()
        scalar = self.module.facts.uniform(stmt.condition)
        c = self.values.condition(stmt.condition if scalar is None else scalar)
        self.values.forget()
        if c in ("true", "false"):
            side = stmt.then if c == "true" else stmt.orelse
            if side is not None:
                self.statement(side)
        elif scalar is None:
            self._if_lanes(stmt, c)
        else:
            self._if_branch(stmt, c)

    def _if_lanes(self, stmt: If, mask: str) -> None:
        lanes = stmt.condition.lanes
        with self.memory.masked(mask, lanes):
            self.statement(stmt.then)
        if stmt.orelse is not None:
            with self.memory.masked(self.text.negate(mask, lanes), lanes):
                self.statement(stmt.orelse)

    def _if_branch(self, stmt: If, test: str) -> None:
        yes, no, end = self.text.new_labels("then", "else", "endif")
        other = end if stmt.orelse is None else no
        self.text.lines.append(f"  br i1 {test}, label %{yes}, label %{other}")
        for label, side in ((yes, stmt.then), (no, stmt.orelse)):
            if side is not None:
                self.text.begin(label)
                with self.text.scope():
                    self.statement(side)
                self.text.lines.append(f"  br label %{end}")
        self.text.begin(end)

    def _while(self, stmt: While) -> None:
        head, body, after = self.text.new_labels("while", "again", "over")
        self.text.lines.append(f"  br label %{head}")
        self.text.begin(head)
        self.values.forget()
        with self.text.scope():
            test = self.values.condition(stmt.condition)
        self.values.forget()
        self.text.lines.append(f"  br i1 {test}, label %{body}, label %{after}")
        self.text.begin(body)
        with self.text.scope():
            self.statement(stmt.body)
        self.text.lines.append(f"  br label %{head}")
        self.text.begin(after)

    # -- loops -----------------------------------------------------------------------------------
    def _for(self, stmt: For) -> None:
        if stmt.kind not in ("serial", "unrolled", "parallel"):
            raise refusal(self.name, f"lowering left a {stmt.kind} loop over {stmt.var}")
        is_open = isinstance(stmt.extent, Expr)
        if not is_open and (stmt.extent == 1 or stmt.kind == "unrolled"):
            for k in range(stmt.extent):
                self.index.bind(stmt.var, constant(k))
                self.statement(stmt.body)
        elif stmt.kind == "parallel" and not self.inside:
            self._parallel(stmt)
        elif is_open or stmt.extent > 0:
            self._loop(stmt, "0", self._extent(stmt.extent))
        self.index.bind(stmt.var, None)

    def _loop(self, stmt: For, begin: str, end: str) -> None:
        """The body runs at least once; the test is at its end."""
        text = self.text
        n, variable = self.index.new_variable(0, last(stmt.extent))
        head, after = f"loop{n}", f"done{n}"
        self.index.bind(stmt.var, variable)
        before = text.label
        text.lines.append(f"  br label %{head}")
        text.begin(head)
        phi = len(text.lines)
        text.lines.append("")  # known once the body's last block is
        with text.scope():
            self.statement(stmt.body)
        text.lines[phi] = f"  %v{n} = phi i64 [ {begin}, %{before} ], [ %n{n}, %{text.label} ]"
        text.lines += (
            f"  %n{n} = add nuw nsw i64 %v{n}, 1",
            f"  %c{n} = icmp ult i64 %n{n}, {end}",
            f"  br i1 %c{n}, label %{head}, label %{after}, !llvm.loop !{self.module.loop()}",
        )
        text.begin(after)

    def _parallel(self, stmt: For) -> None:
        if self.memory.mask is not None:
            raise refusal(self.name, "a parallel loop depends on a vector condition")
        buffers, variables = self._captured(stmt)
        n = self.text.number()
        body, loop = f"{self.name}.body{n}", f"{self.name}.loop{n}"
        self._outline(stmt, buffers, variables, loop)
        pointers = [self.memory.pointers[b] for b in buffers]
        words = [self.index.word(v) for v in map(self.index.affine, variables) if v[1]]
        fields = [("ptr", p) for p in pointers] + [("i64", w) for w in words]
        layout = f"{{ {', '.join(t for t, _ in fields)} }}"
        env = f"%env{n}"
        self.text.allocas.append(f"  {env} = alloca {layout}, align 16")
        unpack, arguments = [], []
        for i, (t, operand) in enumerate(fields):
            place = self.text.emit(f"getelementptr inbounds {layout}, ptr {env}, i64 0, i32 {i}")
            self.text.lines.append(f"  store {t} {operand}, ptr {place}")
            unpack.append(f"  %p{i} = getelementptr inbounds {layout}, ptr %env, i64 0, i32 {i}")
            unpack.append(f"  %x{i} = load {t}, ptr %p{i}")
            arguments.append(f"{t} %x{i}")
        self.module.functions.append(
            "\n".join((
                f"define internal void @{body}(ptr %env, i64 %begin, i64 %end) nounwind {{",
                *unpack,
                f"  call void @{loop}({', '.join([*arguments, 'i64 %begin', 'i64 %end'])})",
                "  ret void\n}\n",
            ))
        )  # fmt: skip
        self.module.declare("tilewright_parallel", "void", "ptr", "ptr", "i64")
        count = self._extent(stmt.extent)
        self.text.lines.append(
            f"  call void @tilewright_parallel(ptr @{body}, ptr {env}, i64 {count})"
        )

    def _outline(self, stmt: For, buffers: list[Buffer], variables: list[Expr], name: str) -> None:
        """Write the function that runs a range of iterations."""
        made = _Function(self.module, self.stored, name, self.shared, inside=True)
        params = []
        for i, buffer in enumerate(buffers):
            params.append(f"{_pointer_type(buffer, self.stored, self.shared)} %a{i}")
            made.memory.pointers[buffer] = f"%a{i}"
        for v in variables:
            value = self.index.affine(v)
            if value[1]:
                k, value = made.index.new_variable(*self.index.bounds(value))
                params.append(f"i64 %v{k}")
            made.index.bind(v, value)
        made.text.lines.append("  %some = icmp slt i64 %begin, %end")
        made.text.lines.append("  br i1 %some, label %run, label %none")
        made.text.begin("run")
        made._loop(stmt, "%begin", "%end")
        made.text.lines.append("  br label %none")
        made.text.begin("none")
        params += ["i64 %begin", "i64 %end"]
        made.finish(f"define internal void @{name}({', '.join(params)}) noinline nounwind")

    def _captured(self, loop: For) -> tuple[list[Buffer], list[Expr]]:
        """Buffers and variables of this function that `loop` uses, in a fixed order."""
        own = {s.buffer for s in statements(loop) if isinstance(s, Allocate)}
        bound = {s.var for s in statements(loop) if isinstance(s, For)}
        buffers: dict[Buffer, None] = {}
        variables: dict[Expr, None] = {}
        for s in statements(loop):
            if isinstance(s, Store):
                buffers[s.buffer] = None
        scratch = [s.buffer.size for s in statements(loop) if isinstance(s, Allocate)]
        sizes = (n for n in scratch if isinstance(n, Expr))
        for node in walk(*expressions(loop), *sizes):
            if node.op == "load":
                buffers[node.attr] = None
            elif node.op == APART:
                buffers |= dict.fromkeys(node.attr)
            elif node.op == "var" and node not in bound:
                variables[node] = None
        return [b for b in buffers if b not in own], list(variables)

    # -- stores ----------------------------------------------------------------------------------
    def _store(self, stmt: Store) -> None:
        self.values.forget()
        value = broadcast(cast(stmt.buffer.dtype, stmt.value), stmt.index.lanes)
        self.memory.write(stmt.buffer, stmt.index, self.values.value(value))

    def _mma(self, stmt: Mma) -> None:
        """A call of the atom's own text, which LLVM puts in its place."""
        self.values.forget()
        name = own_function(self.module, stmt.atom)
        regions = (stmt.sum, stmt.a, stmt.b)
        places = (self.memory.address(r.buffer, self.index.affine(r.index)) for r in regions)
        arguments = ", ".join(f"ptr {pointer}" for pointer, _ in places)
        self.text.lines.append(f"  call void @{name}({arguments})")

    def _prefetch(self, stmt: Prefetch) -> None:
        """Ask for what lies as far behind as `asked_ahead.py` says, into the second cache."""
        region, name = stmt.source, "llvm.prefetch.p0"
        self.module.declare(name, "void", "ptr", "i32", "i32", "i32")
        first, _ = self.memory.address(region.buffer, self.index.affine(region.index))
        for at in range(0, region.count * region.buffer.dtype.bytes, LINE):
            place = self.text.pure(f"getelementptr i8, ptr {first}, i64 {DISTANCE + at}")
            self.text.lines.append(f"  call void @{name}(ptr {place}, i32 0, i32 2, i32 1)")

    def _foreign(self, stmt: Foreign) -> None:
        self.values.forget()
        places = iter(zip(stmt.places, stmt.offsets, strict=True))
        numbers, kinds, given = iter(stmt.numbers), [], []
        for word in stmt.form:
            if word == "p":
                buffer, offset = next(places)
                kinds.append("ptr")
                given.append(self.memory.address(buffer, self.index.affine(offset))[0])
            else:
                number = next(numbers)
                kinds.append(typed(number.dtype, 1))
                given.append(self.values.value(number))
        result = typed(stmt.result, 1)
        self.module.declare(stmt.name, result, *kinds)
        self.module.include(stmt.name)
        arguments = ", ".join(f"{k} {x}" for k, x in zip(kinds, given, strict=True))
        self.text.emit(f"call {result} @{stmt.name}({arguments})")
        self.values.forget()


_STATEMENTS: dict[type[Stmt], Callable[[_Function, Any], None]] = {
    Foreign: _Function._foreign,
    Mma: _Function._mma,
    Prefetch: _Function._prefetch,
    Seq: _Function._seq,
    Allocate: _Function._allocate,
    If: _Function._if,
    While: _Function._while,
    For: _Function._for,
    Store: _Function._store,
}
