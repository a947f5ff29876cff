"""Kernels as C text: one printer for CUDA C and OpenCL C, driven by the table of its dialect.

In: a lowered `Program` and a `Dialect`.  Out: `Source`.  Read next: `c_value.py`, `c_shared.py`.

Vector values are printed lane by lane; only accesses of global and shared memory stay vectors:
lowering has proved their alignment.  Local buffers are C arrays and always accessed by element, so
that the compiler keeps them in registers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tilewright.base.artifact import AWAIT_ONLY, LET_IN_FIRST, KernelInfo, Source
from tilewright.base.dtype import DType
from tilewright.codegen.byte_floats import BYTE, in_words, may_be_halves, of_words
from tilewright.codegen.c_beside import BESIDE, halves, multiplies_by_groups, view_of, whole_warps
from tilewright.codegen.c_dialect import (
    FRESH,
    LAST,
    LET_IN,
    TENSOR_MAP,
    UNIFORM,
    Dialect,
    Names,
    async_copy,
    load_rows,
)
from tilewright.codegen.c_shared import SharedPlan, plan_shared
from tilewright.codegen.c_value import ATOM, SUM, ValuePrinter
from tilewright.codegen.signature import arguments_of, source_of
from tilewright.codegen.waiting import is_dealt_evenly, waiting
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.bulk import BulkCopy
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    BLOCK_TAGS,
    THREAD_TAGS,
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
    Prefetch,
    Program,
    Region,
    Seq,
    Stmt,
    Store,
    Wait,
    While,
    read_buffers,
    statements,
    written_buffers,
)
from tilewright.ir.symbols import last
from tilewright.ir.symbols import ranges as symbol_ranges
from tilewright.targets.target import Target

VECTOR_BYTES = 16  # the widest access
SHARE_ABOVE = 200  # nodes of a value, written out as a tree, from which its shared parts get names
SHARE_FROM = 8  # nodes of the smallest part that gets one

COPIES_IN_FLIGHT = 8  # iterations of a copy into shared memory whose loads wait together

# op -> how many arguments are always evaluated; the others only if they are needed
_STRICT_ARGUMENTS = {"select": 1, "if_then_else": 1, "and": 1, "or": 1}


def generate(program: Program, target: Target, dialect: Dialect) -> Source:
    """The text of all kernels of `program`, in order, behind the helpers they use.

    Raises InternalError for what lowering must have removed: vthread, vectorized and parallel
    loops, variables outside their loops, buffers that are neither parameters nor allocated.
    """
    kernel_names = Names(dialect)
    names = {k: kernel_names.claim(k.name) for k in program.kernels}
    buffer_names = Names(dialect, names.values())
    spelled = {b: buffer_names.claim(b.name) for b in program.args + program.workspaces}
    texts: list[str] = []
    infos: list[KernelInfo] = []
    helpers: dict[str, str] = {}
    dtypes: set[DType] = set()
    plans = {k: plan_shared(k.body) for k in program.kernels}
    behind = dict(zip(program.kernels, program.kernels[1:], strict=False))  # of the same program
    for kernel, name in names.items():
        arguments, shared = arguments_of(kernel, program), plans[kernel]
        variable_names = Names(dialect, buffer_names.taken)
        leads = kernel in behind and is_dealt_evenly(
            kernel, shared.total, plans[behind[kernel]].total, target.limits
        )
        printer = _KernelPrinter(dialect, kernel, shared, spelled, variable_names, program, leads)
        texts.append(printer.run(name))
        helpers |= printer.helpers
        dtypes |= printer.dtypes
        maps = tuple(printer.maps)
        infos.append(KernelInfo(name, arguments, kernel.grid, kernel.block, shared.total, maps))
    preamble = [line for use, line in dialect.preamble.items() if not use or use in dtypes]
    return source_of(program, target, "\n".join([*preamble, *helpers.values(), *texts]), infos)


def lanes_of(root: Expr, start: int, count: int) -> Expr:
    """Lanes start ... start + count - 1 of a vector; what is scalar serves every lane."""
    done: dict[Expr, Expr] = {}

    def visit(node: Expr) -> Expr:
        if node.lanes in (1, count):
            return node
        new = done.get(node)
        if new is None:
            new = done[node] = cut(node)
        return new

    def cut(node: Expr) -> Expr:
        if node.op == "ramp":
            base, stride = node.args
            return E.ramp(base + stride * start, stride, count)
        if node.op == "broadcast":
            return E.broadcast(node.args[0], count)
        if node.op == "var":  # a vector that was read into a C variable
            return E.make("lane", (node,), start, node.dtype)
        return E.rebuild(node, tuple(visit(a) for a in node.args))

    return visit(root)


def _copies(body: Stmt) -> bool:
    """Whether one iteration fills shared memory, with no barrier and no loop that stays one."""
    inside = list(statements(body))
    if any(isinstance(s, (Barrier, While)) for s in inside):
        return False
    if any(isinstance(s, For) and s.kind == "serial" for s in inside):
        return False
    return any(isinstance(s, Store) and s.buffer.scope == "shared" for s in inside)


def _exchanged(kernel: Kernel) -> set[Buffer]:
    """Buffers in which blocks find what other blocks of the launch stored, and their counters."""
    joins = [s for s in statements(kernel.body) if isinstance(s, Join)]
    stored = written_buffers(kernel.body) if joins else set()
    read = set[Buffer]().union(*(read_buffers(s.body) for s in joins))
    return (read & stored).union(s.counters for s in joins)


class _KernelPrinter(ValuePrinter):
    """Prints one kernel once."""

    def __init__(
        self,
        dialect: Dialect,
        kernel: Kernel,
        shared: SharedPlan,
        spelled: Mapping[Buffer, str],
        names: Names,
        program: Program,
        leads: bool,
    ) -> None:
        """leads: whether it lets in the kernel behind it as soon as it waits for nothing itself"""
        ranges = _ranges(kernel)
        super().__init__(dialect, kernel.name, {p: spelled[p] for p in kernel.params}, ranges)
        self.kernel, self.shared, self.names = kernel, shared, names
        self._fixed = {v: 0 for v, (_, greatest) in ranges.items() if greatest == 0}
        self._sizes: dict[Expr, int] = {}
        self._lines: list[str] = []
        self._indent = 1
        copies = (s for s in statements(kernel.body) if isinstance(s, BulkCopy))
        self.maps = {
            view: names.claim(f"{kernel.params[view.argument].name}_map")
            for view in dict.fromkeys(view_of(self, c) for c in copies)
        }
        self._by_groups = multiplies_by_groups(kernel)
        self._waiting = None
        self._early = program.lets_in
        self._leads = leads
        self._lets_in = False  # whether kernels behind wait for a join of this one's blocks
        self._begins = program.begins and kernel is program.kernels[0]
        if program.steady is not None and AWAIT_ONLY in dialect.instructions and not self._begins:
            self._waiting = waiting(kernel, program.steady, self._runs_once)

    # -- the kernel --------------------------------------------------------------------------------
    def run(self, name: str) -> str:
        d, kernel = self.dialect, self.kernel
        stored = written_buffers(kernel.body)
        exchanged = _exchanged(kernel)  # of which compilers must know that others write them
        params = ", ".join(
            f"{'' if p in stored else 'const '}{d.spaces['global']}{self._storage(p.dtype)}* "
            f"{'' if p in exchanged else f'{d.restrict} '}{self.buffers[p]}"
            for p in kernel.params
        )
        if self.maps:
            self._define(TENSOR_MAP)
            views = (f"const __grid_constant__ {TENSOR_MAP} {n}" for n in self.maps.values())
            params = ", ".join([params, *views])
        x, y, z = kernel.block
        head = d.head.format(name=name, params=params, threads=x * y * z, x=x, y=y, z=z)
        if self._waiting is not None and self._early:
            self._lets_in = any(isinstance(s, Join) for s in statements(kernel.body))
            if not self._lets_in:
                self._call_helper(LET_IN_FIRST, "")
        if self._waiting is not None and self._waiting.before is None:
            self._await_kernel()
        elif self._begins and self._leads:
            self._call_helper(LET_IN, "")
        self._declare_given()
        self._declare_threads()
        self._declare_shared()
        self._statement(kernel.body)
        return "\n".join([f"{head} {{", *self._lines, "}", ""])

    def _declare_given(self) -> None:
        for g in self.kernel.given:
            name, kind = self._declare(g.var, str(g.var.attr)), self._type(g.var.dtype)
            self._line(f"const {kind} {name} = {self.buffers[g.buffer]}[0];")

    def _declare_threads(self) -> None:
        extents: dict[str, Any] = {}
        for thread in self.kernel.threads:
            tag, var = thread.tag, thread.var
            if tag not in BLOCK_TAGS + THREAD_TAGS:
                raise self._broken(f"there is no launch dimension {tag!r}")
            if extents.setdefault(tag, thread.extent) is not thread.extent:
                raise self._broken(f"{tag} has extents {extents[tag]} and {thread.extent}")
            if var not in self._fixed:
                name, kind = self._declare(var, str(var.attr)), self._type(var.dtype)
                value = f"({kind}){self.dialect.threads[tag]}"
                if self.maps and tag in THREAD_TAGS[1:] and self.kernel.block[0] % WARP == 0:
                    self._define(UNIFORM)
                    value = f"{UNIFORM}({value})"
                self._line(f"const {kind} {name} = {value};")

    def _declare_shared(self) -> None:
        d, plan = self.dialect, self.shared
        arena = plan.reused or not d.array
        if arena and plan.offsets:
            self._line(d.arena.format(bytes=plan.total, alignment=plan.alignment))
        for buffer, offset in plan.offsets.items():
            name = self.buffers[buffer] = self.names.claim(buffer.name)
            kind = self._storage(buffer.dtype)
            if not arena:
                self._line(d.array.format(type=kind, name=name, size=buffer.size))
                continue
            pointed = f"{d.spaces['shared']}{kind}"
            pointer = d.pointer.format(type=pointed, value=f"tw_shared + {offset}")
            self._line(f"{pointed}* const {name} = {pointer};")

    # -- statements --------------------------------------------------------------------------------
    def _statement(self, stmt: Stmt) -> None:
        if id(stmt) in self.shared.fenced:
            self._line(self.dialect.barrier)
        if self._waiting is not None and self._waiting.before is stmt:
            self._await_kernel()
        printer = self._STATEMENTS.get(type(stmt))
        if printer is None:
            raise self._broken(f"a {type(stmt).__name__} statement has no C text")
        printer(self, stmt)

    def _seq(self, stmt: Seq) -> None:
        for s in stmt.body:
            self._statement(s)

    def _barrier(self, stmt: Barrier) -> None:
        self._line(self.dialect.barrier)

    def _async_copy(self, stmt: AsyncCopy) -> None:
        name = async_copy(stmt.to.count * stmt.to.buffer.dtype.bytes)
        wanted = self._print(self._closed(stmt.condition))
        self._call_helper(name, f"{self._place(stmt.to)}, {self._place(stmt.source)}, {wanted}")

    def _prefetch(self, stmt: Prefetch) -> None:
        self._call_helper("tw_prefetch", self._place(stmt.source))

    def _commit(self, stmt: Commit) -> None:
        self._call_helper("tw_commit", "")

    def _wait(self, stmt: Wait) -> None:
        self._call_helper("tw_wait_copies", f"{stmt.pending}")

    def _load_rows(self, stmt: LoadRows) -> None:
        name = load_rows(stmt.matrices, stmt.to.buffer.dtype.bits, stmt.transposed)
        self._call_helper(name, f"{self._place(stmt.to)}, {self._place(stmt.source)}")

    def _join(self, stmt: Join) -> None:
        counter = self._place(Region(stmt.counters, stmt.index, 1))
        if self._lets_in:
            self._call_helper(LET_IN, "")
        self._define(LAST)
        self._line(f"if ({LAST}({counter}, {stmt.blocks - 1}u)) {{")
        self._block(stmt.body)
        self._line("}")

    def _exchange(self, stmt: Exchange) -> None:
        for k in range(stmt.to.count):
            to, source = (replace(r, index=r.index + k, count=1) for r in (stmt.to, stmt.source))
            places = f"{self._place(to)}, {self._place(source)}"
            self._call_helper("tw_exchange", f"{places}, {stmt.apart}")

    def _await_kernel(self) -> None:
        """From here on the kernel before has ended; compilers know nothing of what is read."""
        assert self._waiting is not None
        fresh, self._waiting = self._waiting.fresh, None
        self._call_helper(AWAIT_ONLY, "")
        if self._leads and not self._early:
            self._call_helper(LET_IN, "")
        for buffer in fresh:
            self._define(FRESH)
            name = self.buffers[buffer]
            self._line(f"{name} = {FRESH}({name});")

    def _call_helper(self, name: str, arguments: str, how: str = "") -> None:
        """how: what is known when it is compiled"""
        self._define(name)
        self._line(f"{name}{f'<{how}>' if how else ''}({arguments});")

    def _define(self, name: str) -> None:
        text = self.dialect.instructions.get(name)
        if text is None:
            raise self._broken(f"{self.dialect.language} has no instruction {name}")
        self.helpers[name] = text

    def _place(self, region: Region, *, as_told: bool = False) -> str:
        """The address where it begins.

        as_told: as the index says, in the first of eight rows, where no swizzle moves anything
        """
        if as_told:
            return f"&{self._buffer(region.buffer)}[{self._print(self._closed(region.index))}]"
        first = E.make("load", (self._closed(region.index),), region.buffer, region.buffer.dtype)
        return f"&{self._print(first, ATOM)}"

    def _for(self, loop: For) -> None:
        if loop.kind not in ("serial", "unrolled"):
            raise self._broken(f"a {loop.kind} loop over {loop.var.attr} reached code generation")
        is_open = isinstance(loop.extent, Expr)
        if self._runs_once(loop):
            self._statement(loop.body)
            return
        name = self._variables.get(loop.var) or self._declare(loop.var, str(loop.var.attr))
        if loop.kind == "unrolled":
            self._line(self.dialect.unroll)
        elif not is_open and _copies(loop.body):
            self._line(f"{self.dialect.unroll} {COPIES_IN_FLIGHT}")
        kind = self._type(loop.var.dtype)
        end = self._print(loop.extent, SUM) if is_open else loop.extent
        self._line(f"for ({kind} {name} = 0; {name} < {end}; ++{name}) {{")
        self._block(loop.body)
        self._line("}")

    def _runs_once(self, loop: For) -> bool:
        """Whether its body alone is printed."""
        is_open = isinstance(loop.extent, Expr)
        return loop.var in self._fixed and not is_open and bool(loop.extent == 1)

    def _if(self, stmt: If) -> None:
        if stmt.condition.lanes > 1:
            raise self._broken(f"the branch on {stmt.condition} differs between lanes")
        test = self._print(self._closed(stmt.condition))
        if self._by_groups and whole_warps(stmt, self.kernel):
            self._define(UNIFORM)
            test = f"{UNIFORM}({test})"
        self._line(f"if ({test}) {{")
        self._block(stmt.then)
        if stmt.orelse is not None:
            self._line("} else {")
            self._block(stmt.orelse)
        self._line("}")

    def _while(self, stmt: While) -> None:
        self._line(f"while ({self._print(self._closed(stmt.condition))}) {{")
        self._block(stmt.body)
        self._line("}")

    def _block(self, body: Stmt) -> None:
        self._indent += 1
        self._statement(body)
        self._indent -= 1

    def _allocate(self, stmt: Allocate) -> None:
        buffer = stmt.buffer
        if buffer.scope == "shared":
            self._statement(stmt.body)
            return
        if buffer.scope != "local":
            raise self._broken(f"{buffer!r} is allocated, but neither shared nor local")
        declaration = f"{self._storage(buffer.dtype)} {{}}[{buffer.size}];"
        if buffer not in self.buffers:
            self.buffers[buffer] = self.names.claim(buffer.name)
            self._line(declaration.format(self.buffers[buffer]))
            self._statement(stmt.body)
            return
        self._line("{")  # a copy of the loop nest: C wants another scope for the same name
        self._indent += 1
        self._line(declaration.format(self.buffers[buffer]))
        self._statement(stmt.body)
        self._indent -= 1
        self._line("}")

    # -- stores ------------------------------------------------------------------------------------
    def _store(self, stmt: Store) -> None:
        """`buffer[index] = value`, in groups of as many lanes as one access can have."""
        buffer, lanes = stmt.buffer, stmt.index.lanes
        index, value = self._closed(stmt.index), self._closed(stmt.value)
        if self.words:
            value = of_words(value, self.words, self._simplify)
        if value.lanes not in (1, lanes):
            raise self._broken(f"{value.lanes} lanes go to {lanes} elements of {buffer.name}")
        if value.dtype is not buffer.dtype:
            raise self._broken(f"a {value.dtype} is stored in {buffer!r} without a cast")
        if may_be_halves(buffer, index, value):
            parts = [lanes_of(value, k, 1) for k in range(lanes)]
            if halves(self, Region(buffer, index.args[0], lanes), parts):
                return
        width = 1 if lanes == 1 else math.gcd(lanes, VECTOR_BYTES // _widest(buffer, value))
        assignments: list[tuple[Expr, Expr]] = []
        for start in range(0, lanes, width):
            place = E.make("load", (lanes_of(index, start, width),), buffer, buffer.dtype, width)
            part = lanes_of(E.broadcast(value, lanes), start, width)
            whole = width == 1 or self._is_access(place)
            if whole and (width == 1 or self._is_vector(part)):
                assignments.append((place, part))
                continue
            part = self._read_vectors(part, {})
            scalars = tuple(self._share(lanes_of(part, i, 1)) for i in range(width))
            if whole:
                assignments.append((place, E.make("lanes", scalars, None, part.dtype, width)))
            else:
                places = (lanes_of(place, i, 1) for i in range(width))
                assignments += zip(places, scalars, strict=True)
        if BYTE in self.dialect.instructions and in_words(buffer, lanes):
            self.words.add(buffer)
        if len(assignments) > 1 and _overlaps(buffer, index, value):
            assignments = [(place, self._named(part)) for place, part in assignments]
        for place, part in assignments:
            self._assign(place, part)

    def _assign(self, place: Expr, value: Expr) -> None:
        if place.lanes > 1:
            self._line(f"{self._access(place, const=False)} = {self._print(value)};")
            return
        value = self._share(self._hoist(value, {}))
        if value.op == "add" and value.args[0] is place:
            self._line(f"{self._print(place)} += {self._print(value.args[1])};")
        else:
            self._line(f"{self._print(place)} = {self._print(value)};")

    def _read_vectors(self, node: Expr, done: dict[Expr, Expr]) -> Expr:
        """`node` with its vector accesses read into variables, unless they may not be evaluated."""
        if node.lanes == 1 or node.op in ("broadcast", "ramp"):
            return node
        new = done.get(node)
        if new is not None:
            return new
        if self._is_vector(node):
            new = self._named(node)
        else:
            strict = _STRICT_ARGUMENTS.get(node.op, len(node.args))
            args = [self._read_vectors(a, done) for a in node.args[:strict]]
            new = E.rebuild(node, (*args, *node.args[strict:]))
        done[node] = new
        return new

    def _hoist(self, node: Expr, done: dict[tuple[Expr, bool], Expr], side: bool = False) -> Expr:
        """Loads of both sides of a select come before the statement: C would branch around them.

        side: whether `node` belongs to such a side.  done: what inlined chains use many times
        """
        key = node, side and node.op != "select"
        new = done.get(key)
        if new is not None:
            return new
        if node.op == "select":
            new = self._hoist_select(node, done)
        elif side and node.op == "load" and node.lanes == 1:
            new = self._named(node)
        else:
            strict = _STRICT_ARGUMENTS.get(node.op, len(node.args))
            args = [self._hoist(a, done, side) for a in node.args[:strict]]
            new = E.rebuild(node, (*args, *node.args[strict:]))
        done[key] = new
        return new

    def _hoist_select(self, node: Expr, done: dict[tuple[Expr, bool], Expr]) -> Expr:
        test, *sides = node.args
        if not any(n.op == "load" for n in E.walk(*sides)):
            return node
        named = {test: self._named(self._hoist(test, done))}
        first, second = (self._hoist(E.substitute(s, named), done, side=True) for s in sides)
        return E.select(named[test], first, second)

    def _share(self, value: Expr) -> Expr:
        """Name what a large value uses several times: inlined chains double at each link."""
        if self._size(value) <= SHARE_ABOVE:
            return value
        uses = Counter((value,))
        _count_uses(value, uses)
        return self._name_parts(value, uses, {})

    def _name_parts(self, node: Expr, uses: Counter[Expr], done: dict[Expr, Expr]) -> Expr:
        new = done.get(node)
        if new is None:
            new = E.rebuild(node, tuple(self._name_parts(a, uses, done) for a in node.args))
            sure, size = uses[node], self._size(node)
            if sure and node.op in ("select", "if_then_else") and size > SHARE_ABOVE:
                new = self._branched(new)
            elif sure > 1 and size >= SHARE_FROM:
                new = self._named(new)
            done[node] = new
        return new

    def _branched(self, node: Expr) -> Expr:
        """A C variable set in the branches of a choice, which have room for names of their own."""
        test, then, other = node.args
        new = E.make("var", (), self.names.claim("v"), node.dtype)
        self._variables[new] = str(new.attr)
        self._line(f"{self._type(node.dtype)} {new.attr};")
        self._line(f"if ({self._print(test)}) {{")
        for value, end in ((then, "} else {"), (other, "}")):
            self._indent += 1
            self._line(f"{new.attr} = {self._print(self._share(value))};")
            self._indent -= 1
            self._line(end)
        return new

    def _size(self, node: Expr) -> int:
        """Nodes of the tree that the text would write out."""
        size = self._sizes.get(node)
        if size is None:
            size = self._sizes[node] = 1 + sum(map(self._size, node.args))
        return size

    def _named(self, value: Expr) -> Expr:
        """A C variable holding `value`."""
        node = E.make("var", (), self.names.claim("v"), value.dtype, value.lanes)
        text = self._print(value)
        kind = self._type(value.dtype) if value.lanes == 1 else self._vector_type(value)
        self._variables[node] = str(node.attr)
        self._line(f"const {kind} {node.attr} = {text};")
        return node

    _STATEMENTS: ClassVar[dict[type[Stmt], Callable[[_KernelPrinter, Any], None]]] = {
        Store: _store, Seq: _seq, For: _for, If: _if, While: _while, Allocate: _allocate,
        Barrier: _barrier, AsyncCopy: _async_copy, Commit: _commit, Wait: _wait,
        LoadRows: _load_rows, Exchange: _exchange, Prefetch: _prefetch, Join: _join, **BESIDE,
    }  # fmt: skip

    # -- small things ------------------------------------------------------------------------------
    def _closed(self, node: Expr) -> Expr:
        """Loops and launch dimensions of one step are no variables in C."""
        return E.substitute(node, self._fixed)

    def _declare(self, var: Expr, wanted: str) -> str:
        name = self._variables[var] = self.names.claim(wanted)
        return name

    def _line(self, text: str) -> None:
        self._lines.append(f"{'  ' * self._indent}{text}")


def _ranges(kernel: Kernel) -> dict[Expr, tuple[int, int]]:
    """Inclusive range of every variable, over all loops that bind it."""
    found = {t.var: last(t.extent) for t in kernel.threads}
    for s in statements(kernel.body):
        if isinstance(s, For):
            found[s.var] = max(last(s.extent), found.get(s.var, 0))
    given = symbol_ranges(g.var for g in kernel.given if g.sized)
    return given | {v: (0, n) for v, n in found.items()}


def _widest(buffer: Buffer, value: Expr) -> int:
    """Bytes of the widest element that a vector store moves by vectors; registers have none."""
    reads = (n for n in E.walk(value) if n.op == "load" and n.lanes > 1)
    moved = [n.dtype.bytes for n in reads if n.attr.scope != "local"]
    if buffer.scope != "local":
        moved.append(buffer.dtype.bytes)
    return max(moved, default=buffer.dtype.bytes)


def _overlaps(buffer: Buffer, index: Expr, value: Expr) -> bool:
    """Whether storing some lanes could change what the others read."""
    reads = (n.args[0] for n in E.walk(value) if n.op == "load" and n.attr is buffer)
    return any(read is not index for read in reads)


def _count_uses(node: Expr, uses: Counter[Expr]) -> None:
    """How often every part is used where it is surely evaluated."""
    for a in node.args[: _STRICT_ARGUMENTS.get(node.op, len(node.args))]:
        uses[a] += 1
        if uses[a] == 1:
            _count_uses(a, uses)
