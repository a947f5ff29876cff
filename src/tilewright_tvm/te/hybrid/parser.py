"""The text of a hybrid script as statements of `te.extern`.

In: a Python function, and what it is called with.  Out: the tensors of an `ExternOp`.
What is known when it is called, numbers, shapes, lists, is computed by Python: conditions on it
choose, names of it are no memory.  The rest becomes expressions and statements of an `IRBuilder`.
Read next: `words.py`, what calls mean; `te/ir_builder.py`.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

from tilewright.base.errors import ExpressionError, TilewrightError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, For, If, Store, Thread
from tilewright.te.opaque import Body, Launch
from tilewright.te.tensor import Tensor
from tilewright_tvm.te.extern import extern
from tilewright_tvm.te.hybrid.source import Source
from tilewright_tvm.te.hybrid.words import (
    CALLS,
    LOOPS,
    Around,
    Cell,
    Part,
    allocated,
    covers,
    known,
    loop,
    whole_number,
)
from tilewright_tvm.te.ir_builder import BufferVar, IRBuilder

_BLOCK = 64  # threads that store zeros


def staged(source: Source, arguments: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a script makes of tensors, in the order in which it returns them."""
    inputs: dict[Tensor, BufferVar] = {}

    def given(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [given(v) for v in value]
        if not isinstance(value, Tensor):
            return known(value)
        size: Any = prod(value.shape)
        buffer = Buffer(value.name, value.dtype, size, "global", tuple(value.shape))
        return inputs.setdefault(value, BufferVar(buffer))

    names = {name: given(value) for name, value in arguments.items()}
    run = Run(source, names, frozenset(b.buffer for b in inputs.values()))
    outs = run.returned()
    made = extern(
        [b.shape for b in outs] if len(outs) > 1 else outs[0].shape, list(inputs),
        lambda ins, out: run.body(outs), name=source.name, dtype=[b.dtype for b in outs],
        in_buffers=list(inputs.values()), out_buffers=outs,
    )  # fmt: skip
    return list(made) if isinstance(made, tuple) else [made]


@dataclass
class _Threads:
    """A kernel that is being written.  bound: tags of the loops around what comes next."""

    indices: dict[str, Thread] = field(default_factory=dict)
    bound: list[str] = field(default_factory=list)
    stores: list[tuple[str, int, frozenset[str]]] = field(default_factory=list)


class Run:
    """One call of a script: its statements, one after the other.

    inlined: it is called by another script, `caller`, into whose builder it writes
    """

    def __init__(
        self,
        source: Source,
        names: dict[str, Any],
        inputs: frozenset[Buffer],
        caller: Run | None = None,
    ) -> None:
        self.source, self.inputs, self.caller = source, inputs, caller
        self.builder: IRBuilder = caller.builder if caller else IRBuilder()
        self.threads: _Threads | None = caller.threads if caller else None
        self.scopes: list[dict[str, Any]] = [names]
        self.line = source.tree.lineno
        self.depth: int = caller.depth if caller else 0  # of loops, conditions and kernels around
        self.outputs: list[BufferVar] = caller.outputs if caller else []
        self.around: list[Around] = caller.around if caller else []
        self.covered: set[Buffer] = caller.covered if caller else set()
        nodes = list(ast.walk(source.tree))
        self.sets = Counter(
            n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        )
        self.sets.update(
            n.target.id
            for n in nodes
            if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
        )
        self.sets.update(list(names))  # parameters
        self.results: list[Any] = []
        self.wanted = _returned_names(source.tree) if caller is None else ()
        with self.placed():
            self._run(source.tree.body)

    # -- the whole ---------------------------------------------------------------------------------
    def returned(self) -> list[BufferVar]:
        """The tensors that the script returns."""
        outs = [v for v in self.results if any(v is o for o in self.outputs)]
        if not outs or len(outs) != len(self.results):
            self.fail("it returns something else than its output tensors",
                      "End with return of what output_tensor gave.")  # fmt: skip
        return outs

    def body(self, outs: Sequence[BufferVar]) -> Body:
        """All statements; outputs that are read, or of which they may leave some, hold zeros before
        the first of them."""
        written = self.builder.get()
        read = {n.attr for e in written.expressions for n in E.walk(e) if n.op == "load"}
        threads = any(launch.threads for launch in written.launches)
        kept = self.covered - read
        zeros = [_zeros(b.buffer, threads) for b in outs if b.buffer not in kept]
        return Body((*zeros, *written.launches), written.spaces)

    def _run(self, statements: Sequence[ast.stmt]) -> None:
        uses_threads = [_binds(s) for s in statements]
        if self.caller is not None or not any(uses_threads):
            return self.block(statements)
        begun = next(
            (k for k, s in enumerate(statements) if _own_memory(s)), len(statements)
        )  # memory of a kernel: what follows is one kernel
        last = max(k for k, threads in enumerate(uses_threads) if threads)
        for k, s in enumerate(statements):
            if begun <= last and k == begun:
                self.kernel(statements[begun : last + 1])
            elif not (begun <= last and begun < k <= last):
                self.kernel([s]) if uses_threads[k] else self.block([s])
        return None

    def kernel(self, statements: Sequence[ast.stmt]) -> None:
        """Statements that blocks and threads run, as one launch."""
        outer, self.builder, self.threads = self.builder, IRBuilder(), _Threads()
        outside, self.depth = self.depth, 1
        try:
            with self.builder.new_scope():
                self.block(statements)
            made, threads = self.builder.get(), self.threads
        finally:
            self.builder, self.threads, self.depth = outer, None, outside
        for name, line, bound in threads.stores:
            missing = set(threads.indices) - bound
            if missing:
                self.line = line
                self.fail(f"{name} is stored outside of the loop over {min(missing)}",
                          "Store it inside all loops of bind.")  # fmt: skip
        body = made.launches[0].body if made.launches else None
        if body is not None:
            launch = Launch(tuple(threads.indices.values()), body)
            self.builder.emit(Body((launch,), made.spaces))

    # -- names -------------------------------------------------------------------------------------
    def find(self, name: str) -> Any:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.sets:
            self.fail(f"{name} has no value here, or it ended with the block that set it",
                      f"Set {name} before that block, at the level where it is read.")  # fmt: skip
        if name in CALLS:
            return CALLS[name]
        try:
            return self.source.outside[name]
        except KeyError:
            self.fail(f"the name {name} means nothing", "Is it misspelt?")

    def set(self, name: str, value: Any) -> None:
        """`name = value`.  Numbers that change when it runs are memory."""
        where = next((k for k, scope in enumerate(self.scopes) if name in scope), None)
        old = None if where is None else self.scopes[where][name]
        if where not in (None, len(self.scopes) - 1) and not isinstance(old, Cell):
            self.fail(f"{name} is set inside a block, and was no number that changes before it",
                      "Give what is set in the block a name of its own.")  # fmt: skip
        if isinstance(old, Cell):
            new, kind = self.element(value), old.memory.dtype
            if new.dtype.is_float and not kind.is_float:
                self.fail(f"{name} is {kind}, and would become {new}",
                          f"Begin it with a float, {name} = 0.0, or cast.")  # fmt: skip
            self.store(old.memory, (0,), new, name)
        elif isinstance(value, (BufferVar, Part, list, tuple, str)) or value is None:
            self.scopes[-1][name] = value
        elif self.sets[name] == 1:
            self.scopes[-1][name] = self.kept(value, name)
        else:
            first = self.element(value)
            self.scopes[-1][name] = Cell(allocated(self, (1,), first.dtype, "", name))
            self.set(name, value)

    def kept(self, value: Any, name: str = "kept") -> Any:
        """What a value is now, whatever is stored later."""
        if isinstance(value, (list, tuple)):
            return [self.kept(v, name) for v in value]
        return self.builder.let(name, value) if isinstance(value, Expr) else value

    @contextmanager
    def inner(self, **names: Any) -> Iterator[None]:
        """A block with names of its own."""
        self.scopes.append(names)
        self.depth += 1
        try:
            yield
        finally:
            self.scopes.pop()
            self.depth -= 1

    @contextmanager
    def inside(self, around: Around) -> Iterator[None]:
        self.around.append(around)
        try:
            yield
        finally:
            self.around.pop()

    def store(self, memory: BufferVar, index: Any, value: Expr, name: str) -> None:
        buffer = memory.buffer
        if buffer in self.inputs:
            self.fail(f"it stores to its input {name}",
                      "Copy it to an allocated tensor, and change that.")  # fmt: skip
        if self.threads is not None and buffer.scope != "local":
            bound = frozenset(self.threads.bound)
            self.threads.stores.append((name, self.line, bound))
        if covers(self.around, index, memory.shape):
            self.covered.add(buffer)
        self.builder.emit(memory.vstore(index, value))

    # -- statements --------------------------------------------------------------------------------
    def block(self, statements: Sequence[ast.stmt]) -> None:
        for s in statements:
            self.line = s.lineno
            rule = _STATEMENTS.get(type(s))
            if rule is None:
                words = type(s).__name__.lower()
                self.fail(f"{words} is no statement of scripts",
                          "There are assignments, for, while, if, assert and return.")  # fmt: skip
            rule(self, s)

    def _assign(self, s: ast.Assign) -> None:
        value = self.value(s.value, s.targets[0])
        if len(s.targets) > 1 or isinstance(s.targets[0], ast.Tuple):  # x, y = y, x
            value = self.kept(value)
        for target in s.targets:
            self._assign_to(target, value)

    def _assign_to(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            return self.set(target.id, value)
        if isinstance(target, ast.Tuple):
            values = list(value) if isinstance(value, (list, tuple)) else [value]
            if len(values) != len(target.elts):
                self.fail(f"{len(values)} values for {len(target.elts)} names")
            for part, v in zip(target.elts, values, strict=True):
                self._assign_to(part, v)
            return None
        if not isinstance(target, ast.Subscript):
            self.fail(f"{ast.unparse(target)} cannot be assigned", "Assign names and elements.")
        memory, index = self._place(target)
        return self.store(memory, index, self.element(value), ast.unparse(target.value))

    def _place(self, target: ast.Subscript) -> tuple[BufferVar, tuple[Any, ...]]:
        """The memory and the whole index of an element."""
        base, index = self._based(target)
        if not isinstance(base, BufferVar):
            self.fail(f"{ast.unparse(target.value)} is no tensor", "Elements of tensors are set.")
        if len(index) != len(base.shape):
            self.fail(f"{len(index)} indices for the shape {list(base.shape)} of {base.name}")
        return base, index

    def _augment(self, s: ast.AugAssign) -> None:
        before = ast.copy_location(ast.BinOp(_read(s.target), s.op, s.value), s)
        self._assign_to(s.target, self.value(ast.fix_missing_locations(before)))

    def _expression(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):  # a docstring
            self.value(s.value)

    def _if(self, s: ast.If) -> None:
        test = known(self.value(s.test))
        if not isinstance(test, Expr):
            return self.block(s.body if test else s.orelse)
        with self.builder.if_scope(test), self.inner(), self.inside(None):
            self.block(s.body)
        if s.orelse:
            with self.builder.else_scope(), self.inner(), self.inside(None):
                self.block(s.orelse)
        return None

    def _while(self, s: ast.While) -> None:
        test = known(self.value(s.test))
        if not isinstance(test, Expr) or s.orelse:
            self.fail("its condition never changes" if not s.orelse else "while has an else")
        with self.builder.while_loop(test), self.inner(), self.inside(None):
            self.block(s.body)

    def _for(self, s: ast.For) -> None:
        call = s.iter
        name = (
            call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        )
        if name not in LOOPS or s.orelse or not isinstance(s.target, ast.Name):
            self.fail(f"no loop over {ast.unparse(call)}",
                      f"Write `for i in {', '.join(LOOPS)}`(...), without else.")  # fmt: skip
        assert isinstance(call, ast.Call)
        loop(self, name, s.target.id, [self.value(a) for a in call.args],
             lambda: self.block(s.body))  # fmt: skip

    def _assert(self, s: ast.Assert) -> None:
        """Known conditions only: kernels cannot raise errors."""
        test = known(self.value(s.test))
        if not isinstance(test, Expr) and not test:
            words = self.value(s.msg) if s.msg is not None else ast.unparse(s.test)
            self.fail(f"the assertion does not hold: {words}")

    def _return(self, s: ast.Return) -> None:
        if s is not self.source.tree.body[-1]:
            self.fail("it returns before its end", "Return in the last line.")
        value = self.value(s.value) if s.value is not None else []
        self.results = self.kept(list(value) if isinstance(value, (list, tuple)) else [value])

    def _nothing(self, s: ast.stmt) -> None:
        pass

    # -- values ------------------------------------------------------------------------------------
    def element(self, value: Any) -> Expr:
        """A number, as an expression."""
        if isinstance(value, (BufferVar, Part, list, tuple, str)) or value is None:
            words = value.name if isinstance(value, BufferVar) else f"{value!r:.40}"
            self.fail(f"{words} is no number", "Index it: a[i].")
        return E.convert(value)

    def number(self, value: Any) -> Any:
        """A number of Python, or an expression."""
        value = known(value)
        return value if isinstance(value, (bool, int, float)) else self.element(value)

    def index(self, node: ast.expr) -> tuple[Any, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(self.number(self.value(p)) for p in parts)

    def value(self, node: ast.expr, target: ast.expr | None = None) -> Any:
        """What an expression means.  target: what it is assigned to, which names its memory."""
        rule = _VALUES.get(type(node))
        if rule is None:
            self.fail(f"{ast.unparse(node)} is no expression of scripts",
                      "There are numbers, names, elements, arithmetic and calls.")  # fmt: skip
        if isinstance(node, ast.Call):
            return self._call(node, target)
        return rule(self, node)

    def _name(self, node: ast.Name) -> Any:
        found = self.find(node.id)
        return found.memory[0] if isinstance(found, Cell) else known(found)

    def _several(self, node: ast.Tuple | ast.List) -> list[Any]:
        return [self.value(part) for part in node.elts]

    def _binary(self, node: ast.BinOp) -> Any:
        rule = _BINARY.get(type(node.op))
        if rule is None:
            self.fail(f"{type(node.op).__name__} is no arithmetic of scripts")
        return rule(self.number(self.value(node.left)), self.number(self.value(node.right)))

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self.number(self.value(node.operand))
        if isinstance(node.op, ast.Not):
            return E.logical_not(value) if isinstance(value, Expr) else not value
        return value if isinstance(node.op, ast.UAdd) else operator.neg(value)

    def _compare(self, node: ast.Compare) -> Any:
        values = [self.number(self.value(v)) for v in (node.left, *node.comparators)]
        tests = []
        for op, a, b in zip(node.ops, values[:-1], values[1:], strict=True):
            name = _COMPARED.get(type(op))
            if name is None:
                self.fail(f"{type(op).__name__} compares no numbers")
            both = isinstance(a, Expr) or isinstance(b, Expr)
            tests.append(E.binary(name, a, b) if both else getattr(operator, name)(a, b))
        return _joined(tests, all, E.all_of)

    def _logic(self, node: ast.BoolOp) -> Any:
        both = isinstance(node.op, ast.And)
        tests = []
        for part in node.values:
            test = self.number(self.value(part))
            if not isinstance(test, Expr) and bool(test) != both:
                return not both  # the rest does not matter
            tests.append(test)
        return _joined(tests, *((all, E.all_of) if both else (any, E.any_of)))

    def _choice(self, node: ast.IfExp) -> Any:
        test = known(self.value(node.test))
        if not isinstance(test, Expr):
            return self.value(node.body if test else node.orelse)
        sides = (self.number(self.value(n)) for n in (node.body, node.orelse))
        return E.if_then_else(test, *sides)

    def _subscript(self, node: ast.Subscript) -> Any:
        base, index = self._based(node)
        if isinstance(base, BufferVar):
            if len(index) < len(base.shape):
                return Part(base, index)
            return self._element_of(base, index)
        for k in index:
            if not isinstance(base, (list, tuple)):
                self.fail(f"{ast.unparse(node.value)} has no elements")
            base = base[whole_number(self, k, "an index of a list", "Use const_range.")]
        return known(base)

    def _based(self, node: ast.Subscript) -> tuple[Any, tuple[Any, ...]]:
        """What is indexed, and by what; of `a[i][j]` a, by both."""
        base, index = self.value(node.value), self.index(node.slice)
        return (base.memory, (*base.index, *index)) if isinstance(base, Part) else (base, index)

    def _element_of(self, base: BufferVar, index: tuple[Any, ...]) -> Expr:
        if len(index) != len(base.shape):
            self.fail(f"{len(index)} indices for the shape {list(base.shape)} of {base.name}")
        return base[index]

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        if isinstance(base, BufferVar) and node.attr not in ("shape", "dtype"):
            self.fail(f"tensors have no {node.attr} in scripts", "They have shape and dtype.")
        try:
            return getattr(base, node.attr)
        except AttributeError:
            self.fail(f"{ast.unparse(node.value)} has no {node.attr}")

    def _call(self, node: ast.Call, target: ast.expr | None) -> Any:
        called = self.value(node.func)
        args = [self.value(a) for a in node.args]
        named = {k.arg or "": self.value(k.value) for k in node.keywords}
        source = getattr(called, "hybrid_source", None)
        if isinstance(source, Source):
            return self._inline(source, args, named)
        if called in CALLS.values() and called in map(self._meaning, CALLS):
            name = target.id if isinstance(target, ast.Name) else ""
            return called(self, *args, **({"name": name} | named if called in _NAMED else named))
        if not callable(called):
            self.fail(f"{ast.unparse(node.func)} cannot be called")
        return known(called(*args, **named))

    def _meaning(self, name: str) -> Any:
        return CALLS[name]

    def _inline(self, source: Source, args: list[Any], named: dict[str, Any]) -> Any:
        """What another script returns, whose statements come here."""
        parameters = [a.arg for a in source.tree.args.args]
        names = dict(zip(parameters, args, strict=False)) | named
        if sorted(names) != sorted(parameters) or len(args) > len(parameters):
            self.fail(f"{source.name} takes {', '.join(parameters)}", "Give each of them.")
        run = Run(source, {n: self.kept(v, n) for n, v in names.items()}, self.inputs, self)
        return run.results[0] if len(run.results) == 1 else run.results

    # -- errors ------------------------------------------------------------------------------------
    def fail(self, reason: str, way_out: str = "") -> NoReturn:
        place = f"hybrid script {self.source.name}, line {self.line}"
        raise ExpressionError(place, reason, way_out)

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Errors from inside name the script and its line."""
        own = f"hybrid script {self.source.name}"
        try:
            yield
        except TilewrightError as error:
            if error.place.startswith("hybrid script"):
                raise
            words = f"{error.place}: {error.reason}"
            place = f"{own}, line {self.line}"
            raise ExpressionError(place, words, error.way_out) from error


def _joined(tests: list[Any], plain: Callable[..., bool], made: Callable[..., Expr]) -> Any:
    return made(*tests) if any(isinstance(t, Expr) for t in tests) else plain(tests)


def _read(target: ast.expr) -> ast.expr:
    """A target as it is read."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    assert isinstance(target, ast.Subscript)
    return ast.Subscript(target.value, target.slice, ast.Load())


def _binds(s: ast.stmt) -> bool:
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "bind"
        for n in ast.walk(s)
    )


def _own_memory(s: ast.stmt) -> bool:
    """Whether a statement of the script itself allocates what lives in one kernel only."""
    if not isinstance(s, ast.Assign) or not isinstance(s.value, ast.Call):
        return False
    scopes = (n.value for n in ast.walk(s.value) if isinstance(n, ast.Constant))
    is_memory = isinstance(s.value.func, ast.Name) and s.value.func.id == "allocate"
    return is_memory and any(scope in ("shared", "local") for scope in scopes)


def _returned_names(tree: ast.FunctionDef) -> tuple[str, ...]:
    last = tree.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return ()
    parts = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return tuple(p.id for p in parts if isinstance(p, ast.Name))


def _zeros(buffer: Buffer, threads: bool) -> Launch:
    """A kernel that stores zeros to all of a buffer."""
    zero = E.const(0, buffer.dtype)
    if not threads:
        var = E.var("k")
        return Launch((), For(var, buffer.size, Store(buffer, var, zero)))
    block, thread = E.var("block"), E.var("thread")
    at = block * _BLOCK + thread
    extents = ((buffer.size + _BLOCK - 1) // _BLOCK, _BLOCK)
    tags = (("blockIdx.x", block), ("threadIdx.x", thread))
    made = tuple(Thread(tag, v, n) for (tag, v), n in zip(tags, extents, strict=True))
    return Launch(made, If(at < buffer.size, Store(buffer, at, zero)))


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
_NAMED = (CALLS["allocate"], CALLS["output_tensor"])  # what is told the name of its memory
_STATEMENTS: dict[type[ast.stmt], Callable[[Run, Any], Any]] = {
    ast.Assign: Run._assign, ast.AugAssign: Run._augment, ast.Expr: Run._expression,
    ast.If: Run._if, ast.While: Run._while, ast.For: Run._for, ast.Assert: Run._assert,
    ast.Return: Run._return, ast.Pass: Run._nothing,
}  # fmt: skip
_VALUES: dict[type[ast.expr], Callable[[Run, Any], Any]] = {
    ast.Constant: lambda run, node: node.value, ast.Name: Run._name, ast.Tuple: Run._several,
    ast.List: Run._several, ast.BinOp: Run._binary, ast.UnaryOp: Run._unary,
    ast.Compare: Run._compare, ast.BoolOp: Run._logic, ast.IfExp: Run._choice,
    ast.Subscript: Run._subscript, ast.Attribute: Run._attribute,
    ast.Call: lambda run, node: run._call(node, None),
}  # fmt: skip
