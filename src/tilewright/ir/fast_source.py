"""Python source for one kernel: a function (a generator where there are barriers) run per thread.

In: a `Kernel`.  Out: a `PythonKernel`, whose parameters `fast_interpreter.py` supplies.
Loop-invariant integer arithmetic is hoisted, index checks that the loop extents prove are left out.

A buffer is a Python list (None: never written) of numpy floats, which round as their type does, or
of ints.  A tracked buffer has one list with the stamp of the last writer of every element, and, if
the kernel also loads it, one with that of the last reader.  Stamps grow: `fork` is the first of
this launch (or parallel loop), `block` that of this block (or iteration), `epoch` that of this
barrier interval; `cur` = epoch + thread number is this thread's, `many` stands for several readers.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import part_of
from tilewright.ir.expr import ARITHMETIC, COMPARE, Expr, binary, logical_not, walk
from tilewright.ir.fast_bulk import BULK, BULK_NAMES, filled, look
from tilewright.ir.fast_kernel import Block as _Block
from tilewright.ir.fast_kernel import PythonKernel, Site
from tilewright.ir.fast_ranges import Range, operation_range
from tilewright.ir.fast_scalars import FLIGHT, NAMESPACE, wrapped
from tilewright.ir.fast_warps import END, WARPS, of_groups, touched, turned
from tilewright.ir.interpreter_memory import InterpreterError, first_line
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    For,
    If,
    Join,
    Kernel,
    Rules,
    Seq,
    Stmt,
    Store,
    While,
    lane,
    read_buffers,
    statements,
    vector_loads,
    written_buffers,
)
from tilewright.ir.warps import stops

MAX_NESTED = 16  # Python allows 20 nested loops in one function
MAX_TEXT = 400  # longer expressions are split, far below Python's nesting limits
STATE = ("fork", "block", "epoch", "cur", "many")


_CACHE: weakref.WeakKeyDictionary[Kernel, dict[bool, PythonKernel]] = weakref.WeakKeyDictionary()


def python_kernel(kernel: Kernel, check: bool = True) -> PythonKernel:
    """The Python form of `kernel`, made once."""
    versions = _CACHE.setdefault(kernel, {})
    if check not in versions:
        with part_of("fast interpreter"):
            versions[check] = _Writer(kernel, check).result()
    return versions[check]


# -- the writer ------------------------------------------------------------------------------------


class _Writer:
    def __init__(self, kernel: Kernel, check: bool) -> None:
        self.kernel, self.check = kernel, check
        self.sites: list[Site] = []
        self.variables: dict[str, Expr] = {}
        self.names: dict[Expr, str] = {}  # variable -> Python name
        self.buffers: dict[Buffer, str] = {}
        self.constants: dict[str, Any] = {}
        self.count = 0
        self.depth_of: dict[Expr, int] = {}  # variable -> index in self.loops
        self.ranges: dict[Expr, Range] = {}
        self.loops: list[_Block] = []
        self.hoisted: list[dict[Expr, str]] = []  # per loop
        self.known: list[dict[Expr, str]] = []  # of the current statement, per lazy branch
        self.uses: dict[Expr, int] = {}
        self.nested = 0
        self.in_parallel = False
        self.mask: Expr | None = None  # the lanes that run
        self.outer: frozenset[Buffer] = frozenset()  # what iterations of a parallel loop share
        self.memo_pure: dict[Expr, bool] = {}
        self.memo_depth: dict[Expr, int] = {}
        self.memo_range: dict[Expr, Range | None] = {}
        everything = list(statements(kernel.body))
        self.stored = written_buffers(kernel.body)
        self.copied = {s.to.buffer for s in everything if isinstance(s, AsyncCopy)}
        self.loaded = read_buffers(kernel.body) | self.copied
        self.filled = filled(kernel)
        self.beside, self.summed = of_groups(everything, self.filled)
        self.has_barrier = any(isinstance(s, Join) or stops(s) for s in everything)
        self.joins = {s: k for k, s in enumerate(s for s in everything if isinstance(s, Join))}
        self.joined = False  # in the body of one
        self.has_parallel = any(isinstance(s, For) and s.kind == "parallel" for s in everything)
        self.allocated = [s.buffer for s in everything if isinstance(s, Allocate)]
        self.shared = [b for b in self.allocated if b.scope == "shared" and kernel.threads]
        self.many_threads = math.prod(kernel.grid) * math.prod(kernel.block) > 1
        touched = dict.fromkeys((*kernel.params, *self.stored, *self.loaded))
        self.parameters = [b for b in touched if b not in set(self.allocated)]
        self.current: Stmt = kernel.body
        self.block = _Block()

    def result(self) -> PythonKernel:
        heads = ["fork", "block", "epoch", "tid", "threads"]
        top = self.block
        self._open_loop(top)
        for thread in self.kernel.threads:
            heads.append(self._bind(thread.var, thread.extent))
        for buffer in (*self.parameters, *self.shared):
            heads += self._declare(buffer)
        self._line("cur = epoch + tid; many = epoch + threads; groups = [[]]")
        if self.summed:
            self._line("hidden = []; batches = [[]]")
        self._statement(self.kernel.body)
        lines = ["def kernel(" + ", ".join(heads) + "):"]
        origins: dict[int, Stmt] = {}
        self._flatten(top, 1, lines, origins)
        source = "\n".join(lines) + "\n"
        namespace = {**NAMESPACE, **BULK_NAMES, **self.constants}
        exec(compile(source, "<interpreter>", "exec"), namespace)
        trackers = {b: self._trackers(b) for b in (*self.parameters, *self.shared)}
        return PythonKernel(
            namespace["kernel"], source, tuple(self.parameters), tuple(self.shared), trackers,
            tuple(self.sites), self.variables, origins, self.has_barrier, self.check,
            tuple(self.joins),
        )  # fmt: skip

    def _flatten(
        self, block: _Block, indent: int, lines: list[str], origins: dict[int, Stmt]
    ) -> None:
        pad = " " * indent
        for text in block.prelude:
            lines.append(pad + text)
            origins[len(lines)] = block.statement[0] if block.statement else self.kernel.body
        for entry, stmt in zip(block.body, block.statement, strict=True):
            lines.append(pad + (entry if isinstance(entry, str) else entry[0]))
            origins[len(lines)] = stmt
            if not isinstance(entry, str):
                self._flatten(entry[1], indent + 1, lines, origins)
        if not block.body and not block.prelude:
            lines.append(pad + "pass")
            origins[len(lines)] = self.kernel.body

    # -- statements

    def _statement(self, stmt: Stmt) -> None:
        self.current = stmt
        _WRITES[type(stmt)](self, stmt)

    def _seq(self, stmt: Seq) -> None:
        for s in stmt.body:
            self._statement(s)

    def _if(self, stmt: If) -> None:
        if stmt.condition.lanes > 1:
            self._masked(stmt)
            return
        self._begin(stmt.condition)
        self._nest(f"if {self._text(stmt.condition)}:", stmt.then)
        if stmt.orelse is not None:
            self.current = stmt
            self._nest("else:", stmt.orelse)

    def _while(self, stmt: While) -> None:
        inner, outer = _Block(), self.block
        self._add(("while True:", inner))
        self.block = inner
        self._begin(stmt.condition)
        self._line(f"if not ({self._text(stmt.condition)}): break")
        self._statement(stmt.body)
        self.block = outer

    def _allocate(self, stmt: Allocate) -> None:
        if stmt.buffer not in self.shared:
            kind = stmt.buffer.dtype
            fill = "None" if self.check else f"to_{kind}(0)" if kind.is_float else "0"
            name, *stamps = self._declare(stmt.buffer)
            self._line(f"{name} = [{fill}] * {stmt.buffer.size}")
            for stamp in stamps:
                self._line(f"{stamp} = [0] * {stmt.buffer.size}")
            if self.check and stmt.buffer in self.summed:
                self._line(f"{name}m = [0] * {stmt.buffer.size}; {name}d = [0]")
        self._statement(stmt.body)
        if self.check and stmt.buffer in self.copied:
            self.current = stmt
            self._line(END.format(buffer=self._name(stmt.buffer)))
            self._guard("at >= 0", "given back", stmt.buffer, "at")

    def _barrier(self, stmt: Barrier) -> None:
        self._line(f"epoch = yield {self._number()}")
        self._line("cur = epoch + tid; many = epoch + threads")

    def _race(self, stamp: str) -> str:
        """Whether what left this stamp is neither before this statement nor by this thread."""
        test = f"{stamp} >= fork and {stamp} != cur and not block <= {stamp} < epoch"
        return f"{test} and not any(a <= {stamp} <= z for a, z in seen)" if self.joined else test

    def _masked(self, stmt: If) -> None:
        """Every lane whose condition holds runs `then`; the condition is of indices only."""
        test = stmt.condition
        if not all(self._pure(lane(test, k)) for k in range(test.lanes)):
            raise self._error("a condition of several lanes must depend on loop variables only")
        for mask, side in ((test, stmt.then), (logical_not(test), stmt.orelse)):
            if side is not None:
                outer = self.mask
                self.mask = mask if outer is None else binary("and", outer, mask)
                self._statement(side)
                self.mask = outer

    def _nest(self, header: str, stmt: Stmt) -> None:
        inner, outer = _Block(), self.block
        self._add((header, inner))
        self.block = inner
        self._statement(stmt)
        self.block = outer

    def _for(self, stmt: For) -> None:
        name = self._bind(stmt.var, stmt.extent)
        if stmt.extent == 1 and stmt.kind != "parallel":
            self.loops[-1].prelude.append(f"{name} = 0")
            self._statement(stmt.body)
            return
        outline = self.nested == MAX_NESTED
        waits = outline and any(map(stops, statements(stmt)))
        before, nested, block = (self.in_parallel, self.outer), self.nested, self.block
        parallel = stmt.kind == "parallel" and self.check and not self.in_parallel
        if parallel:
            self._line("epoch += 2; fork = epoch")
            self.in_parallel, self.outer = True, frozenset(self.buffers)
        if outline:
            function, inner = f"f{self._number()}", _Block()
            self._add((f"def {function}():", inner))
            self.block, self.nested = inner, 0
            if waits or self.has_parallel:
                self._line(f"nonlocal {', '.join(STATE)}")
        body = _Block()
        self._add((f"for {name} in range({stmt.extent}):", body))
        self.block = body
        self.nested += 1
        self._open_loop(body)
        self.depth_of[stmt.var] = len(self.loops) - 1
        if parallel:
            self._line("epoch += 2; block = cur = epoch; many = epoch + 1")
        self._statement(stmt.body)
        self.loops.pop()
        self.hoisted.pop()
        self.block, self.nested = block, nested
        (self.in_parallel, self.outer) = before
        if outline:
            self._line(f"{'yield from ' if waits else ''}{function}()")

    def _store(self, stmt: Store) -> None:
        if stmt.value.dtype != stmt.buffer.dtype:
            raise self._error(f"a {stmt.value.dtype} is stored to {stmt.buffer!r}")
        if self.mask is not None:
            self._store_masked(stmt, self.mask)
            return
        lanes = stmt.index.lanes
        pairs = [(lane(stmt.index, k), lane(stmt.value, k)) for k in range(lanes)]
        self._begin(*(e for pair in pairs for e in pair))
        self._aligned(stmt.buffer, stmt.index)
        for node in vector_loads(stmt.value):
            self._aligned(node.attr, node.args[0])
        targets = [self._index(stmt.buffer, index) for index, _ in pairs]
        texts = [self._text(value) if lanes == 1 else self._atom(value) for _, value in pairs]
        for (_, value), at, text in zip(pairs, targets, texts, strict=True):
            self._write(stmt.buffer, at, value, text)

    def _store_masked(self, stmt: Store, mask: Expr) -> None:
        """As without a mask, lane by lane: all values first, then all writes."""
        chosen: list[tuple[Expr, Expr, str, str]] = []
        outer = self.block
        for k in range(stmt.index.lanes):
            test, index, value = (lane(e, k) for e in (mask, stmt.index, stmt.value))
            self._begin(test, index, value)
            inner, at, text = _Block(), f"a{self._number()}", f"x{self._number()}"
            self._add((f"if {self._text(test)}:", inner))
            self.block = inner
            self._line(f"{at} = {self._index(stmt.buffer, index)}")
            self._line(f"{text} = {self._text(value)}")
            self.block = outer
            chosen.append((test, value, at, text))
        for test, value, at, text in chosen:
            self._begin(test)
            inner = _Block()
            self._add((f"if {self._text(test)}:", inner))
            self.block = inner
            self._write(stmt.buffer, at, value, text)
            self.block = outer

    def _write(self, buffer: Buffer, at: str, value: Expr, text: str) -> None:
        name, kind = self._name(buffer), buffer.dtype
        if self.check and kind.is_index and not self._fits(value, kind):
            self._line(f"x = {text}")
            text = "x"
            self._guard(f"not {kind.least} <= x <= {kind.greatest}", "overflow", buffer, at)
        if self.check and buffer in self.beside | self.summed:
            touched(self, buffer, at, stored=True)
        if not self._tracked(buffer):
            self._line(f"{name}[{at}] = {text}")
            return
        stamp = f"{name}w"
        self._line(f"w = {stamp}[{at}]; x = {text}")
        if buffer in self.copied:
            self._guard(f"w == {FLIGHT}", "in flight", buffer, at)
        differs = f"{self._race('w')} and {name}[{at}] != x and x == x"
        self._guard(differs, "store twice", buffer, at)
        if buffer in self.loaded:
            self._line(f"r = {name}r[{at}]")
            self._guard(self._race("r"), "store race", buffer, at)
        self._line(f"{stamp}[{at}] = cur; {name}[{at}] = x")
        if buffer in self.beside:
            self._line(f"hide(hidden, {name}u, {at})")

    # -- expressions: text that Python can evaluate where the current block stands

    def _begin(self, *roots: Expr) -> None:
        self.known = [{}]
        self.uses = {}
        for node in walk(*roots):
            for a in node.args:
                self.uses[a] = self.uses.get(a, 0) + 1

    def _text(self, node: Expr) -> str:
        if node.op == "var":
            if node not in self.names:
                raise self._error(f"the variable {node} is used outside its loop")
            return self.names[node]
        if node.op == "const":
            return self._constant(node)
        for memo in (*self.hoisted, *self.known):
            if node in memo:
                return memo[node]
        if self._pure(node):
            depth = self._depth(node)
            if depth < len(self.loops) - 1 or self.uses.get(node, 0) > 1:
                return self._hoist(node, depth)
            text = self._plain(node)
            return text if len(text) <= MAX_TEXT else self._hoist(node, depth)
        if node.op == "load":
            return self._load(node)
        if node.op == "if_then_else":
            return self._lazy(node)
        text = self._plain(node)
        if self.uses.get(node, 0) > 1 or len(text) > MAX_TEXT:
            return self._keep(node, text)
        return text

    def _atom(self, node: Expr) -> str:
        """A name or a number."""
        text = self._text(node)
        if not node.args or text.isidentifier() or text.isdigit():
            return text
        return self._hoist(node, self._depth(node)) if self._pure(node) else self._keep(node, text)

    def _keep(self, node: Expr, text: str) -> str:
        name = f"x{self._number()}"
        self._line(f"{name} = {text}")
        self.known[-1][node] = name
        return name

    def _hoist(self, node: Expr, depth: int) -> str:
        """A variable set once per iteration of the loop that `node` depends on."""
        text = self._plain(node)
        name = f"i{self._number()}"
        self.loops[depth].prelude.append(f"{name} = {text}")
        self.hoisted[depth][node] = name
        return name

    def _plain(self, node: Expr) -> str:
        op = node.op
        if op in ("min", "max"):
            a, b = (self._atom(x) for x in node.args)
            unknown = f" or {a} != {a}" if node.dtype.is_float else ""
            return f"({a} if {a} {'<' if op == 'min' else '>'} {b}{unknown} else {b})"
        if op in ARITHMETIC or op in COMPARE:
            a, b = (self._text(x) for x in node.args)
            text = f"({a} {(ARITHMETIC.get(op) or COMPARE[op])[0]} {b})"
            return wrapped(text, node.dtype) if op in ARITHMETIC else text
        read = self._text if self._pure(node) else self._atom  # what may fail is evaluated in full
        if op in ("and", "or"):
            a, b = (read(x) for x in node.args)
            return f"({a} {op} {b})"
        if op == "not":
            return f"(not {self._text(node.args[0])})"
        if op in ("select", "if_then_else"):
            c, a, b = (read(x) for x in node.args)
            return f"({a} if {c} else {b})"
        if op == "cast":
            return self._cast(node)
        if op == "call":
            return f"{node.attr}_{node.dtype}({', '.join(self._text(a) for a in node.args)})"
        raise self._error(f"{node} has not been lowered")

    def _cast(self, node: Expr) -> str:
        text, source, kind = self._text(node.args[0]), node.args[0].dtype, node.dtype
        if kind.is_float:
            return f"to_{kind}({text})" if source.is_float else f"to_{kind}(float({text}))"
        if kind == "bool":
            return f"({text} != 0)"
        whole = text if source.is_int else f"int(float({text}))"
        exact = kind.is_index and (source.is_index or source.is_float)
        return whole if exact else wrapped(whole, kind, always=True)

    def _constant(self, node: Expr) -> str:
        if not node.dtype.is_float:
            return str(node.attr) if node.attr >= 0 else f"({node.attr})"
        number = node.dtype.storage.type(node.attr)
        name = f"k_{node.dtype}_{len(self.constants)}"
        for known, value in self.constants.items():
            if type(value) is type(number) and repr(value) == repr(number):
                return known
        self.constants[name] = number
        return name

    def _lazy(self, node: Expr) -> str:
        name = f"x{self._number()}"
        then, other = (lambda side=side: self._text(side) for side in node.args[1:])
        self._choose(self._atom(node.args[0]), name, then, other)
        self.known[-1][node] = name
        return name

    def _choose(
        self, condition: str, name: str, then: Callable[[], str], other: Callable[[], str]
    ) -> None:
        """`name` has the text of one side, whose parts are evaluated only there."""
        outer = self.block
        for header, side in ((f"if {condition}:", then), ("else:", other)):
            inner = _Block()
            self._add((header, inner))
            self.block = inner
            self.known.append({})
            self._line(f"{name} = {side()}")
            self.known.pop()
            self.block = outer

    def _load(self, node: Expr) -> str:
        buffer = node.attr
        at = self._index(buffer, node.args[0])
        name, value = self._name(buffer), f"x{self._number()}"
        if buffer in self.filled:
            look(self, buffer, at)
        if self._tracked(buffer):
            self._line(f"w = {name}w[{at}]; r = {name}r[{at}]")
            if buffer in self.copied:
                self._guard(f"w == {FLIGHT}", "in flight", buffer, at)
            self._guard(self._race("w"), "load race", buffer, at)
            first = f"{name}r[{at}] = cur if r < epoch else many"
            self._line(f"if r != cur and not fork <= r < block: {first}")
        if self.check and buffer in self.summed:
            touched(self, buffer, at)
        self._line(f"{value} = {name}[{at}]")
        if self.check:
            self._guard(f"{value} is None", "unwritten", buffer, at)
        self.known[-1][node] = value
        return value

    def _index(self, buffer: Buffer, index: Expr) -> str:
        at = self._atom(index)
        span = self._range(index)
        if self.check and (span is None or span[0] < 0 or span[1] >= buffer.size):
            self._guard(f"not 0 <= {at} < {buffer.size}", "bounds", buffer, at)
        return turned(buffer, at)

    def _aligned(self, buffer: Buffer, index: Expr) -> None:
        consecutive = index.op == "ramp" and index.args[1].op == "const" and index.args[1].attr == 1
        unit = math.gcd(index.lanes, 16 // buffer.dtype.bytes)
        if self.check and self.kernel.threads and consecutive and unit > 1:
            at = self._atom(index.args[0])
            self._guard(f"{at} % {unit}", "aligned", buffer, at, unit)

    # -- what is known about integer expressions

    def _pure(self, node: Expr) -> bool:
        """Integer arithmetic on variables that cannot fail: safe to compute early."""
        known = self.memo_pure.get(node)
        if known is None:
            known = node.op in ("var", "const") and not node.dtype.is_float
            if node.args and not node.dtype.is_float and node.op not in ("load", "call"):
                safe = node.op not in ("floordiv", "floormod") or node.args[1].op == "const"
                known = safe and all(map(self._pure, node.args))
            self.memo_pure[node] = known
        return known

    def _depth(self, node: Expr) -> int:
        if node.op == "var":
            return self.depth_of.get(node, 0)
        known = self.memo_depth.get(node)
        if known is None:
            known = self.memo_depth[node] = max((self._depth(a) for a in node.args), default=0)
        return known

    def _fits(self, value: Expr, kind: DType) -> bool:
        """Whether `value` is a known integer of that type: constants and what loops count."""
        span = self._range(value)
        return span is not None and kind.least <= span[0] and span[1] <= kind.greatest

    def _range(self, node: Expr) -> Range | None:
        if node not in self.memo_range:
            if node.op in ("var", "const"):
                number = node.attr if node.op == "const" and node.dtype.is_int else None
                span = self.ranges.get(node) if number is None else (number, number)
            else:
                span = operation_range(node, [self._range(a) for a in node.args])
            self.memo_range[node] = span
        return self.memo_range[node]

    # -- small things

    def _error(self, reason: str) -> InterpreterError:
        return InterpreterError(f"{self.kernel.name}: {first_line(self.current)}", reason)

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _add(self, entry: str | tuple[str, _Block]) -> None:
        self.block.body.append(entry)
        self.block.statement.append(self.current)

    def _line(self, text: str) -> None:
        self._add(text)

    def _guard(self, condition: str, kind: str, buffer: Buffer, at: str, unit: int = 1) -> None:
        self.sites.append(Site(kind, buffer, self.current, unit))
        self._line(f"if {condition}: fail({len(self.sites) - 1}, {at}, locals())")

    def _open_loop(self, block: _Block) -> None:
        self.loops.append(block)
        self.hoisted.append({})

    def _bind(self, var: Expr, extent: int) -> str:
        if var in self.names:  # bound again by a later loop: forget what was derived from it
            self.memo_range.clear()
            self.memo_depth.clear()
            for memo in self.hoisted:
                memo.clear()
        name = self.names[var] = f"v{self._number()}"
        self.variables[name] = var
        self.ranges[var] = (0, extent - 1)
        self.depth_of[var] = len(self.loops) - 1
        return name

    def _declare(self, buffer: Buffer) -> list[str]:
        name = self.buffers[buffer] = f"b{self._number()}"
        return [name, *(name + suffix for suffix in "wrum"[: self._trackers(buffer)])]

    def _name(self, buffer: Buffer) -> str:
        if buffer not in self.buffers:
            raise self._error(f"the buffer {buffer!r} does not exist here")
        return self.buffers[buffer]

    def _trackers(self, buffer: Buffer) -> int:
        """Lists of stamps: writers, readers; of what groups read: not shown, being read."""
        if buffer in self.filled:
            return 1
        if self.check and buffer in self.copied | self.beside:
            return 4 if buffer in self.beside else 2
        private = buffer in self.allocated and buffer not in self.shared and not self.has_parallel
        if not self.check or private or buffer not in self.stored:
            return 0
        if not (self.many_threads or self.has_parallel):
            return 0
        return 2 if buffer in self.loaded else 1

    def _tracked(self, buffer: Buffer) -> bool:
        """Does an access here race with accesses of other threads or iterations?"""
        if self._trackers(buffer) == 0 or buffer in self.filled:
            return False
        shares = self.many_threads or buffer in self.copied
        return shares or (self.in_parallel and buffer in self.outer)


_WRITES: Rules[Callable[..., None]] = Rules(
    "fast interpreter",
    {
        Seq: _Writer._seq,
        For: _Writer._for,
        If: _Writer._if,
        While: _Writer._while,
        Store: _Writer._store,
        Allocate: _Writer._allocate,
        Barrier: _Writer._barrier,
        **WARPS,
        **BULK,
    },
)
